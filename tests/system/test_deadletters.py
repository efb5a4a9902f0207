"""Dead letters: byte for byte, with their headers, for every reason; what happens without a topic for them, and while it does not take
them: nothing is lost, nothing is committed too early, and neighbours go on."""
import gzip
import json
import re
import subprocess
import time
import uuid

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AlterConfigOpType, ConfigEntry,
                                   ConfigResource, ResourcePatternType, ResourceType)
from harness import BINARY, Setup, wait_until

NOW_MS = int(time.time() * 1000)
OURS = ["reason", "error", "topic", "partition", "offset", "attempts", "time", "group", "version", "timestamp"]


def good(number, **more):
    return {"eventId": f"good {number}", "n": number, **more}


def produce_raw(stack, topic, records, partition=0, **settings):
    """records: (key, value, headers, timestamp in ms)."""
    failed = []
    producer = Producer({"bootstrap.servers": stack.brokers, "linger.ms": 5, **settings})
    producer.list_topics(topic, timeout=60)
    for key, value, headers, timestamp in records:
        producer.produce(topic, value, key, partition=partition, headers=headers, timestamp=timestamp,
                         on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0 and not failed, failed


def ours(message):
    """{name without the prefix: value} of idemsink's own headers; fails when one is there twice."""
    pairs = [(name[len("idemsink."):], value) for name, value in message.headers() or [] if name.startswith("idemsink.")]
    assert len(dict(pairs)) == len(pairs), pairs
    return {name: value.decode() for name, value in pairs}


def theirs(message):
    return [pair for pair in message.headers() or [] if not pair[0].startswith("idemsink.")]


def dead_by_offset(stack, setup):
    """{(topic, partition, offset): message} of the dead letters; fails when one is there twice."""
    found = {}
    for message in stack.read_topic(setup.dead_letter_topic):
        about = ours(message)
        place = (about["topic"], int(about["partition"]), int(about["offset"]))
        assert place not in found
        found[place] = message
    return found


# --- what a dead letter is ---

RECORDS = [
    (None, b"{", None, NOW_MS - 1),
    (b"", b"{", [], NOW_MS - 2),
    (b"k", None, None, NOW_MS - 3),
    (b"k", b"", None, NOW_MS - 4),
    (None, None, [("a", None)], NOW_MS - 5),
    (b"\x00\xff\xfe", b"\xff\x00{binary", [("bin", bytes(range(256))), ("null", None), ("empty", b""), ("text", b"x")], 1),
    (b"twice", b"[]", [("h", b"1"), ("h", b"2"), ("", b"no name"), ("h", None), ("h", b"1")], 1_000_000_000_000),
    (b"replayed", b"7", [("before", b"b"), ("idemsink.reason", b"old"), ("idemsink.reason", b"older"), ("idemsink.value", b"dropped"),
                         ("idemsink.something", b"else"), ("after", b"a"), ("Idemsink.reason", b"somebody else's")], NOW_MS),
    ("ключ".encode(), '{"eventId": "ü'.encode(), [("заголовок", "ö".encode())], NOW_MS),
    (b"k" * 20_000, b"[" * 200_000, [(f"h{i}", b"v" * 500) for i in range(100)], NOW_MS),
]


@pytest.fixture(scope="module")
def faithful(stack, tmp_path_factory):
    """RECORDS as dead letters: (setup, source topic, {offset: message})."""
    topic = stack.topic(1)
    setup = Setup(stack, tmp_path_factory.mktemp("dead"), topic)
    setup.routes[0]["tombstone"] = "dead_letter"
    produce_raw(stack, topic, RECORDS)
    setup.run_until_end()
    yield setup, topic, {place[2]: message for place, message in dead_by_offset(stack, setup).items()}
    setup.close()


@pytest.mark.parametrize("offset", range(len(RECORDS)))
def test_byte_for_byte(faithful, offset):
    key, value, headers, timestamp = RECORDS[offset]
    message = faithful[2][offset]
    assert message.key() == key and message.value() == value  # None and b"" are different things
    assert theirs(message) == [pair for pair in headers or [] if not pair[0].startswith("idemsink.")]
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, timestamp)


