"""[route.lock]: nothing is written without its lock, which others take as monSQLize's DistributedCacheLockManager does; and what a fence adds."""
import contextlib
import json
import pathlib
import signal
import subprocess
import time
import uuid

import pymongo
import pytest
import redis
from harness import wait_until

# vextjs/monSQLize, lib/transaction/DistributedCacheLockManager.js: what it sends, word for word.
ACQUIRE = ("SET", "{key}", "{id}", "PX", "{ttl}", "NX")  # ioredis: redis.set(fullKey, lockId, 'PX', ttl, 'NX')
ADD_LOCK = ("SET", "{key}", "{id}", "EX", "300", "NX")  # addLock(key, session): the lock of a transaction
RENEW = """
                if redis.call("get", KEYS[1]) == ARGV[1] then
                    return redis.call("pexpire", KEYS[1], ARGV[2])
                else
                    return 0
                end
            """
RELEASE = """
                if redis.call("get", KEYS[1]) == ARGV[1] then
                    return redis.call("del", KEYS[1])
                else
                    return 0
                end
            """
RELEASE_ALL = """
                local deletedCount = 0
                for i, key in ipairs(KEYS) do
                    local value = redis.call('GET', key)
                    if value == ARGV[1] then
                        redis.call('DEL', key)
                        deletedCount = deletedCount + 1
                    end
                end
                return deletedCount
            """
DEFAULT_PREFIX = "monsqlize:cache:lock:"


class MonSQLize:
    """A program that uses monSQLize's lock manager."""

    def __init__(self, uri, prefix=DEFAULT_PREFIX):
        self.redis = redis.Redis.from_url(uri, decode_responses=True)
        self.prefix = prefix
        self.id = f"4711-{int(time.time() * 1000)}-{uuid.uuid4().hex[:11]}"  # _generateLockId()

    def _words(self, words, key, ttl=10000):
        return [w.format(key=self.prefix + key, id=self.id, ttl=ttl) for w in words]

    def acquire(self, key, ttl=10000):
        return self.redis.execute_command(*self._words(ACQUIRE, key, ttl)) in (True, "OK")

    def add_lock(self, key):
        return self.redis.execute_command(*self._words(ADD_LOCK, key)) in (True, "OK")

    def renew(self, key, ttl=10000):
        return self.redis.eval(RENEW, 1, self.prefix + key, self.id, ttl)

    def release(self, key):
        return self.redis.eval(RELEASE, 1, self.prefix + key, self.id)

    def release_all(self):
        keys = self.redis.keys(self.prefix + "*")
        return self.redis.eval(RELEASE_ALL, len(keys), *keys, self.id) if keys else 0

    def holder(self, key):
        return self.redis.get(self.prefix + key)


def event(number, account, **more):
    return {"eventId": f"e{number}", "account": account, **more}


@pytest.fixture
def prefix():
    return f"l-{uuid.uuid4().hex[:12]}:"


def locked(setup, prefix=None, uri=None, **lock):
    """The setup's route with a lock per account; retries are quick."""
    setup.sections["redis"] = {"uri": uri or setup.stack.redis_uri}
    setup.sections["retry"] = {"first": "20ms", "max": "100ms"}
    setup.routes[0]["order_by"] = "account"
    setup.routes[0]["lock"] = {"key": "account:{account}", "wait": "50ms", **({"prefix": prefix} if prefix else {}), **lock}
    return setup


def fenced(setup, prefix, **lock):
    database = setup.collection.database
    name = f"{setup.collection.name}_fences"
    locked(setup, prefix, fence=f"{database.name}.{name}", fence_field="_fence", **lock)
    return database[name]


def stored(setup, number):
    return setup.collection.find_one({"eventId": f"e{number}"})


def wait_stored(setup, number, seconds=20):
    return wait_until(lambda: stored(setup, number), seconds, f"event {number} stored")


def pttl(program, key):
    return program.redis.pttl(program.prefix + key)


