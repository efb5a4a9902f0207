"""
Plays shortcuts against idemsink on the services of the environment: run.py FOLDER [NAME...]. Exit status 0 when each shortcut went wrong
as it must, and idemsink was right.
"""
import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import common  # noqa: E402

NAMES = ["check_then_insert", "counters_first", "max_plus_one", "glued_ids", "foreign_lock", "retried_inc"]


def play(name, work):
    case = importlib.import_module(name)
    common.say(f"{name}: {case.__doc__.strip()}")
    shown, right = case.shortcut(work), case.ours(work)
    print(f"   {case.WRONG}")
    for who, found, wanted in (("the shortcut", shown, case.SHOWS), ("idemsink", right, case.RIGHT)):
        verdict = "" if found == wanted else f"   EXPECTED {wanted}"
        print(f"   {who:14s} {', '.join(f'{k} {v}' for k, v in found.items())}{verdict}", flush=True)
    return shown == case.SHOWS and right == case.RIGHT


def main(work, names):
    try:
        return 0 if all([play(name, work) for name in names or NAMES]) else 1
    finally:
        common.Worker.end_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
