"""
What the tests of effects share: relations with counters, and numbered orders with sums. Each is the only writer of its topic
and says which partition a record goes to, so that it knows in which order every lane was written: the truth.
"""
import collections
import random
import uuid

import redis
from bson.int64 import Int64
from harness import Record, wait_until

LOG = {"attempt": "1s", "sweep_after": "2s"}


def short_transactions(stack, seconds=1):
    """
    A killed process leaves its open transaction to the server, which holds its counters until transactionLifetimeLimitSeconds (60)
    are over: nobody wants to wait so long here.
    """
    stack.mongo.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": seconds})


class Topic:
    """A topic, its records by partition as they were sent, and collections with names of their own."""

    redis = False
    needs_redelivery = False  # of what it had in hand when it was killed
    counted = ()  # the fields of its users

    def __init__(self, stack, partitions, effects):
        self.stack, self.effects, self.partitions = stack, effects, partitions
        self.topic = stack.topic(partitions)
        self.db = stack.mongo["tests"]
        self.name = f"e-{uuid.uuid4().hex[:10]}"
        self.documents = self.db[self.name]
        self.log = {p: [] for p in range(partitions)}
        self.numbers = 0

    def send(self, values):
        """[(lane, value)] in this order."""
        records = []
        for lane, value in values:
            partition = sum(lane.encode()) % self.partitions
            self.log[partition].append(value)
            records.append(Record(value, lane, None, partition))
        self.stack.produce(self.topic, records, **{"enable.idempotence": True})

    def send_old(self, count):
        """Redelivers some that were sent at any time before."""
        everything = [value for log in self.log.values() for value in log]
        self.send((self.lane_of(value), value) for value in random.choices(everything, k=count))

    def distinct(self):
        """The events in the order of their lanes, each the first time it is there."""
        seen = set()
        for log in self.log.values():
            for value in log:
                if value["eventId"] not in seen:
                    seen.add(value["eventId"])
                    yield value

    @property
    def deliveries(self):
        return sum(map(len, self.log.values()))

    def route(self):
        return {"topics": [self.topic], "collection": f"tests.{self.name}", "ensure_index": True,
                "dedup": {"key": ["eventId"]}, **({"effects": self.effects} if self.effects else {}), **self.rules()}

    def number(self):
        self.numbers += 1
        return self.numbers

    def open_effects(self):
        """What log mode has begun and not finished."""
        return self.documents.count_documents({"_effects": {"$exists": True}})

    def check_killed(self):
        """Right behind a kill: what may be left."""

    def check_ended(self):
        """All is committed, and nobody runs any more."""

    def damage(self):
        """One of its users gets wrong counters; who."""
        return self.db[f"{self.name}_users"].find_one_and_update({}, {"$inc": {**dict.fromkeys(self.counted, Int64(5)), "_version": Int64(1)}})["_id"]

    def wait_closed(self, seconds=30):
        wait_until(lambda: self.open_effects() == 0, seconds, "everything that was begun is finished")

    def counters(self, collection, fields):
        """{_id: values} of counter documents that are not all 0; every one is an int64."""
        found = {}
        for document in self.db[f"{self.name}_{collection}"].find():
            values = [document.get(field, Int64(0)) for field in fields]
            assert all(type(value) is Int64 for value in values), document
            if any(values):
                found[document["_id"]] = tuple(values)
        return found


class Follows(Topic):
    """Relations that events add and remove; two counters. `hot` people are in every third event."""

    counted = ("following", "followers")

    def lane_of(self, value):
        return value["from"]

    def rules(self):
        users = f"tests.{self.name}_users"
        return {
            "name": self.name, "order_by": "from", "entity": {"key": ["from", "to"]},
            "operation": {"source": "op", "insert": ["follow"], "delete": ["unfollow"]},
            "counter": [{"collection": users, "filter": {"_id": "from"}, "inc": {"following": 1}},
                        {"collection": users, "filter": {"_id": "to"}, "inc": {"followers": 1}}],
        }

    def event(self, op, source, target):
        return source, {"eventId": f"e{self.number()}", "op": op, "from": source, "to": target}

    def make(self, count, people=200, hot=2):
        made = []
        for _ in range(count):
            target = random.randrange(hot) if random.random() < 0.33 else random.randrange(people)
            op = "follow" if random.random() < 0.65 else "unfollow"
            made.append(self.event(op, f"u{random.randrange(people)}", f"u{target}"))
        return made

    def some(self, tag):
        """A few with everything in it: again, and back, an old one again, and one that is removed some batches (of 4) later."""
        a, b, c = (f"{tag}{x}" for x in "abc")
        first = self.event("follow", a, c)
        return [first, self.event("follow", b, c), first, self.event("unfollow", b, a), self.event("unfollow", a, c), first,
                self.event("follow", a, b), self.event("follow", a, b), self.event("follow", b, a),
                self.event("unfollow", b, c), self.event("follow", b, c), *(self.event("follow", b, f"{tag}{i}") for i in range(4)),
                self.event("unfollow", b, a)]

    def truth(self):
        """{relation: event}, {event: whether it did something}."""
        relations, did = {}, {}
        for value in self.distinct():
            pair, event = (value["from"], value["to"]), value["eventId"]
            there = pair in relations
            did[event] = there != (value["op"] == "follow")
            if did[event]:
                relations.pop(pair) if there else relations.update({pair: event})
        return relations, did

    def open_effects(self):
        return super().open_effects() + self.ledger.count_documents({"_effects": {"$exists": True}})

    @property
    def ledger(self):
        return self.db[f"{self.name}_ledger"]

    def check(self, crashed=True):
        relations, did = self.truth()
        found = {(d["from"], d["to"]): d["eventId"] for d in self.documents.find()}
        assert self.documents.count_documents({}) == len(relations)
        assert found == relations
        assert {d["_id"]: d["did"] for d in self.ledger.find()} == did
        following = collections.Counter(source for source, _ in relations)
        followers = collections.Counter(target for _, target in relations)
        expected = {p: (following[p], followers[p]) for p in {*following, *followers}}
        assert self.counters("users", ["following", "followers"]) == expected


