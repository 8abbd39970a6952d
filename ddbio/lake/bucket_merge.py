"""Merge of changes into the files of one bucket: a change wins if it is newer than the row with its key."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, TIME, VERSION
from ddbio.lake_formats.bucket_files import require_equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ddbio.lake_formats.bucket_files import BucketFiles
    from ddbio.lake_formats.table import LakeFile
    from ddbio.storage.staged import StagedFile

_BATCH_ROWS = 65_536
_MIN_LOOKUP_ROWS = 262_144
_NEW, _OVER_TOMBSTONE, _OVER_ITEM, _STALE = range(4)
MERGE_COLUMNS = (KEY, VERSION, DELETED)
"""The columns of the table that the merge compares."""


@dataclass(frozen=True)
class Outcome:
    """Counts of the effects of changes; each change has one effect."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        """Return the sum of the counts."""
        return Outcome(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.stale + other.stale,
        )

    @property
    def changes_nothing(self) -> bool:
        """Return whether the table stays unchanged."""
        return not (self.inserted or self.updated or self.deleted)


class BucketMerge:
    """Merge of the changes of one bucket, one per key, with the rows of the table.

    All rows of the bucket must be looked up before the winning changes are read.

    Parameters
    ----------
    floor
        Tombstones up to this time, in microseconds, may have been deleted. So changes up to this time are stale if the
        table does not have their key.
    """

    def __init__(self, changes: pa.Table, floor: int | None = None) -> None:
        # Only the searched columns are copied: there may be no memory for a copy of all changes.
        self._changes = changes
        self._keys: Any = self._changes.column(KEY).combine_chunks()
        self._versions: Any = self._changes.column(VERSION).combine_chunks()
        self._floor = floor
        self._states = np.full(changes.num_rows, _NEW, np.int8)

    @property
    def rows_per_lookup(self) -> int:
        """Return the number of rows to look up together, because each call hashes the keys of all changes."""
        return max(_MIN_LOOKUP_ROWS, len(self._states))

    def losing(self, files: BucketFiles, candidates: Sequence[LakeFile]) -> list[tuple[LakeFile, NDArray[np.bool_]]]:
        """Look up all rows of the bucket; return the files that lose rows, each with a mask of the rows to keep."""
        losing = []
        for file in candidates:
            masks = [
                self.look_up(batches) for batches in _grouped(files.read(file, MERGE_COLUMNS), self.rows_per_lookup)
            ]
            stays = np.concatenate([np.ones(0, np.bool_), *masks])
            if not stays.all():
                losing.append((file, stays))
        return losing

    def look_up(self, batches: Sequence[pa.RecordBatch]) -> NDArray[np.bool_]:
        """Return the mask of the table rows that stay unchanged."""
        keys = pa.chunked_array([batch.column(KEY) for batch in batches], self._keys.type)
        matches: Any = pc.index_in(keys, value_set=self._keys)
        indices, start, stays = matches.combine_chunks(), 0, []
        for batch in batches:
            stays.append(self._match_rows(batch, indices.slice(start, batch.num_rows)))
            start += batch.num_rows
        return np.concatenate([np.ones(0, np.bool_), *stays])

    def _match_rows(self, rows: pa.RecordBatch, indices: Any) -> NDArray[np.bool_]:
        """Return the mask of the rows that stay, from the index of the change for each row."""
        stays = np.ones(rows.num_rows, np.bool_)
        matched = np.flatnonzero(indices.is_valid().to_numpy(zero_copy_only=False))
        if not len(matched):
            return stays
        chosen: Any = pa.array(matched)
        changes = indices.take(chosen)
        had: Any = rows.column(VERSION).take(chosen)
        wins = pc.greater(self._versions.take(changes), had).to_numpy(zero_copy_only=False)
        was_deleted = rows.column(DELETED).to_numpy(zero_copy_only=False)[matched]
        states = np.where(wins, np.where(was_deleted, _OVER_TOMBSTONE, _OVER_ITEM), _STALE).astype(np.int8)
        # If the table has a key twice, the change must be newer than both rows.
        np.maximum.at(self._states, changes.to_numpy(), states)
        stays[matched[wins]] = False
        return stays

    def outcome(self) -> Outcome:
        """Return the counts of the effects of the changes."""
        states, deleted = self._settled(), self._deleted()
        wins = states != _STALE
        return Outcome(
            inserted=int((wins & ~deleted & (states != _OVER_ITEM)).sum()),
            updated=int((~deleted & (states == _OVER_ITEM)).sum()),
            deleted=int((wins & deleted).sum()),
            stale=int((~wins).sum()),
        )

    def winners(self) -> Iterator[pa.RecordBatch]:
        """Yield the winning changes in batches, because a copy of all would double the memory of the changes."""
        wins, start = self._settled() != _STALE, 0
        for batch in self._changes.to_batches(_BATCH_ROWS):
            end = start + batch.num_rows
            yield batch.filter(pa.array(wins[start:end]))
            start = end

    def _deleted(self) -> NDArray[np.bool_]:
        deleted: NDArray[np.bool_] = self._changes.column(DELETED).to_numpy()
        return deleted

    def _settled(self) -> NDArray[np.int8]:
        if self._floor is None:
            return self._states
        times = self._changes.column(TIME).to_numpy()
        return np.where((self._states == _NEW) & (times <= self._floor), _STALE, self._states).astype(np.int8)


@dataclass(frozen=True)
class MergedBucket:
    """Effect of a merge on a bucket: the removed files, and the staged files that replace them."""

    outcome: Outcome
    removed: tuple[LakeFile, ...] = ()
    added: tuple[StagedFile, ...] = ()


def merge_bucket(
    files: BucketFiles, bucket: int, candidates: Sequence[LakeFile], changes: pa.Table, floor: int | None
) -> MergedBucket:
    """Stage the merged files of a bucket; after an error, the job must be aborted.

    Only files that lose a row are rewritten.
    """
    merge = BucketMerge(changes, floor)
    losing = merge.losing(files, candidates)
    outcome = merge.outcome()
    if outcome.changes_nothing:
        return MergedBucket(outcome)
    names = [name for name in changes.schema.names if name != BUCKET or BUCKET in files.schema.names]
    if set(names) == set(files.schema.names):
        names = files.schema.names
    # Rows of the table are read with its schema, but the changes come from another source.
    require_equal(pa.schema([changes.schema.field(name) for name in names]), files.schema)
    kept = (batch for file, stays in losing for batch in files.read_rows(file, stays))
    won = (batch.select(names) for batch in merge.winners())
    added = files.write(bucket, itertools.chain(kept, won))
    return MergedBucket(outcome, tuple(file for file, _ in losing), added)


def _grouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield groups of batches with at least this number of rows, except for the last group."""
    group, count = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group
