"""Parse numbers where they lie, exactly; refuses what DynamoDB refuses, and never rounds.

The short way reads eight digits a step; every other spelling becomes at most 38 significant digits and a decimal point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import load64, lowest_bit, out_of_line, peek, poke
from ddbio.core.number import MAX_DIGITS, MAX_EXPONENT, MIN_EXPONENT

LONGEST_NUMBER = 2 + MAX_DIGITS - MIN_EXPONENT + 2
"""More bytes than the canonical text of any number has."""

MAX_SHORT_DIGITS = 19
"""Any so many digits fit an unsigned word."""

PLUS, MINUS, POINT, ZERO, NINE = ord("+"), ord("-"), ord("."), ord("0"), ord("9")
_UPPER_E, _LOWER_E = ord("E"), ord("e")
_LONGEST_EXPONENT = 18

_ZEROS = np.uint64(0x3030303030303030)
_TO_HIGH = np.uint64(0x7676767676767676)
_HIGH = np.uint64(0x8080808080808080)
_PAIR_MASK = np.uint64(0x000000FF000000FF)
_PAIRS_LOW = np.uint64(100 + (1_000_000 << 32))
_PAIRS_HIGH = np.uint64(1 + (10_000 << 32))
_EIGHT_DIGITS = np.uint64(10**8)
_TEN = np.uint64(10)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_WORD_BYTES = 8
_BYTE_BITS = np.uint64(8)
_TWO_BYTES_BITS = np.uint64(16)
_POWERS = np.array([10**power for power in range(20)], dtype=np.uint64)


@inner
def power_of_ten(power: int) -> Any:
    """Return 10 to the power of 0 to 19 as an unsigned word."""
    return _POWERS[power]


@inner
def _eight_digits(word: Any) -> Any:
    word = word * _TEN + (word >> _BYTE_BITS)
    low = (word & _PAIR_MASK) * _PAIRS_LOW
    high = ((word >> _TWO_BYTES_BITS) & _PAIR_MASK) * _PAIRS_HIGH
    return (low + high) >> _HALF


@inner
def read_digits(data: Any, place: int) -> Any:
    """Return the value of the digits at ``place`` and where they end; beyond 19 of them the value is worthless."""
    value = np.uint64(0)
    limit = place + 3 * 8
    while True:
        word = load64(data, place) ^ _ZEROS
        count = lowest_bit(((word + _TO_HIGH) | word) & _HIGH) >> 3
        if count < _WORD_BYTES:
            break
        value = value * _EIGHT_DIGITS + _eight_digits(word)
        place += 8
        if place >= limit:
            return value, place
    if count > 0:
        value = value * _POWERS[count] + _eight_digits(word << np.uint64(64 - 8 * count))
    return value, place + count


@inner
def parse_number(data: Any, place: int, stop: int, digits: Any) -> Any:
    """Return whether a text is a number, its sign, how many significant digits were put in ``digits``, and the point.

    The value is 0.digits times ten to the power of the point; zero has no digits.
    """
    out_of_line()
    negative = False
    if place < stop and (peek(data, place) == MINUS or peek(data, place) == PLUS):
        negative = peek(data, place) == MINUS
        place += 1
    total, significant, fraction = 0, 0, 0
    has_digits, in_fraction = False, False
    while place < stop:
        byte = peek(data, place)
        if byte == POINT and not in_fraction:
            in_fraction = True
        elif ZERO <= byte <= NINE:
            has_digits = True
            fraction += in_fraction
            if total > 0 or byte != ZERO:
                if total < MAX_DIGITS:
                    poke(digits, total, byte)
                total += 1
                if byte != ZERO:
                    significant = total
        else:
            break
        place += 1
    is_number, exponent, length = _exponent(data, place, stop)
    if not has_digits or not is_number:
        return False, False, 0, 0
    if significant == 0:
        return True, False, 0, 0
    point = total - fraction + exponent
    within = MIN_EXPONENT <= point - 1 <= MAX_EXPONENT
    return significant <= MAX_DIGITS and length <= _LONGEST_EXPONENT and within, negative, significant, point


@inner
def _exponent(data: Any, place: int, stop: int) -> Any:
    if place == stop:
        return True, 0, 0
    if peek(data, place) != _UPPER_E and peek(data, place) != _LOWER_E:
        return False, 0, 0
    place += 1
    start = place
    negative = False
    if place < stop and (peek(data, place) == MINUS or peek(data, place) == PLUS):
        negative = peek(data, place) == MINUS
        place += 1
    first = place
    value = 0
    while place < stop and ZERO <= peek(data, place) <= NINE:
        if place - start < _LONGEST_EXPONENT:
            value = value * 10 + peek(data, place) - ZERO
        place += 1
    return place == stop and place > first, -value if negative else value, stop - start


@inner
def is_canonical(data: Any, place: int, stop: int) -> Any:
    """Return whether a text is a number in the service's own spelling, short enough to be in range for sure."""
    out_of_line()
    if stop - place > MAX_DIGITS:
        return False
    if peek(data, place) == MINUS:
        place += 1
        if peek(data, place) == ZERO and stop - place == 1:
            return False
    first = place
    while place < stop and ZERO <= peek(data, place) <= NINE:
        place += 1
    whole = place - first
    if whole == 0 or (whole > 1 and peek(data, first) == ZERO):
        return False
    if place == stop:
        return True
    if peek(data, place) != POINT:
        return False
    place += 1
    first = place
    while place < stop and ZERO <= peek(data, place) <= NINE:
        place += 1
    return place == stop and place > first and peek(data, stop - 1) != ZERO


@inner
def print_number(data: Any, place: int, negative: Any, digits: Any, count: int, point: int) -> Any:
    """Write the canonical text of a parsed number, and return where it ends."""
    out_of_line()
    if count == 0:
        poke(data, place, ZERO)
        return place + 1
    if negative:
        poke(data, place, MINUS)
        place += 1
    if point <= 0:
        poke(data, place, ZERO)
        poke(data, place + 1, POINT)
        place += 2
        for _ in range(-point):
            poke(data, place, ZERO)
            place += 1
    for index in range(count):
        if index == point and point > 0:
            poke(data, place, POINT)
            place += 1
        poke(data, place, peek(digits, index))
        place += 1
    for _ in range(point - count):
        poke(data, place, ZERO)
        place += 1
    return place


@inner
def unscaled(digits: Any, count: int, point: int, scale: int) -> Any:
    """Return the two words, high first, of a parsed number times ten to ``scale``: at most 38 digits, all exact."""
    out_of_line()
    high, low = np.uint64(0), np.uint64(0)
    for index in range(point + scale if count > 0 else 0):
        digit = np.uint64(peek(digits, index) - ZERO if index < count else 0)
        part = (low & _LOW_HALF) * _TEN + digit
        upper = (low >> _HALF) * _TEN + (part >> _HALF)
        low = (upper << _HALF) | (part & _LOW_HALF)
        high = high * _TEN + (upper >> _HALF)
    return high, low
