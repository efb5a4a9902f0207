"""What the tests that break things share: records whose place is known, an eye on the committed offsets, faults."""
import contextlib
import random
import threading
import time

from confluent_kafka import Consumer, TopicPartition
from harness import Record, wait_until
from pymongo.read_concern import ReadConcern


class Feed:
    """
    Deliveries of events, each record with a partition of its own choice, so that its offset is known: it is the only writer
    of its topic. Copies of one event differ in their content, so that what is stored shows which of them came first.
    """

    def __init__(self, stack, partitions=4, keys=500, text="x" * 60):
        self.stack, self.keys, self.text = stack, keys, text
        self.topic = stack.topic(partitions)
        self.log = {p: [] for p in range(partitions)}  # event number at each offset; None: a poison record
        self._numbers = 0

    def _record(self, number, partition):
        offset = len(self.log[partition])
        self.log[partition].append(number)
        if number is None:
            return Record(b"{no json", f"bad{offset}", None, partition)
        lane = f"k{number % self.keys}"
        value = {"eventId": f"e{number}", "partition": partition, "offset": offset, "lane": lane, "text": self.text}
        return Record(value, lane, [("third", str(number % 3).encode())], partition)

    def make(self, events, copies=(1, 2, 3), poison=0, elsewhere=0.2):
        """
        Records of so many new events, shuffled a little; a copy is in the partition of the first one, or with the probability
        `elsewhere` in another. Must be produced in this order, before the next make().
        """
        todo = []
        for i in range(events):
            number, home = self._numbers, random.choice(list(self.log))
            self._numbers += 1
            for copy in range(random.choice(copies)):
                where = random.choice(list(self.log)) if copy and random.random() < elsewhere else home
                todo.append((i + random.random() * copy * 300, number, where))
        todo += [(random.random() * events, None, random.choice(list(self.log))) for _ in range(poison)]
        return [self._record(number, where) for _, number, where in sorted(todo, key=lambda item: item[0])]

    def send(self, *args, **more):
        self.stack.produce(self.topic, self.make(*args, **more), **{"enable.idempotence": True})

    @property
    def deliveries(self):
        return sum(map(len, self.log.values()))

    @property
    def events(self):
        return self._numbers

    @property
    def poison(self):
        """{(partition, offset)} of the poison records."""
        return {(p, o) for p, log in self.log.items() for o, number in enumerate(log) if number is None}

    def ends(self):
        return {p: len(log) for p, log in self.log.items()}


@contextlib.contextmanager
def repeating(job, pause):
    """job() every `pause` seconds while the block runs."""
    stop = threading.Event()
    failed = []

    def main():
        try:
            while not stop.wait(pause):
                job()
        except BaseException as error:  # shown by whoever waits for us
            failed.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not failed, failed


def feeding(feed, pause=0.1, **more):
    """Records flow while the block runs."""
    return repeating(lambda: feed.send(**more), pause)


def dead_letter_places(stack, topic):
    """[(partition, offset)] of the records that the dead letters are of."""
    return [_place(message) for message in stack.read_topic(topic)]


def _place(message):
    headers = dict(message.headers())
    return int(headers["idemsink.partition"]), int(headers["idemsink.offset"])


class Watch(threading.Thread):
    """
    Reads the committed offsets of a group all the time. None may go back, and what lies below one must be there, at that
    moment: as a document that a majority has, or as a dead letter. What it saw wrong is in .wrong.
    """

    def __init__(self, setup, feed):
        super().__init__(daemon=True)
        self.setup, self.feed = setup, feed
        self.collection = setup.collection.with_options(read_concern=ReadConcern("majority"))
        self.wrong, self.samples, self.checked = [], 0, 0
        self.highest = dict.fromkeys(feed.log, 0)
        self._stop_asked = threading.Event()
        common = {"bootstrap.servers": setup.stack.brokers, "enable.auto.commit": False}
        self._offsets = Consumer({**common, "group.id": setup.group})
        self._dead = Consumer({**common, "group.id": setup.group + "-watch", "isolation.level": "read_uncommitted"})
        self._dead.assign([TopicPartition(setup.dead_letter_topic, 0, 0)])
        self._dead_read, self._dead_places = 0, set()

    def _read_dead_letters(self):
        end = self._dead.get_watermark_offsets(TopicPartition(self.setup.dead_letter_topic, 0), timeout=60)[1]
        while self._dead_read < end:
            message = self._dead.poll(5)
            if message is None or message.error():
                return
            self._dead_places.add(_place(message))
            self._dead_read = message.offset() + 1

    def _sample(self, seconds=5):
        asked = [TopicPartition(self.feed.topic, p) for p in self.feed.log]
        for tp in self._offsets.committed(asked, timeout=seconds):
            before, now = self.highest[tp.partition], max(tp.offset, 0)
            if tp.error or now == before:
                continue
            if now < before:
                self.wrong.append(f"partition {tp.partition}: committed {now} after {before}")
                continue
            self._check(tp.partition, before, now)
            self.highest[tp.partition] = now
        self.samples += 1

    def _check(self, partition, start, end):
        if end > len(self.feed.log[partition]):
            self.wrong.append(f"partition {partition}: committed {end} of {len(self.feed.log[partition])}")
            return
        numbers = self.feed.log[partition][start:end]
        wanted = {f"e{n}" for n in numbers if n is not None}
        there = {d["eventId"] for d in self.collection.find({"eventId": {"$in": list(wanted)}}, {"eventId": 1, "_id": 0})}
        if wanted - there:
            self.wrong.append(f"partition {partition}: committed {end}, without document: {sorted(wanted - there)[:5]}")
        bad = {(partition, start + i) for i, n in enumerate(numbers) if n is None}
        if bad - self._dead_places:
            self._read_dead_letters()
        if bad - self._dead_places:
            self.wrong.append(f"partition {partition}: committed {end}, without dead letter: {sorted(bad - self._dead_places)[:5]}")
        self.checked += end - start

    def run(self):
        while not self._stop_asked.wait(0.03):
            try:
                self._sample()
            except Exception as error:  # Kafka or MongoDB are away: that is what some tests do
                self.trouble = error
                time.sleep(0.1)

    def finish(self):
        self._stop_asked.set()
        self.join(60)
        assert not self.is_alive()
        self._sample(60)  # here errors are errors
        self._offsets.close()
        self._dead.close()
        assert not self.wrong, self.wrong[:10]
        assert self.samples > 0 and self.checked > 0


