"""Rows are ordered so that any part of them is from everywhere, and rows of one key keep their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.core.loads.spreading import in_key_order, spread_rows


@given(st.integers(0, 3000))
def test_every_row_comes_once(count):
    """The order is one of all rows."""
    assert sorted(spread_rows(count).tolist()) == list(range(count))


@pytest.mark.parametrize("partitions", [4, 40])
@pytest.mark.parametrize("count", [20_000, 100_003])
def test_any_part_meets_all_partitions(count, partitions):
    """Of any 2,560 rows no partition has much more than its share, though rows come partition by partition."""
    partition_of = spread_rows(count) * partitions // count
    for part in np.split(partition_of[: count // 2560 * 2560], count // 2560):
        assert np.bincount(part, minlength=partitions).max() <= 1.2 * 2560 / partitions


@given(st.lists(st.integers(0, 9), max_size=60), st.randoms())
def test_rows_of_a_key_ascend(keys, draw):
    """Whatever the order was, rows of one key ascend, and hold the places that they held together."""
    order = list(range(len(keys)))
    draw.shuffle(order)
    ordered = in_key_order(np.array(order, np.int64), np.array(keys, np.uint64)).tolist()
    assert [keys[row] for row in ordered] == [keys[row] for row in order]
    assert all(
        [row for row in ordered if keys[row] == key] == [n for n, k in enumerate(keys) if k == key] for key in keys
    )
