"""Payments on twenty accounts: produce.py SEED STATE [DIE_AFTER]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import produce  # noqa: E402

PAYMENTS, ACCOUNTS = 2000, 20


def events(draw):
    made = []
    for number in range(PAYMENTS):
        account = f"a{draw.randrange(ACCOUNTS)}"
        made.append((account, {"paymentId": f"p{number}", "account": account, "cents": draw.randrange(-5000, 10000)}))
    return made


if __name__ == "__main__":
    produce.main("payments", events)