def test_headers_of_ours(faithful):
    setup, topic, dead = faithful
    reasons = ["json_syntax", "json_syntax", "tombstone", "empty_value", "tombstone", "invalid_utf8", "not_an_object", "not_an_object",
               "json_syntax", "too_deep"]
    assert [ours(dead[i])["reason"] for i in range(len(RECORDS))] == reasons
    version = setup.processes[0].saw("started")[0]["version"]
    for offset, message in dead.items():
        about = ours(message)
        assert list(about) == OURS
        assert (about["topic"], about["partition"], about["offset"]) == (topic, "0", str(offset))
        assert about["timestamp"] == str(RECORDS[offset][3])
        assert (about["attempts"], about["group"], about["version"]) == ("0", setup.group, version)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", about["time"])
        assert about["error"] and "ключ" not in about["error"] and "binary" not in about["error"]


# --- every reason ---

TYPES = {"at": "date", "price": "decimal", "uid": "uuid", "raw": "binary", "oid": "objectid", "long": "long", "double": "double"}
REASONS = [
    ("json_syntax", b'{"eventId": "a",}'), ("json_syntax", b'\xef\xbb\xbf{"eventId": "bom"}'), ("json_syntax", b'{"eventId": NaN}'),
    ("json_syntax", rb'{"eventId": "\ud800"}'), ("json_syntax", b" "), ("json_syntax", b"{'eventId': 1}"),
    ("not_an_object", b"[1]"), ("not_an_object", b'"text"'), ("not_an_object", b"null"), ("not_an_object", b"12"),
    ("invalid_utf8", b'{"eventId": "\xff"}'), ("invalid_utf8", b'{"eventId": "\xed\xa0\x80"}'), ("invalid_utf8", b'{"eventId": "\xc0\x80"}'),
    ("duplicate_name", b'{"eventId": "a", "x": {"y": 1, "\\u0079": 2}}'),
    ("number_range", b'{"eventId": "a", "x": 9223372036854775808}'), ("number_range", b'{"eventId": "a", "x": -1e999}'),
    ("schema_registry_framing", b'\x00\x00\x00\x00\x07{"eventId": "a"}'),
    ("compressed", gzip.compress(b'{"eventId": "a"}')), ("compressed", b"\x28\xb5\x2f\xfd rest of a zstd frame"),
    ("empty_value", b""), ("tombstone", None),
    ("dedup_missing", b"{}"), ("dedup_null", b'{"eventId": null}'), ("dedup_empty", b'{"eventId": ""}'),
    ("dedup_not_scalar", b'{"eventId": {}}'), ("dedup_not_scalar", b'{"eventId": ["a"]}'), ("dedup_not_scalar", b'{"eventId": 1.5}'),
    ("dedup_not_scalar", b'{"eventId": 9007199254740993.0}'),
    ("type_conversion", b'{"eventId": "t1", "at": "yesterday"}'), ("type_conversion", b'{"eventId": "t2", "at": "2026-02-30T00:00:00Z"}'),
    ("type_conversion", b'{"eventId": "t3", "price": "1.2.3"}'), ("type_conversion", b'{"eventId": "t4", "uid": "no"}'),
    ("type_conversion", b'{"eventId": "t5", "raw": "%%"}'), ("type_conversion", b'{"eventId": "t6", "oid": "zz"}'),
    ("type_conversion", b'{"eventId": "t7", "long": 1.5}'), ("type_conversion", b'{"eventId": "t8", "double": true}'),
    ("unsafe_name", b'{"eventId": "u1", "a\\u0000b": 1}'), ("unsafe_name", b'{"eventId": "u2", "_id": [1]}'),
    ("unsafe_name", b'{"eventId": "u3", "_id": {"$a": 1}}'), ("unsafe_name", b'{"eventId": "u4", "origin": "taken by set"}'),
    ("too_deep", b'{"eventId": "d", "x": ' + b"[" * 100 + b"]" * 100 + b"}"),
    ("too_large", b'{"eventId": "l", "x": "' + b"x" * 16_777_216 + b'"}'),
    ("unique_conflict", b'{"eventId": "c1", "email": "good 0"}'), ("unique_conflict", b'{"eventId": "c2", "_id": "good 0"}'),
    ("validation", b'{"eventId": "v", "valid": false}'),
    ("rejected", b'{"eventId": "r1", "p": [1, 2], "q": [1, 2]}'), ("rejected", b'{"eventId": "r2", "place": {"type": "nowhere"}}'),
]


