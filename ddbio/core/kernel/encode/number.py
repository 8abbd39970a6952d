"""Print numbers as DynamoDB spells them, and weigh them; refuses text that is no number DynamoDB holds."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import out_of_line, peek, poke
from ddbio.core.number import MAX_DIGITS, MAX_EXPONENT, MIN_EXPONENT

_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8)
_POWERS = np.array([10**number for number in range(20)], np.uint64)
_MOST_POWERS = 20
_TEN, _HUNDRED, _LOW_HALF = np.uint64(10), np.uint64(100), np.uint64(0xFFFFFFFF)
_HALF_BITS, _GROUP = np.uint64(32), np.uint64(10**9)
_GROUPS, _GROUP_DIGITS = 5, 9
_ZERO, _NINE, _DOT, _MINUS, _PLUS = ord("0"), ord("9"), ord("."), ord("-"), ord("+")
_EXPONENT = (ord("e"), ord("E"))
_KEPT_DIGITS = 60
_LARGEST_EXPONENT = 1_000_000
LONGEST = MAX_DIGITS - MIN_EXPONENT + 16
"""More than any number's printed length."""


@inner
def _count_digits(magnitude: Any) -> Any:
    """Return how many digits a whole number has that is not 0."""
    if magnitude < _POWERS[8]:
        if magnitude < _POWERS[4]:
            if magnitude < _HUNDRED:
                return 1 + (magnitude >= _TEN)
            return 3 + (magnitude >= _POWERS[3])
        if magnitude < _POWERS[6]:
            return 5 + (magnitude >= _POWERS[5])
        return 7 + (magnitude >= _POWERS[7])
    n_digits = 9
    while n_digits < _MOST_POWERS and magnitude >= _POWERS[n_digits]:
        n_digits += 1
    return n_digits


@inner
def _put_lowest(out: Any, place: int, magnitude: Any, count: int) -> Any:
    """Print so many of the lowest digits of a whole number before ``place``; return the number without them."""
    while count >= 2:  # noqa: PLR2004 - a pair
        rest = magnitude // _HUNDRED
        pair = np.int64(magnitude - rest * _HUNDRED) * 2
        magnitude = rest
        place -= 2
        poke(out, place, _PAIRS[pair])
        poke(out, place + 1, _PAIRS[pair + 1])
        count -= 2
    if count > 0:
        rest = magnitude // _TEN
        poke(out, place - 1, np.int64(magnitude - rest * _TEN) + _ZERO)
        magnitude = rest
    return magnitude


@inner
def _put_zeros(out: Any, at: int, count: int) -> Any:
    for place in range(at, at + count):
        poke(out, place, _ZERO)
    return at + count


@inner
def _weight(n_digits: int, negative: Any) -> Any:
    return (n_digits + 1) // 2 + 1 + negative


@inner
def put_integer(out: Any, at: int, magnitude: Any, negative: Any, scale: int) -> Any:
    """Print ``magnitude`` x 10^-``scale``; return the place after it and its weight."""
    if magnitude == 0:
        poke(out, at, _ZERO)
        return at + 1, 1
    tenth = magnitude // _TEN
    while tenth * _TEN == magnitude:
        magnitude = tenth
        scale -= 1
        tenth = magnitude // _TEN
    n_digits = _count_digits(magnitude)
    if negative:
        poke(out, at, _MINUS)
        at += 1
    weight = _weight(n_digits, negative)
    if scale <= 0:
        _put_lowest(out, at + n_digits, magnitude, n_digits)
        return _put_zeros(out, at + n_digits, -scale), weight
    if scale >= n_digits:
        poke(out, at, _ZERO)
        poke(out, at + 1, _DOT)
        stop = _put_zeros(out, at + 2, scale - n_digits) + n_digits
        _put_lowest(out, stop, magnitude, n_digits)
        return stop, weight
    stop = at + n_digits + 1
    whole = _put_lowest(out, stop, magnitude, scale)
    poke(out, stop - scale - 1, _DOT)
    _put_lowest(out, stop - scale - 1, whole, n_digits - scale)
    return stop, weight


@inner
def put_wide(out: Any, at: int, low: int, high: int, scale: int, digits: Any) -> Any:
    """Print a decimal of 128 bits; return the place after it and its weight."""
    if high == low >> 63:
        negative = low < 0
        magnitude = np.uint64(0) - np.uint64(low) if negative else np.uint64(low)
        return put_integer(out, at, magnitude, negative, scale)
    return _put_very_wide(out, at, low, high, scale, digits)


