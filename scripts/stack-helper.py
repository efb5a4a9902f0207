"""What scripts/stack needs a client library for: free ports, the replica set, and the question whether the parts answer.

stack-helper.py ports COUNT OWNER REGISTRY     prints COUNT free loopback ports, reserved in the folder REGISTRY
stack-helper.py ready [options] PART...        waits until each PART (NAME:PORT:PID, name kafka1, mongo2, redis) answers
    --kafka N     and the N brokers, all named here, work together: each knows all, and a group finds its coordinator
    --mongo N     and the N mongods, all named here, are one replica set with a writable primary (initiated if need be)
    --timeout S   for all of it
Exit status 1, with one line on stderr: a part did not answer in time, its process ended, or somebody else answered
on its port.
"""

import argparse
import fcntl
import os
import random
import re
import socket
import sys
import threading
import time

HOST = "127.0.0.1"
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
    if first > 16000:
        return range(10240, first)
    return range(last + 1, 65536) if last < 60000 else range(10240, 65536)


def is_reserved(path):
    """Whether the reservation still stands: its owner's stack.conf names the port, or it was made a moment ago."""
    try:
        with open(path, encoding="utf-8") as f:
            owner = f.read()
        made = os.stat(path).st_mtime
    except FileNotFoundError:
        return False
    try:
        with open(os.path.join(owner, "stack.conf"), encoding="utf-8") as f:
            if re.search(rf"\b{os.path.basename(path)}\b", f.read()):
                return True
    except OSError:
        pass
    return time.time() - made < STALE_S


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
        ports = []
        candidates = list(port_range())
        random.SystemRandom().shuffle(candidates)
        for port in candidates:
            path = os.path.join(registry, str(port))
            if is_reserved(path) or not is_free(port):
                continue
            with open(path, "w", encoding="utf-8") as f:
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


def wait_kafka(waiter, parts, whole, cluster_id):
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    def conf(addresses, **more):
        return {
            "bootstrap.servers": addresses,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "error_cb": lambda e: None,  # else they are printed
            **more,
        }

    def knows(part, want):
        """A client of its own per question: one that has learnt of other brokers would ask them."""
        client = AdminClient(conf(part.address))

        def ask():
            try:
                md = client.list_topics(timeout=1)
            except KafkaException as e:
                part.said = e.args[0].str()
                return False
            if cluster_id and md.cluster_id != cluster_id:
                raise NotReady(f"{part.name}: Address already in use: another Kafka answers on {part.address}")
            part.said = f"it knows the brokers {sorted(md.brokers)}"
            return want <= set(md.brokers)

        return ask

    want = {p.number for p in parts}
    for part in parts:
        waiter.listening(part)
        waiter.until(part, knows(part, want if whole else {part.number}))
    if not whole:
        return

    # Makes the broker create its offsets topic, which would else delay the first real consumer.
    consumer = Consumer(conf(",".join(p.address for p in parts), **{"group.id": "stack-ready"}))

    def coordinator():
        try:
            consumer.committed([TopicPartition("stack-ready", 0)], timeout=1)
            return True
        except KafkaException as e:
            parts[0].said = f"no group coordinator: {e.args[0].str()}"
            return False

    try:
        waiter.until(parts[0], coordinator)
    finally:
        consumer.close()


def wait_mongo(waiter, parts, whole):
    import pymongo
    from pymongo.errors import OperationFailure, PyMongoError

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
        initiate(clients[parts[0].name], parts, OperationFailure)

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

    states = [waiter.until(part, state(part)) for part in parts]
    while whole and "primary" not in states:
        parts[0].said = "no primary was elected"
        waiter.until(parts[0], state(parts[0]))
        if waiter.left() <= 0:
            raise NotReady("mongo: no member became primary")
        time.sleep(POLL_S)
        states = [state(part)() for part in parts]


def initiate(client, parts, operation_failure):
    """Makes the replica set rs0 of the parts, unless it is there."""
    config = {
        "_id": "rs0",
        "members": [{"_id": i, "host": p.address} for i, p in enumerate(parts)],
        "settings": {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500},
    }
    try:
        client.admin.command("replSetInitiate", config)
    except operation_failure as e:
        if e.code != 23:  # AlreadyInitialized
            raise NotReady(f"mongo: replSetInitiate: {e}") from e


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
    args = parser.parse_args()
    try:
        if args.command == "ports":
            print(*reserve_ports(args.count, args.owner, args.registry))
        else:
            ready(args)
    except NotReady as e:
        print(e, file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)  # a client's thread may hang on a dead part


if __name__ == "__main__":
    main()
