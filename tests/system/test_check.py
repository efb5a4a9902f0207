"""`idemsink check`: what the drivers don't take is found without a service; --connect says of each requirement whether it is met."""
import contextlib
import json
import re
import socket

import pytest
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType)
from harness import Nowhere, Setup, Somewhere

VERDICTS = "ok|wrong|can't tell|warning|none"


def check(setup, *options):
    """(status, {what: (verdict, text)})"""
    done = setup.command("check", "--connect", *options)
    found = {}
    for line in done.stdout.decode().splitlines():
        what, verdict, text = re.match(rf"(.{{34,}}?) ({VERDICTS})  *(.*)", line).groups()
        assert what.strip() not in found
        found[what.strip()] = (verdict, text)
    return done.returncode, found


def well(stack, make, partitions=3, **options):
    setup = make(stack.topic(partitions), **options)
    setup.sections["redis"] = {"uri": stack.redis_uri}
    assert setup.command("init").returncode == 0
    return setup


# --- without a service ---


@pytest.fixture
def offline(tmp_path):
    """offline(section=keys, ...) -> (status, stdout, stderr) of a check that may ask nobody."""

    def run(*options, **sections):
        setup = Setup(Nowhere, tmp_path, "orders", collection=Somewhere)
        for name, keys in sections.items():
            setup.sections.setdefault(name, {}).update(keys)
        done = setup.command("check", *options, seconds=10)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


def test_fine_without_a_service(offline):
    status, out, errors = offline()
    assert (status, errors) == (0, "") and 'brokers = "127.0.0.1:1"' in out
    assert json.loads(offline("--json")[1]) == {"checks": [], "ok": True}


def test_nobody_is_asked(offline):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        kafka, mongo, redis = (f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)
        status, out, errors = offline(kafka={"brokers": kafka}, mongo={"uri": f"mongodb://{mongo}"}, redis={"uri": f"redis://{redis}"})
        assert (status, errors) == (0, "") and kafka in out
        for s in sockets:
            s.setblocking(False)
            with pytest.raises(BlockingIOError):
                s.accept()


