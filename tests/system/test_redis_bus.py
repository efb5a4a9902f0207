"""The notifier against a redis-server of its own: build/release/tests/system/system_test_redis_bus."""
import subprocess

import harness


def test_redis_bus():
    program = harness.BINARY.parent / "tests" / "system" / "system_test_redis_bus"
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
    print(done.stdout)
    assert done.returncode == 0
