"""Before a route with effects starts: what init makes, what check says, what run refuses, what explain shows."""
import contextlib
import json
import re

import pytest
from bson.int64 import Int64
from harness import Nowhere, Setup, Somewhere


def orders(setup, **more):
    """Orders with a number per category, and counters of users and of days."""
    name = f"tests.{setup.collection.name}"
    setup.routes[0].update({
        "ensure_index": False, "dedup": {"key": ["id"]},
        "sequence": {"field": "no", "group": ["cat"], "template": "{cat}-{seq:06}", "template_field": "ref"},
        "counter": [{"collection": f"{name}_users", "filter": {"_id": "user"}, "inc": {"orders": 1}},
                    {"collection": f"{name}_days", "filter": {"day": "day", "cat": "cat"}, "inc": {"n": 1, "sum": "amount"}}], **more})
    return setup


def follows(setup, **more):
    name = f"tests.{setup.collection.name}"
    setup.routes[0].update({
        "ensure_index": False, "order_by": "source", "dedup": {"key": ["event"]},
        "operation": {"source": "what", "insert": ["follow"], "delete": ["unfollow"], "ledger_expire": "48h"},
        "entity": {"key": ["source", "target"]},
        "counter": [{"collection": f"{name}_users", "filter": {"_id": "target"}, "inc": {"followers": 1}},
                    {"collection": f"{name}_users", "filter": {"_id": "source"}, "inc": {"following": 1}, "upsert": False}], **more})
    return setup


def beside(setup, name):
    return setup.collection.database[f"{setup.collection.name}_{name}"]


def rows(setup):
    """(status, {what without the collection's own name: (verdict, text)}) of check --connect."""
    done = setup.command("check", "--connect", "--json")
    found = {}
    for row in json.loads(done.stdout)["checks"]:
        what = row["what"].replace(f"tests.{setup.collection.name}", "C")
        found[what] = (row["verdict"], row["text"].replace(f"tests.{setup.collection.name}", "C"))
    return done.returncode, found


def init(setup, *options):
    done = setup.command("init", *options)
    return done.returncode, (done.stdout + done.stderr).decode().replace(f"tests.{setup.collection.name}", "C")


def indexes(collection):
    return {i["name"]: {k: dict(v) if k == "key" else v for k, v in i.items() if k not in ("v", "name", "collation", "ns")}
            for i in collection.list_indexes() if i["name"] != "_id_"}


@pytest.fixture
def topic(stack):
    return stack.topic(1)


# --- init ---


def test_init_makes_all_of_it_once(make, topic):
    setup = orders(make(topic, dead_letters=False))
    status, said = init(setup)
    assert status == 0 and said.splitlines()[:8] == [
        "dedup index of C: made", "sequence index of C: made", "sequence text index of C: made", "counter index of C_days: made",
        "collection C_users (counters): made", "collection C_days (counters): was there",
        "collection C_sequences (sequence counters): made", "sequence of C: no counter lags (0 groups)"], said
    assert list(indexes(setup.collection).items()) == [  # what events are known by is the first
        ("idemsink_dedup", {"key": {"id": 1}, "unique": True}),
        ("idemsink_sequence", {"key": {"cat": 1, "no": 1}, "unique": True, "partialFilterExpression": {"no": {"$exists": True}}}),
        ("idemsink_sequence_text", {"key": {"ref": 1}, "unique": True, "partialFilterExpression": {"ref": {"$exists": True}}})]
    assert indexes(beside(setup, "days")) == {"idemsink_counter_day_cat": {"key": {"day": 1, "cat": 1}, "unique": True}}
    again = init(setup)[1]
    assert "made" not in again and again.count("there and right") == 4
    status, found = rows(setup)
    assert status == 0 and {verdict for verdict, _ in found.values()} <= {"ok", "none"}, found
    assert found["counter index of C_users"] == ("ok", "_id") and found["counter n, sum in C_days"][0] == "ok"
    assert found["sequence of C"] == ("ok", "no counter lags behind the highest number (0 groups)")


def test_init_makes_the_ledger_and_its_expiry(make, topic):
    setup = follows(make(topic, dead_letters=False))
    status, said = init(setup)
    assert status == 0 and "collection C_ledger (ledger): was there" in said, said  # its index has made it
    assert indexes(setup.collection) == {"idemsink_entity": {"key": {"source": 1, "target": 1}, "unique": True}}
    assert indexes(beside(setup, "ledger")) == {"idemsink_expire": {"key": {"at": 1}, "expireAfterSeconds": 172800}}
    status, found = rows(setup)
    assert status == 0 and found["order in " + setup.routes[0]["collection"].replace(f"tests.{setup.collection.name}", "C")] == (
        "ok", "events of an entity: in order (order_by = source)"), found
    assert found["effects of C"][1].startswith("transaction (")


