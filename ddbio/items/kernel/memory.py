"""Loads, stores, comparisons and copies of eight or thirty-two bytes, without bounds checks.

The checked build indexes arrays instead. These functions do not know the length of an array: callers pad what they read
and write by ``PAD`` bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.jit import inner, intrinsic

PAD = 64
"""The bytes of padding after the data of every array; the longest step is half of it."""


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return ``n_bytes`` uninitialised bytes."""
    return np.empty(n_bytes, np.uint8)


def allocate_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return ``n_bytes`` zeros; a large array takes memory only where it is written to."""
    return np.zeros(n_bytes, np.uint8)


def allocate_words(count: int) -> npt.NDArray[np.int64]:
    """Return ``count`` words of zero."""
    return allocate_zeros(8 * count).view(np.int64)


pointers: Any = intrinsic("pointers")
"""Convert a named tuple of arrays to one of pointers: numba counts references to arrays at every step."""

out_of_line: Any = intrinsic("out_of_line")
"""Keep the calling function from being inlined: rare code should be compiled once."""

rare: Any = intrinsic("rare")
"""Like ``out_of_line``, and mark the function as cold, so that its callers keep their registers for the usual path."""

lowest_bit: Any = intrinsic("lowest_bit")
"""Return the index of the lowest set bit of a word, or 64 if there is none."""

peek: Any = intrinsic("peek")
"""Return one element of an integer array as int64."""

poke: Any = intrinsic("poke")
"""Store one element of an array."""

load64: Any = intrinsic("load64")
"""Return eight bytes as a little-endian word."""

store64_reversed: Any = intrinsic("store64_reversed")
"""Store a word as eight bytes, the highest first."""

equal32: Any = intrinsic("equal32")
"""Return a bit mask, lowest bit first, of the bytes that are equal among thirty-two bytes of two arrays."""

equal32_words: Any = intrinsic("equal32_words")
"""Do the same as ``equal32``, for thirty-two bytes and four little-endian words."""

special32: Any = intrinsic("special32")
"""Return the index of the first quote, backslash or control character among thirty-two bytes, or 32."""

base64_32: Any = intrinsic("base64_32")
"""Return a bit mask, lowest bit first, of the characters of base64 among thirty-two bytes."""

mark32: Any = intrinsic("mark32")
"""Store a bit mask, lowest bit first, of the quotes, backslashes and control characters among thirty-two bytes."""

is_ascii35: Any = intrinsic("is_ascii35")
"""Return whether thirty-two bytes and the three before them are ASCII."""

is_utf8_32: Any = intrinsic("is_utf8_32")
"""Return whether thirty-two bytes continue the three before them as UTF-8; the last character may be incomplete."""

copy32: Any = intrinsic("copy32")
"""Copy thirty-two bytes from the second array to the first."""

_STEP = 32


@inner
def copy_bytes(out: Any, at: int, data: Any, position: int, length: int) -> Any:
    """Copy bytes; return the position after them in the output."""
    stop = at + length
    while at < stop:
        copy32(out, at, data, position)
        at += _STEP
        position += _STEP
    return stop


@inner
def copy_bytes_unpadded(out: Any, at: int, data: Any, position: int, length: int, end: int) -> Any:
    """Copy bytes of an array without padding, which ends at ``end``; return the position after them in the output."""
    stop = at + length
    while at < stop and position + _STEP <= end:
        copy32(out, at, data, position)
        at += _STEP
        position += _STEP
    while at < stop:
        poke(out, at, peek(data, position))
        at += 1
        position += 1
    return stop
