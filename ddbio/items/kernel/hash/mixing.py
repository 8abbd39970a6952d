"""Mixing of words, bytes and numbers into the two halves of a hash, as defined by ``items.digest``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.digest import BLOCK, EXPONENT_OFFSET, FINAL, N
from ddbio.items.kernel.jit import inlined, inner, intrinsic
from ddbio.items.kernel.memory import load64, out_of_line, peek
from ddbio.items.kernel.number import parse_number, unscaled

BLOCK_BYTES = 16
NOT_A_NUMBER = np.uint64(0)
"""Instead of the last word for ``finish``, which is never 0."""

_LEFT_BLOCK, _RIGHT_BLOCK = (np.uint64(word) for word in BLOCK)
_LEFT_FINAL, _RIGHT_FINAL = (np.uint64(word) for word in FINAL)
_BYTE_BITS, _TEN = np.uint64(8), np.uint64(10)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_BYTE_MASKS = [(1 << 8 * count) - 1 for count in range(BLOCK_BYTES + 1)]
_FIRST_MASKS = np.array([mask & (1 << 64) - 1 for mask in _BYTE_MASKS], np.uint64)
_SECOND_MASKS = np.array([mask >> 64 for mask in _BYTE_MASKS], np.uint64)


_fold: Any = intrinsic("multiply_fold")
"""Return the XOR of the two halves of the product of two words."""


@inlined
def absorb(left: Any, right: Any, first: Any, second: Any) -> Any:
    """Return the lanes after mixing in two words."""
    return _fold(first ^ _LEFT_BLOCK, second ^ left), _fold(first ^ _RIGHT_BLOCK, second ^ right)


@inlined
def finish(left: Any, right: Any, last: Any) -> Any:
    """Return the hash of the lanes and the last word, which has a size and a code."""
    return _fold(left ^ last, _LEFT_FINAL), _fold(right ^ last, _RIGHT_FINAL)


@inlined
def absorb_bytes(left: Any, right: Any, data: Any, position: int, stop: int, end: int) -> Any:
    """Return the lanes after mixing in bytes, in blocks padded by zeros; nothing is read from ``end`` on."""
    while stop - position > BLOCK_BYTES:
        left, right = absorb(left, right, load64(data, position), load64(data, position + 8))
        position += BLOCK_BYTES
    n_last = stop - position
    if n_last > 0:
        if position + BLOCK_BYTES <= end:
            first = load64(data, position) & _FIRST_MASKS[n_last]
            second = load64(data, position + 8) & _SECOND_MASKS[n_last]
        else:
            first, second = _last_words(data, position, n_last)
        left, right = absorb(left, right, first, second)
    return left, right


@inner
def _last_words(data: Any, position: int, count: int) -> Any:
    out_of_line()
    first, second = np.uint64(0), np.uint64(0)
    for index in range(count):
        byte = np.uint64(peek(data, position + index))
        if index < 8:  # noqa: PLR2004 - bytes of a word
            first |= byte << np.uint64(8 * index)
        else:
            second |= byte << np.uint64(8 * index - 64)
    return first, second


@inlined
def last_of(size: int, code: int) -> Any:
    """Return the last word for ``finish``, from a size and a code."""
    return np.uint64(size) << _BYTE_BITS | np.uint64(code)


@inlined
def _number_last(exponent: int, negative: Any) -> Any:
    return last_of(2 * (exponent - EXPONENT_OFFSET) + negative, N)


@inlined
def word_number(magnitude: Any, negative: Any, exponent: int) -> Any:
    """Return the two words of a number's stripped coefficient, and the last word for ``finish``."""
    if magnitude == 0:
        return magnitude, np.uint64(0), np.uint64(N)
    while magnitude % _TEN == 0:
        magnitude //= _TEN
        exponent += 1
    return magnitude, np.uint64(0), _number_last(exponent, negative)


@inlined
def wide_number(low: Any, high: Any, exponent: int) -> Any:
    """Return the words of ``word_number`` for a signed number of two words."""
    if np.int64(high) == np.int64(low) >> 63:
        negative = np.int64(low) < 0
        return word_number(np.uint64(0) - low if negative else low, negative, exponent)
    return _very_wide_number(low, high, exponent)


@inner
def _very_wide_number(low: Any, high: Any, exponent: int) -> Any:
    out_of_line()
    negative = np.int64(high) < 0
    if negative:
        low, high = ~low + np.uint64(1), ~high
        if low == 0:
            high += np.uint64(1)
    while True:
        # Divide by ten with long division, half a word at a time.
        tenth_high, remainder = high // _TEN, high % _TEN
        part = remainder << _HALF | low >> _HALF
        upper, remainder = part // _TEN, part % _TEN
        part = remainder << _HALF | low & _LOW_HALF
        tenth_low, remainder = upper << _HALF | part // _TEN, part % _TEN
        if remainder != 0:
            return low, high, _number_last(exponent, negative)
        low, high = tenth_low, tenth_high
        exponent += 1


@inner
def text_number(data: Any, position: int, stop: int, digits: Any) -> Any:
    """Return the words of ``word_number`` for a number in any notation, ``NOT_A_NUMBER`` last if it is not one."""
    is_number, negative, count, point = parse_number(data, position, stop, digits)
    if not is_number:
        return np.uint64(0), np.uint64(0), NOT_A_NUMBER
    if count == 0:
        return np.uint64(0), np.uint64(0), np.uint64(N)
    high, low = unscaled(digits, count, point, count - point)
    return low, high, _number_last(point - count, negative)
