"""`idemsink explain`: what would become of one payload, without touching anything; and `check --connect` line by line."""
import json
import re

import pytest
from harness import Setup


def route_of(**more):
    return {"topics": ["orders"], "collection": "shop.orders", "dedup": {"key": ["id"]}, **more}


@pytest.fixture
def explain(tmp_path):
    """explain(route, payload, options...) -> (status, {word: [texts]}, stderr). Nothing of what it names needs to be there."""

    class Nowhere:
        brokers, mongo_uri = "127.0.0.1:1", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"

        @staticmethod
        def topic(_):
            return "orders.dead"

    class Collection:
        name = "c"

        class database:
            name = "d"

    def run(route, payload, *options, topic="orders", **sections):
        setup = Setup(Nowhere, tmp_path, "orders", collection=Collection)
        setup.routes = [route] if isinstance(route, dict) else route
        for name, keys in sections.items():
            setup.sections.setdefault(name, {}).update(keys)
        done = setup.command("explain", *(["--topic", topic] if topic else []), *options, stdin=payload, seconds=10)
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


def test_sources_key_and_headers(explain):
    route = route_of(dedup={"key": ["@header.event-id", "@key"], "fields": ["eventId", "meta.key"]}, order_by="@header.tenant")
    status, lines, _ = explain(route, b'{"x": 1}', "--key", "k", "--header", "event-id=old", "--header", "event-id=a=b", "--header", "tenant=t")
    assert status == 0
    assert json.loads(lines["dedup key"][0]) == {"eventId": "a=b", "meta.key": "k"}  # the last one of a name, up to the first "="
    assert json.loads(lines["document"][0]) == {"x": 1, "eventId": "a=b", "meta": {"key": "k"}}
    assert "a value of the record" in lines["lane"][0]
    for options, reason in ((["--key", "k"], "dedup_missing"), (["--key", "k", "--header", "event-id"], "dedup_missing"),
                            (["--key", "k", "--header", "event-id="], "dedup_empty"), (["--header", "event-id=e"], "dedup_missing"),
                            (["--key", "", "--header", "event-id=e"], "dedup_empty")):
        status, lines, _ = explain(route, b'{"x": 1}', *options)
        assert (status, lines["reason"]) == (1, [reason]), options
        assert ("@header.event-id" if "k" in options else "@key") in lines["error"][0]


@pytest.mark.parametrize("order_by,payload,text", [("@dedup", b'{"id": 1}', "the dedup key"), ("@partition", b'{"id": 1}', "the whole partition"),
                                                   ("cust", b'{"id": 1, "cust": 5}', "a value of the record"),
                                                   ("cust", b'{"id": 1}', "the dedup key"), ("@key", b'{"id": 1}', "the dedup key"),
                                                   ("@key", b"{}", "a lane of its own")])
def test_lanes(explain, order_by, payload, text):
    assert text in explain(route_of(order_by=order_by), payload)[1]["lane"][0]


def test_invalidations_are_shown(explain):
    rules = [{"mode": "unlink", "keys": ["order:{id}", "none:{missing}"]},
             {"mode": "pubsub", "channel": "ch:{@key}", "payload": '{"id": {id}, "t": {@topic}}'},
             {"mode": "monsqlize", "flavor": 3, "keys": ["k:{name}"]}]
    status, lines, _ = explain(route_of(invalidate=rules), b'{"id": 7, "name": "a*b"}', "--key", "k",
                               redis={"uri": "redis://:secret@127.0.0.1:1/0", "instance_id": "me"})
    assert status == 0
    shown = lines["invalidation"]
    assert shown[:2] == ["UNLINK order:7", 'PUBLISH ch:k {"id": 7, "t": "orders"}']
    assert shown[2].startswith("2 left out")
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


# --- check --connect ---


def check(setup):
    """(status, {what: (verdict, text)})"""
    done = setup.command("check", "--connect")
    found = {}
    for line in done.stdout.decode().splitlines():
        what, verdict, text = re.match(r"(.{34,}?) (ok|wrong|unknown|none|weak)\s*(.*)", line).groups()
        found[what.strip()] = (verdict, text)
    return done.returncode, found


def test_check_when_all_is_well(stack, make):
    topic = stack.topic(3)
    setup = make(topic)
    setup.sections["redis"] = {"uri": stack.redis_uri}
    assert setup.command("init").returncode == 0
    status, found = check(setup)
    assert found.pop("kafka rights")[0] == "unknown"  # nobody can ask for them
    assert status == 0 and {verdict for verdict, _ in found.values()} == {"ok"}
    assert found[topic] == ("ok", "3 partitions") and "dead-letter topic" in found[setup.dead_letter_topic][1]
    assert found["redis"][0] == "ok" and found[f"dedup index of tests.{setup.collection.name}"] == ("ok", "proved")


def test_check_names_topics_that_are_not_there(stack, make):
    there = stack.topic(1)
    setup = make([there, "no-such-topic"])
    setup.sections["dead_letter"]["topic"] = "no-such-dead-letters"
    setup.command("init")
    stack.admin.delete_topics(["no-such-dead-letters"])["no-such-dead-letters"].exception(30)
    status, found = check(setup)
    assert status == 1
    assert found[there][0] == "ok" and found["no-such-topic"][0] == "wrong" and "route.topics" in found["no-such-topic"][1]
    assert found["no-such-dead-letters"][0] == "wrong" and "idemsink init" in found["no-such-dead-letters"][1]


def test_check_says_what_no_dead_letter_topic_means(stack, make):
    setup = make(stack.topic(1), dead_letters=False)
    setup.command("init")
    assert check(setup)[1]["dead-letter topic"] == ("none", "the first bad record stops the process")
    setup.sections["dead_letter"] = {"on_bad_record": "skip"}
    assert "dropped" in check(setup)[1]["dead-letter topic"][1]


@pytest.mark.parametrize("section,keys,what", [
    ("kafka", {"brokers": "127.0.0.1:1"}, "kafka brokers"), ("redis", {"uri": "redis://127.0.0.1:1/0", "timeout": "500ms"}, "redis"),
    ("mongo", {"uri": "mongodb://u:hidden@127.0.0.1:1/?replicaSet=rs0", "server_selection_timeout": "500ms"}, "mongodb")])
def test_check_asks_all_and_says_which_is_away(stack, make, section, keys, what):
    topic = stack.topic(1)
    setup = make(topic)
    setup.sections["redis"] = {"uri": stack.redis_uri}
    setup.command("init")
    setup.sections[section].update(keys)
    status, found = check(setup)
    assert status == 69 and found[what][0] == "unknown" and "127.0.0.1:1" in found[what][1] and "hidden" not in str(found)
    for other in {"kafka brokers", "redis", "mongodb"} - {what}:
        assert found[other][0] == "ok"


def test_check_with_refused_credentials(stack, make):
    """77. The stack's mongod has no users, so that every user is a wrong one."""
    setup = make(stack.topic(1))
    setup.sections["mongo"]["uri"] = stack.mongo_uri.replace("mongodb://", "mongodb://user:hidden-password@")
    status, found = check(setup)
    assert status == 77 and found["mongodb"][0] == "wrong" and "hidden-password" not in str(found)
    worker = setup.start()
    assert worker.wait(30) == 77 and "hidden-password" not in worker.log_tail(1000)


def test_check_says_when_acknowledgements_are_weak(stack, make):
    setup = make(stack.topic(1))
    setup.command("init")
    setup.sections["mongo"].update(write_concern="1", journal=False)
    status, found = check(setup)
    assert found["write concern"][0] == "weak" and status == 0
