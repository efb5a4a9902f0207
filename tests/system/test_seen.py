"""The seen cache: duplicates that MongoDB never hears of, and what makes it forget. Whether MongoDB was asked is seen by taking documents
away behind the process' back: who asks stores them again."""
import json
import uuid

import pytest
import redis
from harness import wait_until


def events(first, count, **more):
    return [{"eventId": f"e{i}", "n": i, **more} for i in range(first, first + count)]


def with_seen(setup, **more):
    setup.routes[0]["seen"] = {"entries": 10000, **more}
    if more:
        setup.sections["redis"] = {"uri": setup.stack.redis_uri}
    return setup


def send(setup, values):
    setup.stack.produce(setup.topics[0], values)
    setup.wait_settled()


def hits(worker, level="process"):
    return worker.metric("idemsink_seen_lookups_total", level=level, result="hit")


def outcomes(worker):
    return {name: int(worker.metric("idemsink_records_total", outcome=name)) for name in ("inserted", "duplicate", "dead_letter")}


@pytest.fixture
def setup(make, stack):
    return make(stack.topic(2))


def test_duplicates_need_no_mongodb(setup):
    with_seen(setup)
    worker = setup.start().wait_ready()
    send(setup, events(0, 200))
    setup.collection.delete_many({})
    send(setup, events(0, 200) + events(200, 10) + events(100, 110))
    assert outcomes(worker) == {"inserted": 210, "duplicate": 310, "dead_letter": 0}
    assert hits(worker) >= 300  # those of a batch that has the first, too, are folded instead
    assert setup.collection.count_documents({}) == 10
    assert worker.metric("idemsink_seen_entries") == 210
    assert 210 * 32 <= worker.metric("idemsink_seen_bytes") <= 128 * 2**20
    assert worker.terminate() == 0
    assert worker.books()["duplicate"] == 310


def test_another_payload_is_a_conflict_all_the_same(setup):
    with_seen(setup).routes[0]["dedup"] |= {"conflict": "dead_letter", "conflict_field": "hash"}
    worker = setup.start().wait_ready()
    send(setup, events(0, 50))
    send(setup, events(0, 50))
    assert hits(worker) == 50
    send(setup, events(0, 20, other=True))
    send(setup, events(0, 20, other=True))
    assert outcomes(worker) == {"inserted": 50, "duplicate": 50, "dead_letter": 40}
    assert worker.terminate() == 0


def test_counters_are_exact_behind_it(setup):
    counters = setup.collection.database[setup.collection.name + "_sums"]
    with_seen(setup).routes[0]["counter"] = [{"collection": f"{counters.database.name}.{counters.name}",
                                              "filter": {"_id": "@topic"}, "inc": {"events": 1}}]
    worker = setup.start().wait_ready()
    for _ in range(3):
        send(setup, events(0, 150))
    worker.kill()
    worker = setup.start().wait_ready()
    send(setup, events(100, 100))
    assert worker.terminate() == 0
    assert [d["events"] for d in counters.find()] == [200]


def again(setup, name):
    """A process of another group, which reads everything from the start."""
    setup.sections["kafka"]["group"] = setup.group = f"{setup.group}-{name}"
    return setup.run_until_end()


def share(setup):
    """None when Redis was too slow to be waited for (100 ms), which it may be: then MongoDB is asked."""
    prefix = f"s-{uuid.uuid4().hex[:8]}:"
    with_seen(setup, redis=prefix + "{route}:").routes[0]["name"] = "r"
    client = redis.Redis.from_url(setup.stack.redis_uri)
    client.set(prefix + "r:generation", "0123456789abcdef")  # else the first batch makes it, and enters nothing
    setup.stack.produce(setup.topics[0], events(0, 100))
    workers = [setup.run_until_end()]
    setup.collection.delete_many({"n": {"$gte": 40}})
    keys = len(client.keys(prefix + "r:*"))
    workers.append(again(setup, "1"))
    left = setup.collection.count_documents({})
    client.delete(prefix + "r:generation")
    workers.append(again(setup, "2"))
    setup.collection.drop()
    workers.append(again(setup, "3"))  # the same name, and another UUID
    slow = any(worker.saw("redis does not say") for worker in workers)
    return None if slow else (keys, left, [worker.books()["inserted"] for worker in workers])


def test_processes_share_it(make, stack):
    """Until the generation ends, or the collection is another one."""
    found = None
    for _ in range(5):
        found = found or share(make(stack.topic(2)))
    assert found == (101, 40, [100, 0, 60, 100])


def test_redis_away(make_fragile, fragile_stack):
    setup = with_seen(make_fragile(fragile_stack.topic(1)), redis="away:")
    fragile_stack.stop("redis")
    try:
        worker = setup.start().wait_ready()
        send(setup, events(0, 100))
        send(setup, events(0, 100))
        assert outcomes(worker) == {"inserted": 100, "duplicate": 100, "dead_letter": 0}
        assert worker.metric("idemsink_seen_redis_failures_total") >= 1
        assert hits(worker) == 100
        assert worker.saw("redis does not say what others have seen")
        assert worker.terminate() == 0
    finally:
        fragile_stack.start("redis")


def test_others_say_forget(setup):
    channel = f"drop-{uuid.uuid4().hex[:8]}"
    with_seen(setup, drop_on=channel)
    setup.sections["redis"] |= {"instance_id": "ours", "timeout": "10s"}
    client = redis.Redis.from_url(setup.stack.redis_uri)
    worker = setup.start().wait_ready()
    wait_until(lambda: worker.metric("idemsink_seen_listening") == 1, 20, "somebody who listens")
    begun = worker.metric("idemsink_seen_forgotten_total")
    send(setup, events(0, 50))
    setup.collection.delete_many({})
    name = f"{setup.collection.database.name}.{setup.collection.name}"

    def say(pattern, who="others"):
        assert client.publish(channel, json.dumps({"type": "invalidate", "pattern": pattern, "instanceId": who})) == 1

    say("*:another.collection:*")
    say(f"*:{name}:*", who="ours")
    send(setup, events(0, 50))
    assert (hits(worker), setup.collection.count_documents({})) == (50, 0)
    assert worker.metric("idemsink_seen_forgotten_total") == begun
    say(f"*:{name}:*")
    wait_until(lambda: worker.metric("idemsink_seen_forgotten_total") == begun + 1, 20, "the cache to forget")
    send(setup, events(0, 50))
    assert setup.collection.count_documents({}) == 50
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # whatever was said meanwhile was missed
    wait_until(lambda: worker.metric("idemsink_seen_forgotten_total") == begun + 2, 20, "the cache to forget")
    wait_until(lambda: worker.metric("idemsink_seen_listening") == 1, 20, "somebody who listens again")
    assert worker.terminate() == 0
