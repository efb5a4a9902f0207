"""`idemsink dlq list | show | replay`: reading dead letters back, on the real services."""
import base64
import calendar
import json
import random
import re
import subprocess
import time

import pytest
import redis
from confluent_kafka import TopicPartition
from harness import BINARY, Record, wait_until
from test_deadletters import change, good, ours, produce_raw, theirs

NOW_MS = int(time.time() * 1000)


def run(setup, command, *options, status=0, seconds=60):
    done = setup.command(f"dlq {command}", *options, seconds=seconds)
    assert done.returncode == status, (done.returncode, done.stdout.decode(), done.stderr.decode())
    return done


def letters(setup, *options):
    """[{...}] of `dlq list --json`."""
    return json.loads(run(setup, "list", "--json", *options).stdout)


def replay(setup, *options, status=0):
    done = json.loads(run(setup, "replay", "--json", *options, status=status).stdout)
    done["fates"] = {letter.get("offset", letter["dead_letter"]): letter["fate"] for letter in done["letters"]}
    return done


def place(setup, offset):
    """Where the dead letter of the record at this offset lies. Several workers send: they come in any order."""
    return next(d["dead_letter"] for d in letters(setup) if d["offset"] == offset)


def numbers(setup):
    return sorted(d["n"] for d in setup.collection.find())


def accept_all(setup):
    """Its validator goes."""
    setup.collection.database.command("collMod", setup.collection.name, validator={})


@pytest.fixture
def refused(stack, make):
    """refused(values...) -> a setup whose collection refuses all of them (code 121); they are dead letters."""

    def new(*records, partitions=1, **route):
        topic = stack.topic(partitions)
        setup = make(topic)
        setup.routes[0].update(route)
        setup.collection.database.create_collection(setup.collection.name, validator={"ok": True})
        stack.produce(topic, list(records))
        setup.run_until_end()
        return setup

    return new


# --- list ---


def test_list(stack, make):
    topic, second = stack.topic(1), stack.topic(1)
    setup = make([topic, second])
    stack.produce(topic, [(b"{", "a"), (good(1), "a"), (b"[]", "b")])
    setup.run_until_end()
    first = letters(setup)
    assert [(d["dead_letter"], d["reason"], d["topic"], d["partition"], d["offset"], d["attempts"], d["state"]) for d in first] == [
        ("0:0", "json_syntax", topic, 0, 0, 0, "open"), ("0:1", "not_an_object", topic, 0, 2, 0, "open")]
    assert all(d["group"] == setup.group and d["error"] and d["value_bytes"] for d in first)
    stack.produce(second, [(b"7", "c")])
    setup.run_until_end()
    assert [d["dead_letter"] for d in letters(setup)] == ["0:0", "0:1", "0:2"]  # newest last
    for options, wanted in [
        (["--reason", "json_syntax"], ["0:0"]), (["--reason", "not_an_object"], ["0:1", "0:2"]),
        (["--reason", "json_syntax", "--reason", "too_deep"], ["0:0"]), (["--reason", "too_deep"], []),
        (["--topic", second], ["0:2"]), (["--topic", "nobody"], []), (["--topic", topic, "--reason", "not_an_object"], ["0:1"]),
        (["--last", "2"], ["0:1", "0:2"]), (["--last", "9"], ["0:0", "0:1", "0:2"]),
        (["--since", "1h"], ["0:0", "0:1", "0:2"]), (["--until", "1h"], []), (["--since", "2099-01-01T00:00:00Z"], []),
        (["--until", "2099-01-01T00:00:00Z"], ["0:0", "0:1", "0:2"]),
        (["--since", letters(setup)[2]["time"]], ["0:2"]), (["--until", first[0]["time"]], ["0:0"] if first[0]["time"] < first[1]["time"] else ["0:0", "0:1"]),
    ]:
        assert [d["dead_letter"] for d in letters(setup, *options)] == wanted, options
    lines = run(setup, "list").stdout.decode().splitlines()
    assert lines[0].split() == ["DEAD", "LETTER", "TIME", "REASON", "RECORD", "ATTEMPTS", "ERROR"]
    assert lines[1].split()[:5] == ["0:0", first[0]["time"], "json_syntax", f"{topic}:0:0", "0"] and len(lines) == 5
    assert lines[-1] == "3 open"
    assert run(setup, "list", "--reason", "too_deep").stdout == b"no dead letters\n"
    assert run(setup, "list", "--topic", topic).stderr == b""
    for command, status in (("list", 0), ("replay", 78)):  # what a topic of old left may be looked at
        done = run(setup, command, "--topic", "nobody", status=status)
        assert f'no route reads topic "nobody"' in done.stderr.decode() and f"the routes read: {topic}, {second}\n" in done.stderr.decode()


