"""What the examples share: the services (their addresses are in the environment), idemsink as a process, topics read whole."""
import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import uuid

import pymongo
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = pathlib.Path(__file__).resolve().parent
BINARY = pathlib.Path(os.environ.get("IDEMSINK_BIN", HERE.parent / "build" / "release" / "idemsink"))
BROKERS, MONGO_URI, REDIS_URI = (os.environ.get(name, "") for name in ("KAFKA_BROKERS", "MONGO_URI", "REDIS_URI"))
PATIENCE = 3  # times are those of a quiet machine


def say(text):
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text, flush=True)


def fail(text):
    print(text, flush=True)
    sys.exit(1)


def seeded():
    """A random source whose seed is printed; IDEMSINK_SEED repeats a run."""
    seed = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    print(f"   seed {seed}", flush=True)
    return random.Random(seed)


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            fail(f"{what}: not within {seconds * PATIENCE} s")
        time.sleep(0.02)


def mongo(**options):
    return pymongo.MongoClient(MONGO_URI, **options)


def caches():
    return redis.Redis.from_url(REDIS_URI, decode_responses=True)


def make_topic(name, partitions):
    admin = AdminClient({"bootstrap.servers": BROKERS, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(30)
    wait_until(lambda: name in admin.list_topics(timeout=30).topics, 20, f"topic {name}")


@functools.cache
def producer_of_this_process():
    return Producer({"bootstrap.servers": BROKERS, "linger.ms": 5, "enable.idempotence": True, "log_level": 3})


def produce(topic, records):
    """records: (key, value, partition or None) with a dict as value."""
    producer, failed = producer_of_this_process(), []
    for key, value, partition in records:
        where = {} if partition is None else {"partition": partition}
        producer.produce(topic, json.dumps(value), key, on_delivery=lambda e, _: e and failed.append(e), **where)
        producer.poll(0)
    if producer.flush(60) or failed:
        fail(f"producing failed: {failed[:1]}")


def read_topic(topic):
    """Every record of a topic as a dict, partition by partition, in order."""
    consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": uuid.uuid4().hex, "enable.partition.eof": True,
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    records, left = {p: [] for p in partitions}, set(partitions)
    while left:
        message = consumer.poll(30)
        if message is None:
            fail(f"{topic} could not be read")
        if message.error():
            left.discard(message.partition())
        else:
            records[message.partition()].append(json.loads(message.value()))
    consumer.close()
    return [record for p in partitions for record in records[p]]


class Group:
    """How far a group has committed a topic."""

    def __init__(self, group, topic):
        self.consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": group})
        partitions = self.consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self.partitions = [TopicPartition(topic, p) for p in partitions]

    def committed(self):
        return sum(max(p.offset, 0) for p in self.consumer.committed(self.partitions, timeout=30))

    def end(self):
        return sum(self.consumer.get_watermark_offsets(p, timeout=30)[1] for p in self.partitions)

    def wait_end(self, seconds):
        wait_until(lambda: self.committed() >= self.end(), seconds, "everything committed")

    def close(self):
        self.consumer.close()


def command(name, config, *options):
    done = subprocess.run([BINARY, name, "-c", config, *options], capture_output=True, text=True, timeout=60 * PATIENCE)
    if done.returncode not in (0, 1):
        fail(f"idemsink {name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done


class Worker:
    """One `idemsink run`."""

    all = []

    def __init__(self, config, work, *options, **environment):
        Worker.all.append(self)
        self.log = pathlib.Path(work) / f"worker-{len(Worker.all)}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([BINARY, "run", "-c", config, *options], stderr=log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, "MONGOC_DISABLE_SHM": "1", **environment})

    def running(self):
        return self.process.poll() is None

    def kill(self):
        """kill -9; it must not have ended by itself before."""
        self.process.kill()
        if self.process.wait(30) != -signal.SIGKILL:
            fail(f"a worker ended by itself: {self.log.read_text()[-2000:]}")

    def wait(self, seconds=60, statuses=(0,)):
        """Until it ends by itself."""
        if self.process.wait(seconds * PATIENCE) not in statuses:
            fail(f"a worker ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")

    def terminate(self):
        self.process.terminate()
        self.wait(20, (0, -signal.SIGTERM))  # that one had hardly been started

    @classmethod
    def end_all(cls):
        for worker in cls.all:
            if worker.running():
                worker.process.kill()
                worker.process.wait()


def race_and_kill(config, work, group, draw, kills, workers=2):
    """Workers of one group, some of which are killed with -9 at random and replaced, until everything is committed."""
    begin, end = group.committed(), group.end()
    running = [Worker(config, work) for _ in range(workers)]
    for point in sorted(draw.sample(range(begin + 1, max(end - 1, begin + kills + 2)), kills)):
        wait_until(lambda: group.committed() >= point, 60, f"{point} of {end} records committed")
        victim = draw.randrange(workers)
        running[victim].kill()
        running[victim] = Worker(config, work)
    group.wait_end(60)
    for worker in running:
        worker.terminate()


class Table:
    """What is compared, as a person reads it; exit status 0 when all is equal."""

    def __init__(self):
        self.right = True

    def row(self, what, found, expected):
        same = found == expected
        self.right &= same
        print(f"   {what:44s} {found!s:>10s}   {'as expected' if same else f'NOT AS EXPECTED: {expected}'}", flush=True)

    def finish(self, text):
        print(f"\n   verdict: {text if self.right else 'NOT AS PROMISED'}", flush=True)
        sys.exit(0 if self.right else 1)
