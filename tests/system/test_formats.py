"""route.format on real services: what is stored, byte for byte; the limits of size and depth at, below and above them, with
everything that is added to a document; what a large payload costs. (Rows of single values are in test_case_table.py.)"""
import datetime
import json
import re
import struct
import subprocess
import uuid

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, json_util
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from harness import DATA, Record, Setup, wait_until

LIMIT = 16 * 1024 * 1024 - 1024
LARGE = {"message.max.bytes": 20_000_000, "compression.type": "lz4"}

EVERY_TYPE = {
    "double": 1.5, "minus": -0.0, "nan": float("nan"), "inf": float("inf"), "text": "a\0ü", "doc": {"z": 1, "a": 2}, "array": [1, [], {}],
    "bin": Binary(b"\0\xff", 0), "old": Binary(b"\1", 2), "uuid": Binary(uuid.UUID(int=7).bytes, 4), "mine": Binary(b"x", 128),
    "oid": ObjectId("507f1f77bcf86cd799439011"), "true": True, "date": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    "null": None, "regex": Regex("^a", "im"), "code": Code("f()"), "scope": Code("g()", {"x": 1}), "int": 5, "ts": Timestamp(5, 6),
    "zero": {"inside": Timestamp(0, 0)}, "long": Int64(5), "decimal": Decimal128("1.50"), "min": MinKey(), "max": MaxKey(),
}
# What PyMongo can't make any more: undefined, a symbol, a pointer, a NaN with bits of its own.
RARE = (b"\x06u\0" b"\x0es\0\2\0\0\0a\0" b"\x0cp\0\2\0\0\0c\0" + bytes(range(12)) + b"\1n\0" + struct.pack("<Q", 0xFFF8000000000123))


def with_rare(document):
    inside = bson.encode(document)[4:-1] + RARE
    return struct.pack("<i", len(inside) + 5) + inside + b"\0"


def raw_of(collection, query):
    """The stored bytes of each field by name, without the server's _id."""
    document = collection.with_options(codec_options=CodecOptions(document_class=RawBSONDocument)).find_one(query)
    return elements(document.raw) - {e for e in elements(document.raw) if e[1:5] == b"_id\0"}


FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}


def end_of(kind, raw, at):
    """Behind the value that begins there (bsonspec.org)."""
    if kind in FIXED:
        return at + FIXED[kind]
    if kind == 0x0B:  # two texts that end with zero
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1
    length = struct.unpack_from("<i", raw, at)[0]
    beside = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x0C: 16, 0x05: 5, 0x03: 0, 0x04: 0, 0x0F: 0}
    return at + length + beside[kind]


def elements(raw):
    """The fields of a BSON document as they stand there."""
    found, at = set(), 4
    while raw[at] != 0:
        end = end_of(raw[at], raw, raw.index(b"\0", at) + 1)
        found.add(bytes(raw[at:end]))
        at = end
    return found


def test_every_type_is_stored_as_it_was_sent(stack, make):
    """By an upsert and by an insert, as BSON and from Extended JSON; sent twice it is a duplicate, and verify finds nothing else."""
    topics = {name: stack.topic(1) for name in ("bson", "inserted", "extjson")}
    collections = {name: stack.collection() for name in topics}
    setup = make(list(topics.values()))
    options = {"bson": {"format": "bson"}, "inserted": {"format": "bson", "write": "insert"}, "extjson": {"format": "extjson"}}
    setup.routes = [Setup.route([topics[n]], collections[n], ("id",), **options[n]) for n in topics]
    sent = {"id": "x", **EVERY_TYPE}
    values = {"bson": with_rare(sent), "inserted": with_rare(sent),
              "extjson": json_util.dumps(sent, json_options=json_util.CANONICAL_JSON_OPTIONS).encode()}
    for name, topic in topics.items():
        stack.produce(topic, [values[name], values[name]])
    worker = setup.run_until_end()
    assert (worker.books()["inserted"], worker.books()["duplicate"]) == (3, 3), worker.log_tail()
    for name in ("bson", "inserted"):
        assert raw_of(collections[name], {"id": "x"}) == elements(values[name])
    nan = struct.pack("<d", float("nan"))
    assert raw_of(collections["extjson"], {"id": "x"}) == elements(bson.encode(sent)) and nan in bson.encode(sent)
    assert setup.verify()["status"] == 0


