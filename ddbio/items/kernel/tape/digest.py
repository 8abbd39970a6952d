"""Hashes of the items of a tape, for any shape of items."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ddbio.items.digest import ELEMENT_KEY, INDEX, START
from ddbio.items.digest import ITEM as ITEM_CODE
from ddbio.items.digest import NAME as NAME_CODE
from ddbio.items.kernel import memory
from ddbio.items.kernel.base64 import decode_base64, decoded_length
from ddbio.items.kernel.codes import BOOL, MAX_SKIPPED_DEPTH, SS, B, L, N, S
from ddbio.items.kernel.hash.mixing import BLOCK_BYTES, absorb, absorb_bytes, finish, last_of, text_number, word_number
from ddbio.items.kernel.jit import boolean, inner, int64, loop, uint8, uint64
from ddbio.items.kernel.memory import PAD, peek, pointers, poke
from ddbio.items.kernel.tape.paths import KEY_LEFT, KEY_RIGHT, NAME, NAME_BYTES, NODE_BITS, NODE_WIDTH, Walk
from ddbio.items.kernel.tape.walk import CLOSE, ENCODING_BITS, IN_SET, ITEM, LENGTH_MASK, NUMBER_TEXT, TAG_BITS
from ddbio.items.kernel.tape.walk import NAME as NAME_TAG

if TYPE_CHECKING:
    import numpy.typing as npt

    from ddbio.items.kernel.tape.walker import Walker

    _Words: TypeAlias = npt.NDArray[np.uint64]
    _Rows: TypeAlias = npt.NDArray[np.int64]

_LANES = 6
"""The words of a nesting level: its key, the sum of its values' hashes, its type and the number of its elements."""

_LEFT_START, _RIGHT_START = (np.uint64(word) for word in START)
_LEFT_ELEMENT, _RIGHT_ELEMENT = (np.uint64(word) for word in ELEMENT_KEY)
_ZERO = np.uint64(0)
_SCRATCH_BYTES = 4096
# The source of the key of the next value.
_BY_NODE, _BY_NAME, _BY_KEY = range(3)


class Hasher:
    """Hasher of the items on the tape of a walker, with reused arrays."""

    def __init__(self) -> None:
        # The deepest level may contain a set, or an empty list or map, for which the walk needs no level.
        self._lanes = memory.allocate_words(_LANES * (MAX_SKIPPED_DEPTH + 2)).view(np.uint64)
        self._scratch = memory.allocate(_SCRATCH_BYTES)

    def total(self, walker: Walker) -> int:
        """Return the sum of the items' hashes."""
        while True:
            high, low, n_bytes = hash_items(walker.walk, walker.n_words, self._lanes, self._scratch)
            if not n_bytes:
                return int(high) << 64 | int(low)
            self._scratch = memory.allocate(2 * int(n_bytes))

    def add_sums(self, walker: Walker, rows: _Rows, keys: _Words, sums: _Words) -> None:
        """Add the sum of the hashes of each item's attributes to the two words of its row.

        Parameters
        ----------
        rows
            The row of each item.
        keys
            Two words for each row, or two for all: the key of the first attribute, instead of that of its name. If
            empty, each attribute has the key of its name.
        """
        position, item, n_bytes = 0, 0, 1
        while n_bytes:
            arrays = Rows(rows, keys, sums)
            position, item, n_bytes = hash_rows(
                walker.walk, position, walker.n_words, item, arrays, self._lanes, self._scratch
            )
            if n_bytes:
                self._scratch = memory.allocate(2 * int(n_bytes))


@loop(Walk, int64, uint64[:], uint8[:])
def hash_items(walk: Any, n_words: int, lanes: Any, scratch: Any) -> Any:
    """Return the two words, high first, of the sum of the items' hashes, and the size that ``scratch`` needs, or 0."""
    _, _, n_bytes, high, low = _hash_items(pointers(walk), (0, n_words, 0), None, None, None, lanes, scratch)
    return high, low, n_bytes


class Rows(NamedTuple):
    """Rows of items, with their keys and sums."""

    rows: npt.NDArray[np.int64]
    """The row of each item."""
    keys: npt.NDArray[np.uint64]
    """Two words for each row, two for all, or none: the key of the first attribute, instead of that of its name."""
    sums: npt.NDArray[np.uint64]
    """Two words for each row."""


@loop(Walk, int64, int64, int64, Rows, uint64[:], uint8[:])
def hash_rows(walk: Any, begin: int, end: int, item: int, rows: Any, lanes: Any, scratch: Any) -> Any:
    """Add the sums of the items between two words of the tape; ``item`` is the number of the first one.

    If ``scratch`` is too small, return the word and the item at which the next call continues, and the size needed.
    """
    span = begin, end, item
    position, item, n_bytes, _, _ = _hash_items(pointers(walk), span, rows.rows, rows.keys, rows.sums, lanes, scratch)
    return position, item, n_bytes


