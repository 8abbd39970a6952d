"""Put texts of a column behind each other with line ends between them, as far as each begins and ends as a document.

Refuses to read behind the data: a column of Spark ends where other memory begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import copy32, peek, pointers, poke

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_STEP = 32
_OPEN, _CLOSE, _LINE_END = ord("{"), ord("}"), ord("\n")
_BLANKS = 1 << ord(" ") | 1 << ord("\t") | 1 << ord("\r") | 1 << ord("\n")


class Rows(NamedTuple):
    """Hold the texts of a column, and room for as many of them as are joined at a time."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    joined: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    """Where each row begins in what was joined last."""


@loop
def join_rows(rows: Any, row: int, most_rows: int, most_bytes: int) -> Any:
    """Join rows from ``row`` on; return the next row, and how many bytes these are.

    ``joined`` has room for ``most_bytes`` and ``PAD`` more.
    """
    end = min(row + most_rows, len(rows.offsets) - 1)
    return _join_rows(pointers(rows), len(rows.data), row, end, most_bytes)


@inner
def _join_rows(c: Any, n_bytes: int, row: int, end: int, most_bytes: int) -> Any:
    at = 0
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
    return row, at


@inner
def _is_blank(byte: int) -> Any:
    return byte <= 32 and _BLANKS >> byte & 1  # noqa: PLR2004 - a space
