"""Merge changes into the files of one bucket: a change wins if it is newer than the row of its key."""

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
_LOOKED_ROWS = 262_144
_NEW, _OVER_TOMBSTONE, _OVER_ITEM, _STALE = range(4)
LOOKED_AT = (KEY, VERSION, DELETED)
"""The columns of the table's rows that decide."""


@dataclass(frozen=True)
class Outcome:
    """Count what changes do: each is one of these."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        """Return the sum."""
        return Outcome(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.stale + other.stale,
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.inserted or self.updated or self.deleted)


class BucketMerge:
    """Decide what becomes of the changes of one bucket, one for each key, and of the rows that the table has.

    All rows of the bucket are looked at before the changes that win are asked for.

    Parameters
    ----------
    floor
        Tombstones up to this time, in microseconds, may be gone: changes up to it of keys that the table does not have
        are stale.
    """

    def __init__(self, changes: pa.Table, floor: int | None = None) -> None:
        # Only what is searched is copied: of a bucket with most of the changes there may be no room for more.
        self._changes = changes
        self._keys: Any = self._changes.column(KEY).combine_chunks()
        self._versions: Any = self._changes.column(VERSION).combine_chunks()
        self._floor = floor
        self._states = np.full(changes.num_rows, _NEW, np.int8)

    @property
    def rows_at_once(self) -> int:
        """How many rows should be looked at together: for each call the keys of all changes are hashed."""
        return max(_LOOKED_ROWS, len(self._states))

    def losing(self, files: BucketFiles, found: Sequence[LakeFile]) -> list[tuple[LakeFile, NDArray[np.bool_]]]:
        """Look at all rows of the bucket; return the files that lose rows, and which of their rows stay."""
        losing = []
        for file in found:
            masks = [self.look(each) for each in _together(files.read(file, LOOKED_AT), self.rows_at_once)]
            stays = np.concatenate([np.ones(0, np.bool_), *masks])
            if not stays.all():
                losing.append((file, stays))
        return losing

    def look(self, batches: Sequence[pa.RecordBatch]) -> NDArray[np.bool_]:
        """Return which of some rows of the table stay as they are."""
        keys = pa.chunked_array([batch.column(KEY) for batch in batches], self._keys.type)
        found: Any = pc.index_in(keys, value_set=self._keys)
        places, start, stays = found.combine_chunks(), 0, []
        for batch in batches:
            stays.append(self._met(batch, places.slice(start, batch.num_rows)))
            start += batch.num_rows
        return np.concatenate([np.ones(0, np.bool_), *stays])

    def _met(self, rows: pa.RecordBatch, places: Any) -> NDArray[np.bool_]:
        """Return which rows stay, given which change there is for each."""
        stays = np.ones(rows.num_rows, np.bool_)
        met = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        if not len(met):
            return stays
        chosen: Any = pa.array(met)
        changes = places.take(chosen)
        had: Any = rows.column(VERSION).take(chosen)
        wins = pc.greater(self._versions.take(changes), had).to_numpy(zero_copy_only=False)
        was_deleted = rows.column(DELETED).to_numpy(zero_copy_only=False)[met]
        found = np.where(wins, np.where(was_deleted, _OVER_TOMBSTONE, _OVER_ITEM), _STALE).astype(np.int8)
        # A key that the table has twice: the change must be newer than both.
        np.maximum.at(self._states, changes.to_numpy(), found)
        stays[met[wins]] = False
        return stays

    def outcome(self) -> Outcome:
        """Return what the changes do."""
        states, deleted = self._settled(), self._deleted()
        wins = states != _STALE
        return Outcome(
            inserted=int((wins & ~deleted & (states != _OVER_ITEM)).sum()),
            updated=int((~deleted & (states == _OVER_ITEM)).sum()),
            deleted=int((wins & deleted).sum()),
            stale=int((~wins).sum()),
        )

    def winners(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes that win, batch by batch: a copy of all takes as much memory as the changes."""
        wins, start = self._settled() != _STALE, 0
        for batch in self._changes.to_batches(_BATCH_ROWS):
            end = start + batch.num_rows
            yield batch.filter(pa.array(wins[start:end]))
            start = end

    def _deleted(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._changes.column(DELETED).to_numpy()
        return found

    def _settled(self) -> NDArray[np.int8]:
        if self._floor is None:
            return self._states
        times = self._changes.column(TIME).to_numpy()
        return np.where((self._states == _NEW) & (times <= self._floor), _STALE, self._states).astype(np.int8)


@dataclass(frozen=True)
class MergedBucket:
    """Say what a merge does to a bucket: which files go, and what is staged in their place."""

    outcome: Outcome
    removed: tuple[LakeFile, ...] = ()
    added: tuple[StagedFile, ...] = ()


def merge_bucket(
    files: BucketFiles, bucket: int, found: Sequence[LakeFile], changes: pa.Table, floor: int | None
) -> MergedBucket:
    """Stage the files of a bucket with the changes in them; if it fails, the job has to be aborted.

    Only the files that lose a row are written anew.
    """
    merge = BucketMerge(changes, floor)
    losing = merge.losing(files, found)
    outcome = merge.outcome()
    if outcome.changes_nothing:
        return MergedBucket(outcome)
    names = [name for name in changes.schema.names if name != BUCKET or BUCKET in files.schema.names]
    if set(names) == set(files.schema.names):
        names = files.schema.names
    # Rows of the table are read by its own schema; these come from elsewhere.
    require_equal(pa.schema([changes.schema.field(name) for name in names]), files.schema)
    kept = (batch for file, stays in losing for batch in files.read_rows(file, stays))
    won = (batch.select(names) for batch in merge.winners())
    added = files.write(bucket, itertools.chain(kept, won))
    return MergedBucket(outcome, tuple(file for file, _ in losing), added)


def _together(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in groups of at least so many rows, but for the last."""
    group, count = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group
