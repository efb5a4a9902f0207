"""What `check --connect` says about rights: a mongod of its own with access control, and users that may do more or less."""
import os
import re
import socket
import subprocess

import pymongo
import pytest
from harness import Setup, wait_until


class GuardedMongo:
    """A replica set of one with --auth; users are made as root."""

    def __init__(self, binary, directory):
        key = directory / "key"
        key.write_text("a key for one member of one test")
        key.chmod(0o600)
        (directory / "db").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [binary, "--replSet", "guarded", "--keyFile", key, "--bind_ip", "127.0.0.1", "--port", str(self.port), "--dbpath",
             directory / "db", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "16",
             "--setParameter", "diagnosticDataCollectionEnabled=false"],
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )

    def open(self):
        # Before the first user is made the server takes these two commands from localhost.
        with pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=20000) as client:
            host = f"127.0.0.1:{self.port}"
            client.admin.command("replSetInitiate", {"_id": "guarded", "members": [{"_id": 0, "host": host}]})
            wait_until(lambda: client.admin.command("hello")["isWritablePrimary"], 20, "a primary")
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        self.root = pymongo.MongoClient(self.uri("root"), serverSelectionTimeoutMS=20000)
        return self

    def uri(self, user):
        return f"mongodb://{user}:{user}@127.0.0.1:{self.port}/?replicaSet=guarded&authSource=admin"

    def user(self, name, roles=(), privileges=()):
        roles = list(roles)
        if privileges:
            self.root.admin.command("createRole", f"{name}s", roles=[], privileges=[
                {"resource": {"db": db, "collection": collection}, "actions": actions} for db, collection, actions in privileges])
            roles.append(f"{name}s")
        self.root.admin.command("createUser", name, pwd=name, roles=roles)

    def close(self):
        self.process.kill()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def guarded(stack, tmp_path_factory):
    binary = os.readlink(f"/proc/{stack.env['MONGO_PIDS'].split()[0]}/exe")
    mongo = GuardedMongo(binary, tmp_path_factory.mktemp("guarded"))
    try:
        yield mongo.open()
    finally:
        mongo.close()


@pytest.fixture
def check(stack, tmp_path):
    """check(uri, **keys) -> (exit status, {line's name: (verdict, text)}) of a route with these keys to tests.rights."""
    topic = stack.topic(1)

    def run(uri, **keys):
        setup = Setup(stack, tmp_path, topic, collection=stack.mongo["tests"]["rights"], dead_letters=False)
        setup.sections["mongo"]["uri"] = uri
        setup.routes[0].update(keys)
        done = setup.command("check", "--connect")
        assert b":root@" not in done.stdout + done.stderr
        lines = [re.match(r"(.{34,}?) (ok|wrong|can't tell|warning|none)  *(.*)", line) for line in done.stdout.decode().splitlines()]
        return done.returncode, {m[1].strip(): (m[2], m[3]) for m in lines if m}

    return run


WRITE = ["insert", "update", "find", "createIndex"]
ALL = ["insert", "update", "find", "listIndexes", "createIndex"]
LOOK = ["listIndexes", "listCollections"]

# (name, roles, privileges, what is missing)
USERS = [
    ("writer", ["readWrite"], [], ALL),  # on the database admin, where the user is
    ("anywhere", ["readWriteAnyDatabase"], [], []),
    ("here", [{"role": "readWrite", "db": "tests"}], [], []),
    ("exact", [], [("tests", "rights", [*WRITE, "listIndexes"]), ("tests", "", ["listCollections"])], []),
    ("other", [], [("tests", "other", WRITE), ("tests", "", LOOK)], WRITE),
    ("bynames", [], [("", "rights", ["insert", "find"]), ("tests", "", ["createIndex"]), ("tests", "", LOOK)], ["update"]),
    ("reader", [{"role": "read", "db": "tests"}], [], ["insert", "update", "createIndex"]),
]


@pytest.mark.parametrize("name,roles,privileges,missing", USERS, ids=[row[0] for row in USERS])
def test_rights(guarded, check, name, roles, privileges, missing):
    guarded.user(name, roles, privileges)
    status, lines = check(guarded.uri(name))
    verdict, text = lines["rights on tests.rights"]
    if missing:
        assert verdict == "wrong" and f"no right to {', '.join(missing)} on tests.rights" in text and "readWrite" in text
        assert status == 77
    else:
        assert (verdict, text) == ("ok", ", ".join(ALL))
        assert status == 0 and "run makes it" in lines["dedup index of tests.rights"][1]  # it is not there yet


def test_who_only_inserts(guarded, check):
    """No update is sent by write = "insert" and "auto"."""
    guarded.user("inserter", [], [("tests", "rights", ["insert", "find", "listIndexes"]), ("tests", "", ["listCollections"])])
    for mode in ("insert", "auto"):
        _, lines = check(guarded.uri("inserter"), write=mode, ensure_index=False)
        assert lines["rights on tests.rights"] == ("ok", "insert, find, listIndexes")
    status, lines = check(guarded.uri("inserter"), ensure_index=False)
    assert status == 77 and "no right to update on tests.rights" in lines["rights on tests.rights"][1]


