"""
G7, G8: an outage is never the data's fault. While MongoDB, Redis or the broker are away nothing is dead-lettered, nothing
committed that is not stored, the memory stays bounded and the membership is kept; afterwards everything is there, in order.
"""
import contextlib
import time

import pymongo
import pytest
import redis
from chaos import (
    Feed, Memory, assert_lanes_in_order, assert_settled, dead_letter_places, fail_point, fast_sessions, feed_until_retried, feeding,
    insert_order, lane_by_key, look_often, now_in_oplog, random_faults, rss_bytes, watching,
)
from confluent_kafka import KafkaException
from harness import Setup, Stack, wait_until

MIB = 1 << 20


def impatient(setup):
    look_often(setup)
    setup.sections["mongo"].update(
        server_selection_timeout="1s", connect_timeout="1s", socket_timeout="2s", write_timeout="1s"
    )
    setup.sections["worker"].update(batch=100, commit_interval="100ms")
    setup.sections["retry"].update(first="50ms", max="500ms")


def wait_blocked(worker, seconds=20):
    """Until it knows that MongoDB is away, and says so; it is alive all the same."""
    wait_until(lambda: worker.get("/readyz")[0] == 503, seconds, "/readyz that says no")
    assert "MongoDB does not acknowledge" in worker.get("/readyz")[1]
    assert worker.get("/healthz")[0] == 200


def membership(worker):
    return {t: worker.metric("idemsink_partition_moves_total", type=t) for t in ("assigned", "revoked", "lost")}


def committed_everything(setup, feed, seconds=60):
    ends = feed.ends()

    def reached():
        try:
            committed = setup.stack.committed(setup.group, feed.topic)
        except KafkaException:  # the broker was away just now
            return False
        return all(committed.get(p, 0) >= end for p, end in ends.items())

    wait_until(reached, seconds, "commits that go on")


def test_mongodb_is_down_at_start(fragile_stack, make_fragile):
    feed = Feed(fragile_stack)
    setup = make_fragile(feed.topic)
    impatient(setup)
    feed.send(500, poison=3)
    fragile_stack.stop("mongo1")
    try:
        worker = setup.start()
        worker.wait_saw("MongoDB can't be reached yet", 20)
        status, why = worker.get("/readyz")
        assert status == 503 and "starting" in why
        assert worker.get("/healthz")[0] == 200
        assert worker.process.poll() is None
    finally:
        fragile_stack.start("mongo1")
    worker.wait_ready()
    assert_settled(setup, feed)
    assert worker.terminate() == 0


class Caches:
    """Keys in Redis, one for each event to come; the worker is to remove them."""

    def __init__(self, setup, uri, delivery):
        self.prefix = f"{setup.group}:"
        self.client = redis.Redis.from_url(uri)
        setup.sections["redis"] = {"uri": uri, "timeout": "500ms"}
        setup.routes[0]["invalidate"] = [
            {"mode": "unlink", "keys": [self.prefix + "{eventId}"], "delivery": delivery, "coalesce": "0s", "repeat_after": "0s"}
        ]

    def fill(self, numbers):
        self.client.mset({f"{self.prefix}e{n}": "old" for n in numbers})

    def left(self):
        return len(self.client.keys(self.prefix + "*"))


