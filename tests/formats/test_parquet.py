from __future__ import annotations

import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.errors import DdbioError
from ddbio.formats.parquet import dictionary_columns, page_bytes
from ddbio.formats.row_files import RowFiles
from ddbio.storage.local_store import LocalStore

ROWS = 5000


def leaves(table, use_dictionary):
    """Return the paths of a file's columns, and the paths of those with a dictionary page."""
    target = io.BytesIO()
    pq.write_table(table, target, use_dictionary=use_dictionary)
    group = pq.ParquetFile(target).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [column.path_in_schema for column in columns], [c.path_in_schema for c in columns if c.has_dictionary_page]


@pytest.mark.parametrize(
    "unique",
    [
        pa.array([f"o-{n}" for n in range(ROWS)]),
        pa.array(range(ROWS), pa.int64()),
        pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(38, 2)),
        pa.array([Decimal(n) for n in range(ROWS)], pa.decimal256(60, 2)),
        pa.array([b"%d" % n for n in range(ROWS)], pa.binary()),
        pa.array([n / 3 for n in range(ROWS)], pa.float64()),
        pa.array([n if n % 3 else None for n in range(ROWS)], pa.int64()),
    ],
    ids=lambda values: str(values.type),
)
def test_only_values_that_repeat_have_a_dictionary(unique):
    """A column of distinct values has no dictionary, for every type; a column of repeated values has one."""
    repeating = pa.concat_arrays([unique.slice(3, 50)] * (ROWS // 50))
    assert dictionary_columns(pa.table({"unique": unique, "repeating": repeating})) == ["repeating"]


def test_values_that_repeat_far_off_or_near_by_are_seen():
    """Neither a cycle longer than a run of the sample nor runs of equal values count as distinct values."""
    far = pa.array([f"{n % 1000}" for n in range(100_000)])
    near = pa.array([f"{n // 4}" for n in range(100_000)])
    assert dictionary_columns(pa.table({"far": far, "near": near})) == ["far", "near"]


def test_nested_columns_are_named_as_in_the_file():
    """The paths are those of the file, so that each nested column has its own choice."""
    numbers = range(ROWS)
    table = pa.table(
        {
            "a.b": pa.array(numbers),
            "struct": pa.array(
                [{"id": n, "kind": "k", "parts": [{"sku": n, "size": n % 3}]} if n % 3 else None for n in numbers]
            ),
            "map": pa.array(
                [[(f"k{n % 3}", [n])] if n % 5 else None for n in numbers], pa.map_(pa.string(), pa.list_(pa.int64()))
            ),
            "large": pa.array([[n, -n] for n in numbers], pa.large_list(pa.int64())),
        }
    ).slice(1)
    chosen = dictionary_columns(table)
    assert chosen == ["struct.kind", "struct.parts.list.element.size", "map.key_value.key"]
    assert leaves(table, chosen)[1] == chosen


def test_columns_without_values_keep_theirs(flights):
    """If the sample has no values, every column is included, by its name in the file."""
    empty = pa.Table.from_batches([flights]).schema.empty_table()
    assert dictionary_columns(empty) == leaves(empty, use_dictionary=True)[0]
    assert dictionary_columns(pa.table({"null": pa.nulls(ROWS)})) == ["null"]


@pytest.mark.parametrize("store_schema", [True, False], ids=["as a dictionary", "as text"])
@pytest.mark.parametrize("in_list", [False, True], ids=["alone", "in lists"])
def test_a_long_text_of_many_rows_is_read_in_small_batches(tmp_path, store_schema, in_list):
    """A dictionary of one long text can expand a small file to gigabytes: it is read a few rows at a time."""
    indices = pa.array(np.zeros(20_000, np.int8))
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 100_000]))
    column = pa.ListArray.from_arrays(pa.array(range(20_001), pa.int32()), texts) if in_list else texts
    table = pa.table({"pk": [f"k{number}" for number in range(20_000)], "c": column})
    pq.write_table(table, tmp_path / "x.parquet", store_schema=store_schema)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    batches = RowFiles(store).read_file(entry)
    for _ in range(3):
        assert next(batches).num_rows <= 671


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
def test_the_size_of_a_page_is_read_from_its_head(tmp_path, codec):
    """The header of a dictionary page has its uncompressed size; an unusual header means the largest size."""
    pq.write_table(pa.table({"c": ["x" * 5000, "y" * 700] * 10}), tmp_path / "x.parquet", compression=codec)
    chunk = pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(0)
    assert page_bytes((tmp_path / "x.parquet").read_bytes()[chunk.dictionary_page_offset :][:32]) == 5708
    for head in (b"", b"\x15", b"\x15\x04", b"\x15\x04\x16\x02", b"\x15\x04\x15\x01", b"\xff" * 32):
        assert page_bytes(head) == (1 << 31) - 1


def test_a_damaged_dictionary_is_refused(tmp_path):
    """If any byte of a column is changed, the indices are within the dictionary, or the file is refused."""
    path, store = tmp_path / "a.parquet", LocalStore(tmp_path)
    column = pa.array([f"v{number % 4}" for number in range(40)]).dictionary_encode()
    pq.write_table(pa.table({"c": column}), path, compression="none")
    data, refused = path.read_bytes(), 0
    for index in range(4, len(data) - 8 - int.from_bytes(data[-8:-4], "little")):
        path.write_bytes(data[:index] + bytes([data[index] ^ 1 << index % 8]) + data[index + 1 :])
        try:
            for batch in RowFiles(store).read(next(iter(store.list())), 0):
                read_column = batch.column("c")
                read_column.dictionary.cast(pa.binary()).take(read_column.indices)
        except DdbioError:
            refused += 1
    assert refused
