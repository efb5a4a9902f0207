"""SIGTERM drains, commits and leaves in time, whatever the others do; a second one leaves at once."""
import signal
import time

from harness import wait_until


def load(stack, topic, n=20000):
    stack.produce(topic, [({"eventId": f"e{i}", "text": "x" * 200}, f"k{i % 1000}") for i in range(n)])


def test_sigterm_under_load_leaves_nothing_behind(stack, make):
    topic = stack.topic(4)
    setup = make(topic)
    setup.sections["worker"]["commit_interval"] = "60s"  # so that the last commit is the one at the end
    load(stack, topic)
    worker = setup.start()
    wait_until(lambda: setup.collection.estimated_document_count() > 2000, 30, "some documents")
    started = time.monotonic()
    assert worker.terminate(15) == 0, worker.log_tail()
    assert time.monotonic() - started < 10
    books = worker.books()
    assert books["open"] == 0
    done = books["inserted"] + books["duplicate"] + books["dead_letter"] + books["skipped"]
    assert books["consumed"] == done + books["dropped"] + books["late"]
    assert books["inserted"] == setup.collection.count_documents({})
    # it committed at the end, up to the first record of each partition that it had not begun
    committed = sum(stack.committed(setup.group, topic).values())
    assert 0 < committed <= done
    rest = setup.run_until_end(90)
    assert rest.books()["duplicate"] == done - committed < 4 * 2 * 1000  # threads, SCHED_WINDOW, batch
    assert setup.collection.count_documents({}) == 20000
    assert setup.verify()["status"] == 0


def test_group_is_left_so_that_the_next_starts_at_once(stack, make):
    topic = stack.topic(2)
    setup = make(topic)
    setup.sections["kafka"]["properties"] = {"session.timeout.ms": "45000"}
    worker = setup.start().wait_ready()
    assert worker.terminate() == 0
    started = time.monotonic()
    setup.start().wait_ready()
    assert time.monotonic() - started < 15  # and not the session time-out


def test_sigint_does_the_same(stack, make):
    setup = make(stack.topic(1))
    worker = setup.start().wait_ready()
    worker.signal(signal.SIGINT)
    assert worker.wait(15) == 0


def test_sigterm_with_a_frozen_broker(fragile_stack, make_fragile):
    topic = fragile_stack.topic(2)
    setup = make_fragile(topic)
    load(fragile_stack, topic, 2000)
    worker = setup.start().wait_ready()
    setup.wait_settled()
    load(fragile_stack, topic, 500)
    fragile_stack.pause("kafka1")
    try:
        started = time.monotonic()
        assert worker.terminate(12) in (0, 75)
        assert time.monotonic() - started < 10
    finally:
        fragile_stack.resume("kafka1")
    setup.run_until_end(90)
    assert setup.verify()["status"] == 0


def test_sigterm_with_a_frozen_mongod(fragile_stack, make_fragile):
    topic = fragile_stack.topic(2)
    setup = make_fragile(topic)
    worker = setup.start().wait_ready()
    fragile_stack.pause("mongo1")
    try:
        load(fragile_stack, topic, 500)
        wait_until(lambda: worker.metric("idemsink_in_flight_records") > 0, 20, "records in flight")
        started = time.monotonic()
        status = worker.terminate(12)
        assert time.monotonic() - started < 10
        assert status in (0, 75)
        assert sum(fragile_stack.committed(setup.group, topic).values()) == 0
    finally:
        fragile_stack.resume("mongo1")
    setup.run_until_end(90)
    assert setup.verify()["status"] == 0


def test_second_signal_leaves_at_once(fragile_stack, make_fragile):
    topic = fragile_stack.topic(1)
    setup = make_fragile(topic)
    worker = setup.start().wait_ready()
    fragile_stack.pause("mongo1")
    try:
        load(fragile_stack, topic, 100)
        wait_until(lambda: worker.metric("idemsink_in_flight_records") > 0, 20, "records in flight")
        worker.signal(signal.SIGTERM)
        worker.wait_saw("signal: draining")
        wait_until(lambda: worker.get("/readyz")[1].startswith("stopping"), 5, "stopping")
        started = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(3) == 75
        assert time.monotonic() - started < 1
    finally:
        fragile_stack.resume("mongo1")


def test_sigterm_while_waiting_for_mongodb_at_start(stack, make):
    setup = make(stack.topic(1))
    setup.sections["mongo"]["uri"] = "mongodb://127.0.0.1:9/?replicaSet=rs0"
    worker = setup.start()
    worker.wait_saw("MongoDB can't be reached yet")
    assert worker.get("/readyz")[0] == 503
    assert worker.get("/healthz")[0] == 200
    started = time.monotonic()
    assert worker.terminate(12) == 0
    assert time.monotonic() - started < 2 and worker.saw("signal: draining") and worker.saw("stopped before anything was read")


def test_what_is_waited_for_at_start_is_said_again(stack, make):
    """The driver looks for a server for 25 s; until then there is no error to tell."""
    setup = make(stack.topic(1))
    setup.sections["mongo"].update(uri="mongodb://127.0.0.1:9/?replicaSet=rs0", server_selection_timeout="25s")
    worker = setup.start()
    worker.wait_saw("waiting for MongoDB", 14)
    started = time.monotonic()
    assert worker.terminate(12) == 0
    assert time.monotonic() - started < 2 and worker.saw("stopped before anything was read")
