"""Find the items in DynamoDB JSON, check each as the service would, and count its size; decode no value.

Input is a text in any framing. Output is, for each item, its span, its size, the hash of its key and the spans of the
attributes asked for. An item that is not clearly legal is marked for the plain reference. If not even the ends of
items can be found, the walk ends with ``BROKEN``.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.items.kernel.base64 import decode_base64, decoded_length, is_base64, is_exact_base64
from ddbio.items.kernel.codes import ERROR, EXPORT, NULL, PLACE, ROWS, SS, UNESCAPED, UNESCAPED_END, B, L, M, N
from ddbio.items.kernel.encode.codes import MAX_DEPTH, MAX_ITEM_BYTES, MAX_NAME_BYTES
from ddbio.items.kernel.encode.printing import has_duplicates
from ddbio.items.kernel.framing import enter_document, leave_document
from ddbio.items.kernel.hash.items import read_short_tag
from ddbio.items.kernel.hash.keys import PREFIX_BYTES, xxh64
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import PAD, copy_bytes, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import LONGEST_NUMBER, MINUS, POINT, ZERO, canonicalise_number, read_digits
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT, read_literal
from ddbio.items.kernel.text import BACKSLASH, QUOTE, hash_text, read_text, same_text, skip_blank, text_end

MAX_LEVELS = MAX_DEPTH
MAX_NAMES = 1 << 12
"""The most names of an item, at all its levels; one with more is left to the plain reference, as are longer sets."""
MAX_ELEMENTS = 1 << 13
FRAMES = 2
"""What a level of nesting has in ``frames``: its type and where its names begin."""
RULE_KEY, RULE_TAG, RULE_LONGEST, RULE_MARK, RULE_PLACE, RULE_LENGTH, RULE_WIDTH = range(7)
"""What is known of an attribute of interest: which key it is, or -1; its type, or -1; the most bytes that it may have;
which of the noted values it is, or -1; and where its name is in the names' text."""
N_RULES, N_KEYS, N_MARKS, LETTERS, NEEDED, ROOM = range(6)
"""What is asked for: how many attributes are of interest, how many of them are keys, how many values are noted, the
letters of the keys' types, a bit for each value that every item needs, and for how many items the arrays are."""
WHOLE, BROKEN, NO_ROOM = range(3)
"""How a walk ends: at the end of the text, at a broken document, or at more items than the arrays hold."""


class Work(NamedTuple):
    """Hold what a walk reads and writes; ``data`` is padded."""

    data: npt.NDArray[np.uint8]
    state: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.uint8]
    scratch: npt.NDArray[np.uint8]
    marks: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    asked: npt.NDArray[np.int64]
    rules: npt.NDArray[np.int64]
    rule_hashes: npt.NDArray[np.uint64]
    rule_names: npt.NDArray[np.uint8]
    contents: npt.NDArray[np.int64]
    found: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    doubts: npt.NDArray[np.uint8]


@inner
def _plain_number_size(data: Any, place: int, stop: int) -> Any:
    """Return the size of a number without exponent and of at most some forty digits, or -1."""
    negative = peek(data, place) == MINUS
    first = place + negative
    _, end = read_digits(data, first)
    last = end
    if end == first:
        return -1
    if end < stop and peek(data, end) == POINT:
        _, last = read_digits(data, end + 1)
    if last != stop:
        return -1
    has_point = end < stop
    while has_point and peek(data, last - 1) == ZERO:
        last -= 1
    if has_point and last == end + 1:
        has_point = False
        last = end
    while not has_point and last > first and peek(data, last - 1) == ZERO:
        last -= 1
    while first < last and (peek(data, first) == ZERO or peek(data, first) == POINT):
        has_point = has_point and peek(data, first) != POINT
        first += 1
    count = last - first - has_point
    if count > 38:  # noqa: PLR2004 - significant digits
        return -1
    return (count + 1) // 2 + 1 + (negative and count > 0)


