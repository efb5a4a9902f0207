"""Before a route with effects starts: what init makes, what check says, what run refuses and says."""
import pytest
from bson.int64 import Int64
from effects_start import beside, follows, indexes, init, orders, rows


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

def drop_and_init(setup, *names):
    for name in names:
        setup.collection.drop_index(name)
    assert init(setup)[0] == 0


WRONG = [  # what is done to the indexes, the row that says so, its words, and what makes it good again
    (lambda c: c.drop_index("idemsink_sequence"), "sequence index of C",
     "the unique index idemsink_sequence_text on ref was made before the sequence index", lambda setup: drop_and_init(setup, "idemsink_sequence_text")),
    (lambda c: (c.drop_index("idemsink_sequence"), c.create_index([("cat", 1), ("no", 1)], unique=True, partialFilterExpression={"no": {"$gt": 9}})),
     "sequence index of C", "another filter", lambda setup: drop_and_init(setup, "cat_1_no_1", "idemsink_sequence_text")),
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


# --- run ---


def test_run_says_what_moves(stack, make, topic):
    setup = orders(make(topic, dead_letters=False), ensure_index=True, order_by="cat")
    stack.produce(topic, [{"id": i % 3, "cat": "a", "user": "u", "day": 1, "amount": 2} for i in range(6)])
    worker = setup.run_until_end()
    line, = worker.saw("what a new event moves")
    name = f"tests.{setup.collection.name}"
    assert line["counters"] == f"{name}_users: orders; {name}_days: n, sum" and line["operation"] == ""
    assert line["sequence"] == f"no, gapless, per cat, counted in {name}_sequences" and line["order"] == "numbers of a group: in order (order_by = cat)"
    assert sorted(d["ref"] for d in setup.collection.find()) == ["a-000001", "a-000002", "a-000003"]
    assert beside(setup, "days").find_one({}, {"_id": 0}) == {"day": 1, "cat": "a", "n": 3, "sum": 6}
    assert rows(setup)[1]["sequence of C"] == ("ok", "no counter lags behind the highest number (1 group)")
    setup.collection.drop_index("idemsink_sequence_text")  # what is missing is made again
    setup.run_until_end()
    assert "idemsink_sequence_text" in indexes(setup.collection)


def test_a_ledger_that_forgets_before_the_topic(stack, make):
    """Whatever is read again after the ledger has forgotten it counts again: told topic by topic."""
    topics = [stack.topic(1, retention_ms=value) for value in (24 * 3600000, 96 * 3600000, -1)] + [stack.topic(1, cleanup_policy="compact")]
    setup = follows(make(topics), ensure_index=True, name="f")
    assert setup.command("init").returncode == 0
    status, found = rows(setup)
    said = [found[f"ledger of f for {topic}"] for topic in topics]
    assert status == 0 and [verdict for verdict, _ in said] == ["ok", "warning", "warning", "warning"], said
    assert "4 days (retention.ms)" in said[1][1] and all("for ever" in text for _, text in said[2:])
    del setup.routes[0]["operation"]["ledger_expire"]
    assert not [what for what in rows(setup)[1] if what.startswith("ledger of f for")]


def test_a_text_that_leaves_out_a_part_of_its_group(stack, make):
    """Allowed, for the index has that part; warned of, for people don't."""
    setup = orders(make(stack.topic(1)), ensure_index=True, name="o")
    assert setup.command("init").returncode == 0 and "text in o" not in rows(setup)[1]
    setup.routes[0]["sequence"]["group"] = ["tenant", "cat"]
    setup.routes[0]["sequence"]["collection"] = f"tests.{setup.collection.name}_numbers"
    setup.collection.drop()
    assert setup.command("init").returncode == 0
    status, found = rows(setup)
    assert status == 0 and found["text in o"][0] == "warning" and '"tenant"' in found["text in o"][1]
    stack.produce(setup.topics[0], [{"id": i, "tenant": tenant, "cat": "x", "user": "u", "day": 1, "amount": 1} for i, tenant in enumerate("ab")])
    setup.run_until_end()
    assert [d["ref"] for d in setup.collection.find()] == ["x-000001"] * 2
