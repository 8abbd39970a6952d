"""Print columns of scalars as canonical DynamoDB JSON, a text per row; refuses what is no number.

Every loop writes from ``at`` and notes in ``ends`` where each row's text begins and, last, where the last one ends. It
returns that end, ``FULL`` if it would pass ``limit``, or ``REFUSED`` minus the row that it refuses. A row that is not
valid gets the text ``absent``, every other one ``before``, its value, ``after``.
"""

# Compiled code has neither exceptions nor objects.
# ruff: noqa: FBT001, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inlined, inner, loop
from ddbio.core.kernel.memory import PAD, copy32, out_of_line, peek, poke, special32
from ddbio.core.kernel.number import LONGEST_NUMBER, MINUS, POINT, ZERO, is_canonical, parse_number, print_number

FULL = -1
REFUSED = -2

_STEP = 32
_LONGEST_ESCAPE = 6
_SPACE, _QUOTE, _BACKSLASH, _UNICODE = ord(" "), ord('"'), ord("\\"), ord("u")
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING = ord("=")
_ESCAPES = np.zeros(128, np.uint8)
for _letter, _meant in zip(b'"\\bfnrt', b'"\\\b\f\n\r\t', strict=True):
    _ESCAPES[_meant] = _letter
_PAIRS = np.frombuffer("".join(f"{number:02d}" for number in range(100)).encode(), np.uint8)
_HUNDRED, _TEN = np.uint64(100), np.uint64(10)
_BILLION = np.uint64(10**9)
_LOW_HALF, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MOST_DIGITS = 40


@inlined
def put(target: Any, at: int, source: Any, place: int, size: int) -> Any:
    """Copy from a padded array to a padded one, and return where the copy ends."""
    stop = at + size
    while at < stop:
        copy32(target, at, source, place)
        at += _STEP
        place += _STEP
    return stop


@inner
def put_exactly(target: Any, at: int, source: Any, place: int, size: int, end: int) -> Any:
    """Copy from an array that ends at ``end`` to a padded one, and return where the copy ends."""
    stop = at + size
    while at < stop and place + _STEP <= end:
        copy32(target, at, source, place)
        at += _STEP
        place += _STEP
    while at < stop:
        poke(target, at, peek(source, place))
        at += 1
        place += 1
    return stop


@inner
def _put_escape(out: Any, at: int, byte: int) -> Any:
    out_of_line()
    poke(out, at, _BACKSLASH)
    if _ESCAPES[byte]:
        poke(out, at + 1, _ESCAPES[byte])
        return at + 2
    poke(out, at + 1, _UNICODE)
    poke(out, at + 2, ZERO)
    poke(out, at + 3, ZERO)
    poke(out, at + 4, _HEXADECIMAL[byte >> 4])
    poke(out, at + 5, _HEXADECIMAL[byte & 15])
    return at + _LONGEST_ESCAPE


@inner
def _put_quoted(out: Any, at: int, data: Any, place: int, stop: int, end: int, limit: int) -> Any:
    while place < stop:
        if at + _STEP + _LONGEST_ESCAPE > limit:
            return FULL
        if place + _STEP <= end:
            copy32(out, at, data, place)
            plain = min(special32(data, place), stop - place)
            at += plain
            place += plain
            if plain == _STEP or place == stop:
                continue
        byte = peek(data, place)
        if byte < _SPACE or byte in (_QUOTE, _BACKSLASH):
            at = _put_escape(out, at, byte)
        else:
            poke(out, at, byte)
            at += 1
        place += 1
    return at


