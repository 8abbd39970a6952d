"""Limits of the expansion of stored bytes: compressed text, dictionaries, runs, views, and rows that take no bytes.

Code that decompresses or repeats the contents of a file first checks the limits here, so that the memory and time for
an input are bounded by its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.kernel.arrays import offsets_of, valid_of, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MAX_RATIO = 1000
"""The limit of Deflate itself is 1,032:1. The item that compresses best has 856:1."""

FREE_BYTES = 64 * 1024 * 1024
"""The size up to which any ratio is allowed. Larger batches that expand are split into pieces of this size."""

MAX_UNSPLIT_BYTES = 512 * 1024 * 1024
"""The maximum size of data that must be decompressed in one piece."""

MAX_ROW_BYTES = 128 * 1024 * 1024
"""The maximum size of a row. Items have at most 400 KB, and the longest text of an item is 18 MB."""

# An entry without bytes still has a cost.
_ENTRY_BYTES = 8
_VIEW_WORDS = 4
_EMPTY = pa.binary(0), pa.struct([])
_EMPTY_IDS = frozenset(kind.id for kind in _EMPTY)
_EXPANDING = frozenset(
    kind.id
    for kind in (
        pa.null(),
        pa.dictionary(pa.int8(), pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
        pa.string_view(),
        pa.binary_view(),
        pa.list_(pa.int8(), 1),
    )
)


_DECOMPRESS = "decompress it before"
_AVOID_SHARING = "write its columns without dictionaries, runs and views"


def check_expansion(
    stored_bytes: int, expanded_bytes: int, max_bytes: int | None = None, advice: str = _DECOMPRESS
) -> None:
    """Raise if the expanded size is too large for the stored size.

    Parameters
    ----------
    max_bytes
        An additional limit of the expanded size.
    advice
        How to make the rows readable, for the message.

    Raises
    ------
    DecodeError
        The expanded size is too large.
    """
    if expanded_bytes > max(FREE_BYTES, MAX_RATIO * stored_bytes):
        raise DecodeError(f"it inflates to more than {MAX_RATIO} times its size: {advice}")
    if max_bytes is not None and expanded_bytes > max_bytes:
        raise DecodeError(f"it inflates to more than {max_bytes:,} bytes in one piece: {advice}")


def check_rows(stored_bytes: int, rows: int) -> None:
    """Raise if the number of rows is too large for the size of the file, before reading them.

    Raises
    ------
    DecodeError
        The number is too large.
    """
    if rows > max(FREE_BYTES, MAX_RATIO * stored_bytes):
        raise DecodeError(f"it has {rows:,} rows in {stored_bytes:,} bytes: rows with keys take more")


def may_expand(kind: Any) -> bool:
    """Return whether arrays of a type may expand to more than their size."""
    if isinstance(kind, pa.BaseExtensionType):
        return may_expand(kind.storage_type)
    if kind.id in _EXPANDING:
        return True
    if not kind.num_fields:
        return kind.id in _EMPTY_IDS and kind in _EMPTY
    return any(may_expand(kind.field(index).type) for index in range(kind.num_fields))


def bounded_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch of memory-safe arrays, in pieces of ``FREE_BYTES`` if it expands to more.

    Raises
    ------
    DecodeError
        It expands to more than ``MAX_RATIO`` times its size, or a row to more than ``MAX_ROW_BYTES``.
    """
    columns = [column for column in batch.columns if may_expand(column.type)]
    if not columns and batch.num_columns:
        yield batch
        return
    batch_bytes = batch.get_total_buffer_size()
    sizes = sum((_sizes(column, batch_bytes) for column in columns), start=_entries(batch.num_rows, batch_bytes))
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    check_expansion(batch_bytes, total, advice=_AVOID_SHARING)
    if total <= max(FREE_BYTES, 2 * batch_bytes):
        yield batch
        return
    if sizes.max() > MAX_ROW_BYTES:
        raise DecodeError(f"row {sizes.argmax()} expands to more than {MAX_ROW_BYTES:,} bytes: no item is as large")
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + FREE_BYTES, side="right")))
        yield batch.slice(start, stop - start)
        start = stop


def _entries(count: int, batch_bytes: int) -> NDArray[np.int64]:
    """Return the cost of entries without bytes. Raises if the batch is too small for their number."""
    if count > max(FREE_BYTES // _ENTRY_BYTES, batch_bytes):
        raise DecodeError(f"{count:,} entries are in {batch_bytes:,} bytes: write fewer rows at a time")
    return np.full(count, _ENTRY_BYTES, np.int64)


def _sizes(array: Any, batch_bytes: int) -> NDArray[np.int64]:  # noqa: C901, PLR0911 - one branch a layout
    """Return the size of each entry in bytes without sharing."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage, batch_bytes)
    sizes = _entries(len(array), batch_bytes)
    if types.is_null(kind) or not len(array):
        return sizes
    if types.is_dictionary(kind):
        return sizes + _take(_sizes(array.dictionary, batch_bytes), array.indices)
    if types.is_run_end_encoded(kind):
        indices = np.searchsorted(array.run_ends, np.arange(array.offset, array.offset + len(array)), side="right")
        return sizes + _sizes(array.values, batch_bytes)[indices]
    if types.is_struct(kind):
        return sum((_sizes(array.field(index), batch_bytes) for index in range(kind.num_fields)), start=sizes)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        is_valid = valid_of(array)
        starts, counts = (np.where(is_valid, numbers, 0).astype(np.int64) for numbers in (array.offsets, array.sizes))
        return sizes + _within(array.values, batch_bytes, starts, starts + counts)
    if types.is_fixed_size_list(kind):
        starts = kind.list_size * np.arange(array.offset, array.offset + len(array), dtype=np.int64)
        return sizes + _within(array.values, batch_bytes, starts, starts + kind.list_size)
    if types.is_map(kind):
        offsets = offsets_of(array).astype(np.int64)
        parts = (_within(values, batch_bytes, offsets[:-1], offsets[1:]) for values in (array.keys, array.items))
        return sum(parts, start=sizes)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets = offsets_of(array).astype(np.int64)
        return sizes + _within(array.values, batch_bytes, offsets[:-1], offsets[1:])
    if types.is_string_view(kind) or types.is_binary_view(kind):
        # A view begins with its length.
        lengths = view_of(array.buffers()[1], np.int32)[::_VIEW_WORDS][array.offset : array.offset + len(array)]
        return sizes + np.where(valid_of(array), lengths, 0)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return sizes + np.diff(offsets_of(array))
    return sizes + getattr(kind, "bit_width", 0) // 8


def _take(sizes: NDArray[np.int64], indices: Any) -> NDArray[np.int64]:
    is_valid = valid_of(indices)
    positions = np.where(is_valid, indices.fill_null(0), 0)
    return np.where(is_valid, sizes[positions], 0) if len(sizes) else np.zeros(len(indices), np.int64)


def _within(values: Any, batch_bytes: int, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of lists of values that start and end at the given indices."""
    used = starts < stops
    if not used.any():
        return np.zeros(len(starts), np.int64)
    first = int(starts[used].min())
    ends = np.append(0, np.cumsum(_sizes(values.slice(first, int(stops[used].max()) - first), batch_bytes)))
    return np.where(used, ends[np.where(used, stops - first, 0)] - ends[np.where(used, starts - first, 0)], 0)
