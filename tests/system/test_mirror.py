"""Mirrors: what Redis has of a counter is what MongoDB has acknowledged, and never goes back."""
import uuid

import pytest
import redis
from bson.int64 import Int64
from effects import LOG, short_transactions
from harness import wait_until
from reconcile_help import reconcile


class Likes:
    """likes of posts: every new event is one more for its post, and adds its points; the counter is mirrored."""

    def __init__(self, setup, effects):
        self.setup, self.db = setup, setup.collection.database
        self.counters = self.db[f"{setup.collection.name}_posts"]
        self.prefix = f"m-{uuid.uuid4().hex[:10]}:"
        setup.sections["redis"] = {"uri": setup.stack.redis_uri}
        setup.sections["effects"] = LOG
        setup.routes[0] |= {
            "effects": effects,
            "counter": [{"collection": f"{self.db.name}.{self.counters.name}", "filter": {"_id": "post"},
                         "inc": {"likes": 1, "points": "points"}, "mirror": self.prefix + "{_id}"}],
        }
        self.client = redis.Redis.from_url(setup.stack.redis_uri, decode_responses=True)

    def events(self, first, count):
        return [{"eventId": f"e{i}", "post": f"p{i % 7}", "points": i % 3 - 1} for i in range(first, first + count)]

    def in_mongo(self):
        return {d["_id"]: {"likes": str(d["likes"]), "points": str(d["points"]), "version": str(d["_version"])}
                for d in self.counters.find()}

    def in_redis(self):
        return {key.removeprefix(self.prefix): self.client.hgetall(key) for key in self.client.scan_iter(self.prefix + "*")}

    def wait_same(self):
        wait_until(lambda: self.in_redis() == self.in_mongo(), 20, "the mirror to show what MongoDB has")


@pytest.fixture(params=["transaction", "log"])
def likes(request, make, stack):
    short_transactions(stack)
    return Likes(make(stack.topic(2)), request.param)


def test_values_and_versions(likes):
    setup, stack = likes.setup, likes.setup.stack
    worker = setup.start().wait_ready()
    stack.produce(setup.topics[0], likes.events(0, 300) + likes.events(0, 200))
    setup.wait_settled()
    likes.wait_same()
    assert sum(int(v["likes"]) for v in likes.in_redis().values()) == 300
    assert worker.metric("idemsink_invalidations_total", mode="mirror", result="sent") >= 7
    # A newer one is there already: of a writer whose message went a shorter way.
    likes.client.hset(likes.prefix + "p0", mapping={"likes": 1000000, "points": 5, "version": 10**15})
    stack.produce(setup.topics[0], likes.events(300, 70))
    setup.wait_settled()
    wait_until(lambda: likes.in_redis()["p1"] == likes.in_mongo()["p1"], 20, "the others")
    assert worker.terminate() == 0
    assert likes.in_redis() == likes.in_mongo() | {"p0": {"likes": "1000000", "points": "5", "version": str(10**15)}}


def test_the_redelivery_brings_what_a_crash_lost(likes):
    setup = likes.setup
    setup.stack.produce(setup.topics[0], likes.events(0, 100))
    setup.run_until_end()
    likes.wait_same()
    likes.client.delete(*likes.client.scan_iter(likes.prefix + "*"))  # as if the process had died before it came to Redis
    setup.sections["kafka"]["group"] = setup.group = setup.group + "-again"
    worker = setup.run_until_end()
    assert worker.books()["duplicate"] == 100
    assert likes.in_redis() == likes.in_mongo()


def damage(likes):
    """p0 is wrong; p1 was removed with its versions, and begins anew below what Redis has of it."""
    setup = likes.setup
    setup.stack.produce(setup.topics[0], likes.events(0, 100))
    setup.run_until_end()
    likes.wait_same()
    setup.collection.create_index("post")
    likes.counters.update_one({"_id": "p0"}, {"$set": {"likes": Int64(999)}})
    likes.counters.delete_one({"_id": "p1"})
    setup.stack.produce(setup.topics[0], likes.events(100, 7))
    setup.run_until_end()
    assert likes.in_redis()["p1"] != likes.in_mongo()["p1"] and likes.in_redis()["p0"]["likes"] == "1000"


def assert_repaired(likes, before):
    """The repaired values, under versions above all that a late writer could bring."""
    assert likes.in_redis() == likes.in_mongo()
    for post, number in (("p0", 16), ("p1", 16)):
        now = likes.in_redis()[post]
        assert now["likes"] == str(number) and int(now["version"]) > int(before[post]["version"]), (post, now)


def test_a_repair_is_mirrored(likes):
    damage(likes)
    before, uri = likes.in_redis(), likes.setup.sections["redis"]["uri"]
    likes.setup.sections["redis"]["uri"] = "redis://127.0.0.1:1"
    done = likes.setup.command("reconcile", "--apply")  # nothing is repaired whose mirror would stay wrong
    assert done.returncode == 69 and b"redis" in done.stderr and likes.counters.find_one({"_id": "p0"})["likes"] == 1000
    likes.setup.sections["redis"]["uri"] = uri
    assert reconcile(likes.setup, "--apply", status=0)["repaired"] >= 2
    assert_repaired(likes, before)
    likes.setup.stack.produce(likes.setup.topics[0], likes.events(107, 7))  # it goes on from there
    likes.setup.run_until_end()
    likes.wait_same()


def test_the_job_mirrors_what_it_repairs(likes):
    damage(likes)
    before = likes.in_redis()
    likes.setup.sections["effects"] = LOG | {"reconcile_every": "1s"}
    likes.db["idemsink_leases"].delete_one({"_id": "reconcile"})
    worker = likes.setup.start().wait_ready()
    wait_until(lambda: likes.in_redis()["p0"]["likes"] == likes.in_redis()["p1"]["likes"] == "16", 30, "the mirrors of what is repaired")
    assert_repaired(likes, before)
    assert worker.terminate() == 0


def test_redis_away(make_fragile, fragile_stack):
    """Writes go on, and in the end Redis has the newest values."""
    short_transactions(fragile_stack)
    likes = Likes(make_fragile(fragile_stack.topic(2)), "transaction")
    setup = likes.setup
    worker = setup.start().wait_ready()
    fragile_stack.stop("redis")
    try:
        fragile_stack.produce(setup.topics[0], likes.events(0, 300))
        setup.wait_settled()
        assert setup.collection.count_documents({}) == 300
    finally:
        fragile_stack.start("redis")
    likes.wait_same()
    assert worker.terminate() == 0
