"""`idemsink verify`: balanced books are 0; whatever was taken, added or changed behind its back is found, told and 1."""
import json
import time

import pytest
from harness import Record, Setup


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
    assert sorted(line[-1] for line in lines) == ["dedup_empty", "json_syntax", "not_an_object"]
    assert all(line[2].startswith(written.topics[0] + "/") and "@" in line[2] for line in lines)
    listed = written.verify("--dead-letters")["dead_letter_list"]
    assert sorted(entry["reason"] for entry in listed) == ["dedup_empty", "json_syntax", "not_an_object"]
    assert {f"{e['topic']}/{e['partition']}@{e['offset']}" for e in listed} == {line[2] for line in lines}


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
    line = [l for l in text.splitlines() if l.startswith("missing ") and "@" in l][0]
    place = line.split()[1]
    topic, rest = place.rsplit("/", 1)
    partition, offset = map(int, rest.split("@"))
    found = [m for m in restored.stack.read_topic(topic) if m.partition() == partition and m.offset() == offset]
    assert json.loads(found[0].value())["n"] == 7
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


def test_memory_is_bounded(stack, make):
    setup = ran(stack, make, [(event(i), f"k{i}") for i in range(30000)])
    done = setup.command("verify", "--memory", "1MiB")
    assert done.returncode == 78 and b"--memory" in done.stderr
    assert setup.verify("--memory", "64MiB")["status"] == 0
    assert setup.command("verify", "--memory", "lots").returncode == 64


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
