"""Paths of attributes: a node for each, with its name, its usual type and statistics of its values.

Python enlarges the arrays of nodes and names when they are full. A map has nodes for its first ``MAX_STRUCT_FIELDS``
names; the values of its other names share one node.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.codes import (
    BOOL,
    ERROR,
    GROW_NAMES,
    GROW_NODES,
    GROW_TEXTS,
    N_PATHS,
    NAME_LENGTH,
    NAME_START,
    NULL,
    SS,
    TAGS,
    TEXTS,
    UNESCAPED,
    L,
    M,
)
from ddbio.items.kernel.jit import inlined, inner
from ddbio.items.kernel.memory import copy32, equal32, load64, out_of_line, peek, poke, rare
from ddbio.items.kernel.skip import COLON, OPEN_ARRAY, OPEN_OBJECT, read_tag, remember_name
from ddbio.items.kernel.text import BACKSLASH, HASH_HIGH_BITS, QUOTE, hash_text, read_text, same_text, skip_blank
from ddbio.items.schema.shape import MAX_STRUCT_FIELDS

ELEMENTS, OTHERS = -1, -2
"""Values instead of a name's length: the elements of a list, and the values of a map's names without a node."""

PREFIX_BYTES: Final = 32
"""A name is predicted if it fits this size together with the JSON around it."""

# The fields of a node, after the predicted text; those that each value needs are first.
WHOLE_MASK, WHOLE_LENGTH, HEAD, FOLLOWER, LAST_SEEN, PREFIX_MASK, PREFIX_LENGTH, KEEPS_TEXT = range(4, 12)
COUNTS = 12
"""The number of values of each type, then the number of elements of sets of each type."""
BYTES, KEY_BYTES, WHOLE, SCALE, IS_WIDE = range(25, 30)
TAG_WORD, TAG_MASK, TAG_LENGTH = range(30, 33)
FIRST, ELEMENT, OTHERS_NODE, PARENT, MEMBERS, MEMBER_INDEX, NAME, NAME_BYTES, NAME_HASH = range(33, 42)
KEY_LEFT, KEY_RIGHT, HAS_OTHERS, KEEPS_POSITION = range(42, 46)
NODE_WIDTH: Final = 48
NODE_BITS: Final = 16
"""``HEAD`` is the number of the node, shifted by this many bits, and the expected type.