def test_every_reason_with_neighbours(stack, make):
    topic = stack.topic(1, max_message_bytes=20_000_000)
    setup = make(topic)
    setup.routes[0].update(types=TYPES, tombstone="dead_letter", set={"origin": "here"})
    setup.collection.database.create_collection(setup.collection.name, validator={"valid": {"$ne": False}})
    setup.collection.create_index("eventId", unique=True)
    setup.collection.create_index("email", unique=True, sparse=True)
    setup.collection.create_index([("p", 1), ("q", 1)])
    setup.collection.create_index([("place", "2dsphere")])
    records = [({**good(0), "email": "good 0", "_id": "good 0"}, "k")]
    for number, (_, value) in enumerate(REASONS):
        records += [(value, "k"), (good(number + 1), "k")]
    stack.produce(topic, records, **{"message.max.bytes": 20_000_000})
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    assert {d["n"] for d in setup.collection.find()} == set(range(len(REASONS) + 1))
    found = {place[2]: message for place, message in dead_by_offset(stack, setup).items()}
    assert [ours(found[2 * i + 1])["reason"] for i in range(len(REASONS))] == [reason for reason, _ in REASONS]
    for i, (reason, value) in enumerate(REASONS):
        about = ours(found[2 * i + 1])
        if reason == "too_large":
            assert found[2 * i + 1].value() is None and about["value"] == f"dropped: too large, {len(value)} bytes"
        else:
            assert found[2 * i + 1].value() == value and "value" not in about
    for reason in {reason for reason, _ in REASONS}:
        count = sum(reason == other for other, _ in REASONS)
        assert worker.metric("idemsink_dead_letters_total", reason=reason) == count
    assert worker.terminate() == 0
    assert setup.verify()["status"] == 0
    errors = {value: ours(found[2 * i + 1])["error"] for i, (_, value) in enumerate(REASONS)}
    assert "email" in errors[b'{"eventId": "c1", "email": "good 0"}'] and "_id" in errors[b'{"eventId": "c2", "_id": "good 0"}']
    assert "171" in errors[b'{"eventId": "r1", "p": [1, 2], "q": [1, 2]}']
    log = worker.log_path.read_text()  # MongoDB's answers quote the payload; the dead letter has them, the log must not
    assert "good 0" not in log and "nowhere" not in log


# --- without a topic ---


def test_stops_at_the_first_bad_record_and_goes_on_when_a_topic_is_configured(stack, make):
    topic = stack.topic(1)
    setup = make(topic, dead_letters=False)
    stack.produce(topic, [(good(i), "k") for i in range(5)] + [(b"{secret payload", "k")] + [(good(i), "k") for i in range(5, 10)])
    for _ in range(2):  # starting it again changes nothing
        worker = setup.start()
        assert worker.wait(30) == 78
        text = worker.log_tail()
        assert "json_syntax" in text and f"{topic} partition 0 offset 5" in text
        assert "dead_letter.topic" in text and "on_bad_record" in text and "secret payload" not in text
        assert stack.committed(setup.group, topic).get(0, 0) <= 5
        assert setup.collection.count_documents({"n": {"$lt": 5}}) == 5
    setup.sections["dead_letter"]["topic"] = setup.dead_letter_topic = stack.topic(1)
    setup.run_until_end()
    assert setup.settled() and setup.collection.count_documents({}) == 10
    assert list(dead_by_offset(stack, setup)) == [(topic, 0, 5)]


def test_skips_when_the_operator_says_so(stack, make):
    topic = stack.topic(1)
    setup = make(topic, dead_letters=False)
    setup.sections["dead_letter"] = {"on_bad_record": "skip"}
    stack.produce(topic, [(good(1), "k"), (b"{", "k"), (b"[]", "k"), (good(2), "k")])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    assert worker.metric("idemsink_records_total", outcome="skipped") == 2
    assert worker.metric("idemsink_dead_letters_total", reason="json_syntax") == 1
    assert worker.terminate() == 0
    assert setup.collection.count_documents({}) == 2
    assert len(worker.saw("bad record skipped")) > 0
    assert setup.verify()["status"] == 0  # dropped by a rule that the operator wrote


