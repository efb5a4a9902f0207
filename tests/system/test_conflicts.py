"""dedup.conflict: one dedup key, two payloads."""
import random

import pymongo
import pytest
from harness import Record, Setup, wait_until
from test_write_modes import MODES, EachMode

FIELD = "_payload_hash"


def checked(each, conflict, **more):
    for route in each.setup.routes:
        route["dedup"] = {"key": ["eventId"], "conflict": conflict, **more}
    return each


def event(number, content="first"):
    return {"eventId": f"e{number}", "content": content}


def reasons(stack, setup, topic):
    """{offset: reason} of the dead letters of a topic."""
    found = {}
    for message in stack.read_topic(setup.dead_letter_topic):
        headers = {name: value.decode() for name, value in message.headers()}
        if headers["idemsink.topic"] == topic:
            found[int(headers["idemsink.offset"])] = headers["idemsink.reason"]
    return found


# One lane in this order. Of e1 a harmless duplicate, written in another way, and a conflict; e2 is delivered twice and once
# otherwise; e3 is alone.
STORY = [
    b'{"eventId":"e1","content":"first","n":1}', b'{"eventId":"e2","content":"first"}', b'{"n":1.0,"content":"first","eventId":"e1"}',
    b'{"eventId":"e1","content":"second","n":1}', b'{"eventId":"e2","content":"first"}', b'{"eventId":"e3","content":"first"}',
    b'{"eventId":"e2","content":"third"}', b'{"eventId":"e2","content":"third"}',
]
CONFLICTS = [3, 6, 7]


@pytest.mark.parametrize("batch,dedup", [(1000, {}), (1, {"into": "_id"}), (2, {"key": ["eventId", "lane"]})])
def test_dead_letters(stack, make, batch, dedup):
    """In one batch, and each record in one of its own: the same in all modes."""
    each = checked(EachMode(stack, make), "dead_letter", **dedup)
    each.setup.sections["worker"]["batch"] = batch
    each.produce([(value.replace(b"}", b',"lane":1}'), "one lane") for value in STORY])
    worker = each.setup.run_until_end()
    for mode in MODES:
        assert reasons(stack, each.setup, each.topics[mode]) == {offset: "conflict" for offset in CONFLICTS}, mode
        assert each.books([worker], mode) == (3, 2, 3), mode
        documents = list(each.collections[mode].find().sort("eventId"))
        assert [(d["eventId"], d["content"]) for d in documents] == [("e1", "first"), ("e2", "first"), ("e3", "first")]
        assert all(isinstance(d[FIELD], bytes) and len(d[FIELD]) == 16 for d in documents)
    assert each.setup.verify()["status"] == 0


def test_counted(stack, make):
    """Conflicts are counted beside the outcomes, and the books add up. Delivered again, only what was a conflict is one."""
    each = checked(EachMode(stack, make), "count")
    each.produce([(value, "one lane") for value in STORY])
    for _ in range(2):
        worker = each.setup.start().wait_ready()
        wait_until(each.setup.settled, 30, "everything committed")
        for mode, route in zip(MODES, each.setup.routes):
            name = route["collection"]
            assert worker.metric("idemsink_conflicts_total", route=name) == 3, mode
            inserted = worker.metric("idemsink_records_total", route=name, outcome="inserted")
            duplicate = worker.metric("idemsink_records_total", route=name, outcome="duplicate")
            assert (inserted + duplicate, each.collections[mode].count_documents({})) == (8, 3)
        assert worker.saw("another payload")
        assert worker.terminate() == 0
        each.setup.sections["kafka"]["group"] += "-again"
        each.setup.group += "-again"
    assert each.setup.verify()["status"] == 0


def test_documents_from_before_the_check(stack, make):
    """A document without a hash is no conflict, and verify minds neither its lack nor its being there."""
    each = EachMode(stack, make)
    each.produce([(event(i), "k") for i in range(5)])
    each.setup.run_until_end()
    checked(each, "dead_letter")
    each.produce([(event(i, "other"), "k") for i in range(10)])
    worker = each.setup.run_until_end()
    for mode in MODES:
        assert each.books([worker], mode) == (5, 5, 0), mode
        assert each.collections[mode].count_documents({FIELD: {"$exists": True}}) == 5
    assert each.setup.verify()["status"] == 0
    checked(each, "off")  # and off again
    assert each.setup.verify()["status"] == 0