@pytest.mark.parametrize("sections,said", [
    ({"kafka": {"properties": {"sesion.timeout.ms": "6000"}}}, "sesion.timeout.ms"),
    ({"kafka": {"properties": {"session.timeout.ms": "soon"}}}, "session.timeout.ms"),
    ({"kafka": {"properties": {"session.timeout.ms": "99999999999"}}}, "session.timeout.ms"),
    ({"kafka": {"properties": {"session.timeout.ms": "400000", "max.poll.interval.ms": "300000"}}}, "session.timeout.ms"),
    ({"kafka": {"properties": {"security.protocol": "sals_ssl"}}}, "security.protocol"),
    ({"kafka": {"properties": {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file.pem"}}}, "ssl.ca.location"),
    ({"kafka": {"properties": {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "SCRAM-SHA-999"}}}, "sasl"),
    ({"kafka": {"properties": {"max.in.flight.requests.per.connection": "10"}}}, "max.in.flight"),
    ({"mongo": {"uri": "mongodb://127.0.0.1:99999/"}}, "mongo.uri"),
    ({"mongo": {"uri": "mongodb://127.0.0.1:1/?replicaSet=a&replicaSett"}}, "mongo.uri"),
    ({"mongo": {"uri": "mongodb://127.0.0.1:1/?socketTimeoutMS=1"}}, "socketTimeoutMS"),
    ({"mongo": {"uri": "mongodb://u:p@127.0.0.1:1/?bogus=1"}}, 'mongo.uri: libmongoc knows no such option: "bogus"'),
    ({"mongo": {"uri": "mongodb://127.0.0.1:1/?w=1&readPreferense=primary"}}, '"readpreferense"; did you mean "readpreference"?'),
    ({"mongo": {"uri": "mongodb://127.0.0.1:1/?compressors=zlib,lzw"}}, "compressors has a name"),
    ({"redis": {"uri": "redis://127.0.0.1:6379/zero"}}, "redis.uri"),
    ({"redis": {"uri": "http://127.0.0.1:6379"}}, "redis.uri")], ids=lambda v: v if isinstance(v, str) else "")
def test_the_drivers_are_asked_without_a_service(offline, sections, said):
    for options in ((), ("--connect",)):
        status, out, errors = offline(*options, **sections)
        assert status == 78 and out == "" and said in errors.splitlines()[-1] and "\n\n" not in errors, errors


# --- with services ---


def test_all_is_well(stack, make):
    setup = well(stack, make)
    topic, dead, name = setup.topics[0], setup.dead_letter_topic, setup.collection.name
    setup.routes[0]["invalidate"] = [{"mode": "pubsub", "channel": "ch:{eventId}", "payload": "{}"}, {"mode": "unlink", "keys": ["k:{eventId}"]},
                                     {"mode": "version", "keys": ["v"], "expire": "1m"}, {"mode": "stream", "stream": "s", "payload": "[]"}]
    status, found = check(setup)
    assert status == 0
    assert found.pop(f"size of {dead}")[0] == "warning"  # 4 kB for its headers
    assert {verdict for verdict, _ in found.values()} == {"ok"}, found
    assert found["kafka"][1] == "1 broker" and found[f"topic {topic}"][1] == "3 partitions" and found[f"read {topic}"][1] == "allowed"
    assert found[f"group {setup.group}"][1] == "allowed; nobody was in it yet"
    assert found[f"dead letters {dead}"][1] == "1 partition, 1 replica" and found[f"write {dead}"][1] == "allowed"
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["mongodb version"][1]) and "replica set rs0, 1 member, primary" in found["mongodb topology"][1]
    assert re.fullmatch(r"within \d+ ms of MongoDB's", found["clock"][1])
    assert found[f"dedup index of tests.{name}"][1] == "proved" and "version" in found["redis"][1]
    assert [what for what in found if what.startswith("redis ")] == ["redis PUBLISH ch:{eventId}", "redis UNLINK k:{eventId}", "redis INCR v",
                                                                    "redis EVAL v", "redis SET v", "redis PEXPIRE v", "redis XADD s"]
    # Asking left no trace.
    assert stack.ends(dead) == {0: 0} and stack.ends(topic) == {0: 0, 1: 0, 2: 0} and not stack.committed(setup.group, topic)
    stack.produce(topic, [{"eventId": "1"}])  # a group without offsets may be forgotten at any time
    setup.run_until_end()
    assert check(setup)[1][f"group {setup.group}"][1] == "allowed; 0 members, Empty"


def test_json(stack, make):
    setup = well(stack, make)
    done = setup.command("check", "--connect", "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 0 and shown["ok"] is True
    rows = {row["what"]: row for row in shown["checks"]}
    assert rows["mongodb"] == {"what": "mongodb", "verdict": "ok", "text": "a writable primary"} and len(rows) == len(shown["checks"])
    setup.routes[0]["topics"] = ["no-such-topic"]
    done = setup.command("check", "--connect", "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 1 and shown["ok"] is False
    assert [row["what"] for row in shown["checks"] if row["verdict"] == "wrong"] == ["topic no-such-topic"]


def test_long_names_keep_the_columns(stack, make):
    setup = make(stack.topic(1), collection=stack.mongo["tests"]["c" * 40])
    said = setup.command("check", "--connect").stdout.decode().splitlines()
    found = [re.match(r"(.*?)  *(ok|wrong|can't tell|warning|none)  +", line) for line in said]
    assert all(found) and len({len(line[: m.start(2)]) for line, m in zip(said, found)}) == 1, said


def test_one_partition_is_one(stack, make):
    setup = well(stack, make, partitions=1)
    assert check(setup)[1][f"topic {setup.topics[0]}"] == ("ok", "1 partition")


def test_topics_that_are_not_there(stack, make):
    there = stack.topic(1)
    setup = make([there, "no-such-topic", "neither-this"])
    setup.sections["dead_letter"]["topic"] = "no-such-dead-letters"
    status, found = check(setup)
    assert status == 1
    assert found[f"topic {there}"][0] == "ok"
    for name in ("no-such-topic", "neither-this"):  # each of them
        assert found[f"topic {name}"][0] == "wrong" and "route.topics" in found[f"topic {name}"][1]
    assert found["dead letters no-such-dead-letters"][0] == "wrong" and "idemsink init" in found["dead letters no-such-dead-letters"][1]


def test_expressions(stack, make):
    one = stack.topic(2)
    setup = make(f"^{one}$")
    setup.routes.append(Setup.route(["^no-topic-begins-so"], stack.collection()))
    setup.command("init")
    status, found = check(setup)
    assert status == 0 and found[f"topic {one}"] == ("ok", "2 partitions") and found[f"read {one}"][0] == "ok"
    assert found["topics ^no-topic-begins-so"][0] == "warning"


def test_the_dead_letter_topic_must_take_them(stack, make):
    setup = well(stack, make)
    for name, settings, line, verdict, said in (
            ("large", {"max.message.bytes": 2000000}, "size of", "ok", "2000000"),
            ("small", {"max.message.bytes": 1000}, "size of", "warning", "without its value"),
            ("insync", {"min.insync.replicas": 2}, "keeping of", "wrong", "no dead letter would ever"),
            ("compact", {"cleanup.policy": "compact"}, "keeping of", "warning", "cleanup.policy"),
            ("day", {"retention.ms": 86400000}, "keeping of", "ok", "for 1 days")):
        topic = stack.topic(1, **{key.replace(".", "_"): value for key, value in settings.items()})
        setup.sections["dead_letter"]["topic"] = topic
        status, found = check(setup)
        got = found[f"{line} {topic}"]
        assert got[0] == verdict and said in got[1], (name, got)
        assert status == (1 if verdict == "wrong" else 0)
        assert found[f"write {topic}"][0] in ("ok", "can't tell") and stack.ends(topic) == {0: 0}, name


def test_no_dead_letter_topic(stack, make):
    setup = well(stack, make, dead_letters=False)
    assert check(setup)[1]["dead letters"] == ("none", "the first bad record stops the process")
    setup.sections["dead_letter"] = {"on_bad_record": "skip"}
    assert "dropped" in check(setup)[1]["dead letters"][1]


# --- rights ---


@contextlib.contextmanager
def only(stack, kind, name, *operations):
    """Nobody may do more than these there."""

    def acl(operation, permission=AclPermissionType.ALLOW):
        return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)

    # One that allows something to somebody else takes the rest away from all others.
    acls = [acl(operation) for operation in operations] or [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:nobody", "*", AclOperation.ALL, AclPermissionType.ALLOW)]
    for future in stack.admin.create_acls(acls).values():
        future.result(10)
    try:
        yield
    finally:
        everything = AclBindingFilter(kind, name, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY)
        for future in stack.admin.delete_acls([everything]).values():
            future.result(10)


TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
DESCRIBE, READ, WRITE, CONFIGS = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS


def test_kafka_rights_that_are_missing(stack, make):
    setup = well(stack, make)
    topic, dead, group = setup.topics[0], setup.dead_letter_topic, setup.group
    for kind, name, may, line, said in (
            (TOPIC, topic, [DESCRIBE, CONFIGS], f"read {topic}", "no right to read the topic"),
            (TOPIC, topic, [], f"topic {topic}", "no right to describe the topic"),
            (GROUP, group, [], f"group {group}", "no right to"),
            (GROUP, group, [DESCRIBE], f"group {group}", "no right to read the group"),
            (TOPIC, dead, [DESCRIBE, CONFIGS], f"write {dead}", "no right to write the topic"),
            (TOPIC, dead, [], f"dead letters {dead}", "no right to describe the topic")):
        with only(stack, kind, name, *may):
            status, found = check(setup)
        assert status == 77 and found[line][0] == "wrong" and said in found[line][1] and "ACL" in found[line][1], (line, found)
        assert [what for what, (verdict, _) in found.items() if verdict == "wrong"] == [line]
    with only(stack, TOPIC, topic, DESCRIBE, READ), only(stack, GROUP, group, READ):  # enough; its settings are not
        status, found = check(setup)
        assert status == 0 and found[f"group {group}"][0] == found[f"read {topic}"][0] == "ok"
        assert found[f"size of {dead}"][0] == "can't tell" and topic in found[f"size of {dead}"][1]
    with only(stack, TOPIC, dead, WRITE):
        status, found = check(setup)
        assert status == 0 and found[f"write {dead}"][0] == found[f"size of {dead}"][0] == "can't tell"
    assert stack.ends(dead) == {0: 0}


def test_redis_rights_that_are_missing(stack, make):
    import redis
    setup = well(stack, make)
    setup.routes[0]["invalidate"] = [{"mode": "pubsub", "channel": "mine:{eventId}", "payload": "{}"},
                                     {"mode": "pubsub", "channel": "other", "payload": "{}"},
                                     {"mode": "unlink", "keys": ["mine:{eventId}", "other:{eventId}"]}]
    server = redis.Redis.from_url(stack.redis_uri)
    user = f"u{setup.group[2:]}"
    address = stack.redis_uri.split("//")[1]
    setup.sections["redis"]["uri"] = f"redis://{user}:hidden-password@{address}"
    try:
        server.set("mine:idemsink-check", "stays")
        server.execute_command("ACL", "SETUSER", user, "on", ">hidden-password", "~mine:*", "resetchannels", "&mine:*", "+ping", "+select",
                               "+multi", "+discard", "+publish", "+unlink")
        status, found = check(setup)
        assert status == 1 and found["redis"] == ("ok", "answers; it does not tell its version")
        assert found["redis PUBLISH mine:{eventId}"] == found["redis UNLINK mine:{eventId}"] == ("ok", "allowed")
        for line in ("redis PUBLISH other", "redis UNLINK other:{eventId}"):
            assert found[line][0] == "wrong" and "NOPERM" in found[line][1]
        assert server.get("mine:idemsink-check") == b"stays"
        server.execute_command("ACL", "SETUSER", user, "-multi", "allkeys", "allchannels")
        status, found = check(setup)
        assert status == 0 and found["redis PUBLISH other"][0] == "can't tell" and "MULTI" in found["redis PUBLISH other"][1]
        setup.sections["redis"]["uri"] = f"redis://{user}:hidden-wrong@{address}"
        status, found = check(setup)
        assert status == 77 and found["redis"][0] == "wrong" and "hidden" not in str(found)
    finally:
        server.execute_command("ACL", "DELUSER", user)
        server.delete("mine:idemsink-check")


# --- what is away, refuses or is weak ---


@pytest.mark.parametrize("section,keys,what", [
    ("kafka", {"brokers": "127.0.0.1:1"}, "kafka"), ("redis", {"uri": "redis://127.0.0.1:1/0", "timeout": "500ms"}, "redis"),
    ("mongo", {"uri": "mongodb://u:hidden@127.0.0.1:1/?replicaSet=rs0", "server_selection_timeout": "500ms"}, "mongodb")])
def test_all_are_asked_and_it_is_said_which_is_away(stack, make, section, keys, what):
    setup = well(stack, make)
    setup.sections[section].update(keys)
    status, found = check(setup)
    assert status == 69 and found[what][0] == "can't tell" and "127.0.0.1:1" in found[what][1] and "hidden" not in str(found)
    assert "does it run" in found[what][1] and f"{section}.{'brokers' if section == 'kafka' else 'uri'}" in found[what][1]
    for other in {"kafka", "redis", "mongodb"} - {what}:
        assert found[other][0] == "ok"


def test_refused_credentials(stack, make):
    """77. The stack's mongod has no users, so that every user is a wrong one."""
    setup = make(stack.topic(1))
    setup.sections["mongo"]["uri"] = stack.mongo_uri.replace("mongodb://", "mongodb://user:hidden-password@")
    status, found = check(setup)
    assert status == 77 and found["mongodb"][0] == "wrong" and "hidden-password" not in str(found)
    told = "MongoDB refuses the user of mongo.uri (Authentication failed.): is its name right, its password, its authSource?"
    assert found["mongodb"][1] == told
    worker = setup.start()
    assert worker.wait(30) == 77 and "hidden-password" not in worker.log_tail(1000) and told in worker.log_tail(1000)
    done = setup.command("init")
    assert done.returncode == 77 and done.stderr.decode().endswith(f"idemsink: mongodb: {told}\n")


def test_weak_write_concerns(stack, make):
    setup = well(stack, make)
    for keys, verdict, status in (({"write_concern": "1", "journal": False}, "warning", 0), ({"write_concern": "majority", "journal": False}, "warning", 0),
                                  ({"write_concern": "3", "journal": True}, "wrong", 1), ({"write_concern": "a-tag"}, "can't tell", 0)):
        setup.sections["mongo"].update(keys)
        got, found = check(setup)
        assert found["write concern"][0] == verdict and got == status, (keys, found["write concern"])


def test_an_index_that_run_makes(stack, make):
    setup = make(stack.topic(1))
    line = f"dedup index of tests.{setup.collection.name}"
    status, found = check(setup)
    assert status == 0 and found[line] == ("ok", "not there yet: run makes it (ensure_index)")
    setup.collection.create_index("eventId")  # in its way
    status, found = check(setup)
    assert status == 1 and found[line][0] == "wrong" and "not unique" in found[line][1]


def test_no_name_is_said_twice(stack, make):
    setup = make(stack.topic(1))
    setup.routes[0]["ensure_index"] = False
    name = f"tests.{setup.collection.name}"
    status, found = check(setup)
    verdict, text = found[f"dedup index of {name}"]
    assert status == 1 and verdict == "wrong" and name not in text and "idemsink init" in text
    worker = setup.start()
    assert worker.wait(20) == 78 and worker.log_tail().count(f"{name}: ") == 1