``FOLLOWER`` and ``FIRST`` are positions of nodes in their array. The node of the elements of a list is its own
follower. Each value of a node with ``KEEPS_POSITION`` has an entry ``ODD``, which has the position of the value.
"""

_AROUND_NAME = len('"":{"')
_HIGH_BITS = np.uint64(HASH_HIGH_BITS)
_FIRST_PRINTED = ord(" ")
_FOUR_BYTES = 0xFFFFFFFF
_CLOSE_OF_NAME = int.from_bytes(b'":{"', "little")


def openings() -> list[bytes]:
    """Return for each type the bytes between the quote before the type and the content."""
    after = {"BOOL": "", "NULL": "", "SS": "[", "NS": "[", "BS": "[", "L": "[", "M": "{"}
    return [f'{tag}":{after.get(tag, chr(QUOTE))}'.encode() for tag in TAGS]


OPENING_WORDS = np.array([int.from_bytes(text, "little") for text in openings()], np.int64)
OPENING_MASKS = np.array([(1 << 8 * len(text)) - 1 for text in openings()], np.int64)
OPENING_LENGTHS = np.array([len(text) for text in openings()], np.int64)


class Walk(NamedTuple):
    """Arrays of a walk: the data, the nodes with their names, the tape, and the state."""

    data: npt.NDArray[np.uint8]
    marks: npt.NDArray[np.uint8]
    """A bit for each byte of the data that may end a text."""
    nodes: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]
    lookup: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.uint8]
    tape: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]


@inner
def find_path(walk: Any, position: int, context: int, instance: int, sizes: Any) -> Any:
    """Return the position of the node for the name at ``position``, which is added if it is new, and that of the type.

    The second position is a negative status if the JSON is refused or an array is full.
    """
    out_of_line()
    data, nodes, state = walk.data, walk.nodes, walk.state
    if peek(data, position) != QUOTE:
        position = skip_blank(data, position)
        if peek(data, position) != QUOTE:
            return 0, -ERROR
    side = state[UNESCAPED]
    start, length, after = read_text(data, position + 1, state)
    if after < 0:
        return 0, after
    used, state[UNESCAPED] = state[UNESCAPED], side
    value = hash_text(data, start, length)
    slot = (np.int64(value >> _HIGH_BITS) + context) & sizes[2]
    node = peek(walk.lookup, slot)
    while node > 0:
        record = node * NODE_WIDTH
        if (
            peek(nodes, record + NAME_HASH) == np.int64(value)
            and peek(nodes, record + PARENT) == context
            and peek(nodes, record + NAME_BYTES) == length
            and _same_name(data, start, walk.texts, peek(nodes, record + NAME), length)
        ):
            break
        slot = (slot + 1) & sizes[2]
        node = peek(walk.lookup, slot)
    if node <= 0:
        # A list may need a second node for its elements: each name is added only once.
        if state[N_PATHS] + 2 > sizes[0]:
            return 0, -GROW_NODES
        above = context * NODE_WIDTH
        # The root may have any number of names, unless the paths are those of a schema.
        is_full = context > 0 or peek(nodes, above + OTHERS_NODE) > 0
        if is_full and peek(nodes, above + MEMBERS) >= MAX_STRUCT_FIELDS:
            status = remember_name(walk.names, value, instance, state)
            if status != 0:
                return 0, -ERROR if status == ERROR else -GROW_NAMES
            node = _others_node(walk, context)
            state[NAME_START], state[NAME_LENGTH], state[UNESCAPED] = start, length, used
            poke(nodes, node * NODE_WIDTH + KEY_BYTES, peek(nodes, node * NODE_WIDTH + KEY_BYTES) + length)
        else:
            if state[TEXTS] + length > sizes[1]:
                return 0, -GROW_TEXTS
            node = _add_member(walk, context, start, length, np.int64(value))
            poke(walk.lookup, slot, node)
    if np.int64(load64(data, after - 1)) & _FOUR_BYTES == _CLOSE_OF_NAME:
        return node * NODE_WIDTH, after + 3
    position = skip_blank(data, after)
    if peek(data, position) != COLON:
        return 0, -ERROR
    return node * NODE_WIDTH, inside_value(data, skip_blank(data, position + 1))


@inlined
def _same_name(data: Any, start: int, texts: Any, name: int, length: int) -> Any:
    if length > PREFIX_BYTES:
        return same_text(data, start, texts, name, length)
    mask = (1 << length) - 1
    return equal32(data, start, texts, name) & mask == mask


@inner
def inside_value(data: Any, position: int) -> Any:
    """Return the position of the type in the attribute value at ``position``, or a negative status."""
    if peek(data, position) != OPEN_OBJECT:
        return -ERROR
    position = skip_blank(data, position + 1)
    return position + 1 if peek(data, position) == QUOTE else -ERROR


@inner
def insert_path(walk: Any, node: int, mask: int) -> None:
    """Insert the name of a node into a lookup that has grown."""
    record = node * NODE_WIDTH
    if peek(walk.nodes, record + NAME_BYTES) >= 0:
        value = np.uint64(peek(walk.nodes, record + NAME_HASH))
        slot = (np.int64(value >> _HIGH_BITS) + peek(walk.nodes, record + PARENT)) & mask
        while peek(walk.lookup, slot) > 0:
            slot = (slot + 1) & mask
        poke(walk.lookup, slot, node)


@inner
def _others_node(walk: Any, context: int) -> Any:
    """Return the node that is shared by the values of a map whose names have no node."""
    record = context * NODE_WIDTH
    if peek(walk.nodes, record + OTHERS_NODE) == 0:
        poke(walk.nodes, record + OTHERS_NODE, add_node(walk, context, OTHERS))
    node = peek(walk.nodes, record + OTHERS_NODE)
    # Different names share the node.
    poke(walk.nodes, node * NODE_WIDTH + LAST_SEEN, 0)
    poke(walk.nodes, record + HAS_OTHERS, 1)
    return node


@inner
def add_node(walk: Any, parent: int, name_length: int) -> Any:
    """Add a node and return its number."""
    nodes, state = walk.nodes, walk.state
    node = state[N_PATHS]
    state[N_PATHS] = node + 1
    record = node * NODE_WIDTH
    poke(nodes, record + HEAD, node << NODE_BITS)
    poke(nodes, record + PARENT, parent)
    poke(nodes, record + NAME_BYTES, name_length)
    # No word has these bits, and no comparison.
    poke(nodes, record + TAG_WORD, -1)
    poke(nodes, record + PREFIX_MASK, -1)
    poke(nodes, record + WHOLE_MASK, -1)
    return node


@inner
def _add_element(walk: Any, parent: int) -> Any:
    """Add a node for the elements of a list. The opening of their values is predicted like a name."""
    node = add_node(walk, parent, ELEMENTS)
    record = node * NODE_WIDTH
    _set_byte(walk.nodes, record, 0, OPEN_OBJECT)
    _set_byte(walk.nodes, record, 1, QUOTE)
    poke(walk.nodes, record + PREFIX_LENGTH, 2)
    poke(walk.nodes, record + PREFIX_MASK, 3)
    poke(walk.nodes, record + FOLLOWER, record)
    return node


@inner
def _add_member(walk: Any, context: int, start: int, length: int, value: int) -> Any:
    """Add a node for the name at ``start`` as the last member of its context."""
    data, nodes, state = walk.data, walk.nodes, walk.state
    node = add_node(walk, context, length)
    record, above = node * NODE_WIDTH, context * NODE_WIDTH
    among = peek(nodes, above + MEMBERS)
    poke(nodes, above + MEMBERS, among + 1)
    poke(nodes, record + MEMBER_INDEX, among)
    position = state[TEXTS]
    poke(nodes, record + NAME, position)
    poke(nodes, record + NAME_HASH, value)
    for step in range(0, length, PREFIX_BYTES):
        copy32(walk.texts, position + step, data, start + step)
    state[TEXTS] = position + length
    if length + _AROUND_NAME > PREFIX_BYTES:
        return node
    _set_byte(nodes, record, 0, QUOTE)
    for index in range(length):
        byte = peek(data, start + index)
        if byte < _FIRST_PRINTED or byte in (QUOTE, BACKSLASH):
            # JSON has another spelling of this character.
            return node
        _set_byte(nodes, record, 1 + index, byte)
    for index in range(4):
        _set_byte(nodes, record, 1 + length + index, (_CLOSE_OF_NAME >> 8 * index) & 0xFF)
    poke(nodes, record + PREFIX_LENGTH, length + _AROUND_NAME)
    poke(nodes, record + PREFIX_MASK, (1 << (length + _AROUND_NAME)) - 1)
    return node


@inner
def _set_byte(nodes: Any, record: int, index: int, byte: int) -> None:
    """Set a byte of the predicted text."""
    position, shift = record + (index >> 3), (index & 7) << 3
    poke(nodes, position, (peek(nodes, position) & ~(0xFF << shift)) | byte << shift)


@inner
def other_type(walk: Any, position: int, record: int, sizes: Any) -> Any:
    """Return the type at ``position`` and the position of its content, and expect the type for the next value."""
    rare()
    data, nodes, state = walk.data, walk.nodes, walk.state
    side = state[UNESCAPED]
    tag, position = read_tag(data, position - 1, state)
    state[UNESCAPED] = side
    if position < 0:
        return -1, position
    if tag not in (BOOL, NULL):
        byte = peek(data, position)
        if byte != (OPEN_OBJECT if tag == M else OPEN_ARRAY if tag >= SS else QUOTE):
            return -1, -ERROR
        position += 1
    if tag == L and peek(nodes, record + ELEMENT) == 0:
        if state[N_PATHS] == sizes[0]:
            return -1, -GROW_NODES
        poke(nodes, record + ELEMENT, _add_element(walk, record // NODE_WIDTH))
    if tag != NULL:
        poke(nodes, record + HEAD, peek(nodes, record + HEAD) & ~0xFF | tag)
        poke(nodes, record + TAG_WORD, OPENING_WORDS[tag])
        poke(nodes, record + TAG_MASK, OPENING_MASKS[tag])
        poke(nodes, record + TAG_LENGTH, OPENING_LENGTHS[tag])
        expect_type(nodes, record, tag)
    return tag, position


@inner
def expect_type(nodes: Any, record: int, tag: int) -> None:
    """Append the opening of a type to the predicted name, if both fit."""
    length, opening = peek(nodes, record + PREFIX_LENGTH), OPENING_LENGTHS[tag]
    if length == 0 or length + opening > PREFIX_BYTES or peek(nodes, record + KEEPS_POSITION):
        poke(nodes, record + WHOLE_MASK, -1)
        return
    for index in range(opening):
        _set_byte(nodes, record, length + index, (OPENING_WORDS[tag] >> 8 * index) & 0xFF)
    poke(nodes, record + WHOLE_LENGTH, length + opening)
    poke(nodes, record + WHOLE_MASK, (1 << (length + opening)) - 1)
