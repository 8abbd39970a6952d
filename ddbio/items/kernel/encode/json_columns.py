"""Validation of columns of DynamoDB JSON: text that equals the encoder's print is copied.

The input is a column of texts, the output the span, size and keys of each. White space, other spellings, escapes in
names and values that DynamoDB refuses are left to the plain reference (``rules``).
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.capacity import CONTAINER_BYTES, ELEMENT_BYTES
from ddbio.items.kernel.base64 import decoded_length, is_base64
from ddbio.items.kernel.codes import TAGS, L, N, S
from ddbio.items.kernel.encode.codes import ABSENT, BAD, MAX_DEPTH, MAX_NAME_BYTES, RAW_WORDS, VALUE
from ddbio.items.kernel.encode.printing import has_duplicates
from ddbio.items.kernel.jit import boolean, inner, int64, loop
from ddbio.items.kernel.memory import load64, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import is_canonical, parse_number
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.items.kernel.text import BACKSLASH, QUOTE, hash_text, hash_text_plainly, same_text, text_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ddbio.items.kernel.encode.rules import KeyRule

MAX_NAMES = 1 << 10
"""Each name is compared with the earlier names of its object: rows with more names are read by the reference."""

MAX_ELEMENTS = 1 << 12
_SLOTS = 2 * MAX_ELEMENTS
_DIGITS_BYTES = 64

(
    ATTRIBUTE_HASH,
    ATTRIBUTE_NAME,
    ATTRIBUTE_NAME_BYTES,
    ATTRIBUTE_NODE,
    ATTRIBUTE_TAG,
    ATTRIBUTE_BIT,
    ATTRIBUTE_LONGEST,
) = range(7)
ATTRIBUTE_WIDTH = 7
"""Fields of an attribute: its name, its column's node or -1, and the type, bit and length of its key, or -1."""

_ROOT, _LIST = -2, -1
_FAILED = -1
_BRACES = 2
_SLOT_BITS = 32


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text.ljust(8, b"\0"), "little"))


_NULL_HEAD, _BOOL_HEAD = _word(b'{"NULL":'), _word(b'{"BOOL":')
_TRUE_TAIL, _FALSE_TAIL = _word(b"true}"), _word(b"false}")
_FIVE_BYTES, _SIX_BYTES = np.uint64((1 << 40) - 1), np.uint64((1 << 48) - 1)
_AROUND_LETTER, _LETTER_HEAD = _word(b"\xff\xff\0\xff\xff"), _word(b'{"\0":')
_AROUND_SET, _SET_HEAD = _word(b"\xff\xff\0\xff\xff\xff\xff"), _word(b'{"\0S":[')
_LETTER_BITS = np.uint64(16)
_BYTE = np.uint64(0xFF)
_LETTER_TAGS = np.full(256, -1, np.int8)
for _number_of_type, _tag in enumerate(TAGS):
    if len(_tag) == 1:
        _LETTER_TAGS[ord(_tag)] = _number_of_type

_LETTER_U, _ZERO, _NINE, _ONE, _LETTER_A, _LETTER_F = ord("u"), ord("0"), ord("9"), ord("1"), ord("a"), ord("f")
_IS_SHORT_ESCAPE = np.zeros(256, np.uint8)
_IS_SHORT_ESCAPE[np.frombuffer(b'"\\bfnrt', np.uint8)] = 1
_HAS_SHORT_ESCAPE = np.zeros(32, np.uint8)
_HAS_SHORT_ESCAPE[np.frombuffer(b"\b\f\n\r\t", np.uint8)] = 1


class Checker(NamedTuple):
    """Lookup of attributes that are columns or keys by name, and the output arrays of a check."""

    slots: npt.NDArray[np.int64]
    """The numbers of attributes, or -1; their length is a power of two and larger than the number of attributes."""
    entries: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]
    seen: npt.NDArray[np.uint64]
    """The hashes of the names of open objects."""
    levels: npt.NDArray[np.int64]
    """The index of the first name of each open object; negative for other containers."""
    marks: npt.NDArray[np.int64]
    duplicate_slots: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]


