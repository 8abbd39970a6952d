from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from item_strategies import ITEMS, VALUES, meaning_of_item, tables

from ddbio.errors import DecodeError, EncodeError, SchemaError
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest, digest_of_batches
from ddbio.items.digest_json import JsonDigest
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.kernel.tape import texts, walker
from ddbio.items.reference import RowBuilder, items_of
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.item_schema import ItemSchema

N_ONE, N_TWO = {"N": "1"}, {"N": "2"}


def digest_of(items):
    """Return the digest of items, by the reference."""
    digest = Digest()
    digest.add_items(items)
    return digest


def digest_of_batch(batch):
    """Return the digest of a batch's rows, by the loops."""
    return digest_of_batches([batch])


def batch_of(items, *, keep_nulls=True):
    """Return items as a record batch, by the reference."""
    schema = normalize_schema(ItemSchema.of_items(items).to_arrow())
    return RowBuilder(schema, keep_nulls=keep_nulls).batch(items, MisfitLog())


def sums_of(batch):
    """Return the digest of each row by the loops."""
    return [digest_of_batch(batch.slice(row, 1)) for row in range(batch.num_rows)]


def assert_same(batch):
    """Check that the loops and the reference have one digest for each row and for all of them."""
    items = list(items_of(batch))
    assert digest_of_batch(batch) == digest_of(items)
    assert sums_of(batch) == [digest_of([item]) for item in items]


