"""Rows as two words each: differing buckets, and their differences."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items import key_hashes
from ddbio.items.key_hashes import (
    BUCKETS,
    BucketSums,
    HashSet,
    Rows,
    bucket_starts,
    buckets_of,
    differences,
    repeated,
    rows_of,
)

WORDS = st.integers(0, 6).map(lambda number: number * 0x2AAA_AAAA_AAAA_AAAA % 2**64)
ROWS = st.lists(st.tuples(WORDS, st.integers(0, 3)), max_size=12)


def rows(pairs):
    """Return pairs as rows."""
    return Rows(*(np.array([pair[index] for pair in pairs], np.uint64) for index in (0, 1)))


@given(ROWS, ROWS)
def test_differences_are_those_of_multisets(source, target):
    """Equal rows of both sides cancel out. The rest of a key is different as far as both sides have rows."""
    left, right = Counter(source) - Counter(target), Counter(target) - Counter(source)
    missing, extra, different = set(), set(), set()
    counts = Counter()
    for key in {key for key, _ in [*left, *right]}:
        ours, theirs = (sum(n for (k, _), n in side.items() if k == key) for side in (left, right))
        both = min(ours, theirs)
        counts.update(missing=ours - both, extra=theirs - both, different=both)
        for groups, count in ((missing, ours - both), (extra, theirs - both), (different, both)):
            groups.update([key] * count)
    result = differences(rows(source), rows(target))
    assert (result.missing, result.extra, result.different) == tuple(
        counts[kind] for kind in ("missing", "extra", "different")
    )
    groups = (result.missing_keys, result.extra_keys, result.different_keys)
    assert [set(keys.tolist()) for keys in groups] == [missing, extra, different]


@given(ROWS, ROWS)
def test_buckets_differ_exactly_where_rows_do(source, target):
    """A bucket differs exactly if the sides have different rows in it."""
    sums = []
    for pairs in (source, target):
        sums_of_side = BucketSums()
        sums_of_side.add(rows(pairs))
        sums.append(sums_of_side)
    differing = sums[0].differing(sums[1])
    # Sums of such small numbers may be equal by chance. Counts are exact.
    changed = (Counter(source) - Counter(target)) + (Counter(target) - Counter(source))
    assert set(differing) <= {key >> 52 for key, _ in changed}
    assert set(np.flatnonzero(sums[0].counts != sums[1].counts)) <= set(differing)


def test_items_that_exchange_their_values_are_seen():
    """An item's hash depends on its key, so swapping the values of two items of one bucket is detected."""
    keys = np.array([1, 2], np.uint64)
    sums = np.array([[5, 6], [7, 8]], np.uint64)
    one, other = BucketSums(), BucketSums()
    one.add(rows_of(keys, sums))
    other.add(rows_of(keys, sums[::-1]))
    assert one.differing(other) == [0]


def test_the_starts_cover_all_buckets():
    """Sorted keys are split at the bounds of buckets. The first and the last key are in the first and last bucket."""
    keys = np.array([0, 2**52 - 1, 2**52, 2**64 - 1], np.uint64)
    starts = bucket_starts(keys)
    assert len(starts) == BUCKETS + 1
    assert np.diff(starts)[[0, 1, BUCKETS - 1]].tolist() == [2, 1, 1]
    assert buckets_of(keys).tolist() == [0, 0, 1, BUCKETS - 1]


def test_repeated_counts_rows_beyond_the_first():
    """Of three rows with one key, two are repeated."""
    assert repeated(np.array([3, 1, 3, 2, 3], np.uint64)) == 2
    assert repeated(np.zeros(0, np.uint64)) == 0


@given(st.lists(st.integers(0, 2**64 - 1) | WORDS, max_size=40), st.lists(WORDS, max_size=20))
def test_a_hash_set_holds_its_keys_and_no_others(members, others):
    """A set contains exactly its hashes, also if several share first bits, or if it is empty."""
    hash_set = HashSet(np.unique(np.array(members, np.uint64)))
    asked = np.array([*members, *others, 0, 2**64 - 1, *(key ^ 1 for key in members)], np.uint64)
    assert len(hash_set) == len({*members})
    assert hash_set.holds(asked).tolist() == [int(key) in {*members} for key in asked]


def test_a_hash_set_of_many_keys_is_made_in_parts(monkeypatch):
    """Keys of several parts that share a byte of the bit table are all found."""
    monkeypatch.setattr(key_hashes, "_GROUP_ROWS", 3)
    members = np.arange(100, dtype=np.uint64) << np.uint64(50)
    hash_set = HashSet(members)
    assert hash_set.holds(members).all()
    assert not hash_set.holds(members + np.uint64(1)).any()
