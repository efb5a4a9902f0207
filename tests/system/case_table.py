"""The table of cases: reads tests/data/case-table/*.toml (its README.md says how a row is written) and knows, for every record that
a row sends, what has to become of it."""
import dataclasses
import itertools
import json
import tomllib

import bson
from bson import json_util
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from harness import DATA

FOLDER = DATA / "case-table"
TIMESTAMP_MS = 1_700_000_000_123  # of every record
WRITES = ("upsert", "insert", "auto")
SETTLED = ("inserted", "duplicate", "skipped")  # every other outcome is a reason

ROW_KEYS = {"case", "value", "value_hex", "value_bson", "make", "tombstone", "key", "key_hex", "no_key", "headers", "headers_hex",
            "before", "outcome", "error", "stored"}
GROUP_KEYS = {"name", "rules", "route", "good", "good_key", "good_headers", "good_stored", "write", "indexes", "validator", "before",
              "moved", "row", "rows"}


class Int32(int):
    """Of BSON; a plain number in the table is an int64, as docs/payloads.md says."""


def typed(value):
    """What JSON gave, with every integer an int64."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return Int64(value) if type(value) is int else value


def of_pairs(pairs):
    if len(pairs) == 1 and pairs[0][0] == "$numberInt":
        return Int32(pairs[0][1])
    if len(pairs) == 1 and pairs[0][0] == "$hex":
        return bson.Binary(bytes.fromhex(pairs[0][1]), 0)
    if len(pairs) == 1 and pairs[0][0] == "$date":
        return DatetimeMS(int(pairs[0][1]))  # any year
    return json_util.object_pairs_hook(pairs, json_util.CANONICAL_JSON_OPTIONS)


def extended(text):
    """A document of the table: canonical Extended JSON, but for integers, which are int64."""
    return typed(json.loads(text, object_pairs_hook=of_pairs))


def nested(levels):
    """An object whose deepest object lies on this level; it is on level 1 itself."""
    return '{"id":"nested %d","a":' % levels + '{"a":' * (levels - 2) + "{}" + "}" * (levels - 2) + "}"


def made(what):
    """Values that are too long to write down."""
    kind, number = what.split()
    if kind == "nested":
        return nested(int(number)).encode()
    if kind == "arrays":
        return b'{"id":"arrays %d","a":' % int(number) + b"[" * (int(number) - 1) + b"]" * (int(number) - 1) + b"}"
    if kind == "long_id":
        return b'{"id":"' + b"x" * int(number) + b'"}'
    if kind == "big":
        return b'{"id":"big %d","big":"' % int(number) + b"x" * int(number) + b'"}'
    raise AssertionError(f"make = {what}")


SIZES = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}


def size_of(kind, raw, at):
    if kind in SIZES:
        return SIZES[kind]
    length = int.from_bytes(raw[at:at + 4], "little")
    if kind in (0x02, 0x0D, 0x0E):
        return 4 + length
    if kind == 0x05:
        return 5 + length
    if kind == 0x0C:
        return 4 + length + 12
    if kind == 0x0B:
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1 - at
    assert kind in (0x03, 0x04, 0x0F), kind
    return length


def elements(raw):
    """The fields of a document as {name: bytes}: types and values count to the letter, and the order inside; that at the top does not."""
    found, at = {}, 4
    while raw[at] != 0:
        end = raw.index(b"\0", at + 1) + 1
        stop = end + size_of(raw[at], raw, end)
        name = raw[at + 1:end - 1]
        assert name not in found, f"the field {name} is there twice"
        found[name] = raw[at:stop]
        at = stop
    return found


def frozen(fields):
    return tuple(sorted(fields.values()))


@dataclasses.dataclass
class Sent:
    """One record on its way, and what has to become of it."""
    value: bytes | None
    key: bytes | None
    headers: list
    outcome: str
    stored: str | None = None  # None: as sent
    error: str = ""
    offset: int = -1

    def document(self, topic, format_name):
        """The fields that have to be stored, but for the hash of dedup.conflict."""
        if self.stored is None:
            raw = self.value if format_name == "bson" else bson.encode(typed(json.loads(self.value)))
            return elements(raw)
        text = self.stored.replace("@TOPIC@", topic).replace("@OFFSET@", str(self.offset)).replace("@TIME@", str(TIMESTAMP_MS))
        return elements(bson.encode(extended(text)))


@dataclasses.dataclass
class Row:
    group: "Group"
    case: str
    records: list  # of Sent: good, what lies before, the one, good

    @property
    def one(self):
        return self.records[-2]

    @property
    def id(self):
        return f"{self.group.name}: {self.case}" + (f" [{self.group.write}]" if self.group.write else "")


def pairs_of(headers, headers_hex=()):
    return [(pair[0], pair[1].encode() if len(pair) > 1 else None) for pair in headers] + \
        [(name, bytes.fromhex(value)) for name, value in headers_hex]


class Group:
    """Rows that share a route: a topic and a collection of their own."""

    def __init__(self, table, write):
        assert not set(table) - GROUP_KEYS, f"{table['name']}: {set(table) - GROUP_KEYS}"
        self.table = table
        self.name = table["name"]
        self.write = write
        self._numbers = itertools.count()
        self._offsets = itertools.count()
        self.rows = [self._row(row) for row in table.get("row", []) + table.get("rows", [])]

    @property
    def hashed(self):
        """Whether documents have a hash of their payload."""
        return self.table["route"]["dedup"].get("conflict", "off") != "off"

    @property
    def format(self):
        return self.table["route"].get("format", "json")

    def sent(self, row, outcome="inserted"):
        if isinstance(row, str):
            row = {"value": row}
        assert not set(row) - ROW_KEYS, f"{self.name}: {row.get('case')}: {set(row) - ROW_KEYS}"
        key = bytes.fromhex(row["key_hex"]) if "key_hex" in row else None if row.get("no_key") else row.get("key", "lane").encode()
        if row.get("tombstone"):
            value = None
        elif "make" in row:
            value = made(row["make"])
        elif "value_bson" in row:
            value = bson.encode(extended(row["value_bson"]))
        else:
            value = bytes.fromhex(row["value_hex"]) if "value_hex" in row else row["value"].encode()
        return Sent(value, key, pairs_of(row.get("headers", ()), row.get("headers_hex", ())), row.get("outcome", outcome), row.get("stored"),
                    row.get("error", ""))

    def good(self, like):
        """A neighbour, in the same lane where the Kafka key makes the lane."""
        number = str(next(self._numbers))

        def filled(name, default=None):
            text = self.table.get(name, default)
            return text.replace("%d", number) if text is not None else None

        value = filled("good", '{"id":"good %d"}')
        value = bson.encode(extended(value)) if self.format == "bson" else value.encode()
        key = filled("good_key")
        headers = [[pair[0], pair[1].replace("%d", number)] for pair in self.table.get("good_headers", [])]
        return Sent(value, like.key if key is None else key.encode(), pairs_of(headers), "inserted", filled("good_stored"))

    def _row(self, row):
        one = self.sent(row)
        before = [self.sent(item) for item in row.get("before", [])]
        records = [self.good(one), *before, one, self.good(one)]
        for record in records:
            record.offset = next(self._offsets)
        return Row(self, row["case"], records)

    def prepare(self, collection):
        """What the operator has done to the collection before."""
        if "validator" in self.table:
            collection.database.create_collection(collection.name, validator=json.loads(self.table["validator"]))
        for index in self.table.get("indexes", []):
            collection.create_index([(field, kind) for field, kind in index["keys"]], unique=index.get("unique", False))
        for document in self.table.get("before", []):
            collection.insert_one(extended(document))

    def moved(self):
        """The counters of its records, if the group says what they are."""
        good = str(2 * len(self.rows))
        return [extended(text.replace("@GOOD@", good)) for text in self.table.get("moved", [])]

    def records(self):
        return [record for row in self.rows for record in row.records]


def load():
    """Every group, once for each way of writing unless its route says which."""
    groups = []
    for path in sorted(FOLDER.glob("*.toml")):
        for table in tomllib.loads(path.read_text())["group"]:
            fixed = "write" in table["route"]
            groups += [Group(table, write) for write in ([""] if fixed else WRITES)]
    return groups
