"""
A producer as they are: it writes down how far it has come only now and then, so that after a crash it sends some records
again, and it sends some twice by itself. `events` are the example's; the records of one key stay in order.
"""
import json
import os
import pathlib
import signal
import sys

import common


def send_all(topic, events, draw, state, die_after=None):
    """
    events: [(key, value)], the same in every start. `state`: the file with how far it is. A tenth of the records is sent a second
    time, up to 300 records later. After `die_after` records it kills itself with -9, as a crash would.
    """
    state = pathlib.Path(state)
    done = json.loads(state.read_text())["sent"] if state.exists() else 0
    plan = [(i, event) for i, event in enumerate(events)]
    plan += [(i + 1 + draw.randrange(300), event) for i, event in enumerate(events) if draw.random() < 0.1]
    plan.sort(key=lambda item: item[0])
    sent = 0
    for at in range(done, len(plan), 100):
        batch = plan[at:at + 100]
        common.produce(topic, [(key, value, None) for _, (key, value) in batch])
        sent += len(batch)
        if die_after and sent >= die_after:
            os.kill(os.getpid(), signal.SIGKILL)  # before it is written down
        state.write_text(json.dumps({"sent": at + len(batch)}))


def main(topic, events_of):
    """produce.py SEED STATE [DIE_AFTER]"""
    import random

    seed, state = int(sys.argv[1]), sys.argv[2]
    draw = random.Random(seed)
    send_all(topic, events_of(draw), draw, state, int(sys.argv[3]) if len(sys.argv) > 3 else None)
