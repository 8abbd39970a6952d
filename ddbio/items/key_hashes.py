"""Search for keys by their hashes, and comparison of two sets of rows by the hashes of each row's key and item.

The first bits of the hash of a row's key select its bucket. Buckets with equal row counts and sums contain the same
rows. In the other buckets, differing rows are found by sorting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import key_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self, TypeAlias

    import pyarrow as pa

    from ddbio.items.digest_columns import RowSums

    Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
    Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

BUCKET_BITS = 12
BUCKETS = 1 << BUCKET_BITS
_SHIFT = np.uint64(64 - BUCKET_BITS)
_GROUP_ROWS = 1_000_000
# With these values, at most one in sixteen other keys shares a bit with a key.
_BITS_PER_KEY, _MIN_BITS = 16, 10

# Odd numbers whose bits are evenly spread: the golden ratio, and the first digits of pi.
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x243F6A8885A308D3)
_HIGH, _LOW = np.uint64(32), np.uint64(29)


class Rows(NamedTuple):
    """Hashes of the keys and of the items of rows, in any order."""

    keys: Words
    items: Words

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts."""
        empty = np.zeros(0, np.uint64)
        return cls(
            np.concatenate([empty, *(part.keys for part in parts)]),
            np.concatenate([empty, *(part.items for part in parts)]),
        )

    def sorted(self) -> Self:
        """Return the rows sorted by the hashes of their keys."""
        order = np.argsort(self.keys)
        return type(self)(self.keys[order], self.items[order])

    def taken(self, chosen: np.ndarray[Any, Any]) -> Self:
        """Return some of the rows."""
        return type(self)(self.keys[chosen], self.items[chosen])


def rows_of(keys: Words, sums: Words) -> Rows:
    """Return the rows for one word per key and the two words per item of ``ColumnDigest.add_rows``.

    The hash of an item also depends on its key, so swapping the values of two items changes the sums.
    """
    mixed = (sums[:, 0] + keys) * _FIRST_FACTOR
    mixed ^= mixed >> _HIGH
    mixed += sums[:, 1]
    mixed *= _SECOND_FACTOR
    mixed ^= mixed >> _LOW
    return Rows(keys, mixed)


def buckets_of(keys: Words) -> Counts:
    """Return the bucket of each row."""
    return (keys >> _SHIFT).astype(np.int64)


def bucket_starts(keys: Words) -> Counts:
    """Return the index at which each bucket begins among sorted keys, and the end of the last bucket."""
    bounds = np.arange(1, BUCKETS, dtype=np.uint64) << _SHIFT
    return np.concatenate([[0], np.searchsorted(keys, bounds), [len(keys)]]).astype(np.int64)


def bucket_groups(buckets: Iterable[int], counts: Counts) -> Iterator[list[int]]:
    """Yield buckets in groups of about a million rows, given the number of rows of each bucket."""
    group, size = list[int](), 0
    for bucket in buckets:
        group.append(bucket)
        size += int(counts[bucket])
        if size >= _GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


