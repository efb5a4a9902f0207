"""Give a lock back by deleting its key."""
import uuid

import common
from sink import Sink

WRONG = "the lock's time has run out, and somebody else holds it"
KEY = "shortcuts:lock:account:1"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


def holder(client, name, inside, slow=False):
    """Takes the lock and gives it back by DEL. A slow one needs longer than its time."""
    while not client.set(KEY, name, nx=True, px=60000):
        yield "waits"
    inside.add(name)
    yield "works"
    if slow:
        client.pexpire(KEY, 0)  # its time runs out
        yield "works on"
    inside.discard(name)
    client.delete(KEY)
    yield "has given it back"


def shortcut(work):
    client = common.caches()
    client.delete(KEY)
    inside = set()
    slow = holder(client, "slow", inside, slow=True)
    next(slow), next(slow)  # its time has run out
    inside.discard("slow")
    second, third = holder(client, "second", inside), holder(client, "third", inside)
    next(second)  # has the lock
    next(slow)  # deletes it: it is the second one's
    next(third)  # has it, too
    most = len(inside)
    client.delete(KEY)
    return {"at once": most}


def ours(work):
    """Another program holds the lock of account 1. idemsink leaves it, writes account 2, and account 1 when it has been given back."""
    sink = Sink(work, """
order_by = "account"
[route.dedup]
key = ["eventId"]
[route.lock]
key = "account:{account}"
prefix = "NAME:"
wait = "20ms"
""", commit="100ms")
    client, key, token = common.caches(), f"{sink.name}:account:1", uuid.uuid4().hex
    client.set(key, token, nx=True, px=60000)
    sink.deliver([({"eventId": "e1", "account": 1}, 0), ({"eventId": "e2", "account": 2}, 0)])
    worker = sink.worker()
    common.wait_until(lambda: sink.documents.find_one({"account": 2}), 30, "account 2")
    most = 1 + sink.documents.count_documents({"account": 1})
    if client.get(key) != token:
        common.fail("the other program's lock is gone")
    client.eval(RELEASE, 1, key, token)
    common.wait_until(lambda: sink.documents.find_one({"account": 1}), 30, "account 1")
    worker.terminate()
    return {"at once": most}


RIGHT, SHOWS = {"at once": 1}, {"at once": 2}
