"""G11: invalidations after the truth: their shapes, their order, how many of them, and what happens while Redis is away."""
import json
import signal
import threading
import time
import uuid

import pytest
import redis
from harness import wait_until

AT_ONCE = {"coalesce": "0s", "repeat_after": "0s"}


def event(number, **more):
    return {"eventId": f"e{number}", "n": number, **more}


class Listener:
    """A subscriber. `probe` is called with each message at once; its answer is kept beside it."""

    def __init__(self, uri, *channels, probe=lambda body: None):
        self.messages = []  # (channel, body, probe's answer, when)
        self._probe = probe
        self._client = redis.Redis.from_url(uri)
        self._pubsub = self._client.pubsub()
        self._pubsub.psubscribe(*channels)
        confirmed = 0
        while confirmed < len(channels):
            message = self._pubsub.get_message(timeout=5)
            assert message and message["type"] == "psubscribe"
            confirmed += 1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self):
        while not self._stopping.is_set():
            try:
                message = self._pubsub.get_message(timeout=0.1)
            except (redis.ConnectionError, ValueError):
                return
            if message and message["type"] == "pmessage":
                body = message["data"].decode()
                self.messages.append((message["channel"].decode(), body, self._probe(body), time.monotonic()))

    def bodies(self, channel=None):
        return [json.loads(m[1]) for m in self.messages if channel in (None, m[0])]

    def wait(self, count, seconds=20):
        wait_until(lambda: len(self.messages) >= count, seconds, f"{count} messages")
        return self.messages

    def fence(self):
        """Everything that was published before this call has been heard afterwards."""
        mark = uuid.uuid4().hex
        channel = self._pubsub.patterns and next(iter(self._pubsub.patterns)).decode().rstrip("*") + "fence"
        self._client.publish(channel, json.dumps(mark))
        wait_until(lambda: any(mark in m[1] for m in self.messages), 20, "the fence")
        self.messages = [m for m in self.messages if not m[0].endswith("fence")]
        return self.messages

    def close(self):
        self._stopping.set()
        self._thread.join(5)
        self._pubsub.close()
        self._client.close()


@pytest.fixture
def listen():
    """listen(uri, channel patterns..., probe=...) -> Listener."""
    made = []

    def new(*args, **options):
        made.append(Listener(*args, **options))
        return made[-1]

    yield new
    for listener in made:
        listener.close()


@pytest.fixture
def channel():
    """The begin of a channel's name that is this test's own; also good for keys."""
    return f"ch-{uuid.uuid4().hex[:12]}:"


def with_rules(setup, *rules, **redis_keys):
    setup.sections["redis"] = {"uri": setup.stack.redis_uri, **redis_keys}
    setup.routes[0]["invalidate"] = list(rules)
    return setup


def pubsub(channel, payload='{"id": {eventId}}', **more):
    return {"mode": "pubsub", "channel": channel, "payload": payload, **AT_ONCE, **more}


def namespace(setup):
    return setup.collection.database.name, setup.collection.name


# --- shapes ---


def test_pubsub_templates(stack, make, listen, channel):
    topic = stack.topic(1)
    payload = """{"id": {eventId}, "text": "n={n} {note}", "from": {@topic}, "p": {@partition}, "o": {@offset}, "key": {@key},
                  "h": {@header.h}, "deep": {"x": {a.b}}, "where": "{@db}.{@collection}", "at": @TIMESTAMP@, "list": [{flag}, {real}]}"""
    setup = with_rules(make(topic), pubsub(channel + "{tenant}", payload))
    note = 'q" b\\ é \u2028 {n} {{ @TIMESTAMP@ \u0000'
    listener = listen(stack.redis_uri, channel + "*")
    before = time.time() * 1000
    stack.produce(topic, [(json.dumps(event(1, tenant="ä b", note=note, a={"b": 2}, flag=True, real=1.5)), "k", [("h", b"v")], 0),
                          (event(2, tenant="left out: no note", a={"b": 2}), "k"),
                          (event(3, tenant={"no": "scalar"}, note="", a={"b": 0}, flag=False, real=0.5), "k", [("h", b"v")], 0)])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    wait_until(lambda: worker.metric("idemsink_invalidations_total", result="sent") == 1, 10, "the message")
    assert worker.metric("idemsink_invalidations_skipped_total") == 2
    assert worker.metric("idemsink_invalidation_receivers_total") == 1
    assert worker.terminate() == 0
    (name, body, _, _), = listener.fence()
    assert name == channel + "ä b"
    got = json.loads(body)
    assert before <= got.pop("at") <= time.time() * 1000
    db, collection = namespace(setup)
    assert got == {"id": "e1", "text": f"n=1 {note}", "from": topic, "p": 0, "o": 0, "key": "k", "h": "v", "deep": {"x": 2},
                   "where": f"{db}.{collection}", "list": [True, 1.5]}
    assert setup.collection.count_documents({}) == 3  # an invalidation that can't be filled is no reason to refuse an event


