"""Put texts of a column behind each other with line ends between them, as far as each begins and ends as a document.

Refuses to read behind the data: a column of Spark ends where other memory begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import copy32, load64, peek, pointers, poke

if TYPE_CHECKING:
    import numpy.typing as npt

_STEP, _WORD_BYTES = 32, 8
_OPEN, _CLOSE, _LINE_END = ord("{"), ord("}"), ord("\n")
_BLANKS = 1 << ord(" ") | 1 << ord("\t") | 1 << ord("\r") | 1 << ord("\n")
_NOT_ASCII = np.uint64(0x8080808080808080)


class Rows(NamedTuple):
    """Hold the texts of a column, and room for as many of them as are joined at a time."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    joined: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    """Where each row begins in what was joined last."""


@loop
def join_rows(rows: Any, row: int, most_rows: int, most_bytes: int) -> Any:
    """Join rows from ``row`` on; return the next row, how many bytes these are, and whether all are ASCII.

    ``joined`` has room for ``most_bytes`` and ``PAD`` more.
    """
    end = min(row + most_rows, len(rows.offsets) - 1)
    return _join_rows(pointers(rows), len(rows.data), row, end, most_bytes)


@inner
def _join_rows(c: Any, n_bytes: int, row: int, end: int, most_bytes: int) -> Any:
    at, seen = 0, np.uint64(0)
    while row < end:
        place, stop = peek(c.offsets, row), peek(c.offsets, row + 1)
        while place < stop and _is_blank(peek(c.data, place)):
            place += 1
        while place < stop and _is_blank(peek(c.data, stop - 1)):
            stop -= 1
        length = stop - place
        if length < 2 or peek(c.data, place) != _OPEN or peek(c.data, stop - 1) != _CLOSE or at + length >= most_bytes:  # noqa: PLR2004 - both braces
            break
        poke(c.places, row, at)
        while place < stop:
            if place + _STEP <= n_bytes:
                copy32(c.joined, at, c.data, place)
                step = min(_STEP, stop - place)
            else:
                poke(c.joined, at, peek(c.data, place))
                step = 1
            place += step
            at += step
        poke(c.joined, at, _LINE_END)
        at += 1
        row += 1
    for ahead in range(_WORD_BYTES):
        poke(c.joined, at + ahead, _LINE_END)
    for word in range(0, at, _WORD_BYTES):
        seen |= load64(c.joined, word)
    return row, at, seen & _NOT_ASCII == 0


@inner
def _is_blank(byte: int) -> Any:
    return byte <= 32 and _BLANKS >> byte & 1  # noqa: PLR2004 - a space
