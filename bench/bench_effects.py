"""Pairs of a run with the plain upsert and one with an effect, over one topic; the ratio of each pair, and their median."""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import time

import pymongo
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

BINARY = os.environ["IDEMSINK_BIN"]
HEAD = """
[kafka]
brokers = "{brokers}"
group = "{group}"
[mongo]
uri = "{uri}"
[worker]
threads = {threads}
[http]
listen = ""
[log]
level = "warn"
[[route]]
topics = ["bench"]
collection = "bench.documents"
order_by = "from"
{rules}
[route.dedup]
key = ["eventId"]
"""
COUNTER = """[[route.counter]]
collection = "bench.users"
filter = {{ _id = "{field}" }}
inc = {{ followers = 1 }}
"""
SEQUENCE = """[route.sequence]
field = "number"
group = ["{group}"]
mode = "{mode}"
"""
# name: (keys of the route, tables behind it)
CASES = {
    "transaction, 1,000 counters": ('effects = "transaction"', COUNTER.format(field="to")),
    "transaction, one counter": ('effects = "transaction"', COUNTER.format(field="one")),
    "log, 1,000 counters": ('effects = "log"', COUNTER.format(field="to")),
    "log, one counter": ('effects = "log"', COUNTER.format(field="one")),
    "gapless, one group": ("", SEQUENCE.format(group="one", mode="gapless")),
    "gapless, 10 groups": ("", SEQUENCE.format(group="ten", mode="gapless")),
    "block, one group": ("", SEQUENCE.format(group="one", mode="block")),
    "max, one group": ("", SEQUENCE.format(group="one", mode="max")),
}


def record(number):
    draw = random.Random(number)
    return {"eventId": f"{number:024x}", "from": f"u{draw.randrange(5000)}", "to": f"u{draw.randrange(1000)}", "one": "all",
            "ten": f"g{draw.randrange(10)}", "remarks": "gate changed, boarding by groups, bags on belt 4", "count": number}


def produce(brokers, args):
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic("bench", args.partitions, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 1000000})
    for number in range(args.records):
        value = record(number)
        producer.produce("bench", json.dumps(value), key=value["from"])
        producer.poll(0)
    producer.flush(120)


def cpu_seconds(pids):
    """User and system time of running processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, args):
        self.args = args
        self.brokers, self.uri = os.environ["KAFKA_BROKERS"], os.environ["MONGO_URI"]
        self.mongods = os.environ["MONGO_PIDS"].split()
        self.client = pymongo.MongoClient(self.uri)
        self.config = pathlib.Path(args.dir) / "bench.toml"
        self.runs = 0
        produce(self.brokers, args)

    def prepare(self, keys, tables):
        self.client.drop_database("bench")
        self.runs += 1
        self.config.write_text(HEAD.format(brokers=self.brokers, uri=self.uri, group=f"bench-{self.runs}", threads=self.args.threads,
                                           rules=keys) + tables)
        done = subprocess.run([BINARY, "init", "-c", self.config], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise SystemExit(done.stderr)

    def run(self, keys="", tables=""):
        """(events/s from the first document to the last, us of mongod, us of idemsink per record)"""
        self.prepare(keys, tables)
        documents, records = self.client.bench.documents, self.args.records
        process = subprocess.Popen([BINARY, "run", "-c", self.config, "--until-end"])
        began = None
        while (count := documents.estimated_document_count()) < records:
            if began is None and count > 0:
                began, begun_at, mongod = time.monotonic(), count, cpu_seconds(self.mongods)
            if process.poll() not in (None, 0):
                raise SystemExit(f"idemsink ended with {process.returncode}")
            time.sleep(0.01)
        seconds, mongod = time.monotonic() - began, cpu_seconds(self.mongods) - mongod
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"idemsink ended with {process.returncode}")
        measured = records - begun_at
        return measured / seconds, mongod * 1e6 / measured, (usage.ru_utime + usage.ru_stime) * 1e6 / records

    def case(self, name):
        ratios, rates, costs = [], [], []
        for _ in range(self.args.rounds):
            plain = self.run()
            ours = self.run(*CASES[name])
            ratios.append(ours[0] / plain[0])
            rates.append((plain[0], ours[0]))
            costs.append((plain[1], ours[1], ours[2]))
        middle = sorted(range(len(ratios)), key=ratios.__getitem__)[len(ratios) // 2]
        print(f"{name:28s} {rates[middle][1]:8.0f}/s  plain {rates[middle][0]:8.0f}/s  ratio {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})  CPU per record: mongod {costs[middle][1]:5.1f} us, plain {costs[middle][0]:5.1f} us, "
              f"ratio {statistics.median(ours / plain for plain, ours, _ in costs):.2f}; idemsink {costs[middle][2]:5.1f} us", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--records", type=int, default=60000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=CASES)
    args = parser.parse_args()
    bench = Bench(args)
    print(f"{args.records} records, {args.partitions} partitions, {args.threads} threads, {args.rounds} pairs each; from the first document to the last")
    for name in args.only or CASES:
        bench.case(name)


main()
