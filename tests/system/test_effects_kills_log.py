"""G10: kill -9 between every two steps, without transactions. After a restart every event has had its effect once."""
import signal

from effects import WAYS
from fault_points import every, kill_at, setup_of
from harness import wait_until


def test_a_kill_at_every_point(stack, tmp_path):
    every(kill_at, stack, tmp_path, ["follows by log", "block by log", "locked by log", "mirrored by log", "block", "max"])


def test_transactions_finish_what_the_log_has_left(stack, tmp_path):
    """Killed by log, gone on in transactions: what was open is done before anything else, and once."""
    for way in ("follows by log", "block by log"):
        topic = WAYS[way](stack, 1)
        setup = setup_of(stack, tmp_path, topic)
        setup.sections["kafka"]["instance_id"] = "same"
        topic.send(topic.some("k"))
        try:
            assert setup.start("--until-end", fault="log.before_count").wait(40) == -signal.SIGKILL
            assert topic.open_effects() > 0
            setup.routes[0]["effects"] = "transaction"
            worker = setup.start("--until-end")
            assert worker.wait(40) == 0, worker.log_tail()
            assert worker.saw("effects that the log has left open are completed")
            assert topic.open_effects() == 0
            topic.check()
        finally:
            setup.close()


def test_a_kill_before_ids_are_forgotten(stack, tmp_path):
    """What counters remember of their events is dropped when nobody can repeat them any more: not before some time has passed."""
    topic = WAYS["follows by log"](stack, 1)
    setup = setup_of(stack, tmp_path, topic)
    setup.sections["kafka"]["instance_id"] = "same"
    try:
        worker = setup.start(fault="log.before_prune")

        def killed():
            topic.send([topic.event("follow", "a", f"b{topic.numbers}"), topic.event("unfollow", "a", f"b{topic.numbers - 2}")])
            return worker.process.poll() is not None

        wait_until(killed, 60, "an id dropped", pause=0.1)
        assert worker.wait(1) == -signal.SIGKILL, worker.log_tail()
        assert setup.start("--until-end").wait(40) == 0
        topic.check()
    finally:
        setup.close()


def test_a_kill_before_a_counter_is_given_up(stack, tmp_path):
    """A counter that can't be moved: the document stays, says so, and harms nobody."""
    topic = WAYS["block by log"](stack, 1)
    setup = setup_of(stack, tmp_path, topic)
    setup.sections["kafka"]["instance_id"] = "same"
    topic.db[f"{topic.name}_users"].insert_one({"_id": "ka", "spent": "much"})
    topic.send(topic.some("k"))
    try:
        assert setup.start("--until-end", fault="log.before_fail").wait(40) == -signal.SIGKILL
        assert setup.start("--until-end").wait(40) == 0
        events = {value["eventId"]: value for value in topic.distinct()}
        failed = {d["eventId"] for d in topic.documents.find({"_effects.failed": {"$exists": True}})}
        assert failed == {event for event, value in events.items() if value["customer"] == "ka"} and topic.open_effects() == len(failed)
        assert {d["eventId"] for d in topic.documents.find()} == set(events)
        others = topic.db[f"{topic.name}_users"].find_one({"_id": "kb"})
        assert others["orders"] == sum(value["customer"] == "kb" for value in events.values())
    finally:
        setup.close()
