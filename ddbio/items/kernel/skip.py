"""Validation and skipping of values: an attribute value of any type, or any JSON value.

The input is the position of a value, the result the position after it. Duplicate names and more than 64 levels are
refused.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.codes import (
    BOOL,
    BS,
    ERROR,
    GROW_NAMES,
    INSTANCE,
    MAX_SKIPPED_DEPTH,
    NAMES,
    NAMES_MASK,
    NULL,
    SS,
    UNESCAPED,
    B,
    L,
    M,
    N,
    S,
)
from ddbio.items.kernel.jit import inner
from ddbio.items.kernel.memory import load64, out_of_line, peek, poke
from ddbio.items.kernel.number import MINUS, NINE, POINT, ZERO
from ddbio.items.kernel.text import BACKSLASH, QUOTE, hash_text, read_text, skip_blank, text_end

COMMA, COLON = ord(","), ord(":")
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = ord("{"), ord("}"), ord("["), ord("]")
_LETTER_S, _LETTER_N, _LETTER_B, _LETTER_L, _LETTER_M = ord("S"), ord("N"), ord("B"), ord("L"), ord("M")


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text.ljust(8, b"\0"), "little"))


_FOUR_BYTES = np.uint64(0xFFFFFFFF)
_FIVE_BYTES = np.uint64(0xFFFFFFFFFF)
_TRUE, _FALSE = _word(b"true"), _word(b"false")
_TAG_BOOL, _TAG_NULL = _word(b"BOOL"), _word(b"NULL")
_LAST_BLANK = ord(" ")
_MIX = np.uint64(0xD6E8FEB86659FD93)
_MIX_SHIFT = np.uint64(32)


@inner
def read_literal(data: Any, place: int) -> Any:
    """Return 1 for true, 0 for false, -1 for anything else."""
    word = load64(data, place)
    if word & _FOUR_BYTES == _TRUE:
        return 1
    if word & _FIVE_BYTES == _FALSE:
        return 0
    return -1


@inner
def _tag_at(data: Any, start: int, length: int) -> Any:
    first, second = peek(data, start), peek(data, start + 1)
    if length == 1:
        if first == _LETTER_S:
            return S
        if first == _LETTER_N:
            return N
        if first == _LETTER_B:
            return B
        if first == _LETTER_L:
            return L
        return M if first == _LETTER_M else -1
    if length == 2 and second == _LETTER_S:  # noqa: PLR2004 - a set
        if first == _LETTER_S:
            return SS
        if first == _LETTER_N:
            return SS + 1
        return BS if first == _LETTER_B else -1
    if length == 4:  # noqa: PLR2004 - a long tag
        word = load64(data, start) & _FOUR_BYTES
        if word == _TAG_BOOL:
            return BOOL
        return NULL if word == _TAG_NULL else -1
    return -1


@inner
def read_tag(data: Any, place: int, state: Any) -> Any:
    """Return the type at ``place`` and the position of its content, or -1 and a negative status."""
    out_of_line()
    if peek(data, place) != QUOTE:
        return -1, -ERROR
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return -1, place
    tag = _tag_at(data, start, length)
    if peek(data, place) != COLON:
        place = skip_blank(data, place)
        if peek(data, place) != COLON:
            return -1, -ERROR
    if tag < 0:
        return -1, -ERROR
    return tag, skip_blank(data, place + 1)


@inner
def remember_name(names: Any, value: Any, instance: int, state: Any) -> Any:
    """Return 0 if a name is new in its object, ERROR if it may be a duplicate, GROW_NAMES if the table is full."""
    key = (value ^ np.uint64(instance)) * _MIX
    key ^= key >> _MIX_SHIFT
    key |= np.uint64(1)
    mask = state[NAMES_MASK]
    if state[NAMES] * 2 > mask:
        return GROW_NAMES
    slot = np.int64(key >> _MIX_SHIFT) & mask
    while True:
        found = names[slot]
        if found == key:
            return ERROR
        if found == 0:
            poke(names, slot, key)
            state[NAMES] += 1
            return 0
        slot = (slot + 1) & mask


@inner
def skip_name(data: Any, place: int, instance: int, names: Any, state: Any) -> Any:
    """Skip the name at ``place`` and its colon; return the position of the value, or a negative status."""
    if peek(data, place) != QUOTE:
        return -ERROR
    side = state[UNESCAPED]
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return place
    status = remember_name(names, hash_text(data, start, length), instance, state)
    state[UNESCAPED] = side
    if status != 0:
        return -status
    place = skip_blank(data, place)
    if peek(data, place) != COLON:
        return -ERROR
    return skip_blank(data, place + 1)


@inner
def enter(  # noqa: PLR0913, PLR0917 - compiled code has no objects
    data: Any,
    place: int,
    is_object: bool,  # noqa: FBT001
    depth: int,
    names: Any,
    levels: Any,
    state: Any,
) -> Any:
    """Enter the container whose first member is at ``place``; return the position of its first value.

    The position is a negative status if the container is refused.

    ``levels`` has the number of each open object, and 0 for each array.
    """
    if depth == MAX_SKIPPED_DEPTH:
        return -ERROR
    instance = 0
    if is_object:
        state[INSTANCE] += 1
        instance = state[INSTANCE]
        place = skip_name(data, place, instance, names, state)
    poke(levels, depth, instance)
    return place


@inner
def leave(data: Any, place: int, depth: int, names: Any, levels: Any, state: Any) -> Any:
    """Return whether a container ends after a value, and the position after it or of its next value.

    The position is a negative status if neither follows.
    """
    instance = peek(levels, depth - 1)
    place = skip_blank(data, place)
    byte = peek(data, place)
    if byte == COMMA:
        place = skip_blank(data, place + 1)
        return False, skip_name(data, place, instance, names, state) if instance > 0 else place
    return True, place + 1 if byte == (CLOSE_OBJECT if instance > 0 else CLOSE_ARRAY) else -ERROR


_NULL = int.from_bytes(b"null", "little")
_WORD_OF_FOUR = 0xFFFFFFFF
_EXPONENTS = (ord("e"), ord("E"))
_SIGNS = (ord("+"), ord("-"))


@inner
def skip_json(data: Any, place: int, names: Any, levels: Any, state: Any) -> Any:
    """Return the position after the value at ``place``, or a negative status."""
    out_of_line()
    depth = 0
    while True:
        byte = peek(data, place)
        if byte in (OPEN_OBJECT, OPEN_ARRAY):
            place = skip_blank(data, place + 1)
            if peek(data, place) != (CLOSE_OBJECT if byte == OPEN_OBJECT else CLOSE_ARRAY):
                place = enter(data, place, byte == OPEN_OBJECT, depth, names, levels, state)
                if place < 0:
                    return place
                depth += 1
                continue
            place += 1
        else:
            place = _skip_atom(data, place, state)
            if place < 0:
                return place
        # After a value: close the containers that end here.
        has_ended = True
        while has_ended:
            if depth == 0:
                return place
            has_ended, place = leave(data, place, depth, names, levels, state)
            if place < 0:
                return place
            depth -= has_ended


@inner
def is_null(data: Any, place: int) -> Any:
    """Return whether JSON's null is at ``place``."""
    return np.int64(load64(data, place)) & _WORD_OF_FOUR == _NULL


@inner
def _skip_atom(data: Any, place: int, state: Any) -> Any:
    if peek(data, place) == QUOTE:
        side = state[UNESCAPED]
        _, _, place = read_text(data, place + 1, state)
        state[UNESCAPED] = side
        return place
    literal = read_literal(data, place)
    if literal >= 0:
        return place + 5 - literal
    return place + 4 if is_null(data, place) else skip_number(data, place)


@inner
def skip_number(data: Any, place: int) -> Any:
    """Return the position after the JSON number at ``place``, or a negative status."""
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


@inner
def end_of_object(data: Any, place: int, stop: int) -> Any:
    """Return the position after the object at ``place`` by counting brackets, or a negative status."""
    out_of_line()
    depth = 0
    while place < stop:
        byte = peek(data, place)
        place += 1
        if byte == QUOTE:
            while place < stop:
                place = text_end(data, place) + 1
                byte = peek(data, place - 1)
                if byte == QUOTE:
                    break
                # An escaped character does not end the text; the reference decides whether the escape is legal.
                place += byte == BACKSLASH
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return place if place <= stop else -ERROR
    return -ERROR
