"""Counters are integers of 64 bits: what is a double, a text, or too large is not moved on, whoever wrote it there."""
import collections

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from harness import Record

LAST = 2**63 - 1
HELD = {"double": 5.0, "half": 5.5, "nan": float("nan"), "decimal": Decimal128("7"), "text": "5", "null": None, "list": [1]}


@pytest.fixture
def topic(stack):
    return stack.topic(1)


def letters(setup):
    """{category: [(reason, error)]}, by the key of the record."""
    found = collections.defaultdict(list)
    for message in setup.stack.read_topic(setup.dead_letter_topic):
        headers = dict(message.headers())
        found[message.key().decode()].append((headers["idemsink.reason"].decode(), headers["idemsink.error"].decode()))
    return found


def same(a, b):
    """Also of what is equal to nothing."""
    return str(a) == str(b)


@pytest.mark.parametrize("upsert", [True, False])
def test_a_counter_that_holds_something_else(make, topic, upsert):
    setup = make(topic)
    counts = setup.collection.database[f"{setup.collection.name}_counts"]
    counts.insert_many([{"_id": name, "kind": "k", "n": value} for name, value in HELD.items()])
    counts.insert_many([{"_id": "other", "sum": 1.5}, {"_id": "int32", "n": 2**31 - 2}, {"_id": "full", "n": Int64(LAST - 2)}, {"_id": "free"}])
    setup.routes[0]["counter"] = [{"collection": f"{counts.database.name}.{counts.name}", "filter": {"_id": "cat"},
                                   "inc": {"n": 1, "sum": "amount"}, "upsert": upsert}]
    cats = [*HELD, "other", "int32", "full", "free", "new"]
    setup.stack.produce(topic, [Record({"eventId": f"{cat}{i}", "cat": cat, "amount": 2}, cat) for i in range(4) for cat in cats])
    setup.run_until_end()
    dead = letters(setup)
    name = f"counter tests.{counts.name}: "
    for cat, value in [*HELD.items(), ("other", None)]:
        assert [reason for reason, _ in dead[cat]] == ["rejected"] * 4 and all(name in error for _, error in dead[cat]), dead[cat]
        assert same(counts.find_one({"_id": cat}).get("n"), value), cat
    assert "a field that it moves (n, sum) holds a double or a decimal" in dead["double"][0][1]
    assert counts.find_one({"_id": "other"}) == {"_id": "other", "sum": 1.5}
    assert [reason for reason, _ in dead["full"]] == ["rejected"] * 2
    made = {"new": (4, 8)} if upsert else {}
    expected = {"int32": (2**31 + 2, 8), "full": (LAST, 4), "free": (4, 8), **made}
    found = {d["_id"]: (d["n"], d["sum"]) for d in counts.find({"_id": {"$in": ["int32", "full", "free", "new"]}})}
    assert found == expected and all(type(n) is Int64 for pair in found.values() for n in pair)
    stored = collections.Counter(d["cat"] for d in setup.collection.find())
    assert stored == {"int32": 4, "full": 2, "free": 4, "new": 4}  # upsert = false: what is not there gets nothing


@pytest.mark.parametrize("several", ["kind", "_id"])
def test_one_among_many(make, topic, several):
    """The others of its batch are counted, with filters of one field and of two."""
    setup = make(topic)
    counts = setup.collection.database[f"{setup.collection.name}_counts"]
    fields = {"_id": "cat"} if several == "_id" else {"kind": "cat", "part": "part"}
    setup.routes[0]["counter"] = [{"collection": f"{counts.database.name}.{counts.name}", "filter": fields, "inc": {"n": 1}}]
    counts.insert_one({"_id": "c7", "kind": "c7", "part": 1, "n": 3.0})
    setup.stack.produce(topic, [Record({"eventId": i, "cat": f"c{i % 20}", "part": 1}, f"c{i % 20}") for i in range(100)])
    setup.run_until_end()
    assert {cat: len(found) for cat, found in letters(setup).items()} == {"c7": 5}
    key = next(iter(fields))
    assert {d[key]: d["n"] for d in counts.find()} == {f"c{i}": 3.0 if i == 7 else 5 for i in range(20)}
    assert setup.collection.count_documents({}) == 95


@pytest.mark.parametrize("mode,counters", [("gapless", False), ("block", False), ("block", True)])
def test_a_group_whose_counter_holds_something_else(make, topic, mode, counters):
    setup = make(topic)
    name = f"tests.{setup.collection.name}"
    setup.routes[0]["sequence"] = {"group": ["cat"], "field": "no", "mode": mode}
    if counters:
        setup.routes[0]["counter"] = [{"collection": f"{name}_days", "filter": {"_id": "cat"}, "inc": {"orders": 1}}]
    groups = setup.collection.database[f"{setup.collection.name}_sequences"]
    held = {**HELD, "full": Int64(LAST - 2), "int32": 7}
    groups.insert_many([{"_id": {"cat": cat}, "n": value} for cat, value in held.items()])
    groups.insert_one({"_id": {"cat": "none"}})
    cats = [*held, "none", "new"]
    setup.stack.produce(topic, [Record({"eventId": f"{cat}{i}", "cat": cat}, cat) for i in range(4) for cat in cats])
    setup.run_until_end()
    dead = letters(setup)
    text = f"sequence {name}_sequences: n of the group's counter holds no integer, or what comes next passes 2^63 - 1"
    for cat, value in HELD.items():
        assert [reason for reason, _ in dead[cat]] == ["rejected"] * 4 and all(text in error for _, error in dead[cat]), dead[cat]
        assert same(groups.find_one({"_id": {"cat": cat}})["n"], value), cat
    assert [reason for reason, _ in dead["full"]] == ["rejected"] * 2 and text in dead["full"][0][1]
    numbers = {cat: sorted(d["no"] for d in setup.collection.find({"cat": cat})) for cat in ("full", "int32", "none", "new")}
    assert numbers == {"full": [LAST - 1, LAST], "int32": [8, 9, 10, 11], "none": [1, 2, 3, 4], "new": [1, 2, 3, 4]}
    assert {d["_id"]["cat"]: d["n"] for d in groups.find({"_id.cat": {"$in": list(numbers)}})} == {"full": LAST, "int32": 11, "none": 4, "new": 4}
    assert [d["eventId"] for d in setup.collection.find({"cat": "full"}).sort("no")] == ["full0", "full1"]
