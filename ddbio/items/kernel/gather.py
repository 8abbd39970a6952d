"""Reordering of texts and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.items.kernel.jit import inner, int32, int64, loop, uint8
from ddbio.items.kernel.memory import copy_bytes_unpadded, peek, pointers, poke

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class _Texts(NamedTuple):
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    out: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]


class _Lists(NamedTuple):
    offsets: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int32]


@loop(uint8[:], int32[:], int64[:], uint8[:], int32[:])
def gather_texts(data: Any, offsets: Any, order: Any, out: Any, ends: Any) -> None:
    """Write the texts of the rows in ``order`` one after the other, and the end of each.

    The text of a row is in ``data`` from ``offsets[row]`` to ``offsets[row + 1]``. ``out`` is ``PAD`` bytes longer than
    all texts.
    """
    _gather_texts(pointers(_Texts(data, offsets, order, out, ends)), len(order), len(data))


@inner
def _gather_texts(arrays: Any, count: int, data_end: int) -> None:
    data, offsets, order, out, ends = arrays.data, arrays.offsets, arrays.order, arrays.out, arrays.ends
    at = 0
    for number in range(count):
        row = peek(order, number)
        position = peek(offsets, row)
        at = copy_bytes_unpadded(out, at, data, position, peek(offsets, row + 1) - position, data_end)
        poke(ends, number, at)


@loop(int32[:], int64[:], int64[:], int32[:])
def gather_lists(offsets: Any, order: Any, elements: Any, ends: Any) -> None:
    """Write the numbers of the elements of the lists in ``order``, and the end of each list.

    The elements of a row are those from ``offsets[row]`` to ``offsets[row + 1]``.
    """
    _gather_lists(pointers(_Lists(offsets, order, elements, ends)), len(order))


@inner
def _gather_lists(arrays: Any, count: int) -> None:
    offsets, order, elements, ends = arrays.offsets, arrays.order, arrays.elements, arrays.ends
    at = 0
    for number in range(count):
        row = peek(order, number)
        for element in range(peek(offsets, row), peek(offsets, row + 1)):
            poke(elements, at, element)
            at += 1
        poke(ends, number, at)
