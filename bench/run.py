"""Interleaved rounds of the bare loop and of idemsink over one topic; prints each and the ratio of the medians."""
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
AIRPORTS = ["ATL", "ORD", "DFW", "LAX", "PHX", "DEN", "IAH", "LAS", "DTW", "MSP"]

CONFIG = """
[kafka]
brokers = "{brokers}"
group = "bench-{round}"
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
collection = "bench.idemsink"
[route.dedup]
key = ["eventId"]
"""


def record(number):
    draw = random.Random(number)
    return json.dumps(
        {
            "eventId": f"{number:024x}",
            "type": "flight.departed",
            "date": "2001/01/%02d 10:%02d" % (draw.randrange(1, 29), draw.randrange(60)),
            "origin": draw.choice(AIRPORTS),
            "destination": draw.choice(AIRPORTS),
            "delay": draw.randrange(-20, 200),
            "distance": draw.randrange(100, 2500),
            "carrier": {"code": "WN", "name": "Southwest", "aircraft": "N%05d" % draw.randrange(99999)},
            "passengers": draw.randrange(20, 180),
            "remarks": "gate changed, boarding by groups, bags on belt 4",
        }
    )


def produce(brokers, args):
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic("bench", args.partitions, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "compression.type": "lz4",
                         "queue.buffering.max.messages": 1000000})
    draw = random.Random(args.seed)
    distinct = max(1, args.records * (100 - args.duplicates) // 100)
    for i in range(args.records):
        number = i if i < distinct else draw.randrange(distinct)
        producer.produce("bench", record(number), key="key-%d" % (number % 5000))
        producer.poll(0)
    producer.flush(120)
    return distinct


def timed(command):
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return time.monotonic() - started, (usage.ru_utime + usage.ru_stime) * 1e6, output


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--records", type=int, default=200000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duplicates", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    brokers, uri = os.environ["KAFKA_BROKERS"], os.environ["MONGO_URI"]
    database = pymongo.MongoClient(uri)["bench"]
    distinct = produce(brokers, args)
    config = pathlib.Path(args.dir) / "bench.toml"
    rates = {"bare": [], "idemsink": []}
    for number in range(args.rounds):
        for name in ("bare", "idemsink"):
            database.drop_collection(name)
            database[name].create_index("eventId", unique=True)
            if name == "bare":
                command = [BUILD / "bench" / "bench_bare", brokers, "bench", uri, "bench", "bare", "eventId",
                           str(args.threads)]
            else:
                config.write_text(CONFIG.format(brokers=brokers, uri=uri, round=number, threads=args.threads))
                command = [BUILD / "idemsink", "run", "-c", config, "--until-end"]
            seconds, cpu, output = timed([str(word) for word in command])
            if name == "bare":
                seconds = json.loads(output)["seconds"]
            found = database[name].count_documents({})
            if found != distinct:
                raise SystemExit(f"{name}: {found} documents, {distinct} expected")
            rates[name].append(args.records / seconds)
            print(f"round {number + 1} {name:9s} {args.records / seconds:9.0f} records/s "
                  f"{cpu / args.records:6.2f} us of CPU per record", flush=True)
    bare, ours = statistics.median(rates["bare"]), statistics.median(rates["idemsink"])
    print(f"ratio {ours / bare:.2f} (idemsink {ours:.0f}/s with start, join and leave, bare loop {bare:.0f}/s; "
          f"{args.records} records, {args.partitions} partitions, {args.threads} threads, {args.duplicates} % duplicates)")


main()