@contextlib.contextmanager
def watching(setup, feed):
    watch = Watch(setup, feed)
    watch.start()
    try:
        yield watch
    except BaseException:
        watch._stop_asked.set()
        watch.join(30)
        print("watch:", watch.wrong[:10])
        raise
    watch.finish()


def fail_point(stack, mode, **data):
    """failCommand of mongod, by default for the writes of the sink. mode: "off", "alwaysOn", {"times": n}, ..."""
    data.setdefault("failCommands", ["update", "insert"])
    command = {"configureFailPoint": "failCommand", "mode": mode}
    if mode != "off":
        command["data"] = data
    stack.mongo.admin.command(command)


@contextlib.contextmanager
def random_faults(stack, faults, pause=(0.02, 0.15)):
    """While the block runs: one of `faults` (data of failCommand) after the other, each for the next write or two."""
    stop = threading.Event()
    count = [0]

    def main():
        while not stop.wait(random.uniform(*pause)):
            fault = random.choice(faults)
            fail_point(stack, {"times": random.choice((1, 2))}, **(fault() if callable(fault) else fault))
            count[0] += 1

    thread = threading.Thread(target=main)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join(30)
        fail_point(stack, "off")


ENOUGH_FAULTS = 5


def feed_until_retried(setup, feed, worker, faults, count=400):
    """More and more, until several faults came and one has hit a write: a fast worker may be done before. faults: random_faults()."""

    def retried():
        setup.wait_settled(90)
        if faults[0] > ENOUGH_FAULTS and worker.metric("idemsink_retries_total") > 0:
            return True
        feed.send(count)

    wait_until(retried, 60, "writes sent again")


def rss_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


class Memory(threading.Thread):
    """Samples the resident memory of processes; .peak is the highest seen."""

    def __init__(self, *workers):
        super().__init__(daemon=True)
        self.workers, self.peak = workers, 0
        self._stop_asked = threading.Event()

    def run(self):
        while not self._stop_asked.wait(0.1):
            for worker in self.workers:
                with contextlib.suppress(OSError):
                    self.peak = max(self.peak, rss_bytes(worker.pid))

    def finish(self):
        self._stop_asked.set()
        self.join(10)
        assert self.peak > 0
        return self.peak


def fast_sessions(setup, ms=1500):
    """So that a killed member's partitions are taken over soon."""
    setup.sections["kafka"]["properties"].update({"session.timeout.ms": str(ms), "heartbeat.interval.ms": str(ms // 5)})


def look_often(setup):
    """
    An error of fail_point() that tells of another primary makes libmongoc wait for news of the server, and there are none,
    as nothing changed: it would go on with the next heartbeat only, 10 s later.
    """
    setup.sections["mongo"]["uri"] += "&heartbeatFrequencyMS=500"


def assert_settled(setup, feed, seconds=60):
    """Everything committed, nothing missing, nothing twice, each poison record dead-lettered."""
    setup.wait_settled(seconds)
    assert setup.stack.committed(setup.group, feed.topic) == {p: end for p, end in feed.ends().items() if end}
    books = setup.verify()
    assert (books["status"], books["balanced"], books["distinct"], books["stored"], books["bad"], books["dead_missing"]) == (
        0, True, feed.events, feed.events, len(feed.poison), 0,
    ), books
    assert setup.collection.count_documents({}) == feed.events
    if setup.dead_letter_topic:
        assert set(dead_letter_places(setup.stack, setup.dead_letter_topic)) == feed.poison  # and no good record
    return books


def now_in_oplog(stack):
    """Where insert_order() may start."""
    return stack.mongo.admin.command("ping")["operationTime"]


def insert_order(setup, start, count, seconds=60):
    """The first `count` documents of a collection in the order in which they came into existence: MongoDB's own log tells."""
    found = []
    pipeline = [{"$match": {"operationType": "insert"}}]
    with setup.collection.watch(pipeline, start_at_operation_time=start, max_await_time_ms=200, batch_size=5000) as stream:
        def all_seen():
            change = stream.try_next()
            if change is not None:
                found.append(change["fullDocument"])
            return len(found) == count

        wait_until(all_seen, seconds, f"{count} inserts seen", pause=0)
    return found


def assert_lanes_in_order(documents, lane):
    """What was stored of each lane came into existence in partition order. Returns the number of lanes."""
    last = {}
    for d in documents:
        key = (d["partition"], lane(d))
        before = last.get(key, -1)
        assert d["offset"] > before, f"lane {key}: offset {d['offset']} came into existence after {before}"
        last[key] = d["offset"]
    return len(last)


def lane_by_key(document):
    return document["lane"]


def lane_by_header(document):
    return int(document["eventId"][1:]) % 3
