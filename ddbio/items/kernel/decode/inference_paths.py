"""Record what inference sees: a node for every path of attributes, with its name, types and digits.

Nodes and the texts of their names are in arrays that Python enlarges when they are full. Only so many
names of one map are recorded: its other values share one node.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.base64 import is_base64
from ddbio.items.kernel.codes import (
    BOOL,
    ERROR,
    NULL,
    SS,
    STATE_LENGTH,
    TAGS,
    UNESCAPED,
    B,
    L,
    M,
    N,
)
from ddbio.items.kernel.decode.attributes import inside_value
from ddbio.items.kernel.jit import inlined, inner
from ddbio.items.kernel.memory import copy32, load64, out_of_line, peek, poke
from ddbio.items.kernel.number import MINUS, POINT, ZERO, parse_number, read_digits, unscaled
from ddbio.items.kernel.skip import (
    CLOSE_ARRAY,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    read_literal,
    read_tag,
    remember_name,
)
from ddbio.items.kernel.text import (
    BACKSLASH,
    HASH_HIGH_BITS,
    QUOTE,
    hash_text,
    read_text,
    same_text,
    skip_blank,
    text_end,
)
from ddbio.items.schema.shape import MAX_STRUCT_FIELDS

ELEMENTS, OTHERS = -1, -2
"""In place of the length of a name: a list's elements, and a map's members beyond the names that are recorded."""

# How a walk ended, other than DONE and ERROR: called again with a larger array, it goes on where it was.
GROW_NODES: Final = 2
GROW_TEXTS: Final = 3
GROW_NAMES: Final = 4

# Places in the state, after those of all loops: how much of the arrays is used.
N_SEEN, TEXTS = STATE_LENGTH, STATE_LENGTH + 1

# The columns of a node.
TAG, TAG_WORD, TAG_MASK, TAG_LENGTH, FOLLOWER, FIRST, LAST_SEEN, PREFIX_MASK, PREFIX_LENGTH = range(9)
PARENT, ELEMENT, MEMBERS, PLACE_AMONG, WHOLE, SCALE, IS_WIDE, NAME, NAME_LENGTH, NAME_HASH = range(9, 19)
COUNTS, REST = 19, 29
NODE_WIDTH: Final = 32

PREFIX_BYTES: Final = 32
"""A name is predicted if it, and what JSON has around it, are no longer."""

_AROUND_NAME = len('"":{"')
_HIGH_BITS = np.uint64(HASH_HIGH_BITS)
_FIRST_PRINTED = ord(" ")
_FOUR_BYTES = 0xFFFFFFFF
_CLOSE_OF_NAME = int.from_bytes(b'":{"', "little")


def _openings() -> list[bytes]:
    """Return the bytes between the quote before a type and its content, for each type."""
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
    """Return the record of the node of the name at ``place``, a new one if need be, and the place of its type's text.

    The place is a negative status if there is no such value, or if the array of nodes is full.
    """
    out_of_line()
    data, nodes, state = walk.data, walk.nodes, walk.state
    if peek(data, place) != QUOTE:
        place = skip_blank(data, place)
        if peek(data, place) != QUOTE:
            return 0, -ERROR
    side = state[UNESCAPED]
    start, length, after = read_text(data, place + 1, state)
    state[UNESCAPED] = side
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
        # The elements of a list may need a second node: no name is recorded twice.
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
    """Return the node that all members share whose names are not recorded."""
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
    if length + _AROUND_NAME > PREFIX_BYTES:
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
    poke(nodes, record + PREFIX_LENGTH, length + _AROUND_NAME)
    poke(nodes, record + PREFIX_MASK, (1 << (length + _AROUND_NAME)) - 1)
    return node


@inner
def other_type(walk: Any, place: int, record: int, sizes: Any) -> Any:
    """Return the type that begins at ``place``, and where its content does; it is expected the next time."""
    out_of_line()
    data, nodes, state = walk.data, walk.nodes, walk.state
    side = state[UNESCAPED]
    tag, place = read_tag(data, place - 1, state)
    state[UNESCAPED] = side
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


_SURE_DIGITS = 18
_MOST_DIGITS_OF_INT64 = 19
_MOST = np.uint64(1 << 63)


@inlined
def skip_string(data: Any, place: int, state: Any) -> Any:
    """Return the place after a text whose quote is passed, or a negative status."""
    stop = text_end(data, place)
    if peek(data, stop) == QUOTE:
        return stop + 1
    return _skip_escaped(data, place, state)


@inner
def _skip_escaped(data: Any, place: int, state: Any) -> Any:
    out_of_line()
    side = state[UNESCAPED]
    _, _, place = read_text(data, place, state)
    state[UNESCAPED] = side
    return place if place >= 0 else -ERROR


@inlined
def observe_number(walk: Any, place: int, record: int) -> Any:
    """Return the place after a number whose quote is passed, its digits counted, or a negative status."""
    data, nodes = walk.data, walk.nodes
    first = place + (peek(data, place) == MINUS)
    _, stop = read_digits(data, first)
    whole = stop - first
    byte = peek(data, stop)
    if 0 < whole <= _SURE_DIGITS:
        has_zero = peek(data, first) == ZERO
        if byte == QUOTE and (whole == 1 or not has_zero):
            if whole - has_zero > peek(nodes, record + WHOLE):
                poke(nodes, record + WHOLE, whole - has_zero)
            return stop + 1
        if byte == POINT and (whole == 1 or not has_zero):
            _, end = read_digits(data, stop + 1)
            scale = end - stop - 1
            if 0 < scale <= _SURE_DIGITS and peek(data, end) == QUOTE and peek(data, end - 1) != ZERO:
                if whole - has_zero > peek(nodes, record + WHOLE):
                    poke(nodes, record + WHOLE, whole - has_zero)
                if scale > peek(nodes, record + SCALE):
                    poke(nodes, record + SCALE, scale)
                poke(nodes, record + IS_WIDE, 1)
                return end + 1
    return _observe_any_number(walk, place, record)


@inner
def _observe_any_number(walk: Any, place: int, record: int) -> Any:
    """Count the digits of a number in any form."""
    out_of_line()
    data, nodes, state, digits = walk.data, walk.nodes, walk.state, walk.digits
    side = state[UNESCAPED]
    start, length, place = read_text(data, place, state)
    state[UNESCAPED] = side
    if place < 0:
        return -ERROR
    is_number, negative, count, point = parse_number(data, start, start + length, digits)
    if not is_number:
        return -ERROR
    if count == 0:
        return place
    if point > peek(nodes, record + WHOLE):
        poke(nodes, record + WHOLE, point)
    if count - point > peek(nodes, record + SCALE):
        poke(nodes, record + SCALE, count - point)
    is_wide = count > point or point > _MOST_DIGITS_OF_INT64
    if not is_wide:
        _, magnitude = unscaled(digits, count, point, 0)
        is_wide = magnitude > _MOST or (magnitude == _MOST and not negative)
    if is_wide:
        poke(nodes, record + IS_WIDE, 1)
    return place


@inner
def observe_rare(walk: Any, place: int, record: int, tag: int) -> Any:
    """Return the place after a content that is neither text nor number, map nor list, or a negative status."""
    out_of_line()
    data, state = walk.data, walk.state
    if tag in (BOOL, NULL):
        place = skip_blank(data, place)
        literal = read_literal(data, place)
        return -ERROR if literal < 0 or (tag == NULL and literal == 0) else place + 5 - literal
    if tag == B:
        return _skip_binary(data, place, state)
    place = skip_blank(data, place)
    if peek(data, place) == CLOSE_ARRAY:
        return place + 1
    while True:
        if peek(data, place) != QUOTE:
            return -ERROR
        place += 1
        if tag - SS == N:
            place = observe_number(walk, place, record)
        elif tag - SS == B:
            place = _skip_binary(data, place, state)
        else:
            place = skip_string(data, place, state)
        if place < 0:
            return place
        place = skip_blank(data, place)
        byte = peek(data, place)
        if byte == CLOSE_ARRAY:
            return place + 1
        if byte != COMMA:
            return -ERROR
        place = skip_blank(data, place + 1)


@inner
def _skip_binary(data: Any, place: int, state: Any) -> Any:
    side = state[UNESCAPED]
    start, length, place = read_text(data, place, state)
    state[UNESCAPED] = side
    return place if place >= 0 and is_base64(data, start, length) else -ERROR
