"""G10: kill -9 between every two steps, with transactions. After a restart every event has had its effect once."""
from fault_points import POINTS, every, kill_at, points_of_the_code, visited
from harness import BINARY, FAULTY_BINARY

WAYS = [way for way in POINTS if way in ("plain", "told", "mirrored", "follows by transaction", "gapless", "fenced")]


def test_every_point_is_visited():
    assert points_of_the_code() == visited()


def test_a_release_has_no_points():
    release, faulty = BINARY.read_bytes(), FAULTY_BINARY.read_bytes()
    for point in [*points_of_the_code(), "IDEMSINK_FAULT"]:
        assert point.encode() in faulty and point.encode() not in release, point


def test_a_kill_at_every_point(stack, tmp_path):
    every(kill_at, stack, tmp_path, WAYS)