def test_unlink_before_publish_and_both_after_the_write(stack, make, listen, channel):
    """For every event: the document is there when the message comes, and the key was removed before."""
    topic = stack.topic(2)
    setup = with_rules(make(topic), pubsub(channel + "m", '{"id": {eventId}, "key": "%s{eventId}"}' % channel),
                       {"mode": "unlink", "keys": [channel + "{eventId}", channel + "all:{eventId}"], **AT_ONCE})
    client = redis.Redis.from_url(stack.redis_uri)
    for i in range(300):
        client.set(f"{channel}e{i}", "old")
        client.set(f"{channel}all:e{i}", "old")
    client.set(channel + "other", "stays")

    def probe(body):
        if '"id"' not in body:
            return None
        about = json.loads(body)
        return setup.collection.count_documents({"eventId": about["id"]}), client.exists(about["key"])

    listener = listen(stack.redis_uri, channel + "*", probe=probe)
    stack.produce(topic, [(event(i), f"k{i}") for i in range(300)])
    setup.run_until_end()
    listener.fence()
    assert sorted(b["id"] for b in listener.bodies()) == sorted(f"e{i}" for i in range(300))
    assert {m[2] for m in listener.messages} == {(1, 0)}
    assert client.keys(channel + "*") == [(channel + "other").encode()]


def test_monsqlize_1(stack, make, listen, channel):
    topic = stack.topic(1)
    setup = with_rules(make(topic), {"mode": "monsqlize", "repeat_after": "0s"}, instance_id="writer-7")
    db, collection = namespace(setup)
    listener = listen(stack.redis_uri, "monsqlize:cache:invalidate")
    before = int(time.time() * 1000)
    stack.produce(topic, [event(1)])
    setup.run_until_end()
    name, body, _, _ = wait_until(lambda: [m for m in listener.messages if collection in m[1]], 10, "the message")[0]
    stamp = json.loads(body)["timestamp"]
    assert name == "monsqlize:cache:invalidate" and before <= stamp <= time.time() * 1000
    assert body == json.dumps({"type": "invalidate", "pattern": f'*"ns":{{"collection":"{collection}","db":"{db}",*',
                               "instanceId": "writer-7", "timestamp": stamp}, separators=(",", ":"))


def test_monsqlize_3_sends_exact_keys_and_no_pattern(stack, make, listen, channel):
    topic = stack.topic(1)
    setup = with_rules(make(topic), {"mode": "monsqlize", "flavor": 3, "channel": channel + "m", "keys": ["user:{user}", "n:{n}"], **AT_ONCE},
                       instance_id="writer-3")
    listener = listen(stack.redis_uri, channel + "*")
    stack.produce(topic, [(event(1, user='u"1'), "k"), (event(2, user="a*"), "k"), (event(3, user="u[3]"), "k"), (event(4, user="ok?"), "k"),
                          (event(5, user="b\\"), "k"), (event(6, user="last"), "k")])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    wait_until(lambda: worker.metric("idemsink_invalidations_total", result="sent") == 8, 10, "the messages")
    assert worker.metric("idemsink_invalidations_skipped_total") == 4
    assert worker.terminate() == 0
    listener.fence()
    for _, body, _, _ in listener.messages:
        got = json.loads(body)
        assert body == json.dumps({"type": "invalidateKey", "key": got["key"], "instanceId": "writer-3", "timestamp": got["timestamp"]},
                                  separators=(",", ":"))
    assert sorted(b["key"] for b in listener.bodies()) == sorted(['user:u"1', "user:last"] + [f"n:{i}" for i in range(1, 7)])


