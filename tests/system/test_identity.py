"""Random identities of every type that can be one, delivered in every form that means the same, in all three ways of writing: what is stored
is the first of each, as exact arithmetic counts them and as MongoDB's own unique index does."""
import os
import random
import uuid
from fractions import Fraction

import bson
import pymongo
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.datetime_ms import DatetimeMS
from confluent_kafka import Producer
from harness import Setup

MODES = ("upsert", "insert", "auto")
RECORDS = 1500
WHOLE = [0, 1, -1, 2, 7, 10, 100, 2**31 - 1, 2**31, -2**31, 2**53 - 1, 2**53, 2**53 + 1, 10**18, 2**63 - 1, -2**63]
FRACTIONS = ["0.5", "0.1", "1.5", "-2.25", "1E-20", "123456789012345678901234.5", "1E+30", "18446744073709551616", "9223372036854775808"]
TEXTS = ["a", "A", "a ", "1", "0", "true", "é", "e\u0301", "\0", "a\0", "a\0b", "$gt", "", "x" * 3000]


def forms_of(number):
    """Every BSON number that is this one, of those that may be an identity: a double is a whole one below 2^53."""
    forms = [Decimal128(number)]
    exact = Fraction(number)
    digits = number.lstrip("-").rstrip("0").replace(".", "")
    if "E" not in number and len(digits) < 30:
        forms += [Decimal128(number + ("0" if "." in number else ".0")), Decimal128(f"{number}E0") if "." not in number else Decimal128(number)]
    if exact.denominator == 1 and -2**63 <= exact < 2**63:
        forms.append(Int64(int(exact)))
    if exact.denominator == 1 and -2**31 <= exact < 2**31:
        forms.append(int(exact))
    if exact.denominator == 1 and abs(exact) < 2**53:
        forms.append(float(exact))
    return forms


def random_identity(dice):
    kind = dice.randrange(9)
    if kind < 4:
        return dice.choice(forms_of(str(dice.choice(WHOLE))))
    if kind == 4:
        return dice.choice(forms_of(dice.choice(FRACTIONS)))
    if kind == 5:
        return dice.choice(TEXTS)
    if kind == 6:
        return dice.choice([True, False, DatetimeMS(dice.randrange(-2, 3)), DatetimeMS(2**31)])
    if kind == 7:
        return dice.choice([ObjectId(bytes([dice.randrange(3)] * 12)), Binary.from_uuid(uuid.UUID(int=dice.randrange(3)))])
    return dice.choice([float("nan"), float("inf"), 0.5, 2.0**53, Decimal128("NaN"), Decimal128("-Infinity"), None, [], [1], {"$gt": ""}, {},
                        bson.Regex("."), bson.MinKey(), bson.Timestamp(1, 1), Binary(b"x", 0), bson.Code("x"), -0.0, Decimal128("-0"),
                        Decimal128("0E-10")])


def meaning(value):
    """What the event is known by; None: by nothing."""
    if type(value) in (bool, ObjectId, str):  # Code is a str, too
        return None if value == "" else (type(value).__name__, value)
    if isinstance(value, DatetimeMS):
        return "date", int(value)
    if isinstance(value, Binary):
        return ("binary", bytes(value)) if value.subtype == 4 else None
    if isinstance(value, float):
        return ("number", Fraction(value)) if value.is_integer() and abs(value) < 2**53 else None
    if isinstance(value, Decimal128):
        return ("number", Fraction(value.to_decimal())) if value.to_decimal().is_finite() else None
    return ("number", Fraction(value)) if type(value) in (int, Int64) else None


class Ran:
    def __init__(self, stack, directory, seed):
        dice = random.Random(seed)
        self.ids = [random_identity(dice) for _ in range(RECORDS)]
        self.topics = {mode: stack.topic(1) for mode in MODES}
        self.collections = {mode: stack.collection() for mode in MODES}
        self.setup = Setup(stack, directory, list(self.topics.values()))
        self.setup.sections["worker"]["batch"] = 100
        self.setup.routes = [Setup.route([self.topics[m]], self.collections[m], ("id",), format="bson", write=m) for m in MODES]
        producer = Producer({"bootstrap.servers": stack.brokers, "enable.idempotence": True})
        for number, value in enumerate(self.ids):
            for topic in self.topics.values():
                producer.produce(topic, bson.encode({"id": value, "n": Int64(number)}), b"one lane", partition=0)
        assert producer.flush(60) == 0
        self.worker = self.setup.run_until_end()


@pytest.fixture(scope="module")
def ran(stack, tmp_path_factory, request):
    seed = int(os.environ.get("IDEMSINK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    print(f"IDEMSINK_SEED={seed}")
    ran = Ran(stack, tmp_path_factory.mktemp("identity"), seed)
    yield ran
    ran.setup.close()


@pytest.mark.parametrize("mode", MODES)
def test_the_first_of_each_is_stored(ran, mode):
    first = {}
    for number, value in enumerate(ran.ids):
        if meaning(value) is not None:
            first.setdefault(meaning(value), number)
    stored = {document["n"] for document in ran.collections[mode].find({}, {"n": 1, "_id": 0})}
    wrong = stored ^ set(first.values())
    assert not wrong, [(n, ran.ids[n]) for n in sorted(wrong)]
    books = [line for line in ran.worker.saw("books of a partition") if line["topic"] == ran.topics[mode]][0]
    bad = sum(meaning(value) is None for value in ran.ids)
    assert (books["inserted"], books["dead_letter"], books["duplicate"]) == (len(first), bad, RECORDS - len(first) - bad)


def test_mongodb_counts_the_same(ran, stack):
    """Its unique index takes exactly one document for each of them."""
    plain = stack.collection()
    plain.create_index("id", unique=True)
    taken = set()
    for number, value in enumerate(ran.ids):
        if meaning(value) is None:
            continue
        try:
            plain.insert_one({"id": value})
            taken.add(number)
        except pymongo.errors.DuplicateKeyError:
            pass
    assert taken == {document["n"] for document in ran.collections["upsert"].find({}, {"n": 1, "_id": 0})}


def test_the_books_balance(ran):
    assert ran.setup.verify("--dead-letters")["status"] == 0
