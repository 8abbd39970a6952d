"""Printing of the rows of a batch as items, by the steps of a schema's program.

A row that breaks a rule has no output: the loop records the rule, and Python explains it. The end of the output is not
checked: the space for all rows was computed before.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.capacity import CONTAINER_BYTES
from ddbio.items.kernel.base64 import encode_base64
from ddbio.items.kernel.encode.codes import (
    BAD,
    BINARY,
    BOOLEAN,
    DEEP,
    DUPLICATE,
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
    UNSIGNED,
    VALUE,
    WIDE,
)
from ddbio.items.kernel.encode.program import Tables
from ddbio.items.kernel.jit import boolean, inner, int64, loop, uint8
from ddbio.items.kernel.memory import (
    copy32,
    copy_bytes,
    load64,
    lowest_bit,
    out_of_line,
    peek,
    pointers,
    poke,
    special32,
)
from ddbio.items.kernel.number import canonicalise_number, print_decimal128, print_integer
from ddbio.items.kernel.text import hash_text

if TYPE_CHECKING:
    import numpy.typing as npt

_STEP = 32
_BACKSLASH, _LETTER_U, _ZERO = ord("\\"), ord("u"), ord("0")
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_LETTERS = np.zeros(256, np.uint8)
for _character, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _LETTERS[_character] = _letter
LONGEST_ESCAPE = 6

_FEW = 12
_WORD_BYTES, _WORD_BITS = 8, 64
_BYTE = np.uint64(0xFF)
_LENGTH_MASK = 0xFFFFFFFF


@inner
def print_text(out: Any, at: int, data: Any, position: int, length: int) -> Any:
    """Print a text as the content of a JSON string; return the position after it."""
    stop = position + length
    while position < stop:
        copy32(out, at, data, position)
        clean = special32(data, position)
        step = min(_STEP, stop - position)
        if clean >= step:
            at += step
            position += step
        else:
            at = _print_escape(out, at + clean, peek(data, position + clean))
            position += clean + 1
    return at


@inner
def _print_escape(out: Any, at: int, byte: int) -> Any:
    out_of_line()
    poke(out, at, _BACKSLASH)
    letter = np.int64(_LETTERS[byte])
    if letter:
        poke(out, at + 1, letter)
        return at + 2
    poke(out, at + 1, _LETTER_U)
    poke(out, at + 2, _ZERO)
    poke(out, at + 3, _ZERO)
    poke(out, at + 4, _HEXADECIMAL[byte >> 4])
    poke(out, at + 5, _HEXADECIMAL[byte & 15])
    return at + LONGEST_ESCAPE


@inner
def _equal(data: Any, one: int, other: int, length: int) -> Any:
    while length > 0:
        difference = load64(data, one) ^ load64(data, other)
        if length < _WORD_BYTES:
            difference <<= np.uint64(_WORD_BITS - 8 * length)
        if difference != 0:
            return False
        one += _WORD_BYTES
        other += _WORD_BYTES
        length -= _WORD_BYTES
    return True


@inner
def has_duplicates(data: Any, start: int, spans: Any, position: int, count: int, slots: Any) -> Any:
    """Return whether two spans, each a position after ``start`` and a length, have the same bytes.

    The length of ``slots`` is a power of two, and at least twice the number of spans.
    """
    if count > _FEW:
        return _has_duplicates_among_many(data, start, spans, position, count, slots)
    for index in range(1, count):
        one = peek(spans, position + index)
        for earlier in range(index):
            other = peek(spans, position + earlier)
            if not (one ^ other) & _LENGTH_MASK and _equal(
                data, start + (one >> 32), start + (other >> 32), one & _LENGTH_MASK
            ):
                return True
    return False


@inner
def _has_duplicates_among_many(data: Any, start: int, spans: Any, position: int, count: int, slots: Any) -> Any:
    out_of_line()
    size = 2
    while size < 2 * count:
        size *= 2
    for empty_slot in range(size):
        poke(slots, empty_slot, -1)
    for index in range(count):
        one = peek(spans, position + index)
        length = one & _LENGTH_MASK
        slot = np.int64(hash_text(data, start + (one >> 32), length)) & (size - 1)
        while peek(slots, slot) >= 0:
            other = peek(slots, slot)
            if not (one ^ other) & _LENGTH_MASK and _equal(data, start + (one >> 32), start + (other >> 32), length):
                return True
            slot = (slot + 1) & (size - 1)
        poke(slots, slot, one)
    return False


_OPEN, _CLOSE, _COMMA, _QUOTE, _COLON = ord("{"), ord("}"), ord(","), ord('"'), ord(":")


class _Out(NamedTuple):
    text: npt.NDArray[np.uint8]


class Work(NamedTuple):
    """Input and output arrays of one run of the loop."""

    data: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint8]
    index: npt.NDArray[np.int64]  # type: ignore[assignment] # not the method of tuples
    first: npt.NDArray[np.int64]
    limit: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    refusals: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    present: npt.NDArray[np.int64]
    """The steps of the columns that each row has, if those are few; the list of a row ends at its ``stops``."""


@loop(int64[:], int64[:], uint8[:], int64, int64[:], int64[:])
def list_present(positions: Any, columns: Any, states: Any, n_rows: int, stops: Any, present: Any) -> Any:
    """List the columns of each row in ``present``; the list of a row ends at its ``stops``.

    Parameters
    ----------
    positions
        The positions of the states of each column. ``ABSENT`` is zero.
    present
        Space for all columns of all rows. If it is empty, they are only counted, which must be done first.
    """
    size = len(present)
    for number in range(len(positions)):
        start, column = positions[number], columns[number]
        for row in range(0, n_rows, _WORD_BYTES):
            word = load64(states, start + row)
            if n_rows - row < _WORD_BYTES:
                word &= (np.uint64(1) << np.uint64(8 * (n_rows - row))) - np.uint64(1)
            while word != 0:
                byte = lowest_bit(word) & ~7
                word &= ~(_BYTE << np.uint64(byte))
                entry = row + (byte >> 3)
                if size > 0:
                    poke(present, peek(stops, entry), column)
                poke(stops, entry, peek(stops, entry) + 1)
    if size > 0:
        return size
    total = 0
    for row in range(n_rows):
        count = stops[row]
        stops[row] = total
        total += count
    return total


@loop(Tables, Work, uint8[:], int64, boolean)
def print_rows(tables: Any, work: Any, out: Any, n_rows: int, is_sparse: bool) -> Any:  # noqa: FBT001 - compiled code
    """Print the rows; fill the ends and sizes of items and the refusals; return the number of refused rows.

    Parameters
    ----------
    is_sparse
        Whether ``work`` lists the columns that each row has.
    """
    return _print_rows(pointers(tables), pointers(work), pointers(_Out(out)).text, n_rows, is_sparse)


@inner
def _print_rows(t: Any, w: Any, out: Any, n_rows: int, is_sparse: bool) -> Any:  # noqa: FBT001 - compiled code
    frame_place, frame_length, end_place, end_length = t.frame[0], t.frame[1], t.frame[2], t.frame[3]
    all_keys = t.frame[4]
    at, n_refused = 0, 0
    for row in range(n_rows):
        start = at
        at = copy_bytes(out, at, t.text, frame_place, frame_length)
        poke(out, at, _OPEN)
        first, stop = -1, -1
        if is_sparse:
            first, stop = (peek(w.stops, row - 1) if row > 0 else 0), peek(w.stops, row)
        at, size, keys, rule, node, entry = _print_row(t, w, out, at + 1, row, first, stop)
        if rule == FINE:
            if peek(out, at - 1) == _COMMA:
                at -= 1
            poke(out, at, _CLOSE)
            at = copy_bytes(out, at + 1, t.text, end_place, end_length)
            if keys & all_keys != all_keys:
                # The lowest missing key.
                rule, node, entry = NO_KEY, -1, 1 if not keys & 1 and all_keys & 1 else 2
            elif size > MAX_ITEM_BYTES:
                rule, node, entry = LARGE, -1, size
        if rule != FINE:
            at, size = start, 0
            refusal = n_refused * REFUSAL_WIDTH
            poke(w.refusals, refusal, row)
            poke(w.refusals, refusal + 1, rule)
            poke(w.refusals, refusal + 2, node)
            poke(w.refusals, refusal + 3, entry)
            n_refused += 1
        poke(w.ends, row, at)
        poke(w.sizes, row, size)
    return n_refused


@inner
def _print_row(t: Any, w: Any, out: Any, at: int, row: int, listed: int, n_listed: int) -> Any:
    """Print the members of one row; return the position after them, size, keys, and the reason of a refusal.

    The columns of the row are listed from ``listed`` on, unless that is -1.
    """
    size, keys, step, mark, column_stop = 0, 0, 0, 0, -1
    w.index[0] = row
    if listed >= 0:
        step = column_stop = 0
        listed -= 1
    while True:
        if step == column_stop:
            listed += 1
            if listed == n_listed:
                return at, size, keys, FINE, 0, 0
            step = peek(w.present, listed)
            column_stop = t.jump[step]
        kind, node = t.step[step], t.step_node[step]
        if kind == END:
            return at, size, keys, FINE, 0, 0
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
                if count > 1 and has_duplicates(out, mark, w.marks, 0, count, w.slots):
                    return at, size, keys, DUPLICATE, node, w.index[space]
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
                return at, size, keys, NAME, node, entry
            poke(out, at, _QUOTE)
            at = print_text(out, at + 1, w.data, span >> 32, length)
            poke(out, at, _QUOTE)
            poke(out, at + 1, _COLON)
            at += 2
            size += length
            step += 1
            continue
        state = peek(w.states, t.states[node] + entry)
        if state != VALUE:
            if state == BAD:
                return at, size, keys, PREPARED, node, entry
            if state == NULL:
                if t.in_set[node]:
                    return at, size, keys, NULL_IN_SET, node, entry
                at = copy_bytes(out, at, t.text, t.null[node], t.null_length[node])
                size += t.fixed_size[node] + 1
            step = t.jump[step]
            continue
        before = at
        at = copy_bytes(out, at, t.text, t.head[node], t.head_length[node])
        size += t.fixed_size[node]
        if kind >= STRUCT:
            size += CONTAINER_BYTES if not t.is_set[node] else 0
            if t.depth[node] >= MAX_DEPTH:
                return at, size, keys, DEEP, node, entry
            if kind != STRUCT:
                position = t.words[node] + entry
                first, stop = peek(w.words, position), peek(w.words, position + 1)
                if first == stop:
                    if t.is_set[node]:
                        return at, size, keys, EMPTY_SET, node, entry
                    copy32(out, at, t.text, t.tail[node])
                    at += t.tail_length[node]
                    step = t.jump[step]
                    continue
                inside = t.inner_space[node]
                w.index[inside], w.first[inside], w.limit[inside] = first, first, stop
                mark = at
                if kind == MAP and stop - first > 1:
                    names = t.words[t.key_node[node]] + first
                    if has_duplicates(w.data, 0, w.words, names, stop - first, w.slots):
                        return at, size, keys, DUPLICATE, node, entry
            step += 1
            continue
        content = at
        if kind in (TEXT, BINARY):
            span = peek(w.words, t.words[node] + entry)
            position, length = span >> 32, span & _LENGTH_MASK
            size += length
            if t.key[node]:
                if length == 0:
                    return at, size, keys, EMPTY_KEY, node, entry
                if length > t.longest[node]:
                    return at, size, keys, LONG_KEY, node, entry
            if kind == TEXT:
                at = print_text(out, at, w.data, position, length)
            else:
                at = encode_base64(out, at, w.data, position, length)
        elif kind == INTEGER:
            word = peek(w.words, t.words[node] + entry)
            magnitude = np.uint64(0) - np.uint64(word) if word < 0 else np.uint64(word)
            at, own = print_integer(out, at, magnitude, word < 0, t.scale[node])
            size += own
        elif kind == WIDE:
            position = t.words[node] + 2 * entry
            at, own = print_decimal128(
                out, at, peek(w.words, position), peek(w.words, position + 1), t.scale[node], w.digits
            )
            size += own
        elif kind == UNSIGNED:
            at, own = print_integer(out, at, np.uint64(peek(w.words, t.words[node] + entry)), False, 0)  # noqa: FBT003
            size += own
        elif kind == NUMBER:
            span = peek(w.words, t.words[node] + entry)
            at, own = canonicalise_number(out, at, w.data, span >> 32, span & _LENGTH_MASK, w.digits)
            if at < 0:
                return content, size, keys, NOT_A_NUMBER, node, entry
            size += own
        elif kind == BOOLEAN:
            truth = peek(w.data, t.words[node] + entry)
            copy32(out, at, t.text, 8 - 8 * truth)
            at += 5 - truth
            size += 1
        elif kind in (RAW, MEMBERS):
            position = t.words[node] + RAW_WORDS * entry
            span = peek(w.words, position)
            at = copy_bytes(out, at, w.data, span >> 32, span & _LENGTH_MASK)
            size += peek(w.words, position + 1)
            keys |= peek(w.words, position + 2)
        keys |= t.key[node]
        if t.in_set[node]:
            # Texts are canonical: equal elements have equal texts.
            count = w.index[space] - w.first[space]
            poke(w.marks, count, (before - mark) << 32 | (at - before))
        copy32(out, at, t.text, t.tail[node])
        at += t.tail_length[node]
        step += 1