@pytest.mark.parametrize("command,options,text", [
    ("list", ["--reason", "no_such"], "no_such"), ("list", ["--since", "yesterday"], "yesterday"), ("list", ["--since", "-5m"], "-5m"),
    ("list", ["--not-stored"], "--connect"), ("list", ["--until", "12"], "12"), ("list", ["--last", "0"], "0"), ("list", ["--last", "-1"], "-1"), ("list", ["--offset", "0:1"], "--offset"),
    ("show", [], "--offset"), ("show", ["--offset", "7"], "7"), ("show", ["--offset", "0:x"], "0:x"), ("show", ["--offset", "0:-1"], "0:-1"),
    ("show", ["--offset", "0:1", "--offset", "0:2"], "once"), ("replay", ["--offset", "99999999999:1"], "99999999999:1"),
    ("replay", ["--offset", "0:99999999999999999999"], "0:99999999999999999999"), ("replay", ["--offset", "0:1", "--reason", "tombstone"], "beside"),
    ("replay", ["--patience", "0s"], "0s"), ("replay", ["--patience", "5"], "5"), ("replay", ["0:1"], "0:1"), ("burn", [], "burn"),
])
def test_usage(tmp_path, command, options, text):
    """Nobody is asked, so nothing needs to be there."""
    file = tmp_path / "c.toml"
    file.write_text('[kafka]\nbrokers = "127.0.0.1:1"\ngroup = "g"\n[mongo]\nuri = "mongodb://127.0.0.1:1/"\n[dead_letter]\ntopic = "d"\n'
                    '[[route]]\ntopics = ["t"]\ncollection = "a.b"\n[route.dedup]\nkey = ["id"]\n')
    done = subprocess.run([BINARY, "dlq", command, "-c", file, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 64 and text in done.stderr and done.stdout == ""


def test_help_and_no_topic(stack, make):
    for words, needed in [(["dlq", "--help"], ["list", "show", "replay"]), (["dlq", "list", "--help"], ["--reason", "--since", "--json"]),
                          (["dlq", "show", "--help"], ["--offset", "--raw"]), (["dlq", "replay", "--help"], ["--dry-run", "--topic"]),
                          (["--help"], ["dlq list", "dlq show", "dlq replay"])]:
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and all(word in done.stdout for word in needed)
    assert subprocess.run([BINARY, "dlq"], capture_output=True, timeout=60).returncode == 64
    setup = make("orders", dead_letters=False)
    assert b"dead_letter.topic" in run(setup, "list", status=78).stderr
    setup.sections["dead_letter"]["topic"] = "not-there-at-all"
    assert b"not-there-at-all" in run(setup, "list", status=78).stderr
    assert b"not-there-at-all" in run(setup, "replay", status=78).stderr


# --- show ---


def test_show(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.collection.insert_one({"eventId": "there", "n": 1})
    binary = bytes(range(256))
    produce_raw(stack, topic, [
        (b"key", b'{"eventId": "\xc3\xbc", "x": 1,}\n', [("h", b"v"), ("null", None), ("bin", b"\xff\x1b[31m")], NOW_MS),
        (b"\x1b]0;title\x07", binary, [("h\x1b", b"1")], NOW_MS), (None, b"", None, NOW_MS)])
    setup.run_until_end()
    text = run(setup, "show", "--offset", "0:0").stdout.decode()
    for line in [rf"^dead letter +{setup.dead_letter_topic} partition 0 offset 0$", rf"^record +{topic}:0:0$", "^reason +json_syntax$", "^error +.+",
                 "^meaning +.+", "^given up +2.+Z, after 0 attempts$", f"^group +{setup.group}$", "^header +h = v$", r"^header +null \(null\)$",
                 r"^header +bin = \\xff\\x1b\[31m$", "^key +key$", "^value +\\d+ bytes$", '^{"eventId": "ü", "x": 1,}$', "^now:$", "^reason +json_syntax$"]:
        assert re.search(line, text, re.M), (line, text)
    assert "idemsink." not in text
    raw = run(setup, "show", "--offset", "0:1").stdout
    assert b"\x1b" not in raw and b"\x07" not in raw and rb"\x1b]0;title\x07" in raw and b"|................|" in raw and b" 00 01 02 " in raw
    assert run(setup, "show", "--offset", "0:1", "--raw").stdout == binary
    assert run(setup, "show", "--offset", "0:2", "--raw").stdout == b""
    shown = json.loads(run(setup, "show", "--offset", "0:1", "--json").stdout)
    assert base64.b64decode(shown["value"]["base64"]) == binary and shown["headers"] == [["h\x1b", "1"]] and shown["timestamp_ms"] == NOW_MS
    assert (shown["dead_letter"], shown["topic"], shown["offset"], shown["key"]) == ("0:1", topic, 1, "\x1b]0;title\x07")
    assert "now" in shown
    assert b"holds 0 to 2" in run(setup, "show", "--offset", "0:3", status=1).stderr
    assert b"no partition 1" in run(setup, "show", "--offset", "1:0", status=1).stderr


# What a terminal obeys, what nobody sees, and what turns the direction around: as UTF-8, and as bytes that are none.
HIDDEN = ["\u0007", "\u001b", "\u007f", "\u0080", "\u009b", "\u009f", "\u061c", "\u200b", "\u200e", "\u202e", "\u2066", "\u2069", "\ufeff"]
SHOWN = "\u00a0ü\u2013\u2019\u2026😀"


@pytest.mark.parametrize("bad", [True, False], ids=["refused", "stored"])
def test_nothing_reaches_the_terminal(stack, make, bad):
    """Value, key, headers and the names of fields, through each command that prints something of a record."""
    topic = stack.topic(1)
    setup = make(topic)
    nasty = "".join(HIDDEN) + SHOWN
    escaped = "".join(f"\\u{ord(c):04x}" for c in HIDDEN)  # in JSON text any of them may stand as an escape
    value = {} if bad else {"eventId": nasty}
    value = json.dumps(value)[:-1] + f'{", " if value else ""}"{escaped}": "{escaped}{SHOWN}", "raw": "{"".join(HIDDEN[2:])}{SHOWN}"}}'
    produce_raw(stack, topic, [(nasty.encode() + b"\x9b", value.encode(), [(f"h{nasty}", nasty.encode()), ("bin", b"\x9b\xc2")], NOW_MS)])
    setup.run_until_end()
    outputs = {}
    setup.collection.insert_one({"eventId": f"{nasty} nobody asked for"})
    for options in ((), ("--json",)):
        found = setup.command("verify", "--dead-letters", *options)
        assert found.returncode == 1 and SHOWN in found.stdout.decode(), (found.stdout, found.stderr)
        outputs["verify", *options] = found.stdout
        found = setup.command("explain", "--offset", f"{topic}:0:0", *options)
        assert found.returncode == (1 if bad else 0), found.stderr
        outputs["explain", *options] = found.stdout
        if bad:
            outputs["list", *options] = run(setup, "list", *options).stdout
            outputs["show", *options] = run(setup, "show", "--offset", "0:0", *options).stdout
            outputs["replay", *options] = setup.command("dlq", "replay", "--dry-run", *options).stdout
    for command, out in outputs.items():
        text = out.decode()  # so it is UTF-8
        for c in HIDDEN:
            assert c not in text, (command, hex(ord(c)), text)
    assert SHOWN in outputs["explain",].decode()
    if bad:
        assert SHOWN in outputs["show",].decode() and json.loads(outputs["show", "--json"])["headers"][0] == [f"h{nasty}", nasty]


# --- replay ---


def test_replay_after_the_fault_is_gone(stack, refused):
    """The walk-through of docs/dead-letters.md."""
    setup = refused((good(1), "a"), (good(2, ok=True), "a"), (good(3), "b"), (b"{", "c"))
    assert numbers(setup) == [2]
    assert sorted(d["reason"] for d in letters(setup)) == ["json_syntax", "validation", "validation"]
    assert json.loads(run(setup, "show", "--offset", place(setup, 0), "--json").stdout)["now"]["document"]
    assert {d["now"] for d in letters(setup, "--connect")} == {"missing", "refused"}
    lines = run(setup, "list", "--connect").stdout.decode().splitlines()
    assert lines[-2] == "3 open: 2 missing, 1 refused" and lines[-1].startswith("refused: ") and "new dead letter" in lines[-1]
    accept_all(setup)
    done = run(setup, "replay", "--dry-run", "--reason", "validation").stdout.decode()
    assert done.count("would be sent to MongoDB") == 2 and done.endswith("\nwould be sent 2, would be refused 0\n") and numbers(setup) == [2]
    done = run(setup, "replay", "--dry-run", status=1).stdout.decode()
    assert done.endswith("\nwould be sent 2, would be refused 1\n") and numbers(setup) == [2]
    done = replay(setup, "--dry-run", status=1)
    assert (done["would_be_sent"], done["refused"], done["inserted"]) == (2, 1, 0) and numbers(setup) == [2]
    done = replay(setup, "--reason", "validation")
    assert done["fates"] == {0: "inserted", 2: "inserted"} and (done["inserted"], done["duplicate"], done["refused"]) == (2, 0, 0)
    assert numbers(setup) == [1, 2, 3]
    assert {d["offset"]: d["now"] for d in letters(setup, "--connect")} == {0: "stored", 2: "stored", 3: "refused"}
    assert [(d["offset"], d["now"]) for d in letters(setup, "--connect", "--not-stored")] == [(3, "refused")]
    lines = run(setup, "list", "--connect", "--not-stored").stdout.decode().splitlines()
    assert len(lines) == 4 and lines[2] == "3 open: 2 stored, 1 refused"
    assert run(setup, "list", "--connect", "--reason", "validation").stdout.decode().endswith("\n2 open: 2 stored\n")
    again = replay(setup, "--reason", "validation")  # nothing is remembered and nothing is harmed
    assert again["fates"] == {0: "duplicate", 2: "duplicate"} and numbers(setup) == [1, 2, 3]
    assert len(letters(setup)) == 3
    assert setup.verify("--dead-letters")["status"] == 0


def test_what_fails_again_comes_back_with_one_attempt_more(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.collection.database.create_collection(setup.collection.name, validator={"ok": True})
    headers = [("h", b"1"), ("h", None), ("x", b"\xff")]
    value = json.dumps(good(1)).encode()
    produce_raw(stack, topic, [(None, b"filler", None, NOW_MS), (b"k", value, headers, NOW_MS - 5000), (b"k", b"{", [], 5)])
    setup.run_until_end()
    done = replay(setup, "--topic", topic, status=1)
    assert done["refused"] == 3 and [d["attempts"] for d in letters(setup)] == [1, 1, 1]
    text = run(setup, "replay", status=1).stdout.decode()  # 3 and not 6: only the newest letter of a record is sent
    assert re.search(rf"^0:\d+ +{topic}:0:1 +refused: validation: ", text, re.M)
    assert re.search("^inserted 0, duplicate 0, skipped 0, refused 3; not replayed: older 3$", text, re.M)
    assert [d["attempts"] for d in letters(setup)] == [2, 2, 2]
    states = [json.loads(run(setup, "show", "--offset", f"0:{offset}", "--json").stdout)["state"] for offset in range(9)]
    assert states == ["older"] * 6 + ["open"] * 3
    dead = stack.read_topic(setup.dead_letter_topic)
    assert len(dead) == 9 and len(letters(setup, "--all")) == 9
    assert [d["state"] for d in letters(setup, "--all")].count("older") == 6
    mine = [message for message in dead if ours(message)["offset"] == "1"]
    assert [ours(message)["attempts"] for message in mine] == ["0", "1", "2"]
    for message in mine:
        assert (message.key(), message.value(), theirs(message), message.timestamp()[1]) == (b"k", value, headers, NOW_MS - 5000)
        about = ours(message)
        assert (about["reason"], about["topic"], about["partition"], about["group"]) == ("validation", topic, "0", setup.group)
        assert about["timestamp"] == str(NOW_MS - 5000)
        assert len(message.headers()) == len(headers) + len(about)
    books = setup.verify("--dead-letters")
    assert (books["status"], books["dead_letters"], books["missing"], books["bad"], books["dead_missing"]) == (0, 9, 0, 2, 0)
    accept_all(setup)
    done = replay(setup, "--reason", "validation")
    assert done["inserted"] == 1 and numbers(setup) == [1]
    books = setup.verify("--dead-letters")
    assert (books["status"], books["stored"], books["refused"], books["extra"]) == (0, 1, 0, 0)


def test_the_same_dedup_key_as_the_first_time(stack, make):
    """Sources around the payload are those of the record, not of the letter: else a second document would come."""
    topic = stack.topic(3)
    setup = make(topic)
    change(stack, setup.dead_letter_topic, "message.timestamp.type", "LogAppendTime")  # it keeps no timestamp but its own
    setup.routes[0]["dedup"] = {"key": ["@offset", "@header.id", "@key"], "fields": ["place", "id", "key"]}
    setup.routes[0].update(set={"at": "@timestamp", "from": "@topic", "reason": "@header.idemsink.reason"}, source_fields="src")
    setup.collection.database.create_collection(setup.collection.name, validator={"ok": True})
    for partition in range(3):
        produce_raw(stack, topic, [(b"key%d" % offset, json.dumps({"n": 10 * partition + offset}).encode(), [("id", b"i")], NOW_MS - offset)
                                   for offset in range(3)], partition)
    setup.run_until_end()
    assert len(letters(setup)) == 9 and numbers(setup) == []
    accept_all(setup)
    assert replay(setup)["inserted"] == 9
    for document in setup.collection.find():
        partition, offset = divmod(document["n"], 10)
        assert document["place"] == {"topic": topic, "partition": partition, "offset": offset}
        assert (document["id"], document["key"], document["from"]) == ("i", f"key{offset}", topic)
        assert calendar.timegm(document["at"].timetuple()) == (NOW_MS - offset) // 1000 and "reason" not in document
        assert (document["src"]["partition"], document["src"]["offset"]) == (partition, offset)
    # Another group reads all of it from the beginning: nothing is stored twice.
    setup.sections["kafka"]["group"] = setup.group = setup.group + "-again"
    setup.run_until_end()
    assert len(numbers(setup)) == 9


def test_first_wins_among_dead_letters(stack, refused):
    """Two events of one lane with one dedup key: the first one's content is stored, whatever the order of the letters."""
    setup = refused(({"eventId": "e", "n": 1}, "k"), ({"eventId": "e", "n": 2}, "k"), ({"eventId": "e", "n": 3}, "k"))
    assert replay(setup, "--offset", place(setup, 0), status=1)["refused"] == 1  # its newest letter is behind the others now
    assert [d["offset"] for d in letters(setup)] == [1, 2, 0]
    accept_all(setup)
    done = replay(setup)
    assert (done["inserted"], done["duplicate"]) == (1, 2) and numbers(setup) == [1]


def test_by_topic_and_time(stack, make):
    topics = [stack.topic(1), stack.topic(1)]
    setup = make(topics)
    setup.collection.database.create_collection(setup.collection.name, validator={"ok": True})
    for number, topic in enumerate(topics):
        stack.produce(topic, [(good(number), "a")])
        setup.run_until_end()
    accept_all(setup)
    first, second = letters(setup)
    assert replay(setup, "--topic", topics[1])["fates"] == {0: "inserted"}
    assert [(d["topic"], d["fate"]) for d in replay(setup, "--until", first["time"])["letters"]] == [(topics[0], "inserted")]
    assert [(d["topic"], d["fate"]) for d in replay(setup, "--since", second["time"], "--until", "0s")["letters"]] == [(topics[1], "duplicate")]


def test_a_rule_may_skip_it(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.routes[0]["tombstone"] = "dead_letter"
    stack.produce(topic, [Record(None, "k")])
    setup.run_until_end()
    setup.routes[0]["tombstone"] = "skip"
    assert run(setup, "replay", "--dry-run").stdout.decode().endswith("\nwould be sent 0, would be skipped 1, would be refused 0\n")
    assert run(setup, "list", "--connect").stdout.decode().endswith("\n1 open: 1 skipped\n")
    assert letters(setup, "--connect", "--not-stored") == []
    done = replay(setup)
    assert done["fates"] == {0: "skipped"} and done["skipped"] == 1


# --- what anybody may write into the topic ---

HEADERS = {"reason": "validation", "error": "e", "partition": "0", "offset": "0", "attempts": "0", "time": "2026-01-02T03:04:05.678Z", "version": "1"}


def forged(setup, topic, **more):
    headers = {**HEADERS, "topic": topic, "group": setup.group, **more}
    return [(f"idemsink.{name}", value.encode()) for name, value in headers.items() if value is not None]


def test_foreign_and_broken_ones_are_never_replayed(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    value = json.dumps(good(1)).encode()
    cases = [
        ("foreign", None), ("foreign", [("h", b"v")]), ("broken", [("idemsink.topic", topic.encode())]),
        ("broken", forged(setup, topic) + [("idemsink.topic", topic.encode())]), ("broken", forged(setup, topic, offset="-1")),
        ("broken", forged(setup, topic, offset="9223372036854775808")), ("broken", forged(setup, topic, partition="4294967296")),
        ("broken", forged(setup, topic, time="never")), ("broken", forged(setup, topic, attempts=None)), ("broken", forged(setup, "^" + topic[:1])),
        ("broken", forged(setup, "a\x1b[31mb")), ("broken", [(name, None) for name, _ in forged(setup, topic)]),
        ("no_route", forged(setup, "somebody-elses")), ("no_route", forged(setup, setup.dead_letter_topic)),
        ("other_group", forged(setup, topic, group="another", offset="4")),
        ("incomplete", forged(setup, topic, value="dropped: too large, 5 bytes", offset="5")),
        ("open", forged(setup, topic, offset="6", reason="a_reason_of_\x1b[31mtomorrow")),
    ]
    produce_raw(stack, setup.dead_letter_topic, [(b"k", value, headers, NOW_MS) for _, headers in cases])
    found = sorted(letters(setup), key=lambda d: int(d["dead_letter"].split(":")[1]))
    assert [d["state"] for d in found] == [state for state, _ in cases]
    out = run(setup, "list").stdout
    assert b"\x1b" not in out and b"foreign 2" in out or b"2 foreign" in out
    assert [d["state"] for d in letters(setup, "--reason", "validation")] == ["no_route"] * 2 + ["other_group", "incomplete"]
    for offset in range(len(cases)):
        shown = run(setup, "show", "--offset", f"0:{offset}").stdout
        assert b"\x1b" not in shown
    for offset in (0, 3, 14, 16):
        json.loads(run(setup, "show", "--offset", f"0:{offset}", "--json").stdout)
    done = replay(setup, status=1)
    assert done["inserted"] == 1 and done["fates"].pop(6) == "inserted" and set(done["fates"].values()) == {"not_replayed"}
    assert done["not_replayed"] == {"older": 0, "incomplete": 1, "no_route": 2, "other_group": 1, "foreign": 2, "broken": 10}
    one_by_one = replay(setup, *[word for offset in (0, 2, 12, 14, 15) for word in ("--offset", f"0:{offset}")], status=1)
    assert one_by_one["inserted"] == 0 and len(one_by_one["letters"]) == 5
    assert numbers(setup) == [1] and len(stack.read_topic(setup.dead_letter_topic)) == len(cases)


def test_a_letter_of_another_group_hides_no_loss(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    stack.produce(topic, [(good(1), "k"), (good(2), "k")])
    produce_raw(stack, setup.dead_letter_topic, [(b"k", b"{}", forged(setup, topic, group="another"), NOW_MS),
                                                 (b"k", b"{}", forged(setup, topic, offset="1"), NOW_MS)])
    setup.collection.create_index("eventId", unique=True)
    books = setup.verify("--dead-letters")
    assert (books["status"], books["missing"], books["refused"], books["dead_letters"]) == (1, 1, 1, 1)


def test_too_large_for_the_topic_is_read_from_its_own(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    setup.collection.database.create_collection(setup.collection.name, validator={"ok": True})
    change(stack, setup.dead_letter_topic, "max.message.bytes", "2000")
    stack.produce(topic, [(good(1, text="x" * 5000), "k"), (b"{", "k"), Record(good(2), "k", [("h", b"v" * 5000)])])
    setup.run_until_end()
    assert {d["offset"]: d["state"] for d in letters(setup)} == {0: "incomplete", 1: "open", 2: "incomplete"}
    where = place(setup, 0)
    shown = run(setup, "show", "--offset", where).stdout
    assert b"too large" in shown and b"x" * 5000 in shown  # "now" has the record itself
    assert b"too large" in run(setup, "show", "--offset", where, "--raw", status=1).stderr
    assert replay(setup, status=1)["refused"] == 3  # and comes back without value again
    assert [d["state"] for d in letters(setup)].count("incomplete") == 2
    accept_all(setup)
    done = replay(setup, status=1)
    assert done["fates"] == {0: "inserted", 1: "refused", 2: "inserted"}
    assert sorted((d["n"], len(d.get("text", ""))) for d in setup.collection.find()) == [(1, 5000), (2, 0)]
    for future in stack.admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result(30)
    produce_raw(stack, setup.dead_letter_topic, [(b"k", None, forged(setup, topic, value="dropped: too large, 99 bytes", offset="2", timestamp="1",
                                                                     time="2099-01-02T03:04:05.678Z"), NOW_MS)])
    done = replay(setup, status=1)  # the one is gone, and what the other speaks of is another record
    assert done["fates"][0] == done["fates"][2] == "not_replayed" and done["not_replayed"]["incomplete"] == 2
    assert {d["offset"]: d["now"] for d in letters(setup, "--connect")} == {0: "gone", 1: "refused", 2: "gone"}
    assert len(numbers(setup)) == 2


# --- beside a worker, and against what fails ---


def test_bounded_by_the_end_seen_at_start_and_beside_a_worker(stack, refused):
    """A worker with the same configuration runs on; what it refuses meanwhile is for the next replay."""
    setup = refused(*[(good(i), f"k{i % 5}") for i in range(200)])
    worker = setup.start()
    worker.wait_ready()
    stack.produce(setup.topics[0], [(good(i), f"k{i % 5}") for i in range(200, 400)])
    done = replay(setup, status=1)
    assert 200 <= done["refused"] <= 400 and len({letter["offset"] for letter in done["letters"]}) == done["refused"]
    setup.wait_settled()
    assert len(letters(setup)) == 400
    accept_all(setup)
    assert replay(setup)["inserted"] == 400 and numbers(setup) == list(range(400))
    assert worker.terminate() == 0
    assert setup.verify("--dead-letters")["status"] == 0


def test_what_stops_it_loses_nothing_and_by_offset(stack, refused):
    setup = refused((good(1), "a"), (good(2), "a"), (good(3), "a"))
    change(stack, setup.dead_letter_topic, "max.message.bytes", "100")  # too small for our headers alone
    done = setup.command("dlq replay", "--offset", place(setup, 0), "--json", "--patience", "1s")
    assert done.returncode == 69 and setup.dead_letter_topic.encode() in done.stderr
    assert json.loads(done.stdout)["letters"][0]["fate"] == "not acknowledged"
    change(stack, setup.dead_letter_topic, "max.message.bytes", "1000000")
    assert [d["attempts"] for d in letters(setup)] == [0, 0, 0]
    accept_all(setup)
    there, setup.sections["mongo"] = setup.sections["mongo"], {"uri": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300"}
    assert run(setup, "replay", status=69).stdout == b""
    setup.sections["mongo"] = there
    setup.collection.drop_index("idemsink_dedup")
    setup.routes[0]["ensure_index"] = False
    assert b"index" in run(setup, "replay", status=78).stderr and numbers(setup) == []
    setup.routes[0]["ensure_index"] = True
    done = replay(setup, "--offset", place(setup, 2), "--offset", place(setup, 0))
    assert done["fates"] == {0: "inserted", 2: "inserted"} and numbers(setup) == [1, 3]
    done = run(setup, "replay", "--offset", "0:7", "--offset", place(setup, 1), status=1)
    assert b"0 to 2" in done.stderr and numbers(setup) == [1, 2, 3]


def test_caches_are_told(stack, refused):
    bus = redis.Redis.from_url(stack.redis_uri)
    setup = refused((good(1), "a"), (good(2), "a"))
    setup.sections["redis"] = {"uri": stack.redis_uri}
    setup.routes[0]["invalidate"] = [{"mode": "unlink", "keys": ["cache:{eventId}"]}]
    for number in (1, 2, 3):
        bus.set(f"cache:good {number}", "old")
    accept_all(setup)
    assert replay(setup)["untold"] == 0
    assert [bus.exists(f"cache:good {number}") for number in (1, 2, 3)] == [0, 0, 1]
    setup.sections["redis"] = {"uri": "redis://127.0.0.1:1/0"}
    assert replay(setup)["untold"] == 2  # best effort: said, and no reason to fail
    setup.routes[0]["invalidate"][0].update(delivery="before_commit", coalesce="0s")
    done = setup.command("dlq replay", "--json", "--patience", "1s")
    assert done.returncode == 69 and json.loads(done.stdout)["not_acknowledged"] == 2


def test_killed_in_the_middle(stack, refused):
    """kill -9 at any moment: run again, everything is there once."""
    import random
    setup = refused(*[(good(i), f"k{i % 7}") for i in range(3000)])
    accept_all(setup)
    setup.sections["worker"]["batch"] = 50
    path = setup.file()
    for _ in range(3):
        process = subprocess.Popen([BINARY, "dlq", "replay", "-c", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wanted = random.randrange(1, 600)
        for _ in range(wanted):
            if not process.stdout.readline():
                break
        process.kill()
        said = process.stdout.read()
        process.stdout.close()
        process.wait(10)
        assert said is not None
    done = replay(setup)
    assert done["inserted"] + done["duplicate"] == 3000 and done["refused"] == 0
    assert numbers(setup) == list(range(3000))
    wait_until(lambda: setup.verify("--dead-letters")["status"] == 0, 10, "balanced books")
