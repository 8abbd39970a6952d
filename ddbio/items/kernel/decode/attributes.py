"""Find the column of an attribute's name, and record what has no slot of its own: map keys, JSON texts, misfits.

A name that an object holds twice is refused.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.capacity import NULL_BYTES
from ddbio.items.kernel.codes import (
    ERROR,
    GROW_MISFITS,
    HAS_MERGED_NULLS,
    LOOKUP_MASK,
    MERGED_NULLS,
    MISFIT_KIND,
    MISFIT_NAME,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_STOP,
    MISFIT_WIDTH,
    MISFITS,
    MISFITS_END,
    SAVED_MERGED_NULLS,
    SAVED_SIZE,
    STRUCT,
)
from ddbio.items.kernel.jit import inlined, inner
from ddbio.items.kernel.memory import equal32, load64, out_of_line, peek, poke
from ddbio.items.kernel.skip import COLON, OPEN_OBJECT, remember_name, skip_value
from ddbio.items.kernel.text import HASH_HIGH_BITS, QUOTE, canonical_json, hash_text, read_text, same_text, skip_blank

_FOUR_BYTES = 0xFFFFFFFF
_HIGH_BITS = np.uint64(HASH_HIGH_BITS)
_CLOSE_OF_NAME = int.from_bytes(b'":{"', "little")


@inlined
def predict_member(data: Any, place: int, last: int, tables: Any, follower: Any) -> Any:
    """Return the node that follows the last one, or the one after, if its name is at ``place``; else -1."""
    node = peek(follower, last)
    mask = peek(tables.prefix_mask, node)
    if equal32(data, place, tables.prefix, node << 5) & mask == mask:
        return node
    node = peek(follower, node)
    mask = peek(tables.prefix_mask, node)
    if equal32(data, place, tables.prefix, node << 5) & mask == mask:
        return node
    return -1


@inlined
def find_member(data: Any, place: int, context: int, instance: int, tables: Any, work: Any) -> Any:
    """Return the node, the places of its value and of its tag's text, and the name's start and length.

    The node is -1 for a name the schema lacks; the second place is negative where there is no value.
    """
    if peek(data, place) != QUOTE:
        place = skip_blank(data, place)
        if peek(data, place) != QUOTE:
            return -1, place, -ERROR, 0, 0
    start, length, after = read_text(data, place + 1, work.state)
    if after < 0:
        return -1, place, after, 0, 0
    value = hash_text(data, start, length)
    node = _look_up(data, start, length, value, context, tables, work.state[LOOKUP_MASK])
    if node < 0:
        status = remember_name(work.seen_names, value, instance, work.state)
        if status != 0:
            return -1, place, -status, 0, 0
    if np.int64(load64(data, after - 1)) & _FOUR_BYTES == _CLOSE_OF_NAME:
        return node, after + 1, after + 3, start, length
    place = skip_blank(data, after)
    if peek(data, place) != COLON:
        return -1, place, -ERROR, 0, 0
    place = skip_blank(data, place + 1)
    return node, place, inside_value(data, place), start, length


@inner
def inside_value(data: Any, place: int) -> Any:
    """Return the place of the tag's text in the attribute value at ``place``, or a negative status."""
    if peek(data, place) != OPEN_OBJECT:
        return -ERROR
    place = skip_blank(data, place + 1)
    return place + 1 if peek(data, place) == QUOTE else -ERROR


@inlined
def _look_up(data: Any, start: int, length: int, value: Any, context: int, tables: Any, mask: int) -> Any:
    # The high bits of a product depend on all bits of its factors.
    slot = (np.int64(value >> _HIGH_BITS) + context) & mask
    while True:
        node = peek(tables.lookup, slot)
        if node < 0:
            return -1
        if (
            peek(tables.name_hash, node) == np.int64(value)
            and peek(tables.parent, node) == context
            and peek(tables.name_length, node) == length
            and same_text(data, start, tables.names, peek(tables.name_place, node), length)
        ):
            return node
        slot = (slot + 1) & mask