def test_text_and_bytes(stack, make):
    """Whole values under one field, what is no text as a dead letter; the identity comes from the record."""
    topics = [stack.topic(1), stack.topic(1)]
    collections = [stack.collection(), stack.collection()]
    setup = make(topics)
    setup.routes = [
        {**Setup.route([topics[0]], collections[0], ("@offset",), format="string", value_field="line", source_fields="from"),
         "dedup": {"key": ["@offset"], "into": "_id"}},
        {**Setup.route([topics[1]], collections[1], ("@key",), format="bytes", under="p"), "dedup": {"key": ["@key"], "fields": ["k"]}},
    ]
    values = ["a line", "", "{\"id\": 1}", "ü\0", b"\xff", b"\x1f\x8b\x08"]
    stack.produce(topics[0], [Record(v) for v in values])
    stack.produce(topics[1], [Record(v, f"k{i}") for i, v in enumerate(values)] + [Record(b"again", "k0")])
    worker = setup.run_until_end()
    lines = list(collections[0].find().sort("_id.offset"))
    assert [d["line"] for d in lines] == ["a line", "", "{\"id\": 1}", "ü\0"] and lines[1]["from"]["offset"] == 1
    assert {d["k"]: d["p"]["value"] for d in collections[1].find()} == {
        f"k{i}": v.encode() if isinstance(v, str) else v for i, v in enumerate(values)}
    reasons = [dict(m.headers())["idemsink.reason"] for m in stack.read_topic(setup.dead_letter_topic)]
    assert reasons == [b"invalid_utf8", b"compressed"]
    assert worker.books()["duplicate"] == 1 and setup.verify()["status"] == 0


