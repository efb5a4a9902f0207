"""G8: how much memory a worker takes while MongoDB is away and much waits in Kafka, whatever the number of partitions, the size
of the batches and how well they are compressed. Prints what it measured."""
import json
import random
import time

import pytest
from confluent_kafka import Producer
from harness import wait_until

MIB = 1 << 20
BASE = 40 * MIB  # the process with its libraries, threads and buffers


def words(rnd, size):
    return " ".join(f"{rnd.getrandbits(40):x}" for _ in range(size // 11))


def fill(stack, topic, partitions, events, text, **settings):
    """So many events into each partition, in batches of a megabyte."""
    producer = Producer({"bootstrap.servers": stack.brokers, "linger.ms": 500, "batch.size": 1000000, "batch.num.messages": 100000,
                         "message.max.bytes": 9000000, "queue.buffering.max.kbytes": 300000, **settings})
    for partition in range(partitions):
        for i in range(events):
            value = json.dumps({"eventId": f"{partition}-{i}", "text": text()})
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(60) == 0


def resident(pid, name):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024


def until_it_stops_growing(worker):
    """The peak, once it has been the same for three seconds."""
    peak, since = 0, time.monotonic()
    deadline = since + 40
    while time.monotonic() - since < 3:
        assert time.monotonic() < deadline, "it does not stop growing"
        now = resident(worker.pid, "VmHWM")
        if now > peak + MIB:
            peak, since = now, time.monotonic()
        time.sleep(0.1)
    return peak


CASES = {
    # name: partitions, events in each, bytes of an event, compression, repetitive text, max_bytes in MiB, bound in MiB
    "100 partitions, zstd, events of 1 kB": (100, 1000, 1000, "zstd", False, 8, 40),
    "100 partitions, zstd, repetitive": (100, 1000, 1000, "zstd", True, 8, 110),
    "100 partitions, uncompressed, events of 100 B": (100, 2000, 100, "none", False, 8, 16),
    "10 partitions, events of 5 MB": (10, 3, 5000000, "none", False, 64, 224),
}


@pytest.mark.parametrize("name", CASES)
def test_memory_stays_bounded_while_mongodb_is_away(fragile_stack, make_fragile, name):
    partitions, events, size, compression, repetitive, max_mib, bound_mib = CASES[name]
    rnd = random.Random(7)
    texts = ["x" * size] if repetitive else [words(rnd, size) for _ in range(50 if size < 100000 else 2)]
    topic = fragile_stack.topic(partitions, max_message_bytes=9000000)
    setup = make_fragile(topic)
    setup.sections["worker"]["max_bytes"] = f"{max_mib}MiB"
    worker = setup.start().wait_ready()
    fragile_stack.pause("mongo1")
    try:
        fill(fragile_stack, topic, partitions, events, lambda: rnd.choice(texts), **{"compression.type": compression})
        wait_until(lambda: worker.metric("idemsink_open_bytes") > 0, 30, "records read")
        peak = until_it_stops_growing(worker)
    finally:
        fragile_stack.resume("mongo1")
    print(f"\n{name}: {partitions * events * size // MIB} MiB, max_bytes {max_mib} MiB: peak {peak / MIB:.0f} MiB")
    assert peak < BASE + bound_mib * MIB
