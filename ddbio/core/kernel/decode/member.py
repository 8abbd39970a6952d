"""Find which column a name means, in any order and spelling; refuses names that an object holds twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inlined, inner
from ddbio.core.kernel.memory import equal32, load64, peek, poke
from ddbio.core.kernel.skip import COLON, OPEN_OBJECT, remember_name
from ddbio.core.kernel.state import ERROR, LOOKUP_MASK
from ddbio.core.kernel.text import HASH_HIGH_BITS, QUOTE, hash_text, read_text, same_text, skip_blank

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
def _look_up(data: Any, start: int, length: int, value: Any, context: int, tables: Any, mask: int) -> Any:  # noqa: PLR0913, PLR0917
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
