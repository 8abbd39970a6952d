"""Compute the size of scanned items by DynamoDB's rule, as ``core.capacity`` does.

Sizes come from the slots of the scan. Only what has no column of its own, JSON text and misfits, is walked again.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.items.kernel.base64 import decoded_length
from ddbio.items.kernel.codes import (
    BINARY,
    BOOL,
    BOOLEAN,
    DECIMAL,
    DONE,
    INTEGER,
    JSON,
    MAP,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_WIDTH,
    MISFITS,
    NULL,
    NUMBER_TEXT,
    ROWS,
    SET,
    SS,
    STRUCT,
    UNESCAPED,
    L,
    M,
    N,
    S,
)
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import MINUS, NINE, ZERO
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, read_literal, read_tag
from ddbio.items.kernel.text import read_text, skip_blank

_EXPONENTS = (ord("e"), ord("E"))
_LENGTH_MASK = 0xFFFFFFFF
_TEN, _LOW = np.uint64(10), np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MAX_PAIRS = 10
_POWERS = np.array([100**pairs for pairs in range(_MAX_PAIRS)], np.uint64)


@loop
def add_item_sizes(tables: Any, work: Any, owners: Any, owner_place: Any) -> Any:
    """Add the bytes of all values of each row to its size, in which NULLs are counted already; return how it ended.

    ``owners`` is filled with the row of each element; ``owner_place`` is where those of each list space begin.
    """
    n_nodes = len(tables.kind)
    return _add_row_sizes(pointers(tables), pointers(work), owners, owner_place, n_nodes)


@inner
def _add_row_sizes(tables: Any, work: Any, owners: Any, owner_place: Any, n_nodes: int) -> Any:
    sizes = work.sizes
    for node in range(1, n_nodes):
        kind, space, beside = tables.kind[node], tables.space[node], tables.overhead_bytes[node]
        if kind <= MAP and kind != SET:
            beside += CONTAINER_BYTES
        valid_place, value_place = work.valid_place[node], work.value_place[node]
        first, inner = owner_place[space], owner_place[tables.inner_space[node]]
        for index in range(work.state[ROWS] if space == 0 else work.count[space]):
            if peek(work.valid, valid_place + index) == 0:
                continue
            row = index if space == 0 else peek(owners, first + index)
            size = 1
            if kind == STRUCT:
                size = 0
            elif kind == DECIMAL:
                low, high = value_place + 2 * index, value_place + 2 * index + 1
                size = _decimal_bytes(peek(work.values, low), peek(work.values, high))
            elif kind != BOOLEAN:
                value = peek(work.values, value_place + index)
                if kind <= MAP:
                    size = 0
                    for element in range(inner, inner + value):
                        poke(owners, element, row)
                    inner += value
                elif kind == INTEGER:
                    size = _integer_bytes(value, value < 0 and tables.least[node] != 0)
                elif kind == JSON:
                    size = _value_bytes(work.data, value >> 32, work.levels, work.state)
                    if size < 0:
                        return -size
                else:
                    size = _span_bytes(work.data, value >> 32, value & _LENGTH_MASK, kind)
            poke(sizes, row, peek(sizes, row) + beside + size)
    return _add_misfit_sizes(tables, work)


@inner
def _add_misfit_sizes(tables: Any, work: Any) -> Any:
    out_of_line()
    for entry in range(0, work.state[MISFITS] * MISFIT_WIDTH, MISFIT_WIDTH):
        row, node = peek(work.misfits, entry + MISFIT_ROW), peek(work.misfits, entry + MISFIT_NODE)
        name_bytes = tables.name_length[node] if node >= 0 else peek(work.misfits, entry + MISFIT_NAME_LENGTH)
        size = _value_bytes(work.data, peek(work.misfits, entry + MISFIT_START), work.levels, work.state)
        if size < 0:
            return -size
        poke(work.sizes, row, peek(work.sizes, row) + name_bytes + size)
    return DONE


@inner
def _integer_bytes(value: int, is_negative: bool) -> Any:  # noqa: FBT001 - compiled code
    magnitude = np.uint64(-value if is_negative else value)
    return _magnitude_bytes(magnitude) + is_negative


@inner
def _magnitude_bytes(magnitude: Any) -> Any:
    """Return the bytes of a number without its sign: two digits take one, zeros at its ends none."""
    if magnitude == 0:
        return 1
    while magnitude % _TEN == 0:
        magnitude //= _TEN
    pairs = 1
    while pairs < _MAX_PAIRS and magnitude >= _POWERS[pairs]:
        pairs += 1
    return pairs + 1


@inner
def _decimal_bytes(low_word: int, high_word: int) -> Any:
    is_negative = high_word < 0
    low, high = np.uint64(low_word), np.uint64(high_word)
    if is_negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == 0)
    if high == 0:
        return _magnitude_bytes(low) + is_negative
    digits, zeros, count = 0, 0, 0
    while high != 0 or low != 0:
        high, low, digit = _divided_by_ten(high, low)
        if digit == 0 and zeros == count:
            zeros += 1
        count += 1
    digits = count - zeros
    return (digits + 1) // 2 + 1 + is_negative


@inner
def _divided_by_ten(high: Any, low: Any) -> Any:
    """Return both words of a quotient, and the remainder."""
    rest = high % _TEN
    upper = rest << _HALF | low >> _HALF
    lower = upper % _TEN << _HALF | low & _LOW
    return high // _TEN, upper // _TEN << _HALF | lower // _TEN, lower % _TEN


@inner
def _span_bytes(data: Any, start: int, length: int, kind: int) -> Any:
    if kind == BINARY:
        return decoded_length(data, start, length)
    return _number_bytes(data, start, start + length) if kind == NUMBER_TEXT else length


@inner
def _number_bytes(data: Any, place: int, stop: int) -> Any:
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


@inner
def _value_bytes(data: Any, place: int, levels: Any, state: Any) -> Any:
    """Return the bytes of the value at ``place``, or a negative status."""
    out_of_line()
    total, depth, in_map = 0, 0, 0
    while True:
        side = state[UNESCAPED]
        tag, place = read_tag(data, skip_blank(data, place + 1), state)
        state[UNESCAPED] = side
        if place < 0:
            return place
        is_open = False
        if tag >= L:
            total += CONTAINER_BYTES
            place = skip_blank(data, place + 1)
            if peek(data, place) in (CLOSE_ARRAY, CLOSE_OBJECT):
                place += 1
            else:
                poke(levels, depth, in_map)
                depth += 1
                in_map = 1 if tag == M else 0
                is_open = True
        else:
            size, place = _scalar_bytes(data, place, tag, state)
            if place < 0:
                return place
            total += size
        while not is_open:
            # Behind the brace of a value.
            place = skip_blank(data, place) + 1
            if depth == 0:
                return total
            place = skip_blank(data, place)
            if peek(data, place) == COMMA:
                place = skip_blank(data, place + 1)
                break
            place += 1
            depth -= 1
            in_map = peek(levels, depth)
        total += ELEMENT_BYTES
        if in_map:
            _, length, place = _read(data, place, state)
            if place < 0:
                return place
            total += length
            place = skip_blank(data, place)
            place = skip_blank(data, place + 1)


@inner
def _read(data: Any, place: int, state: Any) -> Any:
    """Return where the text at ``place`` begins, its length and the place after it, for as long as no other is read."""
    side = state[UNESCAPED]
    start, length, place = read_text(data, place + 1, state)
    state[UNESCAPED] = side
    return start, length, place


@inner
def _scalar_bytes(data: Any, place: int, tag: int, state: Any) -> Any:
    if tag in (BOOL, NULL):
        return 1, place + 5 - read_literal(data, place)
    if tag < SS:
        return _text_bytes(data, place, tag, state)
    total = 0
    place = skip_blank(data, place + 1)
    while peek(data, place) != CLOSE_ARRAY:
        size, place = _text_bytes(data, place, tag - SS, state)
        if place < 0:
            return 0, place
        total += size
        place = skip_blank(data, place)
        if peek(data, place) == COMMA:
            place = skip_blank(data, place + 1)
    return total, place + 1


@inner
def _text_bytes(data: Any, place: int, tag: int, state: Any) -> Any:
    start, length, place = _read(data, place, state)
    if place >= 0 and tag != S:
        length = _number_bytes(data, start, start + length) if tag == N else decoded_length(data, start, length)
    return length, place