def test_monsqlize_3_patterns_need_the_operators_word(stack, make, listen, channel):
    topic = stack.topic(1)
    rule = {"mode": "monsqlize", "flavor": 3, "channel": channel + "m", "patterns": True, "bookmarks": True, **AT_ONCE}
    setup = with_rules(make(topic), rule)
    done = setup.command("check")
    assert done.returncode == 78 and b"receivers_echo_safe" in done.stderr
    rule["receivers_echo_safe"] = True
    listener = listen(stack.redis_uri, channel + "*")
    stack.produce(topic, [event(1)])
    setup.run_until_end()
    listener.fence()
    db, collection = namespace(setup)
    assert sorted(b["pattern"] for b in listener.bodies()) == sorted([f"*:{db}.{collection}:*", f"{db}:{collection}:bm:*"])
    assert {b["type"] for b in listener.bodies()} == {"invalidate"}


@pytest.mark.parametrize("given,wanted", [({"INSTANCE_ID": "i", "POD_NAME": "p", "HOSTNAME": "h"}, "i"), ({"POD_NAME": "p", "HOSTNAME": "h"}, "p"),
                                          ({"HOSTNAME": "h"}, "h"), ({}, None)], ids=["INSTANCE_ID", "POD_NAME", "HOSTNAME", "made up"])
