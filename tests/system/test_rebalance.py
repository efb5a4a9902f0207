"""G3, G4, G9: members come, go, die and fall asleep while records flow; commits never lead back nor past what is stored."""
import random
import signal
import time

import pytest
from chaos import Feed, assert_settled, fail_point, fast_sessions, feeding, watching
from harness import wait_until


def progress(watch, feed, seconds=30):
    """Waits until what is in the topic now is committed."""
    ends = feed.ends()
    wait_until(lambda: all(watch.highest[p] >= end for p, end in ends.items()), seconds, "commits that go on")


def partitions_of(worker):
    """How many it has; None while it is not ready."""
    status, body = worker.get("/readyz")
    return int(body.split()[1]) if status == 200 else None


@pytest.mark.parametrize("strategy", ("range", "cooperative-sticky"))
def test_members_come_and_go(stack, make, seed, strategy):
    feed = Feed(stack, partitions=6)
    setup = make(feed.topic)
    fast_sessions(setup)
    setup.sections["kafka"]["properties"]["partition.assignment.strategy"] = strategy
    setup.sections["worker"].update(batch=100, commit_interval="50ms")
    members = [setup.start().wait_ready()]
    with watching(setup, feed) as watch, feeding(feed, events=100, poison=1):
        progress(watch, feed)
        for _ in range(9):
            choices = ["come"] * (len(members) < 3) + ["leave", "die"] * (len(members) > 1)
            what = random.choice(choices)
            if what == "come":
                members.append(setup.start())
                members[-1].wait_saw("listening")  # before that SIGTERM just ends it
            elif what == "leave":
                assert members.pop(random.randrange(len(members))).terminate() == 0
            else:
                assert members.pop(random.randrange(len(members))).kill() == -9
            if random.random() < 0.4:
                progress(watch, feed)
            else:
                time.sleep(random.random() * 0.5)  # the next one into the rebalance of this one
        progress(watch, feed)
    setup.wait_settled()
    assert [worker.terminate() for worker in members] == [0] * len(members)
    assert_settled(setup, feed)


def test_cooperative_members_keep_what_they_do_not_give(stack, make):
    feed = Feed(stack, partitions=4)
    setup = make(feed.topic)
    setup.sections["kafka"]["properties"]["partition.assignment.strategy"] = "cooperative-sticky"
    first = setup.start().wait_ready()
    with watching(setup, feed) as watch, feeding(feed, events=50):
        progress(watch, feed)
        second = setup.start()
        wait_until(lambda: second.ready() and partitions_of(second) == 2 and partitions_of(first) == 2, 30, "two each")
        progress(watch, feed)
        assert first.metric("idemsink_partition_moves_total", type="revoked") == 2
        assert first.metric("idemsink_partition_moves_total", type="assigned") == 4
        assert second.terminate() == 0
        wait_until(lambda: partitions_of(first) == 4, 30, "all four back")
        progress(watch, feed)
        assert first.metric("idemsink_partition_moves_total", type="lost") == 0
    setup.wait_settled()
    assert_settled(setup, feed)


