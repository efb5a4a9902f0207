"""write = "upsert", "insert" and "auto": three ways to one result."""
import random

import bson
import pytest
from bson import Decimal128, Int64
from harness import Record, Setup, wait_until

MODES = ("upsert", "insert", "auto")


def raw(document):
    """Bytes by name: types and inner order count, the order at the top does not; nor an _id that was made up."""
    return sorted(bson.encode({name: value}) for name, value in document.items()
                  if not (name == "_id" and isinstance(value, bson.ObjectId)))


def contents(collection):
    documents = list(collection.find())
    for document in documents:
        document.get("place", {}).pop("topic", None)  # each mode reads a topic of its own
    return sorted(raw(document) for document in documents)


def shapes():
    """What a route's dedup is, and how an event of number i looks then."""
    return {
        "field": ({"key": ["eventId"]}, lambda i: {"eventId": f"e{i}"}),
        "two fields": ({"key": ["tenant", "n"]}, lambda i: {"tenant": f"t{i % 3}", "n": i}),
        "nested": ({"key": ["order.id"]}, lambda i: {"order": {"id": i, "line": i % 7}}),
        "_id": ({"key": ["eventId"], "into": "_id"}, lambda i: {"eventId": i}),
        "_id of two": ({"key": ["tenant", "n"], "into": "_id"}, lambda i: {"tenant": f"t{i % 3}", "n": i}),
        "_id of the payload": ({"key": ["_id"], "into": "_id"}, lambda i: {"_id": i}),
        "place": ({"key": ["@offset"], "fields": ["place"]}, lambda i: {"n": i}),
    }


def deliveries(event):
    """Events of one lane each, delivered twice in a batch and again later; every tenth has names that only an insert keeps."""
    records = []
    for round_number in range(3):
        for i in range(60):
            value = {**event(i), "content": f"delivery {round_number}"}
            if i % 10 == 3:
                value.update({"a.b": 1, "a": {}, "$x": 2, "": 3})
            records += [Record(value, f"k{i % 7}")] * (2 if round_number == 0 else 1)
    return records


class Ran:
    """Every shape in every mode, a topic each, one process; then once more from the beginning."""

    def __init__(self, stack, directory):
        self.routes = [(shape, mode) for shape in shapes() for mode in MODES]
        self.topics = {route: stack.topic(1) for route in self.routes}
        self.collections = {route: stack.collection() for route in self.routes}
        self.setup = Setup(stack, directory, list(self.topics.values()))
        self.setup.sections["worker"]["batch"] = 50
        self.setup.routes = [
            {**Setup.route([self.topics[r]], self.collections[r]), "dedup": shapes()[r[0]][0], "write": r[1]} for r in self.routes]
        for route in self.routes:
            stack.produce(self.topics[route], deliveries(shapes()[route[0]][1]))
        self.worker = self.setup.run_until_end()
        self.stored = {route: contents(self.collections[route]) for route in self.routes}
        self.setup.sections["kafka"]["group"] += "-again"
        self.again = self.setup.run_until_end()

    def books(self, worker, route):
        return next(b for b in worker.saw("books of a partition") if b["topic"] == self.topics[route])


@pytest.fixture(scope="module")
def ran(stack, tmp_path_factory):
    ran = Ran(stack, tmp_path_factory.mktemp("modes"))
    yield ran
    ran.setup.close()


@pytest.mark.parametrize("shape", shapes())
def test_three_ways_to_one_result(ran, shape):
    expected = 240 if shape == "place" else 60
    for mode in MODES:
        route = (shape, mode)
        assert ran.stored[route] == ran.stored[shape, "upsert"], mode
        assert len(ran.stored[route]) == expected
        books = ran.books(ran.worker, route)
        assert (books["inserted"], books["duplicate"], books["dead_letter"]) == (expected, 240 - expected, 0), mode
        if shape != "place":
            assert {d["content"] for d in ran.collections[route].find()} == {"delivery 0"}


def test_everything_delivered_again_changes_nothing(ran):
    for route in ran.routes:
        books = ran.books(ran.again, route)
        assert (books["consumed"], books["inserted"], books["duplicate"]) == (240, 0, 240), route
        assert contents(ran.collections[route]) == ran.stored[route]


def test_the_books_balance(ran):
    books = ran.setup.verify()
    assert books["status"] == 0 and books["different"] == books["missing"] == books["extra"] == 0


class EachMode:
    """One process with a route for each mode, the same records for each."""

    def __init__(self, stack, make, modes=MODES, partitions=1):
        self.stack, self.modes = stack, modes
        self.topics = {mode: stack.topic(partitions) for mode in modes}
        self.setup = make(list(self.topics.values()), collection=stack.collection())
        self.collections = {mode: stack.collection() for mode in modes}
        self.setup.routes = [{**Setup.route([self.topics[m]], self.collections[m]), "write": m} for m in modes]

    def produce(self, records):
        for topic in self.topics.values():
            self.stack.produce(topic, records)

    def books(self, workers, mode):
        """(inserted, duplicate, dead_letter) of a mode's topic, summed over the processes."""
        found = [b for w in workers for b in w.saw("books of a partition") if b["topic"] == self.topics[mode]]
        return tuple(sum(b[name] for b in found) for name in ("inserted", "duplicate", "dead_letter"))


