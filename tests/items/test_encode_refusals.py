from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ddbio.errors import EncodeError, OptionError, SchemaError
from ddbio.items.encode import EncodeOptions, Encoder, Refusal
from ddbio.items.kernel.encode import load as encode_load
from ddbio.items.reference import items_of


def refusals_of(array, keys=None, tag=None, name="a"):
    """Return the refusals of the rows of one column, and check that the others are printed."""
    metadata = {"ddb:type": tag} if tag else None
    schema = pa.schema([pa.field(name, array.type, metadata=metadata)])
    encoded = Encoder(schema, keys=keys).encode(pa.RecordBatch.from_arrays([array], schema=schema))
    spans = list(zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True))
    bad = {refusal.row for refusal in encoded.refusals}
    for row, (start, stop) in enumerate(spans):
        assert (start == stop) == (row in bad)
        assert (encoded.sizes[row] == 0) == (row in bad) or array[row].as_py() is None
        if row not in bad:
            json.loads(encoded.buffer[start:stop].tobytes())
    return list(encoded.refusals)


def nested(depth):
    """Return ``depth`` nested lists around a text."""
    value, arrow_type = "x", pa.string()
    for _ in range(depth):
        value, arrow_type = [value], pa.list_(arrow_type)
    return pa.array([value], arrow_type)


def broken(text, arrow_type=None):
    """Return a text, and bytes as another text, valid UTF-8 or not."""
    return pa.array([b"x\xc3\xa9", text], pa.binary()).view(arrow_type or pa.string())


def moments(arrow_type, *counts):
    """Return times with these counts of units, valid or not."""
    return pa.array(counts, pa.int32() if arrow_type.bit_width == 32 else pa.int64()).view(arrow_type)


BEYOND = "it is not within the years 0000 to 9999"
NO_DAY = "it is no whole day within the years 0000 to 9999"
NO_TIME = "it is no time of a day"
NO_TEXT = "the text is not UTF-8"
EMPTY_KEY = "the key is empty: DynamoDB takes no empty key"
TWICE = "an element is twice in the set"
NAME_LENGTH = "an attribute's name has 1 to 65,535 bytes"
NAMED = pa.map_(pa.string(), pa.int64())
BROKEN_NAMES = pa.MapArray.from_arrays([0, 1, 2], broken(b"\xed\xa0\x80"), pa.array([1, 2]))
LARGE_SETS = pa.array([[f"{number}" for number in range(999)], [f"{number % 998}" for number in range(999)]])

# The second of two rows is refused: its attribute, the rule and the message.
SECOND_ROWS = {
    "broken text": (broken(b"\xff"), {}, "a", "text", NO_TEXT),
    "half a character": (broken(b"x\xc3"), {}, "a", "text", NO_TEXT),
    "broken name": (BROKEN_NAMES, {}, "a.*", "text", NO_TEXT),
    "the year 10000": (
        moments(pa.timestamp("ms", "UTC"), 253_402_300_799_999, 253_402_300_800_000), {}, "a", "time", BEYOND
    ),
    "the year -1": (moments(pa.timestamp("s"), -62_167_219_200, -62_167_219_201), {}, "a", "time", BEYOND),
    "the last second of all": (moments(pa.timestamp("us"), 0, 2**63 - 1), {}, "a", "time", BEYOND),
    "the first day of all": (moments(pa.date32(), -719_528, -(2**31)), {}, "a", "time", NO_DAY),
    "no whole day": (moments(pa.date64(), 86_400_000, 86_400_001), {}, "a", "time", NO_DAY),
    "the 25th hour": (moments(pa.time32("s"), 86_399, 86_400), {}, "a", "time", NO_TIME),
    "before midnight": (moments(pa.time64("ns"), 0, -1), {}, "a", "time", NO_TIME),
    "NaN": (pa.array([1.5, float("nan")]), {}, "a", "number", "'nan' is not a DynamoDB number"),
    "infinity": (pa.array([[1.5], [float("-inf")]]), {}, "a[]", "number", "'-inf' is not a DynamoDB number"),
    "large": (pa.array([1e125, 1e126]), {}, "a", "number", "'1e+126' is outside 1E-130 to 9.99E+125"),
    "39 digits": (
        pa.array(["1", "1" * 39]), {"tag": "N"}, "a", "number", f"'{'1' * 39}' has more than 38 significant digits"
    ),
    "no key": (
        pa.array(["x", None]), {"keys": {"a": "S"}}, "a", "key_missing", "the key is missing: every item needs it"
    ),
    "empty key": (pa.array(["x", ""]), {"keys": {"a": "S"}}, "a", "key_empty", EMPTY_KEY),
    "empty binary key": (pa.array([b"x", b""]), {"keys": {"a": "B"}}, "a", "key_empty", EMPTY_KEY),
    "long key": (
        pa.array(["é" * 1024, "é" * 1024 + "x"]), {"keys": {"a": "S"}},
        "a", "key_length", "the key has more than 2,048 bytes",
    ),
    "empty set": (
        pa.array([["x"], []]), {"tag": "SS"}, "a", "empty_set", "the set is empty: make it null, or a list"
    ),
    "twice in a set": (pa.array([["x", "y"], ["x", "y", "x"]]), {"tag": "SS"}, "a", "duplicate", TWICE),
    "a number twice": (pa.array([["1", "10"], ["1.0", "1e0"]]), {"tag": "NS"}, "a", "duplicate", TWICE),
    "twice in a large set": (LARGE_SETS, {"tag": "SS"}, "a", "duplicate", TWICE),
    "null in a set": (
        pa.array([[b"x"], [b"x", None]]), {"tag": "BS"},
        "a[]", "null_in_set", "the set has a null: DynamoDB's sets hold values only",
    ),
    "empty name": (pa.array([[("x", 1)], [("", 1)]], NAMED), {}, "a.*", "name", NAME_LENGTH),
    "long name": (pa.array([[("x" * 65_535, 1)], [("x" * 65_536, 1)]], NAMED), {}, "a.*", "name", NAME_LENGTH),
    "name twice": (
        pa.array([[("x", 1), ("y", 1)], [("x", 1), ("x", 1)]], NAMED), {},
        "a", "duplicate", "a name is twice in the map",
    ),
    "text in a column of NULL": (pa.array([None, "x"]), {"tag": "NULL"}, "a", "null", "'x' in a column of NULL"),
}  # fmt: skip