@contextlib.contextmanager
def slow_writes(setup, milliseconds):
    """The next write of this setup alone takes so long."""
    name = f"slow{uuid.uuid4().hex[:8]}"
    uri = setup.sections["mongo"]["uri"]
    setup.sections["mongo"]["uri"] = uri + ("&" if "?" in uri else "/?") + f"appName={name}"
    admin = setup.stack.mongo.admin
    admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1},
                   "data": {"failCommands": ["update", "insert"], "blockConnection": True, "blockTimeMS": milliseconds, "appName": name}})
    try:
        yield
    finally:
        admin.command({"configureFailPoint": "failCommand", "mode": "off"})


# --- with others ---


def test_who_holds_the_lock_is_waited_for_and_others_go_on(stack, make):
    topic = stack.topic(1)
    account = f"a-{uuid.uuid4().hex[:12]}"
    setup = locked(make(topic))  # the default prefix is monSQLize's
    other = MonSQLize(stack.redis_uri)
    assert other.acquire(f"account:{account}", ttl=60000)
    stack.produce(topic, [event(1, account), event(2, "free"), event(3, account), event(4, "free")])
    worker = setup.start()
    wait_stored(setup, 2)
    wait_stored(setup, 4)
    wait_until(lambda: worker.metric("idemsink_lock_waits_total") > 0, 20, "waiting")
    wait_until(lambda: worker.saw("records wait for a lock"), 20, "a line that says so")
    assert stored(setup, 1) is None and stored(setup, 3) is None
    assert other.renew(f"account:{account}") == 1 and other.holder(f"account:{account}") == other.id
    assert worker.metric("idemsink_retries_total", **{"class": "lock"}) > 0
    assert worker.get("/readyz")[0] == 200  # somebody else at work is no fault
    assert other.release(f"account:{account}") == 1
    wait_stored(setup, 3)
    assert stored(setup, 1)
    setup.wait_settled()
    assert worker.terminate() == 0
    assert not other.redis.keys(DEFAULT_PREFIX + f"account:{account}")
    assert worker.saw("locks can't be taken") == []


def test_the_lock_of_a_transaction_of_monsqlize_counts_too(stack, make, prefix):
    topic = stack.topic(1)
    setup = locked(make(topic), prefix)
    other = MonSQLize(stack.redis_uri, prefix)
    assert other.add_lock("account:7")
    stack.produce(topic, [event(1, 7)])
    worker = setup.start()
    wait_until(lambda: worker.metric("idemsink_lock_waits_total") > 0 if worker.ready() else False, 30, "waiting")
    assert stored(setup, 1) is None
    assert other.release_all() == 1
    wait_stored(setup, 1)


def test_nobody_gets_ours_and_it_is_renewed(stack, make, prefix):
    """A write that lasts longer than the ttl: the lock is the same all the while, and no command of others takes it away."""
    topic = stack.topic(1)
    setup = locked(make(topic), prefix, ttl="2400ms")
    other = MonSQLize(stack.redis_uri, prefix)
    stack.produce(topic, [event(1, 7)])
    with slow_writes(setup, 4500):
        worker = setup.start()
        token = wait_until(lambda: other.holder("account:7"), 30, "our lock")
        since = time.monotonic()
        assert len(token) == 32 and int(token, 16) > 0
        assert 0 < pttl(other, "account:7") <= 2400
        while time.monotonic() - since < 2.8:
            assert not other.acquire("account:7") and not other.add_lock("account:7")
            assert other.renew("account:7") == 0 and other.release("account:7") == 0 and other.release_all() == 0
            assert other.holder("account:7") == token
            assert worker.metric("idemsink_locks_held") == 1
            time.sleep(0.1)
        wait_stored(setup, 1)
        wait_until(lambda: other.holder("account:7") is None, 20, "the lock is released")
        assert worker.metric("idemsink_locks_lost_total") == 0
        assert worker.metric("idemsink_locks_taken_total") == 1
        assert other.acquire("account:7")


# --- deaths ---


