"""Counters, sequences and operations by transaction: several processes, duplicates, old deliveries; in the end the truth, exactly."""
import random

import pytest
from bson.int64 import Int64
from effects import Follows, Orders, Topic, wait_committed
from harness import Record, Setup

PARTITIONS = 4


class Likes(Topic):
    """Events that count one for who does it and points for what is liked; `hot`: every third for one thing."""

    def lane_of(self, value):
        return value["who"]

    def rules(self):
        things = f"tests.{self.name}_things"
        return {
            "name": self.name, "order_by": "who",
            "counter": [{"collection": f"tests.{self.name}_people", "filter": {"_id": "who"}, "inc": {"given": 1}},
                        {"collection": things, "filter": {"_id": "thing"}, "inc": {"likes": 1, "points": "points"}}],
        }

    def make(self, count):
        made = []
        for _ in range(count):
            who = f"u{random.randrange(100)}"
            thing = "hot" if random.random() < 0.33 else f"t{random.randrange(300)}"
            made.append((who, {"eventId": f"e{self.number()}", "who": who, "thing": thing, "points": random.randrange(-5, 20)}))
        return made

    def check(self):
        events = list(self.distinct())
        assert self.documents.count_documents({}) == len(events)
        given, things = {}, {}
        for value in events:
            given[value["who"]] = (given.get(value["who"], (0,))[0] + 1,)
            likes, points = things.get(value["thing"], (0, 0))
            things[value["thing"]] = (likes + 1, points + value["points"])
        assert self.counters("people", ["given"]) == given
        assert self.counters("things", ["likes", "points"]) == things


def setup_of(stack, directory, topics, **worker):
    setup = Setup(stack, directory, [t.topic for t in topics], collection=topics[0].documents)
    setup.routes = [t.route() for t in topics]
    setup.sections["worker"].update({"batch": 100, "threads": 2, **worker})
    return setup


def test_two_processes_count_each_event_once(stack, tmp_path, seed):
    """Three ways at once, hot counters and groups in all of them, everything delivered again in the middle."""
    likes = Likes(stack, PARTITIONS, "transaction")
    follows = Follows(stack, PARTITIONS, None)  # auto: a replica set has transactions
    orders = Orders(stack, PARTITIONS, None, "gapless", True)
    topics = [likes, follows, orders]
    setup = setup_of(stack, tmp_path, topics)
    try:
        workers = [setup.start() for _ in range(2)]
        for _ in range(3):
            for topic in topics:
                topic.send(topic.make(400))
                topic.send_old(150)
        wait_committed(stack, setup.group, topics, 40)
        likes.check()
        follows.check()
        orders.check(crashed=False)
        assert [w.terminate() for w in workers] == [0, 0]
        ways = {line["route"]: line["way"] for line in workers[0].saw("effects of a route")}
        assert ways == {t.name: "transaction" for t in topics}
    finally:
        setup.close()


def test_what_was_there_before_the_group_is_not_counted_again(stack, tmp_path, seed):
    """The whole topic once more, by another group: nothing moves."""
    topics = [Likes(stack, 2, None), Follows(stack, 2, None), Orders(stack, 2, None, "gapless", False)]
    setup = setup_of(stack, tmp_path, topics)
    try:
        for topic in topics:
            topic.send(topic.make(150))
        first = setup.run_until_end()
        setup.sections["kafka"]["group"] += "-again"
        again = setup.run_until_end()
        for topic in topics:
            topic.check()
        books = [line for line in again.saw("books of a partition")]
        assert sum(b["inserted"] for b in books) == 0
        assert sum(b["duplicate"] for b in books) == sum(t.deliveries for t in topics)
        assert sum(b["inserted"] for b in first.saw("books of a partition")) == sum(len(list(t.distinct())) for t in topics)
    finally:
        setup.close()


def test_an_old_follow_undoes_no_unfollow(stack, tmp_path):
    """Delivered again in a batch of its own, when everything else is long done."""
    topic = Follows(stack, 1, None)
    setup = setup_of(stack, tmp_path, [topic])
    try:
        follow, unfollow = topic.event("follow", "a", "b"), topic.event("unfollow", "a", "b")
        for batch in ([follow], [unfollow], [follow], [topic.event("unfollow", "x", "b"), topic.event("follow", "a", "c")], [follow]):
            topic.send(batch)
            setup.run_until_end()
        topic.check()
        assert topic.documents.count_documents({"from": "a", "to": "b"}) == 0
        assert topic.counters("users", ["following", "followers"]) == {"a": (1, 0), "c": (0, 1)}
        setup.sections["kafka"]["group"] += "-again"
        setup.run_until_end()
        topic.check()
    finally:
        setup.close()