@inner
def _put_very_wide(out: Any, at: int, low: int, high: int, scale: int, digits: Any) -> Any:
    out_of_line()
    negative = high < 0
    first, second = np.uint64(low), np.uint64(high)
    if negative:
        first, second = ~first + np.uint64(1), ~second
        if first == 0:
            second += np.uint64(1)
    for group in range(_GROUPS):
        # Long division of two words by 10^9, half a word at a time.
        part = second >> _HALF_BITS
        quotient, rest = part // _GROUP, part % _GROUP
        part = rest << _HALF_BITS | second & _LOW_HALF
        second, rest = quotient << _HALF_BITS | part // _GROUP, part % _GROUP
        part = rest << _HALF_BITS | first >> _HALF_BITS
        quotient, rest = part // _GROUP, part % _GROUP
        part = rest << _HALF_BITS | first & _LOW_HALF
        first, rest = quotient << _HALF_BITS | part // _GROUP, part % _GROUP
        _put_lowest(digits, (_GROUPS - group) * _GROUP_DIGITS, rest, _GROUP_DIGITS)
    start, stop = 0, _GROUPS * _GROUP_DIGITS
    while peek(digits, start) == _ZERO:
        start += 1
    point = stop - start - scale
    while peek(digits, stop - 1) == _ZERO:
        stop -= 1
    return _put_plain(out, at, digits, start, stop - start, point, negative)


@inner
def _put_plain(out: Any, at: int, digits: Any, start: int, count: int, point: int, negative: Any) -> Any:
    """Print 0.digits x 10^``point``."""
    weight = _weight(count, negative)
    if negative:
        poke(out, at, _MINUS)
        at += 1
    if point <= 0:
        poke(out, at, _ZERO)
        poke(out, at + 1, _DOT)
        at = _put_zeros(out, at + 2, -point)
    for index in range(count):
        if index == point and index > 0:
            poke(out, at, _DOT)
            at += 1
        poke(out, at, peek(digits, start + index))
        at += 1
    return _put_zeros(out, at, max(point - count, 0)), weight


@inner
def put_number(out: Any, at: int, data: Any, place: int, length: int, digits: Any) -> Any:
    """Print a number given as text; return the place after it and its weight, or -1 if DynamoDB has no such number."""
    stop = place + length
    byte = peek(data, place) if length > 0 else 0
    negative = byte == _MINUS
    if negative or byte == _PLUS:
        place += 1
    n_digits, n_significant, point, exponent = 0, 0, 0, 0
    has_digit, has_dot = False, False
    while place < stop:
        byte = peek(data, place)
        place += 1
        if _ZERO <= byte <= _NINE:
            has_digit = True
            if n_digits > 0 or byte != _ZERO:
                if n_digits < _KEPT_DIGITS:
                    poke(digits, n_digits, byte)
                n_digits += 1
                if byte != _ZERO:
                    n_significant = n_digits
                if not has_dot:
                    point += 1
            elif has_dot:
                point -= 1
        elif byte == _DOT and not has_dot:
            has_dot = True
        elif byte in _EXPONENT and has_digit:
            exponent = _exponent(data, place, stop)
            if exponent > _LARGEST_EXPONENT:
                return -1, 0
            place = stop
        else:
            return -1, 0
    if not has_digit:
        return -1, 0
    if n_significant == 0:
        poke(out, at, _ZERO)
        return at + 1, 1
    point += exponent
    if n_significant > MAX_DIGITS or point - 1 < MIN_EXPONENT or point - 1 > MAX_EXPONENT:
        return -1, 0
    return _put_plain(out, at, digits, 0, n_significant, point, negative)


@inner
def _exponent(data: Any, place: int, stop: int) -> Any:
    """Return an exponent, cut where it is far out of range, or more than that if it is none."""
    byte = peek(data, place) if place < stop else 0
    negative = byte == _MINUS
    if negative or byte == _PLUS:
        place += 1
    if place >= stop:
        return 2 * _LARGEST_EXPONENT
    value = 0
    while place < stop:
        byte = peek(data, place)
        if byte < _ZERO or byte > _NINE:
            return 2 * _LARGEST_EXPONENT
        value = min(value * 10 + byte - _ZERO, _LARGEST_EXPONENT)
        place += 1
    return -value if negative else value
