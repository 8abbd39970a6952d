"""Exact parsing, validation and printing of DynamoDB numbers, without rounding.

``parse_number`` is the only function of the compiled code that validates a number: at most 38 significant digits, from
1E-130 to 9.99E+125. ``read_digits`` reads short plain numbers faster, eight digits a step. Numbers are printed in the
canonical format: plain decimal without exponent or superfluous zeros.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.jit import inlined, inner
from ddbio.items.kernel.memory import load64, lowest_bit, out_of_line, peek, poke
from ddbio.items.number import MAX_DIGITS, MAX_EXPONENT, MIN_EXPONENT

LONGEST_NUMBER = MAX_DIGITS - MIN_EXPONENT + 16
"""More bytes than the canonical text of any number."""

PLUS, MINUS, POINT, ZERO, NINE = ord("+"), ord("-"), ord("."), ord("0"), ord("9")
_EXPONENTS = (ord("e"), ord("E"))
_LARGEST_EXPONENT = 10**17

_ZEROS = np.uint64(0x3030303030303030)
_TO_HIGH = np.uint64(0x7676767676767676)
_HIGH = np.uint64(0x8080808080808080)
_PAIR_MASK = np.uint64(0x000000FF000000FF)
_PAIRS_LOW = np.uint64(100 + (1_000_000 << 32))
_PAIRS_HIGH = np.uint64(1 + (10_000 << 32))
_BYTE, _LAST_BYTE, _POINT_OF_ZEROS = np.uint64(0xFF), np.uint64(56), np.uint64(POINT ^ ZERO)
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


@inlined
def plain_number(data: Any, position: int, length: int) -> Any:
    """Return the digits of an unsigned number of 1 to 16 bytes, and the number of digits after its point.

    The latter is -1 if the number is not canonical.
    """
    # The last byte of a word is the highest. The bytes below the first digit are zero.
    if length <= _WORD_BYTES:
        word = (load64(data, position) ^ _ZEROS) << np.uint64(64 - 8 * length)
        others, scale = _not_digits(word), 0
        if others != 0:
            word, scale = _without_point(word, others)
        value = _eight_digits(word)
    else:
        low = length - _WORD_BYTES
        first, unused = load64(data, position) ^ _ZEROS, np.uint64(64 - 8 * low)
        word = (load64(data, position + low) ^ _ZEROS) >> unused << unused
        others, scale = _not_digits(first), 0
        if others != 0:
            first, scale = _without_point(first, others)
            scale = -1 if scale < 0 or _not_digits(word) != 0 else scale + low
        else:
            others = _not_digits(word)
            if others != 0:
                word, scale = _without_point(word, others)
                low -= 1
        value = _eight_digits(first) * _POWERS[low] + _eight_digits(word)
    # A canonical number has no leading zero except before the point, and no trailing zero after it.
    n_integer = length - scale - (scale > 0)
    if (peek(data, position) == ZERO and n_integer > 1) or (scale > 0 and (n_integer == 0 or word >> _LAST_BYTE == 0)):
        scale = -1
    return value, scale


@inner
def _not_digits(word: Any) -> Any:
    return ((word + _TO_HIGH) | word) & _HIGH


@inlined
def _without_point(word: Any, others: Any) -> Any:
    """Remove the point from a word of digits; return the digits after it too, or -1 if there are other characters."""
    point = np.uint64(lowest_bit(others) & ~7)
    low = (np.uint64(1) << point) - np.uint64(1)
    is_point = (word >> point) & _BYTE == _POINT_OF_ZEROS
    word = (word & ~(low << _BYTE_BITS | _BYTE)) | (word & low) << _BYTE_BITS
    scale = 7 - np.int64(point >> np.uint64(3))
    return word, scale if is_point and scale > 0 and _not_digits(word) == 0 else -1


@inner
def read_digits(data: Any, position: int) -> Any:
    """Return the value of the digits at ``position`` and their end; with more than 19 digits the value is wrong."""
    value = np.uint64(0)
    limit = position + 3 * 8
    while True:
        word = load64(data, position) ^ _ZEROS
        count = lowest_bit(((word + _TO_HIGH) | word) & _HIGH) >> 3
        if count < _WORD_BYTES:
            break
        value = value * _EIGHT_DIGITS + _eight_digits(word)
        position += 8
        if position >= limit:
            return value, position
    if count > 0:
        value = value * _POWERS[count] + _eight_digits(word << np.uint64(64 - 8 * count))
    return value, position + count


@inner
def parse_number(data: Any, position: int, stop: int, digits: Any) -> Any:
    """Parse a text as a number; return whether it is one, its sign, the count of its significant digits, and the point.

    The digits are written to ``digits``. The value is 0.digits times ten to the power of the point; zero has no digits.
    """
    out_of_line()
    negative = False
    if position < stop and (peek(data, position) == MINUS or peek(data, position) == PLUS):
        negative = peek(data, position) == MINUS
        position += 1
    total, significant, fraction = 0, 0, 0
    has_digits, in_fraction = False, False
    while position < stop:
        byte = peek(data, position)
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
        position += 1
    is_number, exponent = _exponent(data, position, stop)
    if not has_digits or not is_number:
        return False, False, 0, 0
    if significant == 0:
        return True, False, 0, 0
    point = total - fraction + exponent
    within = MIN_EXPONENT <= point - 1 <= MAX_EXPONENT
    return significant <= MAX_DIGITS and within, negative, significant, point


@inner
def _exponent(data: Any, position: int, stop: int) -> Any:
    """Return whether the rest of a number is an exponent or empty, and the exponent, clamped far out of range."""
    if position == stop:
        return True, 0
    if peek(data, position) not in _EXPONENTS:
        return False, 0
    position += 1
    negative = False
    if position < stop and (peek(data, position) == MINUS or peek(data, position) == PLUS):
        negative = peek(data, position) == MINUS
        position += 1
    first = position
    value = 0
    while position < stop and ZERO <= peek(data, position) <= NINE:
        value = min(value * 10 + peek(data, position) - ZERO, _LARGEST_EXPONENT)
        position += 1
    return position == stop and position > first, -value if negative else value


@inner
def is_canonical(data: Any, position: int, stop: int) -> Any:
    """Return whether a text is a canonical number that is short enough to be in range for certain."""
    n_integer, _ = canonical_digits(data, position, stop)
    return n_integer >= 0


@inner
def canonical_digits(data: Any, position: int, stop: int) -> Any:
    """Return the counts of digits before and after the point of a canonical number.

    A zero before the point is not counted. The first count is -1 if the number is not canonical, or too long to be in
    range for certain.
    """
    out_of_line()
    if stop - position > MAX_DIGITS:
        return -1, 0
    negative = peek(data, position) == MINUS
    position += negative
    first = position
    while position < stop and ZERO <= peek(data, position) <= NINE:
        position += 1
    n_integer, has_zero = position - first, peek(data, first) == ZERO
    if n_integer == 0 or (has_zero and (n_integer > 1 or (negative and position == stop))):
        return -1, 0
    if position == stop:
        return n_integer - has_zero, 0
    if peek(data, position) != POINT:
        return -1, 0
    position += 1
    first = position
    while position < stop and ZERO <= peek(data, position) <= NINE:
        position += 1
    is_whole = position == stop and position > first and peek(data, stop - 1) != ZERO
    return (n_integer - has_zero if is_whole else -1), position - first


@inner
def unscaled(digits: Any, count: int, point: int, scale: int) -> Any:
    """Return the two words, high first, of a parsed number times ten to ``scale``: at most 38 digits, exact."""
    out_of_line()
    high, low = np.uint64(0), np.uint64(0)
    for index in range(point + scale if count > 0 else 0):
        digit = np.uint64(peek(digits, index) - ZERO if index < count else 0)
        part = (low & _LOW_HALF) * _TEN + digit
        upper = (low >> _HALF) * _TEN + (part >> _HALF)
        low = (upper << _HALF) | (part & _LOW_HALF)
        high = high * _TEN + (upper >> _HALF)
    return high, low


@inner
def unscaled_text(data: Any, position: int, scale: int) -> Any:
    """Do the same as ``unscaled`` for the text of an unsigned canonical number, which is followed by a quote."""
    out_of_line()
    high, low, position, _ = _append_digits(data, position, np.uint64(0), np.uint64(0))
    if peek(data, position) == POINT:
        high, low, _, count = _append_digits(data, position + 1, high, low)
        scale -= count
    return times_power(high, low, scale)


@inner
def _append_digits(data: Any, position: int, high: Any, low: Any) -> Any:
    """Append the digits at ``position`` to the two words; return them, the position after the digits, and the count."""
    first = position
    while True:
        word = load64(data, position) ^ _ZEROS
        others = _not_digits(word)
        count = lowest_bit(others) >> 3
        if count > 0:
            digits = _eight_digits(word << np.uint64(64 - 8 * count))
            high, low = _times(high, low, _POWERS[count], digits)
        position += count
        if others != 0:
            return high, low, position, position - first


@inner
def times_power(high: Any, low: Any, power: int) -> Any:
    """Return a number of two words times ten to a nonnegative power."""
    while power > 0:
        step = min(power, _WORD_BYTES)
        high, low = _times(high, low, _POWERS[step], np.uint64(0))
        power -= step
    return high, low


@inner
def _times(high: Any, low: Any, factor: Any, more: Any) -> Any:
    """Return a number of two words times a factor of 32 bits, plus ``more``."""
    part = (low & _LOW_HALF) * factor + more
    upper = (low >> _HALF) * factor + (part >> _HALF)
    return high * factor + (upper >> _HALF), (upper << _HALF) | (part & _LOW_HALF)


_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8)
_N_POWERS = 20
_HUNDRED = np.uint64(100)
_GROUP = np.uint64(10**9)
_GROUPS, _GROUP_DIGITS = 5, 9


@inner
def _count_digits(magnitude: Any) -> Any:
    """Return the number of digits of a positive integer."""
    if magnitude < _POWERS[8]:
        if magnitude < _POWERS[4]:
            if magnitude < _HUNDRED:
                return 1 + (magnitude >= _TEN)
            return 3 + (magnitude >= _POWERS[3])
        if magnitude < _POWERS[6]:
            return 5 + (magnitude >= _POWERS[5])
        return 7 + (magnitude >= _POWERS[7])
    n_digits = 9
    while n_digits < _N_POWERS and magnitude >= _POWERS[n_digits]:
        n_digits += 1
    return n_digits


@inner
def _print_lowest(out: Any, position: int, magnitude: Any, count: int) -> Any:
    """Print the lowest ``count`` digits of an integer before ``position``; return the integer without them."""
    while count >= 2:  # noqa: PLR2004 - a pair
        quotient = magnitude // _HUNDRED
        pair = np.int64(magnitude - quotient * _HUNDRED) * 2
        magnitude = quotient
        position -= 2
        poke(out, position, _PAIRS[pair])
        poke(out, position + 1, _PAIRS[pair + 1])
        count -= 2
    if count > 0:
        quotient = magnitude // _TEN
        poke(out, position - 1, np.int64(magnitude - quotient * _TEN) + ZERO)
        magnitude = quotient
    return magnitude


@inner
def _print_zeros(out: Any, at: int, count: int) -> Any:
    for position in range(at, at + count):
        poke(out, position, ZERO)
    return at + count


@inner
def number_size(n_digits: int, negative: Any) -> Any:
    """Return the size of a number with ``n_digits`` significant digits, as DynamoDB counts it."""
    return (n_digits + 1) // 2 + 1 + negative


@inner
def print_integer(out: Any, at: int, magnitude: Any, negative: Any, scale: int) -> Any:
    """Print ``magnitude`` x 10^-``scale``; return the position after it and its size."""
    if magnitude == 0:
        poke(out, at, ZERO)
        return at + 1, 1
    tenth = magnitude // _TEN
    while tenth * _TEN == magnitude:
        magnitude = tenth
        scale -= 1
        tenth = magnitude // _TEN
    n_digits = _count_digits(magnitude)
    if negative:
        poke(out, at, MINUS)
        at += 1
    size = number_size(n_digits, negative)
    if scale <= 0:
        _print_lowest(out, at + n_digits, magnitude, n_digits)
        return _print_zeros(out, at + n_digits, -scale), size
    if scale >= n_digits:
        poke(out, at, ZERO)
        poke(out, at + 1, POINT)
        stop = _print_zeros(out, at + 2, scale - n_digits) + n_digits
        _print_lowest(out, stop, magnitude, n_digits)
        return stop, size
    stop = at + n_digits + 1
    integer = _print_lowest(out, stop, magnitude, scale)
    poke(out, stop - scale - 1, POINT)
    _print_lowest(out, stop - scale - 1, integer, n_digits - scale)
    return stop, size


@inner
def print_decimal128(out: Any, at: int, low: int, high: int, scale: int, digits: Any) -> Any:
    """Print a 128-bit decimal; return the position after it and its size."""
    if high == low >> 63:
        negative = low < 0
        magnitude = np.uint64(0) - np.uint64(low) if negative else np.uint64(low)
        return print_integer(out, at, magnitude, negative, scale)
    return _print_wide(out, at, low, high, scale, digits)


@inner
def _print_wide(out: Any, at: int, low: int, high: int, scale: int, digits: Any) -> Any:
    out_of_line()
    negative = high < 0
    first, second = np.uint64(low), np.uint64(high)
    if negative:
        first, second = ~first + np.uint64(1), ~second
        if first == 0:
            second += np.uint64(1)
    for group in range(_GROUPS):
        # Long division of two words by 10^9, half a word at a time.
        part = second >> _HALF
        quotient, remainder = part // _GROUP, part % _GROUP
        part = remainder << _HALF | second & _LOW_HALF
        second, remainder = quotient << _HALF | part // _GROUP, part % _GROUP
        part = remainder << _HALF | first >> _HALF
        quotient, remainder = part // _GROUP, part % _GROUP
        part = remainder << _HALF | first & _LOW_HALF
        first, remainder = quotient << _HALF | part // _GROUP, part % _GROUP
        _print_lowest(digits, (_GROUPS - group) * _GROUP_DIGITS, remainder, _GROUP_DIGITS)
    start, stop = 0, _GROUPS * _GROUP_DIGITS
    while peek(digits, start) == ZERO:
        start += 1
    point = stop - start - scale
    while peek(digits, stop - 1) == ZERO:
        stop -= 1
    end = print_number(out, at, negative, digits, start, stop - start, point)
    return end, number_size(stop - start, negative)


@inner
def print_number(out: Any, at: int, negative: Any, digits: Any, start: int, count: int, point: int) -> Any:
    """Print 0.digits x 10^``point`` canonically, with the digits from ``start`` on; return the position after it."""
    if count == 0:
        poke(out, at, ZERO)
        return at + 1
    if negative:
        poke(out, at, MINUS)
        at += 1
    if point <= 0:
        poke(out, at, ZERO)
        poke(out, at + 1, POINT)
        at = _print_zeros(out, at + 2, -point)
    for index in range(count):
        if index == point and index > 0:
            poke(out, at, POINT)
            at += 1
        poke(out, at, peek(digits, start + index))
        at += 1
    return _print_zeros(out, at, max(point - count, 0))


@inner
def canonicalise_number(out: Any, at: int, data: Any, position: int, length: int, digits: Any) -> Any:
    """Print a text as a canonical number; return the position after it and its size, or -1 if it is not a number."""
    is_number, negative, count, point = parse_number(data, position, position + length, digits)
    if not is_number:
        return -1, 0
    return print_number(out, at, negative, digits, 0, count, point), number_size(count, negative)
