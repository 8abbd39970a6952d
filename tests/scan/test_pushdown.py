"""Conditions from Spark's filters: they never exclude rows that Spark keeps, and allow Queries by partition key."""

from __future__ import annotations

import base64
import datetime as dt
import json
import operator
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.items.decode import RowDecoder
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import normalize_schema, tagged_field
from ddbio.items.schema.times import parse_format, with_format
from ddbio.scan.conditions import Expressions, key_query, parse_condition
from ddbio.scan.pushdown import PushedKeys, pushed_condition
from ddbio.testing.expressions.conditions import predicate_of
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.request import Request, stored_item

UTC = pa.timestamp("us", "UTC")
COLUMNS = normalize_schema(
    pa.schema(
        [
            tagged_field("pk", pa.string(), "S"),
            tagged_field("sk", pa.int64(), "N"),
            tagged_field("s", pa.string(), "S"),
            tagged_field("n", pa.int64(), "N"),
            tagged_field("small", pa.int8(), "N"),
            tagged_field("d", pa.decimal128(38, 2), "N"),
            tagged_field("f", pa.float64(), "N"),
            tagged_field("f32", pa.float32(), "N"),
            tagged_field("t", pa.string(), "N"),
            tagged_field("b", pa.binary(), "B"),
            tagged_field("flag", pa.bool_(), "BOOL"),
            with_format(tagged_field("at", UTC, "S"), parse_format("iso_ms")),
            with_format(tagged_field("local", pa.timestamp("us"), "S"), parse_format("iso_s_local")),
            with_format(tagged_field("epoch", UTC, "N"), parse_format("epoch_s")),
            with_format(tagged_field("day", pa.date32(), "S"), parse_format("date")),
            tagged_field("any", pa.string(), "JSON"),
            tagged_field("tags", pa.list_(pa.string()), "SS"),
            tagged_field(
                "st", pa.struct([tagged_field("x", pa.int64(), "N"), tagged_field("y", pa.string(), "S")]), "M"
            ),
            tagged_field("Q", pa.string(), "S", attribute='quo\'ted "name"'),
        ]
    )
)
KEYS = PushedKeys((("pk", "S"), ("sk", "N")))

TEXTS = ["", "a", "b", "ab", "ba", "it's", "é", "z\u0301", "名", "\uffff", "\U0001f600", "\ud7ff", "1", "1.5", "1.50"]
# Neighbours of doubles, and numbers that only text columns can represent.
NUMBERS = [
    *("0", "1", "-1", "2", "1.5", "0.1", "0.3", "127", "128", "1.25", "1.255", str(2**53 + 1), str(2**63), "1e38"),
    *("0.1000000000000000055511151231257827021", "0.09999999999999999", "1e-130", "9.9e125", "-9.9e125", "1e40"),
    *("12345678901234567890123456789012345678", "0.12345678901234567890123456789012345678", "1700000000", "-5"),
]
TIMES = ["2024-05-01T12:00:00.000Z", "2024-05-01T12:00:00.001Z", "2024-05-01T12:00:00Z", "2024-05-01T12:00:00"]
TIMES += ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2024-05-01", "1969-12-31", "2024-04-31"]
BINARIES = [b"", b"\x00", b"\x00\xff", b"\x7f", b"\x80", b"a"]

FREE = [name for name in COLUMNS.names if name not in {"pk", "sk", "_rescue"}]
S_VALUES = [{"S": text} for text in TEXTS]
N_VALUES = [{"N": canonical_number(text)} for text in NUMBERS]
ODD = [{"S": "odd"}, {"N": "7.5"}, {"B": "/w=="}, {"BOOL": True}, {"NULL": True}, {"SS": ["a"]}, {"L": []}, {"M": {}}]
NATURAL = {
    "s": S_VALUES,
    "Q": S_VALUES,
    "b": [{"B": base64.b64encode(data).decode()} for data in BINARIES],
    "flag": [{"BOOL": True}, {"BOOL": False}],
    "at": [{"S": text} for text in TIMES],
    "local": [{"S": text} for text in TIMES],
    "day": [{"S": text} for text in TIMES],
    "epoch": [{"N": text} for text in ("0", "1", "2", "-1", "1700000000", "1714564800", "1.5")],
    "any": [*S_VALUES, *ODD],
    "tags": [{"SS": ["a"]}, {"SS": ["a", "b"]}],
    "st": [
        {"M": members}
        for x in ({"N": "0"}, {"N": "1"}, {"N": "2"}, {"S": "1"}, {"NULL": True}, None)
        for y in ({"S": "a"}, {"S": "ab"}, {"S": ""}, {"N": "1"}, None)
        for members in ({name: value for name, value in (("x", x), ("y", y)) if value},)
    ]
    + [{"M": {"x": {"N": "1"}, "y": {"S": "a"}, "other": {"S": "a"}}}],
}


