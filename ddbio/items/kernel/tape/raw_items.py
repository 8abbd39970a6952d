"""Validation of the items of a tape by the rules of the service, with their sizes and hashes of their keys.

The text of the items is not changed. An item that is not legal for certain is marked for the plain reference.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.items.kernel.base64 import decode_base64, decoded_length, is_exact_base64
from ddbio.items.kernel.codes import BOOL, NULL, SS, B, L, N
from ddbio.items.kernel.encode.codes import MAX_DEPTH, MAX_ITEM_BYTES, MAX_NAME_BYTES
from ddbio.items.kernel.encode.printing import has_duplicates
from ddbio.items.kernel.hash.keys import PREFIX_BYTES, xxh64
from ddbio.items.kernel.jit import inner, int64, loop
from ddbio.items.kernel.memory import PAD, copy_bytes, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import MINUS, POINT, ZERO, canonicalise_number, print_integer
from ddbio.items.kernel.tape.paths import NAME_BYTES, NODE_BITS, NODE_WIDTH, OTHERS
from ddbio.items.kernel.tape.sizes import integer_bytes, number_bytes
from ddbio.items.kernel.tape.walk import (
    CLOSE,
    ENCODING_BITS,
    IN_SET,
    ITEM,
    LENGTH_MASK,
    NAME,
    NUMBER_TEXT,
    ODD,
    TAG_BITS,
)
from ddbio.items.kernel.text import hash_text, skip_blank

MAX_ELEMENTS: Final = 1 << 13
"""The most elements of a set; a set with more is left to the plain reference."""
KEY_CONTENT_BYTES: Final = 4096
"""The most bytes of a key's content, including padding."""
RULE_KEY, RULE_TAG, RULE_LONGEST, RULE_MARK, RULE_WIDTH = range(5)
"""The rule of an attribute: the index of its key or -1, its type or -1, the most bytes of its value, and the index of
its recorded value or -1."""
N_RULES, N_KEYS, N_MARKS, LETTERS, NEEDED = range(5)
"""The request of a check: the number of attributes with rules, of keys among them and of recorded values, the letters
of the keys' types, and a bit for each recorded value that every item needs."""

_SLOT_SHIFT = 40


class Check(NamedTuple):
    """Tape, request and results of a check.

    The attributes with rules have the first nodes, which keep the positions of values and the texts of numbers.
    """

    data: npt.NDArray[np.uint8]
    tape: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    scratch: npt.NDArray[np.uint8]
    """The contents of keys, ``KEY_CONTENT_BYTES`` bytes each, followed by the text that is hashed."""
    lengths: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    request: npt.NDArray[np.int64]
    rules: npt.NDArray[np.int64]
    recorded: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    doubts: npt.NDArray[np.uint8]
    """Input: whether an item was not walked. Output: whether it is not legal for certain."""


@loop(Check, int64)
def check_items(check: Any, n_words: int) -> None:
    """Record each item's span, size, key hash and requested values, and whether it is doubtful."""
    _check_items(pointers(check), n_words)


