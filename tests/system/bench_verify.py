"""How long `verify` takes and what memory it needs: produces N events, stores them, verifies, and prints the numbers.

IDEMSINK_BIN=build/release/idemsink $PYTHON tests/system/bench_verify.py [N] [--memory SIZE] [--stack DIR]

N is 1,000,000 unless given. The arithmetic for ten times as many is printed: time goes with the records, memory with the
dedup keys. Not a test; test_verify.py checks the memory bound with fewer.
"""
import argparse
import json
import math
import tempfile
import time

import harness
from confluent_kafka import Producer


def produce(stack, topic, n):
    producer = Producer({"bootstrap.servers": stack.brokers, "linger.ms": 20, "compression.type": "lz4",
                         "queue.buffering.max.messages": 500000})
    for i in range(n):
        value = json.dumps({"eventId": f"event-{i:010}", "customer": f"c{i % 5000}", "amount": i * 0.25, "lines": [i, i + 1],
                            "note": "some text of a usual length for such an event"})
        while True:
            try:
                producer.produce(topic, value, f"k{i % 5000}")
                break
            except BufferError:
                producer.poll(0.2)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=1000000)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--stack", metavar="DIR", help="use (and keep) the stack in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        stack = harness.Stack(options.stack or f"{directory}/stack")
        try:
            topic = stack.topic(4)
            setup = harness.Setup(stack, directory, topic)
            began = time.monotonic()
            produce(stack, topic, options.n)
            print(f"produced  {options.n} records in {time.monotonic() - began:.1f} s", flush=True)
            began = time.monotonic()
            setup.run_until_end(3600)
            print(f"stored    in {time.monotonic() - began:.1f} s", flush=True)
            done = setup.command("verify", "--json", "--memory", options.memory, seconds=3600)
            books = json.loads(done.stdout)
            assert done.returncode == 0 and books["stored"] == options.n, (done.stdout, done.stderr)
            mib = {name: value / (1 << 20) for name, value in books["memory"].items()}
            print(f"verified  in {books['seconds']:.1f} s: {2 * options.n / books['seconds']:.0f} records and documents a second")
            print(f"memory    bound {mib['bound_bytes']:.0f} MiB, table {mib['table_bytes']:.0f} MiB, "
                  f"peak RSS {mib['peak_rss_bytes']:.0f} MiB")
            slots = 64 * 2 ** math.ceil(math.log2(10 * options.n / 64 / 0.75))  # 64 tables, each at most 3/4 full
            beside = mib["peak_rss_bytes"] - mib["table_bytes"]
            print(f"10 times  {10 * books['seconds'] / 60:.1f} min, table {slots * 40 / (1 << 20):.0f} MiB, "
                  f"peak RSS about {slots * 40 / (1 << 20) + beside:.0f} MiB")
            assert mib["peak_rss_bytes"] <= mib["bound_bytes"]
            setup.collection.drop()
        finally:
            if not options.stack:
                stack.down()


if __name__ == "__main__":
    main()
