"""`idemsink reconcile`: counters against what they count, found and repaired; each kind of value and of difference."""
import collections
import contextlib
import datetime
import os
import subprocess
import time
import uuid

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from harness import BINARY, PATIENCE, Setup
from reconcile_help import full, how_read, named, profiled, reconcile, truth


@pytest.fixture
def follows(stack, make):
    """Follows are counted at both ends; 40 of 8 users."""
    setup = make("follows", dead_letters=False)
    users = named(stack)
    setup.users = users
    setup.routes[0]["counter"] = [
        {"collection": full(users), "filter": {"_id": "target"}, "inc": {"followers": 1}},
        {"collection": full(users), "filter": {"_id": "source"}, "inc": {"following": 1, "weight": "w"}},
    ]
    setup.collection.insert_many(
        [{"eventId": f"e{i}", "source": f"u{i % 8}", "target": f"u{(i // 8 + i) % 8}", "w": Int64(i)} for i in range(40)]
    )
    truth(setup, write=True)
    yield setup
    users.drop()
    setup.collection.drop()


def counters(setup):
    return {u["_id"]: {f: u.get(f) for f in ("followers", "following", "weight")} for u in setup.users.find()}


def found(books):
    return sorted((f["what"], f["key"].get("_id"), f["field"], f["counted"], f["stored"]) for f in books["found"])


def test_right_ones_are_left_alone(follows):
    before = list(follows.users.find())
    books = reconcile(follows, "--apply", status=0)
    assert (books["counters"], books["differences"], books["repaired"], books["unable"]) == (8, 0, 0, 0)
    assert list(follows.users.find()) == before
    done = follows.command("reconcile")
    assert done.returncode == 0 and b"the counters are what is counted" in done.stdout and done.stderr == b""


def test_each_kind_is_found_and_repaired(follows):
    right = truth(follows)
    follows.collection.create_index("source")
    follows.collection.create_index("target")
    users = follows.users
    users.delete_one({"_id": "u0"})  # the document is missing
    users.update_one({"_id": "u1"}, {"$unset": {"followers": ""}})
    users.update_one({"_id": "u2"}, {"$inc": {"followers": 3}})
    users.update_one({"_id": "u3"}, {"$set": {"following": float(right["u3"]["following"])}})
    users.update_one({"_id": "u4"}, [{"$set": {"weight": {"$toInt": "$weight"}}}])
    users.update_one({"_id": "u5"}, {"$set": {"followers": {"$gt": ""}}})  # nothing that a query may obey
    users.update_one({"_id": "u6"}, {"$set": {"followers": Decimal128("1")}})
    users.insert_one({"_id": "gone", "followers": Int64(7), "following": 0})  # 0, as an application writes it
    users.insert_one({"_id": "fresh", "followers": 0, "following": 0, "weight": 0})
    users.insert_one({"_id": "none", "followers": 0.0})
    text = {u: {f: str(n) for f, n in fields.items()} for u, fields in right.items()}
    expected = sorted([
        ("missing", "u0", "followers", text["u0"]["followers"], ""),
        ("missing", "u0", "following", text["u0"]["following"], ""),
        ("missing", "u0", "weight", text["u0"]["weight"], ""),
        ("missing", "u1", "followers", text["u1"]["followers"], ""),
        ("different", "u2", "followers", text["u2"]["followers"], str(right["u2"]["followers"] + 3)),
        ("type", "u3", "following", text["u3"]["following"], "no integer"),
        ("type", "u4", "weight", text["u4"]["weight"], text["u4"]["weight"]),
        ("type", "u5", "followers", text["u5"]["followers"], "no integer"),
        ("type", "u6", "followers", text["u6"]["followers"], "no integer"),
        ("extra", "gone", "followers", "0", "7"),
        ("type", "none", "followers", "0", "no integer"),
    ])
    before = sorted(map(str, users.find()))
    books = reconcile(follows, status=1)
    assert found(books) == expected and books["repaired"] == 0
    assert sorted(map(str, users.find())) == before  # looking changes nothing
    shown = follows.command("reconcile")
    assert shown.returncode == 1 and b"THE COUNTERS ARE NOT WHAT IS COUNTED" in shown.stdout
    assert shown.stdout.decode().count("\n") > 11 and '{ "_id" : "gone" }' in shown.stdout.decode()

    books = reconcile(follows, "--apply", status=0)
    assert found(books) == expected and books["repaired"] == books["differences"] == len(expected)
    assert {f["done"] for f in books["found"]} == {"repaired"}
    now = counters(follows)
    for user, fields in right.items():
        assert now[user] == fields and all(isinstance(v, Int64) for v in now[user].values()), user
    assert now["gone"]["followers"] == 0 and isinstance(now["none"]["followers"], Int64)
    assert users.find_one({"_id": "fresh"}) == {"_id": "fresh", "followers": 0, "following": 0, "weight": 0}
    assert users.find_one({"_id": "u2"})["name"] == "x"
    assert found(reconcile(follows, status=0)) == []


