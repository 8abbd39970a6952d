"""Weigh each item of what a scan has taken by DynamoDB's rule, as ``core.capacity`` does; checks nothing again."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912

from __future__ import annotations

from typing import Any

from ddbio.core.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.document import close_document, open_document
from ddbio.core.kernel.memory import peek, pointers, poke
from ddbio.core.kernel.number import MINUS, NINE, ZERO
from ddbio.core.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, read_literal, read_tag
from ddbio.core.kernel.state import BOOL, DONE, ITEMS, NULL, ROWS, SIDE, SS, L, M, N, S
from ddbio.core.kernel.text import QUOTE, read_text, skip_blank

_PADDING = ord("=")
_LETTER_S, _LETTER_N, _LETTER_M = ord("S"), ord("N"), ord("M")
_EXPONENTS = (ord("e"), ord("E"))


@loop
def measure(work: Any, levels: Any, sizes: Any, place: int, inside: int, framing: int) -> Any:
    """Put the bytes of each scanned item into ``sizes``; return how it ended.

    ``place`` and ``inside`` are where the scan began; ``levels`` has room for the deepest nesting.
    """
    return _measure_items(pointers(work), levels, sizes, place, inside, framing)


@inner
def _measure_items(work: Any, levels: Any, sizes: Any, place: int, inside: int, framing: int) -> Any:
    data, state = work.data, work.state
    n_rows, row, side = state[ROWS], 0, state[SIDE]
    while row < n_rows:
        if inside == 0:
            place = skip_blank(data, place)
            if framing != ITEMS:
                place, inside = open_document(data, place, framing, state)
                state[SIDE] = side
                if inside < 0:
                    inside = 0
                    continue
        size, place = _measure_item(data, place, levels, state)
        if place < 0:
            return -place
        poke(sizes, row, size)
        row += 1
        if framing != ITEMS:
            place, inside = close_document(data, place, framing)
    return DONE


@inner
def _measure_item(data: Any, place: int, levels: Any, state: Any) -> Any:
    """Return the bytes of an item, and the place after it."""
    total, depth, in_map = 0, 0, 1
    place = skip_blank(data, place + 1)
    if peek(data, place) == CLOSE_OBJECT:
        return 0, place + 1
    while True:
        if in_map:
            _, length, place = _read(data, place, state)
            if place < 0:
                return 0, place
            total += length + (ELEMENT_BYTES if depth > 0 else 0)
            if peek(data, place) != COLON:
                place = skip_blank(data, place)
            place = skip_blank(data, place + 1)
        else:
            total += ELEMENT_BYTES
        tag, place = _read_tag(data, skip_blank(data, place + 1), state)
        if tag >= L:
            total += CONTAINER_BYTES
            place = skip_blank(data, place + 1)
            if peek(data, place) not in (CLOSE_ARRAY, CLOSE_OBJECT):
                poke(levels, depth, in_map)
                depth += 1
                in_map = 1 if tag == M else 0
                continue
            place += 1
        else:
            size, place = _measure_scalar(data, place, tag, state)
            if place < 0:
                return 0, place
            total += size
        while True:
            place = skip_blank(data, skip_blank(data, place) + 1)
            if peek(data, place) == COMMA:
                place = skip_blank(data, place + 1)
                break
            place += 1
            if depth == 0:
                return total, place
            depth -= 1
            in_map = peek(levels, depth)


@inner
def _read(data: Any, place: int, state: Any) -> Any:
    """Return where the text at ``place`` begins, its length and the place after it, for as long as no other is read."""
    side = state[SIDE]
    start, length, place = read_text(data, place + 1, state)
    state[SIDE] = side
    return start, length, place


@inner
def _read_tag(data: Any, place: int, state: Any) -> Any:
    if peek(data, place + 2) == QUOTE and peek(data, place + 3) == COLON:
        letter = peek(data, place + 1)
        tag = S if letter == _LETTER_S else N if letter == _LETTER_N else M if letter == _LETTER_M else -1
        if tag >= 0:
            return tag, skip_blank(data, place + 4)
    side = state[SIDE]
    tag, place = read_tag(data, place, state)
    state[SIDE] = side
    return tag, place


@inner
def _measure_scalar(data: Any, place: int, tag: int, state: Any) -> Any:
    if tag in (BOOL, NULL):
        return 1, place + 5 - read_literal(data, place)
    if tag < SS:
        return _measure_text(data, place, tag, state)
    total = 0
    place = skip_blank(data, place + 1)
    while peek(data, place) != CLOSE_ARRAY:
        size, place = _measure_text(data, place, tag - SS, state)
        if place < 0:
            return 0, place
        total += size
        place = skip_blank(data, place)
        if peek(data, place) == COMMA:
            place = skip_blank(data, place + 1)
    return total, place + 1


@inner
def _measure_text(data: Any, place: int, tag: int, state: Any) -> Any:
    start, length, place = _read(data, place, state)
    if place < 0 or tag == S:
        return length, place
    if tag == N:
        return _measure_number(data, start, start + length), place
    padding = 0
    for index in range(max(start, start + length - 2), start + length):
        padding += peek(data, index) == _PADDING
    return length * 3 // 4 - padding, place


@inner
def _measure_number(data: Any, place: int, stop: int) -> Any:
    negative = peek(data, place) == MINUS
    n_digits, significant = 0, 0
    for index in range(place, stop):
        byte = peek(data, index)
        if byte in _EXPONENTS:
            break
        if ZERO <= byte <= NINE and (n_digits > 0 or byte != ZERO):
            n_digits += 1
            if byte != ZERO:
                significant = n_digits
    return (significant + 1) // 2 + 1 + (negative and significant > 0)
