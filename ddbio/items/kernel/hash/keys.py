"""Hashes of the keys of rows: 64 bits by XXH64 with seed 0, the same on every machine and in every release.

Numbers are hashed in the canonical format, which is printed here. Text that is not a number is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.kernel.jit import inner, int64, loop, uint8, uint64
from ddbio.items.kernel.memory import copy_bytes, load64, peek, pointers, poke
from ddbio.items.kernel.number import canonicalise_number, print_decimal128

if TYPE_CHECKING:
    import numpy.typing as npt

# https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md#xxh64-algorithm-description
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE_BYTES = 32

PREFIX_BYTES = 1 + 4
"""The bytes before the content of each key: its tag and its length."""


@inner
def _rotate(word: Any, bits: int) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inner
def _mix(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


@inner
def _merge(value: Any, lane: Any) -> Any:
    return (value ^ _mix(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@inner
def _stripes(data: Any, position: int, stop: int) -> Any:
    one, two, three, four = _PRIME_1 + _PRIME_2, _PRIME_2, np.uint64(0), np.uint64(0) - _PRIME_1
    while position + _STRIPE_BYTES <= stop:
        one = _mix(one, load64(data, position))
        two = _mix(two, load64(data, position + 8))
        three = _mix(three, load64(data, position + 16))
        four = _mix(four, load64(data, position + 24))
        position += _STRIPE_BYTES
    value = _rotate(one, 1) + _rotate(two, 7) + _rotate(three, 12) + _rotate(four, 18)
    return _merge(_merge(_merge(_merge(value, one), two), three), four)


@inner
def xxh64(data: Any, position: int, stop: int) -> Any:
    """Return the hash of the bytes from ``position`` to ``stop``."""
    size = stop - position
    value = _PRIME_5
    if size >= _STRIPE_BYTES:
        value = _stripes(data, position, stop)
        position += size // _STRIPE_BYTES * _STRIPE_BYTES
    value += np.uint64(size)
    while position + 8 <= stop:
        value = _rotate(value ^ _mix(np.uint64(0), load64(data, position)), 27) * _PRIME_1 + _PRIME_4
        position += 8
    if position + 4 <= stop:
        word = np.uint64(0)
        for index in range(4):
            word |= np.uint64(peek(data, position + index)) << np.uint64(8 * index)
        value = _rotate(value ^ (word * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        position += 4
    while position < stop:
        value = _rotate(value ^ (np.uint64(peek(data, position)) * _PRIME_5), 11) * _PRIME_1
        position += 1
    value = (value ^ (value >> np.uint64(33))) * _PRIME_2
    value = (value ^ (value >> np.uint64(29))) * _PRIME_3
    return value ^ (value >> np.uint64(32))


class _Data(NamedTuple):
    data: npt.NDArray[np.uint8]


@loop(uint8[:], int64[:], uint8[:], int64, uint64[:])
def hash_keys(data: Any, contents: Any, tags: Any, at: int, hashes: Any) -> None:
    """Hash the tag, the length and the content of each key of a row, assembled at ``at``.

    ``contents`` has for each key the positions of its contents in ``data``; the content of a row ends where that of the
    next row begins. A tag of 0 is left out, with the length. ``data`` has space for the longest row.
    """
    _hash_keys(pointers(_Data(data)).data, contents, tags, at, hashes)


@inner
def _hash_keys(data: Any, contents: Any, tags: Any, at: int, hashes: Any) -> None:
    n_offsets = len(hashes) + 1
    for row in range(len(hashes)):
        stop = at
        for key in range(len(tags)):
            position = contents[key * n_offsets + row]
            size = contents[key * n_offsets + row + 1] - position
            if tags[key]:
                poke(data, stop, tags[key])
                for index in range(4):
                    poke(data, stop + 1 + index, size >> (8 * index) & 0xFF)
                stop += PREFIX_BYTES
            stop = copy_bytes(data, stop, data, position, size)
        hashes[row] = xxh64(data, at, stop)


DIGITS_BYTES = 64
"""The size of the buffer in which a loop writes the digits of a number."""


@loop(uint64[:], int64, uint8[:], uint8[:], int64[:])
def print_decimals(words: Any, scale: int, digits: Any, out: Any, ends: Any) -> None:
    """Print numbers of two words, low first, divided by ten to the power of ``scale``; write the end of each."""
    at = 0
    for row in range(len(ends)):
        at, _ = print_decimal128(out, at, np.int64(words[2 * row]), np.int64(words[2 * row + 1]), scale, digits)
        ends[row] = at


@loop(uint8[:], int64[:], uint8[:], uint8[:], int64[:])
def print_numbers(data: Any, offsets: Any, digits: Any, out: Any, ends: Any) -> Any:
    """Print numbers given as texts, and write the end of each; return the first row that is not a number, or -1.

    The number of an empty text is empty.
    """
    at = 0
    for row in range(len(offsets) - 1):
        if offsets[row + 1] > offsets[row]:
            at, _ = canonicalise_number(out, at, data, offsets[row], offsets[row + 1] - offsets[row], digits)
            if at < 0:
                return row
        ends[row] = at
    return -1
