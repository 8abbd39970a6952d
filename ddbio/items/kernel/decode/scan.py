"""Scan items into spans and numbers, guided by the tables of a schema.

Compact JSON in the usual order costs one comparison per name and one per type; white space, escapes, other orders and
other types take the general branches of the same state machine. Values go to the slots of ``Work``, misfits to its
list. Input that is not DynamoDB JSON ends the scan with ``ERROR`` at the item: the plain reference says what is
wrong.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.codes import (
    BOOLEAN,
    CHANGES,
    DECIMAL,
    DONE,
    ERROR,
    FITS,
    FRAME_CONTEXT,
    FRAME_FIRST,
    FRAME_INDEX,
    FRAME_INSTANCE,
    FRAME_LAST,
    FRAME_WIDTH,
    FULL,
    GROW_ELEMENTS,
    HAS_MERGED_NULLS,
    INSIDE,
    INSTANCE,
    IS_NULL,
    IS_OTHER_TYPE,
    IS_UNKNOWN,
    ITEMS,
    JSON,
    LIST,
    LOOKUP_MASK,
    MAP,
    MAX_ROWS,
    MERGED_NULLS,
    MISFITS_END,
    N_NODES,
    NAMES_MASK,
    NULL,
    OUTPUT_BYTES,
    PLACE,
    ROWS,
    SAVED_MERGED_NULLS,
    SAVED_SIZE,
    SET,
    SPACE,
    STRUCT,
)
from ddbio.items.kernel.decode.attributes import (
    count_null,
    find_member,
    inside_value,
    mark_seen,
    predict_member,
    put_misfit,
    scan_json,
    scan_key,
    undo_attribute,
)
from ddbio.items.kernel.decode.changes import next_image
from ddbio.items.kernel.decode.output import plan_output
from ddbio.items.kernel.decode.scalar import read_scalar
from ddbio.items.kernel.framing import close_document, open_document
from ddbio.items.kernel.jit import inlined, inner, loop
from ddbio.items.kernel.memory import load64, peek, pointers, poke
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT, read_literal, read_tag
from ddbio.items.kernel.text import QUOTE, skip_blank

_NULL_START = int.from_bytes(b'NULL":tr', "little")
_NULL_STOP = int.from_bytes(b"ue}", "little")
_THREE_BYTES = 0xFFFFFF
_NULL_LENGTH = len('NULL":true}')


@loop
def scan(tables: Any, work: Any, plan: Any, end: int, framing: int, keep_nulls: bool) -> Any:  # noqa: FBT001
    """Scan items from the state's place on, in any framing but changes, and plan their columns; return how it ended."""
    _start(tables, work)
    return _scan_items(pointers(tables), pointers(work), plan, end, framing, keep_nulls, None)


@loop
def scan_changes(tables: Any, work: Any, plan: Any, end: int, framing: int, keep_nulls: bool) -> Any:  # noqa: FBT001
    """Scan the images of changes as ``scan`` scans items.

    The branches for changes take long to compile: with a loop of their own, whoever reads items need not wait for them.
    """
    _start(tables, work)
    return _scan_items(pointers(tables), pointers(work), plan, end, framing, keep_nulls, CHANGES)


@inner
def _start(tables: Any, work: Any) -> None:
    work.state[N_NODES] = len(tables.kind)
    work.state[LOOKUP_MASK] = len(tables.lookup) - 1
    work.state[NAMES_MASK] = len(work.seen_names) - 1
    work.state[MISFITS_END] = len(work.misfits)
    if work.state[HAS_MERGED_NULLS]:
        work.state[MERGED_NULLS:] = 0
        work.state[HAS_MERGED_NULLS] = 0


