"""Conversion of lines of Amazon Ion text, as in exports, to lines of DynamoDB JSON.

Numbers are printed in the canonical format. A line with rare syntax is refused and left to the plain reference. The
decoder of the printed lines checks duplicate names, base64 and UTF-8.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.jit import inner, int64, loop, uint8
from ddbio.items.kernel.memory import copy32, load64, out_of_line, peek, poke, special32
from ddbio.items.kernel.number import (
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
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT, read_literal
from ddbio.items.kernel.text import BACKSLASH, QUOTE

FULL, REFUSED = 1, 2
"""The reasons to stop printing, which functions return negated: a full output, or a line for the reference."""

SPACE = ord(" ")
_TAB, _RETURN, _APOSTROPHE, _DOLLAR = ord("\t"), ord("\r"), ord("'"), ord("$")
_LETTER_D, _LETTER_E, _LOWER_CASE = ord("d"), ord("e"), 32
_LONGEST_EXPONENT = 16
_STEP = 32

# Characters of unquoted names and of base64, and the escapes with the same meaning in JSON.
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
def skip_spaces(data: Any, position: int) -> Any:
    """Return the first position without white space; the end of a line is not white space."""
    while True:
        byte = peek(data, position)
        if byte not in (SPACE, _TAB, _RETURN):
            return position
        position += 1


@inner
def is_end(data: Any, position: int) -> Any:
    """Return whether the character at ``position`` ends a number or a word."""
    return peek(data, position) in (COMMA, CLOSE_OBJECT, CLOSE_ARRAY, SPACE)


@inner
def print_text(data: Any, position: int, out: Any, at: int, limit: int) -> Any:
    """Print a text from after its opening quote; return the positions after it in the data and the output."""
    while True:
        if at > limit:
            return -FULL, at
        step = special32(data, position)
        copy32(out, at, data, position)
        position += step
        at += step
        if step == _STEP:
            continue
        byte = peek(data, position)
        if byte == QUOTE:
            return position + 1, at
        letter = peek(data, position + 1)
        if byte != BACKSLASH or _ESCAPES[letter] == 0:
            return -REFUSED, at
        poke(out, at, byte)
        poke(out, at + 1, letter)
        position += 2
        at += 2


@inner
def print_name(data: Any, position: int, out: Any, at: int, limit: int) -> Any:
    """Print the name of a field and its colon; return the positions of its value and after the output."""
    poke(out, at, QUOTE)
    byte = peek(data, position)
    if byte == QUOTE:
        position, at = print_text(data, position + 1, out, at + 1, limit)
    elif byte == _APOSTROPHE:
        position, at = _print_quoted(data, position + 1, out, at + 1, limit)
    else:
        position, at = _print_bare(data, position, out, at + 1, limit)
    if position < 0:
        return position, at
    position = skip_spaces(data, position)
    if peek(data, position) != COLON:
        return -REFUSED, at
    poke(out, at, QUOTE)
    poke(out, at + 1, COLON)
    at += 2
    return (skip_spaces(data, position + 1) if at <= limit else -FULL), at


@inner
def _print_quoted(data: Any, position: int, out: Any, at: int, limit: int) -> Any:
    """Print a name between apostrophes; refuse escapes in it."""
    out_of_line()
    while at <= limit:
        byte = peek(data, position)
        position += 1
        if byte == _APOSTROPHE:
            return position, at
        if byte == BACKSLASH or byte < SPACE:
            return -REFUSED, at
        if byte == QUOTE:
            poke(out, at, BACKSLASH)
            at += 1
        poke(out, at, byte)
        at += 1
    return -FULL, at


@inner
def _print_bare(data: Any, position: int, out: Any, at: int, limit: int) -> Any:
    """Print a name without quotes: an identifier, but not a symbol number."""
    first = peek(data, position)
    if ZERO <= first <= NINE or (first == _DOLLAR and ZERO <= peek(data, position + 1) <= NINE):
        return -REFUSED, at
    start = position
    while at <= limit:
        byte = peek(data, position)
        if _IS_NAME[byte] == 0:
            return (position if position > start else -REFUSED), at
        poke(out, at, byte)
        position += 1
        at += 1
    return -FULL, at


@inner
def print_blob(data: Any, position: int, out: Any, at: int, limit: int) -> Any:
    """Print the base64 of a blob; return the positions after its braces and after the output."""
    while at <= limit:
        byte = peek(data, position)
        if _IS_BASE64[byte] == 0:
            is_end = byte == CLOSE_OBJECT and peek(data, position + 1) == CLOSE_OBJECT
            return (position + 2 if is_end else -REFUSED), at
        poke(out, at, byte)
        position += 1
        at += 1
    return -FULL, at


@inner
def print_decimal(data: Any, position: int, out: Any, at: int, digits: Any) -> Any:
    """Print a decimal in the canonical format, i.e. without exponent and superfluous zeros."""
    start, stop = position, at
    position += peek(data, position) == MINUS
    count, position = _after_digits(data, position)
    if count == 0:
        return -REFUSED, at
    if peek(data, position) == POINT:
        _, position = _after_digits(data, position + 1)
    if position - start > LONGEST_NUMBER:
        return -REFUSED, at
    for index in range(start, position):
        poke(out, stop, peek(data, index))
        stop += 1
    if peek(out, stop - 1) == POINT:
        stop -= 1
    if peek(data, position) | _LOWER_CASE == _LETTER_D:
        poke(out, stop, _LETTER_E)
        stop += 1
        start = position + 1
        count, position = _after_digits(data, start + (peek(data, start) in (PLUS, MINUS)))
        if count == 0 or count > _LONGEST_EXPONENT:
            return -REFUSED, at
        for index in range(start, position):
            poke(out, stop, peek(data, index))
            stop += 1
    if not is_end(data, position):
        return -REFUSED, at
    if is_canonical(out, at, stop):
        return position, stop
    is_number, negative, count, point = parse_number(out, at, stop, digits)
    if not is_number:
        return -REFUSED, at
    return position, print_number(out, at, negative, digits, 0, count, point)


@inner
def _after_digits(data: Any, position: int) -> Any:
    """Return the number of digits at ``position``, and the position after them."""
    start = position
    while ZERO <= peek(data, position) <= NINE:
        position += 1
    return position - start, position


DONE = 0
"""All of the data is printed; otherwise the status is ``FULL`` or ``REFUSED``."""

MAX_DEPTH = 64
"""More levels than an item may have, including the structs around it."""

RESERVED_BYTES = 2 * LONGEST_NUMBER + 64
"""Free bytes before each value: more than the print of any value except a text, a blob or a name."""

_NEWLINE = ord("\n")
_LETTER_S, _LETTER_N, _LETTER_B = ord("S"), ord("N"), ord("B")

_HEAD_BYTES = 32
_HEADS = np.frombuffer(
    b"".join(
        head.ljust(_HEAD_BYTES, b"\0")
        for head in (
            b"", b"{", b'{"M":{', b'{"L":[', b'{"SS":[', b'{"NS":[', b'{"BS":[',
            b'{"S":"', b'{"N":"', b'{"B":"', b'{"NULL":true}', b'{"BOOL":true}', b'{"BOOL":false}',
        )
    ),
    np.uint8,
)  # fmt: skip
# The kinds of open containers: the line's struct, an image, a struct, a list or a set; each is the index of its head.
_OUTER, _MEMBERS, _STRUCT, _LIST, _SET, _NOTHING = 0, 1, 2, 3, 4, 7
_HEAD_OF_S, _HEAD_OF_N, _HEAD_OF_B, _NULL, _TRUE, _FALSE = 7, 8, 9, 10, 11, 12
_SCALAR_BYTES, _SET_BYTES, _WORD_BYTES = 6, 7, 13

_VERSION = int.from_bytes(b"$ion_1_0", "little")
_SET_MARK = int.from_bytes(b"$dynamod", "little")
_SET_MARK_MIDDLE = int.from_bytes(b"b_", "little")
_SET_MARK_END = int.from_bytes(b"S::[", "little")
_SET_MARK_BYTES = len("$dynamodb_SS::[")
_WORD_NULL = int.from_bytes(b"null", "little")
_RECORD, _RECORD_BYTES = int.from_bytes(b"Record", "little"), len("Record")
_TWO_BYTES, _FOUR_BYTES, _SIX_BYTES = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF


@loop(uint8[:], int64, int64, uint8[:], int64[:], uint8[:])
def print_ion(data: Any, position: int, stop: int, out: Any, levels: Any, digits: Any) -> Any:
    """Print whole lines; return the status, the position of the next line, and the number of printed bytes.

    ``data`` has ``PAD`` zeros after ``stop``, where every search ends. ``out`` is padded by ``PAD`` bytes too.
    """
    return _print_lines(data, position, stop, out, levels, digits)


@inner
def _print_lines(data: Any, position: int, stop: int, out: Any, levels: Any, digits: Any) -> Any:
    limit = len(out) - RESERVED_BYTES
    at = 0
    while True:
        line = skip_spaces(data, position)
        while np.int64(load64(data, line)) == _VERSION and peek(data, line + 8) == SPACE:
            line = skip_spaces(data, line + 8)
        if line >= stop:
            return DONE, stop, at
        if peek(data, line) == _NEWLINE:
            position = line + 1
            continue
        if at > limit:
            return FULL, position, at
        end, out_end = _print_line(data, line, out, at, limit, levels, digits)
        if end < 0:
            return -end, position, at
        end = skip_spaces(data, end)
        if end < stop and peek(data, end) != _NEWLINE:
            return REFUSED, position, at
        poke(out, out_end, _NEWLINE)
        at = out_end + 1
        position = end + 1
        if end >= stop:
            return DONE, stop, at


@inner
def _print_line(data: Any, position: int, out: Any, at: int, limit: int, levels: Any, digits: Any) -> Any:
    """Return the ends of a line's struct in the data and the output; a negative status if printing stopped in it."""
    if peek(data, position) != OPEN_OBJECT:
        return -REFUSED, at
    poke(out, at, OPEN_OBJECT)
    at += 1
    inside = _record_at(data, position + 1)
    is_wrapped = inside > 0
    position = inside if is_wrapped else position + 1
    depth, kind = 0, _OUTER
    while True:
        # The next token begins a member or an element, or closes the container.
        position = skip_spaces(data, position)
        byte = peek(data, position)
        if at > limit:
            return -FULL, at
        if byte == _closing(kind):
            if peek(out, at - 1) == COMMA:
                return -REFUSED, at
            position += 1
            poke(out, at, byte)
            at += 1
            if kind == _OUTER:
                if not is_wrapped:
                    return position, at
                position = skip_spaces(data, position)
                return (position + 1 if peek(data, position) == CLOSE_OBJECT else -REFUSED), at
            if kind != _MEMBERS:
                poke(out, at, CLOSE_OBJECT)
                at += 1
            depth -= 1
            kind = levels[depth]
        else:
            if kind <= _STRUCT:
                position, at = print_name(data, position, out, at, limit)
                if position < 0:
                    return position, at
                byte = peek(data, position)
            opened = _opened_at(data, position, kind)
            if opened != _NOTHING:
                if opened < 0 or depth == MAX_DEPTH:
                    return -REFUSED, at
                position += _SET_MARK_BYTES if opened >= _SET else 1
                copy32(out, at, _HEADS, _HEAD_BYTES * opened)
                at += 1 if opened == _MEMBERS else _SET_BYTES if opened >= _SET else _SCALAR_BYTES
                poke(levels, depth, kind)
                depth += 1
                kind = opened
                continue
            position, at = _print_scalar(data, position, out, at, limit, kind, digits)
            if position < 0:
                return position, at
        # After a value.
        position = skip_spaces(data, position)
        byte = peek(data, position)
        if byte == COMMA:
            poke(out, at, COMMA)
            at += 1
            position += 1
        elif byte != _closing(kind):
            return -REFUSED, at