@pytest.mark.parametrize("case", SECOND_ROWS)
def test_a_row_that_dynamodb_would_refuse(case):
    """The row has no bytes, and is reported with attribute, rule and message. The others are printed."""
    array, options, attribute, rule, message = SECOND_ROWS[case]
    assert refusals_of(array, **options) == [Refusal(1, attribute, rule, f"row 1: {attribute}: {message}")]


@pytest.mark.parametrize(
    ("array", "tag", "attribute", "rule", "message"),
    [
        (broken(b"\xff").slice(1), "JSON", "a", "json", "line 1: byte 0 is not UTF-8: invalid start byte"),
        (broken(b"\xff").slice(1), "NULL", "a", "null", "'\ufffd' in a column of NULL"),
        (nested(32), None, "a" + "[]" * 31, "depth", "it is nested deeper than 32 levels"),
    ],
    ids=["broken JSON", "broken text in a column of NULL", "depth"],
)
def test_a_first_row_that_dynamodb_would_refuse(array, tag, attribute, rule, message):
    """The rows of a slice are numbered from its start."""
    assert refusals_of(array, tag=tag) == [Refusal(0, attribute, rule, f"row 0: {attribute}: {message}")]


def test_a_large_item():
    """The row is reported without an attribute, and with its bytes."""
    message = "row 1: the item has 409,601 bytes, DynamoDB takes 409,600"
    assert refusals_of(pa.array(["x" * 409_599, "x" * 409_600])) == [Refusal(1, "", "item_size", message, 409_601)]


def test_nesting_to_the_limit():
    """DynamoDB accepts 31 lists around a text."""
    assert refusals_of(nested(31)) == []


TEXTS = {
    "no JSON": ("{", "json", "row 1: a: line 1: column 2: this is not JSON"),
    "two types": ('{"S":"x","N":"1"}', "json", "row 1: a: value: expected one type and its value"),
    "empty set": ('{"SS":[]}', "empty_set", "row 1: a: the set is empty"),
    "twice": ('{"NS":["1","1.0"]}', "duplicate", "row 1: a: an element is twice in the set"),
    "depth": ('{"L":[' * 32 + "]}" * 32, "depth", "row 1: a: it is nested deeper than 32 levels"),
    "name": ('{"M":{"":{"S":"x"}}}', "name", "row 1: a: an attribute's name has 1 to 65,535 bytes"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_json_text_is_checked_as_columns_are(case):
    """JSON text is checked by the same rules as columns."""
    text, rule, message = TEXTS[case]
    (refusal,) = refusals_of(pa.array(['{"L":[{"S":"x"}]}', text]), tag="JSON")
    assert (refusal.row, refusal.attribute, refusal.rule) == (1, "a", rule)
    assert refusal.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ('{"pk":{"N":"1"}}', "key_type", "_rescue: the key is N, the table's is S"),
        ('{"pk":{"S":""}}', "key_empty", "_rescue: the key is empty"),
        (f'{{"pk":{{"S":"{"x" * 2049}"}}}}', "key_length", "_rescue: the key has more than 2,048 bytes"),
        ('{"other":{"S":"x"}}', "key_missing", "pk: the key is missing: every item needs it"),
    ],
)
def test_keys_in_the_rescue_column(text, rule, message):
    """A key may be in the rescue column, and is checked there."""
    pk = pa.array([None, None], pa.string())
    batch = pa.RecordBatch.from_pydict({"pk": pk, "_rescue": ['{"pk":{"S":"x"}}', text]})
    (refusal,) = Encoder(batch.schema, keys={"pk": "S"}).encode(batch).refusals
    assert refusal == Refusal(1, message.partition(":")[0], rule, f"row 1: {message}")


