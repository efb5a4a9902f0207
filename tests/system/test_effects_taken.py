"""What other programs have stored stands in the way of a sequence: its next number, or its next text."""
import pytest
from bson.int64 import Int64
from harness import Record, wait_until

WAITS, GOES_ON = "records wait until somebody acts, others of their route go on", "records that waited for somebody go on"


@pytest.fixture
def topic(stack):
    return stack.topic(1)


def orders(make, topic, mode, counters=False):
    """Orders with a number per category and its text."""
    setup = make(topic)
    setup.sections["retry"] = {"first": "20ms", "max": "200ms"}
    name = f"tests.{setup.collection.name}"
    setup.routes[0].update(name="orders", sequence={"group": ["cat"], "field": "no", "mode": mode, "template": "{cat}-{seq:04}",
                                                    "template_field": "ref"})
    if counters:
        setup.routes[0]["counter"] = [{"collection": f"{name}_days", "filter": {"_id": "cat"}, "inc": {"orders": 1}}]
    return setup


def send(setup, *events):
    """(event, category): one after another, a lane for each category."""
    setup.stack.produce(setup.topics[0], [Record({"eventId": event, "cat": cat}, f"lane of {cat}") for event, cat in events])


def numbers(setup, cat):
    return sorted(d["no"] for d in setup.collection.find({"cat": cat, "no": {"$exists": True}}))


def dead(setup):
    """[(reason, error)]"""
    letters = [dict(m.headers()) for m in setup.stack.read_topic(setup.dead_letter_topic)]
    return [(h["idemsink.reason"].decode(), h["idemsink.error"].decode()) for h in letters]


def blocked(worker):
    return worker.metric("idemsink_route_blocked", route="orders", **{"class": "config"})


@pytest.mark.parametrize("mode,counters", [("gapless", False), ("gapless", True), ("block", True)])
def test_a_group_waits_for_its_counter(make, topic, mode, counters):
    """Its next number is another document's: it alone waits, somebody is told what to do, and it goes on by itself."""
    setup = orders(make, topic, mode, counters)
    worker = setup.start().wait_ready()
    send(setup, (1, "a"))
    setup.wait_settled()
    setup.collection.insert_one({"eventId": "foreign", "cat": "a", "no": Int64(3), "ref": "a-0003"})
    send(setup, *[(f"{cat}{i}", cat) for i in range(4) for cat in "ab"])
    wait_until(lambda: numbers(setup, "b") == [1, 2, 3, 4] and numbers(setup, "a") == [1, 2, 3], 30, "all that can be stored")
    line = worker.wait_saw(WAITS)[0]
    assert (line["level"], line["route"], line["class"], line["code"]) == ("error", "orders", "config", 11000)
    for words in ('{ "cat" : "a" }', "next number, 3, stands in no", f"{setup.collection.name}_sequences lags", "idemsink init -c FILE --raise-sequences"):
        assert words in line["to_do"], line
    status, page = worker.get("/readyz")
    assert status == 503 and "records wait until somebody acts: route orders" in page and "--raise-sequences" in page
    assert blocked(worker) == 1 and not setup.settled()
    send(setup, ("b9", "b"))  # the route is read on
    wait_until(lambda: numbers(setup, "b") == [1, 2, 3, 4, 5], 30, "the others go on")
    done = setup.command("init", "--raise-sequences")
    assert done.returncode == 0, done.stderr
    setup.wait_settled()
    worker.wait_saw(GOES_ON)
    wait_until(worker.ready, 30, "/readyz")
    assert blocked(worker) == 0
    assert numbers(setup, "a") == [1, 2, 3, 4, 5, 6] and [d["no"] for d in setup.collection.find({"cat": "a"}).sort("no")] == [1, 2, 3, 4, 5, 6]
    assert [d["eventId"] for d in setup.collection.find({"cat": "a"}).sort("no")] == [1, "a0", "foreign", "a1", "a2", "a3"]
    assert dead(setup) == []
    if counters:
        days = setup.collection.database[f"{setup.collection.name}_days"]
        assert {d["_id"]: d["orders"] for d in days.find()} == {"a": 5, "b": 5}
    assert worker.terminate() == 0


def test_a_group_that_waits_when_it_ends(make, topic):
    """--until-end comes to no end, and a signal does not wait for it: its records stay uncommitted."""
    setup = orders(make, topic, "gapless")
    setup.run_until_end()
    worker = setup.start().wait_ready()
    setup.collection.insert_one({"eventId": "foreign", "cat": "a", "no": Int64(1)})
    send(setup, (1, "a"))
    worker.wait_saw(WAITS)
    assert worker.terminate() in (0, 75) and not setup.settled()
    again = setup.start()  # and then the start says so, too
    assert again.wait(30) == 78 and "the sequence lags" in again.log_tail()
    assert setup.command("init", "--raise-sequences").returncode == 0
    setup.run_until_end()
    assert numbers(setup, "a") == [1, 2] and dead(setup) == []


def test_block_gets_past_numbers(make, topic):
    setup = orders(make, topic, "block")
    worker = setup.start().wait_ready()
    setup.collection.insert_many([{"eventId": f"foreign{i}", "cat": "a", "no": Int64(i)} for i in (2, 3, 5)])
    send(setup, *[(i, "a") for i in range(6)])
    setup.wait_settled()
    assert numbers(setup, "a") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert worker.ready() and not worker.saw(WAITS) and dead(setup) == []


@pytest.mark.parametrize("mode,last", [("gapless", 2), ("block", 3), ("max", 2)])
def test_a_text_that_another_document_has(make, topic, mode, last):
    """Never two of them: a dead letter. Without block its number is the next one's."""
    setup = orders(make, topic, mode)
    worker = setup.start().wait_ready()
    foreign = setup.collection.insert_one({"eventId": "foreign", "ref": "a-0002"}).inserted_id
    send(setup, (1, "a"), (2, "a"), (3, "b"))
    setup.wait_settled()
    (reason, error), = dead(setup)
    assert reason == "unique_conflict" and "another document has its text in ref (sequence.template_field; the number is in no)" in error
    assert "idemsink_sequence_text" in error and "a-0002" in error
    warned, = worker.saw("record dead-lettered")
    assert "sequence.template_field" in warned["error"] and "a-0002" not in str(warned)
    setup.collection.delete_one({"_id": foreign})
    send(setup, (4, "a"))
    setup.wait_settled()
    assert numbers(setup, "a") == [1, last] and numbers(setup, "b") == [1]
    assert worker.ready() and not worker.saw(WAITS)
    said = worker.saw('sequence.mode = "max" reads the highest number for each batch')
    assert [(line["level"], line["route"], line["field"]) for line in said] == ([("info", "orders", "no")] if mode == "max" else [])
    assert all('"block" is cheaper and "gapless" has no holes' in line["event"] for line in said)


@pytest.mark.parametrize("mode", ["gapless", "block"])
def test_groups_that_look_alike(make, topic, mode):
    """12 and "12" are two groups, with one text: who comes second is a dead letter, and others go on."""
    setup = orders(make, topic, mode)
    setup.start().wait_ready()
    send(setup, (1, 12))
    setup.wait_settled()
    send(setup, (2, "12"), (3, "x"), (4, 12))
    setup.wait_settled()
    assert numbers(setup, 12) == [1, 2] and numbers(setup, "x") == [1] and numbers(setup, "12") == []
    assert [reason for reason, _ in dead(setup)] == ["unique_conflict"]
    assert sorted(setup.collection.distinct("ref")) == ["12-0001", "12-0002", "x-0001"]