@inner
def _scan_items(
    tables: Any,
    work: Any,
    plan: Any,
    end: int,
    framing: int,
    keep_nulls: bool,  # noqa: FBT001
    changes: Any,
) -> Any:
    """Scan by pointers; the branches for changes are compiled only if ``changes`` is not None."""
    data, state = work.data, work.state
    # Of a plain 0 the type would be that constant at first, and the whole of scan_item be compiled for it too.
    place, inside, row, root = state[PLACE], state[INSIDE], np.int64(0), 0
    status = DONE
    while True:
        if inside == 0:
            place = skip_blank(data, place)
            if place >= end:
                break
        if changes is None or inside <= 0:
            state[PLACE], state[INSIDE], state[ROWS] = place, inside, row
            if row == state[MAX_ROWS]:
                status = FULL
                break
        if changes is not None:
            place, inside, is_end = next_image(work, place, row, inside)
            if place < 0 or place > end:
                status = -place if place < 0 else ERROR
                break
            row += is_end
            if inside <= 0:
                continue
            root = inside
        elif inside == 0 and framing != ITEMS:
            place, inside = open_document(data, place, framing, state)
            if place < 0:
                status = -place
                break
            if inside < 0:
                inside = 0
                continue
        place = scan_item(tables, work, place, row, root, keep_nulls)
        if place < 0:
            status = -place
            break
        if root != 0:
            continue
        row += 1
        if framing != ITEMS:
            place, inside = close_document(data, place, framing)
        if place < 0 or place > end:
            status = ERROR
            break
    if status == DONE:
        state[PLACE], state[INSIDE], state[ROWS] = place, inside, row
    if status in (DONE, FULL):
        state[OUTPUT_BYTES] = plan_output(tables, work, plan, state[N_NODES])
    return status