def test_instance_id(stack, make, channel, monkeypatch, given, wanted):
    for name in ("INSTANCE_ID", "POD_NAME", "HOSTNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    setup = with_rules(make(stack.topic(1)), {"mode": "monsqlize", "channel": channel})
    shown = []
    for _ in range(2):
        done = setup.command("explain", "--topic", setup.topics[0], stdin=b'{"eventId": "a"}')
        line = [l for l in done.stdout.decode().splitlines() if l.startswith("invalidation")][0]
        shown.append(json.loads(line[line.index("{"):].replace("@TIMESTAMP@", "0"))["instanceId"])
    if wanted:
        assert shown == [wanted, wanted]
    else:
        assert len(set(shown)) == 2 and all(name.startswith("instance-") for name in shown)


# --- generations and streams ---


def entries(client, stream):
    """What is in the stream's field, in its order."""
    found = client.xrange(stream)
    assert all(set(fields) == {b"payload"} for _, fields in found)
    return [json.loads(fields[b"payload"]) for _, fields in found]


def stream_of(channel, payload='{"id": {eventId}}', **more):
    return {"mode": "stream", "stream": channel + "s", "payload": payload, **AT_ONCE, **more}


def test_generations_change_before_the_message_and_the_stream_keeps_all(stack, make, listen, channel):
    """For every event: document, generation and removed key are there when the message comes; the stream has everything."""
    topic = stack.topic(2)
    setup = with_rules(make(topic), stream_of(channel, '{"id": {eventId}, "of": "{@collection}", "at": @TIMESTAMP@}'), pubsub(channel + "m"),
                       {"mode": "version", "keys": [channel + "g:{eventId}"], **AT_ONCE},
                       {"mode": "version", "keys": [channel + "all", channel + "x:{eventId}"], "expire": "1h", **AT_ONCE},
                       {"mode": "unlink", "keys": [channel + "{eventId}"], **AT_ONCE})
    client = redis.Redis.from_url(stack.redis_uri)
    for i in range(200):
        client.set(f"{channel}e{i}", "old")

    def probe(body):
        if '"id"' not in body:
            return None
        name = json.loads(body)["id"]
        return setup.collection.count_documents({"eventId": name}), int(client.get(f"{channel}g:{name}")), client.exists(channel + name)

    listener = listen(stack.redis_uri, channel + "*", probe=probe)
    before = time.time()
    stack.produce(topic, [(event(i), f"k{i}") for i in range(200)])
    setup.run_until_end()
    listener.fence()
    assert sorted(b["id"] for b in listener.bodies()) == sorted(f"e{i}" for i in range(200))
    assert {m[2] for m in listener.messages} == {(1, 1, 0)}
    got = entries(client, channel + "s")
    assert sorted(b["id"] for b in got) == sorted(f"e{i}" for i in range(200))
    assert {b["of"] for b in got} == {setup.collection.name} and all(before * 1000 - 1 <= b["at"] <= time.time() * 1000 for b in got)
    start = int(client.get(channel + "all"))  # microseconds: no number of it has been before
    assert before * 1e6 <= start <= time.time() * 1e6 and 3_500_000 < client.pttl(channel + "all") <= 3_600_000
    assert client.pttl(channel + "g:e0") == -1


def test_a_reader_with_generations_never_serves_what_was_before_the_write(stack, make, channel):
    """The protocol of docs/caches.md; a slow reader stores what it read before the write, and nobody finds it."""
    topic = stack.topic(1)
    setup = with_rules(make(topic), {"mode": "version", "keys": [channel + "gen:{customer}"], "delivery": "before_commit", **AT_ONCE})
    setup.sections["worker"]["commit_interval"] = "50ms"
    client = redis.Redis.from_url(stack.redis_uri)

    def generation(customer):
        return (client.get(f"{channel}gen:{customer}") or b"0").decode()

    def fill(customer, number):
        value = sorted(d["eventId"] for d in setup.collection.find({"customer": customer}))
        return lambda: client.set(f"{channel}orders:{customer}:{number}", json.dumps(value), ex=60)

    def read(customer):
        number = generation(customer)
        if not client.exists(f"{channel}orders:{customer}:{number}"):
            fill(customer, number)()
        return json.loads(client.get(f"{channel}orders:{customer}:{number}"))

    worker = setup.start()
    worker.wait_ready()
    for i in range(4):
        slow = fill("c", generation("c"))
        assert read("c") == [f"e{n}" for n in range(i)] == read("c")
        stack.produce(topic, [event(i, customer="c")])
        setup.wait_settled()  # before_commit: the generation is new
        slow()
        assert read("c") == [f"e{n}" for n in range(i + 1)]
    assert read("other") == [] and generation("other") == "0" and generation("c") == "4"
    assert worker.terminate() == 0


def test_a_receiver_that_was_away_misses_nothing(fragile_stack, make_fragile, channel):
    """A consumer group of a stream; the process dies while Redis is frozen; the next one tells what it finds stored."""
    stack = fragile_stack
    topic = stack.topic(2)
    setup = with_rules(make_fragile(topic), stream_of(channel, delivery="before_commit", maxlen=1000),
                       {"mode": "version", "keys": [channel + "g:{eventId}"], "delivery": "before_commit", **AT_ONCE})
    client = redis.Redis.from_url(stack.redis_uri)
    client.xgroup_create(channel + "s", "readers", id="0", mkstream=True)
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [(event(i), f"k{i}") for i in range(20)])
    setup.wait_settled()
    stack.pause("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(20, 60)])
        wait_until(lambda: setup.collection.count_documents({}) == 60, 20, "the documents")
        worker.kill()
    finally:
        stack.resume("redis")
    assert sum(stack.committed(setup.group, topic).values()) == 20
    assert setup.run_until_end().books()["duplicate"] == 40
    heard = set()
    while batch := client.xreadgroup("readers", "me", {channel + "s": ">"}, count=25):
        for number, fields in batch[0][1]:
            heard.add(json.loads(fields[b"payload"])["id"])
            client.xack(channel + "s", "readers", number)
    assert heard == {f"e{i}" for i in range(60)}
    assert all(int(client.get(f"{channel}g:e{i}")) >= 1 for i in range(60))


def test_a_burst_changes_a_generation_few_times(stack, make, channel):
    topic = stack.topic(2)
    setup = with_rules(make(topic), {"mode": "version", "keys": [channel + "all"], "coalesce": "300ms", "repeat_after": "500ms"},
                       stream_of(channel, '{"all": "changed"}', coalesce="300ms"))
    setup.sections["worker"]["batch"] = 20
    client = redis.Redis.from_url(stack.redis_uri)
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [(event(i), f"k{i}") for i in range(1000)])
    setup.wait_settled()
    wait_until(lambda: worker.metric("idemsink_invalidations_total", mode="version", result="repeated") == 1, 10, "the repetition")
    sent = {mode: worker.metric("idemsink_invalidations_total", mode=mode, result="sent") for mode in ("version", "stream")}
    assert worker.terminate() == 0
    assert 2 <= sent["version"] <= 20 and int(client.get(channel + "all")) == sent["version"] + 1
    assert 2 <= sent["stream"] <= 20 and entries(client, channel + "s") == [{"all": "changed"}] * int(sent["stream"])


