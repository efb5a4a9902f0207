"""`idemsink reconcile`: the numbers of sequences, and ledgers."""
import pytest
from bson.int64 import Int64
from reconcile_help import full, named, reconcile


@pytest.fixture
def orders(stack, make):
    setup = make("orders", dead_letters=False)
    setup.numbers = named(stack)
    setup.routes[0]["sequence"] = {"group": ["a.b", "c"], "field": "seq", "start": 5, "mode": "gapless",
                                   "collection": full(setup.numbers)}
    setup.collection.create_index("a.b")
    for group in range(4):
        events = [{"eventId": f"{group}-{n}", "a": {"b": f"g{group}"}, "c": Int64(group), "seq": Int64(n)} for n in range(5, 25)]
        setup.collection.insert_many(events)
        setup.numbers.insert_one({"_id": {"a_b": f"g{group}", "c": Int64(group)}, "n": Int64(24)})
    yield setup
    setup.numbers.drop()


def group_id(group):
    return {"a_b": f"g{group}", "c": Int64(group)}


def test_right_sequences(orders):
    books = reconcile(orders, status=0)
    assert (books["groups"], books["differences"], books["foreign"]) == (4, 0, 0)


# (what, the change, counted, stored)
SEQUENCES = [
    ("holes", lambda s: s.collection.delete_one({"c": 1, "seq": 9}), "19", "20"),
    ("holes", lambda s: s.collection.delete_one({"c": 1, "seq": 5}), "19", "20"),
    ("double", lambda s: s.collection.insert_one({"eventId": "x", "a": {"b": "g1"}, "c": 1, "seq": 7.0}), "1", "24"),
    ("unnumbered", lambda s: s.collection.insert_one({"eventId": "x", "a": {"b": "g1"}, "c": 1}), "1", "24"),
    ("unnumbered", lambda s: s.collection.update_one({"c": 1, "seq": 7}, {"$set": {"seq": "7"}}), "1", "24"),
    ("ahead", lambda s: s.collection.delete_one({"c": 1, "seq": 24}), "23", "24"),
    ("lags", lambda s: s.numbers.update_one({"_id": group_id(1)}, {"$set": {"n": Int64(20)}}), "24", "20"),
    ("lags", lambda s: s.numbers.delete_one({"_id": group_id(1)}), "24", ""),
]


@pytest.mark.parametrize("what, change, counted, stored", SEQUENCES, ids=[f"{i}-{row[0]}" for i, row in enumerate(SEQUENCES)])
def test_wrong_sequences(orders, what, change, counted, stored):
    change(orders)
    books = reconcile(orders, status=1)
    assert [(f["what"], f["key"], f["counted"], f["stored"]) for f in books["found"]] == [
        (what, {"_id": {"a_b": "g1", "c": 1}}, counted, stored)]
    books = reconcile(orders, "--apply", status=0 if what == "lags" else 1)
    assert books["repaired"] == (1 if what == "lags" else 0)
    if what == "lags":
        assert orders.numbers.find_one({"_id": group_id(1)})["n"] == 24
        reconcile(orders, status=0)


def test_modes_that_leave_gaps(orders):
    orders.routes[0]["sequence"]["mode"] = "block"
    orders.collection.delete_many({"seq": {"$in": [5, 9, 24]}})
    orders.numbers.update_one({"_id": group_id(2)}, {"$set": {"n": Int64(100)}})
    reconcile(orders, status=0)
    orders.numbers.update_one({"_id": group_id(2)}, {"$set": {"n": Int64(22)}})
    assert reconcile(orders, status=1)["found"][0]["what"] == "lags"
    del orders.routes[0]["sequence"]["collection"]
    orders.routes[0]["sequence"]["mode"] = "max"  # no counters
    reconcile(orders, status=0)


def test_a_ledger_tells_what_is_there(stack, make):
    setup = make("follows", dead_letters=False)
    ledger = named(stack)
    setup.routes[0].update(entity={"key": ["s", "t"]}, operation={"source": "op", "insert": ["f"], "delete": ["u"], "ledger": full(ledger)})
    rows = [("insert", True)] * 5 + [("insert", False)] * 2 + [("delete", True)] * 2 + [("delete", False)]
    ledger.insert_many([{"_id": i, "op": op, "did": did} for i, (op, did) in enumerate(rows)])
    setup.collection.insert_many([{"s": i, "t": i} for i in range(3)])
    reconcile(setup, status=0)
    setup.collection.insert_one({"s": 9, "t": 9})
    assert [(f["what"], f["counted"], f["stored"]) for f in reconcile(setup, status=1)["found"]] == [("ledger", "3", "4")]
    ledger.update_one({"_id": 0}, {"$set": {"_effects": {"at": 1}}})
    done = setup.command("reconcile")
    assert done.returncode == 0 and b"being worked on" in done.stderr
    ledger.update_one({"_id": 0}, {"$set": {"_effects.failed": "given up"}})
    assert reconcile(setup, status=1)["found"][0]["what"] == "ledger"
    ledger.drop()
