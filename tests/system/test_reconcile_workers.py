"""`idemsink reconcile --apply` while workers write: no increment is lost and none is repeated."""
from bson.int64 import Int64
from harness import Setup, wait_until
from reconcile_help import full, how_read, named, profiled, reconcile, truth


def follow(number, users):
    return {"eventId": f"f{number}", "source": f"u{number * 7 % users}", "target": f"u{number * number % users}", "w": number % 5}


def beside_workers(stack, setup, users, n, seconds=120):
    """Damages and repairs again and again while n events are written."""
    topic = setup.topics[0]
    setup.collection.create_index("source")
    setup.collection.create_index("target")
    stack.produce(topic, [(follow(i, 20), f"k{i % 50}") for i in range(n)])
    worker = setup.start()
    rounds = repaired = 0
    wait_until(lambda: setup.collection.estimated_document_count() > 0, 60, "the first document")
    try:
        while True:
            last = setup.settled()
            for _ in range(3):
                users.update_one({"_id": f"u{rounds % 20}"}, {"$inc": {"followers": Int64(5), "_version": Int64(1)}})
                users.update_one({"_id": f"u{(rounds + 1) % 20}"}, {"$inc": {"weight": Int64(-3), "_version": Int64(1)}})
                rounds += 1
            repaired += reconcile(setup, "--apply")["repaired"]
            if last:
                break
    finally:
        assert worker.terminate() == 0, worker.log_tail()
    reconcile(setup, "--apply", status=0)
    now = {u["_id"]: u for u in users.find()}
    for user, fields in truth(setup).items():
        assert {f: now[user].get(f, 0) for f in fields} == fields, user
        assert all(isinstance(now[user][f], Int64) for f in fields if f in now[user])
    assert setup.collection.count_documents({}) == n and repaired > 0
    assert reconcile(setup, status=0)["differences"] == 0


def flowing(services, setup):
    users = named(services)
    setup.users = users
    setup.routes[0]["counter"] = [
        {"collection": full(users), "filter": {"_id": "target"}, "inc": {"followers": 1}},
        {"collection": full(users), "filter": {"_id": "source"}, "inc": {"following": 1, "weight": "w"}},
    ]
    return users


def test_while_transactions_run(stack, make):
    setup = make(stack.topic(4))
    beside_workers(stack, setup, flowing(stack, setup), 6000)


def test_while_steps_run(standalone, tmp_path):
    setup = Setup(standalone, tmp_path, standalone.topic(4))
    try:
        beside_workers(standalone, setup, flowing(standalone, setup), 3000)
    finally:
        setup.close()


def test_reconcile_every(stack, make):
    setup = make(stack.topic(2))
    users = flowing(stack, setup)
    setup.sections["effects"] = {"reconcile_every": "1s"}
    stack.mongo["tests"]["idemsink_leases"].delete_one({"_id": "reconcile"})
    stack.produce(setup.topics[0], [(follow(i, 5), f"k{i}") for i in range(200)])
    workers = [setup.start(), setup.start()]
    setup.wait_settled()
    users.update_one({"_id": "u1"}, {"$inc": {"followers": Int64(9)}})
    wait_until(lambda: users.find_one({"_id": "u1"})["followers"] == truth(setup)["u1"]["followers"], 30, "the repair")
    found = lambda name: sum(w.metric(name) for w in workers)
    wait_until(lambda: found("idemsink_reconcile_repaired_total") >= 1, 30, "its metric")
    assert found("idemsink_reconcile_differences_total") == found("idemsink_reconcile_repaired_total") == 1
    wait_until(lambda: max(w.metric("idemsink_reconcile_last_run_seconds") for w in workers) > 1.6e9, 30, "its time")
    lines = wait_until(lambda: [x for w in workers for x in w.saw("counters reconciled") if x["repaired"] == 1], 30, "the line")
    assert len(lines) == 1 and lines[0]["differences"] == 1
    assert all(w.terminate() == 0 for w in workers)
    users.drop()


def test_reconcile_from(stack, make):
    """In the background, too, it counts on a secondary where there is one."""
    setup = make(stack.topic(1))
    users = flowing(stack, setup)
    setup.sections["effects"] = {"reconcile_every": "1s", "reconcile_from": "secondary"}
    stack.mongo["tests"]["idemsink_leases"].delete_one({"_id": "reconcile"})
    users.insert_one({"_id": "u1", "followers": Int64(9)})
    with profiled(setup):
        worker = setup.start()
        wait_until(lambda: users.find_one({"_id": "u1", "followers": 0}), 30, "the repair")
        worker.wait_saw("counters reconciled")
        assert worker.terminate() == 0
    assert "secondaryPreferred" in how_read(setup, "aggregate", setup.collection)
    assert how_read(setup, "find", users).get("secondaryPreferred", 0) >= 1
    users.drop()