@inner
def _record_at(data: Any, position: int) -> Any:
    """Return the position of the first member of a change that is nested in another struct, or -1."""
    position = skip_spaces(data, position)
    if np.int64(load64(data, position)) & _SIX_BYTES != _RECORD:
        return -1
    position = skip_spaces(data, position + _RECORD_BYTES)
    if peek(data, position) != COLON:
        return -1
    position = skip_spaces(data, position + 1)
    return position + 1 if peek(data, position) == OPEN_OBJECT else -1


@inner
def _closing(kind: int) -> Any:
    return CLOSE_OBJECT if kind <= _STRUCT else CLOSE_ARRAY


@inner
def _opened_at(data: Any, position: int, kind: int) -> Any:
    """Return the kind of container that begins here, ``_NOTHING`` if none does, or -1 if the reference must decide."""
    byte = peek(data, position)
    is_struct = byte == OPEN_OBJECT and peek(data, position + 1) != OPEN_OBJECT
    if kind == _OUTER:
        return _MEMBERS if is_struct else -1
    if not is_struct and byte not in (OPEN_ARRAY, _DOLLAR):
        return _NOTHING
    if kind >= _SET:
        return -1
    if byte == _DOLLAR:
        return _set_at(data, position)
    return _STRUCT if is_struct else _LIST