def test_a_minute_without_mongodb_and_redis(stack, make, fragile_stack, make_fragile, seed):
    """
    Three workers at once. One has lost MongoDB for 60 s: half of it frozen (accepts, never answers), half of it gone; its topic
    holds far more than its memory may. Two have lost Redis for 60 s: one goes on, the other one's offsets wait.
    """
    feed = Feed(fragile_stack, keys=200, text="x" * 5000)
    setup = make_fragile(feed.topic)
    impatient(setup)
    setup.sections["worker"]["max_bytes"] = "4MiB"
    start = now_in_oplog(fragile_stack)
    feed.send(200, copies=(1,))
    worker = setup.start().wait_ready()
    setup.wait_settled()
    before, rss_before = membership(worker), rss_bytes(worker.pid)

    free_feed, bound_feed = Feed(stack), Feed(stack)
    free, bound = make(free_feed.topic), make(bound_feed.topic)
    caches = [Caches(free, fragile_stack.redis_uri, "best_effort"), Caches(bound, fragile_stack.redis_uri, "before_commit")]
    others = [s.start().wait_ready() for s in (free, bound)]
    others_before = [membership(w) for w in others]
    for f, s, cache in zip((free_feed, bound_feed), (free, bound), caches):
        cache.fill(range(600))
        f.send(100)
        committed_everything(s, f)
        wait_until(lambda: cache.left() == 500, 10, "the first keys removed")
    bound_ends = bound_feed.ends()

    memory = Memory(worker)
    memory.start()
    began = time.monotonic()
    fragile_stack.pause("mongo1")
    fragile_stack.kill("redis")
    try:
        feed.send(2500, copies=(2,))  # 25 MB
        for f in (free_feed, bound_feed):
            f.send(500, poison=2)
        wait_blocked(worker)
        # Redis away: both write; one commits, the other one's offsets wait.
        committed_everything(free, free_feed)
        assert any(line["error"].startswith("bulk write: ") for line in worker.saw("MongoDB does not answer"))
        wait_until(lambda: bound.collection.count_documents({}) == 600, 30, "documents without Redis")
        with feeding(feed, pause=1, events=20):
            wait_until(lambda: time.monotonic() > began + 30, 40)
            fragile_stack.kill("mongo1")
            wait_until(lambda: time.monotonic() > began + 60, 40)
        wait_blocked(worker)
        assert membership(worker) == before
        assert [membership(w) for w in others] == others_before
        assert fragile_stack.committed(setup.group, feed.topic) == {p: end for p, end in committed_before(feed).items()}
        assert stack.committed(bound.group, bound_feed.topic) == behind_poison(bound_feed, bound_ends)
        assert all(w.process.poll() is None for w in (worker, *others))
        assert dead_letter_places(fragile_stack, setup.dead_letter_topic) == []
    finally:
        fragile_stack.start("mongo1")
        fragile_stack.start("redis")

    for f, s, cache in zip((free_feed, bound_feed), (free, bound), caches):
        assert_settled(s, f)
        wait_until(lambda: cache.left() == 0, 20, "all keys removed")
    assert_settled(setup, feed, 90)
    peak = memory.finish()
    print(f"resident: {rss_before / MIB:.0f} MiB idle, {peak / MIB:.0f} MiB at most")
    assert peak < rss_before + 24 * MIB  # max_bytes, as much again for the bulks of 4 threads, and what malloc() keeps
    assert membership(worker) == before
    assert [w.terminate() for w in (worker, *others)] == [0, 0, 0]
    assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key)


def behind_poison(feed, ends):
    """A dead letter asks for no invalidation: those that come first wait for nobody."""
    return {p: next((o for o in range(end, len(feed.log[p])) if feed.log[p][o] is not None), len(feed.log[p]))
            for p, end in ends.items()}


def committed_before(feed):
    """The ends after the first 200 records."""
    return {p: sum(1 for n in log if n is not None and n < 200) for p, log in feed.log.items()}


def test_mongod_comes_and_goes_under_load(fragile_stack, make_fragile, seed):
    """Stopped, killed, frozen, deposed: two workers keep their partitions and go on each time."""
    feed = Feed(fragile_stack, keys=100)
    setup = make_fragile(feed.topic)
    impatient(setup)
    start = now_in_oplog(fragile_stack)
    workers = [setup.start(), setup.start()]
    for worker in workers:
        worker.wait_ready()
    wait_until(lambda: all("2 partitions" in w.get("/readyz")[1] for w in workers), 20, "two partitions each")
    before = [membership(w) for w in workers]
    with watching(setup, feed), feeding(feed, pause=0.05, events=40, poison=1):
        for away, back in (("stop", "start"), ("kill", "start"), ("pause", "resume")):
            committed_everything(setup, feed)
            getattr(fragile_stack, away)("mongo1")
            try:
                for worker in workers:
                    wait_blocked(worker)
            finally:
                getattr(fragile_stack, back)("mongo1")
            committed_everything(setup, feed)
        for _ in range(2):
            with contextlib.suppress(pymongo.errors.AutoReconnect):
                fragile_stack.mongo.admin.command("replSetStepDown", 2, force=True)
            for worker in workers:
                wait_blocked(worker)
            committed_everything(setup, feed)
    assert [membership(w) for w in workers] == before
    assert [w.terminate() for w in workers] == [0, 0]
    assert_settled(setup, feed)
    assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key)


