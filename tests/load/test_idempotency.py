"""Keys of rows: equal for equal values, different for others, and the same on Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddbio
from ddbio.errors import OptionError, SchemaError
from ddbio.load.idempotency import idempotency_key

MIDNIGHT = datetime(2026, 2, 3, tzinfo=UTC)
TEXTS = st.text(alphabet="a1:_SN0é", max_size=4) | st.none()


def key_of(*values, types=None):
    """Return the key of one row."""
    kinds = types or [None] * len(values)
    columns = {f"c{n}": pa.array([value], kind) for n, (value, kind) in enumerate(zip(values, kinds, strict=True))}
    return ddbio.idempotency_key(pa.table(columns), list(columns))[0].as_py()


def test_the_key_is_that_of_the_format():
    """The key is the hash of the documented bytes: letters, lengths, colons."""
    key = key_of("a:", None, 12, types=[pa.string(), pa.int64(), pa.int32()])
    assert key == sha256(b"S2:a:_0:N2:12").hexdigest()
    assert key == "2ace1ce1af1ac47412916b5e281bd66324a758cfbd97f0ee4163fde68971db87"


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=6))
def test_different_texts_have_different_keys(rows):
    """No two rows share a key unless both columns are equal: null is not empty, and values are not concatenated."""
    table = pa.table({"a": pa.array([row[0] for row in rows], pa.string()), "b": [row[1] for row in rows]})
    keys = idempotency_key(table.cast(pa.schema({"a": pa.string(), "b": pa.string()})), ["a", "b"]).to_pylist()
    assert len(set(keys)) == len(set(rows))


@pytest.mark.parametrize(
    ("value", "kind", "same", "other_kind"),
    [
        (1, pa.int8(), Decimal("1.00"), pa.decimal128(9, 2)),
        (0, pa.uint64(), Decimal("0.00"), pa.decimal256(40, 2)),
        (Decimal("0.00000001"), pa.decimal128(20, 8), Decimal("0.0000000100"), pa.decimal128(20, 10)),
        ("a", pa.string(), "a", pa.large_string()),
        ("a", pa.string(), "a", pa.string_view()),
        (b"a", pa.binary(), b"a", pa.large_binary()),
        (b"a", pa.binary_view(), b"a", pa.binary(1)),
        (date(2026, 2, 3), pa.date32(), date(2026, 2, 3), pa.date64()),
        (MIDNIGHT, pa.timestamp("s", "UTC"), MIDNIGHT, pa.timestamp("us", "Asia/Tokyo")),
    ],
)
def test_spellings_and_widths_do_not_matter(value, kind, same, other_kind):
    """Equal values of related types have one key."""
    assert key_of(value, types=[kind]) == key_of(same, types=[other_kind])


def test_kinds_matter():
    """The text 1, the number 1 and the byte 1 have three keys."""
    assert len({key_of("1"), key_of(1), key_of(b"1"), key_of(None)}) == 4
    assert key_of(datetime(2026, 2, 3)) != key_of(datetime(2026, 2, 3, tzinfo=UTC))  # noqa: DTZ001 - a local time


def test_batches_and_dictionaries():
    """A record batch is treated like a table, and a dictionary-encoded column like its values."""
    column = pa.array(["a", None, "a"])
    plain = pa.record_batch({"a": column})
    assert idempotency_key(plain, ["a"]) == idempotency_key(pa.table({"a": column.dictionary_encode()}), ["a"])
    views = pa.DictionaryArray.from_arrays([0, 1, 0], column.slice(0, 2).cast(pa.string_view()))
    assert idempotency_key(plain, ["a"]) == idempotency_key(pa.table({"a": views}), ["a"])
    runs = pa.RunEndEncodedArray.from_arrays([1, 2, 3], column)
    chunks = pa.chunked_array([runs.slice(0, 1), runs.slice(1)])
    assert idempotency_key(plain, ["a"]) == idempotency_key(pa.table({"a": chunks}), ["a"])


def test_text_of_any_bytes():
    """Text that is not UTF-8 has the key of its bytes, as on Spark."""
    table = pa.table({"a": pa.array([b"\xff"]).view(pa.string())})
    assert idempotency_key(table, ["a"]).to_pylist() == [sha256(b"S1:\xff").hexdigest()]


def test_years_of_five_digits():
    """Years beyond 9999 have a sign, as on Spark."""
    days, microseconds = 2_932_897, 253_402_300_800_000_000
    assert key_of(days, types=[pa.date32()]) == sha256(b"D12:+10000-01-01").hexdigest()
    assert key_of(microseconds, types=[pa.timestamp("us")]) == sha256(b"L28:+10000-01-01T00:00:00.000000").hexdigest()


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.time64("us")])
def test_ambiguous_values_are_refused(kind):
    """Floats and nested values are an error with a solution."""
    with pytest.raises(SchemaError, match="cast it first"):
        idempotency_key(pa.table({"a": pa.array([None], kind)}), ["a"])


def test_finer_than_microseconds_is_refused():
    """Values that Spark could not represent are not truncated."""
    with pytest.raises(SchemaError, match="lose data"):
        idempotency_key(pa.table({"a": pa.array([1], pa.timestamp("ns"))}), ["a"])


@pytest.mark.parametrize("columns", [[], ["b"]])
def test_columns_must_exist(columns):
    """No column, or an unknown one, is an error."""
    with pytest.raises(OptionError, match="needs columns"):
        idempotency_key(pa.table({"a": [1]}), columns)