def random_item(chosen):
    """Return an item in which most attributes have the type of their column, and others another type or no value."""
    item = {"pk": {"S": chosen.choice(TEXTS[1:])}, "sk": chosen.choice(N_VALUES)}
    for name in FREE:
        values = NATURAL.get(name, N_VALUES)
        value = chosen.choice([*[chosen.choice(values)] * 8, chosen.choice(ODD), None])
        if value is not None:
            item['quo\'ted "name"' if name == "Q" else name] = value
    return item


def column(*names):
    """Return a column in the shim's encoding."""
    return {"column": list(names)}


def constant(kind, value):
    """Return a constant in the shim's encoding."""
    return {"type": kind, "value": value}


def call(name, *arguments):
    """Return a call in the shim's encoding."""
    return {"call": name, "arguments": list(arguments)}


def micros(text):
    """Return the microseconds of a time in UTC."""
    at = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (at - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)


MICROS = [micros(text) + more for text in TIMES[:-1] for more in (0, 1, -1, 500)] + [
    1_700_000_000_000_000,
    1_500_000,
    -1,
]
CONSTANTS = {
    "string": TEXTS,
    "bigint": ["0", "1", "-1", "2", "127", "128", str(2**53 + 1), str(2**63 - 1)],
    "tinyint": ["0", "1", "-1", "127"],
    "decimal(38,2)": ["0.00", "1.50", "-1.00", "1.25", "1.26", "123456789012345678901234567890123456.78"],
    "double": ["0.0", "-0.0", "1.5", "0.1", "0.3", "1.0E40", "NaN", "Infinity", "5.0E-324", "9.007199254740992E15"],
    "float": ["0.1", "1.5"],
    "binary": [data.hex() for data in BINARIES],
    "boolean": ["true", "false"],
    "timestamp": [str(value) for value in MICROS],
    "timestamp_ntz": [str(value) for value in MICROS],
    "date": ["0", "-1", "19844", "-719162", "2932896", "19843"],
}
KINDS = {
    "pk": "string",
    "sk": "bigint",
    "s": "string",
    "n": "bigint",
    "small": "tinyint",
    "d": "decimal(38,2)",
    "f": "double",
    "f32": "float",
    "t": "string",
    "b": "binary",
    "flag": "boolean",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "epoch": "timestamp",
    "day": "date",
    "any": "string",
    "Q": "string",
}
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


def random_leaf(chosen):
    """Return a test of one column."""
    nested = [(("st", "x"), "bigint"), (("st", "y"), "string"), (("tags",), None)]
    names, kind = chosen.choice([*(((name,), kind) for name, kind in KINDS.items()), *nested])
    tested = column(*names)
    if kind is None or chosen.random() < 0.15:
        return call(chosen.choice(["IS_NULL", "IS_NOT_NULL"]), tested)

    def value():
        return constant(kind, None if chosen.random() < 0.1 else chosen.choice(CONSTANTS[kind]))

    if kind == "string" and chosen.random() < 0.3:
        return call(chosen.choice(["STARTS_WITH", "CONTAINS", "ENDS_WITH"]), tested, value())
    if chosen.random() < 0.3:
        return call("IN", tested, *(value() for _ in range(chosen.randint(1, 4))))
    sides = [tested, value()]
    return call(chosen.choice(OPERATORS), *(sides if chosen.random() < 0.8 else sides[::-1]))


def random_filter(chosen, depth=2):
    """Return a tree of tests, some of which are unknown to the shim."""
    match chosen.randrange(9) if depth else 0:
        case 5:
            return call("NOT", random_filter(chosen, depth - 1))
        case 6 | 7:
            both = [random_filter(chosen, depth - 1) for _ in range(2)]
            return call(chosen.choice(["AND", "OR"]), *both)
        case 8:
            return chosen.choice([{}, call("ALWAYS_TRUE"), call("=", {}, column("n"))])
    return random_leaf(chosen)


def rows_of(items):
    """Return the rows that Spark sees for items, with times as numbers."""
    batch = RowDecoder(COLUMNS).decode(pa.array([json.dumps(item) for item in items]))
    rows = batch.to_pylist()
    for name, kind in KINDS.items():
        if kind.startswith("timestamp") or kind == "date":
            numbers = batch.column(name).cast(pa.int32() if kind == "date" else pa.int64()).to_pylist()
            for row, number in zip(rows, numbers, strict=True):
                row[name] = number
    return rows