def test_an_attribute_given_twice():
    """An attribute in its column and in the rescue column is refused, also by the reference."""
    batch = pa.RecordBatch.from_pydict({"n": [1, 2], "_rescue": [None, '{"n":{"S":"x"}}']})
    (refusal,) = Encoder(batch.schema).encode(batch).refusals
    assert refusal.message == "row 1: _rescue: the attribute 'n' is in its column and in the rescue column"
    with pytest.raises(EncodeError) as raised:
        list(items_of(batch))
    assert Refusal(raised.value.row, raised.value.attribute, raised.value.rule, str(raised.value)) == refusal


def test_sort_keys_are_shorter():
    """The second key may have 1,024 bytes."""
    batch = pa.RecordBatch.from_pydict({"sk": ["x" * 1024, "x" * 1025], "pk": ["x" * 2048] * 2})
    (refusal,) = Encoder(batch.schema, keys={"pk": "S", "sk": "S"}).encode(batch).refusals
    assert refusal == Refusal(1, "sk", "key_length", "row 1: sk: the key has more than 1,024 bytes")


def test_the_first_missing_key_is_named():
    """If both keys are missing, the partition key is named. A missing column is a missing key."""
    batch = pa.RecordBatch.from_pydict({"pk": [None, 1]})
    refusals = Encoder(batch.schema, keys={"pk": "N", "sk": "S"}).encode(batch).refusals
    assert [refusal.attribute for refusal in refusals] == ["pk", "sk"]


def test_rows_count_over_pieces():
    """A refused row is reported by its number in the batch, not in a piece."""
    values = [float(number) for number in range(50_000)]
    values[49_999] = float("nan")
    batch = pa.RecordBatch.from_pydict({"s": ["x" * 100] * 50_000, "n": values})
    (refusal,) = Encoder(batch.schema).encode(batch).refusals
    assert refusal.row == 49_999


def test_rows_too_large_to_copy(monkeypatch):
    """A batch too large to copy is split. A single row that is too large is refused."""
    monkeypatch.setattr(encode_load, "MAX_PIECE_BYTES", 1 << 17)
    batch = pa.RecordBatch.from_pydict({"s": ["a" * 60_000, "b" * 60_000, "c" * 600_000, "d" * 60_000]})
    encoded = Encoder(batch.schema).encode(batch)
    (refusal,) = encoded.refusals
    assert (refusal.row, refusal.rule) == (2, "item_size")
    assert refusal.message.startswith("row 2: the item has 600,")
    assert encoded.sizes.tolist() == [60_001, 60_001, 0, 60_001]
    assert encoded.buffer.tobytes() == b"".join(
        b'{"s":{"S":"%b"}}' % (letter * 60_000) for letter in (b"a", b"b", b"d")
    )


def test_lines_raise_at_the_first_refusal():
    """When a file is written, the first refused row is an error with its number."""
    batch = pa.RecordBatch.from_pydict({"n": [1.0, float("nan")]})
    with pytest.raises(EncodeError, match=r"^row 1: n: 'nan' is not a DynamoDB number") as raised:
        Encoder(batch.schema).encode_lines(batch)
    assert (raised.value.row, raised.value.attribute, raised.value.rule) == (1, "n", "number")


def test_a_key_of_another_type_is_refused():
    """A key column of another type than the table's is reported before any row."""
    with pytest.raises(SchemaError, match=r"^pk: a key of type S cannot come from a column of DynamoDB's N \(int64\)"):
        Encoder(pa.schema([("pk", pa.int64())]), keys={"pk": "S"})


@pytest.mark.parametrize("keys", [{"a": "S", "b": "S", "c": "S"}, {"a": "SS"}])
def test_keys_that_no_table_has_are_refused(keys):
    """A table has one or two keys of type S, N or B."""
    with pytest.raises(OptionError, match="give the partition key"):
        Encoder(pa.schema([("a", pa.string())]), keys=keys, options=EncodeOptions())
