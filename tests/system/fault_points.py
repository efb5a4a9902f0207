"""
The points at which tests kill or stop the process (include/base/fault.h), which of them each way of effects comes to, and what is
done there. "a > b": killed at a, and, when the next process completes what was left, at b.
"""
import concurrent.futures
import os
import re
import signal
import time

from effects import LOG, WAYS, short_transactions, wait_committed
from harness import ROOT, Setup, wait_until

COMMON = ["worker.before_write", "worker.after_write", "worker.before_settle", "kafka.before_commit", "kafka.after_commit"]

SEND = ["notifier.before_send", "notifier.after_send"]


def steps(way, *names):
    return [" > ".join(f"{way}.{part}" for part in name.split(" > ")) for name in names]


def log(*names):
    return steps("log", *(" > ".join(f"before_{part}" for part in name.split(" > ")) for name in names))


def txn(*names):
    return steps("txn", *names)


def lock(*names):
    return steps("lock", *(f"before_{name}" for name in names))


POINTS = {
    "plain": COMMON,
    "told": SEND,
    "mirrored": ["worker.after_write", *SEND, " > ".join(reversed(SEND))],
    "mirrored by log": ["worker.after_write", *SEND, " > ".join(reversed(SEND))],
    "fenced": [*lock("take", "number", "confirm"), *COMMON[:2], *txn("before_fence", "before_count", "before_commit", "after_commit"),
               *lock("release"), "worker.before_settle"],
    "locked by log": [*lock("take"), "worker.before_write", *log("count"), *lock("release")],
    "follows by transaction": [*COMMON, *txn("before_look", "before_begin", "before_state", "before_count", "before_check", "before_events", "before_insert",
                                             "before_delete", "before_replace", "inside_replace", "before_commit", "after_commit",
                                             "after_commit > before_look")],
    "gapless": txn("before_look", "before_begin", "before_count", "before_check", "before_number", "before_insert", "before_commit", "after_commit"),
    "follows by log": [*COMMON, *log("look", "write", "add", "mark", "read", "did", "count", "check", "make", "remove", "clean",
                                     "close", "count > claim", "close > close")],
    "block by log": log("look", "number", "start", "write", "count", "check", "make", "close", "count > count", "count > close"),
    "block": log("look", "number", "start", "write"),
    "max": log("look", "highest", "write"),
}
# test_effects_kills_chores.py
SWEEP = {
    "block by log": steps("sweep", "before_find", "before_run", "before_release") + log("count", "check", "close"),
    "follows by log": steps("sweep", "before_run") + log("claim", "add", "count", "close"),
}
REPAIR = {
    "mirrored": steps("repair", *(f"before_{step}" for step in ("begin", "read", "count", "set", "commit", "mirror", "raise", "release"))),
    "follows by log": steps("repair", *(f"before_{step}" for step in ("read", "open", "count", "set", "release"))),
}
ELSEWHERE = set(log("fail", "prune", "reopen"))  # visited by tests of their own
SIDE_BY_SIDE = 6


def points_of_the_code():
    found = set()
    for path in ROOT.glob("src/**/*.c"):
        found |= set(re.findall(r'FAULT\("([^"]+)"\)', path.read_text()))
    return found


def visited():
    lists = [points for ways in (POINTS, SWEEP, REPAIR) for points in ways.values()]
    return {name for points in lists for point in points for name in point.split(" > ")} | ELSEWHERE


def setup_of(stack, directory, topic):
    setup = Setup(stack, directory, topic.topic, collection=topic.documents, dead_letters=False)
    setup.routes = [topic.route()]
    setup.sections["effects"] = LOG
    if topic.redis:
        setup.sections["redis"] = {"uri": stack.redis_uri}
    setup.sections["worker"].update(commit_interval="50ms", threads=1, batch=4)
    setup.sections["retry"].update(first="20ms", max="200ms")
    return setup


def each(jobs, job):
    """job(stack, directory, way, point) for all of [(way, point)], some side by side."""
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running = {pair: pool.submit(job, *pair) for pair in jobs}
    wrong = {pair: done.exception() for pair, done in running.items() if done.exception()}
    for pair, error in wrong.items():
        print(f"{pair}: {str(error)[:3000]}")
    assert not wrong, list(wrong)


def kill_at(stack, directory, way, point):
    """Killed there, started again: every event has had its effect once when its offset is committed."""
    topic = WAYS[way](stack, 1)
    setup = setup_of(stack, directory, topic)
    setup.sections["kafka"]["instance_id"] = "same"  # nobody waits until the dead one is missed
    topic.send(topic.some("k"))
    try:
        for name in point.split(" > "):
            setup.sections["worker"]["commit_interval"] = "60s" if topic.needs_redelivery else "50ms"
            worker = setup.start(*([] if topic.needs_redelivery else ["--until-end"]), fault=name)
            assert worker.wait(40) == -signal.SIGKILL, f"it did not come to {name}: {worker.log_tail()}"
            topic.check_killed()
        worker = setup.start("--until-end")
        assert worker.wait(40) == 0, worker.log_tail()
        assert topic.open_effects() == 0  # what is committed is done
        topic.check()
        topic.check_ended()
    finally:
        setup.close()


def is_stopped(worker):
    with open(f"/proc/{worker.pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def stop_at(stack, directory, way, point):
    """
    Stands still there for longer than its session, an attempt, a transaction and the socket may take. Another member does the work
    meanwhile; then it goes on.
    """
    topic = WAYS[way](stack, 1)
    setup = setup_of(stack, directory, topic)
    setup.sections["kafka"]["properties"].update({"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"})
    setup.sections["mongo"].update(socket_timeout="1s", write_timeout="500ms")
    topic.send(topic.some("s"))
    try:
        first = setup.start(fault=f"{point}:1:stop")
        wait_until(lambda: is_stopped(first), 20, f"{point}: it stands still")
        stopped_at = time.monotonic()
        topic.send(topic.some("s"))  # what it has in hand is old
        second = setup.start()
        wait_committed(stack, setup.group, [topic])
        topic.check()
        wait_until(lambda: time.monotonic() > stopped_at + 2.5, 3)
        os.kill(first.pid, signal.SIGCONT)
        topic.send(topic.some("t"))
        wait_committed(stack, setup.group, [topic])
        assert [w.terminate() for w in (first, second)] == [0, 0], first.log_tail() + second.log_tail()
        assert topic.open_effects() == 0
        topic.check()
        topic.check_ended()
    finally:
        setup.close()


def every(job, stack, directory, ways, points=None):
    """job at every point of these ways, or at those of `points` ({way: points})."""
    short_transactions(stack)
    chosen = points or POINTS
    pairs = [(way, point) for way in ways for point in chosen.get(way, []) if job is kill_at or " > " not in point]
    assert pairs
    each(pairs, lambda way, point: job(stack, directory, way, point))