@inner
def _check_items(c: Any, n_words: int) -> None:
    data, tape, nodes = c.data, c.tape, c.nodes
    n_rules, n_values = peek(c.request, N_RULES), 2 * peek(c.request, N_MARKS)
    row, depth, start, size, seen, is_bad = 0, 0, 0, 0, 0, False
    name_length, odd, rule, count, set_tag = 0, 0, -1, 0, -1
    for at in range(0, n_words, 2):
        head, word = peek(tape, at), peek(tape, at + 1)
        tag = head & TAG_BITS
        if tag >= ITEM:
            if tag == NAME:
                name_length = word & LENGTH_MASK
            elif tag == ODD:
                odd = word
            elif tag == ITEM:
                start, size, seen, is_bad = word, 0, 0, peek(c.doubts, row) != 0
            elif tag == CLOSE and depth > 0:
                depth -= 1
                if set_tag >= 0:
                    is_bad |= count == 0 or _has_equals(c, set_tag, count)
                    set_tag = -1
                if depth == 0 and rule >= 0:
                    seen |= _note_value(c, rule, word)
            elif tag == CLOSE:
                is_bad |= seen & peek(c.request, NEEDED) != peek(c.request, NEEDED) or size > MAX_ITEM_BYTES
                poke(c.spans, 2 * row, start)
                poke(c.spans, 2 * row + 1, word)
                poke(c.sizes, row, 0 if is_bad else size)
                poke(c.hashes, row, np.uint64(0) if is_bad else _hash_of_key(c))
                poke(c.doubts, row, is_bad)
                for index in range(n_values):
                    poke(c.values, row * n_values + index, peek(c.recorded, index))
                row += 1
            continue
        if tag >= IN_SET:
            own_size = _content_bytes(data, tag - IN_SET, head, word)
            size += own_size
            is_bad |= count == MAX_ELEMENTS or own_size < 0
            if tag - IN_SET == N:
                word = _hash_of_number(c, head, word)
            if not is_bad:
                poke(c.elements, count, word)
                count += 1
            continue
        own_length = peek(nodes, (head >> NODE_BITS) * NODE_WIDTH + NAME_BYTES)
        if own_length == OTHERS:
            own_length = name_length
        if own_length >= 0:
            size += own_length
            is_bad |= own_length == 0 or own_length > MAX_NAME_BYTES
        if depth > 0:
            size += ELEMENT_BYTES
            is_bad |= depth >= MAX_DEPTH - 1
        else:
            rule = (head >> NODE_BITS) - 1 if head >> NODE_BITS <= n_rules else -1
            if rule >= 0:
                poke(c.recorded, n_values, odd >> 32)
        if tag < SS:
            own_size = _content_bytes(data, tag, head, word)
            size += own_size
            is_bad |= own_size < 0
            if depth == 0 and rule >= 0:
                seen |= _note_value(c, rule, odd & LENGTH_MASK)
                is_bad |= not _fits_rule(c, rule, tag, own_size) or not _keep_content(c, rule, head, word)
        else:
            is_bad |= depth == 0 and rule >= 0 and peek(c.rules, rule * RULE_WIDTH + RULE_TAG) >= 0
            depth += 1
            if tag >= L:
                size += CONTAINER_BYTES
            else:
                set_tag, count = tag - SS, 0


@inner
def _content_bytes(data: Any, tag: int, head: int, word: int) -> Any:
    """Return the bytes of a scalar, or -1 if only the reference can decide whether it is legal."""
    if tag == N:
        encoding = (head >> ENCODING_BITS) & 0xFF
        if encoding not in (0, NUMBER_TEXT):
            return integer_bytes(word)
        start, stop = word >> 32, (word >> 32) + (word & LENGTH_MASK)
        n_bytes = number_bytes(data, start, stop)
        return -1 if n_bytes == 1 and not _is_plain_zero(data, start, stop) else n_bytes
    if tag in (BOOL, NULL):
        return 1
    if tag == B:
        if not is_exact_base64(data, word >> 32, word & LENGTH_MASK):
            return -1
        return decoded_length(data, word >> 32, word & LENGTH_MASK)
    return word & LENGTH_MASK


@inner
def _is_plain_zero(data: Any, start: int, stop: int) -> Any:
    """Return whether a zero has neither a plus nor an exponent: the service refuses some of those spellings."""
    out_of_line()
    start += peek(data, start) == MINUS
    if peek(data, start) != ZERO:
        return False
    while start < stop and (peek(data, start) == ZERO or peek(data, start) == POINT):
        start += 1
    return start == stop


