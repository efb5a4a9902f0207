"""What the tests of `idemsink reconcile` share."""
import collections
import contextlib
import json
import uuid

from bson.int64 import Int64


def named(stack):
    return stack.mongo["tests"][f"c-{uuid.uuid4().hex[:12]}"]


def full(collection):
    return f"{collection.database.name}.{collection.name}"


def truth(setup, write=False):
    """{user: {field: number}}, counted here."""
    counted = {}
    for event in setup.collection.find():
        target = counted.setdefault(event["target"], {"followers": 0, "following": 0, "weight": 0})
        target["followers"] += 1
        source = counted.setdefault(event["source"], {"followers": 0, "following": 0, "weight": 0})
        source["following"] += 1
        source["weight"] += event["w"]
    if write:
        setup.users.insert_many(
            [{"_id": user, "name": "x", **{f: Int64(n) for f, n in fields.items()}} for user, fields in counted.items()]
        )
    return counted


def reconcile(setup, *options, status=None):
    done = setup.command("reconcile", "--json", *options)
    assert done.returncode in (0, 1), done.stderr.decode()
    books = json.loads(done.stdout)
    assert books["balanced"] is (done.returncode == 0)
    assert status is None or done.returncode == status, books
    return books


@contextlib.contextmanager
def profiled(setup):
    """The server writes down what it is asked; how_read() tells."""
    database = setup.collection.database
    database.command("profile", 2)
    try:
        yield
    finally:
        database.command("profile", 0)


def how_read(setup, command, collection):
    """{read preference: how many such commands}, of what was written down; "primary" when it names none."""
    profile = setup.collection.database["system.profile"]
    commands = [entry["command"] for entry in profile.find({f"command.{command}": collection.name})]
    return dict(collections.Counter(c.get("$readPreference", {}).get("mode", "primary") for c in commands))
