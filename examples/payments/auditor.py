"""
The other program: it takes the lock of an account as DistributedCacheLockManager does, reads the account twice, a while
apart, and notes when somebody wrote in between. auditor.py FILE; says "ready" after its first turn, ends on SIGTERM.
"""
import json
import pathlib
import random
import signal
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
stopped = []


def look(bank, account):
    found = bank.accounts.find_one({"_id": account}) or {}
    return found.get("payments", 0), found.get("cents", 0), bank.payments.count_documents({"account": account})


def main():
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    client, bank = common.caches(), common.mongo().bank
    release = client.register_script(RELEASE)
    held = busy = broken = 0
    while not stopped:
        account = f"a{random.randrange(20)}"
        key, token = f"monsqlize:cache:lock:account:{account}", uuid.uuid4().hex
        if not client.set(key, token, nx=True, px=10000):
            busy += 1
            time.sleep(0.002)
            continue
        before = look(bank, account)
        time.sleep(0.01)
        after = look(bank, account)
        if release(keys=[key], args=[token]):  # else our own time ran out: then it says nothing
            held += 1
            if held == 1:
                print("ready", flush=True)
            broken += before != after
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"held": held, "busy": busy, "broken": broken}))


main()
