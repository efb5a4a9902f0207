"""Runs one example on the services of the environment: run.py NAME FOLDER. Exit status 0: as promised."""
import os
import pathlib
import random
import signal
import subprocess
import sys

import common

HERE = pathlib.Path(__file__).resolve().parent


class Example:
    """A producer that crashes, workers that are killed, everything once more, and the example's own check."""

    def __init__(self, name, work):
        self.name, self.work, self.folder = name, pathlib.Path(work), HERE / name
        self.config = self.folder / "idemsink.toml"

    def script(self, name, *words):
        return [sys.executable, str(self.folder / name), *map(str, words)]

    def produce(self, draw):
        """The producer, which crashes twice and is started again each time."""
        seed, state = draw.randrange(2**31), self.work / "produced.json"
        crashes = [draw.randrange(300, 1200), draw.randrange(300, 1200)]
        for die_after in crashes:
            status = subprocess.run(self.script("produce.py", seed, state, die_after), timeout=120).returncode
            if status != -signal.SIGKILL:
                common.fail(f"produce.py ended with {status}")
        if subprocess.run(self.script("produce.py", seed, state), timeout=120).returncode != 0:
            common.fail("produce.py failed")
        print("   the producer crashed twice, after sending what it had not written down")

    def run(self):
        common.say(f"1. {self.name}: indexes and dead-letter topic (idemsink init)")
        draw = common.seeded()
        common.make_topic(self.name, 6)
        common.command("init", self.config)
        common.say("2. the producer")
        self.produce(draw)
        common.say("3. two workers of one group, three of which are killed with -9 on the way")
        report = self.work / "beside.json"
        beside = self.start_beside(report)
        group = common.Group(f"{self.name}-sink", self.name)
        try:
            common.race_and_kill(self.config, self.work, group, draw, 3)
        finally:
            if beside:
                beside.terminate()
                beside.wait(30)
        group.close()
        self.again()
        common.say("5. compared with the truth")
        return subprocess.run(self.script("check.py", *([report] if beside else [])), timeout=120).returncode

    def again(self):
        """The whole topic once more, by a group that has committed nothing."""
        common.say("4. everything is delivered once more, to another group")
        worker = common.Worker(self.config, self.work, "--until-end", "--set", f"kafka.group={self.name}-again")
        worker.wait(90)

    def start_beside(self, report):
        """Another program on the same data, where the example has one, once it has begun; it ends with a report."""
        if not (self.folder / "auditor.py").exists():
            return None
        beside = subprocess.Popen(self.script("auditor.py", report), stdout=subprocess.PIPE, text=True)
        if beside.stdout.readline() != "ready\n":
            common.fail("auditor.py did not begin")
        return beside


def main():
    if sys.argv[1] == "shortcuts":
        return subprocess.run([sys.executable, HERE / "shortcuts" / "run.py", sys.argv[2]]).returncode
    os.environ["SESSION_MS"] = "1500"  # a killed worker's partitions move soon
    os.environ["IDEMSINK_SEED"] = os.environ.get("IDEMSINK_SEED") or str(random.SystemRandom().randrange(1, 2**31))
    try:
        return Example(sys.argv[1], sys.argv[2]).run()
    finally:
        common.Worker.end_all()


def terminated(number, _):
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminated)
    sys.exit(main())
