"""Hash the items of DynamoDB JSON, whatever their shape: no schema, no columns, no object per value.

Text that is no DynamoDB JSON, a duplicate name, and more levels or names than the buffers hold are left to the plain
reference.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.digest import ELEMENT_KEY, INDEX, NAME, START
from ddbio.items.kernel.base64 import decode_base64, decoded_length, is_base64
from ddbio.items.kernel.codes import BOOL, ERROR, NULL, SS, TAGS, UNESCAPED, UNESCAPED_END, L, M, N, S
from ddbio.items.kernel.hash.mixing import (
    BLOCK_BYTES,
    NOT_A_NUMBER,
    absorb,
    absorb_bytes,
    finish,
    last_of,
    text_number,
    word_number,
)
from ddbio.items.kernel.jit import inner
from ddbio.items.kernel.memory import load64, peek
from ddbio.items.kernel.number import MAX_SHORT_DIGITS, MINUS, POINT, power_of_ten, read_digits
from ddbio.items.kernel.skip import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    read_literal,
    read_tag,
)
from ddbio.items.kernel.text import QUOTE, read_text, skip_blank

MAX_LEVELS = 32
MAX_NAMES = 1 << 14
_DIGITS_ROOM = 64
LANES, FRAMES = 4, 2
"""What a level of nesting has: in ``lanes`` its key and its sum, in ``frames`` its type and its index or first name."""


class Work(NamedTuple):
    """Hold what a walk reads and writes; ``data`` is padded."""

    data: npt.NDArray[np.uint8]
    state: npt.NDArray[np.int64]
    lanes: npt.NDArray[np.uint64]
    frames: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.uint8]


class Buffers(NamedTuple):
    """Hold the arrays that a walk writes to."""

    lanes: npt.NDArray[np.uint64]
    frames: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.uint8]


def make_buffers() -> Buffers:
    """Return arrays for the deepest item, and the one with the most names, that a walk does not refuse."""
    return Buffers(
        lanes=np.empty(LANES * MAX_LEVELS, np.uint64),
        frames=np.empty(FRAMES * MAX_LEVELS, np.int64),
        names=np.empty(MAX_NAMES, np.uint64),
        digits=np.empty(_DIGITS_ROOM, np.uint8),
    )


_LEFT_START, _RIGHT_START = (np.uint64(word) for word in START)
_LEFT_ELEMENT, _RIGHT_ELEMENT = (np.uint64(word) for word in ELEMENT_KEY)
_ZERO = np.uint64(0)
_AROUND_LETTER, _LETTER_FRAME = (np.uint64(int.from_bytes(text, "little")) for text in (b"\xff\0\xff\xff", b'"\0":'))
_LETTER_TAGS = np.full(256, -1, np.int8)
for _number_of_type, _tag in enumerate(TAGS):
    if len(_tag) == 1:
        _LETTER_TAGS[ord(_tag)] = _number_of_type
_LONE = -1
"""In place of a type: what holds one attribute value, whose key is known."""


@inner
def read_short_tag(data: Any, place: int, state: Any) -> Any:
    """Return what ``read_tag`` returns, with a short way for tags of one letter and no white space."""
    word = load64(data, place)
    tag = np.int64(_LETTER_TAGS[np.int64(word >> np.uint64(8) & np.uint64(0xFF))])
    if word & _AROUND_LETTER == _LETTER_FRAME and tag >= 0:
        return tag, skip_blank(data, place + 4)
    return read_tag(data, place, state)


@inner
def _number(data: Any, place: int, stop: int, digits: Any) -> Any:
    """Return the words of a number's coefficient and what goes last: short plain numbers, else any."""
    negative = peek(data, place) == MINUS
    first = place + negative
    value, end = read_digits(data, first)
    if first < end == stop and end - first <= MAX_SHORT_DIGITS:
        return word_number(value, negative, 0)
    if first < end < stop and peek(data, end) == POINT:
        fraction, last = read_digits(data, end + 1)
        n_places = last - end - 1
        if last == stop and 0 < n_places <= MAX_SHORT_DIGITS - (end - first):
            return word_number(value * power_of_ten(n_places) + fraction, negative, -n_places)
    return text_number(data, place, stop, digits)


@inner
def _hash_text(data: Any, place: int, tag: int, left: Any, right: Any, digits: Any, state: Any) -> Any:
    """Return the hash of a text that is legal for a type, and the place after it."""
    if peek(data, place) != QUOTE:
        return left, right, -ERROR
    side = state[UNESCAPED]
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return left, right, place
    if tag == N:
        low, high, last = _number(data, start, start + length, digits)
        if last == NOT_A_NUMBER:
            return left, right, -ERROR
        left, right = absorb(left, right, low, high)
        left, right = finish(left, right, last)
        state[UNESCAPED] = side
        return left, right, place
    if tag != S:
        size, target = decoded_length(data, start, length), state[UNESCAPED]
        if size < 0 or not is_base64(data, start, length) or target + size > state[UNESCAPED_END]:
            return left, right, -ERROR
        decode_base64(data, target, data, start, size)
        start, length = target, size
    left, right = absorb_bytes(left, right, data, start, start + length, start + length + BLOCK_BYTES)
    left, right = finish(left, right, last_of(length, tag + 1))
    state[UNESCAPED] = side
    return left, right, place


