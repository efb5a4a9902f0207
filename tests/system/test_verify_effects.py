"""`idemsink verify` of routes with effects: counters, numbers, ledgers, and what their events leave there."""
import json

import pytest
from bson.int64 import Int64
from harness import Record, Setup
from reconcile_help import full, named


def books(setup, *options):
    done = setup.command("verify", "--json", *options)
    assert done.returncode in (0, 1), done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["balanced"] is (done.returncode == 0)
    wrong = {n: found.get(n) for n in ("missing", "different", "extra", "doubled", "unnumbered", "counters_wrong", "counters_unable") if found.get(n)}
    return wrong, found


def operations(services, setup):
    """Follows and unfollows of 6 pairs, each delivered twice, some long after the opposite."""
    setup.users, setup.ledger = named(services), named(services)
    setup.routes[0].update(
        entity={"key": ["s", "t"]},
        operation={"source": "op", "insert": ["f"], "delete": ["u"], "ledger": full(setup.ledger)},
        counter=[{"collection": full(setup.users), "filter": {"_id": "t"}, "inc": {"followers": 1}}])
    events = []
    for pair in range(6):
        for step in range(pair + 1):
            events.append({"eventId": f"e{pair}-{step}", "op": "fu"[step % 2], "s": f"s{pair}", "t": "t", "step": step})
    events = [e for e in events for _ in range(2)] + events[::2]
    services.produce(setup.topics[0], [Record(e, e["s"]) for e in events])
    setup.run_until_end()


@pytest.fixture(scope="module", params=["transaction", "log"])
def moved(request, tmp_path_factory):
    services = request.getfixturevalue("stack" if request.param == "transaction" else "standalone")
    setup = Setup(services, tmp_path_factory.mktemp("verify"), services.topic(2))
    operations(services, setup)
    yield setup
    setup.close()


def test_balanced(moved):
    wrong, found = books(moved)
    assert wrong == {} and (found["in_ledgers"], found["stored"], found["counters"]) == (21, 3, 1)
    assert moved.users.find_one({"_id": "t"})["followers"] == 3 == moved.collection.count_documents({})
    assert books(moved, "--sample", "1/3")[0] == {}
    assert books(moved, "--since", "1h")[0] == {}


# (what is done to it by hand, what verify counts, what reconcile's part says)
CHANGES = [
    (lambda s: s.collection.delete_one({"s": "s2"}), {"missing": 1, "counters_wrong": 2}),
    (lambda s: s.collection.insert_one({"s": "s1", "t": "t", "step": 0, "op": "f", "eventId": "e1-0"}), {"extra": 1, "counters_wrong": 2}),
    (lambda s: s.collection.insert_one({"s": "x", "t": "t"}), {"extra": 1, "counters_wrong": 2}),
    (lambda s: s.collection.update_one({"s": "s2"}, {"$set": {"step": Int64(0)}}), {"different": 1}),
    (lambda s: s.ledger.delete_one({"_id": "e3-1"}), {"missing": 1, "counters_wrong": 1}),
    (lambda s: s.ledger.update_one({"_id": "e3-1"}, {"$set": {"op": "insert"}}), {"different": 1, "counters_wrong": 1}),
    (lambda s: s.ledger.insert_one({"_id": "x", "op": "insert", "did": False}), {"extra": 1}),
    (lambda s: s.users.update_one({"_id": "t"}, {"$inc": {"followers": 1}}), {"counters_wrong": 1}),
]


# By log the documents look otherwise, the books don't: some of them are enough there.
FOUND = [("transaction", i) for i in range(len(CHANGES))] + [("log", i) for i in (0, 3, 4, 5)]


@pytest.mark.parametrize("moved, change", FOUND, indirect=["moved"], scope="module")
def test_found(moved, change):
    change, wrong = CHANGES[change]
    kept = [(c, list(c.find())) for c in (moved.collection, moved.ledger, moved.users)]
    change(moved)
    try:
        assert books(moved)[0] == wrong
    finally:
        for collection, documents in kept:
            collection.delete_many({})
            collection.insert_many(documents)


