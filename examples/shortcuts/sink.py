"""idemsink for one shortcut: a topic, collections and a group of its own, and a configuration of a few lines."""
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402

HEAD = """
[kafka]
brokers = "{brokers}"
group = "{name}"
[kafka.properties]
"session.timeout.ms" = 1500
[mongo]
uri = "{uri}"
[redis]
uri = "{redis}"
[worker]
commit_interval = "{commit}"
[retry]
first = "20ms"
max = "100ms"
[http]
listen = "127.0.0.1:0"
[[route]]
topics = ["{name}"]
collection = "shortcuts.{name}"
ensure_index = true
"""


class Sink:
    def __init__(self, work, route, partitions=2, commit="1m"):
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.work = pathlib.Path(work)
        self.db = common.mongo().shortcuts
        self.documents = self.db[self.name]
        self.config = self.work / f"{self.name}.toml"
        self.config.write_text(HEAD.format(name=self.name, brokers=common.BROKERS, uri=common.MONGO_URI,
                                           redis=common.REDIS_URI, commit=commit) + route.replace("NAME", self.name))
        common.make_topic(self.name, partitions)
        common.command("init", self.config)

    def deliver(self, records):
        """records: (value, partition); all of one key."""
        common.produce(self.name, [("k", value, partition) for value, partition in records])

    def worker(self, *options):
        return common.Worker(self.config, self.work, *options)

    def until_end(self):
        self.worker("--until-end").wait()

    def delivered_again_after_a_kill(self, documents, workers=1):
        """Killed with -9 once everything is written and before an offset is committed; the next one gets it all again."""
        running = [self.worker() for _ in range(workers)]
        common.wait_until(lambda: self.documents.count_documents({}) >= documents, 30, f"{documents} documents")
        for worker in running:
            worker.kill()
        self.until_end()


def together(*handlers):
    """
    Lets handlers run as threads or processes would in the bad case: each goes on to its next `yield` in turn. Which step falls between
    which is so decided here, and not by luck.
    """
    running = list(handlers)
    while running:
        for handler in list(running):
            try:
                next(handler)
            except StopIteration:
                running.remove(handler)


def dies_after(handler, steps):
    """Lets a handler come to its `steps`-th `yield`, where its process is killed."""
    for _ in range(steps):
        next(handler)
    handler.close()