def value_of(kind, text):
    """Return a constant as a Python value."""
    if text is None:
        return None
    if kind == "string":
        return text.encode()
    if kind == "binary":
        return bytes.fromhex(text)
    if kind == "boolean":
        return text == "true"
    return float(text) if kind in {"double", "float"} else Decimal(text) if kind.startswith("decimal") else int(text)


def evaluated(filter_, row):  # noqa: C901, PLR0911, PLR0912 - one line for each of Spark's predicates
    """Return the value of a filter for a row; None is SQL's null, or unknown."""
    if "column" in filter_:
        value = row
        for name in filter_["column"]:
            value = None if value is None else value[name]
        return value.encode() if isinstance(value, str) else value
    if "value" in filter_:
        return value_of(filter_["type"], filter_["value"])
    if "call" not in filter_:
        return True
    name, values = filter_["call"], [evaluated(argument, row) for argument in filter_["arguments"]]
    match name:
        case "ALWAYS_TRUE":
            return True
        case "AND":
            return False if False in values else None if None in values else True
        case "OR":
            return True if True in values else None if None in values else False
        case "NOT":
            return None if values[0] is None else not values[0]
        case "IS_NULL" | "IS_NOT_NULL":
            return (values[0] is None) is (name == "IS_NULL")
        case "IN":
            if values[0] is None:
                return None
            return True if any(same(values[0], value) for value in values[1:]) else None if None in values else False
        case "<=>":
            return values[0] is values[1] if None in values else same(*values)
    if None in values:
        return None
    if {} in filter_["arguments"]:
        return True
    one, two = values
    match name:
        case "STARTS_WITH":
            return one.startswith(two)
        case "ENDS_WITH":
            return one.endswith(two)
        case "CONTAINS":
            return two in one
        case "=":
            return same(one, two)
        case "<>":
            return not same(one, two)
    if one != one or two != two:  # noqa: PLR0124 - NaN is the greatest of Spark's numbers, and equals itself
        one, two = one != one, two != two  # noqa: PLR0124
    return {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[name](one, two)


def same(one, two):
    """Return whether values are equal in Spark."""
    return one == two or (one != one and two != two)  # noqa: PLR0124 - NaN


def predicate(text):
    """Return a function that applies a condition to an item in the fake."""
    expressions = Expressions()
    expression = parse_condition(text).write(expressions)
    request = Request({"TableName": "table", **expressions.members()})
    return predicate_of(expression, Placeholders(request, has_expression=True))


CHANCE = random.Random(22)
ITEMS = [stored_item(random_item(CHANCE))[0] for _ in range(400)]
OWN = [None, None, None, "n > 1 OR s = 'a'", "pk = 'a'", "sk > 5"]


@pytest.fixture(scope="module")
def rows():
    """Return the rows that Spark sees."""
    return rows_of(ITEMS)


def test_every_row_that_spark_keeps_is_read(rows, seeds):
    """Every item for which all filters are true is read, and none that the caller's own condition excludes."""
    kept, left_out = 0, 0
    for seed in seeds(1_000, 10_000):
        chosen = random.Random(seed)
        filters = [random_filter(chosen) for _ in range(chosen.choice([1, 1, 2]))]
        own = chosen.choice(OWN)
        text = pushed_condition(filters, COLUMNS, KEYS, own, 100)
        if text is None:
            continue
        meets, is_own = predicate(text), predicate(own or "attribute_exists(pk)")
        for item, row in zip(ITEMS, rows, strict=True):
            if not is_own(item):
                assert not meets(item)
            elif all(evaluated(filter_, row) is True for filter_ in filters):
                kept += 1
                assert meets(item), (seed, filters, text, row)
            else:
                left_out += not meets(item)
        if own is not None and key_query(parse_condition(own), ("pk", "sk")) is not None:
            assert key_query(parse_condition(text), ("pk", "sk")) is not None, seed
    assert min(kept, left_out) > 3_000


S, N = "string", "bigint"
PK = column("pk")


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ([call("IS_NOT_NULL", PK), call("=", PK, constant(S, "a"))], "\"pk\" = 'a'"),
        ([call("OR", call("=", PK, constant(S, "a")), call("IN", PK, constant(S, "b"), constant(S, "a")))],
         "\"pk\" IN ('a', 'b')"),
        ([call("=", PK, constant(S, "a")), call(">", column("sk"), constant(N, "1")),
          call("<=", column("sk"), constant(N, "5")), call("<", column("sk"), constant(N, "9")),
          call("=", column("flag"), constant("boolean", "true"))],
         '"pk" = \'a\' AND "sk" >= 1 AND "sk" <= 5 AND "flag" = TRUE'),
        # The service refuses bounds in descending order.
        ([call("=", PK, constant(S, "a")), call(">", column("sk"), constant(N, "5")),
          call("<", column("sk"), constant(N, "1"))], '"pk" = \'a\' AND "sk" > 5'),
        # Each alternative binds the key.
        ([call("OR", call("AND", call("=", PK, constant(S, "a")), call("=", column("sk"), constant(N, "1"))),
               call("AND", call("=", PK, constant(S, "b")), call("=", column("n"), constant(N, "2"))))],
         "\"pk\" IN ('a', 'b')"),
        # No item can have such a key, and the service refuses a request for it.
        ([call("=", PK, constant(S, ""))], None),
        ([call("=", PK, constant(S, "x" * 2049))], None),
        ([call(">", PK, constant(S, "a")), call("=", column("n"), constant(N, "1"))], '"pk" > \'a\' AND "n" = 1'),
        ([call("=", column("t"), constant(S, "1.50"))], '"t" = 1.5'),
        ([call("NOT", call("=", column("t"), constant(S, "1.50")))], None),
        ([call(">=", column("at"), constant("timestamp", str(micros("2024-05-01T12:00:00.0005Z"))))],
         "\"at\" >= '2024-05-01T12:00:00.001Z'"),
        ([call("IS_NULL", column("s"))], "NOT (attribute_type(\"s\", 'S'))"),
        ([call("IS_NULL", column("n"))], None),
        ([call("IS_NULL", column("st", "y"))], None),
        ([call("<", column("flag"), constant("boolean", "true"))], None),
        ([call("=", column("_rescue"), constant(S, "a"))], None),
        ([call("STARTS_WITH", column("s"), constant(S, ""))], None),
        ([call("=", column("Q"), constant(S, "it's"))], '"quo\'ted ""name""" = \'it\'\'s\''),
    ],
)  # fmt: skip
def test_what_is_pushed(filters, condition):
    """Filters become conditions if they are exact or match more items, and Queries if possible."""
    assert pushed_condition(filters, COLUMNS, KEYS, None, 100) == condition


