"""`idemsink verify`: balanced books are 0; whatever was taken, added or changed behind its back is found, told and 1."""
import datetime
import json
import os
import re
import subprocess
import time

import pytest
from confluent_kafka import Producer
from harness import BINARY, Record, Setup


def event(number, **more):
    return {"eventId": f"e{number}", "n": number, "sub": {"b": 1, "a": [1.5, None, "x"]}, **more}


def ran(stack, make, records, partitions=2, **options):
    topic = stack.topic(partitions)
    setup = make(topic, **options)
    stack.produce(topic, records)
    setup.run_until_end()
    return setup


def faults(books):
    return {name: books[name] for name in ("missing", "different", "doubled", "extra", "dead_missing") if books[name]}


@pytest.fixture(scope="module")
def module_make(stack, tmp_path_factory):
    """As make, for what several tests look at."""
    made = []

    def new(topics, **options):
        made.append(Setup(stack, tmp_path_factory.mktemp("verify"), topics, **options))
        return made[-1]

    yield new
    for setup in made:
        setup.close()


@pytest.fixture(scope="module")
def written(stack, module_make):
    """40 events, each delivered one to three times, with 3 bad records and 2 tombstones."""
    records = [(event(i), f"k{i}") for i in range(40) for _ in range(1 + i % 3)]
    return ran(stack, module_make, records + [(b"{", "a"), (b"[]", "b"), (b'{"eventId": ""}', "c"), (None, "d"), (None, "e")])


def test_balanced(written):
    books = written.verify()
    assert books["status"] == 0 and books["balanced"] is True and faults(books) == {}
    assert (books["records"], books["distinct"], books["stored"]) == (79, 40, 40)
    assert (books["bad"], books["dead_letters"], books["skipped"]) == (3, 3, 2)
    done = written.command("verify")
    assert done.returncode == 0 and done.stderr == b""  # no progress where there is no terminal
    assert "the books balance" in done.stdout.decode()


def test_lists_dead_letters(written):
    lines = [line.split() for line in written.command("verify", "--dead-letters").stdout.decode().splitlines() if "letter " in line]
    assert sorted(line[3] for line in lines) == ["dedup_empty", "json_syntax", "not_an_object"]
    assert all(line[2].startswith(written.topics[0] + ":") for line in lines)
    listed = written.verify("--dead-letters")["dead_letter_list"]
    assert sorted(entry["reason"] for entry in listed) == ["dedup_empty", "json_syntax", "not_an_object"]
    assert {f"{e['topic']}:{e['partition']}:{e['offset']}" for e in listed} == {line[2] for line in lines}
    own = [line[-1].rstrip(")") for line in lines]
    assert len(set(own)) == 3 and sorted(own) == sorted(f"{e['letter_partition']}:{e['letter_offset']}" for e in listed)
    for line, place in zip(lines, own):
        shown = json.loads(written.command("dlq show", "--offset", place, "--json").stdout)
        assert shown["reason"] == line[3]


# (name, change by hand, what verify then counts); undone by the fixture.
CHANGES = [
    ("missing", lambda c: c.delete_one({"n": 7}), {"missing": 1}),
    ("all missing", lambda c: c.delete_many({}), {"missing": 40}),
    ("extra", lambda c: c.insert_one({"eventId": "by hand"}), {"extra": 1}),
    ("extra without the key", lambda c: c.insert_one({"other": "by hand"}), {"extra": 1}),
    ("value", lambda c: c.update_one({"n": 7}, {"$set": {"n": 8}}), {"different": 1}),
    ("type", lambda c: c.update_one({"n": 7}, {"$set": {"n": 7.0}}), {"different": 1}),
    ("one field more", lambda c: c.update_one({"n": 7}, {"$set": {"more": 1}}), {"different": 1}),
    ("one field less", lambda c: c.update_one({"n": 7}, {"$unset": {"sub": 1}}), {"different": 1}),
    ("inside an array", lambda c: c.update_one({"n": 7}, {"$set": {"sub.a.2": "y"}}), {"different": 1}),
    ("order inside", lambda c: c.update_one({"n": 7}, {"$set": {"sub": {"a": [1.5, None, "x"], "b": 1}}}), {"different": 1}),
    ("another key", lambda c: c.update_one({"n": 7}, {"$set": {"eventId": "new"}}), {"missing": 1, "extra": 1}),
    ("two exchanged", lambda c: (c.update_one({"n": 7}, {"$set": {"n": 1008}}), c.update_one({"n": 8}, {"$set": {"n": 7}}),
                                 c.update_one({"n": 1008}, {"$set": {"n": 8}})), {"different": 2}),
]