def test_wrong_password_and_nobody(guarded, check, stack):
    assert check(guarded.uri("root").replace("root:root", "root:wrong"))[0] == 77
    assert check(stack.mongo_uri)[1]["rights on tests.rights"] == ("ok", "no access control seen: nobody is logged in")


# --- the proof of the dedup index ---


@pytest.fixture
def route_to(stack, guarded, tmp_path):
    """route_to(user, **keys) -> Setup with three records for a collection of the guarded server, which has the index."""
    made = []

    def new(user, **keys):
        topic = stack.topic(1)
        name = f"proof-{user}"
        guarded.root["tests"][name].create_index("eventId", unique=True)
        setup = Setup(stack, tmp_path, topic, collection=guarded.root["tests"][name])
        setup.sections["mongo"]["uri"] = guarded.uri(user)
        setup.routes[0].update({"ensure_index": False, **keys})
        stack.produce(topic, [{"eventId": "e"}] * 3)
        made.append(setup)
        return setup

    yield new
    for setup in made:
        setup.close()


def writer(guarded, name, *more):
    """May write, and what `more` says: actions on the collection; listCollections on the database."""
    privileges = [("tests", f"proof-{name}", ["insert", "update", "find", *(a for a in more if a != "listCollections")])]
    guarded.user(name, [], privileges + ([("tests", "", ["listCollections"])] if "listCollections" in more else []))


@pytest.mark.parametrize("name,more,missing", [
    ("blind", [], ["listCollections", "listIndexes"]),
    ("halfblind", ["listCollections"], ["listIndexes"]),
    ("lefteye", ["listIndexes"], ["listCollections"]),
])
def test_no_right_to_look_needs_trust(guarded, route_to, name, more, missing):
    writer(guarded, name, *more)
    worker = route_to(name).start()
    assert worker.wait(20) == 77
    text = worker.log_tail()
    assert all(action in text for action in missing) and "can't be proved" in text and "trust_index = true" in text
    setup = route_to(name, trust_index=True)
    worker = setup.run_until_end()
    assert setup.collection.count_documents({}) == 1
    assert worker.saw("the dedup index is trusted, not proved")[0]["missing"].count("role") == len(missing)
    done = setup.command("check", "--connect")
    assert done.returncode == 0, done.stdout


def test_trust_does_not_cure_what_is_seen(guarded, route_to):
    """Only listCollections is missing; the index can be seen, and it is not unique."""
    writer(guarded, "oneeye", "listIndexes")
    setup = route_to("oneeye", trust_index=True)
    setup.collection.drop_indexes()
    setup.collection.create_index("eventId")
    worker = setup.start()
    assert worker.wait(20) == 78 and "is not unique" in worker.log_tail()


def test_trust_and_ensure_index(guarded, route_to):
    """Who may make indexes and not list them makes it all the same; who may do neither is believed."""
    for name, more in (("maker", ["createIndex"]), ("believer", [])):
        writer(guarded, name, *more)
        setup = route_to(name, trust_index=True, ensure_index=True)
        if more:
            setup.collection.drop_indexes()
        setup.run_until_end()
        assert setup.collection.count_documents({}) == 1
        assert sum(index.get("unique", False) for index in setup.collection.list_indexes()) == 1


# --- routes with effects ---

EFFECTS = {"ensure_index": False, "counter": [{"collection": "tests.rights_users", "filter": {"_id": "user"}, "inc": {"n": 1}}],
           "sequence": {"field": "no", "collection": "tests.rights_numbers"}}


def test_each_collection_of_effects(guarded, check):
    exact = ["insert", "find", "listIndexes"]
    guarded.user("counting", [], [("tests", "rights", exact), ("tests", "rights_users", ["find", "update", "listIndexes"]),
                                  ("tests", "", ["listCollections"])])
    status, lines = check(guarded.uri("counting"), **EFFECTS)
    assert status == 77 and lines["rights on tests.rights"] == ("ok", "insert, find, listIndexes")
    assert "no right to insert on tests.rights_users" in lines["rights on tests.rights_users"][1]
    assert "no right to insert, update, find, listIndexes on tests.rights_numbers" in lines["rights on tests.rights_numbers"][1]


def test_who_may_not_make_collections(guarded, stack, tmp_path):
    """Who may insert may. (By steps nothing has to be there before.)"""
    exact = ["insert", "update", "find", "listIndexes", "createIndex"]
    guarded.user("inserter3", [], [("tests", name, exact) for name in ("rights3", "rights3_sequences")] + [
        ("tests", "rights3_users", ["find", "update", "listIndexes"])])
    setup = Setup(stack, tmp_path, stack.topic(1), collection=stack.mongo["tests"]["rights3"], dead_letters=False)
    setup.sections["mongo"]["uri"] = guarded.uri("inserter3")
    setup.routes[0].update({**EFFECTS, "counter": [{**EFFECTS["counter"][0], "collection": "tests.rights3_users"}],
                            "sequence": {"field": "no"}, "trust_index": True})
    done = setup.command("init")
    assert done.returncode == 77 and b"tests.rights3_users is not there, and the user may not make it: grant insert" in done.stderr, done
    setup.routes[0]["counter"][0]["upsert"] = False
    done = setup.command("init")
    assert done.returncode == 0 and b"collection tests.rights3_sequences (sequence counters): made" in done.stdout, done
