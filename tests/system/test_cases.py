"""The inputs of tests/data/cases through the whole program: each line stored exactly as it was sent, counted as a duplicate, or a
dead letter with its reason. Every line travels between two good neighbours, which have to be stored."""
import json

import bson
import pytest
from harness import DATA, Record, Setup, as_stored, raw

INSERTED, DUPLICATE = "inserted", "duplicate"

# What becomes of each line, by file.
CASES = {
    "H-002-missing-id.kv": ["dedup_missing"] * 2 + ["dedup_null"] * 2 + ["dedup_empty"] * 2,
    "H-003-numeric-ids.kv": [INSERTED, DUPLICATE, DUPLICATE, INSERTED, INSERTED, INSERTED],
    "H-004-non-scalar-ids.kv": [INSERTED] + ["dedup_not_scalar"] * 6 + [INSERTED],
    "H-005-dotted-names.kv": [INSERTED] * 10,
    "H-006-path-shadow.kv": [INSERTED, INSERTED, INSERTED, "unique_conflict", "unsafe_name"],
    "H-012-nul-in-id.kv": [INSERTED] * 4,
    "H-014-big-integers.kv": [INSERTED] * 2 + ["number_range"] * 5 + [INSERTED],
    "H-015-two-documents.kv": ["json_syntax"] * 4 + [INSERTED],
    "H-016-extended-json.kv": [INSERTED] * 8 + ["dedup_not_scalar"],
    "H-020-concat-ids.kv": [INSERTED] * 4 + [DUPLICATE],
}


def dedup_of(name):
    return ("tenant", "id") if name.startswith("H-020") else ("event_id",)


def lines_of(name):
    """(key, value) of each line."""
    return [tuple(line.split(b":", 1)) for line in (DATA / "cases" / name).read_bytes().splitlines()]


def neighbour(name, place):
    return {**{field: f"neighbour {place}" for field in dedup_of(name)}, "good": place}


def between_neighbours(name):
    """The lines with a good record before each and one behind the last, all with the key of their line: one lane, one batch."""
    lines = lines_of(name)
    records = []
    for i, (key, value) in enumerate(lines):
        records += [(neighbour(name, i), key), (value, key)]
    return records + [(neighbour(name, len(lines)), lines[-1][0])]


def stored(collection):
    """The documents without the _id that the server made."""
    found = []
    for document in collection.find():
        if isinstance(document.get("_id"), bson.ObjectId):
            del document["_id"]
        found.append(document)
    return found


class Ran:
    """All cases in one process: a topic, a route and a collection each."""

    def __init__(self, stack, directory):
        self.names = sorted(CASES)
        self.topics = {name: stack.topic(1) for name in self.names}
        self.collections = {name: stack.collection() for name in self.names}
        self.setup = Setup(stack, directory, list(self.topics.values()))
        self.setup.routes = [Setup.route([self.topics[n]], self.collections[n], dedup_of(n)) for n in self.names]
        for name in self.names:
            stack.produce(self.topics[name], between_neighbours(name))
        self.worker = self.setup.run_until_end()
        self.dead = stack.read_topic(self.setup.dead_letter_topic)

    def dead_of(self, name):
        """{offset in the topic of the case: message}."""
        found = {}
        for message in self.dead:
            headers = dict(message.headers())
            if headers["idemsink.topic"].decode() == self.topics[name]:
                assert int(headers["idemsink.offset"]) not in found
                found[int(headers["idemsink.offset"])] = message
        return found


@pytest.fixture(scope="module")
def ran(stack, tmp_path_factory):
    ran = Ran(stack, tmp_path_factory.mktemp("cases"))
    yield ran
    ran.setup.close()


