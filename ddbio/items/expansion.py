"""Limit what few stored bytes may become: compressed text, dictionaries, runs, views, and rows that take no bytes.

Whoever inflates or repeats what a file holds asks here first, so that no input takes more memory or time than its size
explains.
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
"""Deflate itself ends at 1,032:1; the item that compresses best comes to 856:1."""

FREE_BYTES = 64 * 1024 * 1024
"""What expands to no more than this may do so at any ratio; larger batches that expand are cut into such pieces."""

MOST_WHOLE_BYTES = 512 * 1024 * 1024
"""What can only be inflated at once may become so much."""

MOST_ROW_BYTES = 128 * 1024 * 1024
"""A row that is larger is none: items have 400 KB, and the longest text of one is 18 MB."""

# An entry that takes no bytes costs some all the same.
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
_WRITE_PLAINLY = "write its columns without dictionaries, runs and views"


def check_expansion(
    stored_bytes: int, expanded_bytes: int, most_bytes: int | None = None, advice: str = _DECOMPRESS
) -> None:
    """Check that stored bytes may become so many.

    Parameters
    ----------
    most_bytes
        A limit whatever is stored.
    advice
        What makes the rows readable, for the message.

    Raises
    ------
    DecodeError
        They may not.
    """
    if expanded_bytes > max(FREE_BYTES, MAX_RATIO * stored_bytes):
        raise DecodeError(f"it inflates to more than {MAX_RATIO} times its size: {advice}")
    if most_bytes is not None and expanded_bytes > most_bytes:
        raise DecodeError(f"it inflates to more than {most_bytes:,} bytes at once: {advice}")


def check_rows(stored_bytes: int, rows: int) -> None:
    """Check that a file may have so many rows, before they are counted by reading them.

    Raises
    ------
    DecodeError
        It may not.
    """
    if rows > max(FREE_BYTES, MAX_RATIO * stored_bytes):
        raise DecodeError(f"it says that it has {rows:,} rows in {stored_bytes:,} bytes: rows with keys take more")


def may_expand(kind: Any) -> bool:
    """Return whether arrays of a type may stand for more than they hold."""
    if isinstance(kind, pa.BaseExtensionType):
        return may_expand(kind.storage_type)
    if kind.id in _EXPANDING:
        return True
    if not kind.num_fields:
        return kind.id in _EMPTY_IDS and kind in _EMPTY
    return any(may_expand(kind.field(place).type) for place in range(kind.num_fields))


def bounded_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch of arrays that stay within their memory; in pieces of ``FREE_BYTES`` if it expands to more.

    Raises
    ------
    DecodeError
        It expands to more than ``MAX_RATIO`` times its size, or a row to more than ``MOST_ROW_BYTES``.
    """
    columns = [column for column in batch.columns if may_expand(column.type)]
    if not columns and batch.num_columns:
        yield batch
        return
    held = batch.get_total_buffer_size()
    sizes = sum((_sizes(column, held) for column in columns), start=_entries(batch.num_rows, held))
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    check_expansion(held, total, advice=_WRITE_PLAINLY)
    if total <= max(FREE_BYTES, 2 * held):
        yield batch
        return
    if sizes.max() > MOST_ROW_BYTES:
        raise DecodeError(f"row {sizes.argmax()} expands to more than {MOST_ROW_BYTES:,} bytes: no item is as large")
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + FREE_BYTES, side="right")))
        yield batch.slice(start, stop - start)
        start = stop


def _entries(count: int, held: int) -> NDArray[np.int64]:
    """Return what so many entries cost that take no bytes; refuse more of them than all bytes together explain."""
    if count > max(FREE_BYTES // _ENTRY_BYTES, held):
        raise DecodeError(f"{count:,} entries are held in {held:,} bytes: write fewer rows at once")
    return np.full(count, _ENTRY_BYTES, np.int64)


def _sizes(array: Any, held: int) -> NDArray[np.int64]:  # noqa: C901, PLR0911 - one branch a layout
    """Return how many bytes each entry takes once nothing is shared."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage, held)
    sizes = _entries(len(array), held)
    if types.is_null(kind) or not len(array):
        return sizes
    if types.is_dictionary(kind):
        return sizes + _taken(_sizes(array.dictionary, held), array.indices)
    if types.is_run_end_encoded(kind):
        places = np.searchsorted(array.run_ends, np.arange(array.offset, array.offset + len(array)), side="right")
        return sizes + _sizes(array.values, held)[places]
    if types.is_struct(kind):
        return sum((_sizes(array.field(place), held) for place in range(kind.num_fields)), start=sizes)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        present = valid_of(array)
        starts, counts = (np.where(present, each, 0).astype(np.int64) for each in (array.offsets, array.sizes))
        return sizes + _within(array.values, held, starts, starts + counts)
    if types.is_fixed_size_list(kind):
        starts = kind.list_size * np.arange(array.offset, array.offset + len(array), dtype=np.int64)
        return sizes + _within(array.values, held, starts, starts + kind.list_size)
    if types.is_map(kind):
        offsets = offsets_of(array).astype(np.int64)
        parts = (_within(each, held, offsets[:-1], offsets[1:]) for each in (array.keys, array.items))
        return sum(parts, start=sizes)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets = offsets_of(array).astype(np.int64)
        return sizes + _within(array.values, held, offsets[:-1], offsets[1:])
    if types.is_string_view(kind) or types.is_binary_view(kind):
        # A view begins with its length.
        lengths = view_of(array.buffers()[1], np.int32)[::_VIEW_WORDS][array.offset : array.offset + len(array)]
        return sizes + np.where(valid_of(array), lengths, 0)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return sizes + np.diff(offsets_of(array))
    return sizes + getattr(kind, "bit_width", 0) // 8


def _taken(sizes: NDArray[np.int64], indices: Any) -> NDArray[np.int64]:
    present = valid_of(indices)
    places = np.where(present, indices.fill_null(0), 0)
    return np.where(present, sizes[places], 0) if len(sizes) else np.zeros(len(indices), np.int64)


def _within(values: Any, held: int, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of lists of values, by the places where each begins and ends."""
    used = starts < stops
    if not used.any():
        return np.zeros(len(starts), np.int64)
    first = int(starts[used].min())
    ends = np.append(0, np.cumsum(_sizes(values.slice(first, int(stops[used].max()) - first), held)))
    return np.where(used, ends[np.where(used, stops - first, 0)] - ends[np.where(used, starts - first, 0)], 0)
