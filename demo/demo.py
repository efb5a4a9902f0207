"""The demo behind scripts/demo: produce, race, kill, verify, and a table that a person understands."""
import collections
import gzip
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pymongo
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "build" / "release" / "idemsink"
CONFIG = ROOT / "demo" / "idemsink.toml"
TOPICS = {"earthquakes": 4, "flights": 6}
BROKERS = os.environ["KAFKA_BROKERS"]
WORK = pathlib.Path(sys.argv[1])

# (topic, value, what is wrong with it)
POISON = [
    ("earthquakes", b'{"id": "cut off', "json_syntax"),
    ("earthquakes", b'{"type": "Feature", "properties": {}}', "dedup_missing"),
    ("earthquakes", b'{"id": "", "properties": {}}', "dedup_empty"),
    ("earthquakes", b'{"id": {"$gt": ""}}', "dedup_not_scalar"),
    ("earthquakes", b'{"id": "x1", "properties": {"time": "yesterday"}}', "type_conversion"),
    ("earthquakes", gzip.compress(b'{"id": "x2"}'), "compressed"),
    ("flights", b"", "empty_value"),
    ("flights", b'["2001/01/01", "DTW", "LAS"]', "not_an_object"),
    ("flights", b'{"date": "d", "origin": "o", "destination": "e", "date": "f"}', "duplicate_name"),
    ("flights", b'{"date": "d", "origin": "o", "destination": "e", "delay": 99999999999999999999}', "number_range"),
]


def say(text):
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text, flush=True)


def progress(text):
    if sys.stdout.isatty():
        print(f"\r\033[K   {text}", end="", flush=True)


def fail(text):
    print(f"\n{text}", flush=True)
    sys.exit(1)


def deliveries(draw):
    """Every record one to three times, in a shuffled order; (topic, key, value)."""
    everything = []
    for name in TOPICS:
        for line in (ROOT / "demo" / f"{name}.ndjson").read_text().splitlines():
            key = json.loads(line)["origin"] if name == "flights" else None
            everything += [(name, key, line)] * draw.randint(1, 3)
    everything += [(topic, "poison" if topic == "flights" else None, value) for topic, value, _ in POISON]
    draw.shuffle(everything)
    return everything


def make_topics():
    admin = AdminClient({"bootstrap.servers": BROKERS, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, n, 1) for name, n in TOPICS.items()]).values():
        future.result(30)


def produce(everything):
    producer = Producer({"bootstrap.servers": BROKERS, "linger.ms": 5, "queue.buffering.max.messages": 1000000})
    failed = []
    for i, (topic, key, value) in enumerate(everything):
        where = {"partition": i % TOPICS[topic]} if key is None else {}
        producer.produce(topic, value, key, on_delivery=lambda e, _: e and failed.append(e), **where)
        producer.poll(0)
    if producer.flush(60) or failed:
        fail(f"producing failed: {failed[:1]}")


class Worker:
    all = []

    def __init__(self, name):
        Worker.all.append(self)
        self.name = name
        self.log = WORK / f"{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([BINARY, "run", "-c", CONFIG], stderr=log, stdin=subprocess.DEVNULL)

    @classmethod
    def end_all(cls):
        for worker in cls.all:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()

    def events(self, event):
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def metrics(self):
        try:
            port = self.events("listening")[0]["port"]
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        except (OSError, IndexError):
            return {}
        return dict(re.findall(r"^(idemsink_[^ ]+) ([-0-9.e+]+)$", page, re.M))

    def positions(self):
        found = {}
        for name, value in self.metrics().items():
            if match := re.match(r'idemsink_position_offset{topic="(.+)",partition="(\d+)"}', name):
                found[match[1], int(match[2])] = int(float(value))
        return found


class Group:
    """How far the group has committed, and how far there is to go."""

    def __init__(self):
        self.consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": "demo"})
        self.partitions = [TopicPartition(name, p) for name, n in TOPICS.items() for p in range(n)]
        self.ends = {(p.topic, p.partition): self.consumer.get_watermark_offsets(p, timeout=10)[1] for p in self.partitions}

    def committed(self):
        found = self.consumer.committed(self.partitions, timeout=10)
        return {(p.topic, p.partition): max(p.offset, 0) for p in found}

    def wait(self, share, seconds, what):
        total, deadline = sum(self.ends.values()), time.monotonic() + seconds
        while True:
            done = sum(self.committed().values())
            progress(f"{what}: {done} of {total} deliveries committed")
            if done >= share * total:
                return
            if time.monotonic() > deadline:
                fail(f"{what}: no end after {seconds} s; logs are in {WORK}")
            time.sleep(0.1)