def test_every_case_file_has_its_outcomes():
    assert {path.name for path in (DATA / "cases").glob("*.kv")} == set(CASES)
    assert all(len(lines_of(name)) == len(CASES[name]) for name in CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(ran, name):
    dead = ran.dead_of(name)
    lines, outcomes = lines_of(name), CASES[name]
    wanted = [neighbour(name, place) for place in range(len(lines) + 1)]
    for i, ((key, value), outcome) in enumerate(zip(lines, outcomes)):
        offset = 2 * i + 1
        if outcome == INSERTED:
            wanted.append(json.loads(value))
        elif outcome != DUPLICATE:
            message = dead.pop(offset)
            assert dict(message.headers())["idemsink.reason"].decode() == outcome, value
            assert (message.key(), message.value()) == (key, value)
    assert dead == {}
    found = stored(ran.collections[name])
    assert sorted(map(raw, found)) == sorted(raw(as_stored(document)) for document in wanted)
    books = [b for b in ran.worker.saw("books of a partition") if b["topic"] == ran.topics[name]][0]
    bad = len(outcomes) - outcomes.count(INSERTED) - outcomes.count(DUPLICATE)
    assert (books["consumed"], books["inserted"], books["duplicate"], books["dead_letter"]) == (
        2 * len(lines) + 1, len(wanted), outcomes.count(DUPLICATE), bad)


def test_the_books_of_all_cases_balance(ran):
    books = ran.setup.verify()
    assert books["status"] == 0 and books["missing"] == books["different"] == books["extra"] == books["dead_missing"] == 0


def test_all_cases_in_one_topic_and_one_batch(stack, make, ran):
    """The same lines mixed in one lane; what can't be stored of one case must not cost a line of another one."""
    names = [name for name in sorted(CASES) if dedup_of(name) == ("event_id",)]
    topic = stack.topic(1)
    setup = make(topic, dedup=("event_id",))
    setup.routes[0]["exclude"] = ["_id"]  # of H-006
    wanted, bad, records = [], 0, []
    for name in names:
        for (_, value), outcome in zip(lines_of(name), CASES[name]):
            records.append((value, "one lane"))
            if outcome == INSERTED or name.startswith("H-006"):
                wanted.append(json.loads(value))
                wanted[-1].pop("_id", None)
            elif outcome != DUPLICATE:
                bad += 1
    first = {}  # of one dedup key the first in the topic
    for document in wanted:
        key = document["event_id"]
        first.setdefault((type(key), key), document)
    stack.produce(topic, records)
    worker = setup.run_until_end()
    assert sorted(map(raw, stored(setup.collection))) == sorted(raw(as_stored(d)) for d in first.values())
    books = worker.books()
    assert (books["inserted"], books["dead_letter"]) == (len(first), bad)
    assert setup.verify()["status"] == 0


def nested(levels, event):
    """An object whose deepest object lies on this level; it is on level 1 itself."""
    inner = {}
    for _ in range(levels - 2):
        inner = {"a": inner}
    return {"eventId": event, "a": inner}


def good(number):
    return {"eventId": f"good {number}", "n": number}


def test_h009_members_that_one_command_can_not_hold(stack, make):
    """The upsert of items 2 and 4 would be refused (the first by the driver already); both are stored as they were sent."""
    records = [good(1), {"eventId": "e2", "sub": {"": 1}}, good(3), {"eventId": "e4", "a": {}, "a.b": 1}, good(5)]
    topic = stack.topic(1)
    setup = make(topic)
    stack.produce(topic, [(record, "k") for record in records])
    worker = setup.run_until_end()
    assert sorted(map(raw, stored(setup.collection))) == sorted(raw(as_stored(r)) for r in records)
    assert worker.books()["dead_letter"] == 0


def of_bytes(size, event):
    """A document that has this many bytes as BSON together with its filter {eventId: event}."""
    frame = len(bson.encode({"eventId": event, "big": ""})) + len(bson.encode({"eventId": event}))
    return {"eventId": event, "big": "x" * (size - frame)}


LIMIT = 16 * 1024 * 1024 - 1024


def test_h010_too_large_and_too_deep(stack, make):
    """The driver and the server refuse a whole bulk for one of these. At the limits themselves everything is stored."""
    bad = {"big": of_bytes(16_793_700, "big"), "over": of_bytes(LIMIT + 1, "over"),
           "deep": nested(199, "deep"), "deeper": nested(101, "deeper"),
           "deepest": b'{"eventId":"deepest","a":' + b'{"a":' * 5000 + b"1" + b"}" * 5001}
    fine = {"at": of_bytes(LIMIT, "at"), "hundred": nested(100, "hundred")}
    topic = stack.topic(1, max_message_bytes=20_000_000)
    setup = make(topic)
    records = []
    for number, document in enumerate([*bad.values(), *fine.values()]):
        records += [(good(number), "k"), (document, "k")]
    stack.produce(topic, records + [(good(99), "k")], **{"message.max.bytes": 20_000_000})
    setup.run_until_end()
    ids = {d["eventId"] for d in setup.collection.find({}, {"eventId": 1})}
    assert ids == {f"good {n}" for n in [*range(7), 99]} | set(fine)
    assert raw(setup.collection.find_one({"eventId": "at"}, {"_id": 0})) == raw(fine["at"])
    reasons = {}
    for message in stack.read_topic(setup.dead_letter_topic):
        headers = dict(message.headers())
        reasons[int(headers["idemsink.offset"])] = headers["idemsink.reason"].decode()
    assert reasons == {1: "too_large", 3: "too_large", 5: "too_deep", 7: "too_deep", 9: "too_deep"}


def test_errors_larger_than_one_answer(stack, make):
    """Each refusal echoes its key: 24 of 1 MB in one answer would be more than a server can send; it would close the connection."""
    topic = stack.topic(1, max_message_bytes=20_000_000)
    setup = make(topic)
    setup.collection.create_index("claim", unique=True)
    claim = "c" * 1_000_000
    records = [good(0), {"eventId": "first", "claim": claim}]
    records += [{"eventId": f"later {i}", "claim": claim} for i in range(24)] + [{"eventId": "last", "claim": "other"}]
    for number, record in enumerate(records):
        record.setdefault("claim", number)
    stack.produce(topic, [(r, "k") for r in records], **{"message.max.bytes": 20_000_000})
    worker = setup.run_until_end()
    assert {d["eventId"] for d in setup.collection.find({}, {"eventId": 1})} == {"good 0", "first", "last"}
    assert worker.books()["dead_letter"] == 24
    dead = stack.read_topic(setup.dead_letter_topic)
    assert [dict(m.headers())["idemsink.reason"] for m in dead] == [b"unique_conflict"] * 24


def test_binary_keys_order_but_do_not_harm(stack, make):
    """Kafka keys that are no text, empty or missing: lanes of their own, documents all the same."""
    topic = stack.topic(2)
    setup = make(topic)
    keys = [None, b"", b"\x00", b"\xff\xfe", b"k" * 60000]
    stack.produce(topic, [Record(good(i), keys[i % len(keys)]) for i in range(50)])
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 50
