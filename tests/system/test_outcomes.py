"""
What the daemon does with answers of MongoDB that are no record's fault, or perhaps one record's: rights that are taken away and
given back, a password that changes, and a code that nobody knows.
"""
import subprocess
import threading
import time

import pytest
from chaos import dead_letter_places
from harness import Record, Setup, wait_until
from refusing_proxy import RefusingProxy
from test_rights import guarded  # noqa: F401  a fixture


@pytest.fixture
def proxy(stack):
    between = RefusingProxy(*stack.mongo.primary)
    yield between
    between.close()


def quick(setup):
    setup.sections["retry"].update(first="20ms", max="200ms")
    setup.sections["worker"]["commit_interval"] = "100ms"
    setup.sections["mongo"].update(server_selection_timeout="2s", connect_timeout="1s", socket_timeout="2s", write_timeout="1s")


def events(prefix, numbers, lane=None):
    return [Record({"eventId": f"{prefix}{n}"}, lane or f"k{n % 7}", None, 0) for n in numbers]


REFUSED = "write refused until somebody acts"


def wait_refused(worker, *words):
    """/readyz is red and says of which collection and what to do; the log says it too. Returns the log line."""
    def says():
        status, why = worker.get("/readyz")
        return status == 503 and all(word in why for word in words)

    wait_until(says, 20, f"/readyz with {words}")
    line = worker.wait_saw(REFUSED)[-1]
    assert line["level"] == "error" and line["to_do"] and line["topic"] and line["offset"] >= 0
    return line


@pytest.fixture
def guarded_setup(guarded, stack, tmp_path):  # noqa: F811
    """Two routes, to tests.<a> and tests.<b>, for a user that may write both; .grant and .revoke change the right to one."""
    setup = Setup(stack, tmp_path, [stack.topic(1), stack.topic(1)])
    quick(setup)
    names = [f"{name}{time.monotonic_ns()}" for name in "ab"]
    user = f"u{time.monotonic_ns()}"
    guarded.user(user, privileges=[
        *(("tests", name, ["insert", "update", "find", "createIndex", "listIndexes"]) for name in names),
        ("tests", "", ["listCollections"]),
    ])
    setup.user, setup.role = user, f"{user}s"
    setup.sections["mongo"]["uri"] = guarded.uri(user)
    setup.collections = [guarded.root["tests"][name] for name in names]
    setup.routes = [Setup.route([topic], collection, name=name)
                    for topic, collection, name in zip(setup.topics, setup.collections, ("first", "second"))]
    yield setup
    setup.close()


def test_a_right_is_revoked_and_granted_again(guarded, guarded_setup):  # noqa: F811
    """13: one route waits and says what to grant, the other goes on; nothing is dead, and it goes on by itself."""
    setup, stack = guarded_setup, guarded_setup.stack
    first, second = setup.collections
    stack.produce(setup.topics[0], events("a", range(50)))
    stack.produce(setup.topics[1], events("b", range(50)))
    worker = setup.start().wait_ready()
    setup.wait_settled()

    privilege = [{"resource": {"db": "tests", "collection": first.name}, "actions": ["update"]}]
    guarded.root.admin.command("revokePrivilegesFromRole", setup.role, privileges=privilege)
    stack.produce(setup.topics[0], events("a", range(50, 60)))
    line = wait_refused(worker, "rights (code 13)", "route first", f"tests.{first.name}", "no right to update", "grant")
    assert (line["route"], line["collection"], line["class"], line["code"]) == ("first", first.name, "rights", 13)
    assert "no right to update" in line["to_do"] and f"tests.{first.name}" in line["to_do"] and setup.user not in line["to_do"]
    assert worker.metric("idemsink_route_blocked", route="first", **{"class": "rights"}) == 1
    assert worker.metric("idemsink_route_blocked", route="second") == 0
    consumed = worker.metric("idemsink_partition_consumed_total", topic=setup.topics[0])
    stack.produce(setup.topics[0], events("a", range(60, 3000)))  # consumption stops
    stack.produce(setup.topics[1], events("b", range(50, 3000)))  # that of the other route does not
    wait_until(lambda: second.count_documents({}) == 3000, 20, "the other route")
    retries = worker.metric("idemsink_retries_total", **{"class": "rights"})
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "rights"}) > retries + 30, 20, "writes tried again")
    assert worker.metric("idemsink_partition_consumed_total", topic=setup.topics[0]) == consumed
    assert worker.get("/readyz")[0] == 503 and worker.get("/healthz")[0] == 200
    assert len(worker.saw(REFUSED)) == 1  # once, not for each record or attempt
    assert stack.committed(setup.group, setup.topics[0]) == {0: 50}

    guarded.root.admin.command("grantPrivilegesToRole", setup.role, privileges=privilege)
    setup.wait_settled(20)
    worker.wait_ready(5)
    assert worker.saw("writes are acknowledged again")[-1]["route"] == "first"
    assert first.count_documents({}) == 3000
    numbers = [int(d["eventId"][1:]) for d in first.find().sort("$natural", 1)]
    for lane in range(7):
        assert [n for n in numbers if n % 7 == lane] == list(range(lane, 3000, 7))
    assert dead_letter_places(stack, setup.dead_letter_topic) == []
    assert worker.metric("idemsink_route_blocked") == 0
    assert worker.terminate() == 0