def test_a_dead_holders_lock_runs_out(stack, make, prefix):
    topic = stack.topic(1)
    setup = locked(make(topic), prefix, ttl="3s")
    other = MonSQLize(stack.redis_uri, prefix)
    stack.produce(topic, [event(1, 7)])
    first = setup.start(fault="worker.before_write")  # kill -9, with the lock
    assert first.wait(60) == -signal.SIGKILL
    token = other.holder("account:7")
    assert token is None or pttl(other, "account:7") > 0  # never without an end
    setup.group += "-2"  # the dead member's session lasts longer than its lock
    setup.sections["kafka"]["group"] = setup.group
    setup.start()
    wait_stored(setup, 1)
    wait_until(lambda: other.holder("account:7") is None, 20, "the lock is released")


def test_a_sleeper_is_kept_back_by_the_fence(stack, make, prefix):
    """It wakes up when its lock is long gone and somebody else has been in the section: what it sends is refused, and sent again under a
    new lock."""
    topic = stack.topic(1)
    setup = make(topic)
    fences = fenced(setup, prefix, ttl="1500ms")
    setup.sections["kafka"]["properties"]["session.timeout.ms"] = "60000"
    other = MonSQLize(stack.redis_uri, prefix)
    stack.produce(topic, [event(1, 7), event(2, 7)])
    worker = setup.start(fault="worker.before_write:1:stop")
    status = pathlib.Path(f"/proc/{worker.pid}/status")
    wait_until(lambda: "\nState:\tT" in status.read_text(), 60, "the worker sleeps")
    assert fences.find_one({"_id": prefix + "account:7"})["issued"] == 1
    wait_until(lambda: other.acquire("account:7"), 20, "its lock has run out")
    number = fences.find_one_and_update({"_id": prefix + "account:7"}, {"$inc": {"issued": 1}}, upsert=True,
                                        return_document=pymongo.ReturnDocument.AFTER)["issued"]
    assert number == 2
    worker.signal(signal.SIGCONT)
    wait_until(lambda: worker.metric("idemsink_retries_total") > 0, 20, "what it had in hand comes back")
    assert setup.collection.count_documents({}) == 0
    kept_back = worker.metric("idemsink_fence_refused_total")
    driver = sum(worker.metric("idemsink_retries_total", **{"class": name}) for name in ("network", "no_primary", "timeout"))
    assert kept_back > 0 or driver > 0  # after a long sleep the driver may give up its connection before it asks
    assert other.release("account:7") == 1
    assert wait_stored(setup, 1)["_fence"] > 2 and wait_stored(setup, 2)["_fence"] > 2
    setup.wait_settled()
    assert setup.collection.count_documents({}) == 2
    assert worker.metric("idemsink_locks_lost_total") == 1
    assert worker.terminate() == 0
    document = fences.find_one({"_id": prefix + "account:7"})
    assert document["fence"] == stored(setup, 2)["_fence"] == document["issued"]


def test_numbers_rise_over_restarts(stack, make, prefix):
    topic = stack.topic(1)
    setup = make(topic)
    fences = fenced(setup, prefix)
    seen = []
    for i in range(2):
        stack.produce(topic, [event(10 * i + n, account) for n, account in enumerate((7, 8, 7, 9))])
        setup.run_until_end()
        seen.append({n: stored(setup, 10 * i + n)["_fence"] for n in range(4)})
    for n in range(4):
        assert seen[1][n] > seen[0][n] >= 1
    for account in (7, 8, 9):
        document = fences.find_one({"_id": f"{prefix}account:{account}"})
        assert document["issued"] == document["fence"] >= 2
    assert not MonSQLize(stack.redis_uri, prefix).redis.keys(prefix + "*")


# --- faults ---


