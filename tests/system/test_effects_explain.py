"""Sequences that lag behind the documents; and what explain shows of effects."""
import contextlib
import json
import re

import pytest
from bson.int64 import Int64
from effects_start import beside, follows, init, orders, rows
from harness import Nowhere, Setup, Somewhere


@pytest.fixture
def topic(stack):
    return stack.topic(1)


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
    assert explain(b'{"id": 1, "cat": "A-B", "user": "u", "day": 3, "amount": 1}')["number"]["text"] == "A-B-######"
    shown = explain(b'{"id": 1, "cat": "A", "user": "u", "day": 3, "amount": 1.5}')
    assert shown["reason"] == "effect_value" and '"amount"' in shown["error"]


def test_explain_shows_mirrors(explain):
    def mirrored(setup):
        users, days = orders(setup).routes[0]["counter"]
        users["mirror"], days["mirror"] = "u:{_id}", "d:{day}/{cat}"
        return setup

    shown = explain(b'{"id": 1, "cat": "A", "user": "u", "day": 3, "amount": -5}', mirrored)
    assert [counter["mirror"] for counter in shown["counter"]] == ["u:u", "d:3/A"]


def test_explain_points_to_null(explain):
    """Nothing on stdin is an empty value, and no tombstone."""
    def removing(setup):
        setup.routes[0].update(dedup={"key": ["@offset"]}, tombstone="delete", entity={"key": ["@key"], "fields": ["key"]})
        return setup

    shown = explain(b"", removing, "--key", "k")
    assert shown["reason"] == "empty_value" and "--null" in shown["hint"]
    assert explain(b"", removing, "--key", "k", "--null")["operation"] == "delete"
    assert "hint" not in explain(b'{"a": 1}', removing, "--key", "k")


def test_explain_shows_operations(explain):
    shown = explain(b'{"event": 9, "what": "follow", "source": "a", "target": "b"}', follows)
    assert shown["operation"] == "insert" and shown["dedup_key"] == {"_id": 9} and shown["entity"] == {"source": "a", "target": "b"}
    assert [c["inc"] for c in shown["counter"]] == [{"followers": 1}, {"following": 1}] and shown["ledger"] == "d.c_ledger"
    shown = explain(b'{"event": 9, "what": "unfollow", "source": "a", "target": "b"}', follows)
    assert shown["operation"] == "delete" and "document" not in shown
    assert [c["inc"] for c in shown["counter"]] == [{"followers": -1}, {"following": -1}] and not shown["counter"][1]["upsert"]
    assert shown["lane"] == 'a value of the record: { "source" : "a" }'
    shown = explain(b'{"event": 9, "what": "block", "source": "a", "target": "b"}', follows)
    assert shown["reason"] == "operation_unknown" and 'the value of "what" is neither in operation.insert nor in operation.delete' in shown["error"]


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
