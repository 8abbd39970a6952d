"""Hash the rows of batches, in the thread that made them: a lane's rows are still in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.key_hashes import rows_of
from ddbio.items.key_words import key_words, row_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.items.digest import Digest
    from ddbio.items.key_hashes import Rows

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