def test_a_write_that_comes_back_after_the_revoke(stack, make, seed):
    """The first member's writes hang in the server when its partitions are taken away; the second one does them meanwhile."""
    feed = Feed(stack, partitions=4)
    setup = make(feed.topic)
    setup.sections["worker"].update(drain_timeout="300ms", batch=50, threads=4)
    plain_uri = setup.sections["mongo"]["uri"]
    setup.sections["mongo"]["uri"] = plain_uri + "&appName=" + setup.group
    first = setup.start().wait_ready()
    setup.sections["mongo"]["uri"] = plain_uri
    with watching(setup, feed) as watch:
        feed.send(300)
        progress(watch, feed)
        # Of four threads each first write hangs, for as long as the rebalance takes and longer.
        fail_point(stack, {"times": 4}, appName=setup.group, blockConnection=True, blockTimeMS=6000)
        try:
            feed.send(1000)
            wait_until(lambda: first.metric("idemsink_in_flight_records") >= 150, 10, "writes that hang")
            second = setup.start()
            first.wait_saw("drain deadline passed with records still out", 10)
            wait_until(lambda: second.ready() and partitions_of(second) == 2, 20, "a second member")
            stored = setup.collection.count_documents({})
            wait_until(lambda: setup.collection.count_documents({}) > stored + 100, 20, "work of the second")
            wait_until(lambda: first.metric("idemsink_partition_records_total", outcome="late") > 0, 20, "late records")
        finally:
            fail_point(stack, "off")
        setup.wait_settled()
    assert [w.terminate() for w in (first, second)] == [0, 0]
    books = first.books()
    assert books["late"] > 0 and books["open"] == 0
    assert books["consumed"] == sum(books[k] for k in ("inserted", "duplicate", "dead_letter", "skipped", "late", "dropped"))
    assert_settled(setup, feed)


@pytest.mark.parametrize("strategy", ("range", "cooperative-sticky"))
def test_a_member_that_slept_through_its_session(stack, make, seed, strategy):
    """SIGSTOP until the group has given it up and another has gone on; SIGCONT: it harms nothing and joins again."""
    feed = Feed(stack, partitions=4)
    setup = make(feed.topic)
    fast_sessions(setup)
    setup.sections["kafka"]["properties"]["partition.assignment.strategy"] = strategy
    setup.sections["worker"].update(batch=20, commit_interval="20ms")
    members = [setup.start(), setup.start()]
    for member in members:
        member.wait_ready()
    with watching(setup, feed) as watch, feeding(feed, pause=0.02, events=50, poison=1):
        for sleeper, other in (members, members[::-1]):
            wait_until(lambda: partitions_of(sleeper) == 2, 30, "two partitions")
            progress(watch, feed)
            time.sleep(random.random() * 0.1)
            sleeper.signal(signal.SIGSTOP)
            try:
                wait_until(lambda: partitions_of(other) == 4, 30, "the other has taken over")
                progress(watch, feed)
            finally:
                sleeper.signal(signal.SIGCONT)
            wait_until(lambda: partitions_of(sleeper) == 2, 30, "the sleeper is back")
        progress(watch, feed)
    setup.wait_settled()
    assert all(member.metric("idemsink_partition_moves_total", type="lost") > 0 for member in members)
    assert [member.terminate() for member in members] == [0, 0]
    assert_settled(setup, feed)


def test_a_fixed_member_whose_name_is_taken_leaves(stack, make):
    """Two processes with one kafka.instance_id: the older one is fenced, says so and ends; nothing is lost."""
    feed = Feed(stack, partitions=2)
    setup = make(feed.topic)
    setup.sections["kafka"]["instance_id"] = setup.group
    older = setup.start().wait_ready()
    with watching(setup, feed) as watch, feeding(feed, events=50):
        progress(watch, feed)
        younger = setup.start()
        assert older.wait(30) == 78, older.log_tail()
        assert "another process has joined the group with the same id" in older.log_tail()
        progress(watch, feed)
    setup.wait_settled()
    assert younger.terminate() == 0
    assert_settled(setup, feed)


@pytest.mark.parametrize("strategy", ("range", "cooperative-sticky"))
def test_a_member_that_ends_while_it_joins(stack, make, seed, strategy):
    """SIGTERM at a random moment of the start: a clean end, and the others go on."""
    feed = Feed(stack, partitions=2)
    setup = make(feed.topic)
    fast_sessions(setup)
    setup.sections["kafka"]["properties"]["partition.assignment.strategy"] = strategy
    setup.start().wait_ready()
    with watching(setup, feed) as watch, feeding(feed, events=20):
        for _ in range(6):
            joining = setup.start()
            joining.wait_saw("started")
            time.sleep(random.random() * 0.6)
            assert joining.terminate() == 0, joining.log_tail()
        progress(watch, feed)
    setup.wait_settled()
    assert_settled(setup, feed)
