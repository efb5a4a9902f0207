"""Compares payments and balances with what the topic says; check.py AUDIT: with what the other program saw, too."""
import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402


def main():
    records = common.read_topic("payments")
    payments = {}
    for record in records:
        payments.setdefault(record["paymentId"], record)
    bank = common.mongo().bank
    sums = collections.defaultdict(lambda: [0, 0])
    for payment in payments.values():
        sums[payment["account"]][0] += 1
        sums[payment["account"]][1] += payment["cents"]
    accounts = {a["_id"]: [a["payments"], a["cents"]] for a in bank.accounts.find()}
    locks = common.caches().keys("monsqlize:cache:lock:account:*")
    table = common.Table()
    print(f"   {len(records)} deliveries of {len(payments)} payments")
    table.row("payments", bank.payments.count_documents({}), len(payments))
    table.row("accounts with a wrong balance", sum(accounts.get(a) != s for a, s in sums.items()), 0)
    table.row("fences above what was issued", sum(f.get("fence", 0) > f["issued"] for f in bank.fences.find()), 0)
    table.row("locks that nobody gave back", len(locks), 0)
    if len(sys.argv) > 1:
        audit = json.loads(pathlib.Path(sys.argv[1]).read_text())
        print(f"   the other program held a lock {audit['held']} times and found one taken {audit['busy']} times")
        table.row("accounts that changed under its lock", audit["broken"], 0)
        table.row("the other program had its turns", audit["held"] > 0, True)
    table.finish("every payment once, and nobody wrote under another one's lock")


main()
