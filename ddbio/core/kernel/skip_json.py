"""Check and pass over any JSON value beside a change's images; refuses duplicate names and depth beyond 64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import load64, out_of_line, peek
from ddbio.core.kernel.number import MINUS, NINE, POINT, ZERO
from ddbio.core.kernel.skip import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    OPEN_ARRAY,
    OPEN_OBJECT,
    enter,
    leave,
    read_literal,
)
from ddbio.core.kernel.state import ERROR, SIDE
from ddbio.core.kernel.text import QUOTE, read_text, skip_blank

_NULL = int.from_bytes(b"null", "little")
_FOUR_BYTES = 0xFFFFFFFF
_EXPONENTS = (ord("e"), ord("E"))
_SIGNS = (ord("+"), ord("-"))


@inner
def skip_json(work: Any, place: int) -> Any:
    """Return the place after the value that begins at ``place``, or a negative status."""
    out_of_line()
    data, levels, state = work.data, work.levels, work.state
    depth = 0
    while True:
        byte = peek(data, place)
        if byte in (OPEN_OBJECT, OPEN_ARRAY):
            place = skip_blank(data, place + 1)
            if peek(data, place) != (CLOSE_OBJECT if byte == OPEN_OBJECT else CLOSE_ARRAY):
                place = enter(data, place, byte == OPEN_OBJECT, depth, work.seen_names, levels, state)
                if place < 0:
                    return place
                depth += 1
                continue
            place += 1
        else:
            place = _skip_atom(data, place, state)
            if place < 0:
                return place
        # A value has ended: close what closes with it.
        has_ended = True
        while has_ended:
            if depth == 0:
                return place
            has_ended, place = leave(data, place, depth, work.seen_names, levels, state)
            if place < 0:
                return place
            depth -= has_ended


@inner
def is_null(data: Any, place: int) -> Any:
    """Return whether JSON's null is at ``place``."""
    return np.int64(load64(data, place)) & _FOUR_BYTES == _NULL


@inner
def _skip_atom(data: Any, place: int, state: Any) -> Any:
    if peek(data, place) == QUOTE:
        side = state[SIDE]
        _, _, place = read_text(data, place + 1, state)
        state[SIDE] = side
        return place
    literal = read_literal(data, place)
    if literal >= 0:
        return place + 5 - literal
    return place + 4 if is_null(data, place) else _skip_number(data, place)


@inner
def _skip_number(data: Any, place: int) -> Any:
    place += peek(data, place) == MINUS
    first, place = place, _behind_digits(data, place)
    if place == first or (place - first > 1 and peek(data, first) == ZERO):
        return -ERROR
    if peek(data, place) == POINT:
        first, place = place + 1, _behind_digits(data, place + 1)
        if place == first:
            return -ERROR
    if peek(data, place) in _EXPONENTS:
        place += 1
        place += peek(data, place) in _SIGNS
        first, place = place, _behind_digits(data, place)
        if place == first:
            return -ERROR
    return place


@inner
def _behind_digits(data: Any, place: int) -> Any:
    while ZERO <= peek(data, place) <= NINE:
        place += 1
    return place