@inner
def _note_value(c: Any, rule: int, stop: int) -> Any:
    """Record the span of an attribute's value if it is requested; return its bit."""
    mark = peek(c.rules, rule * RULE_WIDTH + RULE_MARK)
    if mark < 0:
        return 0
    # The last element of ``recorded`` is the start of the value.
    poke(c.recorded, 2 * mark, peek(c.recorded, 2 * peek(c.request, N_MARKS)))
    poke(c.recorded, 2 * mark + 1, skip_blank(c.data, stop) + 1)
    return 1 << mark


@inner
def _fits_rule(c: Any, rule: int, tag: int, own_size: int) -> Any:
    """Return whether a scalar may be the value of a key attribute."""
    key_tag = peek(c.rules, rule * RULE_WIDTH + RULE_TAG)
    if key_tag < 0:
        return True
    return key_tag == tag and (tag == N or 0 < own_size <= peek(c.rules, rule * RULE_WIDTH + RULE_LONGEST))


@inner
def _keep_content(c: Any, rule: int, head: int, word: int) -> Any:
    """Write the content of a key for the hash; return whether it fits the buffer."""
    key = peek(c.rules, rule * RULE_WIDTH + RULE_KEY)
    if key < 0:
        return True
    tag, at, start, length = head & TAG_BITS, key * KEY_CONTENT_BYTES, word >> 32, word & LENGTH_MASK
    if length > KEY_CONTENT_BYTES - PAD:
        return False
    if tag == N:
        length, _ = canonicalise_number(c.scratch, at, c.data, start, length, c.digits)
        length -= at
    elif tag == B:
        n_bytes = decoded_length(c.data, start, length)
        decode_base64(c.scratch, at, c.data, start, n_bytes)
        length = n_bytes
    else:
        copy_bytes(c.scratch, at, c.data, start, length)
    poke(c.lengths, key, length)
    return True


@inner
def _hash_of_key(c: Any) -> Any:
    """Return the hash of the identity of the key attributes; see ``ddbio.items.item_key``."""
    n_keys, letters = peek(c.request, N_KEYS), peek(c.request, LETTERS)
    begin = at = n_keys * KEY_CONTENT_BYTES
    for key in range(n_keys):
        length = peek(c.lengths, key)
        poke(c.scratch, at, letters >> (8 * key) & 0xFF)
        for index in range(4):
            poke(c.scratch, at + 1 + index, length >> (8 * index) & 0xFF)
        at = copy_bytes(c.scratch, at + PREFIX_BYTES, c.scratch, key * KEY_CONTENT_BYTES, length)
    return xxh64(c.scratch, begin, at)


@inner
def _hash_of_number(c: Any, head: int, word: int) -> Any:
    """Return a hash of the canonical text of a number."""
    out_of_line()
    encoding, at = (head >> ENCODING_BITS) & 0xFF, peek(c.request, N_KEYS) * KEY_CONTENT_BYTES
    start, length = word >> 32, word & LENGTH_MASK
    if encoding == NUMBER_TEXT:
        return np.int64(hash_text(c.data, start, length))
    if encoding == 0:
        stop, _ = canonicalise_number(c.scratch, at, c.data, start, length, c.digits)
    else:
        stop, _ = print_integer(c.scratch, at, np.uint64(abs(word)), word < 0, encoding - 1)
    return np.int64(hash_text(c.scratch, at, stop - at))


@inner
def _has_equals(c: Any, tag: int, count: int) -> Any:
    """Return whether two elements of a set are equal, or may be."""
    out_of_line()
    if tag != N:
        return has_duplicates(c.data, 0, c.elements, 0, count, c.slots)
    # For numbers, the elements are hashes.
    size = 2
    while size < 2 * count:
        size *= 2
    for slot in range(size):
        poke(c.slots, slot, -1)
    for index in range(count):
        own = peek(c.elements, index)
        slot = (own >> _SLOT_SHIFT) & (size - 1)
        while peek(c.slots, slot) >= 0:
            if peek(c.elements, peek(c.slots, slot)) == own:
                return True
            slot = (slot + 1) & (size - 1)
        poke(c.slots, slot, index)
    return False
