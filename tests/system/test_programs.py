"""The system tests that are written in C: build/release/tests/system/system_test_*, one case each."""
import os
import subprocess

import pytest

import harness

PROGRAMS = sorted((harness.BINARY.parent / "tests" / "system").glob("system_test_mongo_*"))


def test_they_are_built():
    sources = sorted(source.stem for source in (harness.ROOT / "tests" / "system").glob("test_mongo_*.c"))
    assert [program.name.removeprefix("system_") for program in PROGRAMS] == sources


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program, fragile_stack):
    # They step the server down, freeze it and set fail points, and leave it whole again.
    done = subprocess.run(
        [program], env={**os.environ, **fragile_stack.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=150,
    )
    print(done.stdout)
    assert done.returncode == 0