class HashSet:
    """Set of key hashes. It takes two to four bytes per key in addition to the hashes.

    Most of the tested keys are not in a small set. One lookup in a table of bits detects this, where a binary search
    takes about twenty steps.

    Parameters
    ----------
    hashes
        The sorted hashes of the keys, without duplicates.
    """

    def __init__(self, hashes: Words) -> None:
        self._hashes = hashes
        n_bits = max(_MIN_BITS, (_BITS_PER_KEY * len(hashes) - 1).bit_length())
        self._shift = np.uint64(64 - n_bits)
        self._bits = np.zeros((1 << n_bits) // 8, np.uint8)
        for start in range(0, len(hashes), _GROUP_ROWS):
            positions = (hashes[start : start + _GROUP_ROWS] >> self._shift).astype(np.int64)
            slots, masks = positions >> 3, np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
            firsts = _starts(slots[1:] != slots[:-1], len(slots))
            self._bits[slots[firsts]] |= np.bitwise_or.reduceat(masks, firsts)

    def __len__(self) -> int:
        return len(self._hashes)

    def holds(self, hashes: Words) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a mask of the hashes that are in the set."""
        positions = (hashes >> self._shift).astype(np.int64)
        is_member: np.ndarray[Any, np.dtype[np.bool_]] = (
            self._bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1
        ).view(np.bool_)
        rows = np.flatnonzero(is_member)
        if len(rows):
            candidates = hashes[rows]
            is_member[rows] = (
                self._hashes[np.minimum(np.searchsorted(self._hashes, candidates), len(self) - 1)] == candidates
            )
        return is_member


class BucketSums:
    """Row counts and sums of item hashes, by bucket."""

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        self._sums = np.zeros(BUCKETS, np.uint64)

    def add(self, rows: Rows) -> None:
        """Add rows."""
        buckets = buckets_of(rows.keys)
        self.counts += np.bincount(buckets, minlength=BUCKETS)
        np.add.at(self._sums, buckets, rows.items)

    def to_bytes(self) -> bytes:
        """Return counts and sums, for ``merge_bytes`` of another process."""
        return self.counts.tobytes() + self._sums.tobytes()

    def merge_bytes(self, data: bytes) -> None:
        """Add the counts and sums of another process."""
        half = len(data) // 2
        self.counts += np.frombuffer(data[:half], np.int64)
        self._sums += np.frombuffer(data[half:], np.uint64)

    def differing(self, other: BucketSums) -> list[int]:
        """Return the buckets whose rows differ from the same buckets of another side."""
        buckets: list[int] = np.flatnonzero((self.counts != other.counts) | (self._sums != other._sums)).tolist()
        return buckets


class Differences(NamedTuple):
    """Counts of rows on only one side, and of keys with different items. The ``keys`` of each kind are distinct hashes.

    If a side has several rows with one key, equal rows of both sides are matched one by one.
    """

    missing: int
    extra: int
    different: int
    missing_keys: Words
    extra_keys: Words
    different_keys: Words


def differences(source: Rows, target: Rows) -> Differences:
    """Return the differences of the rows of some buckets."""
    both = Rows.joined([source, target])
    sides = np.repeat(np.array([1, -1], np.int64), [len(source.keys), len(target.keys)])
    order = np.lexsort((both.items, both.keys))
    rows, sides = both.taken(order), sides[order]
    # Equal rows of both sides cancel out.
    starts = _starts((rows.keys[1:] != rows.keys[:-1]) | (rows.items[1:] != rows.items[:-1]), len(sides))
    surplus = np.add.reduceat(sides, starts) if len(starts) else sides
    keys = rows.keys[starts]
    starts = _starts(keys[1:] != keys[:-1], len(keys))
    left = np.add.reduceat(np.maximum(surplus, 0), starts) if len(starts) else surplus
    right = np.add.reduceat(np.maximum(-surplus, 0), starts) if len(starts) else surplus
    keys, changed = keys[starts], np.minimum(left, right)
    return Differences(
        int((left - changed).sum()),
        int((right - changed).sum()),
        int(changed.sum()),
        keys[left > changed],
        keys[right > changed],
        keys[changed > 0],
    )


def repeated(keys: Words) -> int:
    """Return the number of rows whose key is not the first of its kind. The keys are sorted in place."""
    keys.sort()
    return int((keys[1:] == keys[:-1]).sum())


def _starts(changes: np.ndarray[Any, np.dtype[np.bool_]], count: int) -> Counts:
    """Return the index of the first entry of each run of equal entries.

    ``changes`` marks entries unlike the previous one.
    """
    return np.flatnonzero(np.concatenate([[True], changes])) if count else np.zeros(0, np.int64)


def key_words(batch: pa.RecordBatch, keys: Sequence[str]) -> Words:
    """Return the word of each row's key.

    Raises
    ------
    SchemaError
        The batch has no such column, a row lacks a key attribute, or a key attribute is not S, N or B.
    DecodeError
        A number is beyond 38 digits or out of range.
    """
    parts = key_columns(batch, keys)
    words, digest = np.empty(batch.num_rows, np.uint64), ColumnDigest(keys)
    for part in parts:
        key_words = digest.add_rows(part.batch).keys
        # Each key has a value, of type S, N or B.
        words[part.rows] = np.zeros(0) if key_words is None else key_words
    return words


def row_sums(digest: ColumnDigest, batch: pa.RecordBatch, keys: Sequence[str]) -> RowSums:
    """Add rows to a digest of these keys. Return their sums with the words of their keys, which may be rescued.

    Raises
    ------
    SchemaError, DecodeError, EncodeError
        As ``ColumnDigest.add_rows`` and ``key_words``.
    """
    sums = digest.add_rows(batch)
    return sums if sums.keys is not None or not keys else sums._replace(keys=key_words(batch, keys))
