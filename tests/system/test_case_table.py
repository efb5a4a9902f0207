"""The table of cases against the real services: each row's record is stored to the letter, a duplicate, skipped, or a dead letter with
its reason and all its bytes; and the good ones before and behind it, in its lane and batch, are stored."""
import collections
import json
import re
import subprocess

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument
from bson.codec_options import CodecOptions
from case_table import SETTLED, TIMESTAMP_MS, WRITES, elements, frozen, load
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from harness import BINARY, ROOT, Setup, wait_until

SOURCE = ROOT / "src" / "core" / "reason.c"
GROUPS = load()
ROWS = [row for group in GROUPS for row in group.rows]
OUTCOMES = ("inserted", "duplicate", "skipped")
RAW = CodecOptions(document_class=RawBSONDocument)
TOPIC_TAKES = 1_000_000  # the dead-letter topic; larger ones come without their value


class Ran:
    """All groups in one process."""

    def __init__(self, stack, directory):
        self.stack = stack
        self.setup = Setup(stack, directory, [], collection=stack.collection())
        self.topics, self.collections = {}, {}
        for number, group in enumerate(GROUPS):
            self.collections[group] = stack.collection()
            self.topics[group] = f"{self.collections[group].name}-{number}"
        self._make_topics()
        self.setup.topics = list(self.topics.values())
        self.setup.routes = [self._route(group) for group in GROUPS]
        self.setup.sections["worker"].update(linger="100ms", threads=2)
        self._produce()
        for group in GROUPS:
            group.prepare(self.collections[group])
        self.worker = self.setup.run_until_end(90)
        self.dead = collections.defaultdict(list)
        for message in stack.read_topic(self.setup.dead_letter_topic):
            headers = dict(message.headers())
            self.dead[headers["idemsink.topic"].decode(), int(headers["idemsink.offset"])].append(message)
        self.stored = {group: self._read(group) for group in GROUPS}

    def _make_topics(self):
        made = self.stack.admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "20000000"}) for name in self.topics.values()])
        for future in made.values():
            future.result(30)
        wait_until(lambda: set(self.topics.values()) <= set(self.stack.admin.list_topics(timeout=60).topics), 20, "the topics")

    def _route(self, group):
        route = group.table["route"]
        written = Setup.route([self.topics[group]], self.collections[group], route["dedup"]["key"])
        written.update({key: value for key, value in route.items() if key != "dedup"})
        written["dedup"] = route["dedup"]
        written = json.loads(json.dumps(written).replace("@COLLECTION@", written["collection"]))
        if group.write:
            written["write"] = group.write
        return written

    def _produce(self):
        failed = []
        producer = Producer({"bootstrap.servers": self.stack.brokers, "message.max.bytes": 20_000_000, "linger.ms": 5,
                             "enable.idempotence": True})
        for group in GROUPS:
            for record in group.records():
                producer.produce(self.topics[group], record.value, record.key, headers=record.headers, timestamp=TIMESTAMP_MS, partition=0,
                                 on_delivery=lambda error, _: failed.append(error) if error else None)
                producer.poll(0)
        assert producer.flush(60) == 0 and not failed, failed

    def _read(self, group):
        """The documents, each as a tuple of its fields' bytes, counted; the _id that the server makes is left out."""
        found = collections.Counter()
        wanted = {frozen(self.document(group, record)) for record in group.records() if record.outcome == "inserted"}
        raw = self.collections[group].with_options(codec_options=RAW)
        for document in raw.find():
            fields = elements(document.raw)
            if group.hashed:
                assert len(fields.pop(b"_payload_hash")) == len(b"\x05_payload_hash\0") + 5 + 16
            if frozen(fields) not in wanted and fields[b"_id"][:1] == b"\x07":
                del fields[b"_id"]
            found[frozen(fields)] += 1
        return found

    def document(self, group, record):
        return record.document(self.topics[group], group.format)


@pytest.fixture(scope="module")
def ran(stack, tmp_path_factory):
    ran = Ran(stack, tmp_path_factory.mktemp("table"))
    yield ran
    ran.setup.close()


