from __future__ import annotations

import base64
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import BINARIES, NUMBERS, TEXT

from ddbio.errors import DdbioError, SchemaError
from ddbio.items.item_key import (
    Fingerprints,
    KeyGroups,
    key_columns,
    key_fingerprints,
    key_hashes,
    key_identity,
    key_rows,
    key_values,
)
from ddbio.items.kernel.hash.keys import hash_keys
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.item_schema import ItemSchema

KEYS = ["pk", "sk"]
KEY_VALUES = st.sampled_from(
    [TEXT.map(lambda text: {"S": text}), NUMBERS.map(lambda text: {"N": text}), BINARIES.map(lambda text: {"B": text})]
)


@st.composite
def keyed_items(draw):
    """Draw items whose keys have one type each."""
    pk, sk = draw(KEY_VALUES), draw(KEY_VALUES)
    return draw(st.lists(st.fixed_dictionaries({"pk": pk, "sk": sk}), min_size=1, max_size=8))


def xxh64_of(texts):
    """Return the hash of each text by the library."""
    data = np.frombuffer(b"".join(texts) + bytes(64), np.uint8).copy()
    ends = np.cumsum([0, *map(len, texts)])
    hashes = np.zeros(len(texts), np.uint64)
    data = np.concatenate([data, np.zeros(max(map(len, texts)) + 64, np.uint8)])
    hash_keys(data, ends, np.zeros(1, np.uint8), int(ends[-1]), hashes)
    return [int(value) for value in hashes]


def numbers(column, tag=b"N"):
    """Return a batch of one key column."""
    return pa.record_batch([column], schema=pa.schema([pa.field("n", column.type, metadata={"ddb:type": tag})]))


@given(keyed_items())
def test_hashes_are_those_of_the_identities(items):
    """The hash of a row is the XXH64 of the identity of its item's key. Only equal keys are equal."""
    schema = normalize_schema(ItemSchema.of_items(items).to_arrow())
    hashes = key_hashes(RowBuilder(schema, keep_nulls=True).batch(items, MisfitLog()), KEYS)
    identities = [key_identity(item, KEYS) for item in items]
    assert hashes.tolist() == xxh64_of(identities)
    assert len(set(identities)) == len({(str(item["pk"]), str(item["sk"])) for item in items})


# https://github.com/Cyan4973/xxHash/blob/dev/tests/sanity_test_vectors.h has similar pairs.
@pytest.mark.parametrize(
    ("text", "value"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_the_hash_is_xxh64(text, value):
    """Well-known texts have their well-known hashes."""
    assert xxh64_of([text]) == [value]


def plain_xxh64(data):  # noqa: C901 - as its specification has it
    """Return XXH64 of bytes, written from its specification."""
    one, two, three, four, five = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )  # fmt: skip
    mask = 2**64 - 1

    def turn(word, bits):
        return (word << bits | word >> (64 - bits)) & mask

    def take(lane, word):
        return turn((lane + word * two) & mask, 31) * one & mask

    def little(offset, size):
        return int.from_bytes(data[offset : offset + size], "little")

    offset, value = 0, five
    if len(data) >= 32:
        lanes = [(one + two) & mask, two, 0, -one & mask]
        while offset + 32 <= len(data):
            lanes = [take(lane, little(offset + 8 * index, 8)) for index, lane in enumerate(lanes)]
            offset += 32
        value = sum(turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            value = ((value ^ take(0, lane)) * one + four) & mask
    value = (value + len(data)) & mask
    for size in (8, 4, 1):
        while offset + size <= len(data):
            word = little(offset, size)
            if size == 8:
                value = (turn(value ^ take(0, word), 27) * one + four) & mask
            elif size == 4:
                value = (turn(value ^ (word * one & mask), 23) * two + three) & mask
            else:
                value = turn(value ^ (word * five & mask), 11) * one & mask
            offset += size
    value = (value ^ value >> 33) * two & mask
    value = (value ^ value >> 29) * three & mask
    return value ^ value >> 32


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=4))
def test_the_hash_follows_its_specification(texts):
    """The hash of any bytes follows the specification."""
    assert xxh64_of(texts) == [plain_xxh64(text) for text in texts]


VECTORS = [
    ({"S": ""}, b"S\0\0\0\0"),
    ({"S": "é"}, b"S\2\0\0\0\xc3\xa9"),
    ({"S": "1"}, b"S\1\0\0\0" + b"1"),
    ({"N": "1"}, b"N\1\0\0\0" + b"1"),
    ({"N": "1E0"}, b"N\1\0\0\0" + b"1"),
    ({"N": "-0.50"}, b"N\4\0\0\0-0.5"),
    ({"B": "AAE="}, b"B\2\0\0\0\0\1"),
]