class OwnRedis:
    """One that a test may stop."""

    def __init__(self, directory):
        self.socket = pathlib.Path(directory) / "r.sock"
        self.uri = f"unix://{self.socket}"
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"],
                                        stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=str(self.socket))

        def answers():
            with contextlib.suppress(redis.RedisError):
                return client.ping()

        wait_until(answers, 20, "Redis")

    def stop(self):
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def own_redis(tmp_path):
    server = OwnRedis(tmp_path)
    yield server
    server.stop()


def test_redis_away(stack, make, own_redis):
    topics = stack.topic(1), stack.topic(1)
    setup = locked(make(topics[0]), uri=own_redis.uri)
    free = stack.collection()
    setup.routes.append(setup.route([topics[1]], free))
    worker = setup.start()
    stack.produce(topics[0], [event(0, 7)])
    wait_stored(setup, 0)
    own_redis.stop()
    stack.produce(topics[0], [event(n, n % 3) for n in range(1, 20)])
    stack.produce(topics[1], [event(n, n) for n in range(20)])
    wait_until(lambda: free.count_documents({}) == 20, 30, "the other route goes on")
    said = worker.wait_saw("locks can't be taken")
    assert "redis" in said[0]["error"]
    status, body = wait_until(lambda: next((page for page in [worker.get("/readyz")] if page[0] == 503), None), 20, "not ready")
    assert "lock" in body and "redis" in body
    assert worker.metric("idemsink_route_blocked", **{"class": "lock"}) == 1
    assert setup.collection.count_documents({}) == 1  # nothing without its lock
    own_redis.start()
    wait_until(lambda: setup.collection.count_documents({}) == 20, 30, "all of them")
    wait_until(worker.ready, 20, "/readyz")
    assert len(worker.saw("locks can't be taken")) == 1
    assert worker.terminate() == 0


def test_a_value_that_is_missing_is_a_dead_letter(stack, make, prefix):
    topic = stack.topic(1)
    setup = locked(make(topic), prefix)
    stack.produce(topic, [{"eventId": "e1"}, event(2, {"no": "scalar"}), event(3, 7)])
    setup.run_until_end()
    letters = stack.read_topic(setup.dead_letter_topic)
    assert [dict(letter.headers())["idemsink.reason"] for letter in letters] == [b"effect_value"] * 2
    assert setup.collection.count_documents({}) == 1


def test_replay_takes_it_too(stack, make, prefix):
    topic = stack.topic(1)
    setup = locked(make(topic), prefix)
    setup.routes[0]["types"] = {"at": "date"}
    stack.produce(topic, [event(1, 7, at="no date")])
    setup.run_until_end()
    del setup.routes[0]["types"]
    other = MonSQLize(stack.redis_uri, prefix)
    assert other.acquire("account:7", ttl=60000)
    done = setup.command("dlq replay", "--patience", "1s")
    assert done.returncode not in (0, 64) and b"locks can't be taken" in done.stderr, done
    assert stored(setup, 1) is None
    assert other.release("account:7") == 1
    done = setup.command("dlq replay")
    assert done.returncode == 0, done
    assert stored(setup, 1)
    assert other.holder("account:7") is None


def test_check_tries_its_rights(stack, make, prefix):
    setup = locked(make(stack.topic(1)), prefix)
    other = MonSQLize(stack.redis_uri)
    name = f"u{uuid.uuid4().hex[:8]}"
    other.redis.execute_command("ACL", "SETUSER", name, "on", ">pw", f"~{prefix}*", "+@all", "-pexpire")
    try:
        setup.sections["redis"]["uri"] = stack.redis_uri.replace("redis://", f"redis://{name}:pw@")
        done = setup.command("check", "--connect", "--json")
        verdicts = {row["what"]: row["verdict"] for row in json.loads(done.stdout)["checks"]}
        lock = f"{prefix}account:{{account}}"
        assert verdicts[f"redis PEXPIRE {lock}"] == "wrong" and done.returncode == 1
        assert {verdicts[f"redis {command} {lock}"] for command in ("SET", "GET", "DEL", "EVAL", "EVALSHA")} == {"ok"}
    finally:
        other.redis.execute_command("ACL", "DELUSER", name)
