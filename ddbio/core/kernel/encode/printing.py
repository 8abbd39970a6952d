"""Print the rows of a batch as items by the steps of a schema's program; a row that breaks a rule leaves no bytes.

Refuses to know what is in range: the room for all rows was measured before.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.capacity import CONTAINER_BYTES
from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.encode.number import put_integer, put_number, put_wide
from ddbio.core.kernel.encode.state import (
    BAD,
    BINARY,
    BOOLEAN,
    DEEP,
    EMPTY_KEY,
    EMPTY_SET,
    END,
    FINE,
    INTEGER,
    KEY,
    LARGE,
    LIST_END,
    LONG_KEY,
    MAP,
    MAP_END,
    MAX_DEPTH,
    MAX_ITEM_BYTES,
    MAX_NAME_BYTES,
    MEMBERS,
    NAME,
    NO_KEY,
    NOT_A_NUMBER,
    NULL,
    NULL_IN_SET,
    NUMBER,
    PREPARED,
    RAW,
    RAW_WORDS,
    REFUSAL_WIDTH,
    STRUCT,
    STRUCT_END,
    TEXT,
    TWICE,
    UNSIGNED,
    VALUE,
    WIDE,
)
from ddbio.core.kernel.encode.text import has_twice, put, put_base64, put_text
from ddbio.core.kernel.memory import copy32, peek, pointers, poke

if TYPE_CHECKING:
    import numpy.typing as npt

_OPEN, _CLOSE, _COMMA, _QUOTE, _COLON = ord("{"), ord("}"), ord(","), ord('"'), ord(":")
_LENGTH_MASK = 0xFFFFFFFF


class _Out(NamedTuple):
    text: npt.NDArray[np.uint8]


@loop
def print_rows(tables: Any, work: Any, out: Any, n_rows: int) -> Any:
    """Print the rows; fill the ends and sizes of items and the refusals; return how many rows were refused."""
    return _print_rows(pointers(tables), pointers(work), pointers(_Out(out)).text, n_rows)


@inner
def _print_rows(t: Any, w: Any, out: Any, n_rows: int) -> Any:
    frame_place, frame_length, end_place, end_length = t.frame[0], t.frame[1], t.frame[2], t.frame[3]
    all_keys = t.frame[4]
    at, n_refused = 0, 0
    for row in range(n_rows):
        start = at
        at = put(out, at, t.text, frame_place, frame_length)
        poke(out, at, _OPEN)
        at, weight, keys, rule, node, entry = _print_row(t, w, out, at + 1, row)
        if rule == FINE:
            if peek(out, at - 1) == _COMMA:
                at -= 1
            poke(out, at, _CLOSE)
            at = put(out, at + 1, t.text, end_place, end_length)
            if keys & all_keys != all_keys:
                # The lowest key that was not seen.
                rule, node, entry = NO_KEY, -1, 1 if not keys & 1 and all_keys & 1 else 2
            elif weight > MAX_ITEM_BYTES:
                rule, node, entry = LARGE, -1, weight
        if rule != FINE:
            at, weight = start, 0
            refusal = n_refused * REFUSAL_WIDTH
            poke(w.refusals, refusal, row)
            poke(w.refusals, refusal + 1, rule)
            poke(w.refusals, refusal + 2, node)
            poke(w.refusals, refusal + 3, entry)
            n_refused += 1
        poke(w.ends, row, at)
        poke(w.sizes, row, weight)
    return n_refused


@inner
def _print_row(t: Any, w: Any, out: Any, at: int, row: int) -> Any:
    """Print the members of one row; return the place after them, weight, keys seen, and why, where it is refused."""
    weight, keys, step, mark = 0, 0, 0, 0
    w.index[0] = row
    while True:
        kind, node = t.step[step], t.step_node[step]
        if kind == END:
            return at, weight, keys, FINE, 0, 0
        space = t.space[node]
        if kind == STRUCT_END:
            if peek(out, at - 1) == _COMMA:
                at -= 1
            copy32(out, at, t.text, t.tail[node])
            at += t.tail_length[node]
            step += 1
            continue
        if kind in (LIST_END, MAP_END):
            inside = t.inner_space[node]
            index = w.index[inside] + 1
            if index < w.limit[inside]:
                w.index[inside] = index
                step = t.jump[step]
                continue
            if t.is_set[node]:
                count = index - w.first[inside]
                if count > 1 and has_twice(out, mark, w.marks, 0, count, w.slots):
                    return at, weight, keys, TWICE, node, w.index[space]
            at -= 1
            copy32(out, at, t.text, t.tail[node])
            at += t.tail_length[node]
            step += 1
            continue
        entry = w.index[space]
        if kind == KEY:
            span = peek(w.words, t.words[node] + entry)
            length = span & _LENGTH_MASK
            if length == 0 or length > MAX_NAME_BYTES:
                return at, weight, keys, NAME, node, entry
            poke(out, at, _QUOTE)
            at = put_text(out, at + 1, w.data, span >> 32, length)
            poke(out, at, _QUOTE)
            poke(out, at + 1, _COLON)
            at += 2
            weight += length
            step += 1
            continue
        state = peek(w.states, t.states[node] + entry)
        if state != VALUE:
            if state == BAD:
                return at, weight, keys, PREPARED, node, entry
            if state == NULL:
                if t.in_set[node]:
                    return at, weight, keys, NULL_IN_SET, node, entry
                at = put(out, at, t.text, t.null[node], t.null_length[node])
                weight += t.weight[node] + 1
            step = t.jump[step]
            continue
        before = at
        at = put(out, at, t.text, t.head[node], t.head_length[node])
        weight += t.weight[node]
        if kind >= STRUCT:
            weight += CONTAINER_BYTES if not t.is_set[node] else 0
            if t.depth[node] >= MAX_DEPTH:
                return at, weight, keys, DEEP, node, entry
            if kind != STRUCT:
                place = t.words[node] + entry
                first, stop = peek(w.words, place), peek(w.words, place + 1)
                if first == stop:
                    if t.is_set[node]:
                        return at, weight, keys, EMPTY_SET, node, entry
                    copy32(out, at, t.text, t.tail[node])
                    at += t.tail_length[node]
                    step = t.jump[step]
                    continue
                inside = t.inner_space[node]
                w.index[inside], w.first[inside], w.limit[inside] = first, first, stop
                mark = at
                if kind == MAP and stop - first > 1:
                    names = t.words[t.key_node[node]] + first
                    if has_twice(w.data, 0, w.words, names, stop - first, w.slots):
                        return at, weight, keys, TWICE, node, entry
            step += 1
            continue
        content = at
        if kind in (TEXT, BINARY):
            span = peek(w.words, t.words[node] + entry)
            place, length = span >> 32, span & _LENGTH_MASK
            weight += length
            if t.key[node]:
                if length == 0:
                    return at, weight, keys, EMPTY_KEY, node, entry
                if length > t.longest[node]:
                    return at, weight, keys, LONG_KEY, node, entry
            if kind == TEXT:
                at = put_text(out, at, w.data, place, length)
            else:
                at = put_base64(out, at, w.data, place, length)
        elif kind == INTEGER:
            word = peek(w.words, t.words[node] + entry)
            magnitude = np.uint64(0) - np.uint64(word) if word < 0 else np.uint64(word)
            at, own = put_integer(out, at, magnitude, word < 0, t.scale[node])
            weight += own
        elif kind == WIDE:
            place = t.words[node] + 2 * entry
            at, own = put_wide(out, at, peek(w.words, place), peek(w.words, place + 1), t.scale[node], w.digits)
            weight += own
        elif kind == UNSIGNED:
            at, own = put_integer(out, at, np.uint64(peek(w.words, t.words[node] + entry)), False, 0)  # noqa: FBT003
            weight += own
        elif kind == NUMBER:
            span = peek(w.words, t.words[node] + entry)
            at, own = put_number(out, at, w.data, span >> 32, span & _LENGTH_MASK, w.digits)
            if at < 0:
                return content, weight, keys, NOT_A_NUMBER, node, entry
            weight += own
        elif kind == BOOLEAN:
            truth = peek(w.data, t.words[node] + entry)
            copy32(out, at, t.text, 8 - 8 * truth)
            at += 5 - truth
            weight += 1
        elif kind in (RAW, MEMBERS):
            place = t.words[node] + RAW_WORDS * entry
            span = peek(w.words, place)
            at = put(out, at, w.data, span >> 32, span & _LENGTH_MASK)
            weight += peek(w.words, place + 1)
            keys |= peek(w.words, place + 2)
        keys |= t.key[node]
        if t.in_set[node]:
            # What is printed between quotes is the same only where the element is.
            count = w.index[space] - w.first[space]
            poke(w.marks, count, (before - mark) << 32 | (at - before))
        copy32(out, at, t.text, t.tail[node])
        at += t.tail_length[node]
        step += 1
