"""Print names, texts, blobs and decimals of text Ion as JSON holds them; refuses what the reference has to judge."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import copy32, out_of_line, peek, poke, special32
from ddbio.core.kernel.number import (
    LONGEST_NUMBER,
    MINUS,
    NINE,
    PLUS,
    POINT,
    ZERO,
    is_canonical,
    parse_number,
    print_number,
)
from ddbio.core.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA
from ddbio.core.kernel.text import BACKSLASH, QUOTE

FULL, REFUSED = 1, 2
"""Why printing ends, negated: the room is used up; the line is for the reference."""

SPACE = ord(" ")
_TAB, _RETURN, _APOSTROPHE, _DOLLAR = ord("\t"), ord("\r"), ord("'"), ord("$")
_LETTER_D, _LETTER_E, _LOWER_CASE = ord("d"), ord("e"), 32
_LONGEST_EXPONENT = 16
_STEP = 32

# Characters of names without quotes and of base64, and the escapes that mean the same in JSON.
_IS_NAME = np.zeros(256, np.uint8)
_IS_BASE64 = np.zeros(256, np.uint8)
for _letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789":
    _IS_NAME[_letter] = _IS_BASE64[_letter] = 1
for _letter in b"$_":
    _IS_NAME[_letter] = 1
for _letter in b"+/=":
    _IS_BASE64[_letter] = 1
_ESCAPES = np.zeros(256, np.uint8)
for _letter in b'"\\/bfnrtu':
    _ESCAPES[_letter] = 1


@inner
def skip_spaces(data: Any, place: int) -> Any:
    """Return the first place that holds no white space; a line's end is none."""
    while True:
        byte = peek(data, place)
        if byte not in (SPACE, _TAB, _RETURN):
            return place
        place += 1


@inner
def is_end(data: Any, place: int) -> Any:
    """Return whether a number or a word has ended here."""
    return peek(data, place) in (COMMA, CLOSE_OBJECT, CLOSE_ARRAY, SPACE)


@inner
def print_text(data: Any, place: int, out: Any, at: int, limit: int) -> Any:
    """Print what stands between quotes; return the places behind the closing quote and behind the print."""
    while True:
        if at > limit:
            return -FULL, at
        step = special32(data, place)
        copy32(out, at, data, place)
        place += step
        at += step
        if step == _STEP:
            continue
        byte = peek(data, place)
        if byte == QUOTE:
            return place + 1, at
        letter = peek(data, place + 1)
        if byte != BACKSLASH or _ESCAPES[letter] == 0:
            return -REFUSED, at
        poke(out, at, byte)
        poke(out, at + 1, letter)
        place += 2
        at += 2


@inner
def print_name(data: Any, place: int, out: Any, at: int, limit: int) -> Any:
    """Print the name of a field and its colon; return the place of its value, and the one behind the print."""
    poke(out, at, QUOTE)
    byte = peek(data, place)
    if byte == QUOTE:
        place, at = print_text(data, place + 1, out, at + 1, limit)
    elif byte == _APOSTROPHE:
        place, at = _print_quoted(data, place + 1, out, at + 1, limit)
    else:
        place, at = _print_bare(data, place, out, at + 1, limit)
    if place < 0:
        return place, at
    place = skip_spaces(data, place)
    if peek(data, place) != COLON:
        return -REFUSED, at
    poke(out, at, QUOTE)
    poke(out, at + 1, COLON)
    at += 2
    return (skip_spaces(data, place + 1) if at <= limit else -FULL), at


@inner
def _print_quoted(data: Any, place: int, out: Any, at: int, limit: int) -> Any:
    """Print a name that stands between apostrophes; refuse escapes in it."""
    out_of_line()
    while at <= limit:
        byte = peek(data, place)
        place += 1
        if byte == _APOSTROPHE:
            return place, at
        if byte == BACKSLASH or byte < SPACE:
            return -REFUSED, at
        if byte == QUOTE:
            poke(out, at, BACKSLASH)
            at += 1
        poke(out, at, byte)
        at += 1
    return -FULL, at


@inner
def _print_bare(data: Any, place: int, out: Any, at: int, limit: int) -> Any:
    """Print a name that stands without quotes: an identifier, and no number of a symbol."""
    first = peek(data, place)
    if ZERO <= first <= NINE or (first == _DOLLAR and ZERO <= peek(data, place + 1) <= NINE):
        return -REFUSED, at
    start = place
    while at <= limit:
        byte = peek(data, place)
        if _IS_NAME[byte] == 0:
            return (place if place > start else -REFUSED), at
        poke(out, at, byte)
        place += 1
        at += 1
    return -FULL, at


@inner
def print_blob(data: Any, place: int, out: Any, at: int, limit: int) -> Any:
    """Print the base64 of a blob; return the places behind its braces and behind the print."""
    while at <= limit:
        byte = peek(data, place)
        if _IS_BASE64[byte] == 0:
            is_end = byte == CLOSE_OBJECT and peek(data, place + 1) == CLOSE_OBJECT
            return (place + 2 if is_end else -REFUSED), at
        poke(out, at, byte)
        place += 1
        at += 1
    return -FULL, at


@inner
def print_decimal(data: Any, place: int, out: Any, at: int, digits: Any) -> Any:
    """Print a decimal in the service's own spelling, which has no exponent and no idle zero."""
    start, stop = place, at
    place += peek(data, place) == MINUS
    _, place = _behind_digits(data, place)
    if peek(data, place) == POINT:
        _, place = _behind_digits(data, place + 1)
    if place - start > LONGEST_NUMBER:
        return -REFUSED, at
    for index in range(start, place):
        poke(out, stop, peek(data, index))
        stop += 1
    if peek(out, stop - 1) == POINT:
        stop -= 1
    if peek(data, place) | _LOWER_CASE == _LETTER_D:
        poke(out, stop, _LETTER_E)
        stop += 1
        start = place + 1
        count, place = _behind_digits(data, start + (peek(data, start) in (PLUS, MINUS)))
        if count == 0 or count > _LONGEST_EXPONENT:
            return -REFUSED, at
        for index in range(start, place):
            poke(out, stop, peek(data, index))
            stop += 1
    if not is_end(data, place):
        return -REFUSED, at
    if is_canonical(out, at, stop):
        return place, stop
    is_number, negative, count, point = parse_number(out, at, stop, digits)
    if not is_number:
        return -REFUSED, at
    return place, print_number(out, at, negative, digits, count, point)


@inner
def _behind_digits(data: Any, place: int) -> Any:
    """Return how many digits there are, and the place behind them."""
    start = place
    while ZERO <= peek(data, place) <= NINE:
        place += 1
    return place - start, place
