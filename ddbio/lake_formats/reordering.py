"""Bring the values of columns into another order, in less time than Arrow takes."""

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
    return _taken(column, order)


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
