"""
G10: kill -9 between every two steps (the points of include/base/fault.h), each way that effects can go. After a restart every
event has had its effect once; so it has when the process only stood still, past every time-out, while another did its work.
"""
import concurrent.futures
import os
import re
import signal
import time

import pytest
from effects import LOG, WAYS, short_transactions, wait_committed
from harness import BINARY, FAULTY_BINARY, ROOT, Setup, wait_until

COMMON = ["worker.before_write", "worker.after_write", "worker.before_settle", "kafka.before_commit", "kafka.after_commit"]
POINTS = {
    "plain": COMMON,
}
ELSEWHERE = {"notifier.before_send", "notifier.after_send"}  # test_a_kill_around_a_message
SIDE_BY_SIDE = 4


def points_of_the_code():
    found = set()
    for path in ROOT.glob("src/**/*.c"):
        found |= set(re.findall(r'FAULT\("([a-z_.]+)"\)', path.read_text()))
    return found


def test_every_point_is_visited():
    assert points_of_the_code() == {point for points in POINTS.values() for point in points} | ELSEWHERE


def test_a_release_has_no_points():
    release, faulty = BINARY.read_bytes(), FAULTY_BINARY.read_bytes()
    for point in [*points_of_the_code(), "IDEMSINK_FAULT"]:
        assert point.encode() in faulty and point.encode() not in release, point


def setup_of(stack, directory, topic):
    setup = Setup(stack, directory, topic.topic, collection=topic.documents, dead_letters=False)
    setup.routes = [topic.route()]
    setup.sections["effects"] = LOG
    setup.sections["worker"].update(commit_interval="50ms", threads=1)
    setup.sections["retry"].update(first="20ms", max="200ms")
    return setup


def each(points, job):
    """job(point) for all of them, some side by side; what went wrong, by point."""
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running = {point: pool.submit(job, point) for point in points}
    wrong = {point: repr(done.exception()) for point, done in running.items() if done.exception()}
    assert not wrong, "\n".join(f"{point}: {error[:1500]}" for point, error in wrong.items())


@pytest.mark.parametrize("way", POINTS)
def test_a_kill_at_every_point(stack, tmp_path, way):
    short_transactions(stack)

    def job(point):
        topic = WAYS[way](stack, 1)
        setup = setup_of(stack, tmp_path, topic)
        setup.sections["kafka"]["instance_id"] = "same"  # nobody waits until the dead one is missed
        topic.send(topic.some("k"))
        try:
            first = setup.start("--until-end", fault=point)
            assert first.wait(30) == -signal.SIGKILL, f"it did not come there: {first.log_tail()}"
            assert (second := setup.start("--until-end")).wait(30) == 0, second.log_tail()
            assert topic.open_effects() == 0  # what is committed is done
            topic.check()
        finally:
            setup.close()

    each(POINTS[way], job)


def is_stopped(worker):
    with open(f"/proc/{worker.pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.parametrize("way", POINTS)
def test_a_stop_at_every_point(stack, tmp_path, way):
    """Longer than the session, an attempt, a transaction and the socket may take. Another member does the work meanwhile."""
    short_transactions(stack)

    def job(point):
        topic = WAYS[way](stack, 1)
        setup = setup_of(stack, tmp_path, topic)
        setup.sections["kafka"]["properties"].update({"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"})
        setup.sections["mongo"].update(socket_timeout="1s", write_timeout="500ms")
        topic.send(topic.some("s"))
        try:
            first = setup.start(fault=f"{point}:1:stop")
            wait_until(lambda: is_stopped(first), 20, f"{point}: it stands still")
            stopped_at = time.monotonic()
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
        finally:
            setup.close()

    each(POINTS[way], job)