@pytest.fixture
def restored(written):
    before = list(written.collection.find())
    yield written
    written.collection.delete_many({})
    written.collection.insert_many(before)


@pytest.mark.parametrize("change,wanted", [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_finds_what_was_done_by_hand(restored, change, wanted):
    change(restored.collection)
    books = restored.verify()
    assert (books["status"], books["balanced"], faults(books)) == (1, False, wanted)


def test_says_where_the_missing_one_was(restored):
    restored.collection.delete_one({"n": 7})
    done = restored.command("verify")
    text = done.stdout.decode()
    place = [l for l in text.splitlines() if l.startswith("missing ") and ":" in l][0].split()[1]
    shown = json.loads(restored.command("explain", "--json", "--offset", place, "--connect").stdout)
    assert shown["document"]["n"] == 7 and shown["stored"].startswith("not there")
    assert done.returncode == 1 and "THE BOOKS DO NOT BALANCE" in text


def test_allow_extra(restored):
    restored.collection.insert_one({"eventId": "by hand"})
    assert restored.verify()["status"] == 1
    books = restored.verify("--allow-extra")
    assert (books["status"], books["extra"]) == (0, 1)
    restored.collection.delete_one({"n": 7})
    assert restored.verify("--allow-extra")["status"] == 1


def test_not_yet_consumed_is_missing(stack, make):
    topic = stack.topic(2)
    setup = make(topic)
    setup.run_until_end(30)
    stack.produce(topic, [(event(i), f"k{i}") for i in range(30)])
    books = setup.verify()
    assert (books["status"], faults(books)) == (1, {"missing": 30})
    setup.run_until_end()
    assert setup.verify()["status"] == 0


def test_bad_records_without_dead_letters(stack, make):
    """Another dead-letter topic than the one that they went to."""
    setup = ran(stack, make, [(event(1), "k"), (b"{", "k"), (b"[", "k")])
    theirs = setup.sections["dead_letter"]["topic"]
    setup.sections["dead_letter"]["topic"] = stack.topic(1)
    books = setup.verify()
    assert (books["status"], faults(books)) == (1, {"dead_missing": 2})
    setup.sections["dead_letter"]["topic"] = theirs
    assert setup.verify()["status"] == 0


def test_dead_letters_of_others_do_not_count(stack, make):
    """Two groups share one dead-letter topic; so may a record whose headers lie."""
    first = ran(stack, make, [(event(1), "k"), (b"{", "k")])
    second = make(stack.topic(1))
    second.sections["dead_letter"]["topic"] = first.dead_letter_topic
    stack.produce(second.topics[0], [(b"{", "k"), (event(1), "k")])
    second.run_until_end()
    stack.produce(first.dead_letter_topic, [Record(b"x", "k", headers) for headers in (
        None, [("idemsink.topic", b"no such topic"), ("idemsink.partition", b"0"), ("idemsink.offset", b"0")],
        [("idemsink.topic", first.topics[0].encode()), ("idemsink.partition", b"zero"), ("idemsink.offset", None)])])
    for setup in (first, second):
        books = setup.verify()
        assert (books["status"], books["bad"], faults(books)) == (0, 1, {})


def test_refused_by_mongodb_and_then_another_content(stack, make):
    """The first of a dedup key is refused by a validator, the second is stored: that is right, and not "different"."""
    topic = stack.topic(1)
    setup = make(topic)
    setup.collection.database.create_collection(setup.collection.name, validator={"n": {"$ne": 0}})
    stack.produce(topic, [({"eventId": "a", "n": 0}, "k"), ({"eventId": "a", "n": 1}, "k"), ({"eventId": "b", "n": 0}, "k"),
                          ({"eventId": "c", "n": 3}, "k")])
    worker = setup.run_until_end()
    assert worker.books()["dead_letter"] == 2
    assert {(d["eventId"], d["n"]) for d in setup.collection.find()} == {("a", 1), ("c", 3)}
    books = setup.verify()
    assert (books["status"], faults(books), books["refused"]) == (0, {}, 1)


def test_first_wins_is_checked_within_a_lane(stack, make):
    """Of one key in one lane the first counts; of several lanes each one's first."""
    topic = stack.topic(1)
    setup = make(topic)
    stack.produce(topic, [(event(1, content="one"), "k"), (event(1, content="two"), "k"), (event(2, content="one"), "k"),
                          (event(2, content="other lane"), "l"), (event(2, content="other lane, later"), "l")])
    setup.run_until_end()
    assert setup.verify()["status"] == 0
    setup.collection.update_one({"n": 1}, {"$set": {"content": "two"}})
    assert faults(setup.verify()) == {"different": 1}
    setup.collection.update_one({"n": 1}, {"$set": {"content": "one"}})
    setup.collection.update_one({"n": 2}, {"$set": {"content": "other lane"}})
    assert setup.verify()["status"] == 0
    setup.collection.update_one({"n": 2}, {"$set": {"content": "other lane, later"}})
    assert faults(setup.verify()) == {"different": 1}


def test_two_routes_into_two_collections(stack, make):
    first, second = stack.topic(1), stack.topic(2)
    setup = make(first)
    other = stack.collection()
    setup.topics = [first, second]
    setup.routes.append(Setup.route([second], other, ("@key",)))
    setup.routes[1]["dedup"] = {"key": ["@key"], "fields": ["key"]}
    stack.produce(first, [event(i) for i in range(10)])
    stack.produce(second, [(event(1), f"k{i % 7}") for i in range(21)])
    setup.run_until_end()
    books = setup.verify()
    assert (books["status"], books["records"], books["distinct"], books["stored"]) == (0, 31, 17, 17)
    other.delete_one({})
    assert faults(setup.verify()) == {"missing": 1}


def test_two_routes_into_one_collection(stack, make):
    first, second = stack.topic(1), stack.topic(1)
    setup = make(first)
    setup.topics = [first, second]
    setup.routes.append({**Setup.route([second], setup.collection), "name": "second", "set": {"origin": "second"}})
    stack.produce(first, [(event(i), "k") for i in range(10)])
    stack.produce(second, [(event(i), "k") for i in range(5, 15)])
    setup.run_until_end()
    books = setup.verify()
    assert (books["status"], books["records"], books["distinct"], books["stored"], faults(books)) == (0, 20, 15, 15, {})
    setup.collection.delete_one({"n": 12})
    assert faults(setup.verify()) == {"missing": 1}


def test_what_the_document_is_made_of_counts(stack, make):
    """types, rename, set, source_fields, an identity in _id, and one from the header."""
    topic = stack.topic(2)
    setup = make(topic)
    setup.routes[0].update(types={"at": "date", "price": "decimal"}, rename={"price": "cost"}, set={"v": 2, "k": "@key"},
                           source_fields="from", dedup={"key": ["eventId", "@header.tenant"], "into": "_id"})
    stack.produce(topic, [(json.dumps(event(i % 20, at="2026-01-02T03:04:05Z", price="1.50", _x=i)), f"k{i % 20}", [("tenant", b"t")])
                          for i in range(60)])
    setup.run_until_end()
    assert setup.verify()["status"] == 0 and setup.collection.count_documents({}) == 20
    setup.collection.update_one({"n": 3}, {"$inc": {"from.offset": 1}})
    assert faults(setup.verify()) == {"different": 1}


@pytest.mark.parametrize("what,break_it,status", [
    ("mongodb", lambda s: s["mongo"].update(uri="mongodb://127.0.0.1:1/?replicaSet=rs0", server_selection_timeout="500ms"), 69),
    ("kafka", lambda s: s["kafka"].update(brokers="127.0.0.1:1"), 69)])
def test_unreachable(stack, make, what, break_it, status):
    setup = make(stack.topic(1))
    break_it(setup.sections)
    done = setup.command("verify")
    assert done.returncode == status
    lines = done.stderr.decode().strip().splitlines()
    assert "127.0.0.1:1" in lines[-1] and b"balance" not in done.stdout


def test_topics_that_are_not_there(stack, make):
    setup = make("no-such-topic")
    done = setup.command("verify")
    assert done.returncode == 78 and b"no-such-topic" in done.stderr
    setup = make(stack.topic(1))
    setup.sections["dead_letter"]["topic"] = "no-such-dead-letters"
    done = setup.command("verify")
    assert done.returncode == 78 and b"no-such-dead-letters" in done.stderr


def test_memory_is_bounded_and_kept(stack, make):
    """350,000 dedup keys (nothing is stored: it is the table that counts): too many for the least that is possible, and the process
    stays below the bound where they fit."""
    topic = stack.topic(2)
    setup = make(topic, dead_letters=False)
    setup.sections["dead_letter"]["on_bad_record"] = "skip"
    setup.sections["worker"]["max_bytes"] = "16MiB"
    stack.produce(topic, (f'{{"eventId": "e{i}"}}' for i in range(350000)))
    for memory in ("lots", "1GB", "1MiB", "-1GiB", "119MiB"):
        done = setup.command("verify", "--memory", memory)
        assert done.returncode == 64 and b"--memory" in done.stderr, memory
    done = setup.command("verify", "--memory", "120MiB")
    text = done.stderr.decode()
    assert done.returncode == 78 and "of 350000 records" in text and re.search(r"give it about \d+MiB.*--sample \(1/[2-9]\)", text)
    for options, keys in ((("--memory", "160MiB"), 350000), (("--memory", "120MiB", "--sample", "1/3"), 117000)):
        books = setup.verify(*options, "--list", "3")
        memory = books["memory"]
        assert books["missing"] == books["distinct"] and abs(books["distinct"] - keys) < keys / 50
        assert memory["bound_bytes"] == int(options[1][:3]) << 20
        assert memory["table_bytes"] >= books["distinct"] * 40 and memory["peak_rss_bytes"] <= memory["bound_bytes"]
        assert len(books["faults"]) == 3 and books["faults_not_listed"] == books["missing"] - 3


def test_samples_are_parts_of_the_keys(restored):
    """Both sides choose the same keys, always the same ones, and the parts together are all."""
    parts = [restored.verify("--sample", f"{k}/3") for k in (1, 2, 3)]
    assert all(books["status"] == 0 and 0 < books["stored"] < 40 for books in parts)
    assert sum(books["stored"] for books in parts) == sum(books["distinct"] for books in parts) == 40
    assert sum(books["records"] for books in parts) == 79 and all(books["documents"] == 40 for books in parts)
    restored.collection.delete_one({"n": 7})
    restored.collection.insert_one({"eventId": "by hand"})
    restored.collection.insert_one({"without": "a key"})
    parts = [faults(restored.verify("--sample", f"{k}/3")) for k in (1, 2, 3)]
    assert sum(part.get("missing", 0) for part in parts) == 1 and sum(part.get("extra", 0) for part in parts) == 2
    half = restored.verify("--sample", "50%")
    assert half["sample_percent"] == 50 and half["distinct"] == restored.verify("--sample", "1/2")["distinct"]
    assert restored.verify("--sample", "100%")["distinct"] == 40
    assert b"a sample: 0.5 % of the dedup keys" in restored.command("verify", "--sample", "0.5%").stdout
    for wrong in ("0%", "101%", "5", "0/3", "4/3", "1/0", "%", "1/3x", "nan%", "-1%", "1/9999999"):
        done = restored.command("verify", "--sample", wrong)
        assert done.returncode == 64 and b"--sample" in done.stderr, wrong


def at_times(stack, topic, records):
    """records: (milliseconds since 1970, value, key)"""
    producer = Producer({"bootstrap.servers": stack.brokers})
    for at, value, key in records:
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value), key, timestamp=at)
        producer.flush(30)


