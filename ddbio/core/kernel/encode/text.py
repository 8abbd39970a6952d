"""Print text with JSON's escapes and bytes as base64, and find what stands twice; refuses nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import copy32, load64, out_of_line, peek, poke, special32
from ddbio.core.kernel.text import hash_text

_STEP = 32
_SPACE, _BACKSLASH, _LETTER_U, _ZERO, _PAD = ord(" "), ord("\\"), ord("u"), ord("0"), ord("=")
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_LETTERS = np.zeros(256, np.uint8)
for _meant, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _LETTERS[_meant] = _letter
LONGEST_ESCAPE = 6

_FEW = 12
_WORD_BYTES, _WORD_BITS = 8, 64
_LENGTH_MASK = 0xFFFFFFFF


@inner
def put(out: Any, at: int, data: Any, place: int, length: int) -> Any:
    """Copy bytes as they are; return the place after them."""
    stop = at + length
    while at < stop:
        copy32(out, at, data, place)
        at += _STEP
        place += _STEP
    return stop


@inner
def put_exactly(out: Any, at: int, data: Any, place: int, length: int, end: int) -> Any:
    """Copy bytes of an array that ends at ``end``, without padding; return the place after them."""
    stop = at + length
    while at < stop and place + _STEP <= end:
        copy32(out, at, data, place)
        at += _STEP
        place += _STEP
    while at < stop:
        poke(out, at, peek(data, place))
        at += 1
        place += 1
    return stop


@inner
def put_text(out: Any, at: int, data: Any, place: int, length: int) -> Any:
    """Print what a JSON string holds; return the place after it."""
    stop = place + length
    while place < stop:
        copy32(out, at, data, place)
        clean = special32(data, place)
        step = min(_STEP, stop - place)
        if clean >= step:
            at += step
            place += step
        else:
            at = _put_escape(out, at + clean, peek(data, place + clean))
            place += clean + 1
    return at


@inner
def _put_escape(out: Any, at: int, byte: int) -> Any:
    out_of_line()
    poke(out, at, _BACKSLASH)
    letter = np.int64(_LETTERS[byte])
    if letter:
        poke(out, at + 1, letter)
        return at + 2
    poke(out, at + 1, _LETTER_U)
    poke(out, at + 2, _ZERO)
    poke(out, at + 3, _ZERO)
    poke(out, at + 4, _HEXADECIMAL[byte >> 4])
    poke(out, at + 5, _HEXADECIMAL[byte & 15])
    return at + LONGEST_ESCAPE


@inner
def put_base64(out: Any, at: int, data: Any, place: int, length: int) -> Any:
    """Print bytes as base64 with padding; return the place after it."""
    stop = place + length
    while place < stop:
        # What is read behind the bytes is overwritten below.
        quad = peek(data, place) << 16 | peek(data, place + 1) << 8 | peek(data, place + 2)
        left = stop - place
        if left < 3:  # noqa: PLR2004 - the last of three bytes
            quad &= 0xFF0000 if left == 1 else 0xFFFF00
        poke(out, at, _ALPHABET[quad >> 18])
        poke(out, at + 1, _ALPHABET[quad >> 12 & 63])
        poke(out, at + 2, _ALPHABET[quad >> 6 & 63])
        poke(out, at + 3, _ALPHABET[quad & 63])
        at += 4
        place += 3
    if place > stop:
        poke(out, at - 1, _PAD)
        if place - stop == 2:  # noqa: PLR2004 - two bytes are missing
            poke(out, at - 2, _PAD)
    return at


@inner
def _equal(data: Any, one: int, other: int, length: int) -> Any:
    while length > 0:
        difference = load64(data, one) ^ load64(data, other)
        if length < _WORD_BYTES:
            difference <<= np.uint64(_WORD_BITS - 8 * length)
        if difference != 0:
            return False
        one += _WORD_BYTES
        other += _WORD_BYTES
        length -= _WORD_BYTES
    return True


@inner
def has_twice(data: Any, start: int, spans: Any, place: int, count: int, slots: Any) -> Any:
    """Return whether two spans, each a place after ``start`` and a length, hold the same bytes.

    ``slots`` has at least twice as many places as there are spans, a power of two.
    """
    if count > _FEW:
        return _has_twice_of_many(data, start, spans, place, count, slots)
    for index in range(1, count):
        one = peek(spans, place + index)
        for earlier in range(index):
            other = peek(spans, place + earlier)
            if not (one ^ other) & _LENGTH_MASK and _equal(
                data, start + (one >> 32), start + (other >> 32), one & _LENGTH_MASK
            ):
                return True
    return False


@inner
def _has_twice_of_many(data: Any, start: int, spans: Any, place: int, count: int, slots: Any) -> Any:
    out_of_line()
    size = 2
    while size < 2 * count:
        size *= 2
    for place_of_slot in range(size):
        poke(slots, place_of_slot, -1)
    for index in range(count):
        one = peek(spans, place + index)
        length = one & _LENGTH_MASK
        slot = np.int64(hash_text(data, start + (one >> 32), length)) & (size - 1)
        while peek(slots, slot) >= 0:
            other = peek(slots, slot)
            if not (one ^ other) & _LENGTH_MASK and _equal(data, start + (one >> 32), start + (other >> 32), length):
                return True
            slot = (slot + 1) & (size - 1)
        poke(slots, slot, one)
    return False