@loop
def print_texts(
    data: Any, offsets: Any, is_plain: bool, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Print texts, with escapes unless they are plain."""
    end, room = len(data), len(before) + len(after) + len(absent)
    for row in range(len(ends) - 1):
        ends[row] = at
        place, stop = offsets[row], offsets[row + 1]
        if at + room + (stop - place) > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        if is_plain:
            at = put_exactly(out, at, data, place, stop - place, end)
        else:
            at = _put_quoted(out, at, data, place, stop, end, limit - room)
            if at == FULL:
                return FULL
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at


@loop
def print_choices(
    choices: Any, valid: Any, no: Any, yes: Any, absent: Any, out: Any, at: int, limit: int, ends: Any
) -> Any:
    """Print one of two texts a row."""
    for row in range(len(ends) - 1):
        ends[row] = at
        if at + len(no) + len(yes) + len(absent) > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
        elif choices[row]:
            at = put(out, at, yes, 0, len(yes) - PAD)
        else:
            at = put(out, at, no, 0, len(no) - PAD)
    ends[len(ends) - 1] = at
    return at


@loop
def print_binaries(
    data: Any, offsets: Any, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Print bytes as base64."""
    room = len(before) + len(after) + len(absent)
    for row in range(len(ends) - 1):
        ends[row] = at
        place, stop = offsets[row], offsets[row + 1]
        if at + room + (stop - place + 2) // 3 * 4 > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        at = _put_base64(out, at, data, place, stop)
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at


@inner
def _put_base64(out: Any, at: int, data: Any, place: int, stop: int) -> Any:
    while place + 3 <= stop:
        bits = peek(data, place) << 16 | peek(data, place + 1) << 8 | peek(data, place + 2)
        for index in range(4):
            poke(out, at + index, _ALPHABET[bits >> (18 - 6 * index) & 63])
        place += 3
        at += 4
    rest = stop - place
    if rest > 0:
        bits = peek(data, place) << 16 | (peek(data, place + 1) << 8 if rest > 1 else 0)
        poke(out, at, _ALPHABET[bits >> 18])
        poke(out, at + 1, _ALPHABET[bits >> 12 & 63])
        poke(out, at + 2, _ALPHABET[bits >> 6 & 63] if rest > 1 else _PADDING)
        poke(out, at + 3, _PADDING)
        at += 4
    return at


@inner
def _digits_of(high: Any, low: Any, digits: Any) -> Any:
    """Put the digits of two words, not both zero, at the end of ``digits``, and return where they begin."""
    at = _MOST_DIGITS
    while high > 0:
        # Long division by 10**9, half a word at a time.
        rest = high % _BILLION
        high //= _BILLION
        upper = (rest << _HALF) | (low >> _HALF)
        lower = ((upper % _BILLION) << _HALF) | (low & _LOW_HALF)
        low = ((upper // _BILLION) << _HALF) | (lower // _BILLION)
        part = lower % _BILLION
        for _ in range(9):
            at -= 1
            poke(digits, at, np.int64(part % _TEN) + ZERO)
            part //= _TEN
    while low >= _HUNDRED:
        pair = np.int64(low % _HUNDRED) * 2
        low //= _HUNDRED
        at -= 2
        poke(digits, at, _PAIRS[pair])
        poke(digits, at + 1, _PAIRS[pair + 1])
    if low >= _TEN:
        pair = np.int64(low) * 2
        poke(digits, at - 2, _PAIRS[pair])
        poke(digits, at - 1, _PAIRS[pair + 1])
        return at - 2
    poke(digits, at - 1, np.int64(low) + ZERO)
    return at - 1


@inner
def _put_scaled(out: Any, at: int, digits: Any, first: int, scale: int) -> Any:
    """Write digits with a point before the last ``scale`` of them, without superfluous zeros."""
    stop = _MOST_DIGITS
    while scale > 0 and stop > first and peek(digits, stop - 1) == ZERO:
        stop -= 1
        scale -= 1
    if scale <= 0 or stop == first:
        return put(out, at, digits, first, stop - first)
    whole = stop - first - scale
    if whole > 0:
        at = put(out, at, digits, first, whole)
        poke(out, at, POINT)
        return put(out, at + 1, digits, first + whole, scale)
    poke(out, at, ZERO)
    poke(out, at + 1, POINT)
    at += 2
    for _ in range(-whole):
        poke(out, at, ZERO)
        at += 1
    return put(out, at, digits, first, stop - first)


@loop
def print_numbers(
    words: Any, width: int, is_signed: bool, scale: int, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Print integers of one or two words, low first, over ten to the power of ``scale``."""
    room = len(before) + len(after) + len(absent) + LONGEST_NUMBER
    digits = np.zeros(_MOST_DIGITS + PAD, np.uint8)
    for row in range(len(ends) - 1):
        ends[row] = at
        if at + room > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        low = words[row * width]
        high = words[row * width + 1] if width > 1 else np.uint64(0)
        if is_signed and np.int64(high if width > 1 else low) < 0:
            poke(out, at, MINUS)
            at += 1
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == 0) if width > 1 else np.uint64(0)
        if low == 0 and high == 0:
            poke(out, at, ZERO)
            at += 1
        else:
            at = _put_scaled(out, at, digits, _digits_of(high, low, digits), scale)
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at


@loop
def print_number_texts(
    data: Any, offsets: Any, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Print texts of numbers of any spelling in the canonical one."""
    end, room = len(data), len(before) + len(after) + len(absent) + 2 * LONGEST_NUMBER
    digits = np.zeros(_MOST_DIGITS + PAD, np.uint8)
    for row in range(len(ends) - 1):
        ends[row] = at
        size = offsets[row + 1] - offsets[row]
        if at + room + size > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        # Looked at where it is padded, beyond what is printed.
        place = at + LONGEST_NUMBER
        put_exactly(out, place, data, offsets[row], size, end)
        if is_canonical(out, place, place + size):
            at = put(out, at, out, place, size)
        else:
            is_number, negative, count, point = parse_number(out, place, place + size, digits)
            if not is_number:
                return REFUSED - row
            at = print_number(out, at, negative, digits, count, point)
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at
