"""G10: kill -9 inside of what mends: the sweep, and `idemsink reconcile --apply`. The next one finishes it, and nothing is done twice."""
import datetime
import signal

import pytest
from effects import WAYS, short_transactions
from fault_points import REPAIR, SWEEP, each, setup_of
from harness import wait_until
from reconcile_help import reconcile

AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)


def end_lease(topic, name):
    """As if its time had passed. It is there: the dead one has not given it back."""
    left = topic.db["idemsink_leases"].find_one_and_update({"_id": name}, {"$set": {"until": AGO}})
    assert "token" in left and left["until"].replace(tzinfo=datetime.timezone.utc) > AGO, left


def sweeper_killed(stack, directory, way, point):
    """One dies with an event open that nobody delivers again, the next one in the sweep that completes it."""
    topic = WAYS[way](stack, 1)
    setup = setup_of(stack, directory, topic)
    events, first = (topic.ledger, "log.before_add") if way.startswith("follows") else (topic.documents, "log.before_count")
    setup.sections["kafka"]["instance_id"] = "same"  # nobody waits until the dead one is missed
    topic.send(topic.some("k")[:1])
    try:
        assert setup.start("--until-end", fault=first).wait(40) == -signal.SIGKILL
        assert events.update_one({"_effects": {"$exists": True}}, {"$set": {"_effects.at": AGO, "_effects.until": AGO}}).modified_count == 1
        setup.routes[0]["topics"] = [stack.topic(1)]
        setup.sections["kafka"]["group"] += "-again"
        worker = setup.start(fault=point)
        assert worker.wait(40) == -signal.SIGKILL, f"it did not come to {point}: {worker.log_tail()}"
        assert topic.open_effects() == (0 if point == "sweep.before_release" else 1)
        end_lease(topic, f"sweep tests.{topic.name}")
        worker = setup.start().wait_ready()
        topic.wait_closed()
        assert worker.terminate() == 0, worker.log_tail()
        topic.check()
    finally:
        setup.close()


def test_a_kill_inside_of_the_sweep(stack, tmp_path):
    short_transactions(stack)
    each([(way, point) for way, points in SWEEP.items() for point in points],
         lambda way, point: sweeper_killed(stack, tmp_path, way, point))


@pytest.mark.parametrize("way", REPAIR)
def test_a_kill_inside_of_a_repair(stack, standalone, tmp_path, way):
    """In one snapshot with mirrors and numbers, and by comparing on a standalone."""
    services = standalone if way.endswith("by log") else stack
    short_transactions(stack)
    topic = WAYS[way](services, 1)
    setup = setup_of(services, tmp_path, topic)
    try:
        topic.send(topic.some("k"))
        assert setup.start("--until-end").wait(40) == 0
        for point in REPAIR[way]:
            topic.check()
            user = topic.damage()
            done = setup.command("reconcile", "--apply", fault=point)
            assert done.returncode == -signal.SIGKILL, (point, done.stderr)
            if point == REPAIR[way][0]:  # a dead one's lease keeps others away until it runs out
                done = setup.command("reconcile", "--apply")
                assert done.returncode == 69 and b"another process reconciles" in done.stderr, (point, done.stderr)
            end_lease(topic, "reconcile")
            # A killed transaction holds the counter until the server ends it.
            wait_until(lambda: reconcile(setup, "--apply")["balanced"], 20, f"{point}: what it left is repaired")
            if point == "repair.before_mirror":  # the number is right: the mirror is when it moves, and is not put back before
                topic.send([topic.event(user, "kx")])
                assert setup.start("--until-end").wait(40) == 0
            topic.check()
            topic.check_ended()
    finally:
        setup.close()
