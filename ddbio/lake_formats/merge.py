"""Merge changes into the rows of one bucket, and order its rows: a change wins if it is newer than the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.lake_columns import DELETED, KEY, TIME, VERSION
from ddbio.items.kernel.arrays import int64_array, offsets_of, valid_of, view_of
from ddbio.items.kernel.first_calls import FIRST_CALLS
from ddbio.items.kernel.gather import gather_lists, gather_texts
from ddbio.items.kernel.memory import PAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Order = npt.NDArray[np.int64]
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Rows that wait take as much memory again and again. Arrow's own pool gives it back to the system each time, which has
# to clear every page anew; this one keeps it.
_POOL = pa.system_memory_pool()


def joined(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Return arrays one behind the other."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(list(arrays), memory_pool=_POOL)


def reordered(arrays: Sequence[pa.Array[Any]], order: Order) -> pa.Array[Any]:
    """Return the values of a column in another order, which has each row once.

    Parameters
    ----------
    arrays
        The column's values, one array behind the other.
    """
    if sum(each.null_count for each in arrays) == len(order):
        nothing: pa.Array[Any] = pa.nulls(len(order), arrays[0].type, memory_pool=_POOL)
        return nothing
    # Joined just before it is read, a column is still in the processor's cache.
    column: Any = joined(arrays)
    found: pa.Array[Any] = FIRST_CALLS.answer(column.nbytes, _taken, _plainly, column, order)
    return found


def _plainly(column: Any, order: Order) -> pa.Array[Any]:
    found: pa.Array[Any] = pc.take(column, int64_array(order), memory_pool=_POOL)
    return found


def _taken(column: Any, order: Order) -> pa.Array[Any]:
    """Return some values, each at most once: texts, lists and structs by loops, in less time than Arrow takes."""
    kind, count = column.type, len(order)
    if not count or column.null_count == len(column):
        # All are alike, and Arrow has no offsets of nothing.
        return column.slice(0, count)  # type: ignore[no-any-return]
    is_text, is_list = pa.types.is_string(kind) or pa.types.is_binary(kind), pa.types.is_list(kind)
    if not (is_text or is_list or pa.types.is_struct(kind)):
        return _plainly(column, order)
    children: list[Any] = []
    buffers = [_validity(column, order)]
    if is_text or is_list:
        places: Any = offsets_of(column)
        size = int(places[-1] - places[0])
        ends = _fresh(buffers, 4 * (count + 1)).view(np.int32)
        ends[0] = 0
    if is_text:
        out = _fresh(buffers, size + PAD)
        gather_texts(view_of(column.buffers()[2], np.uint8), places, order, out, ends[1:])
    elif is_list:
        elements = np.empty(size, np.int64)
        gather_lists(places, order, elements, ends[1:])
        children = [_taken(column.values, elements[: ends[-1]])]
    else:
        children = [_taken(column.field(number), order) for number in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _validity(column: Any, order: Order) -> pa.Buffer | None:
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(valid_of(column)[order], bitorder="little").data)


def _fresh(buffers: list[pa.Buffer | None], size: int) -> npt.NDArray[np.uint8]:
    """Return so many bytes to be written, the next of an array's buffers."""
    buffer: Any = pa.allocate_buffer(size, memory_pool=_POOL)
    buffers.append(buffer)
    found: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
    return found


def warm() -> None:
    """Compile the loops."""
    _taken(pa.array([["a"]], pa.list_(pa.string())), np.zeros(1, np.int64))


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