@inlined
def scan_item(tables: Any, work: Any, place: int, row: int, root: int, keep_nulls: bool) -> Any:  # noqa: FBT001 - one state machine
    """Return the place after the item at ``place``, whose values were put under ``row``, or a negative status.

    ``root`` is the node whose members the item's attributes are.
    """
    data, state, stack, count = work.data, work.state, work.stack, work.count
    kinds, values = tables.kind, work.values
    if peek(data, place) != OPEN_OBJECT:
        return -ERROR
    place += 1
    if peek(data, place) != QUOTE:
        place = skip_blank(data, place)
        if peek(data, place) == CLOSE_OBJECT:
            return place + 1
    n_nodes = state[N_NODES]
    state[INSTANCE] += 1
    context, index, instance, last, depth = root, row, state[INSTANCE], n_nodes + root, 0
    top, top_start, name, name_length = 0, 0, 0, 0
    while True:
        # Which value is this?
        context_kind = peek(kinds, context)
        bad, inner_place, node = FITS, 0, 0
        if context_kind == STRUCT:
            node = predict_member(data, place, last, tables, work.follower)
            if node >= 0:
                place += peek(tables.prefix_length, node)
                start, inner_place = place - 2, place
            else:
                node, start, inner_place, name, name_length = find_member(data, place, context, instance, tables, work)
                if inner_place < 0:
                    return inner_place
                if node < 0:
                    bad, node = IS_UNKNOWN, 0
                else:
                    poke(work.follower, last, node)
            if bad == FITS:
                if not mark_seen(work.seen, node, instance):
                    return -ERROR
                last = node
        else:
            node = peek(tables.child, context)
            space = peek(tables.space, node)
            index = peek(count, space)
            if index >= peek(work.capacity, space):
                state[SPACE] = space
                return -GROW_ELEMENTS
            poke(count, space, index + 1)
            if context_kind == SET:
                if peek(data, place) != QUOTE:
                    place = skip_blank(data, place)
                    if peek(data, place) != QUOTE:
                        return -ERROR
                inner_place = place + 1
                start = place
            else:
                if context_kind == MAP:
                    place = scan_key(work, place, node + 1, index, instance)
                    if place < 0:
                        return place
                if peek(data, place) == OPEN_OBJECT and peek(data, place + 1) == QUOTE:
                    start, inner_place = place, place + 2
                else:
                    start = skip_blank(data, place)
                    inner_place = inside_value(data, start)
                    if inner_place < 0:
                        return inner_place
        if depth == 0:
            top, top_start = node, start
        # Of which type?
        kind = peek(kinds, node)
        place = inner_place
        is_null = False
        if bad == FITS and context_kind != SET:
            word = np.int64(load64(data, place))
            if word & peek(tables.tag_mask, node) == peek(tables.tag_word, node):
                place += peek(tables.tag_length, node)
            elif word == _NULL_START and np.int64(load64(data, place + 8)) & _THREE_BYTES == _NULL_STOP:
                place += _NULL_LENGTH
                is_null = True
            else:
                tag, place = read_tag(data, place - 1, state)
                if place < 0:
                    return place
                if tag == NULL:
                    if read_literal(data, place) != 1:
                        return -ERROR
                    place = skip_blank(data, place + 4)
                    if peek(data, place) != CLOSE_OBJECT:
                        return -ERROR
                    place += 1
                    is_null = True
                elif tag != peek(tables.tag, node):
                    bad = IS_OTHER_TYPE
                elif kind != BOOLEAN:
                    byte = peek(data, place)
                    if byte != (OPEN_ARRAY if kind in (LIST, SET) else OPEN_OBJECT if kind <= MAP else QUOTE):
                        return -ERROR
                    place += 1
            if is_null and keep_nulls and context_kind == STRUCT:
                bad = IS_NULL
        # What does it hold?
        if is_null and bad == FITS:
            count_null(tables, work, node, row, top)
        if bad == FITS and not is_null:
            slot = peek(work.value_place, node) + (index << 1 if kind == DECIMAL else index)
            if kind > MAP:
                if kind < JSON:
                    place, bad = read_scalar(data, place, kind, node, slot, tables, work)
                    if place < 0:
                        return place
                    if bad == FITS:
                        poke(work.valid, peek(work.valid_place, node) + index, 1)
                    if context_kind != SET:
                        if peek(data, place) != CLOSE_OBJECT:
                            place = skip_blank(data, place)
                            if peek(data, place) != CLOSE_OBJECT:
                                return -ERROR
                        place += 1
                elif kind == JSON:
                    place = scan_json(work, start, node, index, slot)
                    if place < 0:
                        return place
                else:
                    return -ERROR
            else:
                byte = peek(data, place)
                if byte <= 32:  # noqa: PLR2004 - white space
                    place = skip_blank(data, place)
                    byte = peek(data, place)
                if depth == 0:
                    state[SAVED_SIZE] = peek(work.sizes, row)
                    state[SAVED_MERGED_NULLS] = peek(state, MERGED_NULLS + node)
                    for space in range(peek(tables.first_space, node), peek(tables.last_space, node)):
                        poke(work.saved, space, peek(count, space))
                poke(work.valid, peek(work.valid_place, node) + index, 1)
                if byte == (CLOSE_ARRAY if kind in (LIST, SET) else CLOSE_OBJECT):
                    poke(values, slot, 0)
                    place += 1
                    if peek(data, place) != CLOSE_OBJECT:
                        place = skip_blank(data, place)
                        if peek(data, place) != CLOSE_OBJECT:
                            return -ERROR
                    place += 1
                else:
                    frame = depth * FRAME_WIDTH
                    poke(stack, frame + FRAME_CONTEXT, context)
                    poke(stack, frame + FRAME_INDEX, index)
                    poke(stack, frame + FRAME_INSTANCE, instance)
                    poke(stack, frame + FRAME_LAST, last)
                    depth += 1
                    context = node
                    if kind in (STRUCT, MAP):
                        state[INSTANCE] += 1
                        instance = state[INSTANCE]
                        last = n_nodes + node
                    if kind != STRUCT:
                        poke(stack, frame + FRAME_FIRST, peek(count, peek(tables.inner_space, node)))
                    continue
        if bad != FITS:
            bad_node = context if bad == IS_UNKNOWN else node
            if depth > 0:
                undo_attribute(tables, work, top, row)
                context, index, depth = root, row, 0
                instance, last = peek(stack, FRAME_INSTANCE), peek(stack, FRAME_LAST)
                place = top_start
            else:
                place = start
                top = -1 - root if bad == IS_UNKNOWN else node
                if bad == IS_UNKNOWN:
                    bad_node = -1
            place = put_misfit(work, row, top, name, name_length, place, bad | bad_node << 8)
            if place < 0:
                return place
        # What comes after it?
        while True:
            byte = peek(data, place)
            if byte == COMMA:
                place += 1
                break
            context_kind = peek(kinds, context)
            if byte == (CLOSE_OBJECT if context_kind in (STRUCT, MAP) else CLOSE_ARRAY):
                place += 1
                if depth == 0:
                    return place
                depth -= 1
                frame = depth * FRAME_WIDTH
                index = peek(stack, frame + FRAME_INDEX)
                if context_kind != STRUCT:
                    n_elements = peek(count, peek(tables.inner_space, context)) - peek(stack, frame + FRAME_FIRST)
                    poke(values, peek(work.value_place, context) + index, n_elements)
                context = peek(stack, frame + FRAME_CONTEXT)
                instance = peek(stack, frame + FRAME_INSTANCE)
                last = peek(stack, frame + FRAME_LAST)
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