@pytest.mark.parametrize(("value", "identity"), VECTORS)
def test_identities_stay_as_they_are(value, identity):
    """The identity of known keys has the documented bytes."""
    assert key_identity({"k": value}, ["k"]) == identity


def test_hashes_stay_as_they_are():
    """The hashes of known keys are the same in every release."""
    batch = pa.record_batch([pa.array(["a", "user#1"]), pa.array([1, -20])], names=KEYS)
    assert key_hashes(batch, KEYS).tolist() == [3831613553501970575, 7940022204687019215]


def test_one_number_has_one_hash_in_every_column():
    """N 1, 1.0 and 1E0 are equal in every column type. S "1" and B "1" differ."""
    columns = [
        pa.array([1], pa.int8()), pa.array([1], pa.int64()), pa.array([1], pa.uint64()), pa.array([1.0]),
        pa.array([Decimal("1.0")], pa.decimal128(38, 9)), pa.array([Decimal(1)], pa.decimal256(50, 3)),
        pa.array(["1E0"]), pa.array(["+1.00"], pa.large_string()),
    ]  # fmt: skip
    hashes = {int(key_hashes(numbers(column), ["n"])[0]) for column in columns}
    assert hashes == {plain_xxh64(key_identity({"n": {"N": "1"}}, ["n"]))}
    others = [numbers(pa.array(["1"]), b"S"), numbers(pa.array([b"1"]), b"B")]
    assert len(hashes | {int(key_hashes(other, ["n"])[0]) for other in others}) == 3


def test_a_key_in_the_rescue_column_is_found():
    """A key that did not fit its column has the hash of its value."""
    schema = pa.schema([("k", pa.int64()), ("_rescue", pa.string())])
    batch = pa.record_batch([pa.array([1, None]), pa.array([None, '{"k":{"N":"1.5"}}'])], schema=schema)
    assert key_hashes(batch, ["k"]).tolist() == [
        plain_xxh64(key_identity({"k": {"N": number}}, ["k"])) for number in ("1", "1.5")
    ]


ANY_KEY = st.one_of(
    TEXT.map(lambda text: {"S": text}), NUMBERS.map(lambda text: {"N": text}), BINARIES.map(lambda text: {"B": text})
)


@given(st.lists(st.tuples(ANY_KEY, ANY_KEY, st.sampled_from(["", " "])), min_size=1, max_size=8))
def test_keys_of_any_type_are_found_in_the_rescue_column(rows):
    """Keys of which some did not fit their columns have the hashes of their identities, for any text."""
    columns, rescued = {"pk": [], "sk": []}, []
    for pk, sk, blank in rows:
        others = {"x": {"S": "y"}, "m": {"M": {"pk": {"S": "z"}}}}
        others |= {} if "S" in pk else {"pk": pk}
        others |= {} if "N" in sk else {"sk": sk}
        rescued.append(blank + json.dumps(others))
        columns["pk"].append(pk.get("S"))
        columns["sk"].append(sk.get("N"))
    schema = pa.schema([("pk", pa.string()), pa.field("sk", pa.string(), metadata={"ddb:type": "N"})])
    schema = schema.append(pa.field("_rescue", pa.string()))
    batch = pa.RecordBatch.from_pydict({**columns, "_rescue": rescued}, schema=schema)
    expected = [plain_xxh64(key_identity({"pk": pk, "sk": sk}, KEYS)) for pk, sk, _ in rows]
    assert key_hashes(batch, KEYS).tolist() == expected
    assert key_hashes(batch.slice(1), KEYS).tolist() == expected[1:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "row 1: k is missing"),
        ("{}", "row 1: k is missing"),
        ('{"k":{"BOOL":true}}', "row 1: k is of type BOOL"),
        ('{"k":{"NULL":true}}', "row 1: k is of type NULL"),
        ('{"k":{"S":"x"}}{"k":{"S":"y"}}', "_rescue: expected one JSON document"),
        ("", "_rescue: expected one JSON document"),
        ('{"k":{"N":"x"}}', "_rescue: k: 'x' is not a DynamoDB number"),
    ],
)
def test_rescued_text_without_a_key_is_refused(text, message):
    """A row whose rescue column has no key is an error, as reported by the reference."""
    rescued = pa.array([None, text, '{"k":{"S":"x"}}'], pa.string())
    with pytest.raises(DdbioError, match=message):
        key_hashes(pa.record_batch([pa.array([1, None, None]), rescued], names=["k", "_rescue"]), ["k"])


