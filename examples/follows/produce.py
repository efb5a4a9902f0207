"""Follows and unfollows of 300 people, three of whom everybody wants to follow: produce.py SEED STATE [DIE_AFTER]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import produce  # noqa: E402

EVENTS, PEOPLE = 4000, 300


def person(draw):
    return f"u{draw.randrange(3) if draw.random() < 0.3 else draw.randrange(PEOPLE)}"


def events(draw):
    made = []
    for number in range(EVENTS):
        source, target = f"u{draw.randrange(PEOPLE)}", person(draw)
        op = "follow" if draw.random() < 0.7 else "unfollow"
        made.append((source, {"eventId": f"e{number}", "op": op, "from": source, "to": target}))
    return made


if __name__ == "__main__":
    produce.main("follows", events)