def through_parquet(batch):
    """Return a batch after a round trip through a file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    return pq.read_table(io.BytesIO(file.getvalue())).combine_chunks()


@given(st.lists(ITEMS, max_size=6) | tables())
def test_rows_have_the_digests_of_their_items(items):
    """Each row has the digest that the reference has for its item, regardless of the columns."""
    batch = batch_of(items)
    assert digest_of_batch(batch) == digest_of(items)
    assert sums_of(batch) == [digest_of([item]) for item in items]


@given(tables(), st.randoms(use_true_random=False))
def test_every_way_has_one_digest(items, random):
    """Bytes, Arrow, Parquet, any order and any partitioning give one digest."""
    page = json.dumps({"Items": items}).encode()
    walked = JsonDigest()
    walked.add(page, "page")
    decoded = Decoder(ItemSchema.of_items(items).to_arrow(), nulls="keep").decode(page, "page")
    shuffled = decoded.take(pa.array(random.sample(range(len(items)), len(items)), pa.int64()))
    parts = ColumnDigest()
    cut = random.randint(0, len(items))
    parts.add_batch(shuffled.slice(0, cut))
    for batch in through_parquet(shuffled.slice(cut)).to_batches():
        parts.add_batch(batch)
    assert walked.digest == digest_of_batch(decoded) == parts.digest


@given(tables(), st.data())
def test_a_single_change_changes_the_digest(items, data):
    """Another value at one position of one item, or one item less, changes the digest."""
    assume(items)
    before = digest_of_batch(batch_of(items))
    row = data.draw(st.integers(0, len(items) - 1))
    assert digest_of_batch(batch_of(items[:row] + items[row + 1 :])) != before
    assume(items[row])
    name = data.draw(st.sampled_from(sorted(items[row])))
    other = data.draw(tables().filter(bool).map(lambda drawn: drawn[0]).filter(bool))
    value = data.draw(st.sampled_from(list(other.values())))
    changed = [*items[:row], {**items[row], name: value}, *items[row + 1 :]]
    assume(meaning_of_item(changed[row]) != meaning_of_item(items[row]))
    assert digest_of_batch(batch_of(changed)) != before


NUMBERS = {
    "int8": pa.array([-128, 127, 0, None], pa.int8()),
    "int64": pa.array([-(2**63), 2**63 - 1, 10, None], pa.int64()),
    "uint64": pa.array([2**64 - 1, 0, 100, None], pa.uint64()),
    "decimal128": pa.array(
        [Decimal("-0.0001"), Decimal("9" * 34 + ".9999"), Decimal("1.5000"), None], pa.decimal128(38, 4)
    ),
    "whole": pa.array([Decimal(10**38 - 1), Decimal(-(2**64)), Decimal(2**64 - 1), None], pa.decimal128(38, 0)),
    "wide with zeros": pa.array([Decimal(1234567890123456789012 * 10), 10**37, 0, None], pa.decimal128(38, 0)),
    "decimal256": pa.array([Decimal("1E+40"), Decimal("-1.25"), Decimal(0), None], pa.decimal256(60, 5)),
    "negative scale": pa.array([Decimal("1E+3"), Decimal("-2E+3"), Decimal(0), None], pa.decimal128(5, -3)),
    "float64": pa.array([1.5, -0.0, 1e22, None], pa.float64()),
    "float32": pa.array([0.1, 3.0, -2.5, None], pa.float32()),
}  # fmt: skip


@pytest.mark.parametrize("column", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_every_type_are_alike(column):
    """A column of any number type has the digests of its items, sliced or not."""
    batch = pa.record_batch([column, pa.array(["1E+2", "+0.50", "-0", "123456789012345678901000"])], schema=pa.schema(
        [pa.field("n", column.type), pa.field("t", pa.string(), metadata={"ddb:type": "N"})]
    ))  # fmt: skip
    for part in (batch, batch.slice(1), batch.slice(2, 1)):
        assert_same(part)


def test_texts_of_every_length():
    """Texts of every length, at the end of their buffer or before others, have the digests of their items."""
    texts = ["é" * (length % 2) + "a" * length for length in range(70)]
    for part in (texts, texts[::-1]):
        assert_same(pa.record_batch([pa.array(part)], names=["text"]))
    long = pa.record_batch([pa.array(["\0" * 400_000, "x" * 400_000])], names=["text"])
    assert digest_of_batch(long) == digest_of(items_of(long))


@pytest.mark.parametrize("tag", ["SS", "NS", "BS"])
def test_large_sets(tag):
    """Sets of a thousand members have the digests of their items."""
    members = {
        "SS": [f"{'é' * (n % 3)}{n * 7919 % 1000}" for n in range(1000)],
        "NS": [n * 7919 % 1000 - 500 for n in range(1000)],
        "BS": [n.to_bytes(2, "big") * (n % 3 + 1) for n in range(1000)],
    }[tag]
    column = pa.array([members, members[:3], None])
    batch = pa.record_batch([column], schema=pa.schema([pa.field("a", column.type, metadata={"ddb:type": tag})]))
    assert_same(batch)


def test_the_last_of_equal_members_counts():
    """A map with a repeated name has its last value, like a Python dict."""
    twice = [("b", 1), ("a", 2), ("b", 3), ("b", 4)]
    column = pa.array([[("b", 1)], twice, None, twice * 40, [("a", 2), ("b", 4)]], pa.map_(pa.string(), pa.int64()))
    batch = pa.record_batch([column], names=["m"])
    assert_same(batch)
    assert sums_of(batch)[1] == sums_of(batch)[4]


def test_values_under_null_do_not_count():
    """A null struct or list hides any values of its children."""
    hidden = pa.StructArray.from_arrays([pa.array([float("nan"), 1.0])], ["x"], mask=pa.array([True, False]))
    batch = pa.record_batch([hidden], names=["s"])
    assert sums_of(batch) == [digest_of([{}]), digest_of([{"s": {"M": {"x": {"N": "1"}}}}])]


NOT_A_NUMBER = pa.array([float("nan"), 1.0, 2.0])
HIDES_FIRST = pa.array([True, False, False])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.ListArray.from_arrays([0, 1, 1, 3], NOT_A_NUMBER, mask=HIDES_FIRST), [{"L": []}, {"L": [N_ONE, N_TWO]}]),
        (
            pa.MapArray.from_arrays([0, 1, 2, 3], ["x", "y", "z"], NOT_A_NUMBER, mask=HIDES_FIRST),
            [{"M": {"y": N_ONE}}, {"M": {"z": N_TWO}}],
        ),
        (pa.FixedSizeListArray.from_arrays(NOT_A_NUMBER, 1, mask=HIDES_FIRST), [{"L": [N_ONE]}, {"L": [N_TWO]}]),
    ],
    ids=["list", "map", "fixed"],
)
def test_values_under_null_lists_and_maps_do_not_count(column, expected):
    """A null list or map hides its values. Other values keep their indices and names."""
    batch = pa.record_batch([column], names=["a"])
    assert sums_of(batch) == [digest_of([{}]), *(digest_of([{"a": value}]) for value in expected)]


def test_a_member_that_is_always_null():
    """A member without any value is missing, also where structs next to it are null."""
    batch = pa.record_batch([pa.array([{"x": None, "y": 1}, None, {"x": None, "y": 2}])], names=["s"])
    assert sums_of(batch) == [
        digest_of([{"s": {"M": {"y": N_ONE}}}]),
        digest_of([{}]),
        digest_of([{"s": {"M": {"y": N_TWO}}}]),
    ]


def test_a_batch_of_several_slices():
    """A batch larger than one slice has the digest of its items."""
    column = pa.array([f"{number}-" * 40 for number in range(60_000)])
    batch = pa.record_batch([column], names=["text"])
    assert digest_of_batch(batch) == digest_of(items_of(batch))


def test_nothing_has_the_digest_of_nothing():
    """No rows add nothing. A row without attributes is an item."""
    assert digest_of_batch(pa.record_batch([pa.array([], pa.string())], names=["a"])) == Digest()
    assert digest_of_batch(pa.record_batch([pa.array([None], pa.string())], names=["a"])) == digest_of([{}])


BROKEN = pa.array([b"1\xff"], pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("column", "tag", "error", "message"),
    [
        (pa.array(["1", "one"]), "N", DecodeError, "^a: 'one' is not a DynamoDB number"),
        (BROKEN, "N", DecodeError, "^a: '.*' is not a DynamoDB number"),
        (BROKEN, "JSON", DecodeError, "^a: line 1: byte 1 is not UTF-8"),
        (pa.array(['{"S":"x"}', "{"]), "JSON", DecodeError, "^a: line 1: column 2: this is not JSON"),
        (pa.array(['{"L":{}}']), "JSON", DecodeError, "^a: value: expected a JSON array"),
        (pa.array([float("nan")]), "N", DecodeError, "'nan' is not a DynamoDB number"),
        (pa.array(["1e999"]), "N", DecodeError, "is outside"),
        (pa.array([["a", None]]), "SS", SchemaError, "^a: a set of DynamoDB holds no null"),
        (
            pa.array([2**62]).cast(pa.timestamp("us")),
            None,
            EncodeError,
            "^entry 0 of a column of timestamp.us.: it is not",
        ),
        (pa.array([None], pa.month_day_nano_interval()), None, SchemaError, "^a: an Arrow month_day_nano_interval"),
    ],
)
def test_refused(column, tag, error, message):
    """Values without an encoding in DynamoDB have no digest."""
    field = pa.field("a", column.type, metadata={"ddb:type": tag} if tag else None)
    with pytest.raises(error, match=message):
        digest_of_batch(pa.record_batch([column], schema=pa.schema([field])))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None]),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.array(["a", None, "a view of more than twelve bytes"], pa.string_view()),
        pa.array([b"abc", None], pa.binary(3)),
        pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        pa.array([1.5, None, 0.1], pa.float16()),
        pa.nulls(2),
        pa.array([[None], []], pa.list_(pa.null())),
    ],
    ids=lambda column: str(column.type),
)
def test_a_row_is_the_item_that_writing_it_sends(column):
    """Arrow types that decoding never makes have the digest of the items to which they are encoded."""
    batch = pa.record_batch([column], names=["a"])
    lines = to_dynamodb_json(batch).splitlines()
    assert digest_of_batch(batch) == digest_of(map(json.loads, lines))


@given(st.lists(ITEMS | st.none(), max_size=6), st.booleans(), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_rescued_attributes_have_the_digest_of_their_items(items, is_ascii, separators):
    """Rescued attributes have the digest of their items, for any text encoding and also in slices."""
    texts = [None if item is None else json.dumps(item, ensure_ascii=is_ascii, separators=separators) for item in items]
    batch = pa.RecordBatch.from_pydict({"_rescue": pa.array(["{}", *texts], pa.string())}).slice(1)
    assert digest_of_batch(batch) == digest_of([item or {} for item in items])


@given(st.lists(VALUES | st.none(), max_size=6), st.booleans(), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_json_texts_have_the_digests_of_their_values(values, is_ascii, separators):
    """Columns of JSON text, and lists of them, have the digests of the values."""
    texts = [value and json.dumps(value, ensure_ascii=is_ascii, separators=separators) for value in values]
    field = pa.field("a", pa.string(), metadata={"ddb:type": "JSON"})
    schema = pa.schema([field, pa.field("l", pa.list_(field.with_name("element")))])
    lists = [[text, None, text] for text in texts]
    batch = pa.record_batch([pa.array(texts, pa.string()), pa.array(lists, schema.field("l").type)], schema=schema)
    assert_same(batch)


JSON_SCHEMA = pa.schema([pa.field("a", pa.string(), metadata={"ddb:type": "JSON"})])
DEEP = '{"L":[' * 70 + "]}" * 70


@pytest.mark.parametrize("refused", ['\ufeff{"S":"x"}', DEEP], ids=["mark", "deep"])
@pytest.mark.parametrize("piece_bytes", [1, 100, 1 << 20])
def test_texts_that_the_reference_reads(monkeypatch, refused, piece_bytes):
    """A text that only the reference reads does not change the digests of other texts."""
    monkeypatch.setattr(texts, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(walker, "_MAX_PATHS", 2)
    values = [f'{{"M":{{"é{number % 7}":{{"N":"{number}"}}}}}}' for number in range(50)]
    for rows in ([refused], [refused, *values], [*values[:20], None, refused, *values[20:], refused, None], values):
        assert_same(pa.record_batch([pa.array(rows)], schema=JSON_SCHEMA))
        items = [row and row.replace("{", '{"b":{', 1) + ',"c":{"S":"x"}}' for row in rows]
        assert_same(pa.record_batch([pa.array(items)], names=["_rescue"]))


@pytest.mark.parametrize(
    "text",
    [
        '{"S":"a"},"w":{"S":"b"}',
        '{"S":"a"},"v":{"S":"b"}',
        '{"S":"a"}}\0{"v":{"S":"b"}',
        '{"S":"a"}}{"v":{"S":"b"}',
        '{"S":"a"}{"S":"b"}',
        '{"S":"a"}\0',
        '{"S":"a"',
        "",
    ],
)
def test_text_that_is_not_one_value(text):
    """A text with anything but one value has no digest, regardless of texts joined to it for the walk."""
    good = '{"S":"x"}'
    for rows in ([text], [good, text, good], [good] * 9 + [text]):
        with pytest.raises(DecodeError, match=r"^a: "):
            digest_of_batch(pa.record_batch([pa.array(rows)], schema=JSON_SCHEMA))


@pytest.mark.parametrize("parts", [('{"a":{"S":"x"}', "}"), ('{"a":{"S":"x"}}\0{}', ""), ('{"a":{"S":"x', 'y"}}')])
def test_items_that_continue_in_the_next_row(parts):
    """Texts that are items only when joined have no digest."""
    with pytest.raises(DecodeError, match=r"^_rescue: "):
        digest_of_batch(pa.record_batch([pa.array(parts)], names=["_rescue"]))


def test_a_rescued_attribute_counts():
    """A rescued attribute counts where its column is null, as in the items that such rows restore."""
    rescued = ['{"é":{"NULL":true}}', None, '{"a":{"S":"x"},"é":{"NULL":true}}', "{}"]
    batch = pa.record_batch([pa.array([1, 2, None, 4]), pa.array(rescued)], names=["a", "_rescue"])
    assert_same(batch)


def test_an_attribute_given_twice():
    """An attribute in its column and in the rescue column has no digest, like encoding: one value would be lost."""
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "_rescue": [None, '{"b":{"S":"x"}}', '{"a":{"S":"x"}}']})
    with pytest.raises(EncodeError, match="row 2: _rescue: the attribute 'a' is in its column") as refused:
        ColumnDigest().add_batch(batch)
    with pytest.raises(EncodeError) as expected:
        list(items_of(batch))
    assert refused.value.args == expected.value.args


@pytest.mark.parametrize("text", ["{", "[]", '{"a":1}', '{"a":{"S":"x"},"a":{"S":"y"}}'])
def test_rescued_text_that_is_no_item(text):
    """Text in the rescue column that is not DynamoDB JSON has no digest, like encoding."""
    batch = pa.RecordBatch.from_pydict({"_rescue": [None, text]})
    with pytest.raises(DecodeError, match=r"^_rescue: "):
        ColumnDigest().add_batch(batch)
    with pytest.raises(DecodeError, match=r"^row 1: _rescue: "):
        list(items_of(batch))
