"""Copying of texts into lines: the items of a page, the texts of a column, rows in another order.

The bytes of values are copied unchanged and without validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.kernel.jit import inner, int64, loop, uint8
from ddbio.items.kernel.memory import (
    PAD,
    copy32,
    copy_bytes,
    copy_bytes_unpadded,
    load64,
    out_of_line,
    peek,
    pointers,
    poke,
    special32,
)
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.items.kernel.text import BACKSLASH, QUOTE, skip_blank

if TYPE_CHECKING:
    import numpy.typing as npt

LINES_RATIO = 5
"""The most bytes of lines per byte of a page: the shortest item, with its comma, has three bytes."""

_SPACE, _NEWLINE, _STEP = ord(" "), ord("\n"), 32
_HEAD = np.frombuffer(b'{"Item":'.ljust(_STEP, b"\0"), np.uint8)
_HEAD_BYTES = 8
_SCALAR_BYTES = 8
_SCALAR, _BUT_TYPE = (
    int.from_bytes(text, "little", signed=True) for text in (b'":{"\0":"', b"\xff\xff\xff\xff\0\xff\xff\xff")
)


@loop(uint8[:], int64, uint8[:])
def split_items(data: Any, position: int, out: Any) -> Any:
    """Print the items after the bracket at ``position``; return their number, or -1, and the number of printed bytes.

    ``data`` has ``PAD`` zeros after its end, where every search stops.
    """
    return _split_items(data, position, out)


@inner
def _split_items(data: Any, position: int, out: Any) -> Any:
    count, at = 0, 0
    position = skip_blank(data, position)
    if peek(data, position) == CLOSE_ARRAY:
        return 0, 0
    while True:
        if peek(data, position) != OPEN_OBJECT:
            return -1, at
        copy32(out, at, _HEAD, 0)
        at += _HEAD_BYTES
        stop = end_of_compact(data, position)
        if stop > 0:
            at = copy_bytes(out, at, data, position, stop - position)
            position = stop
        else:
            position, at = _print_value(data, position, out, at)
            if position < 0:
                return -1, at
        poke(out, at, CLOSE_OBJECT)
        poke(out, at + 1, _NEWLINE)
        at += 2
        count += 1
        position = skip_blank(data, position)
        byte = peek(data, position)
        if byte == CLOSE_ARRAY:
            return count, at
        if byte != COMMA:
            return -1, at
        position = skip_blank(data, position + 1)


@inner
def end_of_compact(data: Any, position: int) -> Any:
    """Return the position after an object without white space between tokens, or -1."""
    depth = 0
    while True:
        byte = peek(data, position)
        position += 1
        if byte == QUOTE:
            stop = end_of_text(data, position)
            if np.int64(load64(data, stop)) & _BUT_TYPE == _SCALAR:
                # A name was followed by the opening of a text or a number.
                stop = end_of_text(data, stop + _SCALAR_BYTES)
                depth += 1
            if peek(data, stop) != QUOTE:
                return -1
            position = stop + 1
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return position
        elif byte <= _SPACE:
            return -1


@inner
def end_of_text(data: Any, position: int) -> Any:
    """Return the position of the quote that ends a text, or of a control character in it."""
    while True:
        step = special32(data, position)
        position += step
        if step < _STEP:
            if peek(data, position) != BACKSLASH:
                return position
            # An escaped quote does not end the text.
            position += 2


@inner
def _print_value(data: Any, position: int, out: Any, at: int) -> Any:
    """Print an object without white space between tokens; return the positions after it in the data and the output."""
    out_of_line()
    depth = 0
    while True:
        byte = peek(data, position)
        position += 1
        if byte <= _SPACE:
            if byte == 0:
                return -1, at
            continue
        poke(out, at, byte)
        at += 1
        if byte == QUOTE:
            position, at = _print_text(data, position, out, at)
            if position < 0:
                return -1, at
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return position, at


@inner
def _print_text(data: Any, position: int, out: Any, at: int) -> Any:
    """Print a text with its closing quote."""
    while True:
        step = special32(data, position)
        copy32(out, at, data, position)
        position += step
        at += step
        if step == _STEP:
            continue
        byte = peek(data, position)
        poke(out, at, byte)
        position += 1
        at += 1
        if byte == QUOTE:
            return position, at
        if byte != BACKSLASH:
            return -1, at
        # An escaped quote does not end the text.
        poke(out, at, peek(data, position))
        position += 1
        at += 1


_OPEN, _CLOSE, _LINE_END = ord("{"), ord("}"), ord("\n")
_BLANKS = 1 << ord(" ") | 1 << ord("\t") | 1 << ord("\r") | 1 << ord("\n")


class Rows(NamedTuple):
    """Texts of a column, and the array that they are joined in."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    joined: npt.NDArray[np.uint8]
    positions: npt.NDArray[np.int64]
    """The position of each row in the last joined text."""


@loop(Rows, int64, int64, int64)
def join_rows(rows: Any, row: int, max_rows: int, max_bytes: int) -> Any:
    """Join rows from ``row`` on; return the number of the next row, and the number of joined bytes.

    ``joined`` has ``max_bytes`` and ``PAD`` more.
    """
    end = min(row + max_rows, len(rows.offsets) - 1)
    return _join_rows(pointers(rows), len(rows.data), row, end, max_bytes)


@inner
def _join_rows(c: Any, n_bytes: int, row: int, end: int, max_bytes: int) -> Any:
    at = 0
    while row < end:
        position, stop = peek(c.offsets, row), peek(c.offsets, row + 1)
        while position < stop and _is_blank(peek(c.data, position)):
            position += 1
        while position < stop and _is_blank(peek(c.data, stop - 1)):
            stop -= 1
        length = stop - position
        if (
            length < 2  # noqa: PLR2004 - both braces
            or peek(c.data, position) != _OPEN
            or peek(c.data, stop - 1) != _CLOSE
            or at + length >= max_bytes
        ):
            break
        poke(c.positions, row, at)
        while position < stop:
            if position + _STEP <= n_bytes:
                copy32(c.joined, at, c.data, position)
                step = min(_STEP, stop - position)
            else:
                poke(c.joined, at, peek(c.data, position))
                step = 1
            position += step
            at += step
        poke(c.joined, at, _LINE_END)
        at += 1
        row += 1
    return row, at


@inner
def _is_blank(byte: int) -> Any:
    return byte <= 32 and _BLANKS >> byte & 1  # noqa: PLR2004 - a space


class _Texts(NamedTuple):
    texts: npt.NDArray[np.uint8]
    separator: npt.NDArray[np.uint8]
    out: npt.NDArray[np.uint8]


@loop(uint8[:], int64[:], int64[:], int64[:], uint8[:], uint8[:], int64[:])
def take_texts(  # noqa: PLR0913, PLR0917 - compiled code has no objects
    texts: Any, begins: Any, ends: Any, rows: Any, separator: Any, out: Any, starts: Any
) -> None:
    """Copy the texts of the given rows in this order, each followed by the separator.

    A row's text is from ``begins`` to ``ends``. ``separator`` and ``out`` are padded. ``starts`` gets the position of
    each copy, and as its last element the end of the last copy.
    """
    p = pointers(_Texts(texts, separator, out))
    at, end = 0, len(texts)
    for index in range(len(rows)):
        starts[index] = at
        first = begins[rows[index]]
        at = copy_bytes_unpadded(p.out, at, p.texts, first, ends[rows[index]] - first, end)
        at = copy_bytes(p.out, at, p.separator, 0, len(separator) - PAD)
    starts[len(rows)] = at