def test_since(stack, make):
    topic = stack.topic(1)
    setup = make(topic)
    hour, now = 3600000, int(time.time() * 1000)
    at_times(stack, topic, [(now - 9 * hour, event(1), "k"), (now - 9 * hour, b"{", "k"), (now - 8 * hour, event(2), "k"),
                            (now - 2 * hour, event(3), "k"), (now - 2 * hour, event(1), "k"), (now - hour, b"[", "k")])
    setup.run_until_end()
    books = setup.verify()
    assert (books["status"], books["read"], books["dead_letters"], books["since"]) == (0, 6, 2, None)
    moment = datetime.datetime.fromtimestamp((now - 3 * hour) / 1000, datetime.timezone.utc)
    for since in ("180m", moment.isoformat()):
        books = setup.verify("--since", since)
        assert (books["status"], books["read"], books["stored"], books["dead_letters"]) == (0, 3, 2, 1), since
        assert (books["extra"], books["outside"]) == (0, 1) and books["partitions"] == [{"topic": topic, "partition": 0, "from": 3, "to": 6}]
        assert books["since"].startswith(moment.strftime("%Y-%m-%dT%H:"))
    assert setup.verify("--since", "7d")["read"] == setup.verify("--since", "2000-01-01")["read"] == 6
    assert setup.verify("--since", "2200-01-01T00:00:00Z")["read"] == 0
    assert b"can't be told" in setup.command("verify", "--since", "3h").stdout
    setup.collection.delete_one({"n": 2})
    setup.collection.insert_one({"eventId": "by hand"})
    assert setup.verify("--since", "3h")["status"] == 0
    setup.collection.delete_one({"n": 3})
    books = setup.verify("--since", "3h")
    assert (books["status"], faults(books), books["faults"]) == (1, {"missing": 1}, [{"what": "missing", "record": f"{topic}:0:3"}])
    for wrong in ("3", "yesterday", "3x", "-3h", "2026-13-01", "", "99999999d"):
        done = setup.command("verify", "--since", wrong)
        assert done.returncode == 64 and b"--since" in done.stderr, wrong


