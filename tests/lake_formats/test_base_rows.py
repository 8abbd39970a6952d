"""Rows of a base load: by bucket, in the order in which they come, and in memory that is used again."""

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
    """Return so many items."""
    return from_dynamodb_json("".join(ITEM % ((number,) * 4) for number in range(count)).encode())


@pytest.mark.parametrize("keeps_bucket", [False, True])
def test_rows_lie_by_bucket_and_keep_their_order(keeps_bucket):
    """Each row has its item, its key, its bucket if files have it, and what all rows of a base have."""
    given = items(500)
    rows = BaseRows(new_shape(given.schema, ["id"], 7), 5, keeps_bucket=keeps_bucket)
    (found,) = rows.sort_block([rows.fit(given)])
    found.rows.validate(full=True)
    assert found.rows.schema.equals(rows.schema)
    assert found.partitions == tuple((str(each),) for each in range(7))
    wanted = buckets_of(key_texts(given, ["id"]), 7).to_pylist()
    order = sorted(range(500), key=wanted.__getitem__)
    assert found.rows.select(given.schema.names).to_pylist() == given.take(order).to_pylist()
    assert found.rows.column("_key").to_pylist() == [f"S:o-{number}" for number in order]
    assert list(found.counts) == [wanted.count(each) for each in range(7)]
    if keeps_bucket:
        assert found.rows.column("_b").to_pylist() == sorted(wanted)
    own = set(
        zip(*(found.rows.column(name).to_pylist() for name in ("_ver", "_ts_us", "_op", "_deleted")), strict=True)
    )
    assert own == {("0" * 44, 5, None, False)}


def test_rows_wait_in_memory_that_is_kept():
    """They come from the pool of the system, and go back to it with the last of them."""
    pool, given = pa.system_memory_pool(), items(5_000)
    before = pool.bytes_allocated()
    rows = BaseRows(new_shape(given.schema, ["id"], 16), 5, keeps_bucket=False)
    (found,) = rows.sort_block([rows.fit(given)])
    parts = [found.rows.slice(start, 100) for start in itertools.islice(range(0, 5_000, 100), 3)]
    assert pool.bytes_allocated() - before >= 0.9 * given.nbytes
    del found
    assert pool.bytes_allocated() > before
    del parts
    assert pool.bytes_allocated() == before
