"""Sizes of the items on a tape, by DynamoDB's rule as in ``ddbio/items/capacity.py``."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.items.kernel.base64 import decoded_length
from ddbio.items.kernel.codes import BOOL, NULL, SS, B, L, N
from ddbio.items.kernel.jit import inner, int64, loop
from ddbio.items.kernel.memory import peek, pointers, poke
from ddbio.items.kernel.number import MINUS, NINE, ZERO
from ddbio.items.kernel.tape.paths import NAME_BYTES, NODE_BITS, NODE_WIDTH, Walk
from ddbio.items.kernel.tape.walk import CLOSE, ENCODING_BITS, IN_SET, ITEM, NAME, NUMBER_TEXT, TAG_BITS

_LENGTH_MASK = 0xFFFFFFFF
_TEN = np.uint64(10)
_MAX_PAIRS = 10
_POWERS = np.array([100**pairs for pairs in range(_MAX_PAIRS)], np.uint64)
_EXPONENTS = (ord("e"), ord("E"))


@loop(Walk, int64, int64[:])
def measure_items(walk: Any, n_words: int, sizes: Any) -> None:
    """Write the bytes of each item to ``sizes``."""
    _measure_items(pointers(walk), n_words, sizes)


@inner
def _measure_items(walk: Any, n_words: int, sizes: Any) -> None:
    data, tape, nodes = walk.data, walk.tape, walk.nodes
    row, depth, total, name_length = 0, 0, 0, 0
    for at in range(0, n_words, 2):
        head, word = peek(tape, at), peek(tape, at + 1)
        tag = head & TAG_BITS
        if tag >= ITEM:
            if tag == NAME:
                name_length = word & _LENGTH_MASK
            elif tag == CLOSE:
                if depth == 0:
                    poke(sizes, row, total)
                    row += 1
                    total = 0
                else:
                    depth -= 1
            continue
        if tag >= IN_SET:
            tag -= IN_SET
        else:
            own = peek(nodes, (head >> NODE_BITS) * NODE_WIDTH + NAME_BYTES)
            total += max(own, name_length)
            name_length = 0
            if depth > 0:
                total += ELEMENT_BYTES
        if tag >= SS:
            depth += 1
            total += CONTAINER_BYTES if tag >= L else 0
        elif tag in (BOOL, NULL):
            total += 1
        elif tag == N:
            encoding = (head >> ENCODING_BITS) & 0xFF
            if encoding in (0, NUMBER_TEXT):
                total += number_bytes(data, word >> 32, (word >> 32) + (word & _LENGTH_MASK))
            else:
                total += integer_bytes(word)
        elif tag == B:
            total += decoded_length(data, word >> 32, word & _LENGTH_MASK)
        else:
            total += word & _LENGTH_MASK


@inner
def integer_bytes(value: int) -> Any:
    """Return the stored size of a number in bytes. The argument is the number multiplied by any power of ten.

    Two digits take one byte; leading and trailing zeros take none.
    """
    if value == 0:
        return 1
    magnitude = np.uint64(-value if value < 0 else value)
    while magnitude % _TEN == 0:
        magnitude //= _TEN
    pairs = 1
    while pairs < _MAX_PAIRS and magnitude >= _POWERS[pairs]:
        pairs += 1
    return pairs + 1 + (value < 0)


@inner
def number_bytes(data: Any, position: int, stop: int) -> Any:
    """Return the bytes of a number, given as text."""
    negative = peek(data, position) == MINUS
    n_digits, significant = 0, 0
    for index in range(position, stop):
        byte = peek(data, index)
        if byte in _EXPONENTS:
            break
        if ZERO <= byte <= NINE and (n_digits > 0 or byte != ZERO):
            n_digits += 1
            if byte != ZERO:
                significant = n_digits
    return (significant + 1) // 2 + 1 + (negative and significant > 0)