class Orders(Topic):
    """Orders with a number in their category; with `sums`, what a customer spent. `hot`: half of them are in one category."""

    counted = ("orders", "spent")

    def __init__(self, stack, partitions, effects, mode, sums):
        super().__init__(stack, partitions, effects)
        self.mode, self.sums = mode, sums

    def lane_of(self, value):
        return value["customer"]

    def rules(self):
        rules = {"name": self.name, "order_by": "customer",
                 "sequence": {"field": "number", "group": ["category"], "mode": self.mode,
                              "template": "{category}-{seq:04}", "template_field": "reference"}}
        if self.sums:
            rules["counter"] = [{"collection": f"tests.{self.name}_users", "filter": {"_id": "customer"},
                                 "inc": {"orders": 1, "spent": "cents"}}]
        return rules

    def event(self, customer, category):
        return customer, {"eventId": f"e{self.number()}", "customer": customer, "category": category,
                          "cents": random.randrange(1, 1000)}

    def make(self, count, people=200, categories=20):
        return [self.event(f"u{random.randrange(people)}", f"c{0 if random.random() < 0.5 else random.randrange(categories)}")
                for _ in range(count)]

    def some(self, tag):
        first = self.event(f"{tag}a", f"{tag}x")
        return [first, self.event(f"{tag}b", f"{tag}x"), first, self.event(f"{tag}a", f"{tag}y"), self.event(f"{tag}a", f"{tag}x"),
                first, self.event(f"{tag}b", f"{tag}y")]

    def check(self, crashed=True):
        """crashed: whether mode block may have holes."""
        events = {value["eventId"]: value for value in self.distinct()}
        groups = collections.defaultdict(list)
        stored = list(self.documents.find({}, {"_id": 0}))
        for d in stored:
            assert type(d["number"]) is Int64
            assert d["reference"] == f"{d['category']}-{d['number']:04}"
            groups[d["category"]].append(d["number"])
            assert {k: v for k, v in d.items() if k not in ("number", "reference")} == events[d["eventId"]], d
        assert len(stored) == len({d["eventId"] for d in stored}) == len(events)
        last = {} if self.mode == "max" else {c["_id"]["category"]: c["n"] for c in self.db[f"{self.name}_sequences"].find()}
        for category, numbers in groups.items():
            numbers.sort()
            if self.mode == "block" and crashed:
                assert len(set(numbers)) == len(numbers) and numbers[0] >= 1 and last[category] >= numbers[-1]
            else:
                assert numbers == list(range(1, len(numbers) + 1)), (category, numbers)
                assert last.get(category, len(numbers)) == len(numbers)
        if self.sums:
            expected = collections.defaultdict(lambda: [0, 0])
            for value in events.values():
                expected[value["customer"]][0] += 1
                expected[value["customer"]][1] += value["cents"]
            assert self.counters("users", ["orders", "spent"]) == {c: tuple(s) for c, s in expected.items()}


class Plain(Topic):
    """Documents alone."""

    def lane_of(self, value):
        return value["lane"]

    def rules(self):
        return {"name": self.name, "order_by": "lane"}

    def event(self, lane):
        return lane, {"eventId": f"e{self.number()}", "lane": lane}

    def some(self, tag):
        first = self.event(f"{tag}a")
        return [first, self.event(f"{tag}b"), first, self.event(f"{tag}a")]

    def check(self, crashed=True):
        stored = sorted(d["eventId"] for d in self.documents.find())
        assert stored == sorted(value["eventId"] for value in self.distinct())


class Told(Plain):
    """Documents, and keys in Redis that are removed with each."""

    redis = True

    def rules(self):
        return {**super().rules(), "invalidate": [{"mode": "unlink", "keys": [self.name + ":{lane}"], "delivery": "before_commit",
                                                   "coalesce": "0s", "repeat_after": "0s"}]}

    def send(self, values):
        values = list(values)
        redis.Redis.from_url(self.stack.redis_uri).mset({f"{self.name}:{lane}": "old" for lane, _ in values})
        super().send(values)

    def check(self, crashed=True):
        super().check()
        assert redis.Redis.from_url(self.stack.redis_uri).keys(f"{self.name}:*") == []


