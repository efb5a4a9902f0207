"""What scripts/stack needs a client library for: free ports, the replica set, and the question whether the parts answer.

stack-helper.py ports COUNT OWNER REGISTRY     prints COUNT free loopback ports, reserved in the folder REGISTRY
stack-helper.py exercise PART                  makes a new broker do a little of everything that clients ask of one
stack-helper.py ready [options] PART...        waits until each PART (NAME:PORT:PID, name kafka1, mongo2, redis) answers
    --kafka N     and the N brokers, all named here, work together: each knows all, and a group finds its coordinator
    --mongo N     and the N mongods, all named here, are one replica set with a writable primary (initiated if need be)
    --timeout S   for all of it
Exit status 1, with one line on stderr: a part did not answer in time, its process ended, or somebody else answered
on its port.
"""

import argparse
import fcntl
import io
import os
import random
import re
import socket
import struct
import sys
import threading
import time

HOST = "127.0.0.1"
WELL_KNOWN = {27017, 27018, 27019}  # where somebody may start a mongod of their own
POLL_S = 0.02
STALE_S = 60  # a reservation without a stack.conf is this long somebody's who is just starting


class NotReady(Exception):
    """A part can't be waited for any longer; the text says which and why."""


# --- ports ---------------------------------------------------------------------------------------------------------


def port_range():
    """Ports that the kernel gives to no outgoing connection.

    A part that is stopped and started again has to find its port free; an ephemeral port could be taken meanwhile, even
    by a client that connects to it and, on loopback, meets itself.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        first, last = map(int, f.read().split())
    if first >= 20000:
        ports = range(10240, first)
    else:
        ports = range(last + 1, 65536) if last < 60000 else range(10240, 65536)
    return [p for p in ports if p not in WELL_KNOWN]


def is_reserved(path):
    """Whether the reservation still stands: its owner's stack.conf names the port, or it was made a moment ago."""
    with open(path, encoding="utf-8") as f:
        owner = f.read()
    try:
        with open(os.path.join(owner, "stack.conf"), encoding="utf-8") as f:
            if re.search(rf"\b{os.path.basename(path)}\b", f.read()):
                return True
    except OSError:
        pass
    return time.time() - os.stat(path).st_mtime < STALE_S


