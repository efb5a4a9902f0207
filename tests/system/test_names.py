"""Names of fields: what the server does with each kind, what we do, and docs/names.md, whose table this makes.

And places: what is put into a document never replaces what is there."""
import itertools
import json

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from harness import ROOT, Record, Setup, as_stored, raw

MODES = ("upsert", "insert", "auto")

# Fields of a document beside its dedup key, by what the table calls them.
KINDS = {
    "`a.b`": {"a.b": 1},
    "`.a`": {".a": 1},
    "`a.`": {"a.": 1},
    "`a..b`": {"a..b": 1},
    "`.`": {".": 1},
    "`a.0`": {"a.0": 1},
    "`a.$`": {"a.$": 1},
    "`a.$[]`": {"a.$[]": 1},
    "`a` beside `a.b`": {"a": {"c": 1}, "a.b": 2},
    "`a.b` beside `a`": {"a.b": 2, "a": 1},
    "`a.b` beside `a.b.c`": {"a.b": 1, "a.b.c": 2},
    "empty": {"": 1},
    "`$price`": {"$price": 1},
    "`$set` `$inc` `$where`": {"$set": {"x": 1}, "$inc": 1, "$where": "x"},
    "`$ref` `$id` `$db`": {"$ref": "c", "$id": 1, "$db": "d"},
    "`$id` without `$ref`": {"$id": 1},
    "`$`": {"$": 1},
    "`$a.b`": {"$a.b": 1},
    "`a$b` `a$`": {"a$b": 1, "a$": 2},
    "`0` `-1`": {"0": 1, "-1": 2},
    "spaces, controls, any script": {" ": 1, "a\tb": 2, "\u00e9\U0001f600": 3, "\ufeff": 4},
    "1,000 characters": {"n" * 1000: 1},
    "the dedup field's and a dot": {"eventId.x": 1, "order.id.x": 2},
    "`order.id`, the path of a dedup field": {"order.id": "another"},
    "`_id.x`": {"_id.x": 1},
    "`_id`: a scalar": {"_id": "own ID"},
    "`_id`: null": {"_id": None},
    "`_id`: an object": {"_id": {"b": 2, "a": 1, "n": "ID"}},
    "`_id`: an object with `a.b` or empty": {"_id": {"a.b": 1, "": "ID"}},
    "`_id`: an object with `$x`": {"_id": {"$x": "ID"}},
    "`_id`: an object with `$x` deeper": {"_id": {"a": {"$x": "ID"}}},
    "`_id`: an array": {"_id": [1]},
}
NUL = "with NUL"  # no BSON has such a name

PLACES = {
    "at the top": lambda fields: fields,
    "inside": lambda fields: {"in": {"deep": fields}},
    "in an array": lambda fields: {"in": [[fields], fields]},
}
DEDUPS = {
    "a field": {"key": ["eventId"]},
    "`into = \"_id\"`": {"key": ["eventId"], "into": "_id"},
    "`order.id`": {"key": ["order.id"]},
}


def documents(collection):
    """As they are: the driver would make a DBRef of $ref and $id."""
    return collection.with_options(codec_options=CodecOptions(document_class=RawBSONDocument)).find()


def cases():
    """(kind, place) of every row and the fields; an _id is only something at the top."""
    for kind, fields in KINDS.items():
        for place in PLACES:
            if not (kind.startswith("`_id`") and place != "at the top"):
                yield (kind, place), PLACES[place](fields)


def document_of(number, fields):
    """A document of its own: another _id than that of the same kind in another row."""
    text = json.dumps({"eventId": number, "order": {"id": number}, **fields}).replace("ID", f"id {number}")
    return json.loads(text)


# --- the server ---


def ask_server(collection, command, document):
    """What it does with a document: "as sent", "otherwise", or its code."""
    collection.delete_many({})
    document = as_stored(document)
    if command == "insert":
        statement = {"insert": collection.name, "documents": [document]}
    else:
        statement = {"update": collection.name,
                     "updates": [{"q": {"eventId": document["eventId"]}, "u": {"$setOnInsert": document}, "upsert": True}]}
    answer = collection.database.command(statement, check=False)
    errors = answer.get("writeErrors", [])
    if errors or not answer["ok"]:
        return f"refused ({errors[0]['code'] if errors else answer['code']})"
    stored = dict(next(documents(collection)).items())
    if "_id" not in document:
        del stored["_id"]
    return "as sent" if raw(stored) == raw(document) else "otherwise"


