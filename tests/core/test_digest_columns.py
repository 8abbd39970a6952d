from __future__ import annotations

import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from item_strategies import ITEMS, tables

from ddbio.core.canonical import Printer
from ddbio.core.decode import Decoder
from ddbio.core.digest import Digest, canonical_text
from ddbio.core.digest_columns import ColumnDigest, digest_of_batch
from ddbio.core.items import items_of
from ddbio.core.reference import RowBuilder
from ddbio.core.rescue import MisfitLog
from ddbio.core.schema import infer_schema_of_items, normalize_schema
from ddbio.errors import DecodeError, SchemaError


def digest_of(items):
    """Return the digest of items, by the plain reference."""
    digest = Digest()
    digest.add_items(items)
    return digest


def batch_of(items, *, keep_nulls=True):
    """Return items as a record batch, by the plain reference."""
    schema = normalize_schema(infer_schema_of_items(items))
    return RowBuilder(schema, keep_nulls=keep_nulls).batch(items, MisfitLog())


def texts_of(batch):
    """Return the canonical texts that the loops print."""
    printer = Printer()
    ends = printer.print_rows(batch)
    return [bytes(printer.out[ends[row] : ends[row + 1]]).decode() for row in range(batch.num_rows)]


def through_parquet(batch):
    """Return a batch as it comes back from a file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    return pq.read_table(io.BytesIO(file.getvalue())).combine_chunks()


@given(st.lists(ITEMS, max_size=6) | tables())
def test_rows_print_as_the_reference_prints_items(items):
    """The text of each row is the canonical text of its item, whatever the columns."""
    assert texts_of(batch_of(items)) == [canonical_text(item) for item in items]


@given(tables(), st.integers(0, 5), st.integers(0, 5))
def test_a_slice_prints_its_own_rows(items, start, length):
    """What is outside a slice of a batch leaves no trace."""
    part = batch_of(items).slice(start, length)
    assert texts_of(part) == [canonical_text(item) for item in items[start : start + length]]


@given(tables(), st.randoms(use_true_random=False))
def test_every_way_has_one_digest(items, random):
    """Wire, Arrow, Parquet, any order and any partitioning give one digest."""
    page = json.dumps({"Items": items}).encode()
    wire = Digest()
    wire.add_page(page)
    decoded = Decoder(infer_schema_of_items(items), nulls="keep").decode(page, "page")
    shuffled = decoded.take(pa.array(random.sample(range(len(items)), len(items)), pa.int64()))
    parts = ColumnDigest()
    cut = random.randint(0, len(items))
    parts.add_batch(shuffled.slice(0, cut))
    for batch in through_parquet(shuffled.slice(cut)).to_batches():
        parts.add_batch(batch)
    assert wire == digest_of_batch(decoded) == parts.digest


@given(tables(), st.data())
def test_a_single_change_changes_the_digest(items, data):
    """Another value in one place of one item, or one item less, is another digest."""
    assume(items)
    before = digest_of_batch(batch_of(items))
    row = data.draw(st.integers(0, len(items) - 1))
    assert digest_of_batch(batch_of(items[:row] + items[row + 1 :])) != before
    assume(items[row])
    name = data.draw(st.sampled_from(sorted(items[row])))
    other = data.draw(tables().filter(bool).map(lambda drawn: drawn[0]).filter(bool))
    value = data.draw(st.sampled_from(list(other.values())))
    changed = [*items[:row], {**items[row], name: value}, *items[row + 1 :]]
    assume(canonical_text(changed[row]) != canonical_text(items[row]))
    assert digest_of_batch(batch_of(changed)) != before


NUMBERS = {
    "int8": pa.array([-128, 127, 0, None], pa.int8()),
    "int64": pa.array([-(2**63), 2**63 - 1, 10, None], pa.int64()),
    "uint64": pa.array([2**64 - 1, 0, 100, None], pa.uint64()),
    "decimal128": pa.array(
        [Decimal("-0.0001"), Decimal("9" * 34 + ".9999"), Decimal("1.5000"), None], pa.decimal128(38, 4)
    ),
    "whole": pa.array([Decimal(10**38 - 1), Decimal(-(2**64)), Decimal(2**64 - 1), None], pa.decimal128(38, 0)),
    "decimal256": pa.array([Decimal("1E+40"), Decimal("-1.25"), Decimal(0), None], pa.decimal256(60, 5)),
    "negative scale": pa.array([Decimal("1E+3"), Decimal("-2E+3"), Decimal(0), None], pa.decimal128(5, -3)),
    "float64": pa.array([1.5, -0.0, 1e22, None], pa.float64()),
    "float32": pa.array([0.1, 3.0, -2.5, None], pa.float32()),
}  # fmt: skip


@pytest.mark.parametrize("column", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_every_type_print_alike(column):
    """A column of any number type prints as the reference prints its items, sliced or not."""
    batch = pa.record_batch([column, pa.array(["1E+2", "+0.50", "-0", "1"])], schema=pa.schema(
        [pa.field("n", column.type), pa.field("t", pa.string(), metadata={"ddb:type": "N"})]
    ))  # fmt: skip
    for part in (batch, batch.slice(1), batch.slice(2, 1)):
        assert texts_of(part) == [canonical_text(item) for item in items_of(part)]


def test_long_and_escaped_texts():
    """Texts of every length, with every character that JSON escapes, at every place, are printed alike."""
    characters = [chr(code) for code in (*range(32), 34, 92, 127, 233, 0x1F600)]
    texts = ["a" * length + character + "b" * length for length in range(40) for character in characters]
    batch = pa.record_batch([pa.array(texts)], names=["text"])
    assert texts_of(batch) == [canonical_text(item) for item in items_of(batch)]
    long = pa.record_batch([pa.array(["\0" * 400_000, "x" * 400_000])], names=["text"])
    assert digest_of_batch(long) == digest_of(items_of(long))


@pytest.mark.parametrize("tag", ["SS", "NS", "BS"])
def test_large_sets_are_sorted(tag):
    """Sets of a thousand members are sorted by their bytes."""
    members = {
        "SS": [f"{'é' * (n % 3)}{n * 7919 % 1000}" for n in range(1000)],
        "NS": [n * 7919 % 1000 - 500 for n in range(1000)],
        "BS": [n.to_bytes(2, "big") * (n % 3 + 1) for n in range(1000)],
    }[tag]
    column = pa.array([members, members[:3], None])
    batch = pa.record_batch([column], schema=pa.schema([pa.field("a", column.type, metadata={"ddb:type": tag})]))
    assert texts_of(batch) == [canonical_text(item) for item in items_of(batch)]


def test_the_last_of_equal_members_counts():
    """A map that holds a name twice has its last value, as a Python dict would."""
    column = pa.array([[("b", 1), ("a", 2), ("b", 3)]], pa.map_(pa.string(), pa.int64()))
    assert texts_of(pa.record_batch([column], names=["m"])) == ['{"m":{"M":{"a":{"N":"2"},"b":{"N":"3"}}}}']


def test_what_lies_under_null_does_not_count():
    """A null struct or list hides whatever its children hold."""
    hidden = pa.StructArray.from_arrays([pa.array([float("nan"), 1.0])], ["x"], mask=pa.array([True, False]))
    batch = pa.record_batch([hidden], names=["s"])
    assert texts_of(batch) == ["{}", '{"s":{"M":{"x":{"N":"1"}}}}']


def test_a_batch_of_several_slices():
    """A batch larger than one slice has the digest of its items."""
    column = pa.array([f"{number}-" * 40 for number in range(60_000)])
    batch = pa.record_batch([column], names=["text"])
    assert digest_of_batch(batch) == digest_of(items_of(batch))


def test_nothing_has_the_digest_of_nothing():
    """No rows add nothing; a row without attributes is an item."""
    assert digest_of_batch(pa.record_batch([pa.array([], pa.string())], names=["a"])) == Digest()
    assert digest_of_batch(pa.record_batch([pa.array([None], pa.string())], names=["a"])) == digest_of([{}])


@pytest.mark.parametrize(
    ("column", "tag", "error", "message"),
    [
        (pa.array(["1", "one"]), "N", DecodeError, "'one' is not a DynamoDB number"),
        (pa.array([float("nan")]), "N", DecodeError, "'nan' is not a DynamoDB number"),
        (pa.array(["1e999"]), "N", DecodeError, "is outside"),
        (pa.array([["a", None]]), "SS", SchemaError, "^a: a set of DynamoDB holds no null"),
        (pa.array([0], pa.timestamp("s")), None, SchemaError, "^a: no DynamoDB type is an Arrow timestamp"),
    ],
)
def test_refused(column, tag, error, message):
    """What DynamoDB cannot hold has no digest."""
    field = pa.field("a", column.type, metadata={"ddb:type": tag} if tag else None)
    with pytest.raises(error, match=message):
        digest_of_batch(pa.record_batch([column], schema=pa.schema([field])))