@inlined
def mark_seen(seen: Any, node: int, instance: int) -> Any:
    """Return whether the object holds the node's name for the first time."""
    if peek(seen, node) == instance:
        return False
    poke(seen, node, instance)
    return True


@inner
def scan_key(work: Any, place: int, node: int, index: int, instance: int) -> Any:
    """Store the name at ``place`` as a map's key; return the place of its value."""
    out_of_line()
    data = work.data
    place = skip_blank(data, place)
    if peek(data, place) != QUOTE:
        return -ERROR
    start, length, place = read_text(data, place + 1, work.state)
    if place < 0:
        return place
    status = remember_name(work.seen_names, hash_text(data, start, length), instance, work.state)
    if status != 0:
        return -status
    poke(work.values, peek(work.value_place, node) + index, start << 32 | length)
    poke(work.valid, peek(work.valid_place, node) + index, 1)
    place = skip_blank(data, place)
    return skip_blank(data, place + 1) if peek(data, place) == COLON else -ERROR


@inner
def scan_json(work: Any, start: int, node: int, index: int, slot: int) -> Any:
    """Store the value at ``start`` as canonical JSON text; return the place after it."""
    out_of_line()
    place = skip_value(work.data, start, work.seen_names, work.levels, work.digits, work.state)
    if place < 0:
        return place
    start, stop = canonical_json(work.data, start, place, work.state)
    if stop < 0:
        return stop
    poke(work.valid, peek(work.valid_place, node) + index, 1)
    poke(work.values, slot, start << 32 | (stop - start))
    return place


@inner
def put_misfit(work: Any, row: int, node: int, name: int, name_length: int, start: int, kind: int) -> Any:
    """Add the value at ``start`` to the misfit list; return the place after it, or a negative status."""
    out_of_line()
    data, state, misfits = work.data, work.state, work.misfits
    place = skip_value(data, start, work.seen_names, work.levels, work.digits, state)
    if place < 0:
        return place
    entry = state[MISFITS] * MISFIT_WIDTH
    if entry == state[MISFITS_END]:
        return -GROW_MISFITS
    start, stop = canonical_json(data, start, place, state)
    if stop < 0:
        return stop
    poke(misfits, entry + MISFIT_ROW, row)
    poke(misfits, entry + MISFIT_NODE, node)
    poke(misfits, entry + MISFIT_NAME, name)
    poke(misfits, entry + MISFIT_NAME_LENGTH, name_length)
    poke(misfits, entry + MISFIT_START, start)
    poke(misfits, entry + MISFIT_STOP, stop)
    poke(misfits, entry + MISFIT_KIND, kind)
    state[MISFITS] += 1
    return place


@inner
def undo_attribute(tables: Any, work: Any, top: int, row: int) -> None:
    """Remove what was stored of a top-level attribute, since a misfit was found in it."""
    out_of_line()
    for entry in range(tables.first_below[top], tables.last_below[top]):
        node = tables.below[entry]
        space = tables.space[node]
        first, stop = (row, row + 1) if space == 0 else (work.saved[space], work.count[space])
        for index in range(first, stop):
            poke(work.valid, work.valid_place[node] + index, 0)
    for space in range(tables.first_space[top], tables.last_space[top]):
        work.count[space] = work.saved[space]
    poke(work.sizes, row, work.state[SAVED_SIZE])
    poke(work.state, MERGED_NULLS + top, work.state[SAVED_MERGED_NULLS])


@inner
def count_null(tables: Any, work: Any, node: int, row: int, top: int) -> None:
    """Count a NULL, since no column shows it: in the size of its row, and with its attribute if it becomes missing."""
    out_of_line()
    poke(work.sizes, row, peek(work.sizes, row) + tables.overhead_bytes[node] + NULL_BYTES)
    if tables.kind[tables.parent[node]] == STRUCT:
        poke(work.state, MERGED_NULLS + top, peek(work.state, MERGED_NULLS + top) + 1)
        work.state[HAS_MERGED_NULLS] = 1