@inner
def _hash_scalar(data: Any, place: int, tag: int, left: Any, right: Any, digits: Any, state: Any) -> Any:
    """Return the hash of a value that holds no other values, or of a set, and the place after its content."""
    if tag < BOOL:
        return _hash_text(data, place, tag, left, right, digits, state)
    if tag < SS:
        literal = read_literal(data, place)
        if literal < 0 or (tag == NULL and literal == 0):
            return left, right, -ERROR
        left, right = finish(left, right, last_of(literal if tag == BOOL else 0, tag + 1))
        return left, right, place + (4 if literal == 1 else 5)
    if peek(data, place) != OPEN_ARRAY:
        return left, right, -ERROR
    first, second = _ZERO, _ZERO
    place = skip_blank(data, place + 1)
    while peek(data, place) != CLOSE_ARRAY:
        one, other, place = _hash_text(data, place, tag - SS, _LEFT_ELEMENT, _RIGHT_ELEMENT, digits, state)
        if place < 0:
            return left, right, place
        first += one
        second += other
        place = skip_blank(data, place)
        if peek(data, place) == COMMA:
            place = skip_blank(data, place + 1)
            if peek(data, place) != QUOTE:
                return left, right, -ERROR
        elif peek(data, place) != CLOSE_ARRAY:
            return left, right, -ERROR
    left, right = absorb(left, right, first, second)
    left, right = finish(left, right, np.uint64(tag + 1))
    return left, right, place + 1


@inner
def _hash_name(data: Any, place: int, state: Any) -> Any:
    """Return the key of a name and the place of its value."""
    if peek(data, place) != QUOTE:
        return _ZERO, _ZERO, -ERROR
    side = state[UNESCAPED]
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return _ZERO, _ZERO, place
    left, right = absorb_bytes(_LEFT_START, _RIGHT_START, data, start, start + length, start + length + BLOCK_BYTES)
    left, right = finish(left, right, last_of(length, NAME))
    state[UNESCAPED] = side
    place = skip_blank(data, place)
    if peek(data, place) != COLON:
        return left, right, -ERROR
    return left, right, skip_blank(data, place + 1)


@inner
def hash_item(w: Any, place: int) -> Any:
    """Put the sum of the attributes' hashes into the first level.

    Returns the place after the item, or a negative status, and how many words of ``names`` are its attributes'.
    """
    data = w.data
    if peek(data, place) != OPEN_OBJECT:
        return -ERROR, 0
    w.lanes[2], w.lanes[3] = _ZERO, _ZERO
    place = skip_blank(data, place + 1)
    if peek(data, place) == CLOSE_OBJECT:
        return place + 1, 0
    w.frames[0], w.frames[1] = M, 0
    return _hash_values(w, place)


@inner
def hash_value(w: Any, place: int, left: Any, right: Any) -> Any:
    """Put the hash of the attribute value at ``place`` under a key into the first level; return the place after it."""
    lanes = w.lanes
    lanes[0], lanes[1], lanes[2], lanes[3] = left, right, _ZERO, _ZERO
    w.frames[0] = _LONE
    place, _ = _hash_values(w, place)
    return place


@inner
def _hash_values(w: Any, place: int) -> Any:
    data, state, lanes, frames, names, digits = w.data, w.state, w.lanes, w.frames, w.names, w.digits
    depth, n_names = 0, 0
    while True:
        if frames[FRAMES * depth] == M:
            left, right, place = _hash_name(data, place, state)
            if place < 0 or n_names == MAX_NAMES:
                return -ERROR, 0
            for earlier in range(frames[FRAMES * depth + 1], n_names):
                if names[earlier] == left:
                    return -ERROR, 0
            names[n_names] = left
            n_names += 1
        elif frames[FRAMES * depth] == _LONE:
            left, right = lanes[0], lanes[1]
        else:
            left, right = absorb(_LEFT_START, _RIGHT_START, np.uint64(frames[FRAMES * depth + 1]), _ZERO)
            left, right = finish(left, right, np.uint64(INDEX))
            frames[FRAMES * depth + 1] += 1
        if peek(data, place) != OPEN_OBJECT:
            return -ERROR, 0
        tag, place = read_short_tag(data, skip_blank(data, place + 1), state)
        if place < 0:
            return place, 0
        if tag < L:
            left, right, place = _hash_scalar(data, place, tag, left, right, digits, state)
            if place < 0:
                return place, 0
        else:
            if peek(data, place) != (OPEN_ARRAY if tag == L else OPEN_OBJECT):
                return -ERROR, 0
            place = skip_blank(data, place + 1)
            if peek(data, place) != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                depth += 1
                if depth == MAX_LEVELS:
                    return -ERROR, 0
                lanes[LANES * depth], lanes[LANES * depth + 1] = left, right
                lanes[LANES * depth + 2], lanes[LANES * depth + 3] = _ZERO, _ZERO
                frames[FRAMES * depth], frames[FRAMES * depth + 1] = tag, n_names if tag == M else 0
                continue
            left, right = absorb(left, right, _ZERO, _ZERO)
            left, right = finish(left, right, np.uint64(tag + 1))
            place += 1
        # A value's content has ended: close what closes with it.
        while True:
            lanes[LANES * depth + 2] += left
            lanes[LANES * depth + 3] += right
            place = skip_blank(data, place)
            if peek(data, place) != CLOSE_OBJECT:
                return -ERROR, 0
            tag = frames[FRAMES * depth]
            if tag == _LONE:
                return place + 1, 0
            place = skip_blank(data, place + 1)
            byte = peek(data, place)
            if byte == COMMA:
                place = skip_blank(data, place + 1)
                break
            if byte != (CLOSE_OBJECT if tag == M else CLOSE_ARRAY):
                return -ERROR, 0
            place += 1
            if depth == 0:
                return place, n_names
            if tag == M:
                n_names = frames[FRAMES * depth + 1]
            base = LANES * depth
            left, right = absorb(lanes[base], lanes[base + 1], lanes[base + 2], lanes[base + 3])
            left, right = finish(left, right, np.uint64(tag + 1))
            depth -= 1
