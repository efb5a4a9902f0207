"""
G10: a process that stood still (SIGSTOP) past every time-out, while another member did its work, and goes on. Here at the points around
what counts; at every point of every way: IDEMSINK_ALL_POINTS=1 (minutes).
"""
import os

from fault_points import POINTS, SEND, every, lock, log, stop_at, txn

HERE = {
    "follows by transaction": [*txn("before_state", "before_insert", "before_commit", "after_commit"), "worker.after_write"],
    "gapless": txn("before_insert", "after_commit"),
    "follows by log": log("write", "add", "mark", "count", "remove", "close"),
    "block by log": log("number", "count"),
    "block": log("start", "write"),
    "max": log("highest", "write"),
    "fenced": [*lock("number", "confirm"), *txn("before_fence", "before_commit"), *lock("release")],
    "locked by log": lock("take", "release"),
    "mirrored": SEND,
}


def test_stops(stack, tmp_path):
    every(stop_at, stack, tmp_path, POINTS, None if os.environ.get("IDEMSINK_ALL_POINTS") else HERE)