def test_by_steps_there_is_an_index_of_what_is_open(make, topic):
    setup = follows(make(topic, dead_letters=False), effects="log")
    status, said = init(setup)
    assert status == 0 and "index of open effects of C_ledger: made" in said and "collection C_users" not in said, said
    assert indexes(beside(setup, "ledger"))["idemsink_open"] == {
        "key": {"_effects.at": 1}, "partialFilterExpression": {"_effects.at": {"$exists": True}}}
    assert rows(setup)[0] == 0


# --- what is refused ---

WRONG = [  # what is done to the indexes, the row that says so, its words, and what makes it good again
    (lambda c: c.drop_index("idemsink_sequence"), "sequence index of C", "keeps the numbers of a group apart; run: idemsink init", init),
    (lambda c: (c.drop_index("idemsink_sequence"), c.create_index([("cat", 1), ("no", 1)], unique=True, partialFilterExpression={"no": {"$gt": 9}})),
     "sequence index of C", "another filter", lambda setup: (setup.collection.drop_index("cat_1_no_1"), init(setup))),
    (lambda c: (c.drop_index("idemsink_sequence_text"), c.create_index("ref")), "sequence text index of C", "is not unique",
     lambda setup: (setup.collection.drop_index("ref_1"), setup.collection.create_index("ref", unique=True))),
    (lambda c: c.database[c.name + "_sequences"].create_index("at", expireAfterSeconds=9), "sequence counters of C_sequences",
     "numbers would begin again", lambda setup: beside(setup, "sequences").drop_index("at_1")),
    (lambda c: c.database[c.name + "_days"].drop_indexes(), "counter index of C_days", "two writers could make two documents", None),
]


