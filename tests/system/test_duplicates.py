"""G1, G2: each event once, whichever way its deliveries meet."""
import random

from harness import Record


def event(number, content="first"):
    return {"eventId": f"e{number}", "content": content}


def test_duplicates_within_a_batch(stack, make):
    topic = stack.topic(1)
    stack.produce(topic, [(event(i % 10, f"delivery {i // 10}"), f"k{i % 10}") for i in range(500)])
    setup = make(topic)
    worker = setup.run_until_end()
    assert setup.collection.count_documents({}) == 10
    assert {d["content"] for d in setup.collection.find()} == {"delivery 0"}
    books = worker.books()
    assert (books["consumed"], books["inserted"], books["duplicate"], books["open"]) == (500, 10, 490, 0)


def test_duplicates_across_batches_and_runs(stack, make):
    topic = stack.topic(2)
    setup = make(topic)
    setup.sections["worker"]["batch"] = 10
    for delivery in range(3):
        stack.produce(topic, [(event(i, f"delivery {delivery}"), f"k{i}") for i in range(200)])
        setup.run_until_end()
    assert setup.collection.count_documents({"content": "delivery 0"}) == 200
    assert setup.collection.count_documents({}) == 200
    assert setup.verify()["status"] == 0


def test_two_processes_race_for_the_same_events(stack, make, seed):
    """Every event is in four partitions, read by two processes at the same time."""
    topic = stack.topic(4)
    setup = make(topic)
    numbers = list(range(5000))
    records = []
    for partition in range(4):
        random.shuffle(numbers)
        records += [Record(event(i), f"k{i}", None, partition) for i in numbers]
    workers = [setup.start(), setup.start()]
    for worker in workers:
        worker.wait_ready()
    stack.produce(topic, records)
    setup.wait_settled()
    assert [worker.terminate() for worker in workers] == [0, 0]
    assert setup.collection.count_documents({}) == 5000
    assert sum(worker.books()["inserted"] for worker in workers) == 5000
    assert all(worker.books()["consumed"] > 0 for worker in workers)


def test_compound_key_parts_are_never_glued(stack, make):
    topic = stack.topic(1)
    stack.produce(topic, [{"tenant": t, "id": i} for t, i in (("a", "b-c"), ("a-b", "c"), ("A1", "2"), ("A", "12"), ("a", "b-c"))])
    setup = make(topic, dedup=("tenant", "id"))
    setup.run_until_end()
    assert setup.collection.count_documents({}) == 4


def test_identity_in_id(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0]["dedup"] = {"key": ["tenant", "n"], "into": "_id"}
    stack.produce(topic, [{"tenant": "a", "n": 1, "x": x} for x in (1, 2)] + [{"tenant": "a", "n": 2, "x": 3}])
    setup.run_until_end()
    assert sorted((d["_id"]["n"], d["x"]) for d in setup.collection.find()) == [(1, 1), (2, 3)]


def test_nested_identity(stack, make):
    topic = stack.topic(1)
    setup = make(topic, dedup=("order.id",))
    stack.produce(topic, [{"order": {"id": i % 3, "pos": i}, "n": i} for i in range(9)])
    setup.run_until_end()
    assert sorted((d["order"]["id"], d["n"]) for d in setup.collection.find()) == [(0, 0), (1, 1), (2, 2)]
