"""Hash the items of a tape: their digest, whatever their shape."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0915

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.digest import ELEMENT_KEY, INDEX, START
from ddbio.items.digest import ITEM as ITEM_CODE
from ddbio.items.digest import NAME as NAME_CODE
from ddbio.items.kernel.base64 import decode_base64, decoded_length
from ddbio.items.kernel.codes import BOOL, SS, B, L, N, S
from ddbio.items.kernel.hash.mixing import BLOCK_BYTES, absorb, absorb_bytes, finish, last_of, text_number, word_number
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import PAD, peek, pointers, poke
from ddbio.items.kernel.tape.paths import KEY_LEFT, KEY_RIGHT, NAME, NAME_BYTES, NODE_BITS, NODE_WIDTH
from ddbio.items.kernel.tape.walk import CLOSE, FORM_BITS, IN_SET, ITEM, LENGTH_MASK, NUMBER_TEXT, TAG_BITS
from ddbio.items.kernel.tape.walk import NAME as NAME_TAG

LANES = 6
"""What a level of nesting has: its key, the sum of its values' hashes, its type and the number of its elements."""

_LEFT_START, _RIGHT_START = (np.uint64(word) for word in START)
_LEFT_ELEMENT, _RIGHT_ELEMENT = (np.uint64(word) for word in ELEMENT_KEY)
_ZERO = np.uint64(0)


@loop
def hash_items(walk: Any, n_words: int, lanes: Any, scratch: Any) -> Any:
    """Return the two words, high first, of the sum of the items' hashes, and the bytes that ``scratch`` lacks."""
    return _hash_items(pointers(walk), n_words, lanes, scratch)


@inner
def _hash_items(walk: Any, n_words: int, lanes: Any, scratch: Any) -> Any:
    data, tape, nodes = walk.data, walk.tape, walk.nodes
    high, low = _ZERO, _ZERO
    depth, named, name_word = 0, False, 0
    for at in range(0, n_words, 2):
        head, word = peek(tape, at), peek(tape, at + 1)
        tag = head & TAG_BITS
        if tag == ITEM:
            lanes[2], lanes[3], lanes[4] = _ZERO, _ZERO, _ZERO
            continue
        if tag == CLOSE:
            left, right = lanes[LANES * depth + 2], lanes[LANES * depth + 3]
            if depth == 0:
                left, right = absorb(_LEFT_START, _RIGHT_START, left, right)
                left, right = finish(left, right, np.uint64(ITEM_CODE))
                low += right
                high += left + np.uint64(low < right)
                continue
            base = LANES * depth
            left, right = absorb(lanes[base], lanes[base + 1], left, right)
            left, right = finish(left, right, lanes[base + 4] + np.uint64(1))
            depth -= 1
        elif tag == NAME_TAG:
            named, name_word = True, word
            continue
        elif tag > ITEM:
            continue
        else:
            # The key of the value: its name, its place in a list, or that of all elements of a set.
            base = LANES * depth
            if tag >= IN_SET:
                tag -= IN_SET
                left, right = _LEFT_ELEMENT, _RIGHT_ELEMENT
            elif depth > 0 and lanes[base + 5] > 0:
                left, right = absorb(_LEFT_START, _RIGHT_START, lanes[base + 5] - np.uint64(1), _ZERO)
                left, right = finish(left, right, np.uint64(INDEX))
                lanes[base + 5] += np.uint64(1)
            elif named:
                named = False
                left, right = _hash_name(data, name_word >> 32, name_word & LENGTH_MASK)
            else:
                record = (head >> NODE_BITS) * NODE_WIDTH
                left, right = np.uint64(peek(nodes, record + KEY_LEFT)), np.uint64(peek(nodes, record + KEY_RIGHT))
                if left == _ZERO:
                    left, right = _hash_name(walk.texts, peek(nodes, record + NAME), peek(nodes, record + NAME_BYTES))
                    poke(nodes, record + KEY_LEFT, np.int64(left))
                    poke(nodes, record + KEY_RIGHT, np.int64(right))
            if tag >= SS:
                depth += 1
                base += LANES
                lanes[base], lanes[base + 1], lanes[base + 2], lanes[base + 3] = left, right, _ZERO, _ZERO
                lanes[base + 4] = np.uint64(tag)
                # Elements of a list count from one.
                lanes[base + 5] = np.uint64(tag == L)
                continue
            if tag == S:
                start, length = word >> 32, word & LENGTH_MASK
                left, right = absorb_bytes(left, right, data, start, start + length, start + length + BLOCK_BYTES)
                left, right = finish(left, right, last_of(length, S + 1))
            elif tag == N:
                form = (head >> FORM_BITS) & 0xFF
                if form in (0, NUMBER_TEXT):
                    start = word >> 32
                    first, second, last = text_number(data, start, start + (word & LENGTH_MASK), walk.digits)
                else:
                    magnitude = np.uint64(-word if word < 0 else word)
                    first, second, last = word_number(magnitude, np.int64(word < 0), 1 - form)
                left, right = absorb(left, right, first, second)
                left, right = finish(left, right, last)
            elif tag == B:
                start, length = word >> 32, word & LENGTH_MASK
                size = decoded_length(data, start, length)
                if size + PAD > len(scratch):
                    return high, low, size + PAD
                decode_base64(scratch, 0, data, start, size)
                left, right = absorb_bytes(left, right, scratch, 0, size, size + BLOCK_BYTES)
                left, right = finish(left, right, last_of(size, B + 1))
            else:
                left, right = finish(left, right, last_of(word if tag == BOOL else 0, tag + 1))
        lanes[LANES * depth + 2] += left
        lanes[LANES * depth + 3] += right
    return high, low, 0


@inner
def _hash_name(data: Any, start: int, length: int) -> Any:
    left, right = absorb_bytes(_LEFT_START, _RIGHT_START, data, start, start + length, start + length + BLOCK_BYTES)
    return finish(left, right, last_of(length, NAME_CODE))
