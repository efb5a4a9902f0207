"""A bad configuration of each kind stops the start with file, line, column and key, and exit code 78."""
import re
import subprocess

import pytest
from harness import BINARY, ROOT, Setup

GOOD = """[kafka]
brokers = "127.0.0.1:1"
group = "g"
[mongo]
uri = "mongodb://user:secret@127.0.0.1:1/"
[[route]]
topics = ["t"]
collection = "d.c"
[route.dedup]
key = ["id"]
"""

# (name, text to replace, replacement, place or None, what the error must name)
BAD = [
    ("syntax", 'group = "g"', "group = = 1", "3:", ""),
    ("unknown key", 'group = "g"', 'group = "g"\ngruop = "h"', "4:1", "group"),
    ("unknown section", "[mongo]", "[monga]", "4:", "mongo"),
    ("wrong type", 'group = "g"', "group = 5", "3:", "kafka.group"),
    ("out of bounds", "[[route]]", "[worker]\nthreads = 0\n[[route]]", "7:", "worker.threads"),
    ("bad duration", "[[route]]", '[worker]\nlinger = "5 parsecs"\n[[route]]', "7:", "worker.linger"),
    ("missing key", 'group = "g"\n', "", None, "kafka.group"),
    ("no route", GOOD[GOOD.index("[[route]]"):], "", None, "route"),
    ("no dedup key", '[route.dedup]\nkey = ["id"]\n', "", None, "dedup"),
    ("bad collection", '"d.c"', '"nodot"', "8:", "collection"),
    ("bad type name", "[route.dedup]", '[route.types]\nx = "datum"\n[route.dedup]', "10:", "date"),
    ("librdkafka's own property", 'group = "g"', 'group = "g"\n[kafka.properties]\n"enable.auto.commit" = "true"', "5:", "enable.auto.commit"),
    ("offset store", 'group = "g"', 'group = "g"\n[kafka.properties]\n"enable.auto.offset.store" = true', "5:", "enable.auto.offset.store"),
    ("unknown property of librdkafka", 'group = "g"', 'group = "g"\n[kafka.properties]\n"fetch.wait.max.mss" = "5"', "5:1", '"fetch.wait.max.ms"'),
    ("unset property of librdkafka", 'group = "g"', 'group = "g"\n[kafka.properties]\n"ssl.ca.locatoin" = "x"', "5:1", '"ssl.ca.location"'),
    ("value of librdkafka", 'group = "g"', 'group = "g"\n[kafka.properties]\n"fetch.wait.max.ms" = "x"', "5:1", "fetch.wait.max.ms"),
    ("bound of librdkafka", 'group = "g"', 'group = "g"\n[kafka.properties]\n"session.timeout.ms" = 0', "5:1", "3600000"),
    ("mongo uri with a bad port", "127.0.0.1:1/", "127.0.0.1:x1/", "5:1", "mongo.uri"),
    ("redis uri with a bad database", "[[route]]", '[redis]\nuri = "redis://u:secret@h/x"\n[[route]]', "7:1", "redis.uri"),
    ("unset environment", '"d.c"', '"d.${IDEMSINK_NOT_SET}"', "8:", "IDEMSINK_NOT_SET"),
    ("topic twice", "[[route]]", '[[route]]\ntopics = ["t"]\ncollection = "d.e"\n[route.dedup]\nkey = ["id"]\n[[route]]', None, '"t"'),
    ("two expressions for one topic", "[[route]]",
     '[[route]]\ntopics = ["^t.*[.]eu$"]\ncollection = "d.e"\n[route.dedup]\nkey = ["id"]\n[[route]]\nname = "second"\ntopics = ["^tx"]\n'
     'collection = "d.f"\n[route.dedup]\nkey = ["id"]\n[[route]]', "13:", '"tx.eu"'),
    ("two identities in one collection", "[[route]]",
     '[[route]]\ntopics = ["u"]\ncollection = "d.c"\n[route.dedup]\nkey = ["other"]\n[[route]]', None, "d.c"),
    ("dead letters as input", "[[route]]", '[dead_letter]\ntopic = "t"\n[[route]]', "9:", "dead-letter topic"),
    ("invalidation without redis", "[route.dedup]", '[[route.invalidate]]\nmode = "unlink"\nkeys = ["a"]\n[route.dedup]', None, "redis.uri"),
    ("template", "[[route]]", '[redis]\nuri = "redis://h"\n[[route]]', None, None),
    ("bad mongo uri", '"mongodb://user:secret@127.0.0.1:1/"', '"mongo://h"', None, "mongo.uri"),
    ("bad brokers", "[kafka]", "[kafka]\nclient_id = 1.5", "2:", "client_id"),
    ("listen", "[[route]]", '[http]\nlisten = "nowhere"\n[[route]]', "7:", "http.listen"),
]


