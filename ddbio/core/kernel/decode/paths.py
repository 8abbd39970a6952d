"""Keep a node for every path of attributes: its name, the types and digits of its values, what followed it.

Nodes and the texts of their names stand in arrays that Python makes larger when a walk has no room left. Refuses to
keep the names of a map beyond so many: its other values have one node together.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.decode.member import inside_value
from ddbio.core.kernel.memory import copy32, load64, out_of_line, peek, poke
from ddbio.core.kernel.skip import COLON, OPEN_ARRAY, OPEN_OBJECT, read_tag, remember_name
from ddbio.core.kernel.state import BOOL, ERROR, NULL, SIDE, SS, STATE_LENGTH, TAGS, L, M
from ddbio.core.kernel.text import BACKSLASH, HASH_HIGH_BITS, QUOTE, hash_text, read_text, same_text, skip_blank
from ddbio.core.schema.shape import MAX_STRUCT_FIELDS

ELEMENTS, OTHERS = -1, -2
"""What nodes without a name have for its length: a list's elements, and a map's members beyond the names it keeps."""

# How a walk ended beside DONE and ERROR: called again with more room it goes on where it was.
GROW_NODES: Final = 2
GROW_TEXTS: Final = 3
GROW_NAMES: Final = 4

# Where the state keeps what, beside what all loops keep: how much of the arrays is used.
N_SEEN, TEXTS = STATE_LENGTH, STATE_LENGTH + 1

# What is kept of a node.
TAG, TAG_WORD, TAG_MASK, TAG_LENGTH, FOLLOWER, FIRST, LAST_SEEN, PREFIX_MASK, PREFIX_LENGTH = range(9)
PARENT, ELEMENT, MEMBERS, PLACE_AMONG, WHOLE, SCALE, IS_WIDE, NAME, NAME_LENGTH, NAME_HASH = range(9, 19)
COUNTS, REST = 19, 29
NODE_WIDTH: Final = 32

PREFIX_BYTES: Final = 32
"""A name is predicted if it, and what JSON has around it, are no longer."""

_BESIDE_NAME = len('"":{"')
_HIGH_BITS = np.uint64(HASH_HIGH_BITS)
_FIRST_PRINTED = ord(" ")
_FOUR_BYTES = 0xFFFFFFFF
_CLOSE_OF_NAME = int.from_bytes(b'":{"', "little")


def _openings() -> list[bytes]:
    """Return what stands between the quote before a type and its content, for each type."""
    after = {"BOOL": "", "NULL": "", "SS": "[", "NS": "[", "BS": "[", "L": "[", "M": "{"}
    return [f'{tag}":{after.get(tag, chr(QUOTE))}'.encode() for tag in TAGS]


_OPENING_WORDS = np.array([int.from_bytes(text, "little") for text in _openings()], np.int64)
_OPENING_MASKS = np.array([(1 << 8 * len(text)) - 1 for text in _openings()], np.int64)
_OPENING_LENGTHS = np.array([len(text) for text in _openings()], np.int64)


class Walk(NamedTuple):
    """Hold what a walk reads and writes: the data, the nodes with their names, and where it is."""

    data: npt.NDArray[np.uint8]
    nodes: npt.NDArray[np.int64]
    prefixes: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.uint8]
    lookup: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.uint8]
    state: npt.NDArray[np.int64]


@inner
def find_path(walk: Any, place: int, context: int, instance: int, sizes: Any) -> Any:
    """Return where the node of the name at ``place`` is kept, a new one if need be, and the place of its type's text.

    The place is a negative status where there is no such value, or no room for its node.
    """
    out_of_line()
    data, nodes, state = walk.data, walk.nodes, walk.state
    if peek(data, place) != QUOTE:
        place = skip_blank(data, place)
        if peek(data, place) != QUOTE:
            return 0, -ERROR
    side = state[SIDE]
    start, length, after = read_text(data, place + 1, state)
    state[SIDE] = side
    if after < 0:
        return 0, -ERROR
    value = hash_text(data, start, length)
    slot = (np.int64(value >> _HIGH_BITS) + context) & sizes[2]
    node = peek(walk.lookup, slot)
    while node > 0:
        record = node * NODE_WIDTH
        if (
            peek(nodes, record + NAME_HASH) == np.int64(value)
            and peek(nodes, record + PARENT) == context
            and peek(nodes, record + NAME_LENGTH) == length
            and same_text(data, start, walk.texts, peek(nodes, record + NAME), length)
        ):
            break
        slot = (slot + 1) & sizes[2]
        node = peek(walk.lookup, slot)
    if node <= 0:
        # Room for the elements of a list, too: no name is remembered twice.
        if state[N_SEEN] + 2 > sizes[0]:
            return 0, -GROW_NODES
        if context > 0 and peek(nodes, context * NODE_WIDTH + MEMBERS) == MAX_STRUCT_FIELDS:
            status = remember_name(walk.names, value, instance, state)
            if status != 0:
                return 0, -ERROR if status == ERROR else -GROW_NAMES
            node = _rest_of(walk, context)
        else:
            if state[TEXTS] + length > sizes[1]:
                return 0, -GROW_TEXTS
            node = _add_member(walk, context, start, length, np.int64(value))
            poke(walk.lookup, slot, node)
    if np.int64(load64(data, after - 1)) & _FOUR_BYTES == _CLOSE_OF_NAME:
        return node * NODE_WIDTH, after + 3
    place = skip_blank(data, after)
    if peek(data, place) != COLON:
        return 0, -ERROR
    return node * NODE_WIDTH, inside_value(data, skip_blank(data, place + 1))


@inner
def insert_path(walk: Any, node: int, mask: int) -> None:
    """Let the name of a node be found in a lookup that has grown."""
    record = node * NODE_WIDTH
    if peek(walk.nodes, record + NAME_LENGTH) >= 0:
        value = np.uint64(peek(walk.nodes, record + NAME_HASH))
        slot = (np.int64(value >> _HIGH_BITS) + peek(walk.nodes, record + PARENT)) & mask
        while peek(walk.lookup, slot) > 0:
            slot = (slot + 1) & mask
        poke(walk.lookup, slot, node)


@inner
def _rest_of(walk: Any, context: int) -> Any:
    """Return the node of all members of a map whose names are not kept."""
    record = context * NODE_WIDTH
    if peek(walk.nodes, record + REST) == 0:
        poke(walk.nodes, record + REST, _add_node(walk, context, OTHERS))
    node = peek(walk.nodes, record + REST)
    # Names that differ share it.
    poke(walk.nodes, node * NODE_WIDTH + LAST_SEEN, 0)
    return node


@inner
def _add_node(walk: Any, parent: int, name_length: int) -> Any:
    nodes, state = walk.nodes, walk.state
    node = state[N_SEEN]
    state[N_SEEN] = node + 1
    record = node * NODE_WIDTH
    poke(nodes, record + PARENT, parent)
    poke(nodes, record + NAME_LENGTH, name_length)
    # No word has these bits, and no comparison.
    poke(nodes, record + TAG_WORD, -1)
    poke(nodes, record + PREFIX_MASK, -1)
    return node


@inner
def _add_member(walk: Any, context: int, start: int, length: int, value: int) -> Any:
    """Return a node for the name at ``start``: the next of its context's."""
    data, nodes, state = walk.data, walk.nodes, walk.state
    node = _add_node(walk, context, length)
    record, above = node * NODE_WIDTH, context * NODE_WIDTH
    among = peek(nodes, above + MEMBERS)
    poke(nodes, above + MEMBERS, among + 1)
    poke(nodes, record + PLACE_AMONG, among)
    place = state[TEXTS]
    poke(nodes, record + NAME, place)
    poke(nodes, record + NAME_HASH, value)
    for step in range(0, length, PREFIX_BYTES):
        copy32(walk.texts, place + step, data, start + step)
    state[TEXTS] = place + length
    if length + _BESIDE_NAME > PREFIX_BYTES:
        return node
    prefix = record
    poke(walk.prefixes, prefix, QUOTE)
    for index in range(length):
        byte = peek(data, start + index)
        if byte < _FIRST_PRINTED or byte in (QUOTE, BACKSLASH):
            # JSON spells it otherwise.
            return node
        poke(walk.prefixes, prefix + 1 + index, byte)
    for index in range(4):
        poke(walk.prefixes, prefix + 1 + length + index, (_CLOSE_OF_NAME >> 8 * index) & 0xFF)
    poke(nodes, record + PREFIX_LENGTH, length + _BESIDE_NAME)
    poke(nodes, record + PREFIX_MASK, (1 << (length + _BESIDE_NAME)) - 1)
    return node


@inner
def other_type(walk: Any, place: int, record: int, sizes: Any) -> Any:
    """Return the type that begins at ``place``, and where its content does; it is expected the next time."""
    out_of_line()
    data, nodes, state = walk.data, walk.nodes, walk.state
    side = state[SIDE]
    tag, place = read_tag(data, place - 1, state)
    state[SIDE] = side
    if place < 0:
        return -1, -ERROR
    if tag not in (BOOL, NULL):
        byte = peek(data, place)
        if byte != (OPEN_OBJECT if tag == M else OPEN_ARRAY if tag >= SS else QUOTE):
            return -1, -ERROR
        place += 1
    if tag == L and peek(nodes, record + ELEMENT) == 0:
        if state[N_SEEN] == sizes[0]:
            return -1, -GROW_NODES
        poke(nodes, record + ELEMENT, _add_node(walk, record // NODE_WIDTH, ELEMENTS))
    if tag != NULL:
        poke(nodes, record + TAG, tag)
        poke(nodes, record + TAG_WORD, _OPENING_WORDS[tag])
        poke(nodes, record + TAG_MASK, _OPENING_MASKS[tag])
        poke(nodes, record + TAG_LENGTH, _OPENING_LENGTHS[tag])
    return tag, place
