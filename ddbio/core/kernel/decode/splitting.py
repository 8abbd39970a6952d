"""Print the items of a page as lines of an export, bytes as they came; look at no value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import copy32, peek, poke, special32
from ddbio.core.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.core.kernel.text import BACKSLASH, QUOTE, skip_blank

ROOM_RATIO = 5
"""Lines have no more bytes than so many times the page's: the least item, with its comma, has three."""

_SPACE, _NEWLINE, _STEP = ord(" "), ord("\n"), 32
_HEAD = np.frombuffer(b'{"Item":'.ljust(_STEP, b"\0"), np.uint8)
_HEAD_BYTES = 8


@loop
def split_items(data: Any, place: int, out: Any) -> Any:
    """Print the items behind the bracket at ``place``; return how many, or -1, and how many bytes were printed.

    ``data`` has ``PAD`` zeros beyond its end, where every search ends.
    """
    return _split_items(data, place, out)


@inner
def _split_items(data: Any, place: int, out: Any) -> Any:
    count, at = 0, 0
    place = skip_blank(data, place)
    if peek(data, place) == CLOSE_ARRAY:
        return 0, 0
    while True:
        if peek(data, place) != OPEN_OBJECT:
            return -1, at
        copy32(out, at, _HEAD, 0)
        place, at = _print_value(data, place, out, at + _HEAD_BYTES)
        if place < 0:
            return -1, at
        poke(out, at, CLOSE_OBJECT)
        poke(out, at + 1, _NEWLINE)
        at += 2
        count += 1
        place = skip_blank(data, place)
        byte = peek(data, place)
        if byte == CLOSE_ARRAY:
            return count, at
        if byte != COMMA:
            return -1, at
        place = skip_blank(data, place + 1)


@inner
def _print_value(data: Any, place: int, out: Any, at: int) -> Any:
    """Print an object without white space between its parts; return the places behind it and behind the print."""
    depth = 0
    while True:
        byte = peek(data, place)
        place += 1
        if byte <= _SPACE:
            if byte == 0:
                return -1, at
            continue
        poke(out, at, byte)
        at += 1
        if byte == QUOTE:
            place, at = _print_text(data, place, out, at)
            if place < 0:
                return -1, at
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return place, at


@inner
def _print_text(data: Any, place: int, out: Any, at: int) -> Any:
    """Print what stands before the closing quote, and that."""
    while True:
        step = special32(data, place)
        copy32(out, at, data, place)
        place += step
        at += step
        if step == _STEP:
            continue
        byte = peek(data, place)
        poke(out, at, byte)
        place += 1
        at += 1
        if byte == QUOTE:
            return place, at
        if byte != BACKSLASH:
            return -1, at
        # What is escaped is no quote that ends the text.
        poke(out, at, peek(data, place))
        place += 1
        at += 1
