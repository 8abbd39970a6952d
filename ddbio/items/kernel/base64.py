"""Validation, decoding and encoding of base64 with padding. Other characters are refused, as in the plain reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.jit import inner
from ddbio.items.kernel.memory import base64_32, load64, peek, poke, rare, store64_reversed

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_CHARACTERS = np.frombuffer(_ALPHABET, np.uint8)
_PADDING = ord("=")
_INVALID = 0x80
_SEXTETS = np.full(256, _INVALID, dtype=np.uint8)
_SEXTETS[np.frombuffer(_ALPHABET, dtype=np.uint8)] = np.arange(64, dtype=np.uint8)


@inner
def decoded_length(data: Any, position: int, length: int) -> Any:
    """Return the decoded size of a text of base64, or -1 if its length or padding is wrong."""
    if length == 0:
        return 0
    if length & 3:
        return -1
    stop = position + length
    padding = 0
    if peek(data, stop - 1) == _PADDING:
        padding = 2 if peek(data, stop - 2) == _PADDING else 1
    return (length >> 2) * 3 - padding


@inner
def _quad(data: Any, position: int) -> Any:
    first, second = np.int64(_SEXTETS[peek(data, position)]), np.int64(_SEXTETS[peek(data, position + 1)])
    third, fourth = np.int64(_SEXTETS[peek(data, position + 2)]), np.int64(_SEXTETS[peek(data, position + 3)])
    if (first | second | third | fourth) & _INVALID:
        return -1
    return first << 18 | second << 12 | third << 6 | fourth


@inner
def _last_quad(data: Any, position: int, size: int) -> Any:
    """Return the three bytes of four characters whose last one or two are padding."""
    third = np.int64(_SEXTETS[peek(data, position + 2)]) if size == 2 else 0  # noqa: PLR2004 - one padding character
    first, second = np.int64(_SEXTETS[peek(data, position)]), np.int64(_SEXTETS[peek(data, position + 1)])
    if (first | second | third) & _INVALID:
        return -1
    return first << 18 | second << 12 | third << 6


@inner
def is_base64(data: Any, position: int, length: int) -> Any:
    """Return whether a text is base64."""
    rare()
    size = decoded_length(data, position, length)
    stop = position + (size * 4 + 2) // 3
    while position < stop:
        if base64_32(data, position) | ~((1 << min(stop - position, 32)) - 1) != -1:
            return False
        position += 32
    return size >= 0


@inner
def is_exact_base64(data: Any, position: int, length: int) -> Any:
    """Return whether a text is the canonical base64 of its bytes: the unused bits of its last character are 0."""
    stop = position + length
    if length == 0 or peek(data, stop - 1) != _PADDING:
        return True
    if peek(data, stop - 2) == _PADDING:
        return np.int64(_SEXTETS[peek(data, stop - 3)]) & 15 == 0
    return np.int64(_SEXTETS[peek(data, stop - 2)]) & 3 == 0


@inner
def decode_base64(target: int, at: int, data: Any, position: int, size: int) -> Any:
    """Decode a validated text of base64 to ``size`` bytes."""
    for _ in range(size // 3):
        quad = _quad(data, position)
        poke(target, at, quad >> 16)
        poke(target, at + 1, quad >> 8 & 0xFF)
        poke(target, at + 2, quad & 0xFF)
        position += 4
        at += 3
    n_last = size % 3
    if n_last > 0:
        quad = _last_quad(data, position, n_last)
        poke(target, at, quad >> 16)
        if n_last == 2:  # noqa: PLR2004 - one padding character
            poke(target, at + 1, quad >> 8 & 0xFF)


PAIRS = np.full(1 << 16, 1 << 15, np.uint16)
"""The twelve bits that two characters encode, by the characters as a little-endian word.

Bit 15 marks a refused pair.
"""
for _high, _first in enumerate(_ALPHABET):
    PAIRS[_CHARACTERS.astype(np.int64) << 8 | _first] = _high << 6 | np.arange(64)
_REFUSED = np.uint64(1 << 15)
_PAIR_BITS, _WORD_BITS, _PAIR_MASK = np.uint64(12), np.uint64(16), np.uint64(0xFFFF)


@inner
def decode_whole_base64(target: Any, at: int, data: Any, position: int, length: int, pairs: Any) -> Any:
    """Validate and decode a text of base64; return the number of bytes, or -1 if the text is not base64.

    Parameters
    ----------
    pairs
        ``PAIRS``.
    """
    size = decoded_length(data, position, length)
    if size <= 0:
        return size
    n_remaining, refused = size, np.uint64(0)
    # Each step decodes eight characters to six bytes but stores eight bytes: the last bytes are stored one by one.
    while n_remaining > 8:  # noqa: PLR2004 - the bytes of a store
        word = load64(data, position)
        one = np.uint64(peek(pairs, np.int64(word & _PAIR_MASK)))
        two = np.uint64(peek(pairs, np.int64(word >> _WORD_BITS & _PAIR_MASK)))
        word >>= np.uint64(32)
        three = np.uint64(peek(pairs, np.int64(word & _PAIR_MASK)))
        four = np.uint64(peek(pairs, np.int64(word >> _WORD_BITS)))
        refused |= one | two | three | four
        word = ((one << _PAIR_BITS | two) << _PAIR_BITS | three) << _PAIR_BITS | four
        store64_reversed(target, at, word << _WORD_BITS)
        position += 8
        at += 6
        n_remaining -= 6
    if refused & _REFUSED != 0 or not is_base64(data, position, (n_remaining + 2) // 3 * 4):
        return -1
    decode_base64(target, at, data, position, n_remaining)
    return size


@inner
def encode_base64(out: Any, at: int, data: Any, position: int, length: int) -> Any:
    """Encode bytes as base64 with padding; return the position after it in the output."""
    stop = position + length
    while position < stop:
        # Bytes that are read after the end are overwritten below.
        quad = peek(data, position) << 16 | peek(data, position + 1) << 8 | peek(data, position + 2)
        n_remaining = stop - position
        if n_remaining < 3:  # noqa: PLR2004 - the last of three bytes
            quad &= 0xFF0000 if n_remaining == 1 else 0xFFFF00
        poke(out, at, _CHARACTERS[quad >> 18])
        poke(out, at + 1, _CHARACTERS[quad >> 12 & 63])
        poke(out, at + 2, _CHARACTERS[quad >> 6 & 63])
        poke(out, at + 3, _CHARACTERS[quad & 63])
        at += 4
        position += 3
    if position > stop:
        poke(out, at - 1, _PADDING)
        if position - stop == 2:  # noqa: PLR2004 - two bytes are missing
            poke(out, at - 2, _PADDING)
    return at
