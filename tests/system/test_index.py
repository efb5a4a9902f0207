"""The dedup index is proved at start, or the process refuses with the text that helps."""
import datetime
import re

import bson
import pytest
from fake_mongos import FakeMongos

CASES = [
    ("missing", lambda c: c.create_index("other"), "idemsink init"),
    ("not unique", lambda c: c.create_index("eventId"), "unique"),
    ("partial", lambda c: c.create_index("eventId", unique=True, partialFilterExpression={"x": 1}), "partial"),
    ("sparse", lambda c: c.create_index("eventId", unique=True, sparse=True), "sparse"),
    ("other fields", lambda c: c.create_index([("eventId", 1), ("x", 1)], unique=True), "eventId"),
    ("ttl", lambda c: c.create_index("eventId", unique=True, expireAfterSeconds=60), "removes documents"),
    ("collation", lambda c: c.create_index("eventId", unique=True, collation={"locale": "en", "strength": 1}), "collation"),
]


@pytest.mark.parametrize("name,prepare,text", CASES, ids=[name for name, _, _ in CASES])
def test_refuses_to_start(stack, make, name, prepare, text):
    setup = make(stack.topic(1))
    setup.routes[0]["ensure_index"] = False
    prepare(setup.collection)
    worker = setup.start()
    assert worker.wait(20) == 78
    assert text in worker.log_tail() and setup.collection.name in worker.log_tail()


@pytest.mark.parametrize("options", [{}, {"hidden": True}, {"name": "any name"}], ids=str)
def test_accepts_what_keeps_the_key_unique(stack, make, options):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0]["ensure_index"] = False
    setup.collection.create_index("eventId", unique=True, **options)
    stack.produce(topic, [{"eventId": "e"}] * 3)
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 1


def test_order_of_the_fields_does_not_count(stack, make):
    topic = stack.topic(1)
    setup = make(topic, dedup=("a", "b"))
    setup.routes[0]["ensure_index"] = False
    setup.collection.create_index([("b", -1), ("a", 1)], unique=True)
    stack.produce(topic, [{"a": 1, "b": 2}] * 3)
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 1


def test_init_makes_index_and_dead_letter_topic_and_is_idempotent(stack, make):
    topic = stack.topic(5)
    setup = make(topic, dead_letters=False)
    setup.routes[0]["ensure_index"] = False
    setup.sections["dead_letter"]["topic"] = dead = f"{topic}.dead"
    name = f"tests.{setup.collection.name}"
    for index, letters in (("made", "made, max.message.bytes 1052684"), ("there and right", "was there")):
        done = setup.command("init")
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode().splitlines() == [f"dedup index of {name}: {index}", f"dead-letter topic {dead}: {letters}"]
    assert len(stack.admin.list_topics(timeout=60).topics[dead].partitions) == 5
    index = [i for i in setup.collection.list_indexes() if i["name"] != "_id_"]
    assert len(index) == 1 and index[0]["unique"] and dict(index[0]["key"]) == {"eventId": 1}
    done = setup.command("check", "--connect")
    assert done.returncode == 0 and b" warning " not in done.stdout.replace(b"mongodb topology", b"")


def test_init_makes_a_dead_letter_topic_that_takes_the_largest_record(stack, make):
    large = stack.topic(1, max_message_bytes=3000000)
    setup = make([stack.topic(2), large], dead_letters=False)
    setup.sections["dead_letter"]["topic"] = dead = f"{large}.dead"
    assert f"{dead}: made, max.message.bytes 3004096" in setup.command("init").stdout.decode()
    said = setup.command("check", "--connect").stdout.decode()
    assert re.search(rf"size of {dead} +ok +max.message.bytes is 3004096\n", said), said


def test_init_leaves_a_topic_that_is_there(stack, make):
    setup = make(stack.topic(1, max_message_bytes=3000000), dead_letters=False)
    setup.sections["dead_letter"]["topic"] = dead = stack.topic(1, max_message_bytes=5000)
    assert f"dead-letter topic {dead}: was there" in setup.command("init").stdout.decode()
    said = setup.command("check", "--connect").stdout.decode()
    assert "max.message.bytes is 5000," in said, said


def test_init_says_which_topic_is_not_there(stack, make):
    there = stack.topic(1)
    setup = make([there, "no-such-topic"], dead_letters=False)
    done = setup.command("init")
    warnings = [line for line in done.stdout.decode().splitlines() if line.startswith("warning")]
    assert done.returncode == 0 and len(warnings) == 1 and "topic no-such-topic: not there" in warnings[0]
    setup.sections["kafka"]["brokers"] = "127.0.0.1:9"  # init has nothing to make there
    done = setup.command("init")
    assert done.returncode == 0 and b"can't tell whether they are there" in done.stdout