def test_what_is_put_beside_the_payload_is_no_difference(stack, make):
    """A producer's repetition has another offset, time, key and headers."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0].update(source_fields="source", set={"where.key": "@key", "where.header": "@header.h", "offset": "@offset"},
                           dedup={"key": ["eventId"], "conflict": "dead_letter", "conflict_field": "hash"})
    stack.produce(topic, [Record(event(1), "a", [("h", b"1")]), Record(event(1), "b", [("h", b"2")]), Record(event(1, "no"), "a")])
    worker = setup.run_until_end()
    assert (worker.books()["duplicate"], worker.books()["dead_letter"]) == (1, 1)
    document = setup.collection.find_one()
    assert (document["source"]["offset"], document["offset"], len(document["hash"])) == (0, 0, 16)
    assert setup.verify()["status"] == 0


def test_a_payload_with_that_field(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0]["dedup"]["conflict"] = "count"
    stack.produce(topic, [(event(0), "k"), ({**event(1), FIELD: "mine"}, "k"), (event(2), "k")])
    setup.run_until_end()
    assert reasons(stack, setup, topic) == {1: "unsafe_name"}
    assert setup.collection.count_documents({}) == 2


def test_two_processes(stack, make, seed):
    """Every event in four partitions, in two payloads: which is first nobody knows, but each other one is a conflict once."""
    each = checked(EachMode(stack, make, partitions=4), "count")
    each.setup.sections["worker"]["batch"] = 100
    numbers = list(range(400))
    records = []
    for partition in range(4):
        random.shuffle(numbers)
        records += [Record(event(i, "even" if partition % 2 else "odd"), f"k{i}", None, partition) for i in numbers]
    workers = [each.setup.start(), each.setup.start()]
    for worker in workers:
        worker.wait_ready()
    each.produce(records)
    each.setup.wait_settled()
    for mode, route in zip(MODES, each.setup.routes):
        assert each.collections[mode].count_documents({}) == 400
        # Two deliveries of each event are of the payload that was not stored.
        assert sum(w.metric("idemsink_conflicts_total", route=route["collection"]) for w in workers) == 800, mode
    assert [worker.terminate() for worker in workers] == [0, 0]


def test_reads_that_fail(stack, make):
    """The check waits until it can be made: nothing is settled unchecked, dead-lettered twice or in another order."""
    each = checked(EachMode(stack, make), "dead_letter")
    each.setup.sections["mongo"]["uri"] += "&appName=checked"
    each.setup.sections["retry"]["max"] = "200ms"
    each.produce([(STORY[0], "one lane")])
    each.setup.run_until_end()
    each.produce([(value, "one lane") for value in STORY[1:]])
    client = pymongo.MongoClient(stack.mongo_uri)
    client.admin.command("configureFailPoint", "failCommand", mode={"times": 9},
                         data={"failCommands": ["find"], "errorCode": 11602, "appName": "checked"})
    worker = each.setup.run_until_end()
    client.admin.command("configureFailPoint", "failCommand", mode="off")
    client.close()
    for mode in MODES:
        assert reasons(stack, each.setup, each.topics[mode]) == {offset: "conflict" for offset in CONFLICTS}, mode
        inserted, duplicate, dead = each.books([worker], mode)
        assert (inserted + duplicate, dead) == (4, 3)
        assert [d["content"] for d in each.collections[mode].find()] == ["first"] * 3
    assert worker.saw("will be sent again")


def test_explain_knows(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0].update(write="auto", source_fields="source",
                           dedup={"key": ["eventId"], "conflict": "dead_letter", "conflict_field": "h"})
    stack.produce(topic, [(event(1), "k")])
    setup.run_until_end()

    def explain(value):
        done = setup.command("explain", "--topic", topic, "--connect", stdin=value)
        return done.returncode, done.stdout.decode()

    status, text = explain(b'{"content":"first","eventId":"e1"}')
    assert status == 0 and "find by the dedup key, and insert" in text and "a dead letter" not in text
    status, text = explain(b'{"content":"other","eventId":"e1"}')
    assert status == 1 and "of another payload: a dead letter (conflict)" in text
    assert "content: another value" in text and "h: another value" in text
    setup.routes[0]["dedup"]["conflict"] = "count"
    status, text = explain(b'{"content":"other","eventId":"e1"}')
    assert status == 0 and "a duplicate and a conflict" in text


def test_two_routes_into_one_collection_share_the_check(stack, make):
    topic, other = stack.topic(1), stack.topic(1)
    setup = make([topic, other])
    setup.routes = [Setup.route([topic], setup.collection), {**Setup.route([other], setup.collection), "name": "other"}]
    setup.routes[0]["dedup"]["conflict"] = "count"
    done = setup.command("check")
    assert done.returncode == 78 and b"goes into the same collection" in done.stderr
    setup.routes[1]["dedup"]["conflict"] = "count"
    assert setup.command("check").returncode == 0
