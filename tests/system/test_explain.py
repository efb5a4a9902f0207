"""`idemsink explain`: what would become of one payload, without touching anything; and `check --connect` line by line."""
import json
import os
import re
import subprocess

import pytest
from bson import Int64, json_util
from harness import BINARY, Nowhere, Record, Setup, Somewhere


def route_of(**more):
    return {"topics": ["orders"], "collection": "shop.orders", "dedup": {"key": ["id"]}, **more}


@pytest.fixture
def explain(tmp_path):
    """explain(route, payload, options...) -> (status, {word: [texts]}, stderr). Nothing of what it names needs to be there."""

    def run(route, payload, *options, topic="orders", **sections):
        setup = Setup(Nowhere, tmp_path, "orders", collection=Somewhere)
        setup.routes = [route] if isinstance(route, dict) else route
        for name, keys in sections.items():
            setup.sections.setdefault(name, {}).update(keys)
        done = setup.command("explain", *(["--topic", topic] if topic else []), *options, stdin=payload, seconds=10)
        if "--json" in options:
            return done.returncode, json.loads(done.stdout), done.stderr.decode()
        lines = {}
        for line in done.stdout.decode().splitlines():
            word, text = re.match(r"(\S.{12})\s(.*)", line).groups()
            lines.setdefault(word.strip(), []).append(text)
        return done.returncode, lines, done.stderr.decode()

    return run


def test_stored(explain):
    status, lines, errors = explain(route_of(types={"at": "date"}, set={"from": "@topic"}, source_fields="src", exclude=["secret"]),
                                    b'{"id": 7, "at": "2026-01-02T03:04:05Z", "secret": "s", "big": 9007199254740993}', "--key", "k1")
    assert (status, errors) == (0, "")
    assert lines["route"] == ["shop.orders -> shop.orders"]
    assert lines["lane"] == ['the Kafka key: "k1"']
    assert json.loads(lines["dedup key"][0]) == {"id": 7}
    document = json.loads(lines["document"][0])
    assert document["at"] == {"$date": "2026-01-02T03:04:05Z"} and document["from"] == "orders" and document["big"] == 9007199254740993
    assert document["src"]["topic"] == "orders" and document["src"]["key"] == "k1" and "secret" not in document
    assert "$setOnInsert" in lines["write"][0]


def test_stored_by_insert(explain):
    status, lines, _ = explain(route_of(), b'{"id": 7, "a.b": 1}')
    assert status == 0 and lines["write"][0].startswith("insert")
    assert json.loads(lines["document"][0])["a.b"] == 1


@pytest.mark.parametrize("payload,reason,place", [
    (b'{"id": 7', "json_syntax", "byte 8"), (b"[]", "not_an_object", "array"), (b'{"id": "a", "id": "b"}', "duplicate_name", ""),
    (b'{"x": 1}', "dedup_missing", '"id"'), (b'{"id": {"$gt": ""}}', "dedup_not_scalar", '"id"'), (b"", "empty_value", ""),
    (b'{"id": 1, "order": {"at": "soon"}}', "type_conversion", "order.at"), (b'{"id": 1, "x": 99999999999999999999}', "number_range", "byte"),
    (b"\x1f\x8b\x08 rest", "compressed", "gzip"), (b'{"id": 1, "_id": []}', "unsafe_name", "_id")], ids=lambda v: v if isinstance(v, str) else "")
def test_dead_letter_with_reason_and_place(explain, payload, reason, place):
    status, lines, errors = explain(route_of(types={"order.at": "date"}), payload)
    assert (status, errors) == (1, "")
    assert lines["outcome"] == ["dead letter"] and lines["reason"] == [reason]
    assert place in lines["error"][0] and lines["meaning"][0]
    assert "document" not in lines and "soon" not in lines["error"][0]