def test_a_name_that_something_else_has(stack, make, channel):
    """One error for the operator, without the name; the others go on; put right, it is made good."""
    topic = stack.topic(1)
    setup = with_rules(make(topic), {"mode": "version", "keys": [channel + "g:{eventId}"], **AT_ONCE}, stream_of(channel))
    client = redis.Redis.from_url(stack.redis_uri)
    client.hset(channel + "g:e1", "a", "b")
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [event(i) for i in range(3)])
    setup.wait_settled()
    wait_until(lambda: worker.metric("idemsink_invalidations_total", mode="version", result="failed") >= 3, 20, "attempts")
    assert worker.metric("idemsink_redis_up") == 1 and worker.metric("idemsink_invalidations_total", mode="stream", result="sent") == 3
    assert client.get(channel + "g:e0") == client.get(channel + "g:e2") == b"1"
    assert worker.log_tail(100).count("redis refuses invalidations") == 1 and "INCR refused with WRONGTYPE" in worker.log_tail(100)
    assert channel not in worker.log_tail(100)
    client.delete(channel + "g:e1")
    wait_until(lambda: client.get(channel + "g:e1") == b"1", 20, "the generation")
    assert worker.terminate() == 0


# --- how many ---


@pytest.mark.parametrize("publish_on,wanted", [("always", 3), ("inserted", 1)])
def test_publish_on(stack, make, listen, channel, publish_on, wanted):
    topic = stack.topic(1)
    setup = with_rules(make(topic), pubsub(channel + "m", publish_on=publish_on))
    listener = listen(stack.redis_uri, channel + "*")
    for _ in range(3):
        stack.produce(topic, [event(1)])
        setup.run_until_end()
    listener.fence()
    assert len(listener.messages) == wanted


def test_dead_letters_and_tombstones_tell_nobody(stack, make, listen, channel):
    topic = stack.topic(1)
    setup = with_rules(make(topic), pubsub(channel + "m", '{"some": "thing"}'))
    listener = listen(stack.redis_uri, channel + "*")
    stack.produce(topic, [(b"{", "k"), (None, "k"), (b'{"eventId": null}', "k")])
    setup.run_until_end()
    assert listener.fence() == []


def test_a_burst_is_few_messages_and_the_last_is_behind_the_last_write(stack, make, listen, channel):
    topic = stack.topic(2)
    setup = with_rules(make(topic), pubsub(channel + "m", '{"all": "changed"}', coalesce="300ms"))
    setup.sections["worker"]["batch"] = 20
    listener = listen(stack.redis_uri, channel + "*", probe=lambda _: setup.collection.count_documents({}))
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [(event(i), f"k{i}") for i in range(1000)])
    setup.wait_settled()
    wait_until(lambda: listener.messages and listener.messages[-1][2] == 1000, 10, "a message behind the last write")
    sent = worker.metric("idemsink_invalidations_total", result="sent")
    assert sent + worker.metric("idemsink_invalidations_total", result="coalesced") == 1000
    assert worker.terminate() == 0
    listener.fence()
    assert 2 <= len(listener.messages) == sent <= 20
    gaps = [b[3] - a[3] for a, b in zip(listener.messages, listener.messages[1:])]
    assert min(gaps) > 0.25  # one at the start of each window, none inside


def test_once_more_after_a_while(stack, make, listen, channel):
    topic = stack.topic(1)
    setup = with_rules(make(topic), pubsub(channel + "m", repeat_after="700ms"))
    listener = listen(stack.redis_uri, channel + "*")
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [event(1)])
    first, second = listener.wait(2)
    assert first[1] == second[1] and 0.6 < second[3] - first[3] < 3
    wait_until(lambda: worker.metric("idemsink_invalidations_total", result="repeated") == 1, 10, "its count")
    assert worker.metric("idemsink_invalidations_total", result="sent") == 1
    assert worker.terminate() == 0
    listener.fence()
    assert len(listener.messages) == 2