@inner
def _number_size(w: Any, place: int, stop: int) -> Any:
    """Return the size of a number, or -1 if it is none, or one that the service would refuse."""
    own_size = _plain_number_size(w.data, place, stop)
    return own_size if own_size >= 0 else _rare_number_size(w, place, stop)


@inner
def _rare_number_size(w: Any, place: int, stop: int) -> Any:
    out_of_line()
    at, own_size = canonicalise_number(w.scratch, 0, w.data, place, stop - place, w.digits)
    # The service refuses some forms of zero.
    if at < 0 or (at == 1 and peek(w.scratch, 0) == ZERO):
        return -1
    return own_size


@inner
def _text_size(w: Any, place: int, tag: int) -> Any:
    """Return the place after a text that is legal for a type, its size, and its span without escapes."""
    data, state = w.data, w.state
    if peek(data, place) != QUOTE:
        return -ERROR, 0, 0, 0
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return place, 0, 0, 0
    own_size = length
    if tag == N:
        own_size = _number_size(w, start, start + length)
    elif tag == B:
        own_size = decoded_length(data, start, length)
        if not is_base64(data, start, length) or not is_exact_base64(data, start, length):
            own_size = -1
    return -ERROR if own_size < 0 else place, own_size, start, length


@inner
def _set_size(w: Any, place: int, tag: int) -> Any:
    """Return the place after a set without duplicates that is not empty, and its size."""
    out_of_line()
    data, state = w.data, w.state
    side, total, count = state[UNESCAPED], 0, 0
    if peek(data, place) != OPEN_ARRAY:
        return -ERROR, 0
    place = skip_blank(data, place + 1)
    while True:
        if count == MAX_ELEMENTS:
            return -ERROR, 0
        place, own_size, start, length = _text_size(w, place, tag - SS)
        if place < 0:
            return place, 0
        if tag - SS == N:
            # Equal numbers have one canonical form.
            target = state[UNESCAPED]
            if target + LONGEST_NUMBER > state[UNESCAPED_END]:
                return -ERROR, 0
            stop, _ = canonicalise_number(data, target, data, start, length, w.digits)
            start, length = target, stop - target
            state[UNESCAPED] = stop
        poke(w.marks, count, start << 32 | length)
        total += own_size
        count += 1
        place = skip_blank(data, place)
        byte = peek(data, place)
        if byte == CLOSE_ARRAY:
            break
        if byte != COMMA:
            return -ERROR, 0
        place = skip_blank(data, place + 1)
    if count > 1 and has_duplicates(data, 0, w.marks, 0, count, w.slots):
        return -ERROR, 0
    state[UNESCAPED] = side
    return place + 1, total


@inner
def _rule_of(w: Any, value: Any, start: int, length: int) -> Any:
    """Return which of the attributes of interest has a name, or -1."""
    for rule in range(peek(w.asked, N_RULES)):
        if w.rule_hashes[rule] == value:
            at = rule * RULE_WIDTH
            if w.rules[at + RULE_LENGTH] == length and same_text(
                w.rule_names, w.rules[at + RULE_PLACE], w.data, start, length
            ):
                return rule
    return -1


@inner
def _keep_content(w: Any, key: int, tag: int, start: int, length: int) -> Any:
    """Note the span of a key's content, in the form in which it is hashed; return whether there was space for it."""
    data, state = w.data, w.state
    target = state[UNESCAPED]
    if tag == N:
        if target + LONGEST_NUMBER > state[UNESCAPED_END]:
            return False
        stop, _ = canonicalise_number(data, target, data, start, length, w.digits)
        state[UNESCAPED] = stop
        start, length = target, stop - target
    elif tag == B:
        size = decoded_length(data, start, length)
        if target + size + PAD > state[UNESCAPED_END]:
            return False
        decode_base64(data, target, data, start, size)
        state[UNESCAPED] = target + size
        start, length = target, size
    poke(w.contents, 2 * key, start)
    poke(w.contents, 2 * key + 1, length)
    return True


