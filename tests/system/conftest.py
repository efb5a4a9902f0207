import os
import random
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

sys.path.insert(0, os.path.dirname(__file__))
pytest.register_assert_rewrite("effects", "fault_points", "soak_effects")  # so that they tell what differs
import harness  # noqa: E402

# A process that gets the pid of one that a test has killed would begin with a line of libmongoc's on stderr (docs/operations.md).
os.environ["MONGOC_DISABLE_SHM"] = "1"


def pytest_addoption(parser):
    parser.addoption("--shard", metavar="I/N", default="0/1", help="only every N-th file, from the I-th on")
    parser.addoption("--late", metavar="FILE", help="write there the names of the tests that failed by a time limit alone")
    parser.addoption("--keep-stack", metavar="DIR", help="use (and keep) the stack in this folder: faster while writing tests")


def pytest_collection_modifyitems(config, items):
    index, count = map(int, config.getoption("--shard").split("/"))
    files = sorted({item.path for item in items})
    mine = set(files[index::count])
    dropped = [item for item in items if item.path not in mine]
    items[:] = [item for item in items if item.path in mine]
    config.hook.pytest_deselected(items=dropped)


def _is_late(error):
    """Whether a test failed because a time limit passed, and not because something was wrong."""
    if isinstance(error, KafkaException):
        return error.args[0].code() == KafkaError._TIMED_OUT
    return isinstance(error, (harness.TooLate, subprocess.TimeoutExpired)) or str(error).startswith("Timeout >")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    path = item.config.getoption("--late")
    if path and report.failed and _is_late(call.excinfo.value):
        with open(path, "a") as late:
            late.write(item.nodeid + "\n")
    return report


@pytest.fixture(scope="session")
def stack(request, tmp_path_factory):
    """Kafka, a one-member replica set and Redis, shared by the tests that do not break them."""
    kept = request.config.getoption("--keep-stack")
    services = harness.Stack(kept or tmp_path_factory.mktemp("stack"))
    yield services
    if not kept:
        services.down()


@pytest.fixture(scope="session")
def fragile_stack(request, tmp_path_factory):
    """A second one, for the tests that stop, kill and freeze parts; each leaves it whole again."""
    services = harness.Stack(tmp_path_factory.mktemp("fragile"))
    yield services
    services.down()


@pytest.fixture(scope="session")
def standalone(stack, tmp_path_factory):
    """The shared Kafka and Redis, and a mongod without replica set, thus without transactions."""
    services = harness.Standalone(stack, tmp_path_factory.mktemp("standalone"))
    yield services
    services.down()


@pytest.fixture
def make(stack, tmp_path):
    """make(topics, ...) -> harness.Setup; its workers end with the test."""
    yield from _maker(stack, tmp_path)


@pytest.fixture
def make_fragile(fragile_stack, tmp_path):
    yield from _maker(fragile_stack, tmp_path)


def _maker(services, directory):
    made = []

    def new(topics, **options):
        made.append(harness.Setup(services, directory, topics, **options))
        return made[-1]

    yield new
    for setup in made:
        setup.close()


@pytest.fixture
def seed(request):
    """The seed of a random test: IDEMSINK_SEED, or a new one; printed, so that a failure can be repeated."""
    value = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    print(f"IDEMSINK_SEED={value}")
    random.seed(value)
    return value