# --- idemsink ---


class Ran:
    """Every case by every kind of dedup key in every mode; good neighbours before, between and behind."""

    def __init__(self, stack, directory):
        self.routes = [(dedup, mode) for dedup in DEDUPS for mode in MODES]
        self.rows = [*cases(), ((NUL, "at the top"), None), ((NUL, "inside"), None)]
        self.topics = {route: stack.topic(1) for route in self.routes}
        self.collections = {route: stack.collection() for route in self.routes}
        self.setup = Setup(stack, directory, list(self.topics.values()))
        self.setup.routes = [{**Setup.route([self.topics[r]], self.collections[r]), "dedup": DEDUPS[r[0]], "write": r[1]}
                             for r in self.routes]
        records = []
        for number, ((kind, place), fields) in enumerate(self.rows):
            records.append((document_of(-1 - number, {}), "one lane"))
            if kind == NUL:
                value = f'{{"eventId":{number},"order":{{"id":{number}}},' + (
                    r'"a\u0000b":1}' if place == "at the top" else r'"in":{"a\u0000b":1}}')
            else:
                value = json.dumps(document_of(number, fields))
            records.append((value, "one lane"))
        records.append((document_of(-1 - len(self.rows), {}), "one lane"))
        for topic in self.topics.values():
            stack.produce(topic, records)
        self.worker = self.setup.run_until_end()
        self.reasons = {}
        for message in stack.read_topic(self.setup.dead_letter_topic):
            headers = {name: value.decode() for name, value in message.headers()}
            self.reasons[headers["idemsink.topic"], int(headers["idemsink.offset"])] = headers["idemsink.reason"]
        self.stored = {route: {d["eventId"]: dict(d.items()) for d in documents(self.collections[route])} for route in self.routes}

    def fate(self, route, number):
        """What became of a row: "as sent", or the reason of its dead letter."""
        reason = self.reasons.get((self.topics[route], 2 * number + 1))
        found = self.stored[route].get(number)
        assert (reason is None) != (found is None), (self.rows[number][0], route)
        if reason:
            return f"`{reason}`"
        expected = as_stored(document_of(number, self.rows[number][1]))
        if DEDUPS[route[0]].get("into"):
            expected["_id"] = expected["eventId"]
        elif "_id" not in expected:
            found = {name: value for name, value in found.items() if name != "_id"}
        return "as sent" if raw(found) == raw(expected) else f"**otherwise: {found}**"

    def cell(self, dedup, number):
        fates = {self.fate((dedup, mode), number) for mode in MODES}
        assert len(fates) == 1, (self.rows[number][0], dedup, fates)
        return fates.pop()


@pytest.fixture(scope="module")
def ran(stack, tmp_path_factory):
    ran = Ran(stack, tmp_path_factory.mktemp("names"))
    yield ran
    ran.setup.close()


def table(ran, collection):
    """Rows that say the same of all places become one."""
    lines = ["| name | where | server: `$setOnInsert` | server: `insert` | idemsink: dedup key in "
             + " | in ".join(DEDUPS) + " |", "|---|---|---|---|" + "---|" * len(DEDUPS)]
    found = {}
    for number, ((kind, place), fields) in enumerate(ran.rows):
        server = ["no BSON"] * 2 if kind == NUL else [
            ask_server(collection, command, document_of(number, fields)) for command in ("update", "insert")]
        cells = tuple(server + [ran.cell(dedup, number) for dedup in DEDUPS])
        found.setdefault(kind, {}).setdefault(cells, []).append(place)
    for kind, rows in found.items():
        for cells, places in rows.items():
            where = "anywhere" if len(places) == len(PLACES) or kind == NUL else " or ".join(places)
            lines.append("| " + " | ".join([kind, where, *cells]) + " |")
    return lines