@inner
def _hash_of_key(w: Any) -> Any:
    """Return the hash of the identity that the key attributes make; see ``ddbio.items.item_key``."""
    out, at, letters = w.scratch, 0, peek(w.asked, LETTERS)
    for key in range(peek(w.asked, N_KEYS)):
        start, length = peek(w.contents, 2 * key), peek(w.contents, 2 * key + 1)
        poke(out, at, letters >> (8 * key) & 0xFF)
        for index in range(4):
            poke(out, at + 1 + index, length >> (8 * index) & 0xFF)
        at = copy_bytes(out, at + PREFIX_BYTES, w.data, start, length)
    return xxh64(out, 0, at)


@inner
def _check_item(w: Any, place: int) -> Any:
    """Return the place after an item and its size; the place is negative where the reference has to decide."""
    data, state, frames, names = w.data, w.state, w.frames, w.names
    depth, n_names, size, seen, needed = 0, 0, 0, 0, peek(w.asked, NEEDED)
    rule, value_start = -1, 0
    frames[0], frames[1] = M, 0
    place = skip_blank(data, place + 1)
    if peek(data, place) == CLOSE_OBJECT:
        return (place + 1 if needed == 0 else -ERROR), 0
    while True:
        if frames[FRAMES * depth] == M:
            if peek(data, place) != QUOTE or n_names == MAX_NAMES:
                return -ERROR, 0
            side = state[UNESCAPED]
            start, length, place = read_text(data, place + 1, state)
            if place < 0 or length == 0 or length > MAX_NAME_BYTES:
                return -ERROR, 0
            hashed = hash_text(data, start, length)
            is_duplicate = False
            for earlier in range(frames[FRAMES * depth + 1], n_names):
                is_duplicate |= names[earlier] == hashed
            if is_duplicate:
                return -ERROR, 0
            names[n_names] = hashed
            n_names += 1
            size += length
            if depth == 0:
                rule = _rule_of(w, hashed, start, length)
            state[UNESCAPED] = side
            if peek(data, place) != COLON:
                place = skip_blank(data, place)
                if peek(data, place) != COLON:
                    return -ERROR, 0
            place = skip_blank(data, place + 1)
        size += ELEMENT_BYTES * (depth > 0)
        if peek(data, place) != OPEN_OBJECT:
            return -ERROR, 0
        if depth == 0:
            value_start = place
        tag, place = read_short_tag(data, skip_blank(data, place + 1), state)
        if place < 0:
            return -ERROR, 0
        if tag <= B:
            side = state[UNESCAPED]
            place, own_size, start, length = _text_size(w, place, tag)
            if place < 0:
                return -ERROR, 0
            size += own_size
            if depth == 0 and rule >= 0:
                at = rule * RULE_WIDTH
                wanted, key = peek(w.rules, at + RULE_TAG), peek(w.rules, at + RULE_KEY)
                if wanted >= 0 and wanted != tag:
                    return -ERROR, 0
                if wanted >= 0 and tag != N and (own_size == 0 or own_size > peek(w.rules, at + RULE_LONGEST)):
                    return -ERROR, 0
                if key < 0:
                    state[UNESCAPED] = side
                elif not _keep_content(w, key, tag, start, length):
                    return -ERROR, 0
            else:
                state[UNESCAPED] = side
        elif depth == 0 and rule >= 0 and peek(w.rules, rule * RULE_WIDTH + RULE_TAG) >= 0:
            return -ERROR, 0
        elif tag < SS:
            literal = read_literal(data, place)
            if literal < 0 or (tag == NULL and literal == 0):
                return -ERROR, 0
            place += 4 if literal == 1 else 5
            size += 1
        elif tag < L:
            place, own_size = _set_size(w, place, tag)
            if place < 0:
                return -ERROR, 0
            size += own_size
        else:
            if peek(data, place) != (OPEN_ARRAY if tag == L else OPEN_OBJECT):
                return -ERROR, 0
            size += CONTAINER_BYTES
            place = skip_blank(data, place + 1)
            if peek(data, place) != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                depth += 1
                if depth == MAX_DEPTH - 1:
                    return -ERROR, 0
                frames[FRAMES * depth], frames[FRAMES * depth + 1] = tag, n_names
                continue
            place += 1
        # A value's content has ended: close what closes with it.
        while True:
            place = skip_blank(data, place)
            if peek(data, place) != CLOSE_OBJECT:
                return -ERROR, 0
            if depth == 0 and rule >= 0:
                mark = peek(w.rules, rule * RULE_WIDTH + RULE_MARK)
                if mark >= 0:
                    poke(w.found, 2 * mark, value_start)
                    poke(w.found, 2 * mark + 1, place + 1)
                    seen |= 1 << mark
            place = skip_blank(data, place + 1)
            byte, kind = peek(data, place), frames[FRAMES * depth]
            if byte == COMMA:
                place = skip_blank(data, place + 1)
                break
            if byte != (CLOSE_OBJECT if kind == M else CLOSE_ARRAY):
                return -ERROR, 0
            place += 1
            if depth == 0:
                is_whole = seen & needed == needed and size <= MAX_ITEM_BYTES
                return (place if is_whole else -ERROR), size
            n_names = frames[FRAMES * depth + 1]
            depth -= 1


