#!/usr/bin/env python3
"""What scripts/compose-test asks the running stack, through the ports that it publishes.

  check.py ports N                      N free loopback ports and a range A-B of two, on one line
  check.py sample KAFKA MONGO           docker/orders.txt was sent: what has to be stored, and what has to lie in the dead-letter topic
  check.py more   KAFKA MONGO REDIS HTTP    sends duplicates itself, with a subscriber listening; then the stored, the told and the counted
  check.py count  KAFKA MONGO N         all that was sent is committed, and there are N documents

KAFKA, MONGO, REDIS, HTTP are ports on 127.0.0.1. Prints one line a check, "ok ..." or "FAIL ..."; exit 1 when one failed.
"""
import datetime
import json
import pathlib
import random
import socket
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPIC, DEAD, GROUP = "orders", "orders.dead", "orders-sink"
DISTINCT = 300
failed = 0


def report(name, problem=None):
    global failed
    failed += bool(problem)
    print(f"FAIL {name}: {problem}" if problem else f"ok {name}", flush=True)


def wait_for(what, seconds):
    """Calls what() until it returns nothing (its complaint is gone) or the time is over; returns the last complaint."""
    end = time.monotonic() + seconds
    while (complaint := what()) and time.monotonic() < end:
        time.sleep(0.2)
    return complaint


def bound(port):
    """A socket on this port of 127.0.0.1 (0: any), or None when it is taken."""
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", port))
    except OSError:
        s.close()
        return None
    return s


def free_ports(n):
    """n ports and a range of two. The sockets are held until all are found, so that no port is named twice."""
    held = [bound(0) for _ in range(n)]
    for _ in range(100):
        first = bound(0)
        if second := bound(first.getsockname()[1] + 1):
            break
        held.append(first)
    else:
        sys.exit("no two free ports beside each other")
    print(*[s.getsockname()[1] for s in held[:n]], "-".join(str(s.getsockname()[1]) for s in (first, second)))


def orders(port):
    import pymongo

    client = pymongo.MongoClient("127.0.0.1", int(port), directConnection=True, serverSelectionTimeoutMS=5000, socketTimeoutMS=5000)
    return client["shop"]["orders"]


def sample_records():
    lines = (ROOT / "docker/orders.txt").read_text(encoding="utf-8").splitlines()
    return [line.split("|", 1) for line in lines]


def sample_expected():
    """eventId -> the first event with it, and the payloads that can't be stored, each with its reason."""
    events, bad = {}, {}
    for _, payload in sample_records():
        try:
            event = json.loads(payload)
        except ValueError:
            bad[payload] = "json_syntax"
            continue
        if "eventId" in event:
            events.setdefault(event["eventId"], event)
        else:
            bad[payload] = "dedup_missing"
    return events, bad


def stored_differs(collection, expected, only):
    """Compares the stored documents whose ids `only` matches with the expected ones; returns what is wrong, or None."""
    docs = list(collection.find({"eventId": {"$regex": only}}, {"_id": 0}))
    ids = [d["eventId"] for d in docs]
    if sorted(ids) != sorted(expected):
        return f"{len(ids)} documents with {len(set(ids))} ids, expected {len(expected)}"
    for d in docs:
        want = dict(expected[d["eventId"]])
        want["createdAt"] = datetime.datetime.fromisoformat(want["createdAt"].replace("Z", "+00:00")).replace(tzinfo=None)
        if d != want:
            return f"{d['eventId']} is {d}, expected {want}"
    return None


def dead_letters(port, seconds):
    """payload -> reason of everything in the dead-letter topic."""
    import confluent_kafka as ck

    consumer = ck.Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": f"compose-test-{time.time_ns()}",
                            "auto.offset.reset": "earliest", "enable.auto.commit": False})
    found, end = {}, time.monotonic() + seconds
    try:
        meta = consumer.list_topics(DEAD, timeout=10)
        for p in meta.topics[DEAD].partitions:
            tp = ck.TopicPartition(DEAD, p, 0)
            _, high = consumer.get_watermark_offsets(tp, timeout=10)
            consumer.assign([tp])
            seen = 0
            while seen < high and time.monotonic() < end:
                m = consumer.poll(1.0)
                if m is None or m.error():
                    continue
                seen += 1
                found[m.value().decode()] = dict(m.headers() or []).get("idemsink.reason", b"").decode()
    finally:
        consumer.close()
    return found


