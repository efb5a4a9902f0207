"""Duplicates a second with the seen cache and without: stores N events, of which the topic has each twice, and then reads it all again and
again, in turns without the cache and with it (it learns the first half and knows the second); the ratio of one run counts.

IDEMSINK_BIN=build/release/idemsink $PYTHON tests/system/bench_seen.py [N] [--stack DIR]

N is 100,000 unless given. Not a test.
"""
import argparse
import tempfile
import time

import harness
from bench_verify import produce


def from_start(setup, n, name):
    """A process that reads a topic with each event twice, alone: no producer beside it."""
    setup.sections["kafka"]["group"] = setup.group = f"{setup.group}-{name}"
    began = time.monotonic()
    worker = setup.run_until_end(600)
    seconds = time.monotonic() - began
    assert worker.books()["inserted"] + worker.books()["duplicate"] == 2 * n
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=100000)
    parser.add_argument("--stack", metavar="DIR", help="use (and keep) the stack in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        stack = harness.Stack(options.stack or f"{directory}/stack")
        try:
            topic = stack.topic(4)
            setup = harness.Setup(stack, directory, topic)
            produce(stack, topic, options.n)
            produce(stack, topic, options.n)
            from_start(setup, options.n, "store")
            found = {}
            for round_ in range(3):  # all records are duplicates; with the cache half of them are known
                for name, seen in (("without", None), ("with", {"entries": 4 * options.n})):
                    setup.routes[0].pop("seen", None)
                    if seen:
                        setup.routes[0]["seen"] = seen
                    seconds = from_start(setup, options.n, f"{name}{round_}")
                    found[name] = min(seconds, found.get(name, seconds))
            saved = found["without"] - found["with"]
            each = found["without"] / (2 * options.n)
            print(f"{2 * options.n} duplicates without the cache in {found['without']:.2f} s: {1 / each:.0f} a second")
            print(f"with it, the second half known: {found['with']:.2f} s; so a known one takes "
                  f"{max(0.0, 1 - saved / (options.n * each)):.2f} of the time of one that MongoDB has to tell")
        finally:
            if not options.stack:
                stack.down()


if __name__ == "__main__":
    main()
