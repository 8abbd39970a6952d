"""See what the values of items look like, attribute by attribute, without a schema: types, digits, nesting, names.

The attribute that followed last time is tried first, under the type that it had. Refuses by saying so: the plain
reference then decides what is wrong.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddbio.core.kernel.base64 import is_base64
from ddbio.core.kernel.cache import inlined, inner, loop
from ddbio.core.kernel.decode.document import close_document, open_document
from ddbio.core.kernel.decode.member import inside_value
from ddbio.core.kernel.decode.paths import (
    COUNTS,
    ELEMENT,
    FIRST,
    FOLLOWER,
    IS_WIDE,
    LAST_SEEN,
    N_SEEN,
    NODE_WIDTH,
    PREFIX_BYTES,
    PREFIX_LENGTH,
    PREFIX_MASK,
    SCALE,
    TAG,
    TAG_LENGTH,
    TAG_MASK,
    TAG_WORD,
    TEXTS,
    WHOLE,
    find_path,
    insert_path,
    other_type,
)
from ddbio.core.kernel.memory import equal32, load64, out_of_line, peek, pointers, poke
from ddbio.core.kernel.number import MINUS, POINT, ZERO, parse_number, read_digits, unscaled
from ddbio.core.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_OBJECT, read_literal
from ddbio.core.kernel.state import (
    BOOL,
    DONE,
    ERROR,
    INSIDE,
    INSTANCE,
    ITEMS,
    MAX_SKIPPED_DEPTH,
    NAMES,
    NAMES_MASK,
    NULL,
    PLACE,
    ROWS,
    SIDE,
    SS,
    B,
    L,
    M,
    N,
    S,
)
from ddbio.core.kernel.text import QUOTE, read_text, skip_blank, text_end

# Where the state keeps how to go on, behind what it keeps of the paths.
IS_INSERTED, _IS_WITHIN, _CONTEXT, _INSTANCE, _LAST, _DEPTH = range(TEXTS + 1, TEXTS + 7)
STATE_WIDTH: Final = TEXTS + 7

_FRAME_CONTEXT, _FRAME_INSTANCE, _FRAME_LAST = range(3)
_FRAME_WIDTH = 4
STACK_LENGTH: Final = _FRAME_WIDTH * MAX_SKIPPED_DEPTH

_SURE_DIGITS = 18
_MOST_DIGITS_OF_INT64 = 19
_MOST = np.uint64(1 << 63)
_THREE_BYTES = 0xFFFFFF
_NULL_START = int.from_bytes(b'NULL":tr', "little")
_NULL_STOP = int.from_bytes(b"ue}", "little")
_NULL_LENGTH = len('NULL":true}')
_LAST_BLANK = ord(" ")


@loop
def observe(walk: Any, end: int, framing: int) -> Any:
    """Observe the items from the state's place on; return how it ended."""
    walk.state[NAMES_MASK] = len(walk.names) - 1
    sizes = (len(walk.nodes) // NODE_WIDTH, len(walk.texts) - 2 * PREFIX_BYTES, len(walk.lookup) - 1)
    return _observe_items(pointers(walk), end, framing, sizes)


@inner
def _observe_items(walk: Any, end: int, framing: int, sizes: Any) -> Any:
    data, state = walk.data, walk.state
    if state[IS_INSERTED] == 0:
        for node in range(1, state[N_SEEN]):
            insert_path(walk, node, sizes[2])
        state[IS_INSERTED] = 1
    place, inside = state[PLACE], state[INSIDE]
    while True:
        if state[_IS_WITHIN] == 0:
            if inside == 0:
                place = skip_blank(data, place)
                if place >= end:
                    state[PLACE], state[INSIDE] = place, inside
                    return DONE
            if inside == 0 and framing != ITEMS:
                place, inside = open_document(data, place, framing, state)
                if place < 0:
                    return ERROR
                if inside < 0:
                    inside = 0
                    continue
            if peek(data, place) != OPEN_OBJECT:
                return ERROR
            place = skip_blank(data, place + 1)
            if state[NAMES] * 4 > state[NAMES_MASK]:
                # Those of other items are none of this one's.
                for slot in range(state[NAMES_MASK] + 1):
                    poke(walk.names, slot, 0)
                state[NAMES] = 0
        state[PLACE], state[INSIDE] = place, inside
        place = _observe_item(walk, place, sizes)
        if place < 0:
            return -place
        state[_IS_WITHIN] = 0
        state[ROWS] += 1
        if framing != ITEMS:
            place, inside = close_document(data, place, framing)
        if place < 0 or place > end:
            return ERROR


@inlined
def _observe_item(walk: Any, place: int, sizes: Any) -> Any:
    """Return the place after the item whose first attribute is at ``place``, or a negative status.

    An item that was left for want of room goes on at the state's place.
    """
    data, nodes, state, stack = walk.data, walk.nodes, walk.state, walk.stack
    if state[_IS_WITHIN]:
        context, instance, last, depth = state[_CONTEXT], state[_INSTANCE], state[_LAST], state[_DEPTH]
    else:
        if peek(data, place) == CLOSE_OBJECT:
            return place + 1
        state[INSTANCE] += 1
        context, instance, last, depth = 0, state[INSTANCE], FIRST, 0
    # The context is that of a list where it has no instance: then it is the node of the elements.
    while True:
        # Which value is this?
        begin = place
        if instance > 0:
            record = peek(nodes, last) * NODE_WIDTH
            mask = peek(nodes, record + PREFIX_MASK)
            found = equal32(data, place, walk.prefixes, record) & mask == mask
            if not found:
                record = peek(nodes, record + FOLLOWER) * NODE_WIDTH
                mask = peek(nodes, record + PREFIX_MASK)
                found = equal32(data, place, walk.prefixes, record) & mask == mask
            if found:
                place += peek(nodes, record + PREFIX_LENGTH)
            else:
                record, place = find_path(walk, place, context, instance, sizes)
                if place < 0:
                    if place != -ERROR:
                        _leave(state, begin, context, instance, last, depth)
                    return place
                poke(nodes, last, record // NODE_WIDTH)
            if peek(nodes, record + LAST_SEEN) == instance:
                return -ERROR
            poke(nodes, record + LAST_SEEN, instance)
        else:
            record = context * NODE_WIDTH
            if peek(data, place) == OPEN_OBJECT and peek(data, place + 1) == QUOTE:
                place += 2
            else:
                place = inside_value(data, skip_blank(data, place))
                if place < 0:
                    return place
        # Of which type?
        word = np.int64(load64(data, place))
        is_open = True
        if word & peek(nodes, record + TAG_MASK) == peek(nodes, record + TAG_WORD):
            tag = peek(nodes, record + TAG)
            place += peek(nodes, record + TAG_LENGTH)
        elif word == _NULL_START and np.int64(load64(data, place + 8)) & _THREE_BYTES == _NULL_STOP:
            tag = NULL
            place += _NULL_LENGTH
            is_open = False
        else:
            tag, place = other_type(walk, place, record, sizes)
            if place < 0:
                if place != -ERROR:
                    poke(nodes, record + LAST_SEEN, 0)
                    _leave(state, begin, context, instance, last, depth)
                return place
        poke(nodes, record + COUNTS + tag, peek(nodes, record + COUNTS + tag) + 1)
        if instance > 0:
            last = record + FOLLOWER
        # What does it hold?
        if tag >= L:
            byte = peek(data, place)
            if byte <= _LAST_BLANK:
                place = skip_blank(data, place)
                byte = peek(data, place)
            if byte != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                if depth == MAX_SKIPPED_DEPTH:
                    return -ERROR
                frame = depth * _FRAME_WIDTH
                poke(stack, frame + _FRAME_CONTEXT, context)
                poke(stack, frame + _FRAME_INSTANCE, instance)
                poke(stack, frame + _FRAME_LAST, last)
                depth += 1
                if tag == M:
                    state[INSTANCE] += 1
                    context, instance, last = record // NODE_WIDTH, state[INSTANCE], record + FIRST
                else:
                    context, instance = peek(nodes, record + ELEMENT), 0
                continue
            place += 1
        elif tag == S:
            place = _skip_text(data, place, state)
        elif tag == N:
            place = _observe_number(walk, place, record)
        elif is_open:
            place = _observe_rare(walk, place, record, tag)
        if place < 0:
            return place
        if is_open:
            if peek(data, place) != CLOSE_OBJECT:
                place = skip_blank(data, place)
                if peek(data, place) != CLOSE_OBJECT:
                    return -ERROR
            place += 1
        # What comes after it?
        while True:
            byte = peek(data, place)
            if byte == COMMA:
                place += 1
                break
            if byte == (CLOSE_OBJECT if instance > 0 else CLOSE_ARRAY):
                place += 1
                if depth == 0:
                    return place
                depth -= 1
                frame = depth * _FRAME_WIDTH
                context = peek(stack, frame + _FRAME_CONTEXT)
                instance = peek(stack, frame + _FRAME_INSTANCE)
                last = peek(stack, frame + _FRAME_LAST)
                if peek(data, place) != CLOSE_OBJECT:
                    place = skip_blank(data, place)
                    if peek(data, place) != CLOSE_OBJECT:
                        return -ERROR
                place += 1
                continue
            after = skip_blank(data, place)
            if after == place:
                return -ERROR
            place = after


@inner
def _leave(state: Any, place: int, context: int, instance: int, last: int, depth: int) -> None:
    """Keep where the walk is to go on."""
    out_of_line()
    state[PLACE], state[_IS_WITHIN] = place, 1
    state[_CONTEXT], state[_INSTANCE], state[_LAST], state[_DEPTH] = context, instance, last, depth


@inlined
def _skip_text(data: Any, place: int, state: Any) -> Any:
    """Return the place after a text whose quote is passed, or a negative status."""
    stop = text_end(data, place)
    if peek(data, stop) == QUOTE:
        return stop + 1
    return _skip_escaped(data, place, state)


@inner
def _skip_escaped(data: Any, place: int, state: Any) -> Any:
    out_of_line()
    side = state[SIDE]
    _, _, place = read_text(data, place, state)
    state[SIDE] = side
    return place if place >= 0 else -ERROR


@inlined
def _observe_number(walk: Any, place: int, record: int) -> Any:
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
    return _observe_spelled(walk, place, record)


@inner
def _observe_spelled(walk: Any, place: int, record: int) -> Any:
    """Count the digits of a number of any spelling."""
    out_of_line()
    data, nodes, state, digits = walk.data, walk.nodes, walk.state, walk.digits
    side = state[SIDE]
    start, length, place = read_text(data, place, state)
    state[SIDE] = side
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
def _observe_rare(walk: Any, place: int, record: int, tag: int) -> Any:
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
            place = _observe_number(walk, place, record)
        elif tag - SS == B:
            place = _skip_binary(data, place, state)
        else:
            place = _skip_text(data, place, state)
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
    side = state[SIDE]
    start, length, place = read_text(data, place, state)
    state[SIDE] = side
    return place if place >= 0 and is_base64(data, start, length) else -ERROR
