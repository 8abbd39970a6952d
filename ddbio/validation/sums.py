"""Add up what rows show, in one process or in many: digests, sums by bucket, columns seen, and failures of rules."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.items.digest import Digest
from ddbio.items.item_key import key_hashes
from ddbio.items.key_hashes import BUCKETS, BucketSums, Rows, buckets_of, rows_of
from ddbio.validation.columns import ColumnsSeen
from ddbio.validation.quality import RuleChecker, rows_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ddbio.options.quality import QualityRules
    from ddbio.validation.hashing import HashedRows


@dataclass(frozen=True)
class Checks:
    """Say which rules are evaluated while rows pass; a picklable value.

    Attributes
    ----------
    keys
        The attributes that name a row in an example.
    most_examples
        Examples to keep of each rule.
    """

    rules: QualityRules
    keys: tuple[str, ...]
    most_examples: int


class Sums:
    """Add up what rows show; the sums of several processes make those of all rows.

    Attributes
    ----------
    unique
        Of each group of attributes that must be unique, the rows that have all of them, by the hash of their values.
    """

    def __init__(self, checks: Checks | None = None) -> None:
        self.digest, self.seen, self.buckets = Digest(), ColumnsSeen(), BucketSums()
        self.unique_names = () if checks is None else checks.rules.unique_columns
        self.unique = [BucketSums() for _ in self.unique_names]
        self.checker = None if checks is None else RuleChecker(checks.rules, checks.keys, checks.most_examples)

    def add(self, hashed: HashedRows) -> list[Rows]:
        """Add some rows; return those of each unique group, for whoever looks for repeated ones."""
        batch = hashed.batch
        self.digest.merge(hashed.digest)
        self.buckets.add(hashed.rows)
        self.seen.add(batch)
        if self.checker is not None:
            self.checker.add_batch(batch)
        found = [unique_rows(batch, names) for names in self.unique_names]
        for sums, rows in zip(self.unique, found, strict=True):
            sums.add(rows)
        return found

    def add_bytes(self, data: bytes) -> None:
        """Add what another process has added up."""
        digest, types, buckets, unique, counted = pickle.loads(data)  # noqa: S301 - our own worker wrote it
        self.digest.merge(Digest(*digest))
        self.seen.merge(types)
        self.buckets.merge_bytes(buckets)
        for sums, each in zip(self.unique, unique, strict=True):
            sums.merge_bytes(each)
        if self.checker is not None:
            self.checker.merge(counted)

    def to_bytes(self) -> bytes:
        """Return the sums for ``add_bytes``."""
        unique = [sums.to_bytes() for sums in self.unique]
        counted = [] if self.checker is None else self.checker.results()
        return pickle.dumps((self.digest.as_tuple(), self.seen.types, self.buckets.to_bytes(), unique, counted))


def unique_rows(batch: pa.RecordBatch, names: Sequence[str]) -> Rows:
    """Return the rows that have a value of each attribute, by the hash of these values."""
    present = rows_with(batch, names)
    found = key_hashes(present, names) if present.num_rows else np.zeros(0, np.uint64)
    return rows_of(found, np.zeros((len(found), 2), np.uint64))


def rows_in(hashed: HashedRows, buckets: np.ndarray, names: Sequence[str] | None) -> Rows:
    """Return the rows of chosen buckets by their keys, or by the values of attributes that must be unique."""
    rows = hashed.rows if names is None else unique_rows(hashed.batch, names)
    return rows.taken(buckets[buckets_of(rows.keys)])


def chosen_buckets(buckets: Sequence[int]) -> np.ndarray:
    """Return a flag for each bucket, for ``rows_in``."""
    chosen = np.zeros(BUCKETS, np.bool_)
    chosen[list(buckets)] = True
    return chosen
