"""Rows are encoded as fastavro reads them: numbers of every length, and values under nulls and slices."""

from __future__ import annotations

import io
import itertools
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from ddbio.formats.avro import encode_rows
from ddbio.formats.avro_schema import avro_names, avro_schema_of

EDGES = sorted({sign * ((1 << bits) + step) for bits in range(0, 63, 7) for step in (-1, 0, 1) for sign in (-1, 1)})


def decoded(batch):
    """Return the rows that fastavro reads from the encoded bytes."""
    row_offsets, data = encode_rows(batch)
    schema = fastavro.parse_schema(avro_schema_of(batch.schema, avro_names(batch.schema)))
    assert len(row_offsets) == batch.num_rows + 1
    rows = []
    for first, last in itertools.pairwise(row_offsets):
        source = io.BytesIO(data[first:last])
        rows.append(fastavro.schemaless_reader(source, schema, None))
        assert source.tell() == last - first
    return rows


def test_whole_numbers_of_every_length():
    """Numbers at the bounds of each length are read back, including the minimum and the maximum."""
    values = [*EDGES, -(2**63), 2**63 - 1, None]
    rows = [{"n": value, "i": None if value is None else int(-(2**31) <= value < 2**31)} for value in values]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("n", pa.int64()), ("i", pa.int32())]))
    assert decoded(batch) == rows


@pytest.mark.parametrize("kind", [pa.decimal128(38, 3), pa.decimal256(76, 3)])
def test_decimals_of_every_length(kind):
    """Decimals at the bounds of each number of bytes are read back."""
    values = [sign * (2**bits + step) for bits in range(0, 120, 8) for step in (-129, 0, 127) for sign in (-1, 1)]
    rows = [{"d": Decimal(value).scaleb(-3)} for value in values] + [{"d": None}, {"d": Decimal(0)}]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("d", kind)]))
    assert decoded(batch.slice(1)) == rows[1:]


def test_what_nulls_and_slices_hide_is_not_written():
    """Lists, maps and structs that are null may have values underneath, and slices have neighbours."""
    items = pa.array(["a", None, "", "d", "é"])
    mask = pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 5], pa.int32()), items, mask=mask)
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 4, 5], pa.int32()), pa.array(list("vwxyz")), items, mask=mask)
    structs = pa.StructArray.from_arrays([lists, pa.array([1.5, 2.5, -0.0])], names=["l", "f"], mask=mask)
    batch = pa.RecordBatch.from_arrays([lists, maps, structs, pa.array([True, None, False])], names=list("lmst"))
    expected = [
        {"l": ["a", None], "m": {"v": "a", "w": None}, "s": {"l": ["a", None], "f": 1.5}, "t": True},
        {"l": None, "m": None, "s": None, "t": None},
        {"l": ["é"], "m": {"z": "é"}, "s": {"l": ["é"], "f": -0.0}, "t": False},
    ]
    assert decoded(batch) == expected
    assert decoded(batch.slice(1)) == expected[1:]
    assert decoded(batch.slice(1, 1)) == expected[1:2]
    assert decoded(batch.slice(0, 0)) == []


def test_records_without_members():
    """A struct without members, and one whose members are all empty, take the bytes of their unions."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([{}, None], pa.struct([])), pa.array([[], None], pa.list_(pa.binary()))], ["s", "l"]
    )
    assert decoded(batch) == [{"s": {}, "l": []}, {"s": None, "l": None}]
