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
    places: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    out: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]


class _Lists(NamedTuple):
    places: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int32]


@loop(uint8[:], int32[:], int64[:], uint8[:], int32[:])
def gather_texts(data: Any, places: Any, order: Any, out: Any, ends: Any) -> None:
    """Write the texts of the rows in ``order`` one after the other, and the end of each.

    The text of a row is in ``data`` from ``places[row]`` to ``places[row + 1]``. ``out`` is ``PAD`` bytes longer than
    all texts.
    """
    _gather_texts(pointers(_Texts(data, places, order, out, ends)), len(order), len(data))


@inner
def _gather_texts(arrays: Any, count: int, data_end: int) -> None:
    data, places, order, out, ends = arrays.data, arrays.places, arrays.order, arrays.out, arrays.ends
    at = 0
    for number in range(count):
        row = peek(order, number)
        place = peek(places, row)
        at = copy_bytes_unpadded(out, at, data, place, peek(places, row + 1) - place, data_end)
        poke(ends, number, at)


@loop(int32[:], int64[:], int64[:], int32[:])
def gather_lists(places: Any, order: Any, elements: Any, ends: Any) -> None:
    """Write the numbers of the elements of the lists in ``order``, and the end of each list.

    The elements of a row are those from ``places[row]`` to ``places[row + 1]``.
    """
    _gather_lists(pointers(_Lists(places, order, elements, ends)), len(order))


@inner
def _gather_lists(arrays: Any, count: int) -> None:
    places, order, elements, ends = arrays.places, arrays.order, arrays.elements, arrays.ends
    at = 0
    for number in range(count):
        row = peek(order, number)
        for element in range(peek(places, row), peek(places, row + 1)):
            poke(elements, at, element)
            at += 1
        poke(ends, number, at)