def test_what_is_missing_or_wrong_is_refused(make, topic):
    setup = orders(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    for harm, row, words, mend in WRONG:
        harm(setup.collection)
        status, found = rows(setup)
        assert status == 1 and found[row][0] == "wrong" and words in found[row][1], found
        assert [what for what, (verdict, _) in found.items() if verdict == "wrong"] == [row]
        if mend:
            mend(setup)
    worker = setup.start()
    assert worker.wait(20) == 78 and "two writers could make two documents" in worker.log_tail()
    setup.routes[0]["counter"][1]["upsert"] = False  # one that is never made may do without
    status, found = rows(setup)
    assert status == 0 and found[row][0] == "warning" and "each move reads all" in found[row][1]


def test_run_makes_them_where_it_may(make, topic):
    """It gets as far as the proof of what can't be made: two orders have one number."""
    setup = orders(make(topic, dead_letters=False), ensure_index=True)
    setup.collection.insert_many([{"cat": "a", "no": 1, "id": i} for i in (1, 2)])
    assert "run makes it (ensure_index)" in rows(setup)[1]["sequence text index of C"][1]
    worker = setup.start()
    assert worker.wait(20) == 78 and "the sequence index on (cat, no) can't be made, because documents with equal values" in worker.log_tail()
    assert "idemsink_dedup" in indexes(setup.collection)


def test_expiry_that_is_not_the_configured_one(make, topic):
    setup = follows(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    setup.routes[0]["operation"]["ledger_expire"] = "24h"
    status, said = init(setup)
    assert status == 78 and "expires after another time than operation.ledger_expire" in said
    setup.routes[0]["operation"]["ledger_expire"] = "0s"
    status, found = rows(setup)
    assert status == 1 and "would count again" in found["ledger of C_ledger"][1]


# --- sequences that lag ---


def test_a_sequence_that_lags_is_refused_and_raised(make, topic):
    setup = orders(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    counters = beside(setup, "sequences")
    counters.insert_many([{"_id": {"cat": "fine"}, "n": Int64(9)}, {"_id": {"cat": "late"}, "n": Int64(2)}])
    setup.collection.insert_many(
        [{"id": f"{cat}{no}", "cat": cat, "no": no} for cat, no in (("fine", 9), ("fine", 8), ("late", 3), ("late", 5), (7, 4), (7, 2))]
        + [{"id": "x", "cat": "text", "no": "9"}, {"id": "y", "no": 9}, {"id": "z", "cat": ["a"], "no": 9}])  # nobody's numbers
    words = "the sequence lags: group .*, and the highest no in C is .*; 2 of 3 groups; .* --raise-sequences"
    status, said = init(setup)
    assert status == 78 and re.search(words, said), said
    status, found = rows(setup)
    assert status == 1 and re.search(words, found["sequence of C"][1]), found
    worker = setup.start()
    assert worker.wait(20) == 78 and "the sequence lags" in worker.log_tail()
    assert counters.count_documents({}) == 2  # nobody has touched them
    status, said = init(setup, "--raise-sequences")
    assert status == 0 and "sequence of C: 2 of 3 counters raised in C_sequences" in said
    assert {str(d["_id"]["cat"]): d["n"] for d in counters.find()} == {"fine": 9, "late": 5, "7": 4}
    assert all(isinstance(d["n"], Int64) for d in counters.find())
    assert "no counter lags (3 groups)" in init(setup, "--raise-sequences")[1]


def test_many_groups_are_compared(make, topic):
    setup = orders(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    setup.collection.insert_many([{"id": i, "cat": i, "no": i + 1} for i in range(2500)])
    beside(setup, "sequences").insert_many([{"_id": {"cat": Int64(i)}, "n": Int64(i + 1)} for i in range(2500) if i != 1700])
    status, found = rows(setup)
    assert status == 1 and re.search(r'group \{ "_id" : \{ "cat" : 1700 \} \} has no counter.*is 1701; 1 of 2500 groups', found["sequence of C"][1])


def test_numbers_below_the_start_are_in_nobodys_way(make, topic):
    setup = orders(make(topic, dead_letters=False))
    setup.routes[0]["sequence"]["start"] = 1000
    setup.collection.insert_one({"id": 1, "cat": "a", "no": 999})
    assert init(setup)[0] == 0
    setup.collection.insert_one({"id": 2, "cat": "a", "no": 1000})
    status, said = init(setup)
    assert status == 78 and "has no counter" in said and "is 1000;" in said


@contextlib.contextmanager
def no_time(stack, times):
    """So many aggregations end at once, as those do whose time is over."""
    admin = stack.mongo.admin
    admin.command("configureFailPoint", "failCommand", mode={"times": times}, data={"failCommands": ["aggregate"], "errorCode": 50})
    try:
        yield
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")


def test_a_big_collection_costs_run_the_newest_documents_only(stack, make, topic):
    setup = orders(make(topic, dead_letters=False))
    setup.routes[0]["counter"] = []
    assert init(setup)[0] == 0
    setup.collection.insert_many([{"id": i, "cat": "old", "no": i + 1} for i in range(10000)])
    with no_time(stack, 1):
        status, found = rows(setup)
    assert status == 0 and found["sequence of C"][0] == "can't tell", found
    assert "idemsink init compares them" in found["sequence of C"][1]
    setup.collection.insert_one({"id": "new", "cat": "new", "no": 3})
    with no_time(stack, 1):
        worker = setup.start()
        assert worker.wait(20) == 78 and worker.saw("compared with the newest documents only")
    assert "1 of 2 groups" not in worker.log_tail() and "the sequence lags" in worker.log_tail()


def test_max_has_no_counters(make, topic):
    setup = orders(make(topic, dead_letters=False))
    setup.routes[0]["sequence"]["mode"] = "max"
    status, said = init(setup)
    assert status == 0 and "sequence of" not in said and "C_sequences" not in said
    assert "where nobody else gives numbers" in rows(setup)[1]["sequence of C"][1]


# --- counters ---


def test_a_counter_that_is_no_integer_is_found(make, topic):
    setup = orders(make(topic, dead_letters=False))
    days = beside(setup, "days")
    days.create_index([("day", 1), ("cat", 1)], unique=True)
    days.insert_many([{"day": 1, "cat": 1, "n": 3, "sum": Int64(4)}, {"day": 2, "cat": 1}])
    assert rows(setup)[1]["counter n, sum in C_days"][0] == "ok"
    for value, words in ((2.0, "leaves it one, which counts exactly up to 2^53 only"), ("2", "every event that moves it is a dead letter"),
                         (None, "is of type null")):
        days.update_one({"day": 2}, {"$set": {"sum": value}})
        status, found = rows(setup)
        verdict, text = found["counter n, sum in C_days"]
        assert status != 0 and verdict == "wrong" and words in text and "whose sum is" in text and "$toLong" in text


# --- explain ---


@pytest.fixture
def explain(tmp_path):
    """explain(payload, kind, options...) -> the JSON of explain, without a service."""

    def run(payload, kind=orders, *options, **more):
        setup = kind(Setup(Nowhere, tmp_path, "orders", collection=Somewhere), **more)
        setup.sections["redis"] = {"uri": "redis://127.0.0.1:1/0"}
        done = setup.command("explain", "--topic", "orders", "--json", *options, stdin=payload, seconds=10)
        return json.loads(done.stdout)

    return run


def test_explain_shows_what_would_move(explain):
    shown = explain(b'{"id": 1, "cat": "A", "user": "u", "day": 3, "amount": -5}', lock={"key": "pay:{user}", "prefix": "locks:"})
    assert shown["counter"] == [{"collection": "tests.c_users", "filter": {"_id": "u"}, "inc": {"orders": 1}, "upsert": True},
                                {"collection": "tests.c_days", "filter": {"day": 3, "cat": "A"}, "inc": {"n": 1, "sum": -5}, "upsert": True}]
    assert shown["number"] == {"field": "no", "mode": "gapless", "group": {"_id": {"cat": "A"}}, "collection": "d.c_sequences", "text_field": "ref",
                               "text": "A-######"}
    assert shown["lock"] == "locks:pay:u" and "document" in shown and "command" not in shown
    shown = explain(b'{"id": 1, "cat": "A-B", "user": "u", "day": 3, "amount": 1}')
    assert shown["reason"] == "effect_value" and "sequence.template" in shown["error"]
    shown = explain(b'{"id": 1, "cat": "A", "user": "u", "day": 3, "amount": 1.5}')
    assert shown["reason"] == "effect_value" and '"amount"' in shown["error"]


def test_explain_shows_operations(explain):
    shown = explain(b'{"event": 9, "what": "follow", "source": "a", "target": "b"}', follows)
    assert shown["operation"] == "insert" and shown["dedup_key"] == {"_id": 9} and shown["entity"] == {"source": "a", "target": "b"}
    assert [c["inc"] for c in shown["counter"]] == [{"followers": 1}, {"following": 1}] and shown["ledger"] == "d.c_ledger"
    shown = explain(b'{"event": 9, "what": "unfollow", "source": "a", "target": "b"}', follows)
    assert shown["operation"] == "delete" and "document" not in shown
    assert [c["inc"] for c in shown["counter"]] == [{"followers": -1}, {"following": -1}] and not shown["counter"][1]["upsert"]
    assert explain(b'{"event": 9, "what": "block", "source": "a", "target": "b"}', follows)["reason"] == "operation_unknown"


def asked(setup, payload):
    done = setup.command("explain", "--topic", setup.topics[0], "--connect", "--json", stdin=json.dumps(payload).encode())
    shown = json.loads(done.stdout)
    return {name: shown.get(name) for name in ("stored", "moves", "entity_now", "next_number")}


def test_explain_asks_what_is_there(make, topic):
    setup = orders(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    order = {"id": 1, "cat": "A", "user": "u", "day": 3, "amount": 5}
    assert asked(setup, order) == {"stored": "not there: it would be inserted", "moves": None, "entity_now": None, "next_number": 1}
    beside(setup, "sequences").insert_one({"_id": {"cat": "A"}, "n": Int64(41)})
    assert asked(setup, order)["next_number"] == 42
    setup.collection.insert_one({**{k: Int64(v) if isinstance(v, int) else v for k, v in order.items()}, "no": Int64(41), "ref": "A-000041"})
    assert asked(setup, order) == {"stored": "there and equal: a duplicate", "moves": "nothing: the event is there already", "entity_now": None,
                                   "next_number": None}
    setup.collection.update_one({"id": 1}, {"$set": {"_effects": {"at": 1}}})
    assert "what is left of it" in asked(setup, order)["moves"]


def test_explain_asks_for_event_and_entity(make, topic):
    setup = follows(make(topic, dead_letters=False))
    assert init(setup)[0] == 0
    follow, unfollow = ({"event": 9, "what": what, "source": "a", "target": "b"} for what in ("follow", "unfollow"))
    assert asked(setup, follow) == {"stored": "not in the ledger: the event is new", "moves": "the entity is added", "entity_now": "not there",
                                    "next_number": None}
    assert asked(setup, unfollow)["moves"].startswith("nothing: there is no entity")
    setup.collection.insert_one({"source": "a", "target": "b"})
    assert asked(setup, follow)["moves"].startswith("nothing: the entity is there") and asked(setup, unfollow)["moves"] == "the entity is removed"
    beside(setup, "ledger").insert_one({"_id": Int64(9)})
    assert asked(setup, unfollow) == {"stored": "in the ledger: a duplicate", "moves": "nothing: the event is there already", "entity_now": "there",
                                      "next_number": None}