class Subscriber(threading.Thread):
    """Counts what a cache on another machine would be told."""

    def __init__(self):
        super().__init__(daemon=True)
        self.channel = redis.Redis.from_url(os.environ["REDIS_URI"]).pubsub()
        self.channel.psubscribe("demo:*")
        self.channel.get_message(timeout=10)
        self.count = collections.Counter()
        self.start()

    def run(self):
        for message in self.channel.listen():
            if message["type"] == "pmessage":
                self.count[message["channel"].decode()] += 1


def wait_for_both(first, second):
    """Until both have partitions and the first has read something that is not done; what it has read."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        positions, page = first.positions(), first.metrics()
        busy = sum(float(value) for name, value in page.items() if name.startswith("idemsink_open_records"))
        done = sum(float(value) for name, value in page.items() if "idemsink_records_total" in name)
        if positions and second.positions() and busy > 0 and done > 0:
            return positions
        time.sleep(0.01)
    fail(f"two workers: they did not share the partitions; logs are in {WORK}")


def race_and_kill(group):
    """Two workers; one is killed in the middle and started again. Returns what it had read and not committed."""
    first, second = Worker("worker-1"), Worker("worker-2")
    positions = wait_for_both(first, second)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    committed = group.committed()
    again = sum(max(0, position - committed[where]) for where, position in positions.items())
    progress("")
    print(f"   kill -9 of {first.name}: {len(positions)} partitions, {again} records read and not committed", flush=True)
    third = Worker("worker-1-again")
    group.wait(1, 120, "after the kill")
    progress("")
    books = collections.Counter()
    for worker in (second, third):
        worker.process.send_signal(signal.SIGTERM)
    for worker in (second, third):
        if (status := worker.process.wait(timeout=20)) != 0:
            fail(f"{worker.name} ended with {status}: {worker.log.read_text()[-2000:]}")
        for line in worker.events("books"):
            books.update({k: v for k, v in line.items() if isinstance(v, int)})
    return again, books


def dead_letters():
    consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": "demo-look", "enable.partition.eof": True})
    partitions = list(consumer.list_topics("demo.dead", timeout=10).topics["demo.dead"].partitions)
    consumer.assign([TopicPartition("demo.dead", p, 0) for p in partitions])
    reasons, left = {}, set(partitions)
    while left:
        message = consumer.poll(5)
        if message is None:
            fail("the dead-letter topic could not be read")
        if message.error():
            left.discard(message.partition())
            continue
        headers = {name: value.decode() for name, value in message.headers()}
        place = (headers["idemsink.topic"], headers["idemsink.partition"], headers["idemsink.offset"])
        reasons[place] = headers["idemsink.reason"]
    consumer.close()
    return collections.Counter(reasons.values())


def command(*words):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120)


def main():
    seed = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    everything = deliveries(random.Random(seed))
    say(f"3. deliver {len(everything)} records (seed {seed}): each of them one to three times, shuffled, and {len(POISON)} poison messages")
    make_topics()
    made = command("init", "-c", CONFIG)
    if made.returncode != 0:
        fail(made.stderr)
    produce(everything)
    subscriber = Subscriber()

    say("4. two workers race, one of them is killed in the middle")
    group = Group()
    again, books = race_and_kill(group)

    say("5. idemsink verify")
    verdict = command("verify", "--json", "-c", CONFIG)
    if verdict.returncode not in (0, 1):
        fail(verdict.stderr)
    result = json.loads(verdict.stdout)
    database = pymongo.MongoClient(os.environ["MONGO_URI"])["demo"]
    documents = {name: database[name].count_documents({}) for name in TOPICS}
    reasons = dead_letters()
    expected = collections.Counter(reason for _, _, reason in POISON)
    good = len(everything) - len(POISON)
    rows = [
        ("produced", len(everything), "deliveries"),
        ("distinct events", result["distinct"], "by dedup key"),
        ("documents", sum(documents.values()), ", ".join(f"{n} {name}" for name, n in documents.items())),
        ("duplicates", good - result["distinct"], "further deliveries of the same event"),
        ("dead letters", sum(reasons.values()), ", ".join(f"{name} {n}" for name, n in sorted(reasons.items()))),
        ("delivered again", again, "read by the killed worker and not committed"),
        ("invalidations", sum(subscriber.count.values()), "received by a subscriber, coalesced"),
        ("missing", result["missing"], ""),
        ("different", result["different"], ""),
        ("doubled", result["doubled"] + result["extra"], ""),
    ]
    print()
    for name, number, text in rows:
        print(f"   {name:16s} {number:8d}   {text}")
    right = (again > 0 and verdict.returncode == 0 and sum(documents.values()) == result["distinct"] and reasons == expected
             and all(subscriber.count[f"demo:{name}"] > 0 for name in TOPICS) and books["open"] == 0)
    print(f"\n   verdict: {'every event is there once, every bad record is a dead letter' if right else 'NOT AS PROMISED'}\n", flush=True)
    sys.exit(0 if right else 1)


def terminated(number, _):
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, terminated)
try:
    main()
finally:
    Worker.end_all()