def test_the_table_in_docs(ran, stack):
    made = table(ran, stack.collection())
    lines = (ROOT / "docs" / "names.md").read_text().splitlines()
    start = lines.index(made[0]) if made[0] in lines else 0
    committed = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    assert committed == made, "docs/names.md should have this table:\n" + "\n".join(made)


def test_neighbours_are_stored_and_the_books_balance(ran):
    for route in ran.routes:
        assert sum(1 for number in ran.stored[route] if number < 0) == len(ran.rows) + 1
    books = ran.setup.verify()
    assert books["status"] == 0 and books["different"] == books["missing"] == 0


def test_delivered_again_all_are_duplicates(ran):
    """Whatever the names: the dedup key finds the document again."""
    ran.setup.sections["kafka"]["group"] += "-again"
    ran.setup.sections["worker"]["batch"] = 7
    books = ran.setup.run_until_end().books()
    assert (books["inserted"], books["duplicate"]) == (0, sum(len(stored) for stored in ran.stored.values()))


# --- places: route, payload, then the document (without eventId and _id) or the reason ---

UNSAFE = "unsafe_name"
COLLISIONS = [
    # a dedup field that the payload has already
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": {"key": "other"}}, UNSAFE),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": {"key": "KEY"}}, {"meta": {"key": "KEY"}}),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": {"x": 1}}, {"meta": {"x": 1, "key": "KEY"}}),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": 5}, UNSAFE),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": None}, UNSAFE),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": []}, UNSAFE),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta": {"key": ["KEY"]}}, UNSAFE),
    ({"dedup": {"key": ["@key"], "fields": ["meta.key"]}}, {"meta.key": "x"}, {"meta.key": "x", "meta": {"key": "KEY"}}),
    ({"dedup": {"key": ["eventId"], "fields": ["k"]}}, {"k": "another event's"}, UNSAFE),
    ({"dedup": {"key": ["eventId"], "fields": ["k"]}}, {"k": {"$gt": ""}}, UNSAFE),
    ({"dedup": {"key": ["n"], "fields": ["k"]}}, {"n": 1, "k": 1}, {"n": 1, "k": 1}),
    ({"dedup": {"key": ["n"], "fields": ["k"]}}, {"n": 1, "k": 1.0}, UNSAFE),
    ({"dedup": {"key": ["n"], "fields": ["k"]}, "types": {"n": "long"}}, {"n": "1", "k": 1}, UNSAFE),
    ({"dedup": {"key": ["eventId"], "into": "_id"}}, {"_id": "mine"}, UNSAFE),
    ({"dedup": {"key": ["eventId"], "into": "_id"}, "exclude": ["_id"]}, {"_id": "mine", "a": 1}, {"a": 1}),
    # set
    ({"set": {"a": 1}}, {"a": 2}, UNSAFE),
    ({"set": {"a": 1}}, {"a": None}, UNSAFE),
    ({"set": {"a": 1}, "exclude": ["a"]}, {"a": 2}, {"a": 1}),
    ({"set": {"a.b": 1}}, {"a": {"c": 2}}, {"a": {"c": 2, "b": 1}}),
    ({"set": {"a.b": 1}}, {"a": {"b": 1}}, UNSAFE),
    ({"set": {"a.b": 1}}, {"a": "text"}, UNSAFE),
    ({"set": {"a.b": 1}}, {"a.b": 2}, {"a.b": 2, "a": {"b": 1}}),
    ({"set": {"a": "@key"}}, {"a": "KEY"}, UNSAFE),
    # source_fields, under, conflict_field
    ({"source_fields": "src"}, {"src": {"topic": "mine"}}, UNSAFE),
    ({"source_fields": "a.src"}, {"a": 1}, UNSAFE),
    ({"under": "p", "set": {"a": 1}}, {"a": 2, "p": 3, "$x": 4, "": 5}, {"p": {"a": 2, "p": 3, "$x": 4, "": 5}, "a": 1}),
    ({"under": "p.q"}, {"p": 1, "p.q": 2}, {"p": {"q": {"p": 1, "p.q": 2}}}),
    ({"dedup": {"key": ["eventId"], "conflict": "count"}}, {"_payload_hash": 1}, UNSAFE),
    ({"dedup": {"key": ["eventId"], "conflict": "count", "conflict_field": "h"}}, {"_payload_hash": 1}, {"_payload_hash": 1}),
    # rename
    ({"rename": {"x": "y"}}, {"x": 1, "y": 2}, UNSAFE),
    ({"rename": {"x": "y", "y": "x"}}, {"x": 1, "y": 2}, {"y": 1, "x": 2}),
    ({"rename": {"x": "y.z"}}, {"x": 1, "y": 2}, UNSAFE),
    ({"rename": {"x": "y.z"}}, {"x": 1, "y": {"w": 2}}, {"y": {"w": 2, "z": 1}}),
    ({"rename": {"x": "y.z"}}, {"x": 1, "y": {"z": 2}}, UNSAFE),
    ({"rename": {"x": "y.z"}}, {"x": 1, "y": [{"z": 2}]}, UNSAFE),
    ({"rename": {"x": "_id"}}, {"x": "new ID", "_id": "old ID"}, UNSAFE),
    ({"rename": {"x": "_id"}}, {"x": ["new ID"]}, UNSAFE),
    ({"rename": {"x": "_id"}}, {"x": {"a": {"$b": 1}}}, UNSAFE),
    ({"rename": {"x": "_id"}}, {"x": "new ID"}, {"_id": "new ID"}),
    ({"rename": {"x": "y"}}, {"x": 1, "y.z": 2}, {"y.z": 2, "y": 1}),
]