@inner
def _hash_items(walk: Any, span: Any, rows: Any, keys: Any, sums: Any, lanes: Any, scratch: Any) -> Any:
    """Hash the items by pointers; the branches for rows are compiled only if they are not None."""
    data, tape, nodes = walk.data, walk.tape, walk.nodes
    begin, stop, item = span
    high, low = _ZERO, _ZERO
    row, depth, named, name_word = 0, 0, _BY_NODE, 0
    for at in range(begin, stop, 2):
        head, word = peek(tape, at), peek(tape, at + 1)
        tag = head & TAG_BITS
        if tag == ITEM:
            lanes[2], lanes[3] = _ZERO, _ZERO
            if rows is not None:
                begin, row = at, rows[item]
                named = _BY_KEY if len(keys) > 0 else _BY_NODE
            continue
        if tag == CLOSE:
            left, right = lanes[_LANES * depth + 2], lanes[_LANES * depth + 3]
            if depth == 0:
                if rows is None:
                    left, right = absorb(_LEFT_START, _RIGHT_START, left, right)
                    left, right = finish(left, right, np.uint64(ITEM_CODE))
                    low += right
                    high += left + np.uint64(low < right)
                else:
                    sums[2 * row] += left
                    sums[2 * row + 1] += right
                    item += 1
                continue
            base = _LANES * depth
            left, right = absorb(lanes[base], lanes[base + 1], left, right)
            left, right = finish(left, right, lanes[base + 4] + np.uint64(1))
            depth -= 1
        elif tag == NAME_TAG:
            named, name_word = _BY_NAME, word
            continue
        elif tag > ITEM:
            continue
        else:
            # The key of the value is its name, its index in a list, or the common key of all elements of sets.
            base = _LANES * depth
            if tag >= IN_SET:
                tag -= IN_SET
                left, right = _LEFT_ELEMENT, _RIGHT_ELEMENT
            elif depth > 0 and lanes[base + 5] > 0:
                left, right = absorb(_LEFT_START, _RIGHT_START, lanes[base + 5] - np.uint64(1), _ZERO)
                left, right = finish(left, right, np.uint64(INDEX))
                lanes[base + 5] += np.uint64(1)
            elif named == _BY_NAME:
                named = _BY_NODE
                left, right = _hash_name(data, name_word >> 32, name_word & LENGTH_MASK)
            elif named == _BY_KEY:
                named = _BY_NODE
                left, right = _ZERO, _ZERO
                if keys is not None:
                    key = 2 * row if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
                    left, right = keys[key], keys[key + 1]
            else:
                record = (head >> NODE_BITS) * NODE_WIDTH
                left, right = np.uint64(peek(nodes, record + KEY_LEFT)), np.uint64(peek(nodes, record + KEY_RIGHT))
                if left == _ZERO:
                    left, right = _hash_name(walk.texts, peek(nodes, record + NAME), peek(nodes, record + NAME_BYTES))
                    poke(nodes, record + KEY_LEFT, np.int64(left))
                    poke(nodes, record + KEY_RIGHT, np.int64(right))
            if tag >= SS:
                depth += 1
                base += _LANES
                lanes[base], lanes[base + 1], lanes[base + 2], lanes[base + 3] = left, right, _ZERO, _ZERO
                lanes[base + 4] = np.uint64(tag)
                # The index of an element in a list, plus one.
                lanes[base + 5] = np.uint64(tag == L)
                continue
            if tag == S:
                start, length = word >> 32, word & LENGTH_MASK
                left, right = absorb_bytes(left, right, data, start, start + length, start + length + BLOCK_BYTES)
                left, right = finish(left, right, last_of(length, S + 1))
            elif tag == N:
                encoding = (head >> ENCODING_BITS) & 0xFF
                if encoding in (0, NUMBER_TEXT):
                    start = word >> 32
                    first, second, last = text_number(data, start, start + (word & LENGTH_MASK), walk.digits)
                else:
                    magnitude = np.uint64(-word if word < 0 else word)
                    first, second, last = word_number(magnitude, np.int64(word < 0), 1 - encoding)
                left, right = absorb(left, right, first, second)
                left, right = finish(left, right, last)
            elif tag == B:
                start, length = word >> 32, word & LENGTH_MASK
                size = decoded_length(data, start, length)
                if size + PAD > len(scratch):
                    return begin, item, size + PAD, high, low
                decode_base64(scratch, 0, data, start, size)
                left, right = absorb_bytes(left, right, scratch, 0, size, size + BLOCK_BYTES)
                left, right = finish(left, right, last_of(size, B + 1))
            else:
                left, right = finish(left, right, last_of(word if tag == BOOL else 0, tag + 1))
        lanes[_LANES * depth + 2] += left
        lanes[_LANES * depth + 3] += right
    return stop, item, 0, high, low


@loop(Walk, int64, int64[:], int64[:], boolean[:], int64[:])
def find_rows(walk: Any, n_words: int, rows: Any, columns: Any, present: Any, doubled: Any) -> Any:
    """Put rows whose item has an attribute that also has a value in its column into ``doubled``; return their number.

    Parameters
    ----------
    columns
        The position in ``present`` of the column of each node, or -1.
    present
        Whether each row of the first column has a value, then of the next column, and so on.
    """
    return _find_rows(pointers(walk).tape, n_words, rows, columns, present, doubled)


@inner
def _find_rows(tape: Any, n_words: int, rows: Any, columns: Any, present: Any, doubled: Any) -> Any:
    item, count = -1, 0
    for at in range(0, n_words, 2):
        head = peek(tape, at)
        item += head & TAG_BITS == ITEM
        column = columns[head >> NODE_BITS]
        if column >= 0 and present[column + rows[item]] and (count == 0 or doubled[count - 1] != rows[item]):
            doubled[count] = rows[item]
            count += 1
    return count


@inner
def _hash_name(data: Any, start: int, length: int) -> Any:
    left, right = absorb_bytes(_LEFT_START, _RIGHT_START, data, start, start + length, start + length + BLOCK_BYTES)
    return finish(left, right, last_of(length, NAME_CODE))