# --- a topic that does not take them ---


def missing(stack, setup):
    setup.sections["dead_letter"]["topic"] = setup.dead_letter_topic = f"missing-{uuid.uuid4().hex[:12]}"


def make_topic(stack, setup):
    stack.topic(1, name=setup.dead_letter_topic)


def refusing(stack, setup):  # too small for our headers alone
    change(stack, setup.dead_letter_topic, "max.message.bytes", "100")


def accepting(stack, setup):
    change(stack, setup.dead_letter_topic, "max.message.bytes", "1000000")


def forbidding(stack, setup):
    deny = AclBinding(ResourceType.TOPIC, setup.dead_letter_topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE,
                      AclPermissionType.DENY)
    for future in stack.admin.create_acls([deny]).values():
        future.result(30)


def allowing(stack, setup):
    everything = AclBindingFilter(ResourceType.TOPIC, setup.dead_letter_topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY,
                                  AclPermissionType.ANY)
    for future in stack.admin.delete_acls([everything]).values():
        future.result(30)


def change(stack, topic, name, value):
    resource = ConfigResource(ResourceType.TOPIC, topic,
                              incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)])
    for future in stack.admin.incremental_alter_configs([resource]).values():
        future.result(30)


def delete(stack, topic):
    for future in stack.admin.delete_topics([topic]).values():
        future.result(30)
    wait_until(lambda: topic not in stack.admin.list_topics(timeout=60).topics, 20, "the topic gone")


@pytest.mark.parametrize("breaking,repairing,why", [
    (missing, make_topic, "idemsink init"), (refusing, accepting, "max.message.bytes"),
    (forbidding, allowing, "grant write"),
], ids=["missing", "refusing", "forbidding"])
def test_topic_that_takes_nothing_holds_only_its_own(stack, make, breaking, repairing, why):
    """Partition 0 has a bad record in lane "bad", partition 1 has none."""
    topic = stack.topic(2)
    setup = make(topic)
    setup.sections["retry"] = {"first": "50ms", "max": "500ms"}
    breaking(stack, setup)
    produce = [(good(0), b"bad", 0), (b"{", b"bad", 0), (good(1), b"bad", 0), (good(2), b"other", 0), (b"[", b"bad", 0), (good(3), b"p1", 1)]
    for value, key, partition in produce:
        stack.produce(topic, [(value, key, None, partition)])
    worker = setup.start()
    retries = wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "dead_letter"}), 20, "a retry")
    wait_until(lambda: worker.get("/readyz")[1].startswith("dead letters are not acknowledged"), 20, "/readyz red")
    stack.produce(topic, [(good(4), b"other", None, 0), (good(5), b"p1", None, 1)])
    numbers = {0, 2, 3, 4, 5}  # what stands behind the bad record in its own lane may have to wait
    wait_until(lambda: {d["n"] for d in setup.collection.find()} >= numbers, 20, "the neighbours")
    wait_until(lambda: stack.committed(setup.group, topic).get(1) == 2, 20, "the commits of the other partition")
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "dead_letter"}) > retries, 20, "another try")
    assert stack.committed(setup.group, topic).get(0, 0) <= 1
    assert worker.metric("idemsink_dead_letters_total") == 0
    assert worker.metric("idemsink_oldest_pending_age_seconds", topic=topic, partition=0) > 0
    waiting = {p: worker.metric("idemsink_dead_letters_waiting", topic=topic, partition=p) for p in (0, 1)}
    assert waiting[0] in (1, 2) and waiting[1] == 0  # one after another when both are of one lane
    said = worker.wait_saw("dead letter not acknowledged")
    assert len(said) == 1 and said[0]["dead_letter_topic"] == setup.dead_letter_topic and why in said[0]["error"], said
    repairing(stack, setup)
    setup.wait_settled(40)
    worker.wait_ready()
    assert worker.metric("idemsink_dead_letters_waiting") == 0
    assert len(worker.wait_saw("dead letters are acknowledged again")) == 1 and len(worker.saw("dead letter not acknowledged")) == 1
    assert worker.terminate() == 0
    assert {d["n"] for d in setup.collection.find()} == set(range(6))
    assert set(dead_by_offset(stack, setup)) == {(topic, 0, 1), (topic, 0, 4)}
    assert worker.books()["dead_letter"] == 2
    assert setup.verify()["status"] == 0