def test_init_says_when_duplicates_are_there_already(stack, make):
    setup = make(stack.topic(1))
    setup.collection.insert_many([{"eventId": 1}, {"eventId": 1}])
    done = setup.command("init")
    assert done.returncode == 78 and b"equal values" in done.stderr


def test_capped_collection_is_refused(stack, make):
    setup = make(stack.topic(1))
    setup.collection.database.create_collection(setup.collection.name, capped=True, size=1 << 20)
    setup.collection.create_index("eventId", unique=True)
    worker = setup.start()
    assert worker.wait(20) == 78 and "capped" in worker.log_tail()


def test_unique_conflict_on_another_index_is_no_duplicate(stack, make):
    """H-001: e1 and e2 share an email; e2 must not be counted as already there. A redelivery of e1 must."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.collection.create_index("email", unique=True)  # made before ours: the server will name this one
    stack.produce(topic, [{"eventId": e, "email": "x@example.test"} for e in ("e1", "e2", "e1")] + [{"eventId": "e3", "email": "y"}])
    worker = setup.run_until_end()
    assert sorted(d["eventId"] for d in setup.collection.find()) == ["e1", "e3"]
    books = worker.books()
    assert (books["inserted"], books["duplicate"], books["dead_letter"]) == (2, 1, 1)
    dead = stack.read_topic(setup.dead_letter_topic)
    assert [dict(m.headers())["idemsink.reason"] for m in dead] == [b"unique_conflict"]
    assert setup.verify()["status"] == 0


def test_check_connect_names_what_is_wrong(stack, make):
    setup = make(stack.topic(1))
    setup.routes[0]["ensure_index"] = False
    setup.collection.create_index("eventId")
    done = setup.command("check", "--connect")
    assert done.returncode == 1
    line = [l for l in done.stdout.decode().splitlines() if l.startswith("dedup index")][0]
    assert " wrong " in line and "unique" in line


# --- a sharded cluster, as far as one can be had without mongos ---


@pytest.fixture
def mongos(stack):
    fake = FakeMongos(int(stack.mongo_uri.split("127.0.0.1:")[1].split("/")[0]))
    yield fake
    fake.close()


def shard(mongos, setup, key, **more):
    """As a 6.0 lists it."""
    name = f"{setup.collection.database.name}.{setup.collection.name}"
    mongos.sharded[name] = {"_id": name, "lastmodEpoch": bson.ObjectId(), "lastmod": datetime.datetime(2026, 1, 1), "timestamp": bson.Timestamp(1, 1),
                            "uuid": bson.Binary(bytes(16), 4), "key": key, "unique": False, "noBalance": False, **more}
    return name


@pytest.mark.parametrize("key", [None, {"eventId": 1}, {"eventId": "hashed"}, {"eventId": 1, "tenant": 1}, {"tenant": 1}], ids=str)
def test_a_shard_key_within_the_dedup_key(stack, make, mongos, key):
    topic = stack.topic(1)
    setup = make(topic, dedup=("eventId", "tenant"))
    setup.sections["mongo"]["uri"] = mongos.uri()
    if key:
        shard(mongos, setup, key)
    stack.produce(topic, [{"eventId": "e", "tenant": "t"}] * 3)
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 1
    assert mongos.asked[-1] == {"_id": f"tests.{setup.collection.name}"}


@pytest.mark.parametrize("into_id", [False, True])
def test_a_shard_key_outside_of_the_dedup_key(stack, make, mongos, into_id):
    """Two equal keys could live on two shards, where no index sees both."""
    setup = make(stack.topic(1))
    setup.sections["mongo"]["uri"] = mongos.uri()
    if into_id:
        setup.routes[0]["dedup"]["into"] = "_id"
    name = shard(mongos, setup, {"eventId": 1, "region": 1} if not into_id else {"eventId": 1})
    for command in (["check", "--connect"], ["init"]):
        done = setup.command(*command)
        text = (done.stdout + done.stderr).decode()
        assert done.returncode != 0 and f"{name} is sharded by {'eventId' if into_id else 'region'}" in text
    worker = setup.start()
    assert worker.wait(20) == 78 and "is sharded by" in worker.log_tail() and "add it to dedup.key" in worker.log_tail()


def test_config_collections_that_may_not_be_read(stack, make, mongos):
    topic = stack.topic(1)
    setup = make(topic)
    setup.sections["mongo"]["uri"] = mongos.uri()
    mongos.refused = True
    worker = setup.start()
    assert worker.wait(20) == 77
    text = worker.log_tail()
    assert "no right to find in config.collections (role clusterMonitor has it)" in text and "trust_index = true" in text
    setup.routes[0]["trust_index"] = True
    stack.produce(topic, [{"eventId": "e"}] * 3)
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 1