def test_what_is_put_in_replaces_nothing(stack, make):
    """A route for each, in the three modes by turns; a good record before and behind every payload."""
    topics = [stack.topic(1) for _ in COLLISIONS]
    collections = [stack.collection() for _ in COLLISIONS]
    setup = make(topics)
    setup.routes = [{**Setup.route([topic], collection), "write": MODES[number % 3], **more}
                    for number, (topic, collection, (more, _, _)) in enumerate(zip(topics, collections, COLLISIONS))]
    for number, (topic, (_, payload, _)) in enumerate(zip(topics, COLLISIONS)):
        good = [{"eventId": f"good {i}", "n": 1000 + i} for i in range(2)]
        bad = json.loads(json.dumps({"eventId": "it", "n": 0, **payload}).replace("ID", str(number)))
        stack.produce(topic, [Record(good[0], "k0"), Record(bad, "KEY"), Record(bad, "KEY"), Record(good[1], "k1")])
    setup.run_until_end()
    dead = {}
    for message in stack.read_topic(setup.dead_letter_topic):
        headers = {name: value.decode() for name, value in message.headers()}
        dead.setdefault(headers["idemsink.topic"], []).append(headers["idemsink.reason"])
    for number, (topic, collection, (more, payload, expected)) in enumerate(zip(topics, collections, COLLISIONS)):
        found = list(collection.find())
        its = [d for d in found if "it" in (d.get("eventId"), d.get("p", {}).get("eventId") if isinstance(d.get("p"), dict) else 0)
               or (isinstance(d.get("p"), dict) and d["p"].get("q", {}).get("eventId") == "it")]
        assert len(found) - len(its) == 2, (more, payload)
        if expected == UNSAFE:
            assert dead.get(topic) == [UNSAFE] * 2 and its == [], (more, payload)
            continue
        assert topic not in dead and len(its) == 1, (more, payload, dead.get(topic))
        its[0].pop("h", None)
        if not more.get("rename", {}).get("x") == "_id":
            del its[0]["_id"]
        wanted = {"eventId": "it", "n": 0, **expected}
        if "under" in more:
            inner = wanted["p"] if more["under"] == "p" else wanted["p"]["q"]
            inner.update(eventId=wanted.pop("eventId"), n=wanted.pop("n"))
        if "k" in expected or more.get("dedup", {}).get("key") == ["n"]:
            wanted["n"] = payload["n"]
        wanted = json.loads(json.dumps(wanted).replace("ID", str(number)))
        assert json.loads(json.dumps(its[0])) == wanted, (more, payload)
    assert setup.verify()["status"] == 0