def test_topic_deleted_while_running(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.sections["retry"] = {"first": "50ms", "max": "500ms"}
    stack.produce(topic, [(b"{", "a"), (good(0), "a")])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    delete(stack, setup.dead_letter_topic)
    stack.produce(topic, [(b"{", "b"), (good(1), "c")])
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "dead_letter"}) > 0, 40, "a retry")
    wait_until(lambda: setup.collection.count_documents({"n": 1}) == 1, 20, "the neighbour")
    assert stack.committed(setup.group, topic) == {0: 2}
    make_topic(stack, setup)
    setup.wait_settled(60)
    assert worker.terminate() == 0
    assert list(dead_by_offset(stack, setup)) == [(topic, 0, 2)]


def test_stopped_while_the_topic_takes_nothing(stack, make):
    """SIGTERM meanwhile: nothing is committed past the record, and the next process finds it."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.sections["worker"]["drain_timeout"] = "1s"
    setup.sections["retry"] = {"first": "50ms", "max": "500ms"}
    refusing(stack, setup)
    stack.produce(topic, [(good(0), "a"), (b"{", "a"), (good(1), "b")])
    worker = setup.start()
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "dead_letter"}) > 0, 20, "a retry")
    assert worker.terminate() in (0, 75)
    assert stack.committed(setup.group, topic).get(0, 0) <= 1
    accepting(stack, setup)
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 2
    assert list(dead_by_offset(stack, setup)) == [(topic, 0, 1)]


# --- what the topic refuses for its size or its time ---


def test_too_large_for_the_topic(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    change(stack, setup.dead_letter_topic, "max.message.bytes", "2000")
    small, headers = b"{" + b"s" * 100, [("h", b"v")]
    records = [(b"small", small, headers, NOW_MS), (b"value", b"{" + b"x" * 5000, headers, NOW_MS),
               (b"headers", b"{" + b"x" * 5000, [("h", b"v" * 5000), ("i", None)], NOW_MS), (b"k" * 5000, b"{", headers, NOW_MS),
               (b"small", small, headers, NOW_MS)]
    produce_raw(stack, topic, records)
    stack.produce(topic, [good(1)])
    worker = setup.run_until_end()
    dead = {place[2]: message for place, message in dead_by_offset(stack, setup).items()}
    assert sorted(dead) == [0, 1, 2, 3, 4] and setup.collection.count_documents({}) == 1
    for i in (0, 4):  # in one batch with those that were refused
        assert (dead[i].key(), dead[i].value(), theirs(dead[i])) == (b"small", small, headers)
    assert (dead[1].key(), dead[1].value(), theirs(dead[1])) == (b"value", None, headers)
    assert ours(dead[1])["value"] == "dropped: too large, 5001 bytes"
    for i in (2, 3):
        assert (dead[i].key(), dead[i].value(), theirs(dead[i])) == (None, None, [])
    assert ours(dead[2])["headers"] == "dropped: too large, 5002 bytes"
    assert ours(dead[3])["key"] == "dropped: too large, 5000 bytes"
    assert all(list(ours(message))[:10] == OURS for message in dead.values())
    assert len(worker.saw("dead letter sent incomplete")) == 3
    assert setup.verify()["status"] == 0


def test_time_that_the_topic_refuses(stack, make):
    future = NOW_MS + 10 * 24 * 3600 * 1000
    topic = stack.topic(1, message_timestamp_after_max_ms=2**62)
    setup = make(topic)
    produce_raw(stack, topic, [(b"k", b"{", [("h", b"v")], future), (b"k", b"[]", None, NOW_MS)])
    setup.run_until_end()
    dead = {place[2]: message for place, message in dead_by_offset(stack, setup).items()}
    assert (dead[0].key(), dead[0].value(), theirs(dead[0])) == (b"k", b"{", [("h", b"v")])
    assert ours(dead[0])["timestamp"] == str(future) and abs(dead[0].timestamp()[1] - NOW_MS) < 3600 * 1000
    assert dead[1].timestamp()[1] == NOW_MS and ours(dead[1])["timestamp"] == str(NOW_MS)


def test_compacted_topic_holds_what_has_no_key(stack, make):
    """Such a topic refuses records without a key, and with them whatever is in their batch."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.sections["retry"] = {"first": "50ms", "max": "500ms"}
    change(stack, setup.dead_letter_topic, "cleanup.policy", "compact")
    records = [(good(0), "k"), (b"{1", "k"), (b"{2", None), (b"{3", "k"), (good(1), None), (b"{4", "l"), (good(2), "k")]
    stack.produce(topic, records)
    worker = setup.start()
    worker.wait_ready()
    wait_until(lambda: worker.metric("idemsink_dead_letters_total") == 3, 20, "the dead letters with a key")
    wait_until(lambda: setup.collection.count_documents({}) == 3, 20, "the documents")
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "dead_letter"}) > 1, 20, "retries")
    wait_until(lambda: stack.committed(setup.group, topic) == {0: 2}, 20, "the commit up to it")
    assert worker.wait_saw("dead letter not acknowledged")[0]["offset"] == 2
    change(stack, setup.dead_letter_topic, "cleanup.policy", "delete")
    setup.wait_settled()
    assert worker.terminate() == 0
    assert sorted(place[2] for place in dead_by_offset(stack, setup)) == [1, 2, 3, 5]


