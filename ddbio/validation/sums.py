"""Sums of what rows show: digests and hashes, sums by bucket, columns seen, and failures of rules."""

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
    """Hold the type of each column that had a value."""

    def __init__(self) -> None:
        self.types: dict[str, tuple[str, str]] = {}
        self._schema: pa.Schema | None = None
        self._waiting: dict[int, tuple[str, tuple[str, str]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Note the columns of some rows."""
        if self._schema is None or batch.schema is not self._schema:
            if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
                self._waiting = {
                    place: (name_of_field(field), (_tag_of(field), str(field.type)))
                    for place, field in enumerate(batch.schema)
                    if field.name != RESCUE_NAME
                }
            self._schema = batch.schema
        found = [place for place in self._waiting if batch.column(place).null_count < batch.num_rows]
        for place in found:
            name, types = self._waiting.pop(place)
            self.types.setdefault(name, types)

    def merge(self, types: Mapping[str, tuple[str, str]]) -> None:
        """Add what another process has noted."""
        for name, each in types.items():
            self.types.setdefault(name, each)


def differing_columns(source: ColumnsSeen, target: ColumnsSeen) -> tuple[ColumnDifference, ...]:
    """Return the attributes that only one side has values of, and those of another type of DynamoDB."""
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
        # A time or another type that writing turns into text.
        return "S"


def _shown(types: tuple[str, str] | None) -> str | None:
    return None if types is None else f"{types[0]} ({types[1]})"


_WORD = 1 << 64


@dataclass(frozen=True)
class HashedRows:
    """Hold some rows and their hashes."""

    batch: pa.RecordBatch
    rows: Rows
    digest: Digest

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return self.batch.nbytes


@dataclass(frozen=True)
class Hashing:
    """Say by which key rows are hashed, and which share of the keys is taken; without a key the whole item is one."""

    keys: tuple[str, ...]
    sample: float


class RowHasher:
    """Hash batches one after the other; keep one per thread."""

    def __init__(self, hashing: Hashing) -> None:
        self._keys = hashing.keys
        self._limit = int(hashing.sample * _WORD)
        self._columns = ColumnDigest(hashing.keys)

    def hashed(self, batch: pa.RecordBatch) -> HashedRows:
        """Return the sampled rows of a batch, hashed.

        Raises
        ------
        SchemaError
            A row lacks its key, or a column has a type that DynamoDB has no exact form for.
        DecodeError
            A number is beyond 38 digits or out of range.
        """
        if self._limit < _WORD:
            batch = batch.filter(pa.array(key_words(batch, self._keys) < np.uint64(self._limit)))
        sums = row_sums(self._columns, batch, self._keys)
        words = sums.items[:, 0] if sums.keys is None else sums.keys
        return HashedRows(batch, rows_of(words, sums.items), sums.digest)

    def all_hashed(self, batches: Sequence[pa.RecordBatch]) -> list[HashedRows]:
        """Return several batches hashed."""
        return [self.hashed(batch) for batch in batches]


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
