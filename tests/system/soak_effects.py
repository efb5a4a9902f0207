"""
Effects under random kills: three processes, twelve partitions, hot and cold counters, follows, unfollows and numbered orders, old
ones redelivered at any time. A process is killed with -9 at a random moment or between two steps (include/base/fault.h), and started
again.

    python tests/system/soak_effects.py KILLS SECONDS [transaction|log] [--keep-stack DIR]

Needs the builds release and faults. Prints what it did; exit status 0 when counters, sequences and the ledger are the truth. IDEMSINK_SEED
repeats the random choices (not the moments).
"""
import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from chaos import fast_sessions  # noqa: E402
from effects import LOG, Follows, Orders, short_transactions, wait_committed  # noqa: E402
from fault_points import points_of_the_code  # noqa: E402
from harness import Setup, Stack  # noqa: E402

PARTITIONS, WORKERS = 12, 3


def points_of(mode):
    """Those that a process of this mode comes to."""
    others = "log." if mode == "transaction" else "txn."
    return sorted(point for point in points_of_the_code() if not point.startswith((others, "lock.", "notifier.", "repair.")))


class Soak:
    def __init__(self, stack, directory, mode):
        short_transactions(stack)
        self.stack, self.points = stack, points_of(mode)
        self.follows = Follows(stack, PARTITIONS, mode)
        self.orders = Orders(stack, PARTITIONS, mode, "gapless" if mode == "transaction" else "block", True)
        self.topics = [self.follows, self.orders]
        self.setup = Setup(stack, directory, [t.topic for t in self.topics], collection=self.follows.documents, dead_letters=False)
        self.setup.routes = [t.route() for t in self.topics]
        self.setup.sections["effects"] = LOG
        self.setup.sections["worker"].update(batch=100, threads=2, commit_interval="100ms")
        self.setup.sections["retry"].update(first="20ms", max="300ms")
        fast_sessions(self.setup)
        self.kills = {"at random": 0, "between two steps": 0}
        self.running, self.failed = [], []
        self.stop = threading.Event()

    def start(self, slot):
        """
        Most will die where they come to some point the N-th time. Most are static members, which get their partitions back at once; for
        the others a rebalance waits until the dead one is missed.
        """
        fault = f"{random.choice(self.points)}:{random.randrange(1, 12)}" if random.random() < 0.8 else ""
        self.setup.sections["kafka"]["instance_id"] = f"slot-{slot}" if random.random() < 0.8 else ""
        return self.setup.start(fault=fault)

    def feed(self):
        try:
            while not self.stop.wait(0.1):
                for topic in self.topics:
                    topic.send(topic.make(random.randrange(1, 60)))
                    topic.send_old(random.randrange(30))
        except BaseException as error:  # shown by whoever waits for us
            self.failed.append(error)

    def replace_dead(self):
        for i, worker in enumerate(self.running):
            status = worker.process.poll()
            if status is None:
                continue
            assert status == -signal.SIGKILL, f"a worker ended by itself with {status}: {worker.log_tail()}"
            self.kills["between two steps"] += 1
            self.running[i] = self.start(i)

    def kill_one(self):
        self.replace_dead()
        victim = random.randrange(WORKERS)
        if self.running[victim].kill() == -signal.SIGKILL:
            self.kills["at random"] += 1
        self.running[victim] = self.start(victim)

    def run(self, kills, seconds):
        feeder = threading.Thread(target=self.feed)
        self.running = [self.start(i) for i in range(WORKERS)]
        feeder.start()
        try:
            pause = seconds / kills * 2  # half of them die by themselves
            while sum(self.kills.values()) < kills:
                until = time.monotonic() + pause * random.uniform(0.3, 1.7)
                while time.monotonic() < until:
                    time.sleep(0.02)
                    self.replace_dead()
                self.kill_one()
        finally:
            self.stop.set()
            feeder.join(120)
        assert not self.failed, self.failed

    def finish(self):
        """Quietly to the end, and everything compared."""
        for worker in self.running:
            worker.kill()
        self.setup.sections["kafka"].pop("instance_id", None)
        self.running = [self.setup.start() for _ in range(WORKERS)]
        wait_committed(self.stack, self.setup.group, self.topics, 120)
        for topic in self.topics:
            topic.wait_closed()
            topic.check()
        assert [worker.terminate() for worker in self.running] == [0] * WORKERS, self.running[0].log_tail()
        for topic in self.topics:
            topic.check()

    def told(self):
        return (f"{sum(self.kills.values())} kills ({self.kills['at random']} at random, {self.kills['between two steps']} between two steps), "
                f"{sum(t.deliveries for t in self.topics)} deliveries of {sum(t.numbers for t in self.topics)} events: "
                "counters, sequences and ledger are the truth")


def soak(stack, directory, mode, kills, seconds):
    s = Soak(stack, directory, mode)
    try:
        s.run(kills, seconds)
        s.finish()
        return s.told()
    finally:
        s.setup.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("mode", nargs="?", choices=("transaction", "log"), default="transaction")
    parser.add_argument("--keep-stack")
    args = parser.parse_args()
    os.environ["MONGOC_DISABLE_SHM"] = "1"
    seed = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    random.seed(seed)
    print(f"IDEMSINK_SEED={seed} {args.mode}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        stack = Stack(args.keep_stack or pathlib.Path(directory) / "stack")
        try:
            started = time.monotonic()
            print(soak(stack, directory, args.mode, args.kills, args.seconds), f"({time.monotonic() - started:.0f} s)")
        finally:
            if not args.keep_stack:
                stack.down()


if __name__ == "__main__":
    main()