def test_many_keys_are_no_queries():
    """Filters with too many partition keys are left to Spark; with a higher maximum they become Queries."""
    many = call("IN", PK, *(constant(S, f"k{number}") for number in range(1_001)))
    few = call("=", column("n"), constant(N, "1"))
    assert pushed_condition([many, few], COLUMNS, KEYS, None, 1_000) == '"n" = 1'
    query = key_query(parse_condition(pushed_condition([many, few], COLUMNS, KEYS, None, 1_001)), ("pk", "sk"))
    assert len(query.queries()) == 1_001
    assert query.remainder is not None


COMPOSITE = PushedKeys((("pk", "S"), ("n", "N"), ("s", "S"), ("sk", "N")), 2)


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ([call("=", PK, constant(S, "a"))], "\"pk\" = 'a'"),
        ([call("=", PK, constant(S, "a")), call("=", column("n"), constant(N, "1"))], '"pk" = \'a\' AND "n" = 1'),
        (
            [
                call(">", column("sk"), constant(N, "3")),
                call("=", column("s"), constant(S, "x")),
                call("=", PK, constant(S, "a")),
                call("IN", column("n"), constant(N, "1"), constant(N, "2")),
            ],
            '"pk" = \'a\' AND "n" IN (1, 2) AND "s" = \'x\' AND "sk" > 3',
        ),
        (
            [
                call(">", column("s"), constant(S, "x")),
                call("=", column("sk"), constant(N, "3")),
                call("=", PK, constant(S, "a")),
                call("=", column("n"), constant(N, "1")),
            ],
            '"pk" = \'a\' AND "n" = 1 AND "s" > \'x\'',
        ),
    ],
)
def test_filters_of_composite_keys(filters, condition):
    """Filters become a Query only if they bind all partition attributes; a range ends the sort attributes."""
    assert pushed_condition(filters, COLUMNS, COMPOSITE, None, 100) == condition


def test_long_filters_are_left_to_spark():
    """Filters that exceed the limits of an expression are left to Spark."""
    many = call("IN", column("s"), *(constant(S, f"s{number}") for number in range(1_000)))
    few = call("=", column("n"), constant(N, "1"))
    assert pushed_condition([many, few], COLUMNS, KEYS, None, 100) == '"n" = 1'
    assert (
        pushed_condition([call("=", column("s"), constant(S, "x" * 10_000)), few], COLUMNS, KEYS, None, 9) == '"n" = 1'
    )
