"""Columns of texts that only some rows have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.items.kernel.jit import int32, int64, loop, uint8
from ddbio.items.kernel.memory import peek, poke

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@loop(int64[:], int64[:], int32[:], uint8[:])
def spread_texts(rows: Any, lengths: Any, offsets: Any, bits: Any) -> None:
    """Fill the offsets and the validity of a column in which only the given rows, in ascending order, have a text.

    ``bits`` are zeros, one for each row of ``offsets``.
    """
    at, total = 0, 0
    for index in range(len(rows)):
        row = peek(rows, index)
        for before in range(at, row + 1):
            poke(offsets, before, total)
        at = row + 1
        total += peek(lengths, index)
        poke(bits, row >> 3, peek(bits, row >> 3) | 1 << (row & 7))
    for before in range(at, len(offsets)):
        poke(offsets, before, total)


class RowTexts(NamedTuple):
    """Texts of some rows, one after the other."""

    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


def row_texts(texts: Sequence[RowTexts], length: int) -> Any:
    """Return a string column of ``length`` rows that is null except in the given rows."""
    if not sum(len(text.rows) for text in texts):
        return pa.nulls(length, pa.string())
    rows, lengths, data = texts[0] if len(texts) == 1 else map(np.concatenate, zip(*texts, strict=True))
    offsets, bits = np.empty(length + 1, np.int32), np.zeros((length + 7) // 8, np.uint8)
    spread_texts(rows, lengths, offsets, bits)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(bits.data), pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.string(), length, buffers, length - len(rows))