def test_counters_and_numbers_of_plain_events(stack, make):
    setup = make(stack.topic(2))
    users = named(stack)
    setup.routes[0].update(
        counter=[{"collection": full(users), "filter": {"_id": "u"}, "inc": {"n": 1}}],
        sequence={"field": "seq", "mode": "gapless", "template": "no-{seq:04}", "template_field": "ref"})
    stack.produce(setup.topics[0], [({"eventId": i % 20, "u": "a"}, f"k{i % 20}") for i in range(30)])
    setup.run_until_end()
    wrong, found = books(setup)
    assert wrong == {} and found["stored"] == 20 and found["counters"] == 2
    setup.collection.update_one({"seq": 20}, {"$unset": {"ref": 1}})
    assert books(setup)[0] == {"unnumbered": 1}
    setup.collection.update_one({"seq": 20}, {"$set": {"ref": "no-0020"}})
    done = setup.command("verify")
    assert done.returncode == 0 and b"the books balance" in done.stdout
    setup.collection.delete_one({"seq": 3})
    users.update_one({}, {"$inc": {"n": 1}})
    wrong, found = books(setup)
    assert wrong == {"missing": 1, "counters_wrong": 2}
    assert sorted(f["key"]["fault"] for f in found["faults"] if f["what"] == "counter") == ["different", "holes"]
    event = setup.collection.find_one_and_update({"seq": 7}, {"$unset": {"seq": 1}})["eventId"]
    wrong, found = books(setup)
    assert (wrong["missing"], wrong["unnumbered"]) == (1, 1)
    assert [f["key"] for f in found["faults"] if f["what"] == "unnumbered"] == [{"eventId": event}]


def test_numbers_of_a_fence(stack, make):
    setup = make(stack.topic(1))
    setup.sections["redis"] = {"uri": stack.env["REDIS_URI"]}
    fences = named(stack)
    setup.routes[0].update(lock={"key": fences.name + "{u}", "fence": full(fences), "fence_field": "_fence"})
    stack.produce(setup.topics[0], [({"eventId": i, "u": "a"}, "a") for i in range(5)])
    setup.run_until_end()
    assert setup.collection.count_documents({"_fence": {"$gte": 1}}) == 5
    assert books(setup)[0] == {}
    setup.collection.update_one({"eventId": 3}, {"$set": {"u": "b"}})
    assert books(setup)[0] == {"different": 1}


@pytest.fixture(params=["transaction", "log"])
def counting(request, tmp_path):
    services = request.getfixturevalue("stack" if request.param == "transaction" else "standalone")
    setup = Setup(services, tmp_path, services.topic(1))
    setup.users = named(services)
    setup.routes[0].update(effects=request.param, counter=[{"collection": full(setup.users), "filter": {"_id": "u"}, "inc": {"n": 1}}])
    yield setup
    setup.close()


def test_names_that_no_effect_makes(counting):
    """Without an operation _by and _removed_by are fields like others."""
    counting.stack.produce(counting.topics[0], [({"eventId": i, "u": "a", "_by": i, "_removed_by": i}, "a") for i in range(3)])
    counting.run_until_end()
    assert books(counting)[0] == {}
    counting.collection.update_one({"eventId": 1}, {"$unset": {"_by": 1}})
    assert books(counting)[0] == {"different": 1}


@pytest.mark.parametrize("counting", ["log"], indirect=True)
def test_effects_that_were_given_up(counting):
    """The document is as its record asks, and said to have failed; that the counter is wrong is said until it is right."""
    counting.users.insert_one({"_id": "a", "n": "a text"})
    counting.stack.produce(counting.topics[0], [({"eventId": i, "u": "a"}, "a") for i in range(3)])
    counting.run_until_end()
    assert counting.collection.count_documents({"_effects.failed": {"$exists": True}}) == 3
    wrong, found = books(counting)
    assert set(wrong) <= {"counters_wrong", "counters_unable"} and wrong and found["effects_failed"] == 3
    assert sum(f["what"] == "failed" for f in found["faults"]) == 3
    counting.users.update_one({}, {"$set": {"n": Int64(3)}})
    wrong, found = books(counting)
    assert wrong == {} and found["effects_failed"] == 3