@pytest.mark.parametrize("name,old,new,place,named", BAD, ids=[row[0] for row in BAD])
def test_bad_configuration(tmp_path, name, old, new, place, named):
    text = GOOD.replace(old, new, 1)
    if name == "template":
        text += '[[route.invalidate]]\nmode = "unlink"\nkeys = ["a:{unclosed"]\n'
    path = tmp_path / "bad.toml"
    path.write_text(text)
    for command in ("check", "run"):
        done = subprocess.run([BINARY, command, "-c", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 78, (done.returncode, done.stderr)
        # libmongoc may say so before main(), when another process of the same pid was killed once
        lines = [line for line in done.stderr.strip().splitlines() if "mongoc: Falling back to malloc" not in line]
        assert len(lines) == 1, lines
        if place:
            assert f"bad.toml:{place}" in lines[0]
        if named:
            assert named in lines[0]
        assert "secret" not in done.stderr


def test_good_configuration_is_printed_without_secrets(tmp_path):
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    done = subprocess.run([BINARY, "check", "-c", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "secret" not in done.stdout and "***" in done.stdout


def test_set_wins_over_the_file_and_is_checked(tmp_path):
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    done = subprocess.run([BINARY, "check", "-c", path, "--set", "worker.threads=7"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and re.search(r"^threads = 7$", done.stdout, re.M)
    done = subprocess.run([BINARY, "check", "-c", path, "--set", "worker.thread=7"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and 'did you mean "threads"' in done.stderr


@pytest.mark.parametrize("example", sorted((ROOT / "config").glob("**/*.toml")), ids=lambda p: p.name)
def test_examples_are_good(example):
    env = {"PATH": "/usr/bin:/bin", "KAFKA_BROKERS": "b:1", "MONGO_URI": "mongodb://m", "REDIS_URI": "redis://r", "MONGO_PASSWORD": "p"}
    done = subprocess.run([BINARY, "check", "-c", example], capture_output=True, text=True, timeout=60, env=env)
    if example.name == "idemsink.toml":  # every key at its default; what has none is missing
        assert done.returncode in (0, 78)
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words,status",
    [([], 64), (["nonsense"], 64), (["run"], 64), (["run", "-c"], 64), (["run", "-c", "x", "--what"], 64), (["--help"], 0),
     (["--version"], 0), (["verify", "--help"], 0), (["run", "-c", "/nonexistent/file.toml"], 78)],
    ids=str,
)
def test_usage(words, status):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert (done.stdout if status == 0 else done.stderr).strip()


def test_a_topic_that_two_routes_take(stack, make):
    """Back references can't be compared beforehand. A topic that both take, made while the process runs, stops it, and the next start."""
    first = stack.topic(1)
    setup = make(first)
    setup.sections["kafka"]["properties"]["topic.metadata.refresh.interval.ms"] = "200"
    other = stack.collection()
    setup.routes[0]["topics"] = [f"^({first})(x*)y?\\2$"]
    setup.routes.append(Setup.route([f"^({first})y(z*)\\2$"], other))
    stack.produce(first, [{"eventId": "e"}])
    worker = setup.start()
    worker.wait_ready()
    setup.wait_settled()
    both = stack.topic(1, name=f"{first}y")
    stack.produce(both, [{"eventId": "f"}])
    for process in (worker, setup.start()):
        assert process.wait(30) == 78
        text = process.log_tail()
        assert f"topic {both} is taken by route" in text and other.name in text and setup.collection.name in text
    done = setup.command("check", "--connect")
    assert done.returncode != 0 and f"topic {both} is taken by".encode() in done.stdout
    done = setup.command("explain", "--topic", both, stdin=b"{}")
    assert done.returncode == 78 and b"is taken by route" in done.stderr
    assert stack.committed(setup.group, both) == {}
    assert setup.collection.count_documents({}) == 1 and other.count_documents({}) == 0


@pytest.mark.parametrize("arguments,said", [
    (["check", "my.toml"], 'idemsink: "my.toml" is no option; the configuration is given with -c: idemsink check -c my.toml'),
    (["check", "--conect"], 'idemsink: unknown option "--conect"; try: idemsink check --help'),
    (["dlq", "show", "--dry-run"], 'idemsink: unknown option "--dry-run"; try: idemsink dlq show --help'),
    (["check", "-c", "x", "y"], 'idemsink: what is this, beside the options: "y"; try: idemsink check --help'),
    (["check", "-c"], 'idemsink: no value behind "-c"; try: idemsink check --help'),
    (["dlq"], "usage: idemsink dlq list|show|replay -c FILE [option]..."),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_usage_says_what_to_do(arguments, said):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 64 and done.stderr.splitlines()[0] == said


def test_help_of_dlq_show_speaks_of_one():
    offset = {}
    for command in ("show", "replay"):
        done = subprocess.run([BINARY, "dlq", command, "--help"], capture_output=True, text=True, timeout=60)
        offset[command] = [line for line in done.stdout.splitlines() if "--offset" in line]
    assert len(offset["show"]) == len(offset["replay"]) == 1
    assert "repeated" not in offset["show"][0] and "may be repeated" in offset["replay"][0]