class Mirrored(Orders):
    """Orders whose sums are in Redis, too. The commit of offsets doesn't wait for that."""

    redis = needs_redelivery = True

    def rules(self):
        rules = super().rules()
        return {**rules, "counter": [{**counter, "mirror": self.name + ":{_id}"} for counter in rules["counter"]]}

    def some(self, tag):
        """One alone: nothing behind it brings what was lost with it."""
        return super().some(tag)[:1]

    def in_mongo(self):
        return {d["_id"]: (str(d["orders"]), str(d["spent"]), str(d["_version"])) for d in self.db[f"{self.name}_users"].find()}

    def in_redis(self):
        client = redis.Redis.from_url(self.stack.redis_uri, decode_responses=True)
        return {key.removeprefix(f"{self.name}:"): tuple(client.hmget(key, "orders", "spent", "version"))
                for key in client.scan_iter(f"{self.name}:*")}

    def check_killed(self):
        """Nothing that MongoDB has not acknowledged: it has the same, or more."""
        acknowledged = self.in_mongo()
        for customer, values in self.in_redis().items():
            assert all(int(mine) <= int(theirs) for mine, theirs in zip(values, acknowledged[customer])), (customer, values, acknowledged)

    def check(self, crashed=True):
        super().check(crashed)
        wait_until(lambda: self.in_redis() == self.in_mongo(), 20, "the mirror to show what MongoDB has")

    def check_ended(self):
        assert self.in_redis() == self.in_mongo()

    def damage(self):
        """Redis is told of it, too; and a group's next number has been given before."""
        user = super().damage()
        values = dict(zip((*self.counted, "version"), self.in_mongo()[user]))
        redis.Redis.from_url(self.stack.redis_uri).hset(f"{self.name}:{user}", mapping=values)
        self.db[f"{self.name}_sequences"].update_one({}, {"$inc": {"n": Int64(-1)}})
        return user


class Locked(Orders):
    """Orders under a lock of their customer."""

    redis = True
    TTL_MS = 1000

    def rules(self):
        return {**super().rules(), "lock": {"key": "{customer}", "prefix": f"{self.name}:", "ttl": f"{self.TTL_MS}ms"}}

    def lock_times(self):
        """{key: ms until it runs out}; -1 would be never, -2 that it is gone meanwhile."""
        client = redis.Redis.from_url(self.stack.redis_uri, decode_responses=True)
        return {key: client.pttl(key) for key in client.scan_iter(f"{self.name}:*")}

    def check_killed(self):
        times = self.lock_times().values()
        assert all(-2 == ms or 0 <= ms <= self.TTL_MS for ms in times), times

    def check_ended(self):
        assert self.lock_times() == {}


class Fenced(Locked):
    """Orders under a lock of their customer, whose numbers MongoDB checks."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.killed = {}

    def rules(self):
        rules = super().rules()
        return {**rules, "lock": {**rules["lock"], "fence": f"tests.{self.name}_fences"}}

    def issued(self):
        return {d["_id"]: d["issued"] for d in self.db[f"{self.name}_fences"].find()}

    def check_killed(self):
        super().check_killed()
        self.killed = self.issued()

    def check_ended(self):
        """What the one who was killed had in hand was asked for again, with later numbers."""
        super().check_ended()
        now = self.issued()
        assert all(number < now[key] for key, number in self.killed.items()), (self.killed, now)


def wait_committed(stack, group, topics, seconds=60):
    """Until the group has committed all of these Topics."""
    def reached():
        for topic in topics:
            committed = stack.committed(group, topic.topic)
            if any(committed.get(p, 0) < len(log) for p, log in topic.log.items() if log):
                return False
        return True

    wait_until(reached, seconds, "everything committed")


# The ways that exist. name: how it is made.
WAYS = {
    "plain": lambda stack, partitions: Plain(stack, partitions, None),
    "follows by transaction": lambda stack, partitions: Follows(stack, partitions, "transaction"),
    "follows by log": lambda stack, partitions: Follows(stack, partitions, "log"),
    "told": lambda stack, partitions: Told(stack, partitions, None),
    "fenced": lambda stack, partitions: Fenced(stack, partitions, "transaction", "gapless", True),
    "locked by log": lambda stack, partitions: Locked(stack, partitions, "log", "block", True),
    "mirrored": lambda stack, partitions: Mirrored(stack, partitions, "transaction", "gapless", True),
    "mirrored by log": lambda stack, partitions: Mirrored(stack, partitions, "log", "block", True),
    "gapless": lambda stack, partitions: Orders(stack, partitions, "transaction", "gapless", True),
    "block by log": lambda stack, partitions: Orders(stack, partitions, "log", "block", True),
    "block": lambda stack, partitions: Orders(stack, partitions, None, "block", False),
    "max": lambda stack, partitions: Orders(stack, partitions, None, "max", False),
}