def test_parts_of_a_key_do_not_run_together():
    """("ab", "c") and ("a", "bc") are two keys."""
    batch = pa.record_batch([pa.array(["ab", "a"]), pa.array(["c", "bc"])], names=KEYS)
    assert len(set(key_hashes(batch, KEYS).tolist())) == 2


def test_a_missing_key_is_refused():
    """A row without a key attribute, a key of another type and an unknown column are errors.

    The message names the key.
    """
    with pytest.raises(SchemaError, match=r"^row 1: k is missing"):
        key_hashes(pa.record_batch([pa.array(["a", None])], names=["k"]), ["k"])
    with pytest.raises(SchemaError, match=r"^row 0: k is of type BOOL"):
        key_hashes(pa.record_batch([pa.array([True])], names=["k"]), ["k"])
    with pytest.raises(SchemaError, match=r"^x: the batch has no such attribute"):
        key_hashes(pa.record_batch([pa.array(["a"])], names=["k"]), ["x"])
    with pytest.raises(SchemaError, match=r"^k is missing"):
        key_identity({}, ["k"])


def test_no_rows_have_no_hashes():
    """An empty batch has no hashes."""
    assert key_hashes(pa.record_batch([pa.array([], pa.string())], names=["k"]), ["k"]).tolist() == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"], pa.large_string()),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_key_is_the_same_in_every_arrow_layout(column):
    """Dictionaries, views and runs are like plain values. Columns next to the key may have any type."""
    plain = pa.record_batch({"pk": ["a", "b"]})
    beside = pa.array([0, None], pa.timestamp("us"))
    batch = pa.record_batch({"pk": column, "at": beside, "none": pa.nulls(2), "half": pa.array([1.0, 2.0]).cast("f2")})
    assert key_hashes(batch, ["pk"]).tolist() == key_hashes(plain, ["pk"]).tolist()


def test_a_key_of_a_time_is_its_text():
    """A timestamp, a date and bytes of fixed size are keys as they are written."""
    times = pa.record_batch({"a": pa.array([0], pa.timestamp("s")), "b": pa.array([0], pa.date32())})
    texts = pa.record_batch({"a": ["1970-01-01T00:00:00"], "b": ["1970-01-01"]})
    assert key_hashes(times, ["a", "b"]).tolist() == key_hashes(texts, ["a", "b"]).tolist()
    fixed, free = (pa.record_batch({"a": pa.array([b"ab"], kind)}) for kind in (pa.binary(2), pa.binary()))
    assert key_hashes(fixed, ["a"]).tolist() == key_hashes(free, ["a"]).tolist()


PRINTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30)


def fingerprints(pairs):
    """Return fingerprints that often have the same first word."""
    high, low = np.array(pairs, np.uint64).reshape(len(pairs), 2).T
    return Fingerprints(high, low)


@given(PRINTS, PRINTS)
def test_rows_of_a_key_are_one_group(pairs, others):
    """Rows with one fingerprint are a group, which is found by it. Other fingerprints are in no group."""
    groups = KeyGroups(fingerprints(pairs))
    spans = (groups.starts, groups.counts)
    members = [groups.rows[start : start + count].tolist() for start, count in zip(*spans, strict=True)]
    assert sorted(row for rows in members for row in rows) == [*range(len(pairs))]
    assert [{pairs[row] for row in rows} for rows in members] == [
        {(int(high), int(low))} for high, low in zip(*groups.known, strict=True)
    ]  # fmt: skip
    assert len(members) == len(set(pairs))
    for pair, group in zip(others, groups.find(fingerprints(others)).tolist(), strict=True):
        assert (group >= 0) == (pair in pairs)
        assert group < 0 or pairs[members[group][0]] == pair


COLUMN_TYPES = {
    "S": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "N": [pa.int64(), pa.int8(), pa.decimal128(38, 2), pa.float64()],
    "B": [pa.binary(), pa.large_binary()],
}
HELD = {"S": ["", "a"], "N": [0, 7], "B": [b"", b"\0"]}
RESCUED = {"S": ["x", "é"], "N": ["1.5", "-1E+30", "9" * 38, "0.125"], "B": ["AQ==", "/w=="]}
COMBINATIONS = [
    (tag, arrow, other) for tag, types in COLUMN_TYPES.items() for arrow in types for other in ("S", "N", "B")
]