@pytest.mark.parametrize("delivery,window", [("best_effort", "60s"), ("before_commit", "2s")])
def test_the_end_sends_what_the_window_holds_back(stack, make, listen, channel, delivery, window):
    """best_effort does not wait for the window; before_commit does, and so commits everything."""
    topic = stack.topic(1)
    setup = with_rules(make(topic), pubsub(channel + "m", '{"all": "changed"}', coalesce=window, repeat_after="90s", delivery=delivery))
    listener = listen(stack.redis_uri, channel + "*", probe=lambda _: setup.collection.count_documents({}))
    worker = setup.start()
    worker.wait_ready()
    stack.produce(topic, [event(1)])
    listener.wait(1)
    stack.produce(topic, [(event(i), f"k{i}") for i in range(2, 50)])
    wait_until(lambda: setup.collection.count_documents({}) == 49, 20, "the documents")
    began = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - began < 5
    listener.fence()
    assert [m[2] for m in listener.messages][-1] == 49
    assert stack.committed(setup.group, topic) == {0: 49}


def test_before_commit_with_a_window_that_no_rebalance_could_wait_for(stack, make, channel):
    setup = with_rules(make(stack.topic(1)), pubsub(channel + "m", coalesce="5s", delivery="before_commit"))
    done = setup.command("check")
    assert done.returncode == 78 and b"coalesce" in done.stderr and b"worker.drain_timeout" in done.stderr


# --- Redis away ---


def frozen_while(worker, action):
    """Keeps the worker from going on until action() is done."""
    worker.signal(signal.SIGSTOP)
    try:
        return action()
    finally:
        worker.signal(signal.SIGCONT)