def check(ran, group, record):
    topic = ran.topics[group]
    dead = ran.dead.get((topic, record.offset), [])
    if record.outcome in SETTLED:
        assert not dead, dict(dead[0].headers())
        if record.outcome == "inserted":
            fields = ran.document(group, record)
            assert ran.stored[group][frozen(fields)] == 1, f"{sorted(fields.values())}\nis not in\n{ran.stored[group]}"
        return
    assert len(dead) == 1, "no dead letter, or more than one"
    headers = dict(dead[0].headers())
    assert headers["idemsink.reason"].decode() == record.outcome, headers
    assert record.error in headers["idemsink.error"].decode(), headers
    too_large = record.value is not None and len(record.value) > TOPIC_TAKES
    assert (dead[0].key(), dead[0].timestamp()[1]) == (record.key, TIMESTAMP_MS)
    assert dead[0].value() == (None if too_large else record.value)
    assert ("idemsink.value" in headers) == too_large
    theirs = [(name, value) for name, value in dead[0].headers() if not name.startswith("idemsink.")]
    assert theirs == [(name, value) for name, value in record.headers if not name.startswith("idemsink.")]
    assert len(dead[0].headers()) - len(theirs) == (11 if too_large else 10)


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_row(ran, row):
    for record in row.records:
        check(ran, row.group, record)


@pytest.mark.parametrize("group", GROUPS, ids=[f"{group.name} {group.write}" for group in GROUPS])
def test_nothing_else_is_there(ran, group):
    """Nothing was stored that no row asked for, and the books of the topic say the same."""
    records = group.records()
    wanted = collections.Counter(frozen(ran.document(group, record)) for record in records if record.outcome == "inserted")
    made_before = len(group.table.get("before", []))
    assert sum(ran.stored[group].values()) - made_before == sum(wanted.values())
    collection = ran.collections[group]
    counters = {frozenset(elements(d.raw).values()) for d in collection.database.get_collection(f"{collection.name}_moved", RAW).find()}
    assert counters == {frozenset(elements(encode(document)).values()) for document in group.moved()}
    books = [line for line in ran.worker.saw("books of a partition") if line["topic"] == ran.topics[group]][0]
    outcomes = collections.Counter(r.outcome if r.outcome in OUTCOMES else "dead_letter" for r in records)
    assert {o: books[o] for o in (*OUTCOMES, "dead_letter")} == {o: outcomes[o] for o in (*OUTCOMES, "dead_letter")}
    assert books["consumed"] == len(records)


def test_the_books_balance(ran):
    """But for what others stored under a dedup key: verify calls that different from what was sent, as it is."""
    books = ran.setup.verify("--dead-letters")
    wanted = {"missing": 0, "different": sum("before" in group.table for group in GROUPS), "doubled": 0, "extra": 0, "dead_missing": 0}
    assert {name: books[name] for name in wanted} == wanted
    assert books["records"] + books["bad"] + books["skipped"] == sum(len(group.records()) for group in GROUPS)


BY_MONGODB = {"unique_conflict", "conflict", "validation", "rejected"}


def test_explain_says_the_same(ran):
    """The same reason, or a document, for one record of each format and outcome that can be told without asking MongoDB."""
    chosen = {}
    for row in ROWS:
        record = row.one
        if record.outcome in BY_MONGODB | {"skipped"} or row.group.write not in ("", WRITES[0]) or record.headers or not (record.key or b"x").isascii():
            continue
        if b"\0" not in (record.key or b""):
            chosen.setdefault((row.group.format, record.outcome), row)
    config, wrong = ran.setup.file(), []
    for row in chosen.values():
        record = row.one
        words = [BINARY, "explain", "-c", config, "--topic", ran.topics[row.group]]
        words += [] if record.key is None else ["--key", record.key.decode()]
        words += ["--null"] if record.value is None else []
        done = subprocess.run(words, input=record.value, capture_output=True, timeout=60)
        text = done.stdout.decode(errors="replace")
        if (done.returncode == 0) != (record.outcome in SETTLED) or (record.outcome not in SETTLED and record.outcome not in text):
            wrong.append((row.id, done.returncode, text, done.stderr))
    assert not wrong and len(chosen) > 25


def test_the_table_is_large_enough():
    """At least 150 rows, told apart by their names, and every reason that a record can have."""
    distinct = {(row.group.name, row.case) for row in ROWS}
    assert len(distinct) >= 500 and len(ROWS) == len({row.id for row in ROWS})
    reasons = set(re.findall(r'"([a-z0-9_]+)"', "".join(re.findall(r"\[REASON_[A-Z0-9_]+\] =\s*\{\s*\"[a-z0-9_]+\"", SOURCE.read_text())))) - {"none"}
    assert len(reasons) > 20
    assert reasons - {record.outcome for row in ROWS for record in row.records} == set()