def test_what_mongodb_would_change_or_refuse(stack, make):
    """An insert puts the server's time where an empty timestamp stands; some types are no _id. Told before it is asked, and
    the neighbours are stored."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes = [Setup.route([topic], setup.collection, ("id",), format="bson")]
    bad = [{"id": 1, "a.b": 1, "t": Timestamp(0, 0)}, {"id": 2, "_id": Regex("a")}, {"id": 3, "_id": {"$a": 1}}, {"id": 4, "_id": [1]}]
    fine = [{"id": 5, "t": Timestamp(0, 0)}, {"id": 6, "_id": Timestamp(0, 0), "a.b": 1}, {"id": 7, "_id": MinKey()},
            {"id": 8, "_id": Code("f")}]
    records = [Record(bson.encode(document), "k") for pair in zip(bad, fine) for document in pair]
    stack.produce(topic, records)
    setup.run_until_end()
    assert {d["id"] for d in setup.collection.find()} == {5, 6, 7, 8}
    for document in fine:
        wanted = elements(bson.encode({k: v for k, v in document.items() if k != "_id"}))
        assert raw_of(setup.collection, {"id": document["id"]}) == wanted
    assert [dict(m.headers())["idemsink.reason"] for m in stack.read_topic(setup.dead_letter_topic)] == [b"unsafe_name"] * 4


def test_h016_in_extended_json(stack, make):
    """The file of H-016 where Extended JSON is asked for: what only looks like a type is refused."""
    topic = stack.topic(1)
    setup = make(topic, dedup=("event_id",))
    setup.routes[0]["format"] = "extjson"
    lines = [line.split(b":", 1) for line in (DATA / "cases" / "H-016-extended-json.kv").read_bytes().splitlines()]
    stack.produce(topic, [Record(value, key) for key, value in lines])
    setup.run_until_end()
    assert {d["event_id"] for d in setup.collection.find({}, {"event_id": 1})} == {
        "x1", "x2", "x5", "x6", "x7", ObjectId("507f1f77bcf86cd799439011")}
    dead = stack.read_topic(setup.dead_letter_topic)
    reasons = {int(dict(m.headers())["idemsink.offset"]): dict(m.headers())["idemsink.reason"].decode() for m in dead}
    assert reasons == {2: "extjson_syntax", 3: "extjson_syntax", 7: "extjson_syntax"}
    assert sorted(m.value() for m in dead) == sorted(lines[i][1] for i in reasons)


def test_caches_are_told_in_every_format(stack, make):
    """Templates see values, not how they were written."""
    prefix = uuid.uuid4().hex[:8]
    formats = {"extjson": b'{"id":{"$oid":"507f1f77bcf86cd799439011"}}', "bson": bson.encode({"id": Int64(7)}), "string": b"text"}
    topics = {name: stack.topic(1) for name in formats}
    setup = make(list(topics.values()))
    setup.sections["redis"] = {"uri": stack.redis_uri}
    setup.routes = []
    for name, topic in topics.items():
        dedup = {"key": ["@key"], "into": "_id"} if name == "string" else {"key": ["id"]}
        template = f"{prefix}:{{@key}}" if name == "string" else f"{prefix}:{{id}}"
        setup.routes.append({**Setup.route([topic], stack.collection(), format=name), "dedup": dedup,
                             "invalidate": [{"mode": "unlink", "keys": [template]}]})
    port = stack.redis_uri.split(":")[2].split("/")[0]
    cli = ["redis-cli", "-p", port]
    keys = [f"{prefix}:{tail}" for tail in ("507f1f77bcf86cd799439011", "7", "kafka", "other")]
    subprocess.run([*cli, "MSET", *[word for key in keys for word in (key, "1")]], check=True, capture_output=True, timeout=60)
    for name, topic in topics.items():
        stack.produce(topic, [Record(formats[name], "kafka")])
    setup.run_until_end()
    left = subprocess.run([*cli, "MGET", *keys], check=True, capture_output=True, timeout=60).stdout.split(b"\n")
    assert left[:4] == [b"", b"", b"", b"1"]


# --- limits: each way to a document, with how many bytes its document and key have beside the long text ---

def filled(build, size):
    """build(text) -> (value of the record, bytes that count). The text makes them so many."""
    return build("x" * (size - build("")[1]))[0]


def counted(document, key, times=1):
    return len(bson.encode(document)) + times * len(bson.encode(key))


def ways(topic):
    """{name: (route, build(event, text))}"""

    def plain(event, text):
        document = {"eventId": event, "big": text}
        return json.dumps(document), counted(document, {"eventId": event})

    def odd(event, text):
        document = {"eventId": event, "a.b": Int64(1), "big": text}
        return json.dumps(document), counted(document, {"eventId": event})

    def into_id(event, text):
        document = {"eventId": event, "big": text}
        return json.dumps(document), counted(document, {"_id": event}, 2)

    def shaped(event, text):
        source = {"topic": topic, "partition": Int64(0), "offset": Int64(0), "timestamp": datetime.datetime(2026, 1, 1), "key": "k"}
        document = {"p": {"q": {"eventId": event, "big": text}}, "c": {"d": Int64(7)}, "s": source}
        return json.dumps({"eventId": event, "big": text}), counted(document, {"p.q.eventId": event})

    def as_bson(event, text):
        document = {"eventId": event, "big": Binary(text.encode(), 0)}
        return bson.encode(document), counted(document, {"eventId": event})

    return {
        "plain": ({}, plain),
        "odd names": ({}, odd),  # an insert
        "_id": ({"dedup": {"key": ["eventId"], "into": "_id"}}, into_id),
        "shaped": ({"under": "p.q", "set": {"c.d": 7}, "source_fields": "s"}, shaped),
        "bson": ({"format": "bson"}, as_bson),
    }


def depths():
    """{name: (route, build(levels) -> value)}: documents with so many levels."""

    def objects(levels, extra=0):
        inner = 1
        for _ in range(levels - 1 - extra):
            inner = {"a": inner}
        return {"eventId": levels, "a": inner}

    def arrays(levels):
        return b'{"eventId":%d,"a":%s1%s}' % (levels, b"[" * (levels - 1), b"]" * (levels - 1))

    return {
        "objects": ({}, lambda levels: json.dumps(objects(levels))),
        "arrays": ({"write": "insert"}, arrays),
        "under": ({"under": "p.q.r"}, lambda levels: json.dumps(objects(levels, 3))),
        "renamed": ({"rename": {"a": "b.c"}}, lambda levels: json.dumps(objects(levels, 1))),
        "bson": ({"format": "bson"}, lambda levels: bson.encode(objects(levels))),
        "scope": ({"format": "extjson"}, lambda levels: b'{"eventId":%d,"a":{"$code":"","$scope":%s1%s}}' % (
            levels, b'{"a":' * (levels - 1), b"}" * (levels - 1))),
    }


def routes_of(stack, ways_of):
    """(topics, collections, routes) by name: a topic and a collection for each way."""
    topics = {name: stack.topic(1, max_message_bytes=20_000_000) for name in ways_of}
    collections = {name: stack.collection() for name in ways_of}
    return topics, collections, [{**Setup.route([topics[n]], collections[n]), **ways_of[n][0]} for n in ways_of]


def reasons_of(stack, setup):
    """{(topic, offset): reason}"""
    found = {}
    for message in stack.read_topic(setup.dead_letter_topic):
        headers = dict(message.headers())
        found[headers["idemsink.topic"].decode(), int(headers["idemsink.offset"])] = headers["idemsink.reason"].decode()
    return found


def test_depth_at_below_and_above_the_limit(stack, make):
    """The levels of the stored document count, with those that the route adds. mongod takes what we let pass."""
    topics, collections, routes = routes_of(stack, depths())
    setup = make(list(topics.values()))
    setup.routes = routes
    for name, (_, build) in depths().items():
        stack.produce(topics[name], [Record(build(levels), "k") for levels in (99, 100, 101, 5)])
    setup.run_until_end()
    field = {"under": "p.q.r.eventId"}
    for name, collection in collections.items():
        assert sorted(d[0] if isinstance(d, list) else d for d in collection.distinct(field.get(name, "eventId"))) == [5, 99, 100], name
    assert reasons_of(stack, setup) == {(topic, 2): "too_deep" for topic in topics.values()}


def test_size_at_below_and_above_the_limit(stack, make):
    """Document and key together, with all that the route adds: at the limit they are stored, one byte more is too_large, and
    neither harms the record behind it."""
    names = list(ways("t" * 14))
    topics, collections, routes = routes_of(stack, ways("t" * 14))
    setup = make(list(topics.values()))
    setup.routes = routes
    for name in names:
        build = ways(topics[name])[name][1]
        sizes = (LIMIT - 1, LIMIT, LIMIT + 1) if name == "plain" else (LIMIT, LIMIT + 1)
        records = [filled(lambda text: build(f"e{size}", text), size) for size in sizes]  # noqa: B023
        stack.produce(topics[name], [Record(value, "k") for value in [*records, build("last", "")[0]]], **LARGE)
    setup.run_until_end()
    assert reasons_of(stack, setup) == {(topics[name], 2 if name == "plain" else 1): "too_large" for name in names}
    for name in names:
        events = {"e%d" % LIMIT, "last"} | ({"e%d" % (LIMIT - 1)} if name == "plain" else set())
        field = "p.q.eventId" if name == "shaped" else "eventId"
        assert set(collections[name].distinct(field)) == events, name
        collections[name].drop()


# --- memory ---

def test_large_payloads_are_parsed_one_at_a_time(stack, make):
    """1.2 MB of empty objects become a tree of 96 MB. Four threads with one each would hold 400 MB and more; they hold one."""
    topic = stack.topic(4, max_message_bytes=20_000_000)
    setup = make(topic)
    values = [b'{"eventId":%d,"a":[%s]}' % (i, b",".join([b"{}"] * 400_000)) for i in range(6)]
    stack.produce(topic, [Record(value, None, None, i % 4) for i, value in enumerate(values)], **LARGE)
    worker = setup.start()
    wait_until(setup.settled, 60, "everything committed")
    with open(f"/proc/{worker.pid}/status") as status:
        peak = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:"))
    print(f"peak {peak} MiB")
    assert worker.terminate() == 0
    assert setup.collection.count_documents({}) == 6
    assert 96 < peak < 270




def test_explain_in_every_format(stack, make):
    """It reads the payload as the route does, and says where one is broken."""
    setup = make("orders", collection=stack.mongo["tests"]["explained"], dead_letters=False)

    def explain(payload, **route):
        setup.routes = [{**Setup.route(["orders"], setup.collection, ("id",)), **route}]
        done = setup.command("explain", "--topic", "orders", "--key", "k", stdin=payload, seconds=10)
        return done.returncode, done.stdout.decode()

    status, text = explain(bson.encode({"id": ObjectId("507f1f77bcf86cd799439011"), "r": Regex("a", "i")}), format="bson")
    assert status == 0 and '"$oid" : "507f1f77bcf86cd799439011"' in text and '"$regularExpression"' in text
    status, text = explain(b'{"id":{"$numberDecimal":"1.50"},"n":null}', format="extjson", drop_nulls=True)
    assert status == 0 and '"$numberDecimal" : "1.50"' in text and '"n"' not in text
    status, text = explain(b'{"id":1,"d":{"$date":"yesterday"}}', format="extjson")
    assert status == 1 and "extjson_syntax" in text and "at byte 12\n" in text and "yesterday" not in text
    assert re.search(r"^place +byte 12 \(line 1, column 13\), at d: ", text, re.M)
    status, text = explain(bson.encode({"id": 1}) + b"\0", format="bson")
    assert status == 1 and "bson_syntax" in text and "something follows the document, at byte 13\n" in text
    assert re.search(r"^place +byte 13: something follows the document$", text, re.M)
    for document, byte, path in (({"a": 1, "id": {"b": 2}}, 15, "id"), ({"a": 1}, 0, ""), ({"id": None}, 8, "id")):
        status, text = explain(bson.encode(document), format="bson")
        assert status == 1 and re.search(rf"^place +byte {byte}{', at ' + path if path else ''}(: the last value on the way)?$", text, re.M), text
    of_key = {"dedup": {"key": ["@key"], "into": "_id"}}
    status, text = explain(b"any text", format="string", **of_key)
    assert status == 0 and '"value" : "any text"' in text
    status, text = explain(b"\xff", format="bytes", value_field="raw", **of_key)
    assert status == 0 and '"raw" : { "$binary"' in text
    status, text = explain(b"\xff", format="string", **of_key)
    assert status == 1 and "invalid_utf8" in text
