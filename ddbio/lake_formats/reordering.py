"""Reordering of column values, faster than with Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.kernel.arrays import int64_array, offsets_of, valid_of, view_of
from ddbio.items.kernel.gather import gather_lists, gather_texts
from ddbio.items.kernel.memory import PAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Order = npt.NDArray[np.int64]

# Buffered rows repeatedly need the same amount of memory. Arrow's own pool returns it to the system each time, which
# then has to clear every page again; this pool keeps it.
_POOL = pa.system_memory_pool()


def concatenated(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Return the concatenation of arrays."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(list(arrays), memory_pool=_POOL)


def reordered(arrays: Sequence[pa.Array[Any]], order: Order) -> pa.Array[Any]:
    """Return the values of a column in another order, which contains each row once.

    Parameters
    ----------
    arrays
        The arrays of the column, in order.
    """
    if sum(array.null_count for array in arrays) == len(order):
        nothing: pa.Array[Any] = pa.nulls(len(order), arrays[0].type, memory_pool=_POOL)
        return nothing
    # Concatenated just before it is read, a column is still in the processor's cache.
    column: Any = concatenated(arrays)
    return _take_values(column, order)


def _take_with_arrow(column: Any, order: Order) -> pa.Array[Any]:
    taken: pa.Array[Any] = pc.take(column, int64_array(order), memory_pool=_POOL)
    return taken


def _take_values(column: Any, order: Order) -> pa.Array[Any]:
    """Return some values, each at most once: compiled loops copy texts, lists and structs faster than Arrow."""
    kind, count = column.type, len(order)
    if not count or column.null_count == len(column):
        # All values are null, and Arrow arrays of nulls may have no offsets.
        return column.slice(0, count)  # type: ignore[no-any-return]
    is_text, is_list = pa.types.is_string(kind) or pa.types.is_binary(kind), pa.types.is_list(kind)
    if not (is_text or is_list or pa.types.is_struct(kind)):
        return _take_with_arrow(column, order)
    children: list[Any] = []
    buffers = [_validity(column, order)]
    if is_text or is_list:
        offsets: Any = offsets_of(column)
        size = int(offsets[-1] - offsets[0])
        ends = _new_buffer(buffers, 4 * (count + 1)).view(np.int32)
        ends[0] = 0
    if is_text:
        out = _new_buffer(buffers, size + PAD)
        gather_texts(view_of(column.buffers()[2], np.uint8), offsets, order, out, ends[1:])
    elif is_list:
        elements = np.empty(size, np.int64)
        gather_lists(offsets, order, elements, ends[1:])
        children = [_take_values(column.values, elements[: ends[-1]])]
    else:
        children = [_take_values(column.field(number), order) for number in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _validity(column: Any, order: Order) -> pa.Buffer | None:
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(valid_of(column)[order], bitorder="little").data)


def _new_buffer(buffers: list[pa.Buffer | None], size: int) -> npt.NDArray[np.uint8]:
    """Return a new buffer of this size as an array, and add it to the buffers."""
    buffer: Any = pa.allocate_buffer(size, memory_pool=_POOL)
    buffers.append(buffer)
    view: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
    return view