def test_many_at_once(stack, make):
    """2000 bad ones among 4000, four partitions, two processes. All are there; a rebalance may bring some twice, and no other."""
    topic = stack.topic(4)
    setup = make(topic)
    stack.produce(topic, [((good(i) if i % 2 else b"{%d" % i), f"k{i % 50}") for i in range(4000)])
    workers = [setup.start(), setup.start()]
    for worker in workers:
        worker.wait_ready()
    setup.wait_settled()
    assert [worker.terminate() for worker in workers] == [0, 0]
    dead = stack.read_topic(setup.dead_letter_topic)
    assert {int(message.value()[1:]) for message in dead} == set(range(0, 4000, 2))
    assert len(dead) == sum(worker.books()["dead_letter"] for worker in workers)
    assert setup.collection.count_documents({}) == 2000
    books = setup.verify()
    assert (books["status"], books["bad"], books["dead_letters"], books["dead_missing"]) == (0, 2000, len(dead), 0)


# --- never read as input ---


@pytest.mark.parametrize("topics", [["^.*"], ["^orders"], ["^orders\\.dead$"], ["orders.dead"], ["other"], ["^other", "^ord"], ["orders", "^o.*d$"],
                                    ["orders", "orders.dead"]], ids=" ".join)
def test_a_route_that_takes_the_dead_letter_topic_is_refused(tmp_path, topics):
    """By `check` and by `run`, whatever topic.blacklist hides from librdkafka; nobody is asked."""
    file = tmp_path / "c.toml"
    routes = "".join(f'[[route]]\ntopics = [{json.dumps(topic)}]\ncollection = "a.c{i}"\n[route.dedup]\nkey = ["id"]\n' for i, topic in enumerate(topics))
    file.write_text('[kafka]\nbrokers = "127.0.0.1:1"\ngroup = "g"\n[kafka.properties]\n"topic.blacklist" = "^orders[.]dead$"\n'
                    '[mongo]\nuri = "mongodb://127.0.0.1:1/"\n[dead_letter]\ntopic = "orders.dead"\n' + routes)
    for command in ("check", "run"):
        if topics == ["other"] and command == "run":
            continue
        done = subprocess.run([BINARY, command, "-c", file], capture_output=True, text=True, timeout=60)
        assert done.returncode == (0 if topics == ["other"] else 78), done.stderr
        assert topics == ["other"] or "takes the dead-letter topic" in done.stderr and len(done.stderr.splitlines()) == 1