def sample(kafka, mongo):
    events, bad = sample_expected()
    collection = orders(mongo)
    report(f"the sample's {len(events)} events are stored, each once and as first sent",
           wait_for(lambda: stored_differs(collection, events, "^evt-"), 60))

    def dead_letters_differ():
        found = dead_letters(kafka, 20)
        return None if found == bad else f"{found}, expected {bad}"
    report("its two impossible records lie in the dead-letter topic, with their reasons", wait_for(dead_letters_differ, 30))


def send_duplicates(kafka):
    """Sends every event one to three times in a random order; returns the first copy of each. The seed is printed."""
    import confluent_kafka as ck

    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    ids = [i for i in range(DISTINCT) for _ in range(rng.randint(1, 3))]
    rng.shuffle(ids)
    first, lost = {}, []
    producer = ck.Producer({"bootstrap.servers": f"127.0.0.1:{kafka}", "enable.idempotence": True, "linger.ms": 5,
                            "message.timeout.ms": 30000})
    for n, i in enumerate(ids):
        event = {"eventId": f"t-{i}", "copy": n, "createdAt": "2024-06-01T00:00:00Z"}
        first.setdefault(event["eventId"], event)
        producer.produce(TOPIC, json.dumps(event), key=f"key-{i % 40}", on_delivery=lambda e, _: e and lost.append(str(e)))
    left = producer.flush(30)
    report(f"{len(ids)} records with {len(first)} ids sent through the published port",
           f"{left} not sent, errors {lost[:3]}" if left or lost else None)
    return first


def metrics(http):
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=5) as answer:
        return answer.read().decode()


def more(kafka, mongo, redis_port, http):
    import redis

    collection = orders(mongo)
    listener = redis.Redis("127.0.0.1", int(redis_port), socket_timeout=5).pubsub()
    listener.psubscribe("*")
    if (listener.get_message(timeout=10) or {}).get("type") != "psubscribe":
        return report("a subscriber at Redis", "no answer to PSUBSCRIBE")
    expected = send_duplicates(kafka)
    report("each of them is stored once, as first sent", wait_for(lambda: stored_differs(collection, expected, "^t-"), 60))

    told, end = None, time.monotonic() + 15
    while told is None and time.monotonic() < end:
        told = listener.get_message(ignore_subscribe_messages=True, timeout=1)
    problem = "no message in 15 s"
    if told:
        channel, body = told["channel"].decode(), json.loads(told["data"])
        right = channel == "monsqlize:cache:invalidate" and body.get("type") == "invalidate" and "orders" in body.get("pattern", "")
        problem = None if right else f"{channel}: {body}"
    report("a subscriber at Redis was told of it", problem)
    names = [line.split("{")[0].split(" ")[0] for line in metrics(http).splitlines() if line.startswith("idemsink_")]
    report("/metrics answers through the published port", None if names else "no idemsink_ metric in the answer")


def uncommitted(kafka):
    """How many records of the topic the worker's group has not committed."""
    import confluent_kafka as ck

    consumer = ck.Consumer({"bootstrap.servers": f"127.0.0.1:{kafka}", "group.id": GROUP, "enable.auto.commit": False})
    try:
        parts = [ck.TopicPartition(TOPIC, p) for p in consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions]
        return sum(consumer.get_watermark_offsets(p, timeout=10)[1] - max(p.offset, 0) for p in consumer.committed(parts, timeout=10))
    finally:
        consumer.close()


def count(kafka, mongo, n):
    def lags():
        lag = uncommitted(kafka)
        return f"{lag} records are not" if lag else None
    report("every record sent is committed", wait_for(lags, 60))
    have = orders(mongo).count_documents({})
    report(f"{n} documents, as before", None if have == int(n) else f"{have} documents")


if __name__ == "__main__":
    commands = {"ports": lambda n: free_ports(int(n)), "sample": sample, "more": more, "count": count}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
    sys.exit(1 if failed else 0)