@inner
def _print_scalar(data: Any, position: int, out: Any, at: int, limit: int, kind: int, digits: Any) -> Any:
    byte = peek(data, position)
    if byte == QUOTE:
        head = _HEAD_OF_S
    elif byte == OPEN_OBJECT:
        head = _HEAD_OF_B
    elif ZERO <= byte <= NINE or byte == MINUS:
        head = _HEAD_OF_N
    elif kind >= _SET:
        return -REFUSED, at
    else:
        return _print_word(data, position, out, at)
    if kind < _SET:
        copy32(out, at, _HEADS, _HEAD_BYTES * head)
        at += _SCALAR_BYTES
    elif head - _HEAD_OF_S != kind - _SET:
        return -REFUSED, at
    else:
        poke(out, at, QUOTE)
        at += 1
    if head == _HEAD_OF_S:
        position, at = print_text(data, position + 1, out, at, limit)
    elif head == _HEAD_OF_N:
        position, at = print_decimal(data, position, out, at, digits)
    else:
        position, at = print_blob(data, position + 2, out, at, limit)
    poke(out, at, QUOTE)
    poke(out, at + 1, CLOSE_OBJECT)
    return position, at + (1 if kind >= _SET else 2)


@inner
def _set_at(data: Any, position: int) -> Any:
    """Return the kind of the set whose annotation and bracket are here, or -1."""
    middle, end = np.int64(load64(data, position + 8)), np.int64(load64(data, position + 11))
    if np.int64(load64(data, position)) != _SET_MARK or middle & _TWO_BYTES != _SET_MARK_MIDDLE:
        return -1
    if end & _FOUR_BYTES != _SET_MARK_END:
        return -1
    letter = peek(data, position + 10)
    if letter == _LETTER_S:
        return _SET
    if letter == _LETTER_N:
        return _SET + 1
    return _SET + 2 if letter == _LETTER_B else -1


@inner
def _print_word(data: Any, position: int, out: Any, at: int) -> Any:
    """Print null, true or false."""
    literal = read_literal(data, position)
    head, length = _TRUE, 4
    if literal == 0:
        head, length = _FALSE, 5
    elif literal < 0:
        head = _NULL
        if np.int64(load64(data, position)) & _FOUR_BYTES != _WORD_NULL:
            return -REFUSED, at
    if not is_end(data, position + length):
        return -REFUSED, at
    copy32(out, at, _HEADS, _HEAD_BYTES * head)
    return position + length, at + _WORD_BYTES + (head == _FALSE)
