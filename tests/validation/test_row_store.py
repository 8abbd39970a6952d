"""Rows of a side are the same in memory and in a temporary file."""

import numpy as np
import pytest

from ddbio.items.key_hashes import BUCKETS, BucketSums, Rows, bucket_groups, buckets_of
from ddbio.validation.key_join import RowStore


@pytest.mark.parametrize("held_bytes", [1 << 30, 16 * 700, 1])
def test_rows_come_back_by_bucket(held_bytes):
    """Every row is returned once, in its bucket's group, for any number of spilled runs."""
    words = np.random.default_rng(5)
    batches = [Rows(*words.integers(0, 2**64, (2, 250), np.uint64)) for _ in range(8)]
    all_rows, sums = Rows.joined(batches), BucketSums()
    with RowStore(held_bytes) as store:
        for batch in batches:
            sums.add(batch)
            store.add(batch)
        chosen = [0, 1, 2, 7, *range(100, BUCKETS, 3), BUCKETS - 1]
        for buckets in (chosen, [5], []):
            rows = store.rows(buckets)
            wanted = np.isin(buckets_of(all_rows.keys), buckets)
            assert sorted(zip(*map(np.ndarray.tolist, rows), strict=True)) == sorted(
                zip(all_rows.keys[wanted].tolist(), all_rows.items[wanted].tolist(), strict=True)
            )


def test_groups_are_bounded_by_rows():
    """Buckets are read together up to about a million rows."""
    counts = np.full(BUCKETS, 300_000, np.int64)
    assert list(bucket_groups(range(6), counts)) == [[0, 1, 2, 3], [4, 5]]
    assert list(bucket_groups([], counts)) == []
