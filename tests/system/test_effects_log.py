"""Effects without transactions, on a standalone mongod: the steps, who dies, who sleeps, what the sweep completes."""
import concurrent.futures
import datetime
import functools
import os
import random
import signal
import subprocess
import time

import pytest
from effects import WAYS, wait_committed
from fault_points import setup_of
from harness import BINARY, wait_until


def test_the_steps_on_a_standalone(standalone):
    program = BINARY.parent / "tests" / "system" / "system_test_mongo_log"
    done = subprocess.run([program], env={**os.environ, "MONGO_URI": standalone.mongo_uri}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=150)
    print(done.stdout)
    assert done.returncode == 0


def kill_9_in_the_middle(standalone, tmp_path):
    topic = WAYS["follows by log"](standalone, 4)
    setup = setup_of(standalone, tmp_path, topic)
    setup.sections["worker"].update(threads=2)
    setup.sections["kafka"]["instance_id"] = "same"  # nobody waits until the dead one is missed
    topic.send(topic.make(1500, people=40))
    try:
        for _ in range(3):
            before = topic.ledger.count_documents({})
            worker = setup.start()
            wait_until(lambda: topic.ledger.count_documents({}) > min(before + 100, 1499), 30, "some are stored")
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait(10)
            topic.send_old(100)
        worker = setup.start()
        wait_committed(standalone, setup.group, [topic])
        assert worker.terminate() == 0
        topic.wait_closed()
        topic.check()
    finally:
        setup.close()


def a_process_that_slept(standalone, tmp_path):
    """Stopped for longer than an attempt (1 s) and its session, while another one does the work, then continued."""
    topic = WAYS["follows by log"](standalone, 2)
    setup = setup_of(standalone, tmp_path, topic)
    setup.sections["kafka"]["properties"].update({"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"})
    topic.send(topic.make(1200, people=30))
    try:
        first = setup.start()
        wait_until(lambda: topic.ledger.count_documents({}) > 50, 30, "it works")
        os.kill(first.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        second = setup.start()
        wait_committed(standalone, setup.group, [topic])
        wait_until(lambda: time.monotonic() > stopped_at + 2.5, 10)
        topic.check()
        os.kill(first.pid, signal.SIGCONT)
        topic.send(topic.make(200, people=30))
        topic.send_old(200)
        wait_committed(standalone, setup.group, [topic])
        assert [w.terminate() for w in (first, second)] == [0, 0]
        topic.wait_closed()
        topic.check()
    finally:
        setup.close()


def the_sweep_completes_what_nobody_comes_back_for(standalone, tmp_path):
    topic = WAYS["block by log"](standalone, 1)
    setup = setup_of(standalone, tmp_path, topic)
    topic.send(topic.make(1))
    ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=10)
    try:
        assert setup.start("--until-end", fault="log.before_count").wait(40) == -signal.SIGKILL
        assert topic.documents.update_one({"_effects": {"$exists": True}}, {"$set": {"_effects.at": ago}}).modified_count == 1
        setup.routes[0]["topics"] = [standalone.topic(1)]
        workers = [setup.start(), setup.start()]
        topic.wait_closed()
        topic.check()
        assert "open" in {i for index in topic.documents.index_information() for i in index.split("_")}
        assert [w.terminate() for w in workers] == [0, 0]
        assert any(w.saw("effects that were left open are completed") for w in workers)
    finally:
        setup.close()


def numbers_of_two_processes(standalone, tmp_path, way):
    topic = WAYS[way](standalone, 4)
    setup = setup_of(standalone, tmp_path, topic)
    topic.send(topic.make(800))
    topic.send_old(100)
    try:
        workers = [setup.start(), setup.start()]
        wait_committed(standalone, setup.group, [topic])
        assert [w.terminate() for w in workers] == [0, 0]
        topic.check()
    finally:
        setup.close()


JOBS = {
    "kill -9 in the middle": kill_9_in_the_middle,
    "a process that slept": a_process_that_slept,
    "the sweep completes what nobody comes back for": the_sweep_completes_what_nobody_comes_back_for,
    "numbers of two processes": functools.partial(numbers_of_two_processes, way="block"),
    "numbers of two processes, counted by log": functools.partial(numbers_of_two_processes, way="block by log"),
}


@pytest.fixture(scope="module")
def running(standalone, tmp_path_factory):
    """All of them, side by side: they wait more than they work."""
    random.seed(5)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield {name: pool.submit(job, standalone, tmp_path_factory.mktemp("log")) for name, job in JOBS.items()}


@pytest.mark.parametrize("name", JOBS)
def test_by_log(running, name):
    running[name].result()