def test_before_commit_waits_for_redis(fragile_stack, make_fragile, listen, channel):
    stack = fragile_stack
    topic = stack.topic(2)
    setup = with_rules(make_fragile(topic), pubsub(channel + "m", delivery="before_commit"),
                       {"mode": "unlink", "keys": [channel + "{eventId}"], "delivery": "before_commit", **AT_ONCE}, timeout="500ms")
    setup.routes.append(setup.route([stack.topic(1)], stack.collection()))  # nobody waits for this one
    setup.topics.append(setup.routes[1]["topics"][0])
    worker = setup.start()
    worker.wait_ready()
    stack.stop("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(200)])
        stack.produce(setup.topics[1], [event(1)])
        wait_until(lambda: setup.collection.count_documents({}) == 200, 20, "the documents")
        wait_until(lambda: worker.metric("idemsink_redis_up") == 0, 20, "redis down")
        wait_until(lambda: worker.metric("idemsink_invalidations_waiting_records") == 200, 20, "records that wait")
        wait_until(lambda: stack.committed(setup.group, setup.topics[1]) == {0: 1}, 20, "the other route's commit")
        assert sum(stack.committed(setup.group, topic).values()) == 0
        assert worker.metric("idemsink_invalidations_pending") == 400
    finally:
        listener = frozen_while(worker, lambda: [stack.start("redis"), listen(stack.redis_uri, channel + "*")][1])
    setup.wait_settled(30)
    assert worker.metric("idemsink_redis_up") == 1 and worker.metric("idemsink_redis_reconnects_total") >= 1
    assert worker.metric("idemsink_invalidations_waiting_records") == worker.metric("idemsink_invalidations_pending") == 0
    assert worker.terminate() == 0
    listener.fence()
    assert {b["id"] for b in listener.bodies()} == {f"e{i}" for i in range(200)}


def test_best_effort_goes_on_without_redis(fragile_stack, make_fragile, listen, channel):
    stack = fragile_stack
    topic = stack.topic(2)
    setup = with_rules(make_fragile(topic), pubsub(channel + "m"), timeout="500ms", max_pending=500)
    worker = setup.start()
    worker.wait_ready()
    stack.stop("redis")
    try:
        stack.produce(topic, [(event(i % 300), f"k{i}") for i in range(1000)])  # a set: 300 different ones
        setup.wait_settled(30)
        assert worker.metric("idemsink_invalidations_pending") == 300
        assert worker.metric("idemsink_invalidations_total", result="dropped") == 0
        stack.produce(topic, [(event(i), f"k{i}") for i in range(1000, 2000)])
        setup.wait_settled(30)
        assert worker.metric("idemsink_invalidations_pending") == 500  # bounded, and counted
        assert worker.metric("idemsink_invalidations_total", result="dropped") == 800
        assert worker.saw("redis is away")
    finally:
        listener = frozen_while(worker, lambda: [stack.start("redis"), listen(stack.redis_uri, channel + "*")][1])
    wait_until(lambda: len(listener.messages) >= 500, 20, "what was kept")
    assert worker.terminate() == 0
    listener.fence()
    assert {b["id"] for b in listener.bodies()} >= {f"e{i}" for i in range(300)}


def test_keys_become_their_collection_when_too_many_wait(fragile_stack, make_fragile, listen, channel):
    stack = fragile_stack
    topic = stack.topic(1)
    rule = {"mode": "monsqlize", "flavor": 3, "channel": channel + "m", "keys": ["k:{eventId}"], "receivers_echo_safe": True, **AT_ONCE}
    setup = with_rules(make_fragile(topic), rule, timeout="500ms", max_pending=50)
    worker = setup.start()
    worker.wait_ready()
    stack.stop("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(500)])
        setup.wait_settled(30)
        assert worker.metric("idemsink_invalidations_total", result="dropped") == 0
        assert worker.metric("idemsink_invalidations_total", result="collapsed") > 0
    finally:
        listener = frozen_while(worker, lambda: [stack.start("redis"), listen(stack.redis_uri, channel + "*")][1])
    wait_until(lambda: worker.metric("idemsink_invalidations_pending") == 0, 20, "nothing pending")
    assert worker.terminate() == 0
    listener.fence()
    db, collection = namespace(setup)
    keys = {b["key"] for b in listener.bodies() if b["type"] == "invalidateKey"}
    assert [b["pattern"] for b in listener.bodies() if b["type"] == "invalidate"][0] == f"*:{db}.{collection}:*"
    assert len(keys) <= 50


def test_limit_of_waiting(fragile_stack, make_fragile, channel):
    stack = fragile_stack
    topic = stack.topic(1)
    setup = with_rules(make_fragile(topic), pubsub(channel + "m", delivery="before_commit"), timeout="300ms", before_commit_limit="1s")
    worker = setup.start()
    worker.wait_ready()
    stack.stop("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(20)])
        setup.wait_settled(30)
        assert worker.metric("idemsink_invalidations_expired_total") == 20
        assert worker.wait_saw("redis.before_commit_limit passed")
        assert worker.terminate() == 0
    finally:
        stack.start("redis")


def test_killed_while_redis_is_frozen(fragile_stack, make_fragile, listen, channel):
    """The write is there, the message is not; the process dies. The next one finds duplicates and tells of them."""
    stack = fragile_stack
    topic = stack.topic(1)
    setup = with_rules(make_fragile(topic), pubsub(channel + "m", delivery="before_commit"))
    listener = listen(stack.redis_uri, channel + "*")
    worker = setup.start()
    worker.wait_ready()
    stack.pause("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(30)])
        wait_until(lambda: setup.collection.count_documents({}) == 30, 20, "the documents")
        worker.kill()
    finally:
        stack.resume("redis")
    listener.fence()
    listener.messages = []
    assert sum(stack.committed(setup.group, topic).values()) == 0
    worker = setup.run_until_end()
    assert worker.books()["duplicate"] == 30
    listener.fence()
    assert {b["id"] for b in listener.bodies()} == {f"e{i}" for i in range(30)}


@pytest.mark.parametrize("delivery,status", [("best_effort", 0), ("before_commit", 75)])
def test_ends_in_time_while_redis_is_frozen(fragile_stack, make_fragile, channel, delivery, status):
    stack = fragile_stack
    topic = stack.topic(1)
    setup = with_rules(make_fragile(topic), pubsub(channel + "m", delivery=delivery), timeout="1s")
    setup.sections["worker"]["drain_timeout"] = "2s"
    worker = setup.start()
    worker.wait_ready()
    stack.pause("redis")
    try:
        stack.produce(topic, [(event(i), f"k{i}") for i in range(5)])
        wait_until(lambda: setup.collection.count_documents({}) == 5, 20, "the documents")
        began = time.monotonic()
        assert worker.terminate() == status
        assert time.monotonic() - began < 5
        assert stack.committed(setup.group, topic).get(0, 0) == (5 if status == 0 else 0)
    finally:
        stack.resume("redis")


def test_who_waits_for_redis_is_not_ready(stack, make, channel):
    """A wrong password, until it is right: red with before_commit, after 10 s; never with best_effort."""
    client = redis.Redis.from_url(stack.redis_uri)
    user, address = f"u{uuid.uuid4().hex[:8]}", stack.redis_uri.split("://")[1]
    client.acl_setuser(user, enabled=True, passwords=["+another"], categories=["+@all"], channels=["*"], keys=["*"])
    setups = {delivery: with_rules(make(stack.topic(1)), pubsub(channel + "m", delivery=delivery)) for delivery in ("before_commit", "best_effort")}
    workers = {}
    try:
        for delivery, setup in setups.items():
            setup.sections["redis"]["uri"] = f"redis://{user}:the-hidden-one@{address}"
            workers[delivery] = setup.start()
        for delivery, worker in workers.items():
            worker.wait_ready()
            stack.produce(setups[delivery].topics[0], [event(i) for i in range(3)])
        waits = workers["before_commit"]
        began = time.monotonic()
        wait_until(lambda: waits.get("/readyz")[0] == 503, 20, "a red light")
        assert time.monotonic() - began > 5
        why = waits.get("/readyz")[1]
        assert "3 records wait for Redis" in why and "WRONGPASS" in why and "the-hidden-one" not in why, why
        assert waits.get("/healthz")[0] == 200
        wait_until(lambda: stack.committed(setups["best_effort"].group, setups["best_effort"].topics[0]) == {0: 3}, 20, "the others' commit")
        assert workers["best_effort"].get("/readyz")[0] == 200 and workers["best_effort"].metric("idemsink_redis_up") == 0
        client.acl_setuser(user, enabled=True, passwords=["+the-hidden-one"])
        waits.wait_ready()
        setups["before_commit"].wait_settled(30)
    finally:
        client.acl_deluser(user)


# --- rights and secrets ---


def test_password_is_used_and_never_shown(stack, make, listen, channel):
    client = redis.Redis.from_url(stack.redis_uri)
    user, password = f"u{uuid.uuid4().hex[:8]}", "pass-wörd/" + uuid.uuid4().hex
    escaped = password.replace("ö", "%C3%B6").replace("/", "%2F")
    address = stack.redis_uri.split("://")[1]
    client.acl_setuser(user, enabled=True, passwords=[f"+{password}"], categories=["+@all"], channels=[channel + "*"], keys=["*"])
    topic = stack.topic(1)
    shown = ""
    try:
        listener = listen(stack.redis_uri, channel + "*")
        for uri, rule_channel, error in ((f"redis://{user}:{escaped}@{address}", channel + "m", None),
                                         (f"redis://{user}:{escaped}x@{address}", channel + "m", "WRONGPASS"),
                                         (f"redis://:{escaped}@{address}", channel + "m", "password"),
                                         (f"redis://{user}:{escaped}@{address}", "not-allowed", "NOPERM"),
                                         (f"redis://{user}:{escaped}@127.0.0.1:1/0", channel + "m", "127.0.0.1:1")):
            setup = with_rules(make(topic), pubsub(rule_channel), timeout="500ms")
            setup.sections["redis"]["uri"] = uri
            setup.sections["log"]["level"] = "debug"
            stack.produce(topic, [event(1)])
            worker = setup.start()
            if error:
                wait_until(lambda: error in worker.log_tail(100), 20, error)
            else:
                listener.wait(1)
            assert worker.terminate() == 0
            check, connect = setup.command("check"), setup.command("check", "--connect")
            assert connect.returncode == {"WRONGPASS": 77, "password": 77, "NOPERM": 1, "127.0.0.1:1": 69, None: 0}[error], connect.stdout
            shown += worker.log_path.read_text() + (check.stdout + check.stderr + connect.stdout + connect.stderr).decode()
    finally:
        client.acl_deluser(user)
    for secret in (password, escaped, password.split("/")[1]):
        assert secret not in shown
    assert "***" in shown
