"""Rows that a shuffle joins by key are compared like rows in one process."""

from __future__ import annotations

import itertools
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest

from ddbio.budget import LocalBudget
from ddbio.items.digest import Digest
from ddbio.items.key_hashes import BUCKETS, BucketSums, Rows, differences, repeated
from ddbio.validation.key_join import JoinResult, JoinSpec, compare_parts, parts_of
from ddbio.validation.sums import HashedRows

_NOTHING = pa.record_batch({"pk": pa.array([], pa.string())})


def _sides(seed):
    """Return rows of two sides: most are equal, others are missing, extra, different and repeated."""
    words = np.random.default_rng(seed)
    keys, items = words.integers(0, 2**64, (2, 4000), np.uint64)
    source = Rows(keys[:3500], items[:3500])
    target = Rows(np.concatenate([keys[100:], keys[:20], keys[200:230]]), np.concatenate([items[100:], keys[:50]]))
    target.items[1000:1100] += np.uint64(1)
    return source, target


def _hashed(rows):
    parts = zip(*(np.array_split(column, 7) for column in rows), strict=True)
    return [HashedRows(_NOTHING, Rows(*part), Digest()) for part in parts]


def _meet(sides, wanted, most):
    """Return the result of all partitions of a shuffle."""
    parts = [part for side, rows in enumerate(sides) for part in parts_of(_hashed(rows), replace(wanted, side=side))]
    parts.sort(key=itemgetter(0))
    joined, budget = JoinResult(), LocalBudget(None)
    partitions = set()
    for number, held in itertools.groupby(parts, key=lambda part: part[0][0]):
        partitions.add(number)
        joined.merge(compare_parts(most, (data for _, data in held), budget), most)
    assert partitions <= {*range(wanted.partitions)}
    return joined


@pytest.mark.parametrize("rows_of_a_slot", [1_000_000, 300, 1])
def test_shuffled_rows_are_compared_like_rows_of_one_process(rows_of_a_slot):
    """The counts and the number of example keys do not depend on the division of rows into slots and partitions."""
    sides = _sides(rows_of_a_slot)
    sums = [BucketSums(), BucketSums()]
    for bucket_sums, rows in zip(sums, sides, strict=True):
        bucket_sums.add(rows)
    differing = sums[0].differing(sums[1])
    counts = (sums[0].counts + sums[1].counts) * (1_000_000 // rows_of_a_slot)
    wanted = replace(JoinSpec.of(differing, counts, 3), with_items=True)
    assert wanted.partitions == (1 if rows_of_a_slot == 1_000_000 else 3)
    joined = _meet(sides, wanted, 10_000)
    expected = differences(*sides)
    for kind in ("missing", "extra", "different"):
        assert joined.counts[kind] == getattr(expected, kind) > 0
        assert sorted(joined.keys[kind]) == sorted(getattr(expected, f"{kind}_keys").tolist())
        assert len(_meet(sides, wanted, 5).keys[kind]) == 5
    assert joined.repeated == [0, 30]


def test_repeated_keys_are_counted_by_keys_alone():
    """One side's keys are sufficient, and rows of other buckets are left out."""
    _, target = _sides(1)
    sums = BucketSums()
    sums.add(target)
    every = JoinSpec.of(range(BUCKETS), sums.counts, 2)
    assert _meet([target], every, 0).repeated == [repeated(target.keys.copy()), 0]
    assert _meet([target], JoinSpec.of([], sums.counts, 2), 0).repeated == [0, 0]
    parts = list(parts_of(_hashed(target), every))
    assert sum(len(data) for _, data in parts) < 9 * len(target.keys)
