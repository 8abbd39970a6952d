"""Hashes of the values of columns, added to the sum of each entry.

Keys are two words for all entries or two words per entry; sums are two words per entry. An invalid entry adds nothing,
or the hash of NULL if NULLs count. Arrow's validity bits are read from an offset; without bits all entries are valid.
Text that is not a number is refused.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: FBT001, PLR0913, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.digest import INDEX, ITEM, NAME, NULL, START, M
from ddbio.items.kernel.hash.mixing import (
    NOT_A_NUMBER,
    absorb,
    absorb_bytes,
    finish,
    last_of,
    text_number,
    wide_number,
    word_number,
)
from ddbio.items.kernel.jit import boolean, inlined, int64, loop, uint8, uint64
from ddbio.items.kernel.memory import pointers

if TYPE_CHECKING:
    import numpy.typing as npt

FINE = -1
"""The result of a loop that refuses no entry."""

_LEFT_START, _RIGHT_START = (np.uint64(word) for word in START)
_ZERO = np.uint64(0)
DIGITS_BYTES = 64
"""The size of the buffer in which ``add_number_texts`` writes the digits of a number."""


@inlined
def _is_set(bits: Any, position: int) -> Any:
    return bits[position >> 3] >> (position & 7) & 1


@inlined
def _is_valid(valid: Any, offset: int, entry: int) -> Any:
    return len(valid) == 0 or _is_set(valid, offset + entry)


@inlined
def _key(keys: Any, entry: int) -> Any:
    index = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
    return keys[index], keys[index + 1]


@inlined
def _add(sums: Any, entry: int, left: Any, right: Any, last: Any) -> None:
    one, other = finish(left, right, last)
    sums[2 * entry] += one
    sums[2 * entry + 1] += other


@inlined
def _add_null(sums: Any, entry: int, keys: Any, counts: bool) -> None:
    if counts:
        left, right = _key(keys, entry)
        _add(sums, entry, left, right, np.uint64(NULL))


class Bytes(NamedTuple):
    """An array of bytes in a named tuple, to take its address within a loop."""

    data: npt.NDArray[np.uint8]


@loop(uint8[:], int64[:], int64, uint8[:], int64, uint64[:], boolean, uint64[:])
def add_bytes(
    data: Any, offsets: Any, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add texts or binaries."""
    # Passing an array counts its references, which takes longer than the hash of a short text.
    within = pointers(Bytes(data)).data
    for entry in range(len(offsets) - 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        left, right = _key(keys, entry)
        position, stop = offsets[entry], offsets[entry + 1]
        left, right = absorb_bytes(left, right, within, position, stop, len(data))
        _add(sums, entry, left, right, last_of(stop - position, code))
    return FINE


@loop(uint8[:], int64[:], uint8[:], uint8[:], int64, uint64[:], boolean, uint64[:])
def add_number_texts(
    data: Any, offsets: Any, digits: Any, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add numbers in any notation; return the first entry that is not a number.

    ``digits`` is a buffer for the longest.
    """
    within, digits_of_one = pointers(Bytes(data)).data, pointers(Bytes(digits)).data
    for entry in range(len(offsets) - 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        low, high, last = text_number(within, offsets[entry], offsets[entry + 1], digits_of_one)
        if last == NOT_A_NUMBER:
            return entry
        left, right = _key(keys, entry)
        left, right = absorb(left, right, low, high)
        _add(sums, entry, left, right, last)
    return FINE


@loop(uint64[:], boolean, uint8[:], int64, uint64[:], boolean, uint64[:])
def add_words(words: Any, is_signed: bool, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add integers of one word."""
    for entry in range(len(words)):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        magnitude = words[entry]
        negative = is_signed and np.int64(magnitude) < 0
        if negative:
            magnitude = _ZERO - magnitude
        low, high, last = word_number(magnitude, negative, 0)
        left, right = _key(keys, entry)
        left, right = absorb(left, right, low, high)
        _add(sums, entry, left, right, last)
    return FINE


@loop(uint64[:], int64, uint8[:], int64, uint64[:], boolean, uint64[:])
def add_decimals(words: Any, scale: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add numbers of two words, low first, over ten to the power of ``scale``."""
    for entry in range(len(words) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        low, high, last = wide_number(words[2 * entry], words[2 * entry + 1], -scale)
        left, right = _key(keys, entry)
        left, right = absorb(left, right, low, high)
        _add(sums, entry, left, right, last)
    return FINE


@loop(uint8[:], int64, int64, uint8[:], int64, uint64[:], boolean, uint64[:])
def add_booleans(
    bits: Any, bits_offset: int, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add booleans; without bits all are false."""
    for entry in range(len(sums) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        truth = 1 if len(bits) > 0 and _is_set(bits, bits_offset + entry) else 0
        left, right = _key(keys, entry)
        _add(sums, entry, left, right, last_of(truth, code))
    return FINE


@loop(uint8[:], int64, uint64[:], uint64[:])
def add_nulls(valid: Any, offset: int, keys: Any, sums: Any) -> None:
    """Add a NULL for each invalid entry."""
    for entry in range(len(sums) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, counts=True)


@loop(int64[:], uint64[:], int64, uint8[:], int64, uint64[:], boolean, uint64[:])
def add_containers(
    bounds: Any, inner: Any, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add lists, sets and maps, whose values are the entries of ``inner`` between their bounds."""
    for entry in range(len(bounds) - 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        first, second = _ZERO, _ZERO
        for index in range(bounds[entry], bounds[entry + 1]):
            first += inner[2 * index]
            second += inner[2 * index + 1]
        left, right = _key(keys, entry)
        left, right = absorb(left, right, first, second)
        _add(sums, entry, left, right, np.uint64(code))
    return FINE


@loop(uint64[:], uint8[:], int64, uint64[:], boolean, uint64[:])
def add_structs(inner: Any, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add maps whose sums are the entries of ``inner``."""
    for entry in range(len(sums) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        left, right = _key(keys, entry)
        left, right = absorb(left, right, inner[2 * entry], inner[2 * entry + 1])
        _add(sums, entry, left, right, np.uint64(M))
    return FINE


@loop(uint8[:], int64[:], uint64[:])
def key_names(data: Any, offsets: Any, keys: Any) -> None:
    """Write the key of each name."""
    within = pointers(Bytes(data)).data
    for entry in range(len(offsets) - 1):
        position, stop = offsets[entry], offsets[entry + 1]
        left, right = absorb_bytes(_LEFT_START, _RIGHT_START, within, position, stop, len(data))
        keys[2 * entry], keys[2 * entry + 1] = finish(left, right, last_of(stop - position, NAME))


@loop(int64[:], uint64[:])
def key_indices(bounds: Any, keys: Any) -> None:
    """Write the key of each element's index in its list."""
    for row in range(len(bounds) - 1):
        first = bounds[row]
        for entry in range(first, bounds[row + 1]):
            left, right = absorb(_LEFT_START, _RIGHT_START, np.uint64(entry - first), _ZERO)
            keys[2 * entry], keys[2 * entry + 1] = finish(left, right, np.uint64(INDEX))


@loop(int64[:], uint64[:], int64[:], uint64[:])
def drop_repeated(bounds: Any, keys: Any, slots: Any, inner: Any) -> None:
    """Clear the earlier values of repeated names in maps.

    The size of ``slots`` is a power of two, at least twice a map's.
    """
    mask = np.uint64(len(slots) - 1)
    for row in range(len(bounds) - 1):
        first = bounds[row]
        for entry in range(first, bounds[row + 1]):
            slot = keys[2 * entry] & mask
            # Slots of other maps have smaller entries.
            while slots[slot] > first and keys[2 * (slots[slot] - 1)] != keys[2 * entry]:
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] > first:
                inner[2 * slots[slot] - 2] = inner[2 * slots[slot] - 1] = _ZERO
            slots[slot] = entry + 1


@loop(uint64[:])
def sum_items(sums: Any) -> Any:
    """Return the two words, high first, of the sum modulo 2**128 of the hashes of items with these sums."""
    high, low = _ZERO, _ZERO
    for entry in range(len(sums) >> 1):
        left, right = absorb(_LEFT_START, _RIGHT_START, sums[2 * entry], sums[2 * entry + 1])
        left, right = finish(left, right, np.uint64(ITEM))
        low += right
        high += left + np.uint64(low < right)
    return high, low