def test_in_parts_when_the_memory_is_small(stack, make):
    """12,000 counters in a table of 1 MiB (each takes 24 bytes and up to four times that)."""
    setup = make("events", dead_letters=False)
    users = named(stack)
    setup.routes[0]["counter"] = [{"collection": full(users), "filter": {"name": "who"}, "inc": {"n": 1}}]
    n = 12000
    setup.collection.insert_many([{"eventId": i, "who": i} for i in range(n)])
    setup.collection.create_index("who")
    users.create_index("name", unique=True)
    users.insert_many([{"name": Int64(i), "n": Int64(1 if i % 1000 else 2)} for i in range(n) if i % 3000 != 1])
    books = reconcile(setup, "--memory", "1MiB", "--rate", "10000/s", status=1)
    assert (books["counters"], books["differences"]) == (n, 16) and books["table_bytes"] <= 1 << 20
    assert sorted(f["what"] for f in books["found"]) == ["different"] * 12 + ["missing"] * 4
    reconcile(setup, "--apply", "--memory", "1MiB", "--rate", "10000/s", status=0)
    assert users.count_documents({"n": {"$ne": 1}}) == 0 and users.count_documents({}) == n
    users.drop()


def test_what_is_too_large_is_told_once(stack, make):
    """Sums beyond int64: each field once, whether its document is there or not; what else is wrong of it is told, too."""
    setup = make("events", dead_letters=False)
    users = named(stack)
    setup.routes[0]["counter"] = [{"collection": full(users), "filter": {"_id": "user"}, "inc": {"sum": "amount", "n": 1, "m": 1}}]
    setup.collection.insert_many([{"eventId": f"{u}{i}", "user": u, "amount": Int64(2**62)} for u in "ab" for i in range(3)])
    setup.collection.insert_one({"eventId": "c", "user": "c", "amount": Int64(2**62)})
    users.insert_many([{"_id": "a", "sum": Int64(5), "n": Int64(3), "m": Int64(4)}, {"_id": "c", "sum": Int64(2**62), "n": Int64(1), "m": Int64(1)}])
    books = reconcile(setup, "--apply", status=1)
    assert found(books) == [("different", "a", "m", "3", "4"), ("missing", "b", "m", "3", ""), ("missing", "b", "n", "3", ""),
                            ("too_large", "a", "sum", "beyond int64", "5"), ("too_large", "b", "sum", "beyond int64", "")]
    assert (books["counters"], books["differences"], books["repaired"]) == (3, 5, 0)
    users.drop()