@pytest.mark.parametrize("payload,place", [
    (b'{"id": 7', {"byte": 8, "path": ""}),
    (b'{"id": 1,\n "x": [1, 2,]}', {"byte": 22, "line": 2, "column": 13, "path": "x[2]"}),
    (b'{"id": "a", "x": {"\\u0061": 1, "a": 2}}', {"byte": 31, "path": "x.a", "first_byte": 18}),
    (b'{"id": 1, "x": {"y": [0, 99999999999999999999]}}', {"byte": 25, "path": "x.y[1]"}),
    (b'{"id": "\xff"}', {"byte": 8, "path": "id"}), (b'{"id": "\\ud800"}', {"byte": 8, "path": "id"}),
    (b' []', {"byte": 1, "path": ""}), (b'{"id": 1, "order": {"at": "soon"}}', {"byte": 26, "path": "order.at"}),
    (b'{"id": 1, "order": [{"at": 1}]}', {"byte": 19, "path": "order"}),
    (b'{"x": 1}', {"byte": 0, "path": ""}), (b'{"x": 1, "id": {"$gt": ""}}', {"byte": 15, "path": "id"}),
    (b'{"id": 1, "_id": []}', {"byte": 17, "path": "_id"}),
    (b'{"id": 1, "x": ' + b"[" * 99 + b"]" * 99 + b', "y": ' + b"[" * 100 + b"]" * 100 + b"}", {"byte": 15 + 198 + 7 + 99, "path": "y" + "[0]" * 99})], ids=lambda v: v.decode("latin-1") if isinstance(v, bytes) else "")
def test_exact_place_of_the_fault(explain, payload, place):
    status, lines, _ = explain(route_of(types={"order.at": "date"}), payload)
    text = lines["place"][0]
    assert status == 1 and text.startswith(f"byte {place['byte']} (line {place.get('line', 1)}, column {place.get('column', place['byte'] + 1)})")
    assert not place["path"] or f", at {place['path']}" in text
    status, shown, _ = explain(route_of(types={"order.at": "date"}), payload, "--json")
    assert status == 1 and {name: shown["place"][name] for name in place} == place
    told = re.search(r"\bat byte (\d+)", shown["error"])  # of the dead letter
    assert told is None or int(told[1]) == place["byte"]


@pytest.mark.parametrize("payload,byte", [(b"hello", 0), (b'{"id":1,"id":2}', 8), (b'{"id": 1,}', 9), (b'{"id": 1', 8)])
def test_one_byte_for_one_fault(explain, payload, byte):
    _, lines, _ = explain(route_of(), payload)
    assert re.search(rf"\bat byte {byte}\b", lines["error"][0]) and lines["place"][0].startswith(f"byte {byte} (line 1, column {byte + 1})")


def test_json_for_machines(explain):
    rules = [{"mode": "unlink", "keys": ["order:{id}", "none:{missing}"]}, {"mode": "pubsub", "channel": "c", "payload": '{"id": {id}}'},
             {"mode": "version", "keys": ["g:{id}"]}, {"mode": "version", "keys": ["h"], "expire": "1m"},
             {"mode": "stream", "stream": "s:{id}", "payload": '{"id": {id}}', "maxlen": 5}]
    status, shown, _ = explain(route_of(invalidate=rules), b'{"id": 7, "x": 1.0}', "--json", "--key", "k\"", redis={"uri": "redis://127.0.0.1:1/0"})
    assert status == 0 and shown["dedup_key"] == {"id": 7} and shown["lane"] == 'the Kafka key: "k\\""'
    assert shown["invalidation"] == [{"command": "UNLINK", "key": "order:7"}, {"command": "PUBLISH", "channel": "c", "message": '{"id": 7}'},
                                     {"command": "INCR", "key": "g:7"}, {"command": "INCR", "key": "h", "expire_ms": 60000},
                                     {"command": "XADD", "stream": "s:7", "maxlen": 5, "message": '{"id": 7}'},
                                     {"command": None, "left_out": 1, "rule": 1, "mode": "unlink", "line": shown["invalidation"][5]["line"],
                                      "source": "missing"}]
    assert shown["command"] == {"update": "orders", "updates": [{"q": {"id": 7}, "u": {"$setOnInsert": {"id": 7, "x": 1.0}}, "upsert": True,
                                                                 "multi": False}],
                                "ordered": False, "writeConcern": {"w": "majority", "j": True, "wtimeout": 5000}, "$db": "shop"}


