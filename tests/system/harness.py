"""What the system tests share: the real services, the daemon as a process, and waiting for a condition."""
import collections
import gc
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request
import uuid

import bson
import pymongo
from bson.int64 import Int64
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("IDEMSINK_BIN", ROOT / "build" / "release" / "idemsink"))
FAULTY_BINARY = pathlib.Path(os.environ.get("IDEMSINK_FAULTY_BIN", ROOT / "build" / "faults" / "idemsink"))
DATA = ROOT / "tests" / "data"

Record = collections.namedtuple("Record", "value key headers partition", defaults=(None, None, None))


PATIENCE = 3  # the times that follow are those of a quiet machine; one that builds and fuzzes beside it is slower


class TooLate(AssertionError):
    """Something that was waited for did not come in time; nothing wrong was seen."""


def wait_until(condition, seconds, what="the condition", pause=0.05):
    """Returns the first true value of condition(); fails with `what` after so many seconds (of a quiet machine)."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TooLate(f"{what} did not come true within {seconds} s")
        time.sleep(pause)


class Stack:
    """Real Kafka, mongod and Redis, started by scripts/stack in a folder of their own."""

    def __init__(self, directory, *options):
        self.directory = str(directory)
        self._run("up", *options)
        self._read_env()
        self.brokers = self.env["KAFKA_BROKERS"]
        self.mongo_uri = self.env["MONGO_URI"]
        self.redis_uri = self.env["REDIS_URI"]
        self.mongo = pymongo.MongoClient(self.mongo_uri)
        self.admin = AdminClient({"bootstrap.servers": self.brokers})
        self._producers = {}

    def _run(self, *words):
        done = subprocess.run(
            [ROOT / "scripts" / "stack", *words, "--dir", self.directory], stdout=subprocess.PIPE, text=True, timeout=240
        )
        assert done.returncode == 0, f"scripts/stack {' '.join(words)} ended with {done.returncode}"
        return done.stdout

    def stop(self, part):
        self._run("stop", part)

    def _read_env(self):
        self.env = dict(re.findall(r"^(?:export )?(\w+)='?([^'\n]*)'?$", self._run("env"), re.M))

    def start(self, part):
        self._run("start", part)
        self._read_env()  # it has another pid

    def kill(self, part):
        self._run("kill", part)

    def pause(self, part):
        self._run("pause", part)

    def resume(self, part):
        self._run("resume", part)

    def down(self):
        self.mongo.close()
        # The clients' own threads end before their brokers do: one that meets a dead broker while Python goes away crashes it.
        self._producers.clear()
        self.admin = None
        gc.collect()
        self._run("down", "--purge")

    def topic(self, partitions=4, name=None, **settings):
        """Makes a topic with a name of its own; returns the name."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(30)
        wait_until(
            lambda: len(self.admin.list_topics(name, timeout=60).topics[name].partitions) == partitions, 20, f"topic {name}"
        )
        return name

    def collection(self):
        """A collection with a name of its own in the database of the tests."""
        return self.mongo["tests"][f"c-{uuid.uuid4().hex[:12]}"]

    def produce(self, topic, records, **settings):
        """records: Record, (value, key) or a bare value; values may be dicts, texts or bytes."""
        failed = []
        producer = self._producers.get(str(settings))
        if producer is None:  # one per kind: making one costs a second
            producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5, **settings})
            self._producers[str(settings)] = producer
        producer.list_topics(topic, timeout=60)  # else the first message to a new topic waits for a second

        def reported(error, _):
            if error:
                failed.append(error)

        for item in records:
            record = item if isinstance(item, Record) else Record(*item) if isinstance(item, tuple) else Record(item)
            value = json.dumps(record.value) if isinstance(record.value, dict) else record.value
            where = {} if record.partition is None else {"partition": record.partition}
            while True:
                try:
                    producer.produce(topic, value, record.key, headers=record.headers, on_delivery=reported, **where)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed, failed

    def read_topic(self, topic):
        """Every message of a topic, partition by partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.brokers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
             "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 50}
        )
        try:
            partitions = list(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            messages, open_partitions = [], set(partitions)

            def read():
                message = consumer.poll(1)
                if message is not None and message.error():
                    open_partitions.discard(message.partition())
                elif message is not None:
                    messages.append(message)
                return not open_partitions

            wait_until(read, 30, f"all of {topic} read", pause=0)
            return messages
        finally:
            consumer.close()

    def committed(self, group, topic):
        """{partition: committed offset}; partitions without one are left out."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group})
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            found = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=60)
            return {p.partition: p.offset for p in found if p.offset >= 0}
        finally:
            consumer.close()

    def ends(self, topic):
        """{partition: end offset}."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": uuid.uuid4().hex})
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1] for p in partitions}
        finally:
            consumer.close()


class Standalone:
    """A mongod that is no member of a replica set, so that it has no transactions; Kafka and Redis are those of a Stack."""

    def __init__(self, stack, directory):
        self.stack, self.directory = stack, pathlib.Path(directory)
        paths = subprocess.run([ROOT / "scripts" / "setup", "--paths"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
        self.program = re.search(r"^MONGOD=(.*)$", paths, re.M)[1]
        (self.directory / "data").mkdir()
        for _ in range(5):  # another process may take the port meanwhile
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            if self._begin():
                break
        else:
            raise AssertionError("mongod does not start")
        self.mongo_uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
        self.mongo = pymongo.MongoClient(self.mongo_uri)

    def __getattr__(self, name):
        return getattr(self.stack, name)

    def _begin(self):
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--bind_ip", "127.0.0.1", "--port", str(self.port), "--dbpath", self.directory / "data", "--nounixsocket",
                 "--wiredTigerCacheSizeGB", "0.25", "--setParameter", "enableTestCommands=1", "--setParameter",
                 "diagnosticDataCollectionEnabled=false"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        with pymongo.MongoClient("127.0.0.1", self.port, serverSelectionTimeoutMS=200) as client:
            def answers():
                if self.process.poll() is not None:
                    return True
                try:
                    return client.admin.command("ping")
                except pymongo.errors.PyMongoError:
                    return False

            wait_until(answers, 30, "a mongod that answers")
        return self.process.poll() is None

    def collection(self):
        return self.mongo["tests"][f"c-{uuid.uuid4().hex[:12]}"]

    def kill_and_restart(self):
        self.process.kill()
        self.process.wait(30)
        assert self._begin()

    def down(self):
        self.mongo.close()
        self.process.kill()
        self.process.wait(30)


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return json.dumps(value)


def as_stored(value):
    """JSON as docs/payloads.md says it is stored: every integer is an int64."""
    if isinstance(value, bool) or not isinstance(value, (int, list, dict)):
        return value
    if isinstance(value, int):
        return Int64(value)
    if isinstance(value, list):
        return [as_stored(item) for item in value]
    return {name: as_stored(item) for name, item in value.items()}


def raw(document):
    """Bytes, so that types, names and the order inside of objects count; the order at the top does not."""
    return sorted(bson.encode({name: item}) for name, item in document.items())


class Nowhere:
    """A stack for a Setup of which nothing is there, with Somewhere as its collection."""

    brokers, mongo_uri = "127.0.0.1:1", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"

    @staticmethod
    def topic(_):
        return "orders.dead"


class Somewhere:
    name = "c"

    class database:
        name = "d"


class Setup:
    """A configuration for one test: a group, topics, collections of its own. Change .sections and .routes before use."""

    def __init__(self, stack, directory, topics, collection=None, dedup=("eventId",), dead_letters=True):
        self.stack = stack
        self.directory = pathlib.Path(directory)
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        self.collection = stack.collection() if collection is None else collection
        self.dead_letter_topic = stack.topic(1) if dead_letters else ""
        self.sections = {
            "kafka": {"brokers": stack.brokers, "group": self.group,
                      "properties": {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}},
            "mongo": {"uri": stack.mongo_uri},
            "worker": {"commit_interval": "200ms"},
            "retry": {"max": "2s"},
            "dead_letter": {"topic": self.dead_letter_topic},
            "http": {"listen": "127.0.0.1:0"},
            "log": {"format": "json"},
        }
        self.routes = [self.route(self.topics, self.collection, dedup)]
        self.processes = []
        self._count = 0

    @staticmethod
    def route(topics, collection, dedup=("eventId",), **more):
        return {"topics": list(topics), "collection": f"{collection.database.name}.{collection.name}",
                "ensure_index": True, "dedup": {"key": list(dedup)}, **more}

    def text(self):
        lines = []
        for name, keys in self.sections.items():
            lines.append(f"[{name}]")
            lines += [f"{json.dumps(k)} = {toml(v)}" for k, v in keys.items()]
        for route in self.routes:
            lines.append("[[route]]")
            lines += [f"{json.dumps(k)} = {toml(v)}" for k, v in route.items()]
        return "\n".join(lines) + "\n"

    def file(self):
        self._count += 1
        path = self.directory / f"{self.group}-{self._count}.toml"
        path.write_text(self.text())
        return path

    def start(self, *options, fault=None):
        worker = Worker(self.file(), self.directory, *options, fault=fault)
        self.processes.append(worker)
        return worker

    def run_until_end(self, seconds=60):
        worker = self.start("--until-end")
        assert worker.wait(seconds) == 0, worker.log_tail()
        return worker

    def command(self, name, *options, stdin=None, seconds=60, fault=None):
        binary, environment = program(fault)
        words = [binary, *name.split(), "-c", self.file(), *options]
        return subprocess.run(words, input=stdin, capture_output=True, timeout=seconds * PATIENCE, env=environment)

    def verify(self, *options):
        """The books of `idemsink verify --json`, with the exit status as "status"."""
        done = self.command("verify", "--json", *options)
        assert done.returncode in (0, 1), done.stderr.decode()
        return {**json.loads(done.stdout), "status": done.returncode}

    def settled(self):
        """Whether the group has committed everything that is in the topics."""
        for topic in self.topics:
            committed = self.stack.committed(self.group, topic)
            if any(end > 0 and committed.get(p, 0) < end for p, end in self.stack.ends(topic).items()):
                return False
        return True

    def wait_settled(self, seconds=60):
        wait_until(self.settled, seconds, "everything committed")

    def close(self):
        for worker in self.processes:
            worker.end()


def program(fault):
    """(path, environment). fault: where it dies or stands still, see include/base/fault.h; "" for the same program without."""
    return (BINARY, None) if fault is None else (FAULTY_BINARY, {**os.environ, "IDEMSINK_FAULT": fault})


class Worker:
    """One `idemsink run`. fault: as in program()."""

    def __init__(self, config, directory, *options, fault=None):
        self.log_path = pathlib.Path(directory) / f"log-{uuid.uuid4().hex[:8]}.jsonl"
        binary, environment = program(fault)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([binary, "run", "-c", config, *options], stderr=log, stdin=subprocess.DEVNULL,
                                            env=environment)
        self.pid = self.process.pid

    def log(self):
        """The events so far, as dicts; lines that are no JSON as {"text": line}."""
        events = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                events.append({"event": "", "text": line})
        return events

    def log_tail(self, lines=30):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def saw(self, event):
        return [line for line in self.log() if event in line.get("event", "")]

    def wait_saw(self, event, seconds=30):
        return wait_until(lambda: self.saw(event), seconds, f'log line "{event}"')

    def port(self):
        return self.wait_saw("listening", 10)[0]["port"]

    def get(self, path):
        """(status, body) of a page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self):
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def wait_ready(self, seconds=30):
        wait_until(lambda: self.ready() or self.process.poll() is not None, seconds, "/readyz")
        assert self.process.poll() is None, self.log_tail()
        return self

    def metrics(self):
        """{name{labels}: value}."""
        found = {}
        for line in self.get("/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def metric(self, name, **labels):
        """The sum of a metric's series that carry these labels."""
        total = 0
        for key, value in self.metrics().items():
            if key.split("{")[0] == name and all(f'{k}="{v}"' in key for k, v in labels.items()):
                total += value
        return total

    def books(self):
        """The closing line of a worker that ended by itself."""
        return self.saw("books")[-1]

    def signal(self, number):
        self.process.send_signal(number)

    def terminate(self, seconds=15):
        """SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.wait(10)

    def wait(self, seconds):
        return self.process.wait(timeout=seconds * PATIENCE)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=60)
