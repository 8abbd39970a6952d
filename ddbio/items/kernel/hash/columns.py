"""Hash the values of columns, and add each hash to the sum of its entry.

Keys are two words for all entries or two an entry, sums are two words an entry. An entry that is not valid adds
nothing, or a NULL's hash if NULLs count. Arrow's bits of validity are read from an offset; no bits at all mean that
everything is valid. Text that is no number is refused; DynamoDB JSON that the walk over items refuses is left to the
plain reference.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: FBT001, PLR0913, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.digest import INDEX, ITEM, NAME, NULL, START, M
from ddbio.items.kernel.codes import UNESCAPED
from ddbio.items.kernel.hash.items import hash_item, hash_value
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
from ddbio.items.kernel.jit import inlined, inner, loop
from ddbio.items.kernel.memory import pointers

if TYPE_CHECKING:
    import numpy.typing as npt

FINE = -1
"""What a loop returns if it refuses no entry."""

_LEFT_START, _RIGHT_START = (np.uint64(word) for word in START)
_ZERO = np.uint64(0)
DIGITS_ROOM = 64
"""Bytes that ``add_number_texts`` writes the digits of a number to."""


@inlined
def _is_set(bits: Any, place: int) -> Any:
    return bits[place >> 3] >> (place & 7) & 1


@inlined
def _is_valid(valid: Any, offset: int, entry: int) -> Any:
    return len(valid) == 0 or _is_set(valid, offset + entry)


@inlined
def _key(keys: Any, entry: int) -> Any:
    place = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
    return keys[place], keys[place + 1]


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
    """Hold an array of bytes, to take its address within a loop."""

    data: npt.NDArray[np.uint8]


@loop
def add_bytes(
    data: Any, offsets: Any, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add texts or binaries."""
    # An array that is passed on is counted, which takes longer than to hash a short text.
    within = pointers(Bytes(data)).data
    for entry in range(len(offsets) - 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        left, right = _key(keys, entry)
        place, stop = offsets[entry], offsets[entry + 1]
        left, right = absorb_bytes(left, right, within, place, stop, len(data))
        _add(sums, entry, left, right, last_of(stop - place, code))
    return FINE


@loop
def add_number_texts(
    data: Any, offsets: Any, digits: Any, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add numbers in any form; return the first entry that is none. ``digits`` is memory for the longest."""
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


@loop
def add_words(words: Any, is_signed: bool, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add whole numbers of one word."""
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


@loop
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


@loop
def add_truths(
    bits: Any, bits_offset: int, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add truths; without bits all are false."""
    for entry in range(len(sums) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        truth = 1 if len(bits) > 0 and _is_set(bits, bits_offset + entry) else 0
        left, right = _key(keys, entry)
        _add(sums, entry, left, right, last_of(truth, code))
    return FINE


@loop
def add_containers(
    bounds: Any, inner: Any, code: int, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any
) -> Any:
    """Add lists, sets and maps, each of the entries of ``inner`` between its bounds."""
    for entry in range(len(bounds) - 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        first, second = _ZERO, _ZERO
        for place in range(bounds[entry], bounds[entry + 1]):
            first += inner[2 * place]
            second += inner[2 * place + 1]
        left, right = _key(keys, entry)
        left, right = absorb(left, right, first, second)
        _add(sums, entry, left, right, np.uint64(code))
    return FINE


@loop
def add_structs(inner: Any, valid: Any, offset: int, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add maps of which ``inner`` has one entry each."""
    for entry in range(len(sums) >> 1):
        if not _is_valid(valid, offset, entry):
            _add_null(sums, entry, keys, nulls_count)
            continue
        left, right = _key(keys, entry)
        left, right = absorb(left, right, inner[2 * entry], inner[2 * entry + 1])
        _add(sums, entry, left, right, np.uint64(M))
    return FINE


@loop
def key_names(data: Any, offsets: Any, keys: Any) -> None:
    """Fill in the key of each name."""
    within = pointers(Bytes(data)).data
    for entry in range(len(offsets) - 1):
        place, stop = offsets[entry], offsets[entry + 1]
        left, right = absorb_bytes(_LEFT_START, _RIGHT_START, within, place, stop, len(data))
        keys[2 * entry], keys[2 * entry + 1] = finish(left, right, last_of(stop - place, NAME))


@loop
def key_places(bounds: Any, keys: Any) -> None:
    """Fill in the key of each element's place in its list."""
    for row in range(len(bounds) - 1):
        first = bounds[row]
        for entry in range(first, bounds[row + 1]):
            left, right = absorb(_LEFT_START, _RIGHT_START, np.uint64(entry - first), _ZERO)
            keys[2 * entry], keys[2 * entry + 1] = finish(left, right, np.uint64(INDEX))


@loop
def drop_repeated(bounds: Any, keys: Any, slots: Any, inner: Any) -> None:
    """Take away what a map has under a name that comes again; ``slots`` are a power of two, at least twice a map's."""
    mask = np.uint64(len(slots) - 1)
    for row in range(len(bounds) - 1):
        first = bounds[row]
        for entry in range(first, bounds[row + 1]):
            slot = keys[2 * entry] & mask
            # What other maps have left in the slots lies before this one.
            while slots[slot] > first and keys[2 * (slots[slot] - 1)] != keys[2 * entry]:
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] > first:
                inner[2 * slots[slot] - 2] = inner[2 * slots[slot] - 1] = _ZERO
            slots[slot] = entry + 1


@loop
def sum_items(sums: Any) -> Any:
    """Return the two words, high first, of the sum modulo 2**128 of the hashes of items with these sums."""
    high, low = _ZERO, _ZERO
    for entry in range(len(sums) >> 1):
        left, right = absorb(_LEFT_START, _RIGHT_START, sums[2 * entry], sums[2 * entry + 1])
        left, right = finish(left, right, np.uint64(ITEM))
        low += right
        high += left + np.uint64(low < right)
    return high, low


class Texts(NamedTuple):
    """Hold a column of texts, and an array for the numbers of those that are left to the reference."""

    offsets: npt.NDArray[np.int64]
    """Where each text begins in the data of the walk; ``PAD`` quotes follow the last."""
    valid: npt.NDArray[np.uint8]
    """A byte a text, 0 where it is null."""
    others: npt.NDArray[np.int64]
    """As long as there are texts."""


class OtherColumns(NamedTuple):
    """Hold which other columns have a value in a row, to be found by the first word of their names' keys."""

    slots: npt.NDArray[np.int64]
    """The number of a column, or -1; a power of two, more than there are columns."""
    keys: npt.NDArray[np.uint64]
    present: npt.NDArray[np.uint8]
    """A byte a row of the first column, then of the next."""


@loop
def add_members(work: Any, texts: Any, beside: Any, sums: Any) -> Any:
    """Add the attributes of each text to the sum of its row; return how many are left to the reference.

    That is also a row one of whose attributes is in its own column.
    """
    return _add_members(pointers(work), pointers(texts), pointers(beside), len(texts.valid), len(beside.slots), sums)


@inner
def _add_members(w: Any, t: Any, b: Any, n_rows: int, n_slots: int, sums: Any) -> Any:
    n_others = 0
    for row in range(n_rows):
        if not t.valid[row]:
            continue
        w.state[UNESCAPED] = 0
        place, n_names = hash_item(w, t.offsets[row])
        if place != t.offsets[row + 1] or _has_other_column(w, b, n_names, row, n_rows, n_slots - 1):
            t.others[n_others] = row
            n_others += 1
        else:
            sums[2 * row] += w.lanes[2]
            sums[2 * row + 1] += w.lanes[3]
    return n_others


@inner
def _has_other_column(w: Any, b: Any, n_names: int, row: int, n_rows: int, mask: int) -> Any:
    """Return whether one of the attributes is perhaps in its own column."""
    for name in range(n_names):
        key = w.names[name]
        slot = np.int64(key) & mask
        while b.slots[slot] >= 0:
            column = b.slots[slot]
            if b.keys[column] == key and b.present[column * n_rows + row]:
                return True
            slot = (slot + 1) & mask
    return False


@loop
def add_values(work: Any, texts: Any, keys: Any, nulls_count: bool, sums: Any) -> Any:
    """Add the attribute value of each text under its key; return how many are left to the reference."""
    return _add_values(pointers(work), pointers(texts), keys, (len(texts.valid), nulls_count), sums)


@inner
def _add_values(w: Any, t: Any, keys: Any, entries: Any, sums: Any) -> Any:
    n_entries, nulls_count = entries
    n_others = 0
    for entry in range(n_entries):
        at = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
        if t.valid[entry]:
            w.state[UNESCAPED] = 0
            if hash_value(w, t.offsets[entry], keys[at], keys[at + 1]) != t.offsets[entry + 1]:
                t.others[n_others] = entry
                n_others += 1
                continue
            left, right = w.lanes[2], w.lanes[3]
        elif nulls_count:
            left, right = finish(keys[at], keys[at + 1], np.uint64(NULL))
        else:
            continue
        sums[2 * entry] += left
        sums[2 * entry + 1] += right
    return n_others