def test_what_log_left_open_is_not_counted_by_transaction(stack, make):
    """An event of an operation that was begun by log, and is completed by transactions later: its counter is right as it is."""
    setup = make(stack.topic(1))
    users, ledger = named(stack), named(stack)
    setup.routes[0].update(
        effects="log", entity={"key": ["s", "t"]}, operation={"source": "op", "insert": ["f"], "delete": ["u"], "ledger": full(ledger)},
        counter=[{"collection": full(users), "filter": {"_id": "s"}, "inc": {"n": 1}}])
    stack.produce(setup.topics[0], [({"eventId": f"e{i}", "op": "f", "s": "a", "t": f"t{i}"}, "a") for i in range(3)])
    setup.run_until_end()
    counter = users.find_one({"_id": "a"})
    assert counter["n"] == 3
    of_one = counter["_applied"][0]["i"]
    # As it was between adding the entity and moving the counter.
    document = setup.collection.find_one({"t": "t0"}, {"_id": False})
    effects = {"id": of_one, "moves": [{"c": full(users), "f": {"_id": "a"}, "by": {"n": Int64(1)}}],
               "entity": {"s": "a", "t": "t0"}, "document": document, "try": Int64(1)}
    begun = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
    users.update_one({"_id": "a"}, {"$inc": {"n": Int64(-1)}, "$pull": {"_applied": {"i": of_one}}})
    ledger.update_one({"_id": "e0"}, {"$set": {"did": False, "_effects": effects | {"at": begun, "until": begun}}})
    setup.collection.update_one({"t": "t0"}, {"$set": {"_by": of_one}})
    setup.routes[0].update(effects="transaction", name="follows")
    assert reconcile(setup, "--apply", "--counter", "0", "--route", "follows", status=0)["differences"] == 0
    setup.run_until_end()  # completes it
    assert users.find_one({"_id": "a"})["n"] == 3 and ledger.count_documents({"_effects": {"$exists": True}}) == 0
    reconcile(setup, status=0)
    users.drop()
    ledger.drop()


def test_values_of_every_kind(stack, make):
    """Equal numbers are one counter whatever their type; what no event can have is counted nowhere."""
    setup = make("events", dead_letters=False)
    users = named(stack)
    setup.routes[0]["counter"] = [{"collection": full(users), "filter": {"a": "x.y", "b": "z"}, "inc": {"sub.n": 2}}]
    oid, uid = bson.ObjectId(), bson.Binary.from_uuid(uuid.uuid4())
    keys = [(1, "s"), (1.0, "s"), (Int64(1), "s"), (Decimal128("1.00"), "s"), ("1", "s"), (True, oid), (uid, "s"), ("$x", "a.b")]
    setup.collection.insert_many([{"eventId": i, "x": {"y": a}, "z": b} for i, (a, b) in enumerate(keys)])
    bad = [{"x": {"y": None}, "z": 1}, {"x": [{"y": 1}], "z": "s"}, {"z": 1}, {"x": {"y": ""}, "z": 1}, {"x": {"y": 1.5}, "z": 1},
           {"x": {"y": {"$gt": ""}}, "z": 1}, {"x": {"y": [1]}, "z": "s"}]
    setup.collection.insert_many([{"eventId": f"b{i}", **event} for i, event in enumerate(bad)])
    users.create_index(["a", "b"], unique=True)
    books = reconcile(setup, "--apply", status=0)
    assert (books["repaired"], books["foreign"]) == (5, len(bad) - 1)  # two have one key
    assert sorted((str(u["a"]), str(u["b"]), u["sub"]["n"]) for u in users.find()) == sorted(
        [("1", "s", 8), ("1", "s", 2), ("True", str(oid), 2), (str(uid), "s", 2), ("$x", "a.b", 2)])
    assert reconcile(setup, status=0)["counters"] == 5
    users.drop()


def test_two_routes_move_one_counter(stack, make):
    setup = make("a", dead_letters=False)
    users, other = named(stack), named(stack)
    one = {"collection": full(users), "filter": {"_id": "user"}, "inc": {"n": 1}}
    setup.routes[0]["counter"] = [one]
    setup.routes.append({**Setup.route(["b"], other), "counter": [{**one, "inc": {"n": "amount", "m": 1}}], "name": "second"})
    setup.collection.insert_many([{"eventId": i, "user": "u"} for i in range(3)])
    other.insert_many([{"eventId": i, "user": "u", "amount": Int64(10)} for i in range(2)])
    reconcile(setup, "--apply", status=0)
    assert users.find_one() == {"_id": "u", "n": 23, "m": 2}
    assert reconcile(setup, "--route", "second", "--counter", "0", status=0)["counters"] == 1
    done = setup.command("reconcile", "--route", "second", "--counter", "1")
    assert done.returncode == 64 and b"no such counter" in done.stderr
    users.drop()
    other.drop()