class Texts(NamedTuple):
    """Column of texts, and the states of all columns."""

    data: npt.NDArray[np.uint8]
    """The texts, followed by ``PAD`` quotes."""
    words: npt.NDArray[np.int64]
    """``RAW_WORDS`` a row; the first is the span of the text. All are filled in for a valid text."""
    states: npt.NDArray[np.uint8]
    """The states of this column."""
    all_states: npt.NDArray[np.uint8]
    columns: npt.NDArray[np.int64]
    """The position of the states of each node."""
    others: npt.NDArray[np.int64]
    """Output: the rows that are left to the reference."""


def make_checker(nodes: Mapping[str, int], rules: Mapping[str, KeyRule]) -> tuple[Checker, dict[str, int]]:
    """Return a checker of texts, and the position of the entry of each attribute.

    Parameters
    ----------
    nodes
        The number of each column's node, by attribute.
    """
    entries, names, entry_of = [], bytearray(), {}
    for number, name in enumerate(dict.fromkeys([*nodes, *rules])):
        encoded, rule = name.encode(), rules.get(name)
        key = (-1, 0, 0) if rule is None else (TAGS.index(rule.tag), rule.bit, rule.longest)
        hashed = int(np.uint64(hash_text_plainly(encoded)).astype(np.int64))
        entries.append([hashed, len(names), len(encoded), nodes.get(name, -1), *key])
        names += encoded
        entry_of[name] = number * ATTRIBUTE_WIDTH
    size = 1 << (2 * len(entries)).bit_length()
    slots = np.full(size, -1, np.int64)
    for number, entry in enumerate(entries):
        slot = entry[ATTRIBUTE_HASH] >> _SLOT_BITS & (size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = number
    checker = Checker(
        slots,
        np.array(entries, np.int64).ravel(),
        np.array([*names, 0], np.uint8),
        seen=np.empty(MAX_NAMES, np.uint64),
        levels=np.empty(MAX_DEPTH + 1, np.int64),
        marks=np.empty(MAX_ELEMENTS, np.int64),
        duplicate_slots=np.empty(_SLOTS, np.int64),
        digits=np.empty(_DIGITS_BYTES, np.uint8),
    )
    return checker, entry_of


@loop(Texts, Checker, int64, int64, boolean, int64)
def check_texts(texts: Any, checker: Any, first: int, depth: int, is_members: bool, key: int) -> Any:  # noqa: FBT001
    """Check the texts of a column whose words begin at ``first``; return the number of rows left to the reference.

    Parameters
    ----------
    depth
        The depth of each value in its item.
    is_members
        Whether a text has attributes, or one attribute value.
    key
        The position of the entry of the attribute if it is a key, else -1.
    """
    column = (first, len(texts.others), depth, is_members, key)
    return _check_texts(pointers(texts), pointers(checker), len(checker.slots) - 1, column)


@inner
def _check_texts(t: Any, c: Any, mask: int, column: Any) -> Any:
    first, n_rows, depth, is_members, key = column
    n_others = 0
    for row in range(n_rows):
        if peek(t.states, row) != VALUE:
            continue
        word = first + RAW_WORDS * row
        span = peek(t.words, word)
        position = span >> 32
        stop = position + (span & 0xFFFFFFFF)
        end, size, keys = _walk(t, c, position, (depth, is_members, key, row, mask))
        if end != stop:
            poke(t.others, n_others, row)
            n_others += 1
            continue
        if is_members:
            poke(t.words, word, (position + 1) << 32 | (stop - position - _BRACES))
            if size == 0:
                # There is no attribute: each one has a name.
                poke(t.states, row, ABSENT)
        poke(t.words, word + 1, size)
        poke(t.words, word + 2, keys)
    return n_others


@inner
def _walk(t: Any, c: Any, position: int, within: Any) -> Any:
    """Return the position after a text, its size and its keys; a negative position if the reference must read it."""
    data = t.data
    first_depth, is_members, attribute, row, mask = within
    depth, n_names, size, keys = 0, 0, 0, 0
    poke(c.levels, 0, 0 if is_members else _ROOT)
    if is_members:
        if peek(data, position) != OPEN_OBJECT:
            return _FAILED, 0, 0
        position += 1
        if peek(data, position) == CLOSE_OBJECT:
            return position + 1, 0, 0
    while True:
        first_name = peek(c.levels, depth)
        if first_name >= 0:
            if peek(data, position) != QUOTE:
                return _FAILED, 0, 0
            start = position + 1
            stop = text_end(data, start)
            length = stop - start
            if peek(data, stop) != QUOTE or peek(data, stop + 1) != COLON or n_names == MAX_NAMES:
                return _FAILED, 0, 0
            if length == 0 or length > MAX_NAME_BYTES:
                return _FAILED, 0, 0
            hashed = hash_text(data, start, length)
            for earlier in range(first_name, n_names):
                if c.seen[earlier] == hashed:
                    return _FAILED, 0, 0
            poke(c.seen, n_names, hashed)
            n_names += 1
            size += length
            position = stop + 2
            if depth == 0:
                attribute = _find(t, c, start, length, np.int64(hashed), mask)
                if attribute >= 0 and not _clear_column(t, c, attribute, row):
                    return _FAILED, 0, 0
        if depth > 0:
            size += ELEMENT_BYTES
        rule = peek(c.entries, attribute + ATTRIBUTE_TAG) if depth == 0 and attribute >= 0 else -1
        head = load64(data, position)
        if head in (_NULL_HEAD, _BOOL_HEAD):
            tail = load64(data, position + 8)
            is_true = tail & _FIVE_BYTES == _TRUE_TAIL
            if rule >= 0 or not (is_true or (head == _BOOL_HEAD and tail & _SIX_BYTES == _FALSE_TAIL)):
                return _FAILED, 0, 0
            size += 1
            position += 13 if is_true else 14
        elif head & _AROUND_LETTER == _LETTER_HEAD:
            tag = np.int64(_LETTER_TAGS[np.int64(head >> _LETTER_BITS & _BYTE)])
            if rule >= 0 and tag != rule:
                return _FAILED, 0, 0
            if tag >= L:
                opening = OPEN_ARRAY if tag == L else OPEN_OBJECT
                if peek(data, position + 5) != opening or first_depth + depth >= MAX_DEPTH:
                    return _FAILED, 0, 0
                size += CONTAINER_BYTES
                position += 6
                if peek(data, position) != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                    depth += 1
                    poke(c.levels, depth, _LIST if tag == L else n_names)
                    continue
                position += 1
            elif tag < 0 or peek(data, position + 5) != QUOTE:
                return _FAILED, 0, 0
            else:
                position, own = _text_size(data, position + 6, tag, c.digits)
                if position < 0:
                    return _FAILED, 0, 0
                size += own
                if rule >= 0:
                    if tag != N and (own == 0 or own > peek(c.entries, attribute + ATTRIBUTE_LONGEST)):
                        return _FAILED, 0, 0
                    keys |= peek(c.entries, attribute + ATTRIBUTE_BIT)
            if peek(data, position) != CLOSE_OBJECT:
                return _FAILED, 0, 0
            position += 1
        else:
            tag = np.int64(_LETTER_TAGS[np.int64(head >> _LETTER_BITS & _BYTE)])
            if head & _AROUND_SET != _SET_HEAD or tag < 0 or tag >= L or rule >= 0:
                return _FAILED, 0, 0
            position, own = _set_size(data, c, position + 7, tag)
            if position < 0:
                return _FAILED, 0, 0
            size += own
        # After a value: close the containers that end here.
        while True:
            first_name = peek(c.levels, depth)
            if first_name == _ROOT:
                return position, size, keys
            byte = peek(data, position)
            position += 1
            if byte == COMMA:
                break
            if byte != (CLOSE_OBJECT if first_name >= 0 else CLOSE_ARRAY):
                return _FAILED, 0, 0
            if depth == 0:
                return position, size, keys
            if first_name >= 0:
                n_names = first_name
            depth -= 1
            if peek(data, position) != CLOSE_OBJECT:
                return _FAILED, 0, 0
            position += 1


@inner
def _find(t: Any, c: Any, start: int, length: int, hashed: int, mask: int) -> Any:
    """Return the position of the entry of an attribute, or -1."""
    slot = hashed >> _SLOT_BITS & mask
    while True:
        number = peek(c.slots, slot)
        if number < 0:
            return -1
        entry = number * ATTRIBUTE_WIDTH
        is_alike = (
            peek(c.entries, entry + ATTRIBUTE_HASH) == hashed
            and peek(c.entries, entry + ATTRIBUTE_NAME_BYTES) == length
        )
        if is_alike and same_text(t.data, start, c.names, peek(c.entries, entry + ATTRIBUTE_NAME), length):
            return entry
        slot = (slot + 1) & mask


@inner
def _clear_column(t: Any, c: Any, attribute: int, row: int) -> Any:
    """Remove the attribute from its column; return False if the column has a value for it."""
    node = peek(c.entries, attribute + ATTRIBUTE_NODE)
    if node < 0:
        return True
    state = peek(t.columns, node) + row
    if peek(t.all_states, state) in (VALUE, BAD):
        return False
    poke(t.all_states, state, ABSENT)
    return True


@inner
def _text_size(data: Any, position: int, tag: int, digits: Any) -> Any:
    """Return the position after the text at ``position``, and its size; a negative position if it is refused."""
    stop = text_end(data, position)
    length = stop - position
    if peek(data, stop) != QUOTE:
        if tag != S:
            return _FAILED, 0
        stop, length = _after_escapes(data, position, stop)
        return stop + 1, length
    if tag == S:
        return stop + 1, length
    if tag == N:
        is_number, negative, count, _ = parse_number(data, position, stop, digits)
        return stop + 1 if is_number else _FAILED, (count + 1) // 2 + 1 + negative
    size = decoded_length(data, position, length)
    return stop + 1 if size >= 0 and is_base64(data, position, length) else _FAILED, size


@inner
def _after_escapes(data: Any, position: int, stop: int) -> Any:
    """Return the end of a text and its unescaped size, if all escapes are those of the encoder."""
    out_of_line()
    saved_bytes = 0
    while True:
        byte = peek(data, stop)
        if byte == QUOTE:
            return stop, stop - position - saved_bytes
        if byte != BACKSLASH:
            return _FAILED - 1, 0
        letter = peek(data, stop + 1)
        if _IS_SHORT_ESCAPE[letter]:
            stop += 2
            saved_bytes += 1
        else:
            high, low = peek(data, stop + 4), peek(data, stop + 5)
            if letter != _LETTER_U or peek(data, stop + 2) != _ZERO or peek(data, stop + 3) != _ZERO:
                return _FAILED - 1, 0
            if high not in (_ZERO, _ONE):
                return _FAILED - 1, 0
            if _ZERO <= low <= _NINE:
                low -= _ZERO
            elif _LETTER_A <= low <= _LETTER_F:
                low -= _LETTER_A - 10
            else:
                return _FAILED - 1, 0
            if _HAS_SHORT_ESCAPE[(high - _ZERO) * 16 + low]:
                return _FAILED - 1, 0
            stop += 6
            saved_bytes += 5
        stop = text_end(data, stop)


@inner
def _set_size(data: Any, c: Any, position: int, tag: int) -> Any:
    """Return the position after the set at ``position``, and its size; a negative position if it is refused."""
    count, size = 0, 0
    while True:
        if peek(data, position) != QUOTE or count == MAX_ELEMENTS:
            return _FAILED, 0
        start = position + 1
        position, own = _text_size(data, start, tag, c.digits)
        if position < 0 or (tag == N and not is_canonical(data, start, position - 1)):
            return _FAILED, 0
        size += own
        # All texts are canonical: equal values have equal texts.
        poke(c.marks, count, start << 32 | (position - 1 - start))
        count += 1
        byte = peek(data, position)
        position += 1
        if byte == COMMA:
            continue
        if byte != CLOSE_ARRAY or peek(data, position) != CLOSE_OBJECT:
            return _FAILED, 0
        if count > 1 and has_duplicates(data, 0, c.marks, 0, count, c.duplicate_slots):
            return _FAILED, 0
        return position + 1, size
