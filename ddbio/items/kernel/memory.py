"""Load, store, compare and copy bytes without bounds checks, eight or thirty-two at a time.

The checked build indexes arrays instead. Nothing here knows how long an array is: callers pad what they read and what
they write by ``PAD`` bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.jit import inner, intrinsic

PAD = 64
"""How many bytes beyond the data every array has: the longest step is half of it."""


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes, whatever they are."""
    return np.empty(n_bytes, np.uint8)


def allocate_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many zeros; those of large arrays take memory where they are written to."""
    return np.zeros(n_bytes, np.uint8)


def allocate_words(count: int) -> npt.NDArray[np.int64]:
    """Return as many words of zero."""
    return allocate_zeros(8 * count).view(np.int64)


pointers: Any = intrinsic("pointers")
"""Return a named tuple of arrays as one of pointers: numba counts references to every array at every step."""

out_of_line: Any = intrinsic("out_of_line")
"""Keep the function that calls this from being copied into its callers: what is rare should compile once."""

rare: Any = intrinsic("rare")
"""Do what ``out_of_line`` does, and let callers keep their registers for what they do otherwise."""

lowest_bit: Any = intrinsic("lowest_bit")
"""Return the number of the lowest set bit of a word, 64 if there is none."""

peek: Any = intrinsic("peek")
"""Return one element of an integer array as int64."""

poke: Any = intrinsic("poke")
"""Store one element of an array."""

load64: Any = intrinsic("load64")
"""Return eight bytes as a little-endian word."""

store64_reversed: Any = intrinsic("store64_reversed")
"""Store a word as eight bytes, the highest first."""

equal32: Any = intrinsic("equal32")
"""Return a bit per byte, lowest first, in which thirty-two bytes of two arrays agree."""

equal32_words: Any = intrinsic("equal32_words")
"""Return what ``equal32`` does, for thirty-two bytes and four little-endian words."""

special32: Any = intrinsic("special32")
"""Return the place of the first quote, backslash or control character among thirty-two bytes, or 32."""

base64_32: Any = intrinsic("base64_32")
"""Return a bit for each of thirty-two bytes, lowest first: whether it is a character of base64."""

mark32: Any = intrinsic("mark32")
"""Store a bit for each of thirty-two bytes, lowest first: whether it is a quote, backslash or control character."""

is_ascii35: Any = intrinsic("is_ascii35")
"""Return whether thirty-two bytes and the three before them are ASCII."""

is_utf8_32: Any = intrinsic("is_utf8_32")
"""Return whether thirty-two bytes continue the three before them as UTF-8; a character may continue after them."""

copy32: Any = intrinsic("copy32")
"""Copy thirty-two bytes from the second array to the first."""

_STEP = 32


@inner
def copy_bytes(out: Any, at: int, data: Any, place: int, length: int) -> Any:
    """Copy bytes as they are; return the place after them."""
    stop = at + length
    while at < stop:
        copy32(out, at, data, place)
        at += _STEP
        place += _STEP
    return stop


@inner
def copy_bytes_unpadded(out: Any, at: int, data: Any, place: int, length: int, end: int) -> Any:
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