def test_tombstone(explain):
    assert "skipped" in explain(route_of(), b"", "--null", "--key", "k")[1]["outcome"][0]
    status, lines, _ = explain(route_of(tombstone="dead_letter"), b"", "--null")
    assert status == 1 and lines["reason"] == ["tombstone"] and "place" not in lines


def test_a_terminal_is_told_what_is_waited_for(tmp_path):
    """And a pipe is not: the other tests see an empty stderr."""
    file = tmp_path / "c.toml"
    file.write_text('[kafka]\nbrokers = "127.0.0.1:1"\ngroup = "g"\n[mongo]\nuri = "mongodb://127.0.0.1:1"\n[dead_letter]\n'
                    'on_bad_record = "skip"\n[[route]]\ntopics = ["t"]\ncollection = "a.b"\n[route.dedup]\nkey = ["id"]\n')
    ours, theirs = os.openpty()
    process = subprocess.Popen([BINARY, "explain", "-c", file, "--topic", "t"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert b"Ctrl-D" in process.stderr.readline()
        os.write(ours, b'{"id": 1}\n\x04')
        assert b"$setOnInsert" in process.communicate(timeout=60)[0] and process.returncode == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
        os.close(theirs)


def test_sources_key_and_headers(explain):
    route = route_of(dedup={"key": ["@header.event-id", "@key"], "fields": ["eventId", "meta.key"]}, order_by="@header.tenant")
    status, lines, _ = explain(route, b'{"x": 1}', "--key", "k", "--header", "event-id=old", "--header", "event-id=a=b", "--header", "tenant=t")
    assert status == 0
    assert json.loads(lines["dedup key"][0]) == {"eventId": "a=b", "meta.key": "k"}  # the last one of a name, up to the first "="
    assert json.loads(lines["document"][0]) == {"x": 1, "eventId": "a=b", "meta": {"key": "k"}}
    assert lines["lane"] == ['a value of the record: "t"']
    for options, reason in ((["--key", "k"], "dedup_missing"), (["--key", "k", "--header", "event-id="], "dedup_empty"), (["--header", "event-id=e"], "dedup_missing"),
                            (["--key", "", "--header", "event-id=e"], "dedup_empty")):
        status, lines, _ = explain(route, b'{"x": 1}', *options)
        assert (status, lines["reason"]) == (1, [reason]), options
        assert ("@header.event-id" if "k" in options else "@key") in lines["error"][0]
    for header in ("event-id", "=v"):
        assert explain(route, b'{"x": 1}', "--key", "k", "--header", header)[0] == 64


@pytest.mark.parametrize("order_by,payload,text", [("@dedup", b'{"id": 1}', "the dedup key"), ("@partition", b'{"id": 1}', "the whole partition"),
                                                   ("cust", b'{"id": 1, "cust": 5}', 'a value of the record: { "cust" : 5 }'),
                                                   ("a.b", b'{"id": 1, "a": {"b": "x\\u001by"}}', 'a value of the record: { "a.b" : "x\\u001by" }'),
                                                   ("cust", b'{"id": 1, "cust": true}', 'a value of the record: { "cust" : true }'),
                                                   ("cust", b'{"id": 1}', "the dedup key, because the record has no cust (order_by)"),
                                                   ("@key", b'{"id": 1}', "the dedup key, because the record has no @key (order_by)"),
                                                   ("@key", b"{}", "a lane of its own")])
def test_lanes(explain, order_by, payload, text):
    assert text in explain(route_of(order_by=order_by), payload)[1]["lane"][0]


def test_invalidations_are_shown(explain):
    rules = [{"mode": "unlink", "keys": ["order:{id}", "none:{missing}"]},
             {"mode": "pubsub", "channel": "ch:{@key}", "payload": '{"id": {id}, "t": {@topic}}'},
             {"mode": "monsqlize", "flavor": 3, "keys": ["k:{name}"]},
             {"mode": "version", "keys": ["g:{id}"], "expire": "1m"}, {"mode": "stream", "stream": "s", "payload": '[{id}]'}]
    status, lines, _ = explain(route_of(invalidate=rules), b'{"id": 7, "name": "a*b"}', "--key", "k",
                               redis={"uri": "redis://:secret@127.0.0.1:1/0", "instance_id": "me"})
    assert status == 0
    shown = lines["invalidation"]
    assert shown[:2] == ["UNLINK order:7", 'PUBLISH ch:k {"id": 7, "t": "orders"}']
    assert shown[2:4] == ["INCR g:7, which expires after 60000 ms", "XADD s MAXLEN ~ 10000 * payload [7]"]
    assert re.fullmatch(r"left out by rule 1 of the route \(mode unlink, line \d+\): {missing} is missing or not allowed there", shown[4])
    assert re.fullmatch(r"left out by rule 3 of the route \(mode monsqlize, line \d+\): {name} is missing or not allowed there", shown[5])
    assert int(re.search(r"line (\d+)", shown[4])[1]) > 1
    status, lines, _ = explain(route_of(invalidate=rules), b'{"id": 7, "name": "plain", "missing": 1}', "--key", "k",
                               redis={"uri": "redis://:secret@127.0.0.1:1/0", "instance_id": "me"})
    assert re.fullmatch(r'PUBLISH monsqlize:cache:invalidate {"type":"invalidateKey","key":"k:plain","instanceId":"me","timestamp":\d+}',
                        lines["invalidation"][3])


def test_unknown_topic_and_missing_topic(explain):
    status, lines, errors = explain(route_of(), b"{}", topic="other")
    assert status == 78 and lines == {} and "other" in errors or "no route" in errors
    status, lines, errors = explain(route_of(), b"{}", topic=None)
    assert status == 64 and "--topic" in errors


def test_topics_of_a_regular_expression(explain):
    routes = [route_of(), route_of(topics=["^ord.*-eu$"], collection="shop.eu")]
    assert explain(routes, b'{"id": 1}', topic="orders-eu")[1]["route"] == ["shop.eu -> shop.eu"]
    assert explain(routes, b'{"id": 1}', topic="orders-eu2")[0] == 78


def test_says_what_run_then_does(stack, make):
    """The document that explain shows is the one that run stores."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0].update(types={"at": "date_s"}, rename={"a": "b"}, under="body", set={"v": 1})
    payload = b'{"eventId": "e", "at": 1.5, "a": [1, 2.5, {"x": null}], "t": "\\u0000"}'
    done = setup.command("explain", "--topic", topic, stdin=payload)
    shown = [l for l in done.stdout.decode().splitlines() if l.startswith("document")][0]
    stack.produce(topic, [payload])
    setup.run_until_end()
    from bson import json_util
    stored = setup.collection.find_one({}, {"_id": 0})
    assert json_util.loads(shown[shown.index("{"):], json_options=json_util.JSONOptions(tz_aware=False)) == stored


# --- of a record in Kafka, and with what is there ---


def asked(setup, *options, stdin=None):
    """(status, {name: value of the JSON}, stderr)"""
    done = setup.command("explain", "--json", *options, stdin=stdin)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr.decode()


def test_record_of_kafka(stack, make):
    topic = stack.topic(2)
    setup = make(topic)
    setup.routes[0].update(set={"h": "@header.h", "at": "@timestamp"}, source_fields="src")
    stack.produce(topic, [Record(b"{", "other", None, 1), Record({"eventId": "e"}, "k", [("h", b"\xc3\xa4"), ("n", None)], 1),
                          Record(None, "gone", None, 1)])
    status, shown, errors = asked(setup, "--offset", f"{topic}:1:1")
    assert (status, errors) == (0, "")
    assert shown["record"] == f"{topic}:1:1" and shown["key"] == "k" and shown["header"] == [["h", "\u00e4"], ["n", None]]
    assert shown["document"]["h"] == "\u00e4" and "$date" in shown["document"]["at"] and shown["document"]["src"]["offset"] == 1
    assert shown["timestamp"][:10] == shown["document"]["at"]["$date"][:10]
    assert asked(setup, "--offset", f"{topic}:1:0")[1]["reason"] == "json_syntax"
    assert asked(setup, "--offset", f"{topic}:1:2")[1]["outcome"].startswith("skipped")
    for place, said in (("1:3", "0 to 2"), ("0:0", "no record"), ("7:0", "no partition 7")):
        status, shown, errors = asked(setup, "--offset", f"{topic}:{place}")
        assert status == 1 and not shown and said in errors  # as `dlq show` has it
    for wrong in (topic, f"{topic}:1", f"{topic}:x:1", f"{topic}:1:", f"{topic}:1:-1", ":1:1", f"{topic}:99999999999:1"):
        assert asked(setup, "--offset", wrong)[0] == 64
    assert asked(setup, "--offset", f"{topic}:1:1", "--key", "k")[0] == 64
    assert asked(setup, "--offset", "no-such-topic:0:1")[0] == 78
    other = stack.topic(1)
    stack.produce(other, [Record({"eventId": "e"}, "k")])
    status, shown, errors = asked(setup, "--offset", f"{other}:0:0")
    assert status == 78 and "--topic" in errors and f'topic "{other}"' in errors and f"the routes read: {topic}\n" in errors
    routes = setup.routes
    errors = asked(setup, "--topic", "nope", stdin=b"{}")[2]
    assert 'no route reads topic "nope"; the routes read: ' + topic in errors
    setup.routes = [Setup.route([f"t{i}" for i in range(12)], setup.collection)]
    assert asked(setup, "--topic", "t", stdin=b"{}")[2].endswith(": t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more\n")
    setup.routes = routes
    stack.produce(setup.dead_letter_topic, [Record(b"x", "k")])
    assert "dlq show" in asked(setup, "--offset", f"{setup.dead_letter_topic}:0:0")[2]
    assert asked(setup, "--offset", f"{other}:0:0", "--topic", topic)[1]["document"]["src"]["topic"] == topic


def test_what_is_there_already(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0].update(types={"at": "date"}, dedup={"key": ["order.id"]}, ensure_index=False)
    payload = b'{"order": {"id": 7, "x": [1, 2]}, "at": 5, "only": 1}'
    options = ("--topic", topic, "--connect")
    status, shown, _ = asked(setup, *options, stdin=payload)
    assert status == 1 and "idemsink init" in shown["index"] and shown["stored"].startswith("not there")
    assert setup.command("init").returncode == 0
    status, shown, _ = asked(setup, *options, stdin=payload)
    assert status == 0 and shown["index"] == "proved" and shown["stored"].startswith("not there") and "is_there" not in shown
    stack.produce(topic, [payload])
    setup.run_until_end()
    status, shown, _ = asked(setup, *options, stdin=payload)
    assert status == 0 and shown["stored"].startswith("there and equal") and "differs" not in shown
    setup.collection.update_one({"order.id": 7}, {"$set": {"order.x": [Int64(1), Int64(3)], "at": 5, "more": 1}, "$unset": {"only": 1}})
    status, shown, _ = asked(setup, *options, stdin=payload)
    assert status == 0 and shown["stored"].startswith("there and different")
    assert sorted(shown["differs"]) == ["at: another type", "more: only stored", "only: not stored", "order.x.1: another value"]
    assert json_util.loads(json.dumps(shown["is_there"]))["more"] == 1
    assert asked(setup, *options, stdin=payload.replace(b"7", b"8"))[1]["stored"].startswith("not there")
    setup.sections["mongo"].update(uri="mongodb://u:hidden@127.0.0.1:1/?replicaSet=rs0", server_selection_timeout="300ms")
    status, shown, errors = asked(setup, *options, stdin=payload)
    assert status == 69 and shown["stored"].startswith("can't tell") and "127.0.0.1:1" in shown["stored"]
    assert shown["document"]["only"] == 1 and "hidden" not in str(shown) + errors
