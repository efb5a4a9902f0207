"""Against a redis-server of their own: build/release/tests/system/system_test_redis_*, one case each."""
import subprocess

import pytest

import harness


@pytest.mark.parametrize("name", ["bus", "caches"])
def test_redis(name):
    program = harness.BINARY.parent / "tests" / "system" / f"system_test_redis_{name}"
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
    print(done.stdout)
    assert done.returncode == 0
