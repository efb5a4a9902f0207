"""G7, G10: counters and sequences while the primaries of a replica set of three come and go, and where there is no replica set."""
import concurrent.futures
import os
import random

import pymongo
import pytest
from chaos import repeating
from effects import LOG, Follows, Orders, wait_committed
from harness import Setup, wait_until
from test_outages import impatient, primary_of, replica_stack, secondaries_of, step_down  # noqa: F401


def fed(topics, pause=0.1):
    """Records flow while the block runs, old ones among them."""
    def some():
        for topic in topics:
            topic.send(topic.make(random.randrange(5, 30)))
            topic.send_old(random.randrange(10))

    return repeating(some, pause)


def some_are_done(stack, setup, topics):
    """Everything that is there now gets committed, while more comes."""
    ends = {topic.topic: {p: len(log) for p, log in topic.log.items()} for topic in topics}

    def reached():
        return all(stack.committed(setup.group, name).get(p, 0) >= end for name, of in ends.items() for p, end in of.items() if end)

    return reached


def counted_on_a_secondary(stack, setup, topics):
    """`reconcile --secondary`: one that is no primary reads the events, and all is right. Another election may come in between."""
    members = [pymongo.MongoClient("127.0.0.1", port, directConnection=True) for port in stack.members]

    def counted():
        secondaries_of(stack)
        secondaries = [m["tests"] for m in members if not m.is_primary]
        for database in secondaries:
            database.command("profile", 2)
        done = setup.command("reconcile", "--secondary")
        for database in secondaries:
            database.command("profile", 0)
        assert done.returncode in (0, 69), done.stdout + done.stderr
        read = [sum(d["system.profile"].count_documents({"command.aggregate": topic.name}) for d in secondaries) for topic in topics]
        return done.returncode == 0 and all(read)

    try:
        wait_until(counted, 20, "a secondary that counts")
    finally:
        for member in members:
            member.close()


def step_downs_under_load(replica_stack, tmp_path):  # noqa: F811
    topics = [Follows(replica_stack, 4, "transaction"), Follows(replica_stack, 4, "log"),
              Orders(replica_stack, 4, "transaction", "gapless", True), Orders(replica_stack, 4, None, "block", False)]
    setup = Setup(replica_stack, tmp_path, [t.topic for t in topics], collection=topics[0].documents, dead_letters=False)
    impatient(setup)
    setup.routes = [t.route() for t in topics]
    setup.sections["effects"] = LOG
    try:
        workers = [setup.start(), setup.start()]
        for worker in workers:
            worker.wait_ready()
        with fed(topics):
            for _ in range(2):
                step_down(replica_stack)
                wait_until(some_are_done(replica_stack, setup, topics), 30, "commits that go on")
            primary = primary_of(replica_stack)
            replica_stack.kill(primary)
            wait_until(some_are_done(replica_stack, setup, topics), 40, "commits with the next primary")
            replica_stack.start(primary)
        wait_committed(replica_stack, setup.group, topics)
        for topic in topics:
            topic.wait_closed()
            topic.check()
        counted_on_a_secondary(replica_stack, setup, topics)
        assert [w.terminate() for w in workers] == [0, 0]
    finally:
        setup.close()


def a_standalone_mongod_is_killed(standalone, tmp_path):
    """Without transactions, and without a second member: effects = "auto" goes by the log."""
    topics = [Follows(standalone, 4, None), Orders(standalone, 4, None, "block", True)]
    setup = Setup(standalone, tmp_path, [t.topic for t in topics], collection=topics[0].documents, dead_letters=False)
    impatient(setup)
    setup.routes = [t.route() for t in topics]
    setup.sections["effects"] = LOG
    try:
        worker = setup.start().wait_ready()
        with fed(topics):
            for _ in range(2):
                wait_until(some_are_done(standalone, setup, topics), 30, "commits that go on")
                standalone.kill_and_restart()
        wait_committed(standalone, setup.group, topics)
        for topic in topics:
            topic.wait_closed()
            topic.check()
        assert worker.terminate() == 0
    finally:
        setup.close()


@pytest.fixture(scope="module")
def running(replica_stack, standalone, tmp_path_factory):  # noqa: F811
    """Both, side by side: they wait more than they work."""
    seed = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    print(f"IDEMSINK_SEED={seed}")
    random.seed(seed)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield {job: pool.submit(job, services, tmp_path_factory.mktemp("outages"))
               for job, services in ((step_downs_under_load, replica_stack), (a_standalone_mongod_is_killed, standalone))}


def test_step_downs_under_load(running):
    running[step_downs_under_load].result()


def test_a_standalone_mongod_is_killed(running):
    running[a_standalone_mongod_is_killed].result()


def test_what_needs_transactions_is_refused_there(standalone, tmp_path):
    numbered = {"sequence": {"group": ["source"], "field": "number", "mode": "block"}}
    for topic, more in ((Follows(standalone, 1, "transaction"), {}), (Orders(standalone, 1, None, "gapless", False), {}),
                        (Follows(standalone, 1, "auto"), numbered)):
        setup = Setup(standalone, tmp_path, topic.topic, collection=topic.documents, dead_letters=False)
        setup.routes = [{**topic.route(), **more}]
        worker = setup.start("--until-end")
        try:
            assert worker.wait(30) == 78, worker.log_tail()
            assert "replica set" in worker.log_tail()
        finally:
            setup.close()