@pytest.fixture(scope="module")
def replica_stack(tmp_path_factory):
    services = Stack(tmp_path_factory.mktemp("replica"), "--mongods", "3")
    services.members = {
        int(uri.rsplit(":", 1)[1]): f"mongo{i + 1}" for i, uri in enumerate(services.mongo_uri[10:].split("/")[0].split(","))
    }
    config = services.mongo.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    # Else the next primary may wait for half a minute for what only a frozen one has.
    config["settings"].update(heartbeatTimeoutSecs=2, catchUpTimeoutMillis=1000)
    services.mongo.admin.command("replSetReconfig", config)
    yield services
    services.down()


def primary_of(stack):
    return stack.members[wait_until(lambda: stack.mongo.primary, 30, "a primary")[1]]


def secondaries_of(stack):
    wait_until(lambda: len(stack.mongo.secondaries) == 2, 30, "two secondaries")
    return [stack.members[port] for _, port in stack.mongo.secondaries]


def test_the_primary_is_killed(replica_stack, tmp_path, seed):
    """Three members: the next primary has everything that was acknowledged."""
    feed = Feed(replica_stack, keys=100)
    setup = Setup(replica_stack, tmp_path, feed.topic)
    impatient(setup)
    start = now_in_oplog(replica_stack)
    try:
        worker = setup.start().wait_ready()
        before = membership(worker)
        with watching(setup, feed), feeding(feed, pause=0.05, events=40, poison=1):
            committed_everything(setup, feed)
            primary = primary_of(replica_stack)
            replica_stack.kill(primary)
            wait_blocked(worker)
            committed_everything(setup, feed)
            replica_stack.start(primary)
        assert membership(worker) == before
        assert worker.terminate() == 0
        assert_settled(setup, feed)
        assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key)
    finally:
        setup.close()


def step_down(stack):
    def accepted():
        try:
            stack.mongo.admin.command("replSetStepDown", 2, secondaryCatchUpPeriodSecs=1)
        except pymongo.errors.AutoReconnect:
            pass
        except pymongo.errors.OperationFailure:  # nobody could take over just now
            return False
        return True

    wait_until(accepted, 30, "a primary that steps down")


def test_members_step_down_freeze_and_fall_behind(replica_stack, tmp_path, seed):
    """G7 with three members under load: nothing is dead-lettered, nothing lost, whatever they do."""
    feed = Feed(replica_stack, keys=100)
    setup = Setup(replica_stack, tmp_path, feed.topic)
    impatient(setup)
    setup.sections["retry"]["max_unknown"] = 1  # as eager as can be
    start = now_in_oplog(replica_stack)
    try:
        worker = setup.start().wait_ready()
        before = membership(worker)
        with watching(setup, feed), feeding(feed, pause=0.05, events=40, poison=1):
            committed_everything(setup, feed)
            for _ in range(3):  # another one takes over, most often within 50 ms
                step_down(replica_stack)
                committed_everything(setup, feed)
            frozen = primary_of(replica_stack)
            replica_stack.pause(frozen)
            try:
                wait_blocked(worker)
                committed_everything(setup, feed)  # with the others
            finally:
                replica_stack.resume(frozen)
            behind = secondaries_of(replica_stack)  # no majority acknowledges
            for member in behind:
                replica_stack.pause(member)
            try:
                wait_blocked(worker)
                retries = worker.metric("idemsink_retries_total")
                wait_until(lambda: worker.metric("idemsink_retries_total") > retries + 50, 30, "writes sent again")
            finally:
                for member in behind:
                    replica_stack.resume(member)
            committed_everything(setup, feed)
            for code in (14031, 424242):  # disk full, and what nobody knows, at whichever is primary
                primary_of(replica_stack)
                fail_point(replica_stack, {"times": 5}, errorCode=code)
                committed_everything(setup, feed)
        fail_point(replica_stack, "off")
        assert membership(worker) == before
        assert worker.metric("idemsink_dead_letters_total", reason="rejected") == 0
        assert worker.terminate() == 0
        assert_settled(setup, feed)
        assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key)
    finally:
        setup.close()


