"""Reader of the column chunk metadata in the footer of a Parquet file.

A footer that repeats a member, or has one with another type than the format specifies, is refused: other readers may
interpret it in another way.

References
----------
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.errors import DecodeError
from ddbio.items.kernel.jit import int8, int64, loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND, UNCOMPRESSED, COMPRESSED, DICTIONARY, BOUNDS, TEXT_BYTES, REPETITIONS, DEFINITIONS, ENCRYPTED = (
    *(0, 1, 2, 3),
    *(4, 8, 9, 10, 11),
)
"""Indices of the facts of a column chunk: numbers, lengths of four bounds and two lists, presence of two members."""

FACTS = 12
"""The number of facts of a column chunk; a fact that the footer lacks is -1."""

# The maximum depth of nested structs and lists, and the numbers on the stack for each level.
_LEVELS, _LEVEL = 16, 3
# A column chunk has at least the type of its values, their sizes and the offset of a page.
_MIN_CHUNK_BYTES = 8
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12
_DOUBLE_BYTES, _LONG_LIST, _MAX_NUMBER, _CONTINUATION = 8, 15, (1 << 15) - 1, 128
_NUMBER_BITS, _MAX_BITS = 56, 63
# The kinds of structs.
_OTHER, _FILE, _GROUP, _CHUNK, _META, _STATISTICS, _SIZES = range(7)
_MEMBERS, _WITHIN_SHIFT, _FACT_SHIFT, _ELEMENT_SHIFT, _KIND_MASK = 32, 8, 12, 4, 15


def _table() -> Any:
    """Return for each member of each struct: its type, the type of its elements, the kind of its struct, its fact."""
    table = np.zeros((_SIZES + 1, _MEMBERS), np.int64)

    def add(struct: int, number: int, kind: int, element: int = 0, within: int = _OTHER, fact: int = -1) -> None:
        table[struct, number] = kind | element << _ELEMENT_SHIFT | within << _WITHIN_SHIFT | fact + 1 << _FACT_SHIFT

    add(_FILE, 2, _LIST, _STRUCT)
    add(_FILE, 4, _LIST, _STRUCT, _GROUP)
    add(_FILE, 5, _LIST, _STRUCT)
    add(_FILE, 7, _LIST, _STRUCT)
    add(_GROUP, 1, _LIST, _STRUCT, _CHUNK)
    add(_GROUP, 4, _LIST, _STRUCT)
    add(_CHUNK, 3, _STRUCT, within=_META)
    add(_CHUNK, 8, _STRUCT, fact=ENCRYPTED)
    add(_META, 1, _I32, fact=KIND)
    add(_META, 2, _LIST, _I32)
    add(_META, 3, _LIST, _BINARY)
    add(_META, 6, _I64, fact=UNCOMPRESSED)
    add(_META, 7, _I64, fact=COMPRESSED)
    add(_META, 8, _LIST, _STRUCT)
    add(_META, 11, _I64, fact=DICTIONARY)
    add(_META, 12, _STRUCT, within=_STATISTICS)
    add(_META, 13, _LIST, _STRUCT)
    add(_META, 16, _STRUCT, within=_SIZES)
    for index, number in enumerate((1, 2, 5, 6)):
        add(_STATISTICS, number, _BINARY, fact=BOUNDS + index)
    add(_SIZES, 1, _I64, fact=TEXT_BYTES)
    add(_SIZES, 2, _LIST, _I64, fact=REPETITIONS)
    add(_SIZES, 3, _LIST, _I64, fact=DEFINITIONS)
    return table.ravel()


_TABLE = _table()


def read_column_chunks(footer: bytes, groups: int, leaves: int) -> NDArray[np.int64]:
    """Return the facts of each row group's column chunks.

    Raises
    ------
    DecodeError
        The footer is damaged.
    """
    count = _count(footer, groups, leaves)
    stack, facts = np.array(_FIRST_LEVELS), np.full(count * FACTS, -1, np.int64)
    n_chunks = _read_footer(np.frombuffer(footer, np.int8), _TABLE, leaves, stack, facts)
    return _check_facts(facts, n_chunks, groups, leaves)


def _count(footer: bytes, groups: int, leaves: int) -> int:
    if groups * leaves * _MIN_CHUNK_BYTES > len(footer):
        raise DecodeError(_DAMAGED)
    return groups * leaves


def _check_facts(facts: NDArray[np.int64], n_chunks: int, groups: int, leaves: int) -> NDArray[np.int64]:
    if n_chunks != groups * leaves:
        raise DecodeError(_DAMAGED)
    return facts.reshape(groups, leaves, FACTS)


_DAMAGED = "its footer is damaged: it does not follow the format"
_FIRST_LEVELS = [_FILE] + [0] * (_LEVELS * _LEVEL - 1)


@loop(int8[:], int64[:], int64, int64[:], int64[:])
def _read_footer(data: Any, members: Any, leaves: int, stack: Any, facts: Any) -> Any:
    """Write the facts of each column chunk; return the number of chunks, or -1 if the footer is damaged.

    Parameters
    ----------
    data
        The footer, as signed bytes or as an object of ``bytes``.
    members
        ``_TABLE``.
    leaves
        The number of column chunks in a row group.
    stack
        ``_LEVELS`` times ``_LEVEL`` numbers; the first are 1, 0, 0. A level is either a struct, followed by the number
        of its last member, or a list: the complement of the type of its elements, the number of remaining elements, and
        the kind of struct in it.
    facts
        ``FACTS`` for each possible column chunk, all -1.
    """
    position, stop, top, chunk = 0, len(data), 0, -1
    while True:
        element, within, fact = _I32, _OTHER, 0
        if stack[top] >= 0:
            if position >= stop:
                return -1
            head = data[position] & 255
            position += 1
            if head == 0:
                if top == 0:
                    return chunk + 1
                top -= _LEVEL
                continue
            kind, number = head & 15, stack[top + 1] + (head >> 4)
            if head < 16:  # noqa: PLR2004 - the number follows
                number, shift = 0, 0
                while True:
                    if position >= stop or shift > _LONG_LIST:
                        return -1
                    byte = data[position] & 255
                    position += 1
                    number |= (byte & 127) << shift
                    shift += 7
                    if byte < _CONTINUATION:
                        break
                if number & 1:
                    return -1
                number >>= 1
            if number <= stack[top + 1] or number > _MAX_NUMBER:
                return -1
            stack[top + 1] = number
            member = members[stack[top] * _MEMBERS + number] if number < _MEMBERS else 0
            if member and member & _KIND_MASK != kind:
                return -1
            if stack[top] != _OTHER:
                # All readers skip members that the format does not define. The other structs of the format have only
                # lists of 32-bit numbers.
                element = member >> _ELEMENT_SHIFT & _KIND_MASK
            within, fact = member >> _WITHIN_SHIFT & _KIND_MASK, member >> _FACT_SHIFT
            if kind in (_TRUE, _FALSE):
                continue
        else:
            if stack[top + 1] == 0:
                top -= _LEVEL
                continue
            stack[top + 1] -= 1
            kind, within = ~stack[top], stack[top + 2]
        value, kind_within = 0, 0
        if kind in (_TRUE, _FALSE, _BYTE):
            position += 1
        elif kind == _DOUBLE:
            position += _DOUBLE_BYTES
        elif kind in (_LIST, _SET):
            if position >= stop:
                return -1
            head = data[position] & 255
            position += 1
            kind_within, value = head & 15, head >> 4
        elif kind not in (_I16, _I32, _I64, _BINARY, _STRUCT):
            return -1
        if kind in (_I16, _I32, _I64, _BINARY) or value == _LONG_LIST:
            value, shift = 0, 0
            while True:
                if position >= stop or shift > _MAX_BITS:
                    return -1
                byte = data[position] & 255
                position += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < _CONTINUATION:
                    break
            if shift > _NUMBER_BITS + 7:
                # A 64-bit number; none of the numbers that are read is that large.
                if fact or kind not in (_I16, _I32, _I64):
                    return -1
            elif kind in (_I16, _I32, _I64):
                value = max(0, (value >> 1) ^ -(value & 1))
        if kind in (_BINARY, _LIST, _SET) and value > stop - position:
            return -1
        if fact:
            if chunk < 0:
                return -1
            facts[chunk * FACTS + fact - 1] = value
        if kind == _BINARY:
            position += value
        elif kind in (_STRUCT, _LIST, _SET):
            top += _LEVEL
            if top >= len(stack):
                return -1
            if kind == _STRUCT:
                stack[top], stack[top + 1] = within, 0
                if within == _CHUNK:
                    chunk += 1
            else:
                if value and element and kind_within != element:
                    return -1
                if within == _CHUNK and (value != leaves or (chunk + 1 + value) * FACTS > len(facts)):
                    return -1
                stack[top], stack[top + 1], stack[top + 2] = ~kind_within, value, within
        if position > stop:
            return -1