@pytest.mark.parametrize("effects", ["transaction", "log"])
def test_an_event_counts_again_after_the_ledger_has_forgotten_it(stack, tmp_path, effects):
    """What docs/effects.md says of ledger_expire. TTL takes a minute and pruning an attempt; here it is done by hand."""
    topic = Follows(stack, 1, effects)
    setup = setup_of(stack, tmp_path, [topic])
    try:
        follow, unfollow = topic.event("follow", "a", "b"), topic.event("unfollow", "a", "b")
        for batch in ([follow], [unfollow], [follow]):
            topic.send(batch)
            setup.run_until_end()
        topic.check()
        assert topic.documents.count_documents({}) == 0
        assert topic.ledger.delete_one({"_id": follow[1]["eventId"]}).deleted_count == 1
        topic.db[f"{topic.name}_users"].update_many({"_applied": {"$exists": True}}, {"$set": {"_applied": []}})
        topic.send([follow])
        setup.run_until_end()
        assert topic.documents.count_documents({"from": "a", "to": "b", "eventId": follow[1]["eventId"]}) == 1
        assert topic.counters("users", ["following", "followers"]) == {"a": (1, 0), "b": (0, 1)}
        assert topic.ledger.find_one({"_id": follow[1]["eventId"]})["did"] is True
    finally:
        setup.close()


def test_a_tombstone_removes_its_document(stack, tmp_path):
    """tombstone = "delete": the key is the entity, the place of the record is the event."""
    name, topic = stack.collection(), stack.topic(1)
    people = name.database[f"{name.name}_people"]
    setup = Setup(stack, tmp_path, topic, collection=name)
    setup.routes = [{
        "topics": [topic], "collection": f"{name.database.name}.{name.name}", "ensure_index": True,
        "dedup": {"key": ["@offset"]}, "order_by": "@key", "tombstone": "delete", "entity": {"key": ["@key"], "fields": ["key"]},
        "set": {"key": "@key"},
        "counter": [{"collection": f"{people.database.name}.{people.name}", "filter": {"_id": "@topic"}, "inc": {"there": 1}}],
    }]
    try:
        stack.produce(topic, [Record({"n": 1}, "a"), Record({"n": 2}, "b"), Record(None, "a"), Record(None, "nobody"),
                              Record({"n": 3}, "c"), Record({"n": 4}, "b")])
        setup.run_until_end()
        assert sorted((d["key"], d["n"]) for d in name.find()) == [("b", 2), ("c", 3)]
        assert people.find_one({"_id": topic})["there"] == 2
        stack.produce(topic, [Record(None, "b"), Record({"n": 5}, "a")])
        setup.run_until_end()
        assert sorted((d["key"], d["n"]) for d in name.find()) == [("a", 5), ("c", 3)]
        assert people.find_one({"_id": topic})["there"] == 2
    finally:
        setup.close()


def test_a_counter_that_is_not_there(stack, tmp_path):
    """upsert = false: what it would have got is dropped, and said."""
    topic = Likes(stack, 1, None)
    setup = setup_of(stack, tmp_path, [topic])
    setup.routes[0]["counter"][1]["upsert"] = False
    things = topic.db[f"{topic.name}_things"]
    things.insert_one({"_id": "known", "likes": Int64(5)})
    try:
        topic.send([("u1", {"eventId": "a", "who": "u1", "thing": "known", "points": 2}),
                    ("u1", {"eventId": "b", "who": "u1", "thing": "unknown", "points": 2})])
        worker = setup.start()
        setup.wait_settled()
        assert list(things.find()) == [{"_id": "known", "likes": 6, "points": 2}]
        assert topic.documents.count_documents({}) == 2
        assert worker.metric("idemsink_counters_missing_total", route=topic.name) == 1
        assert worker.metric("idemsink_transactions_total", route=topic.name) >= 1
        worker.wait_saw("counter documents are not there, and upsert = false: what they would have got is dropped "
                        "(idemsink reconcile finds what is missing)")
    finally:
        setup.close()


@pytest.mark.parametrize("mode", ["block", "max"])
def test_numbers_beside_counters(stack, tmp_path, mode, seed):
    """With counters they are given in the transaction, too: no hole either."""
    topic = Orders(stack, 2, None, mode, True)
    setup = setup_of(stack, tmp_path, [topic])
    try:
        topic.send(topic.make(200))
        topic.send_old(50)
        setup.run_until_end()
        topic.check(crashed=False)
    finally:
        setup.close()
