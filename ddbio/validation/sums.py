"""Sums of rows: digests and hashes, sums by bucket, seen columns, and failures of rules."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import key_hashes
from ddbio.items.key_hashes import BUCKETS, BucketSums, Rows, buckets_of, key_words, row_sums, rows_of
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field, normalize_schema, tag_of_field
from ddbio.validation.comparison import ColumnDifference
from ddbio.validation.quality import RuleChecker, rows_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.items.key_hashes import Rows
    from ddbio.validation.rules import QualityRules


class ColumnsSeen:
    """The type of each column that had a value."""

    def __init__(self) -> None:
        self.types: dict[str, tuple[str, str]] = {}
        self._schema: pa.Schema | None = None
        self._unseen: dict[int, tuple[str, tuple[str, str]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Record the columns of some rows."""
        if self._schema is None or batch.schema is not self._schema:
            if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
                self._unseen = {
                    index: (name_of_field(field), (_tag_of(field), str(field.type)))
                    for index, field in enumerate(batch.schema)
                    if field.name != RESCUE_NAME
                }
            self._schema = batch.schema
        indexes = [index for index in self._unseen if batch.column(index).null_count < batch.num_rows]
        for index in indexes:
            name, types = self._unseen.pop(index)
            self.types.setdefault(name, types)

    def merge(self, types: Mapping[str, tuple[str, str]]) -> None:
        """Add the columns that another process has recorded."""
        for name, tags in types.items():
            self.types.setdefault(name, tags)


def differing_columns(source: ColumnsSeen, target: ColumnsSeen) -> tuple[ColumnDifference, ...]:
    """Return the attributes that have values on one side only, or a different DynamoDB type on each side."""
    names = {*source.types, *target.types}
    pairs = ((name, source.types.get(name), target.types.get(name)) for name in sorted(names))
    return tuple(
        ColumnDifference(name, _shown(one), _shown(other))
        for name, one, other in pairs
        if one is None or other is None or one[0] != other[0]
    )


def _tag_of(field: pa.Field[Any]) -> str:
    try:
        return tag_of_field(normalize_schema(pa.schema([field])).field(0))
    except SchemaError:
        # A time or another type that is written as text.
        return "S"


def _shown(types: tuple[str, str] | None) -> str | None:
    return None if types is None else f"{types[0]} ({types[1]})"


_WORD_RANGE = 1 << 64


@dataclass(frozen=True)
class HashedRows:
    """Some rows and their hashes."""

    batch: pa.RecordBatch
    rows: Rows
    digest: Digest

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return self.batch.nbytes


@dataclass(frozen=True)
class Hashing:
    """The key by which rows are hashed, and the sampled share of keys. Without a key, the complete item is the key."""

    keys: tuple[str, ...]
    sample: float


class RowHasher:
    """Hasher of batches. Each thread needs its own."""

    def __init__(self, hashing: Hashing) -> None:
        self._keys = hashing.keys
        self._limit = int(hashing.sample * _WORD_RANGE)
        self._columns = ColumnDigest(hashing.keys)

    def hashed(self, batch: pa.RecordBatch) -> HashedRows:
        """Return the sampled rows of a batch, hashed.

        Raises
        ------
        SchemaError
            A row lacks its key, or a column has a type that DynamoDB cannot represent exactly.
        DecodeError
            A number has more than 38 digits or is out of range.
        """
        if self._limit < _WORD_RANGE:
            batch = batch.filter(pa.array(key_words(batch, self._keys) < np.uint64(self._limit)))
        sums = row_sums(self._columns, batch, self._keys)
        words = sums.items[:, 0] if sums.keys is None else sums.keys
        return HashedRows(batch, rows_of(words, sums.items), sums.digest)

    def all_hashed(self, batches: Sequence[pa.RecordBatch]) -> list[HashedRows]:
        """Return several batches hashed."""
        return [self.hashed(batch) for batch in batches]


@dataclass(frozen=True)
class Checks:
    """The rules to evaluate while rows are read. It is picklable.

    Attributes
    ----------
    keys
        The attributes that identify a row in an example.
    most_examples
        Maximum number of examples per rule.
    """

    rules: QualityRules
    keys: tuple[str, ...]
    most_examples: int


class Sums:
    """Sums of rows. The sums of several processes add up to those of all rows.

    Attributes
    ----------
    unique
        Per group of unique attributes, the rows that have all of them, by the hash of their values.
    """

    def __init__(self, checks: Checks | None = None) -> None:
        self.digest, self.seen, self.buckets = Digest(), ColumnsSeen(), BucketSums()
        self.unique_names = () if checks is None else checks.rules.unique_columns
        self.unique = [BucketSums() for _ in self.unique_names]
        self.checker = None if checks is None else RuleChecker(checks.rules, checks.keys, checks.most_examples)

    def add(self, hashed: HashedRows) -> list[Rows]:
        """Add some rows, and return those of each unique group to find repeated ones."""
        batch = hashed.batch
        self.digest.merge(hashed.digest)
        self.buckets.add(hashed.rows)
        self.seen.add(batch)
        if self.checker is not None:
            self.checker.add_batch(batch)
        unique = [unique_rows(batch, names) for names in self.unique_names]
        for sums, rows in zip(self.unique, unique, strict=True):
            sums.add(rows)
        return unique

    def add_bytes(self, data: bytes) -> None:
        """Add the sums of another process."""
        digest, types, buckets, unique, counted = pickle.loads(data)  # noqa: S301 - our own worker wrote it
        self.digest.merge(Digest(*digest))
        self.seen.merge(types)
        self.buckets.merge_bytes(buckets)
        for sums, data_of_group in zip(self.unique, unique, strict=True):
            sums.merge_bytes(data_of_group)
        if self.checker is not None:
            self.checker.merge(counted)

    def to_bytes(self) -> bytes:
        """Return the sums for ``add_bytes``."""
        unique = [sums.to_bytes() for sums in self.unique]
        counted = [] if self.checker is None else self.checker.results()
        return pickle.dumps((self.digest.as_tuple(), self.seen.types, self.buckets.to_bytes(), unique, counted))


def unique_rows(batch: pa.RecordBatch, names: Sequence[str]) -> Rows:
    """Return the rows with a value of each attribute, by the hash of these values."""
    present = rows_with(batch, names)
    hashes = key_hashes(present, names) if present.num_rows else np.zeros(0, np.uint64)
    return rows_of(hashes, np.zeros((len(hashes), 2), np.uint64))


def rows_in(hashed: HashedRows, buckets: np.ndarray, names: Sequence[str] | None) -> Rows:
    """Return the rows of chosen buckets by their keys, or by the values of unique attributes."""
    rows = hashed.rows if names is None else unique_rows(hashed.batch, names)
    return rows.taken(buckets[buckets_of(rows.keys)])


def chosen_buckets(buckets: Sequence[int]) -> np.ndarray:
    """Return a flag for each bucket, for ``rows_in``."""
    chosen = np.zeros(BUCKETS, np.bool_)
    chosen[list(buckets)] = True
    return chosen