def is_free(port):
    with socket.socket() as s:
        # As the servers do it: connections of an earlier owner that linger in TIME_WAIT are no obstacle.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def reserve_ports(count, owner, registry):
    os.makedirs(registry, exist_ok=True)
    with open(os.path.join(registry, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in filter(str.isdigit, os.listdir(registry)):
            path = os.path.join(registry, name)
            if not is_reserved(path):
                os.unlink(path)
        reserved = set(os.listdir(registry))
        candidates = port_range()
        random.SystemRandom().shuffle(candidates)
        ports = []
        for port in candidates:
            if str(port) in reserved or not is_free(port):
                continue
            with open(os.path.join(registry, str(port)), "w", encoding="utf-8") as f:
                f.write(owner)
            ports.append(port)
            if len(ports) == count:
                return ports
    raise NotReady(f"only {len(ports)} of {count} ports are free")


# --- waiting -------------------------------------------------------------------------------------------------------


class Part:
    def __init__(self, text):
        self.name, port, pid = text.split(":")
        self.port, self.pid = int(port), int(pid)
        self.kind = self.name.rstrip("0123456789")
        self.number = int(self.name[len(self.kind):] or 1)
        self.address = f"{HOST}:{self.port}"
        self.said = "nothing yet"  # the last answer that was not good enough, for the error text

    def is_alive(self):
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as f:
                return f.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False


class Waiter:
    """Asks the parts again and again until they answer; one deadline for all."""

    def __init__(self, timeout_s):
        self.end = time.monotonic() + timeout_s

    def left(self):
        return self.end - time.monotonic()

    def until(self, part, ask):
        """Calls ask() until it returns something true, and returns that."""
        while True:
            if not part.is_alive():
                raise NotReady(f"{part.name}: the process ended (pid {part.pid})")
            answer = ask()
            if answer:
                return answer
            if self.left() <= 0:
                raise NotReady(f"{part.name}: does not answer on {part.address} (last: {part.said})")
            time.sleep(POLL_S)

    def listening(self, part):
        def ask():
            try:
                socket.create_connection((HOST, part.port), timeout=1).close()
                return True
            except OSError as e:
                part.said = str(e)
                return False

        self.until(part, ask)


def wait_redis(waiter, part):
    def ask():
        try:
            with socket.create_connection((HOST, part.port), timeout=2) as s:
                s.sendall(b"PING\r\nINFO server\r\n")
                answer = b""
                while b"process_id:" not in answer and (more := s.recv(4096)):
                    answer += more
        except OSError as e:
            part.said = str(e)
            return False
        if not answer.startswith(b"+PONG"):  # -LOADING while it reads its file
            part.said = answer[:60].decode(errors="replace").strip()
            return False
        pid = re.search(rb"process_id:(\d+)", answer)
        if pid and int(pid[1]) != part.pid:
            raise NotReady(f"{part.name}: Address already in use: another Redis answers on {part.address}")
        return True

    waiter.until(part, ask)


def kafka_ask(port, api, version, body):
    """One request of Kafka's protocol to just this broker, and the answer after its header.

    By hand, because a client library asks whichever broker it knows, and asks again only after a second.
    """
    client = b"stack"
    request = struct.pack(">hhih", api, version, 1, len(client)) + client + body
    with socket.create_connection((HOST, port), timeout=2) as s, s.makefile("rb") as stream:
        s.sendall(struct.pack(">i", len(request)) + request)
        head = stream.read(8)  # length, correlation id
        answer = stream.read(struct.unpack(">ii", head)[0] - 4) if len(head) == 8 else b""
    if not answer:
        raise ConnectionError("the broker closed the connection")
    return answer


def kafka_cluster(port):
    """The brokers that this one knows and the cluster's id (Metadata, version 2, of no topic)."""
    answer = io.BytesIO(kafka_ask(port, 3, 2, struct.pack(">i", 0)))

    def number(form):
        return struct.unpack(form, answer.read(struct.calcsize(form)))[0]

    def text():
        return answer.read(max(number(">h"), 0)).decode()

    brokers = set()
    for _ in range(number(">i")):
        brokers.add(number(">i"))
        text(), number(">i"), text()  # host, port, rack
    return brokers, text()


def kafka_coordinator_error(port, group):
    """0 when the group has a coordinator, else Kafka's error code (FindCoordinator, version 1)."""
    key = group.encode()
    answer = kafka_ask(port, 10, 1, struct.pack(">h", len(key)) + key + b"\0")
    return struct.unpack(">ih", answer[:6])[1]  # after the throttle time


def wait_kafka(waiter, parts, whole, cluster_id):
    def knows(part, want):
        def ask():
            try:
                brokers, cluster = kafka_cluster(part.port)
            except OSError as e:
                part.said = str(e)
                return False
            if cluster_id and cluster != cluster_id:
                raise NotReady(f"{part.name}: Address already in use: another Kafka answers on {part.address}")
            part.said = f"it knows the brokers {sorted(brokers)}"
            return want <= brokers

        return ask

    def coordinator():
        try:
            error = kafka_coordinator_error(parts[0].port, "stack-ready")
        except OSError as e:
            parts[0].said = str(e)
            return False
        parts[0].said = f"no group coordinator (Kafka's error {error})"
        return error == 0

    everyone = {p.number for p in parts}
    for part in parts:
        waiter.until(part, knows(part, everyone if whole else {part.number}))
    if whole:
        # Also makes the broker create its offsets topic, which would else delay the first real consumer.
        waiter.until(parts[0], coordinator)


def wait_mongo(waiter, parts, whole):
    import pymongo
    from pymongo.errors import PyMongoError

    def client(part):
        return pymongo.MongoClient(
            part.address, directConnection=True, serverSelectionTimeoutMS=1000, connectTimeoutMS=1000, socketTimeoutMS=10000
        )

    clients = {}
    for part in parts:
        waiter.listening(part)
        clients[part.name] = client(part)

        def is_ours(part=part):
            try:
                pid = clients[part.name].admin.command("serverStatus")["pid"]
            except PyMongoError as e:
                part.said = str(e).split(",")[0]
                return False
            if pid != part.pid:
                raise NotReady(f"{part.name}: Address already in use: another mongod answers on {part.address}")
            return True

        waiter.until(part, is_ours)
    if whole:
        initiate(clients[parts[0].name], parts)

    def state(part):
        def ask():
            try:
                hello = clients[part.name].admin.command("hello")
            except PyMongoError as e:
                part.said = str(e).split(",")[0]
                return False
            part.said = "neither primary nor secondary"
            return "primary" if hello["isWritablePrimary"] else "secondary" if hello["secondary"] else None

        return ask

    def elected():
        if any(state(part)() == "primary" for part in parts):
            return True
        try:
            # Else the first election waits for electionTimeoutMillis. It fails until the others have their configuration.
            clients[parts[0].name].admin.command("replSetStepUp")
        except PyMongoError as e:
            parts[0].said = f"no primary yet ({str(e).split(',')[0]})"
        return False

    if whole:
        waiter.until(parts[0], elected)
    for part in parts:
        waiter.until(part, state(part))


def initiate(client, parts):
    """Makes the replica set rs0 of the parts, unless it is there."""
    from pymongo.errors import OperationFailure

    config = {
        "_id": "rs0",
        "members": [{"_id": i, "host": p.address} for i, p in enumerate(parts)],
        "settings": {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500},
    }
    try:
        client.admin.command("replSetInitiate", config)
    except OperationFailure as e:
        if e.code != 23:  # AlreadyInitialized
            raise NotReady(f"mongo: replSetInitiate: {e}") from e


def exercise(part):
    """For the class archive: what is used here is loaded faster by every later broker."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    waiter = Waiter(60)
    wait_kafka(waiter, [part], True, "")
    conf = {"bootstrap.servers": part.address, "log_level": 0}
    admin = AdminClient(conf)  # kept: its end would end what it was asked for
    for future in admin.create_topics([NewTopic("exercise", 2, 1)]).values():
        future.result(30)
    producer = Producer({**conf, "transactional.id": "exercise"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(20):
        producer.produce("exercise", str(i), str(i % 5))
    producer.commit_transaction(30)
    consumer = Consumer({**conf, "group.id": "exercise", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["exercise"])
    waiter.until(part, lambda: consumer.poll(0.5))
    consumer.commit(asynchronous=False)
    consumer.close()


def make_topic(brokers, name, partitions):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        try:
            future.result(30)
            print(f"topic {name}: made, {partitions} partitions")
        except KafkaException as e:
            if e.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise NotReady(f"topic {name}: {e.args[0].str()}") from e
            print(f"topic {name}: was there")


def ready(args):
    waiter = Waiter(args.timeout)
    parts = [Part(text) for text in args.part]
    kafka = [p for p in parts if p.kind == "kafka"]
    mongo = [p for p in parts if p.kind == "mongo"]
    jobs = [(wait_redis, waiter, p) for p in parts if p.kind == "redis"]
    if kafka:
        jobs.append((wait_kafka, waiter, kafka, len(kafka) == args.kafka, args.cluster_id))
    if mongo:
        jobs.append((wait_mongo, waiter, mongo, len(mongo) == args.mongo))
    failures = []

    def run(job):
        try:
            job[0](*job[1:])
        except NotReady as e:
            failures.append(str(e))
            waiter.end = 0  # the others need not go on
        except Exception as e:  # a thread's exception would else be lost
            failures.append(f"{job[0].__name__}: {type(e).__name__}: {e}")
            waiter.end = 0

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise NotReady(failures[0])


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("ports")
    p.add_argument("count", type=int)
    p.add_argument("owner")
    p.add_argument("registry")
    p = commands.add_parser("ready")
    p.add_argument("--kafka", type=int, default=0)
    p.add_argument("--cluster-id", default="")
    p.add_argument("--mongo", type=int, default=0)
    p.add_argument("--timeout", type=float, default=90)
    p.add_argument("part", nargs="+")
    p = commands.add_parser("exercise")
    p.add_argument("part")
    p = commands.add_parser("topic")
    p.add_argument("brokers")
    p.add_argument("name")
    p.add_argument("partitions", type=int)
    args = parser.parse_args()
    try:
        if args.command == "ports":
            print(*reserve_ports(args.count, args.owner, args.registry))
        elif args.command == "exercise":
            exercise(Part(args.part))
        elif args.command == "topic":
            make_topic(args.brokers, args.name, args.partitions)
        else:
            ready(args)
        status = 0
    except NotReady as e:
        print(e, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # no waiting for the clients' threads: one may hang on a dead part


if __name__ == "__main__":
    main()