def test_report_for_machines_is_complete(restored):
    collection = restored.routes[0]["collection"]
    restored.collection.delete_one({"n": 7})
    restored.collection.update_one({"n": 8}, {"$set": {"n": 0}})
    restored.collection.insert_one({"eventId": {"by": "hand"}})
    restored.collection.insert_one({"_id": 77, "no": "key"})
    books = restored.verify()
    assert books["balanced"] is False and books["sample_percent"] == 100 and books["since"] is None and books["seconds"] >= 0
    assert books["started"] <= books["finished"] and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", books["started"])
    assert sum(p["to"] - p["from"] for p in books["partitions"]) == books["read"] == 84
    assert {p["topic"] for p in books["partitions"]} == set(restored.topics)
    assert books["collections"] == [{"collection": collection, "documents": 41}] and books["documents"] == 41
    by_what = {fault["what"]: fault for fault in books["faults"] if fault.get("key") != {"_id": 77}}
    assert by_what["different"] == {"what": "different", "collection": collection, "key": {"eventId": "e8"}}
    assert by_what["extra"]["key"] == {"eventId": {"by": "hand"}} and by_what["missing"]["record"].startswith(restored.topics[0] + ":")
    assert {"what": "extra", "collection": collection, "key": {"_id": 77}} in books["faults"] and books["faults_not_listed"] == 0
    text = restored.command("verify", "--list", "2").stdout.decode()
    assert "2 more; --list N lists more" in text and f"different    {collection} {{ \"eventId\" : \"e8\" }}" in restored.command("verify").stdout.decode()
    for wrong in ("x", "-1", "2000000"):
        assert restored.command("verify", "--list", wrong).returncode == 64


