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
def read_literal(data: Any, position: int) -> Any:
    """Return 1 for true, 0 for false, -1 for anything else."""
    word = load64(data, position)
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
def read_tag(data: Any, position: int, state: Any) -> Any:
    """Return the type at ``position`` and the position of its content, or -1 and a negative status."""
    out_of_line()
    if peek(data, position) != QUOTE:
        return -1, -ERROR
    start, length, position = read_text(data, position + 1, state)
    if position < 0:
        return -1, position
    tag = _tag_at(data, start, length)
    if peek(data, position) != COLON:
        position = skip_blank(data, position)
        if peek(data, position) != COLON:
            return -1, -ERROR
    if tag < 0:
        return -1, -ERROR
    return tag, skip_blank(data, position + 1)


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
        stored = names[slot]
        if stored == key:
            return ERROR
        if stored == 0:
            poke(names, slot, key)
            state[NAMES] += 1
            return 0
        slot = (slot + 1) & mask


@inner
def skip_name(data: Any, position: int, instance: int, names: Any, state: Any) -> Any:
    """Skip the name at ``position`` and its colon; return the position of the value, or a negative status."""
    if peek(data, position) != QUOTE:
        return -ERROR
    side = state[UNESCAPED]
    start, length, position = read_text(data, position + 1, state)
    if position < 0:
        return position
    status = remember_name(names, hash_text(data, start, length), instance, state)
    state[UNESCAPED] = side
    if status != 0:
        return -status
    position = skip_blank(data, position)
    if peek(data, position) != COLON:
        return -ERROR
    return skip_blank(data, position + 1)


@inner
def enter(  # noqa: PLR0913, PLR0917 - compiled code has no objects
    data: Any,
    position: int,
    is_object: bool,  # noqa: FBT001
    depth: int,
    names: Any,
    levels: Any,
    state: Any,
) -> Any:
    """Enter the container whose first member is at ``position``; return the position of its first value.

    The position is a negative status if the container is refused.

    ``levels`` has the number of each open object, and 0 for each array.
    """
    if depth == MAX_SKIPPED_DEPTH:
        return -ERROR
    instance = 0
    if is_object:
        state[INSTANCE] += 1
        instance = state[INSTANCE]
        position = skip_name(data, position, instance, names, state)
    poke(levels, depth, instance)
    return position


@inner
def leave(data: Any, position: int, depth: int, names: Any, levels: Any, state: Any) -> Any:
    """Return whether a container ends after a value, and the position after it or of its next value.

    The position is a negative status if neither follows.
    """
    instance = peek(levels, depth - 1)
    position = skip_blank(data, position)
    byte = peek(data, position)
    if byte == COMMA:
        position = skip_blank(data, position + 1)
        return False, skip_name(data, position, instance, names, state) if instance > 0 else position
    return True, position + 1 if byte == (CLOSE_OBJECT if instance > 0 else CLOSE_ARRAY) else -ERROR


_NULL = int.from_bytes(b"null", "little")
_WORD_OF_FOUR = 0xFFFFFFFF
_EXPONENTS = (ord("e"), ord("E"))
_SIGNS = (ord("+"), ord("-"))


@inner
def skip_json(data: Any, position: int, names: Any, levels: Any, state: Any) -> Any:
    """Return the position after the value at ``position``, or a negative status."""
    out_of_line()
    depth = 0
    while True:
        byte = peek(data, position)
        if byte in (OPEN_OBJECT, OPEN_ARRAY):
            position = skip_blank(data, position + 1)
            if peek(data, position) != (CLOSE_OBJECT if byte == OPEN_OBJECT else CLOSE_ARRAY):
                position = enter(data, position, byte == OPEN_OBJECT, depth, names, levels, state)
                if position < 0:
                    return position
                depth += 1
                continue
            position += 1
        else:
            position = _skip_atom(data, position, state)
            if position < 0:
                return position
        # After a value: close the containers that end here.
        has_ended = True
        while has_ended:
            if depth == 0:
                return position
            has_ended, position = leave(data, position, depth, names, levels, state)
            if position < 0:
                return position
            depth -= has_ended


@inner
def is_null(data: Any, position: int) -> Any:
    """Return whether JSON's null is at ``position``."""
    return np.int64(load64(data, position)) & _WORD_OF_FOUR == _NULL


@inner
def _skip_atom(data: Any, position: int, state: Any) -> Any:
    if peek(data, position) == QUOTE:
        side = state[UNESCAPED]
        _, _, position = read_text(data, position + 1, state)
        state[UNESCAPED] = side
        return position
    literal = read_literal(data, position)
    if literal >= 0:
        return position + 5 - literal
    return position + 4 if is_null(data, position) else skip_number(data, position)


@inner
def skip_number(data: Any, position: int) -> Any:
    """Return the position after the JSON number at ``position``, or a negative status."""
    position += peek(data, position) == MINUS
    first, position = position, _after_digits(data, position)
    if position == first or (position - first > 1 and peek(data, first) == ZERO):
        return -ERROR
    if peek(data, position) == POINT:
        first, position = position + 1, _after_digits(data, position + 1)
        if position == first:
            return -ERROR
    if peek(data, position) in _EXPONENTS:
        position += 1
        position += peek(data, position) in _SIGNS
        first, position = position, _after_digits(data, position)
        if position == first:
            return -ERROR
    return position


@inner
def _after_digits(data: Any, position: int) -> Any:
    while ZERO <= peek(data, position) <= NINE:
        position += 1
    return position


@inner
def end_of_object(data: Any, position: int, stop: int) -> Any:
    """Return the position after the object at ``position`` by counting brackets, or a negative status."""
    out_of_line()
    depth = 0
    while position < stop:
        byte = peek(data, position)
        position += 1
        if byte == QUOTE:
            while position < stop:
                position = text_end(data, position) + 1
                byte = peek(data, position - 1)
                if byte == QUOTE:
                    break
                # An escaped character does not end the text; the reference decides whether the escape is legal.
                position += byte == BACKSLASH
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return position if position <= stop else -ERROR
    return -ERROR
