"""Put texts of a column behind each other with line ends between them, as far as each begins and ends as a document.

Refuses to read behind the data: a column of Spark ends where other memory begins. Texts that another has joined are
looked at where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import copy32, equal32, load64, lowest_bit, peek, pointers, poke

if TYPE_CHECKING:
    import numpy.typing as npt

_STEP, _WORD_BYTES = 32, 8
_OPEN, _CLOSE, _LINE_END = ord("{"), ord("}"), ord("\n")
_BLANKS = 1 << ord(" ") | 1 << ord("\t") | 1 << ord("\r") | 1 << ord("\n")
_LINE_ENDS = np.full(_STEP, _LINE_END, np.uint8)
_NOT_ASCII = np.uint64(0x8080808080808080)


class Rows(NamedTuple):
    """Hold the texts of a column, and room for as many of them as are joined at a time."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    joined: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    """Where each row begins in what was joined last."""


class Lines(NamedTuple):
    """Hold texts with a line end between each two, and as many line ends as one step looks at."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.uint8] = _LINE_ENDS


@loop
def are_documents(lines: Any, count: int) -> Any:
    """Return whether the data is so many lines, each of which begins and ends as a document."""
    return _are_documents(pointers(lines), len(lines.data), count)


@inner
def _are_documents(c: Any, n_bytes: int, count: int) -> Any:
    if n_bytes < 2 or peek(c.data, 0) != _OPEN or peek(c.data, n_bytes - 1) != _CLOSE:  # noqa: PLR2004 - both braces
        return False
    place, found = 0, 1
    while place + _STEP <= n_bytes:
        ends = np.uint64(equal32(c.data, place, c.ends, 0))
        while ends:
            if not _is_between_documents(c, place + lowest_bit(ends)):
                return False
            found += 1
            ends &= ends - np.uint64(1)
        place += _STEP
    while place < n_bytes:
        if peek(c.data, place) == _LINE_END:
            if not _is_between_documents(c, place):
                return False
            found += 1
        place += 1
    return found == count


@inner
def _is_between_documents(c: Any, place: int) -> Any:
    return peek(c.data, place - 1) == _CLOSE and peek(c.data, place + 1) == _OPEN


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