def test_progress_on_a_terminal(written):
    ours, theirs = os.openpty()
    done = subprocess.run([BINARY, "verify", "-c", written.file()], stdout=subprocess.PIPE, stderr=theirs, timeout=30)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # EIO: the other end is closed and all is read
        pass
    os.close(ours)
    assert done.returncode == 0
    for what in (rb"dead letters: \d of 3 \(\d+ %\), \d+/s", rb"records: \d+ of 84 \(\d+ %\), \d+/s", rb"documents: \d+ of 40 \(\d+ %\), \d+/s"):
        assert re.search(what, shown), shown
    assert shown.endswith(b"\r\x1b[K") and b"\n" not in shown


def test_a_hundred_thousand_records_with_two_contents_each(stack, make, capsys):
    """Each key in two partitions with different contents, so that both are right: what costs most to remember."""
    topic = stack.topic(2)
    setup = make(topic)
    stack.produce(topic, [Record(event(i, partition=p), f"k{i}", None, p) for p in (0, 1) for i in range(50000)])
    setup.run_until_end(120)
    began = time.monotonic()
    books = setup.verify()
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f" [verify: {books['records']} records in {seconds:.1f} s, {books['records'] / seconds:.0f}/s]", end="")
    assert (books["status"], books["records"], books["distinct"], books["stored"]) == (0, 100000, 50000, 50000)
    assert seconds < 30
