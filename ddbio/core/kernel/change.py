"""Walk the members of a change line, in any order; refuses what is not exactly one change of an item."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import load64, out_of_line, peek, poke
from ddbio.core.kernel.number import MINUS, ZERO, read_digits
from ddbio.core.kernel.skip import CLOSE_OBJECT, COLON, COMMA, OPEN_OBJECT
from ddbio.core.kernel.state import CHANGE_MEMBERS, ERROR, KEYS, NEW_IMAGE, OLD_IMAGE, WRITE_TIME
from ddbio.core.kernel.text import QUOTE, read_text, skip_blank


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


_METADATA, _NEW_IMAGE, _OLD_IMAGE = _word(b"Metadata"), _word(b"NewImage"), _word(b"OldImage")
_KEYS, _LONG, _SHORT = _word(b"Keys"), 8, 4
_TIME_NAME = b"WriteTimestampMicros"
_TIME_START, _TIME_MIDDLE, _TIME_END = _word(_TIME_NAME[:8]), _word(_TIME_NAME[8:16]), _word(_TIME_NAME[16:])
_TIME_LENGTH = len(_TIME_NAME)
_FOUR_BYTES = 0xFFFFFFFF
_LETTER_N = ord("N")
_MAX_DIGITS = 18
_REQUIRED = 1 << WRITE_TIME | 1 << KEYS


@inner
def next_image(work: Any, place: int, row: int, is_inside: int) -> Any:
    """Return where a line's next image begins, and its node; or where the line has ended, and 0."""
    out_of_line()
    data, state = work.data, work.state
    if is_inside == 0:
        if peek(data, place) != OPEN_OBJECT:
            return -ERROR, 0
        state[CHANGE_MEMBERS] = 0
        place += 1
    else:
        place, is_end = _behind_member(data, place, state)
        if place < 0 or is_end:
            return place, 0
    while True:
        place = skip_blank(data, place)
        if peek(data, place) != QUOTE:
            return -ERROR, 0
        start, length, place = read_text(data, place + 1, state)
        if place < 0:
            return place, 0
        node = _member(data, start, length)
        if node == 0 or state[CHANGE_MEMBERS] >> node & 1:
            return -ERROR, 0
        state[CHANGE_MEMBERS] |= 1 << node
        place = _behind_colon(data, place)
        if place < 0:
            return place, 0
        poke(work.valid, peek(work.valid_place, node) + row, 1)
        if node != WRITE_TIME:
            return place, node
        time, place = _read_metadata(data, place, state)
        if place < 0:
            return place, 0
        poke(work.values, peek(work.value_place, node) + row, time)
        place, is_end = _behind_member(data, place, state)
        if place < 0 or is_end:
            return place, 0


@inner
def _member(data: Any, start: int, length: int) -> Any:
    word = np.int64(load64(data, start))
    if length == _SHORT:
        return KEYS if word & _FOUR_BYTES == _KEYS else 0
    if length != _LONG:
        return 0
    if word == _NEW_IMAGE:
        return NEW_IMAGE
    if word == _OLD_IMAGE:
        return OLD_IMAGE
    return WRITE_TIME if word == _METADATA else 0


@inner
def _behind_member(data: Any, place: int, state: Any) -> Any:
    """Return the place behind the comma or brace after a member, and whether the line has ended there."""
    place = skip_blank(data, place)
    byte = peek(data, place)
    if byte == COMMA:
        return place + 1, False
    if byte != CLOSE_OBJECT or state[CHANGE_MEMBERS] & _REQUIRED != _REQUIRED:
        return -ERROR, False
    return place + 1, True


@inner
def _behind_colon(data: Any, place: int) -> Any:
    place = skip_blank(data, place)
    return skip_blank(data, place + 1) if peek(data, place) == COLON else -ERROR


@inner
def _read_metadata(data: Any, place: int, state: Any) -> Any:
    """Return the time that a line's metadata holds and nothing else, and the place after it."""
    if peek(data, place) != OPEN_OBJECT:
        return 0, -ERROR
    place = skip_blank(data, place + 1)
    if peek(data, place) != QUOTE:
        return 0, -ERROR
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return 0, place
    if (
        length != _TIME_LENGTH
        or np.int64(load64(data, start)) != _TIME_START
        or np.int64(load64(data, start + 8)) != _TIME_MIDDLE
        or np.int64(load64(data, start + 16)) & _FOUR_BYTES != _TIME_END
    ):
        return 0, -ERROR
    place = _behind_colon(data, place)
    if place < 0:
        return 0, place
    is_tagged = peek(data, place) == OPEN_OBJECT
    if is_tagged:
        place = skip_blank(data, place + 1)
        if peek(data, place) != QUOTE or peek(data, place + 1) != _LETTER_N or peek(data, place + 2) != QUOTE:
            return 0, -ERROR
        place = _behind_colon(data, place + 3)
        if place < 0:
            return 0, place
    time, place = _read_time(data, place, is_tagged)
    if place < 0:
        return 0, place
    if is_tagged:
        place = skip_blank(data, place)
        if peek(data, place) != CLOSE_OBJECT:
            return 0, -ERROR
        place += 1
    place = skip_blank(data, place)
    return (time, place + 1) if peek(data, place) == CLOSE_OBJECT else (0, -ERROR)


@inner
def _read_time(data: Any, place: int, is_tagged: bool) -> Any:  # noqa: FBT001 - compiled code
    is_text = peek(data, place) == QUOTE
    if is_tagged and not is_text:
        return 0, -ERROR
    place += is_text
    negative = peek(data, place) == MINUS
    first = place + negative
    magnitude, stop = read_digits(data, first)
    if stop == first or stop - first > _MAX_DIGITS:
        return 0, -ERROR
    if is_text:
        if peek(data, stop) != QUOTE:
            return 0, -ERROR
    elif stop - first > 1 and peek(data, first) == ZERO:
        return 0, -ERROR
    time = np.int64(magnitude)
    return (-time if negative else time), stop + is_text