@inner
def _end_of_item(data: Any, place: int, stop: int) -> Any:
    """Return the place after the object that begins at ``place`` by its brackets alone, or a negative status."""
    out_of_line()
    depth = 0
    while place < stop:
        byte = peek(data, place)
        place += 1
        if byte == QUOTE:
            while place < stop:
                place = text_end(data, place) + 1
                byte = peek(data, place - 1)
                if byte == QUOTE:
                    break
                # An escaped character does not end the text; whether it is legal, the reference decides.
                place += byte == BACKSLASH
        elif byte in (OPEN_OBJECT, OPEN_ARRAY):
            depth += 1
        elif byte in (CLOSE_OBJECT, CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return place if place <= stop else -ERROR
    return -ERROR


@loop
def find_items(work: Any, framing: int, stop: int) -> Any:
    """Note each item's span, size, hash of its key and values asked for; return whether the text is whole.

    Otherwise it is ``BROKEN``, or there is ``NO_ROOM`` for more items. The state has how many items there are in whole
    documents, and where these end.

    The space before the data is for unescaped texts, as the state says; ``PAD`` quotes follow ``stop``.
    """
    return _find_items(pointers(work), framing, stop)


@inner
def _find_items(w: Any, framing: int, stop: int) -> Any:
    data, state = w.data, w.state
    n_values = 2 * peek(w.asked, N_MARKS)
    place, side = skip_blank(data, state[UNESCAPED_END]), state[UNESCAPED]
    count = 0
    while place < stop:
        state[ROWS], state[PLACE] = count, place
        place = enter_document(data, place, framing)
        has_items = place >= 0 and (framing <= EXPORT or peek(data, place) != CLOSE_ARRAY)
        while has_items:
            if peek(data, place) != OPEN_OBJECT:
                return BROKEN
            if count == peek(w.asked, ROOM):
                return NO_ROOM
            start = place
            state[UNESCAPED] = side
            place, size = _check_item(w, start)
            is_doubtful = place < 0
            if is_doubtful:
                place, size = _end_of_item(data, start, stop), 0
                if place < 0:
                    return BROKEN
                poke(w.hashes, count, np.uint64(0))
            else:
                poke(w.hashes, count, _hash_of_key(w))
            for index in range(n_values):
                poke(w.values, count * n_values + index, peek(w.found, index))
            poke(w.spans, 2 * count, start)
            poke(w.spans, 2 * count + 1, place)
            poke(w.sizes, count, size)
            poke(w.doubts, count, is_doubtful)
            count += 1
            if framing > EXPORT:
                place = skip_blank(data, place)
            has_items = framing > EXPORT and peek(data, place) == COMMA
            if has_items:
                place = skip_blank(data, place + 1)
        if place >= 0:
            place = leave_document(data, place, framing)
        if place < 0:
            return BROKEN
    state[ROWS], state[PLACE] = count, place
    return WHOLE if place == stop else BROKEN
