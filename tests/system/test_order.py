"""
G3: records of one ordering key come into existence in partition order, whatever happens to single writes. Random bulks are
delayed, refused or cut off in the server; MongoDB's own log (a change stream) tells in which order documents came to be.
"""
import random

import pytest
from chaos import (
    Feed, assert_lanes_in_order, assert_settled, fast_sessions, feed_until_retried, feeding, insert_order, lane_by_header,
    lane_by_key, look_often, now_in_oplog, random_faults, watching,
)
from harness import wait_until


def delayed():
    return {"blockConnection": True, "blockTimeMS": random.choice((10, 50, 150, 400))}


FAULTS = (
    delayed,
    delayed,
    {"closeConnection": True},  # before the command
    {"errorCode": 11600},
    {"errorCode": 91, "errorLabels": []},
    {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},  # written, not acknowledged
)


def small_batches(setup, **more):
    look_often(setup)
    setup.sections["worker"].update(threads=4, batch=40, run_max=10, linger="1ms", commit_interval="50ms", **more)
    setup.sections["retry"].update(first="5ms", max="100ms")


@pytest.mark.parametrize(
    "order_by, lane, keys, lanes",
    (
        ("@key", lane_by_key, 40, 80),
        ("lane", lane_by_key, 40, 80),
        ("@header.third", lane_by_header, 40, 6),
        ("@partition", lambda _: None, 40, 2),
    ),
    ids=("key", "path", "header", "partition"),
)
def test_order_under_random_faults(stack, make, seed, order_by, lane, keys, lanes):
    feed = Feed(stack, partitions=2, keys=keys)
    setup = make(feed.topic)
    small_batches(setup)
    setup.routes[0]["order_by"] = order_by
    start = now_in_oplog(stack)
    feed.send(6000 if lanes == 80 else 60 * lanes + 100, poison=5)
    with watching(setup, feed), random_faults(stack, FAULTS, pause=(0.005, 0.06)) as faults:
        worker = setup.start()
        feed_until_retried(setup, feed, worker, faults)
    assert faults[0] > 5
    assert worker.metric("idemsink_retries_total") > 0
    assert worker.terminate() == 0
    assert_settled(setup, feed)
    assert assert_lanes_in_order(insert_order(setup, start, feed.events), lane) == lanes


@pytest.mark.parametrize("strategy", ("range", "cooperative-sticky"))
def test_order_across_kills_and_rebalances(stack, make, seed, strategy):
    feed = Feed(stack, partitions=4, keys=30)
    setup = make(feed.topic)
    fast_sessions(setup)
    small_batches(setup, drain_timeout="300ms")
    setup.sections["kafka"]["properties"]["partition.assignment.strategy"] = strategy
    start = now_in_oplog(stack)
    members = [setup.start(), setup.start()]
    for member in members:
        member.wait_ready()
    with watching(setup, feed), random_faults(stack, FAULTS), feeding(feed, pause=0.05, events=60, poison=1):
        for end in ("kill", "terminate", "kill"):
            documents = setup.collection.estimated_document_count()
            wait_until(lambda: setup.collection.estimated_document_count() > documents + 300, 30, "work")
            member = members.pop(random.randrange(2))
            assert getattr(member, end)() in (-9, 0, 75)  # 75: a write hung for longer than the drain may take
            members.append(setup.start())
    setup.wait_settled()
    assert [member.terminate() for member in members] == [0, 0]
    assert_settled(setup, feed)
    assert assert_lanes_in_order(insert_order(setup, start, feed.events), lane_by_key) == 120