@pytest.mark.parametrize(("tag", "arrow", "other"), COMBINATIONS)
@pytest.mark.parametrize("is_table", [False, True])
def test_keys_are_read_from_columns_and_from_the_rescue_column(tag, arrow, other, is_table):
    """For any column and rescued values, each row has its key, and only equal keys are equal."""
    held, rescued = HELD[tag], RESCUED[other]
    fields = [pa.field("s", pa.string(), metadata={"ddb:type": "S"}), pa.field("k", arrow, metadata={"ddb:type": tag})]
    schema = pa.schema([*fields, pa.field("x", pa.int64()), pa.field("_rescue", pa.string())])
    values = [*held, *([None] * len(rescued))] * 2
    texts = [*([None] * len(held)), *(json.dumps({"x": {"S": "z"}, "k": {other: value}}) for value in rescued)]
    columns = [pa.array(["p"] * len(values)), pa.array(values, arrow), pa.nulls(len(values), pa.int64())]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([*texts, '{"x":{"S":"y"}}', *texts[1:]])], schema=schema)
    rows = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3)]) if is_table else batch
    fingerprints_of_rows = key_fingerprints(rows, ["s", "k"])
    groups = KeyGroups(fingerprints_of_rows)
    assert groups.counts.tolist() == [2] * (len(held) + len(rescued))
    assert all(np.diff(groups.rows[start : start + 2]) == len(values) // 2 for start in groups.starts)
    values = [None] * batch.num_rows
    for rows_of_part, parts in key_columns(rows, ["s", "k"]):
        assert all(column.null_count == 0 for column, _ in parts)
        for row, key in zip(
            np.arange(len(values))[rows_of_part].tolist(), zip(*key_values(parts), strict=True), strict=True
        ):
            values[row] = key
    plain = [Decimal(value) if other == "N" else json.loads(f'"{value}"') for value in rescued]
    plain = [base64.b64decode(value) for value in rescued] if other == "B" else plain
    assert values == [("p", value) for value in [*held, *plain] * 2]


def test_only_rows_that_need_it_come_with_the_rescue_column():
    """If all keys are in their columns, no other column is read."""
    rows = pa.table({"k": [1, 2], "x": [3, 4], "_rescue": [None, "{broken"]})
    assert key_rows(rows, ["k"]).column_names == ["k"]
    assert key_rows(rows.set_column(0, "k", pa.array([1, None])), ["k"]).column_names == ["k", "_rescue"]
    ((rows_of_part, columns),) = key_columns(rows, ["k"])
    assert (rows_of_part, columns[0][0].to_pylist()) == (slice(0, 2), [1, 2])
    assert key_columns(rows.slice(0, 0), ["k"]) == [] or key_columns(rows.slice(0, 0), ["k"])[0].batch.num_rows == 0


@pytest.mark.parametrize("text", ["a", None])
def test_a_column_of_another_name_is_not_taken_for_the_key(text):
    """A log may have an own column, or a column of another attribute, with the name of a key attribute."""
    named = pa.field("_op_2ac1b6cb", pa.string(), metadata={"ddb:type": "S", "ddb:name": "_op"})
    own = [pa.field("_op", pa.string()), pa.field("_op", pa.string(), metadata={"PARQUET:field_id": "1"})]
    rescued = None if text else '{"_op":{"N":"1"}}'
    expected = plain_xxh64(key_identity({"_op": {"S": "a"} if text else {"N": "1"}}, ["_op"]))
    for field in own:
        schema = pa.schema([field, named, pa.field("_rescue", pa.string())])
        rows = pa.RecordBatch.from_pylist([{"_op": "PUT", named.name: text, "_rescue": rescued}], schema)
        assert key_hashes(rows, ["_op"]).tolist() == [expected]
        table = pa.Table.from_batches([rows])
        assert key_rows(table, ["_op"]).column_names == [named.name, *([] if text else ["_rescue"])]
        assert len(key_columns(table, ["_op"])) == 1
    other = pa.field("_op", pa.string(), metadata={"ddb:type": "S", "ddb:name": "other"})
    rows = pa.RecordBatch.from_arrays([["x"], ['{"_op":{"S":"a"}}']], schema=pa.schema([other, schema.field(2)]))
    assert key_hashes(rows, ["_op"]).tolist() == [plain_xxh64(key_identity({"_op": {"S": "a"}}, ["_op"]))]


def test_a_key_without_a_column_is_in_the_rescue_column():
    """The schema may lack the key. Then its values were rescued."""
    rows = pa.record_batch({"x": [1, 2], "_rescue": ['{"k":{"N":"1"}}', '{"k":{"S":"a"}}']})
    expected = [plain_xxh64(key_identity({"k": value}, ["k"])) for value in ({"N": "1"}, {"S": "a"})]
    assert key_hashes(rows, ["k"]).tolist() == expected