def test_a_password_changes(guarded, guarded_setup):  # noqa: F811
    """18: connections that are there go on; a new one is refused, which is an outage and says what it needs."""
    setup, stack = guarded_setup, guarded_setup.stack
    stack.produce(setup.topics[0], events("a", range(50)))
    worker = setup.start().wait_ready()
    setup.wait_settled()
    guarded.root.admin.command("updateUser", setup.user, pwd="another")
    guarded.process.kill()  # and with it every connection
    guarded.process.wait(timeout=60)
    guarded.process = subprocess.Popen(guarded.process.args, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    wait_until(lambda: guarded.root.admin.command("hello")["isWritablePrimary"], 30, "a primary")
    stack.produce(setup.topics[0], events("a", range(50, 60)))
    line = wait_refused(worker, "rights (code 18)", "route first", "password")
    assert (line["class"], line["code"]) == ("rights", 18)
    retries = worker.metric("idemsink_retries_total", **{"class": "rights"})
    wait_until(lambda: worker.metric("idemsink_retries_total", **{"class": "rights"}) > retries + 20, 20, "writes tried again")
    assert stack.committed(setup.group, setup.topics[0]) == {0: 50}
    assert f":{setup.user}@" not in worker.log_path.read_text()
    guarded.root.admin.command("updateUser", setup.user, pwd=setup.user)
    setup.wait_settled(30)
    worker.wait_ready(5)
    assert setup.collections[0].count_documents({}) == 60
    assert dead_letter_places(stack, setup.dead_letter_topic) == []
    assert worker.terminate() == 0


def test_a_code_that_nobody_knows_for_one_record(stack, make, proxy):
    """
    The record holds up its lane and no other one, is soon sent alone, and is given up only when others are stored while it fails.
    """
    topic = stack.topic(1)
    setup = make(topic)
    collection = setup.collection
    quick(setup)
    setup.sections["retry"].update(max_unknown=4, max="50ms")
    setup.sections["mongo"]["uri"] = proxy.uri
    proxy.refused = {"odd1": 424242, "odd2": 2}  # 2 is permanent for one operation, but nobody's as the answer to a whole command
    records = events("a", range(50)) + events("odd", [1], "odd") + events("late", range(3), "odd")
    stack.produce(topic, records + events("odd", [2], "odd2") + events("a", range(50, 100)))
    worker = setup.start().wait_ready(5)
    wait_until(lambda: collection.count_documents({}) == 100, 20, "the neighbours")
    wait_until(lambda: len(proxy.refusals) > 50, 20, "many repetitions")
    assert worker.metric("idemsink_dead_letters_total") == 0  # nothing else is stored: it may be the server
    assert "other (code " in worker.get("/readyz")[1]
    assert stack.committed(setup.group, topic) == {0: 50}
    assert all(size == 1 for _, size in proxy.refusals[-20:])

    numbers, stop = iter(range(100_000)), threading.Event()

    def feed():
        while not stop.wait(0.05):
            stack.produce(topic, events("b", [next(numbers)]))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        wait_until(lambda: worker.metric("idemsink_dead_letters_total", reason="rejected") == 2, 20, "the dead letters")
    finally:
        stop.set()
        thread.join(30)
    setup.wait_settled(20)
    worker.wait_ready(5)
    assert worker.saw("a code that is not known")
    letters = [{name: value.decode() for name, value in letter.headers()} for letter in stack.read_topic(setup.dead_letter_topic)]
    assert sorted(int(h["idemsink.offset"]) for h in letters) == [50, 54]
    for headers in letters:
        assert headers["idemsink.reason"] == "rejected" and "refused by the test" in headers["idemsink.error"]
        what = "424242, which nobody knows," if headers["idemsink.offset"] == "50" else "2 (BadValue), which is not known to be permanent,"
        assert f"code {what}" in headers["idemsink.error"]
        assert int(headers["idemsink.attempts"]) > 10
    assert collection.count_documents({"eventId": {"$in": ["late0", "late1", "late2"]}}) == 3  # its lane went on
    assert collection.count_documents({}) == 103 + next(numbers)
    assert worker.terminate() == 0


def test_a_code_that_nobody_knows_for_everything(stack, make, proxy):
    """G7: the same answer to everything is an outage, however long."""
    topic = stack.topic(1)
    setup = make(topic)
    quick(setup)
    setup.sections["retry"].update(max_unknown=1, max="50ms")
    setup.sections["mongo"]["uri"] = proxy.uri
    stack.produce(topic, events("a", range(200)))
    worker = setup.start().wait_ready()
    setup.wait_settled()
    proxy.refused = {f"a{n}": 424242 for n in range(200, 400)}
    stack.produce(topic, events("a", range(200, 400)))
    wait_until(lambda: len(proxy.refusals) > 250, 30, "many repetitions")
    assert worker.metric("idemsink_dead_letters_total") == 0
    assert "other (code 424242), route" in worker.get("/readyz")[1]
    proxy.refused = {}
    setup.wait_settled(20)
    worker.wait_ready(5)
    assert setup.collection.count_documents({}) == 400
    assert dead_letter_places(stack, setup.dead_letter_topic) == []
    assert worker.terminate() == 0
