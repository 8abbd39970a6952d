"""Make Arrow arrays of the buffers that the loops filled, without a copy; refuses no value: all was decided before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.core.kernel import state as st
from ddbio.core.kernel.decode.rescue_rows import spread_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.core.kernel.decode.tables import Node

_OFFSET_BYTES = 4


class SparseTexts(NamedTuple):
    """Hold the texts of some rows, one behind the other."""

    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


class Assembly:
    """Build the arrays of one record batch.

    Parameters
    ----------
    plan
        A row per node, as the loops planned it.
    """

    def __init__(self, plan: npt.NDArray[np.int64], output: pa.Buffer) -> None:
        self._plan = plan.reshape(-1, st.PLAN_WIDTH).tolist()
        self._output = output

    def array(self, node: Node) -> Any:
        """Return the column of a node."""
        length, n_valid, bits, first, second, n_bytes = self._plan[node.number]
        n_null = length - n_valid
        cut = self._output.slice
        validity = cut(bits, (length + 7) // 8) if n_null else None
        match node.kind:
            case st.TEXT | st.NUMBER_TEXT | st.JSON | st.BINARY | st.NOTHING:
                buffers = [validity, cut(first, (length + 1) * _OFFSET_BYTES), cut(second, n_bytes)]
            case st.INTEGER:
                buffers = [validity, cut(first, length * 8)]
            case st.DECIMAL:
                buffers = [validity, cut(first, length * 16)]
            case st.BOOLEAN:
                buffers = [validity, cut(first, (length + 7) // 8)]
            case _:
                return self._container(node, length, validity, n_null)
        array: Any = pa.Array.from_buffers(node.stored_type, length, buffers, n_null)
        if node.stored_type is node.arrow_type:
            return array
        return _cast(array, node.arrow_type)

    def _container(self, node: Node, length: int, validity: Any, n_null: int) -> Any:
        children = [self.array(child) for child in node.children]
        if node.kind == st.STRUCT:
            return pa.Array.from_buffers(node.arrow_type, length, [validity], n_null, children=children)
        first = self._plan[node.number][st.PLAN_FIRST]
        offsets = self._output.slice(first, (length + 1) * _OFFSET_BYTES)
        if node.kind == st.MAP:
            entries = pa.StructArray.from_arrays(
                [children[1], children[0]], fields=[node.arrow_type.key_field, node.arrow_type.item_field]
            )
            return pa.Array.from_buffers(node.arrow_type, length, [validity, offsets], n_null, children=[entries])
        stored = pa.list_(node.arrow_type.field(0))
        array: Any = pa.Array.from_buffers(stored, length, [validity, offsets], n_null, children=children)
        return _cast(array, node.arrow_type)


def _cast(array: Any, arrow_type: pa.DataType) -> Any:
    if array.type == arrow_type:
        return array
    # Rounded once to a double, then to a float, as Python does.
    return array.cast(pa.float64()).cast(arrow_type) if arrow_type == pa.float32() else array.cast(arrow_type)


def sparse_texts(texts: Sequence[SparseTexts], length: int) -> Any:
    """Return a string column of ``length`` rows, null but for the given ones."""
    if not sum(len(each.rows) for each in texts):
        return pa.nulls(length, pa.string())
    rows, lengths, data = texts[0] if len(texts) == 1 else map(np.concatenate, zip(*texts, strict=True))
    offsets, bits = np.empty(length + 1, np.int32), np.zeros((length + 7) // 8, np.uint8)
    spread_texts(rows, lengths, offsets, bits)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(bits.data), pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.string(), length, buffers, length - len(rows))
