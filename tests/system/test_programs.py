"""The system tests that are written in C: build/release/tests/system/system_test_*, one case each."""
import os
import subprocess

import pytest

import harness

FOLDER = harness.BINARY.parent / "tests" / "system"
PROGRAMS = sorted(FOLDER.glob("system_test_mongo_*"))
KAFKA_PROGRAMS = sorted(FOLDER.glob("system_test_kafka_*"))


def test_they_are_built():
    # Those of Redis run in test_redis_bus.py, with a redis-server of their own.
    sources = sorted(source.stem for source in (harness.ROOT / "tests" / "system").glob("test_*.c")
                     if not source.stem.startswith("test_redis_"))
    assert sorted(program.name.removeprefix("system_") for program in PROGRAMS + KAFKA_PROGRAMS) == sources


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program, fragile_stack):
    # They step the server down, freeze it and set fail points, and leave it whole again.
    done = subprocess.run(
        [program], env={**os.environ, **fragile_stack.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=150,
    )
    print(done.stdout)
    assert done.returncode == 0


@pytest.mark.parametrize("program", KAFKA_PROGRAMS, ids=lambda program: program.name)
def test_kafka_program(program, stack):
    # They make topics and groups of their own and leave the broker alone.
    done = subprocess.run(
        [program], env={**os.environ, **stack.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=240,
    )
    print(done.stdout)
    assert done.returncode == 0
