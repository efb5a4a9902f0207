"""examples/: each runs with its crashes and is checked against the truth."""
import concurrent.futures
import os
import subprocess
import sys

import pytest
import redis
from confluent_kafka import KafkaException
from effects import short_transactions
from harness import BINARY, PATIENCE, ROOT, wait_until

DATABASES = {"follows": "social", "orders": "shop", "payments": "bank"}


def forget(stack, name):
    """What an earlier run on the same stack has left."""
    for future in [*stack.admin.delete_topics([name]).values(),
                   *stack.admin.delete_consumer_groups([f"{name}-sink", f"{name}-again"]).values()]:
        try:
            future.result(30)
        except KafkaException:
            pass  # it was not there
    wait_until(lambda: name not in stack.admin.list_topics(timeout=60).topics, 20, "the end of the topic")
    stack.mongo.drop_database(DATABASES[name])
    redis.Redis.from_url(stack.redis_uri).flushdb()


def run(stack, directory, name):
    environment = {**os.environ, "KAFKA_BROKERS": stack.brokers, "MONGO_URI": stack.mongo_uri, "REDIS_URI": stack.redis_uri,
                   "IDEMSINK_BIN": str(BINARY)}
    return subprocess.run([sys.executable, ROOT / "examples" / "run.py", name, directory], env=environment, capture_output=True,
                          text=True, timeout=90 * PATIENCE)


@pytest.fixture(scope="module")
def ended(stack, tmp_path_factory):
    """All of them, side by side: they wait more than they work."""
    short_transactions(stack, 5)
    for name in DATABASES:
        forget(stack, name)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {name: pool.submit(run, stack, tmp_path_factory.mktemp(name), name) for name in DATABASES}
        return {name: of.result() for name, of in running.items()}


@pytest.mark.parametrize("name", DATABASES)
def test_example(ended, name):
    done = ended[name]
    print(done.stdout, done.stderr[-2000:])
    assert done.returncode == 0 and "verdict: every" in done.stdout