def test_refusals_and_other_indexes(stack, make):
    """E11000 of another index is no duplicate; a validator's refusal costs its neighbours nothing; the next of one key is tried."""
    each = EachMode(stack, make)
    for collection in each.collections.values():
        collection.database.create_collection(collection.name, validator={"bad": {"$exists": False}})
        collection.create_index("mail", unique=True)  # older than the dedup index: the server names this one first
    records = [{"eventId": "a", "mail": "m1"}, {"eventId": "b", "mail": "m1"}, {"eventId": "c", "mail": "m2"},
               {"eventId": "d", "mail": "m3", "bad": 1}, {"eventId": "a", "mail": "m1"}, {"eventId": "d", "mail": "m4"},
               {"eventId": "c", "mail": "m9"}, {"eventId": "e", "mail": "m5"}]
    each.produce([(r, "one lane") for r in records])
    worker = each.setup.run_until_end()
    dead = [dict(m.headers()) for m in stack.read_topic(each.setup.dead_letter_topic)]
    for mode in MODES:
        assert sorted((d["eventId"], d["mail"]) for d in each.collections[mode].find()) == [
            ("a", "m1"), ("c", "m2"), ("d", "m4"), ("e", "m5")], mode
        reasons = [h["idemsink.reason"] for h in dead if h["idemsink.topic"].decode() == each.topics[mode]]
        assert sorted(reasons) == [b"unique_conflict", b"validation"], mode
        assert each.books([worker], mode) == (4, 2, 2), mode
    assert each.setup.verify()["status"] == 0


def test_documents_of_other_writers(stack, make):
    """What the server holds for equal is a duplicate: numbers of any type, and an array that holds the key."""
    each = EachMode(stack, make)
    assert each.setup.command("init").returncode == 0
    there = [1, 2.0, Int64(3), Decimal128("4.00"), Decimal128("5"), ["six", "seven"], "8"]
    for collection in each.collections.values():
        collection.insert_many([{"eventId": value, "other": True} for value in there])
    sent = [1, 2, 3, 4, 5.0, "six", "seven", "8", 8, "9", 10.0]
    each.produce([({"eventId": value}, "k") for value in sent])
    worker = each.setup.run_until_end()
    for mode in MODES:
        assert each.books([worker], mode) == (3, 8, 0), mode
        assert sorted(str(d["eventId"]) for d in each.collections[mode].find({"other": None})) == ["10.0", "8", "9"]


def commands(stack):
    """How many of each kind the server was sent so far."""
    found = stack.mongo.admin.command("serverStatus")["metrics"]["commands"]
    return {name: found[name]["total"] for name in ("insert", "update", "find")}


def test_duplicates_are_read_many_at_once(stack, make):
    """A lane full of duplicates by insert: some commands for each batch, not two for each record."""
    topic = stack.topic(1)
    stack.produce(topic, [({"eventId": f"e{i}"}, "k") for i in range(3000)])
    setup = make(topic)
    setup.routes[0].update(order_by="@partition")
    setup.run_until_end()
    for mode, most in (("insert", 60), ("auto", 40), ("upsert", 40)):
        setup.sections["kafka"]["group"] += "-again"
        setup.routes[0]["write"] = mode
        before = commands(stack)
        worker = setup.run_until_end()
        after = commands(stack)
        assert (worker.books()["duplicate"], worker.books()["inserted"]) == (3000, 0)
        sent = sum(after[name] - before[name] for name in before)
        assert sent <= most, f"{mode}: {sent} commands"


def test_two_processes_race(stack, make, seed):
    each = EachMode(stack, make, ("insert", "auto"), 4)
    each.setup.sections["worker"]["batch"] = 200
    numbers = list(range(2000))
    records = []
    for partition in range(4):
        random.shuffle(numbers)
        records += [Record({"eventId": f"e{i}", "p": partition}, f"k{i}", None, partition) for i in numbers]
    workers = [each.setup.start(), each.setup.start()]
    for worker in workers:
        worker.wait_ready()
    each.produce(records)
    each.setup.wait_settled()
    assert [worker.terminate() for worker in workers] == [0, 0]
    for mode in each.modes:
        assert each.collections[mode].count_documents({}) == 2000
        assert each.books(workers, mode) == (2000, 6000, 0)


def test_killed_in_the_middle(stack, make):
    """kill -9 while it writes: what was written and not committed is found again, and nothing twice."""
    each = EachMode(stack, make, ("insert", "auto"))
    setup = each.setup
    setup.sections["worker"].update(batch=100, commit_interval="5s")
    each.produce([({"eventId": f"e{i}"}, f"k{i}") for i in range(6000)])
    assert setup.command("init").returncode == 0
    worker = setup.start()
    wait_until(lambda: all(c.estimated_document_count() > 300 for c in each.collections.values()), 20, "first documents")
    worker.kill()
    setup.sections["kafka"]["group"] += "-again"  # the old one would first wait for the session time-out of the dead member
    last = setup.run_until_end()
    for mode in each.modes:
        assert each.collections[mode].count_documents({}) == 6000
        inserted, duplicate, dead = each.books([last], mode)
        assert inserted < 6000 and inserted + duplicate == 6000 and dead == 0
    assert setup.verify()["status"] == 0