def test_broker_restarts_under_load(fragile_stack, make_fragile, seed):
    """Stopped and started, killed and started, frozen: no offset goes back, nothing is lost."""
    feed = Feed(fragile_stack, keys=100)
    setup = make_fragile(feed.topic)
    impatient(setup)
    fast_sessions(setup, 6000)
    workers = [setup.start(), setup.start()]
    for worker in workers:
        worker.wait_ready()
    with watching(setup, feed):
        for away, back in (("stop", "start"), ("kill", "start"), ("pause", "resume")):
            with feeding(feed, pause=0.1, events=40, poison=1):
                committed_everything(setup, feed)
                getattr(fragile_stack, away)("kafka1")
                time.sleep(1)  # for how long it is away
                getattr(fragile_stack, back)("kafka1")
                committed_everything(setup, feed)
        committed_everything(setup, feed)
    assert all(w.process.poll() is None for w in workers)
    for worker in workers:
        worker.wait_ready()
    assert [w.terminate() for w in workers] == [0, 0]
    assert_settled(setup, feed)


def test_a_write_concern_that_cannot_be_met(stack, make):
    """Three members wanted, one is there: what is written isn't acknowledged, so nothing is settled, and nothing is dead."""
    feed = Feed(stack)
    setup = make(feed.topic)
    impatient(setup)
    setup.sections["mongo"]["write_concern"] = "3"
    feed.send(200)
    worker = setup.start()
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "write_concern"}) > 500, 30, "writes sent again")
    wait_blocked(worker)
    assert sum(stack.committed(setup.group, feed.topic).values()) == 0
    assert dead_letter_places(stack, setup.dead_letter_topic) == []
    assert worker.metric("idemsink_records_total") == 0
    assert worker.terminate() == 0
    setup.sections["mongo"]["write_concern"] = "majority"
    setup.run_until_end()
    assert_settled(setup, feed)


def test_errors_of_the_server_under_load(stack, make, seed):
    """Whole commands refused, cut off, or written without acknowledgement: unknown, sent again, never the data's fault."""
    feed = Feed(stack, keys=100)
    setup = make(feed.topic)
    impatient(setup)
    setup.sections["worker"]["batch"] = 50
    faults = [{"errorCode": code} for code in (11600, 189, 91, 10107, 50, 13, 112, 251, 8000)] + [
        {"closeConnection": True},
        {"writeConcernError": {"code": 100, "errmsg": "not enough members"}},
        {"writeConcernError": {"code": 91, "errmsg": "shutting down"}},
        {"failCommands": ["find"], "errorCode": 11600},
    ]
    start = now_in_oplog(stack)
    with watching(setup, feed):
        worker = setup.start().wait_ready()
        before = membership(worker)
        with random_faults(stack, faults, pause=(0.01, 0.08)) as count:
            feed.send(4000, poison=10)
            wait_until(lambda: count[0] >= 60 or setup.settled(), 60, "faults")
            feed_until_retried(setup, feed, worker, count)
        setup.wait_settled()
    assert count[0] > 5
    assert worker.metric("idemsink_retries_total") > 0
    assert worker.metric("idemsink_dead_letters_total") == worker.metric("idemsink_dead_letters_total", reason="json_syntax") == 10
    assert membership(worker) == before
    assert worker.terminate() == 0
    assert_settled(setup, feed)
    assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key)


def test_every_error_of_the_server_alone(stack, make):
    """Each kind for some time by itself, so that none hides behind another one."""
    feed = Feed(stack, keys=20)
    setup = make(feed.topic)
    impatient(setup)
    setup.sections["retry"].update(max="100ms", max_unknown=3)
    worker = setup.start().wait_ready()
    kinds = (
        ({"errorCode": 11600}, "no_primary"),
        ({"closeConnection": True}, "network"),
        ({"writeConcernError": {"code": 64, "errmsg": "timed out"}}, "write_concern"),
        ({"errorCode": 13}, "rights"),
        ({"errorCode": 14031}, "config"),
        ({"errorCode": 112}, "conflict"),
        ({"errorCode": 424242}, "other"),
    )
    with watching(setup, feed):
        for fault, kind in kinds:
            retries = worker.metric("idemsink_retries_total", **{"class": kind})
            fail_point(stack, "alwaysOn", **fault)
            try:
                feed.send(50)
                wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": kind}) > retries + 100, 20, f"{fault}: {kind}")
                wait_blocked(worker)
                assert not setup.settled()
            finally:
                fail_point(stack, "off")
            setup.wait_settled(20)
    worker.wait_ready(5)
    assert worker.terminate() == 0
    assert_settled(setup, feed)
