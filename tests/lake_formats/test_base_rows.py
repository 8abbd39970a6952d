"""Rows of a base load: by bucket, in their original order, and in reused memory."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from ddbio.items.decode import from_dynamodb_json
from ddbio.lake_formats.base_rows import BaseRows
from ddbio.lake_formats.keys import buckets_of, key_texts
from ddbio.lake_formats.rows import new_shape

ITEM = '{"id":{"S":"o-%d"},"n":{"N":"%d"},"tags":{"SS":["a","b%d"]},"at":{"M":{"x":{"S":"y%d"}}}}\n'


def items(count):
    """Return this number of items."""
    return from_dynamodb_json("".join(ITEM % ((number,) * 4) for number in range(count)).encode())


@pytest.mark.parametrize("keeps_bucket", [False, True])
def test_rows_are_sorted_by_bucket_and_keep_their_order(keeps_bucket):
    """Each row has its item, its key, its bucket if files have the column, and the constant columns of a base."""
    base_items = items(500)
    rows = BaseRows(new_shape(base_items.schema, ["id"], 7), 5, keeps_bucket=keeps_bucket)
    (sorted_rows,) = rows.sort_block([rows.fit(base_items)])
    sorted_rows.rows.validate(full=True)
    assert sorted_rows.rows.schema.equals(rows.schema)
    assert sorted_rows.partitions == tuple((str(bucket),) for bucket in range(7))
    buckets = buckets_of(key_texts(base_items, ["id"]), 7).to_pylist()
    order = sorted(range(500), key=buckets.__getitem__)
    assert sorted_rows.rows.select(base_items.schema.names).to_pylist() == base_items.take(order).to_pylist()
    assert sorted_rows.rows.column("_key").to_pylist() == [f"S:o-{number}" for number in order]
    assert list(sorted_rows.counts) == [buckets.count(bucket) for bucket in range(7)]
    if keeps_bucket:
        assert sorted_rows.rows.column("_b").to_pylist() == sorted(buckets)
    own = set(
        zip(*(sorted_rows.rows.column(name).to_pylist() for name in ("_ver", "_ts_us", "_op", "_deleted")), strict=True)
    )
    assert own == {("0" * 44, 5, None, False)}


def test_rows_wait_in_memory_that_is_kept():
    """The rows are in memory of the system's pool, which is released with the last of them."""
    pool, base_items = pa.system_memory_pool(), items(5_000)
    before = pool.bytes_allocated()
    rows = BaseRows(new_shape(base_items.schema, ["id"], 16), 5, keeps_bucket=False)
    (sorted_rows,) = rows.sort_block([rows.fit(base_items)])
    parts = [sorted_rows.rows.slice(start, 100) for start in itertools.islice(range(0, 5_000, 100), 3)]
    assert pool.bytes_allocated() - before >= 0.9 * base_items.nbytes
    del sorted_rows
    assert pool.bytes_allocated() > before
    del parts
    assert pool.bytes_allocated() == before