def test_what_is_not_stored_is_said(stack, make):
    setup = make("a", dead_letters=False)
    users = named(stack)
    route = setup.routes[0]
    route["counter"] = [{"collection": full(users), "filter": {"_id": "@header.user"}, "inc": {"n": 1}}]
    books = reconcile(setup, status=1)
    assert books["unable"] == 1 and "@header.user" in books["unable_list"][0]["why"]
    route["set"] = {"who": "@header.user"}  # now it is
    setup.collection.insert_one({"eventId": 1, "who": "u"})
    reconcile(setup, "--apply", status=0)
    assert users.find_one() == {"_id": "u", "n": 1}
    route["counter"][0]["inc"] = {"n": "amount"}
    route["exclude"] = ["amount"]
    assert "exclude" in reconcile(setup, status=1)["unable_list"][0]["why"]
    users.drop()


def test_one_process_at_a_time(follows, stack):
    leases = stack.mongo["tests"]["idemsink_leases"]
    leases.update_one({"_id": "reconcile"}, [{"$set": {"until": {"$add": ["$$NOW", 600000]}, "token": bson.ObjectId()}}], upsert=True)
    try:
        done = follows.command("reconcile", "--apply")
        assert done.returncode == 69 and b"another process reconciles" in done.stderr
        reconcile(follows, status=0)  # to look needs no lease
    finally:
        leases.delete_one({"_id": "reconcile"})
    reconcile(follows, "--apply", status=0)
    assert leases.find_one({"_id": "reconcile"})["until"] is not None


@pytest.mark.parametrize("options,passes", [([], "primary"), (["--secondary"], "secondaryPreferred")])
def test_where_it_counts(follows, options, passes):
    """With --secondary all is read on one, where there is one, and what differs is looked at on the primary."""
    follows.users.update_one({"_id": "u1"}, {"$inc": {"followers": 2}})
    with profiled(follows):
        assert reconcile(follows, *options, status=1)["differences"] == 1
    for command, collection, times in (("find", follows.users, 1), ("aggregate", follows.collection, 2)):  # users are counted at both ends
        expected = collections.Counter({passes: times}) + collections.Counter(primary=times)
        assert how_read(follows, command, collection) == expected


def test_its_rate(follows):
    """Eight looks, ten a second: seven pauses. How much longer it takes is the machine's affair."""
    follows.users.update_many({}, {"$inc": {"followers": 1}})
    begun = time.monotonic()
    assert reconcile(follows, "--rate", "10/s", status=1)["differences"] == 8
    assert time.monotonic() - begun >= 0.69  # waits are whole milliseconds


def on_a_terminal(words):
    """(status, what it wrote on stderr, which is one)."""
    terminal, other_end = os.openpty()
    shown = b""
    try:
        status = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=other_end, timeout=60 * PATIENCE).returncode
    finally:
        os.close(other_end)
    with os.fdopen(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # EIO is its end
        while part := screen.read(4096):
            shown += part
    return status, shown.decode()


def test_its_progress(stack, make):
    """On a terminal, at once: after 256 of each pass."""
    setup = make("events", dead_letters=False)
    users = named(stack)
    setup.routes[0]["counter"] = [{"collection": full(users), "filter": {"_id": "who"}, "inc": {"n": 1}}]
    setup.collection.insert_many([{"eventId": i, "who": i} for i in range(300)])
    users.insert_many([{"_id": Int64(i), "n": Int64(1)} for i in range(300)])
    done, shown = on_a_terminal([BINARY, "reconcile", "-c", setup.file(), "--json"])
    assert done == 0 and "counting: 256, " in shown and "counters: 256 of 300 (85 %)" in shown, shown
    assert shown.endswith("\r\033[K")  # and nothing is left of it
    assert reconcile(setup, status=0)["counters"] == 300 and setup.command("reconcile").stderr == b""  # a file gets a line in ten seconds
    users.drop()


def test_options_that_say_nothing(follows):
    for options, text in ((["--rate", "0/s"], b"--rate"), (["--counter", "0"], b"--route"), (["--route", "x"], b"no route"),
                          (["--memory", "x"], b"--memory")):
        done = follows.command("reconcile", *options)
        assert done.returncode == 64 and text in done.stderr
