"""Filling of Arrow buffers from a tape: plan the buffers, distribute the values to columns, and fill each column.

A column has the number of its node. The cost is proportional to the number of values and the bytes of the buffers.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.base64 import decode_whole_base64
from ddbio.items.kernel.codes import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    JSON,
    LIST,
    MAP,
    NOTHING,
    NULL,
    NUMBER_TEXT,
    SET,
    SS,
    STRUCT,
    TAGS,
    TEXT,
    N,
)
from ddbio.items.kernel.jit import boolean, inlined, inner, int64, loop
from ddbio.items.kernel.memory import PAD, copy32, copy_bytes, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import (
    MINUS,
    parse_number,
    power_of_ten,
    print_integer,
    print_number,
    times_power,
    unscaled,
    unscaled_text,
)
from ddbio.items.kernel.tape.paths import (
    BYTES,
    COUNTS,
    HAS_OTHERS,
    IS_WIDE,
    KEEPS_TEXT,
    KEY_BYTES,
    NODE_BITS,
    NODE_WIDTH,
    SCALE,
    WHOLE,
)
from ddbio.items.kernel.tape.walk import (
    CLOSE,
    ENCODING_BITS,
    IN_SET,
    ITEM,
    LENGTH_MASK,
    NAME,
    SKIP,
    TAG_BITS,
)
from ddbio.items.kernel.tape.walk import NUMBER_TEXT as IS_CANONICAL

# The fields of a column; those that each value needs are first.
NEXT, N_ELEMENTS, CHILD, KEY, KIND, N_FILLED, TARGET = range(7)
LENGTH, NULLS, BITS, BITS_BYTES, FIRST, FIRST_BYTES, SECOND, SECOND_BYTES = range(7, 15)
PARENT, TAG, PRECISION, SCALE_OF, MIN_MAGNITUDE, MAX_MAGNITUDE, SAFE_DIGITS, IS_SHORT = range(15, 23)
ATTRIBUTE, IS_DOUBTFUL, MERGED_NULLS = range(23, 26)
COLUMN_WIDTH: Final = 32

PENDING_WORDS: Final = 128
"""The most words that are pending for a column before they are filled in: two for each value."""

DOUBTFUL: Final = -1
"""The result of planning instead of a number of bytes: a value may not fit its column."""

FRAME_HOLDER, FRAME_CHILD, FRAME_INDEX = range(3)
FRAME_WIDTH: Final = 4
_MAX_POWER, _MAX_ENCODING = 18, 19
_ENTRY_BITS, _ENCODING_MASK = 8, 0xFF
_LOW, _HALF, _TEN = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(10)


class Fill(NamedTuple):
    """Input and output arrays of filling; ``offsets`` and ``words`` share the memory of ``output``."""

    data: npt.NDArray[np.uint8]
    tape: npt.NDArray[np.int64]
    pending: npt.NDArray[np.int64]
    """The pending values of each column: a word of the tape, and the entry << 8 | the encoding of a number."""
    column_of: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    pairs: npt.NDArray[np.uint16]
    output: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.int64]


@loop(int64[:])
def clear_counts(nodes: Any) -> None:
    """Clear the counts of the nodes, and the digits of their numbers."""
    for record in range(0, len(nodes), NODE_WIDTH):
        for field in range(record + COUNTS, record + IS_WIDE + 1):
            nodes[field] = 0
        nodes[record + HAS_OTHERS] = 0
        # If numbers keep their text, every number is treated as the longest.
        nodes[record + WHOLE] = -nodes[record + KEEPS_TEXT]


@loop(int64[:], int64[:], int64, boolean, boolean)
def plan_columns(columns: Any, nodes: Any, n_rows: int, keep_nulls: bool, may_doubt: bool) -> Any:  # noqa: FBT001
    """Plan the buffers of all columns; return their bytes, or ``DOUBTFUL`` if ``may_doubt`` and a value may not fit."""
    n_columns = len(columns) // COLUMN_WIDTH
    if may_doubt and _has_doubts(columns, nodes, n_columns, keep_nulls):
        return DOUBTFUL
    total = 0
    for column in range(n_columns):
        columns[column * COLUMN_WIDTH + MERGED_NULLS] = 0
    for column in range(1, n_columns):
        c, record = column * COLUMN_WIDTH, column * NODE_WIDTH
        kind, parent = columns[c + KIND], columns[c + PARENT]
        parent_kind = columns[parent * COLUMN_WIDTH + KIND]
        n_values = _count_all(nodes, record)
        n_nulls, n_bytes = nodes[record + COUNTS + NULL], nodes[record + BYTES]
        if parent_kind == STRUCT:
            length = n_rows if parent == 0 else columns[parent * COLUMN_WIDTH + LENGTH]
            # The first column has the sum.
            columns[columns[c + ATTRIBUTE] + MERGED_NULLS] += n_nulls
            columns[MERGED_NULLS] += n_nulls
            n_nulls += length - n_values
        elif parent_kind == SET:
            length, n_nulls = _count_elements(nodes, parent * NODE_WIDTH), 0
            n_bytes = nodes[parent * NODE_WIDTH + BYTES]
        elif parent_kind == LIST:
            length = n_values
        else:
            value = columns[parent * COLUMN_WIDTH + CHILD] // COLUMN_WIDTH * NODE_WIDTH
            length = _count_all(nodes, value)
            if c == columns[parent * COLUMN_WIDTH + KEY]:
                n_nulls, n_bytes = 0, nodes[value + KEY_BYTES]
        if kind == DECIMAL:
            digits = nodes[(parent * NODE_WIDTH if parent_kind == SET else record) + WHOLE] + columns[c + SCALE_OF]
            columns[c + IS_SHORT] = digits <= _MAX_POWER
        if kind == NUMBER_TEXT:
            n_bytes += _MAX_ENCODING * (nodes[record + COUNTS + N] if parent_kind != SET else length)
        bits_bytes = (length + 7) // 8 if n_nulls > 0 else 0
        first_bytes = _first_bytes(kind, length)
        if kind <= MAP or kind in (INTEGER, DECIMAL, BOOLEAN, NOTHING):
            n_bytes = 0
        columns[c + LENGTH], columns[c + NULLS] = length, n_nulls
        columns[c + NEXT], columns[c + N_ELEMENTS] = column * PENDING_WORDS, 0
        columns[c + N_FILLED], columns[c + TARGET] = 0, 0
        columns[c + BITS_BYTES], columns[c + FIRST_BYTES], columns[c + SECOND_BYTES] = bits_bytes, first_bytes, n_bytes
        columns[c + BITS] = total if bits_bytes > 0 else -1
        total += _padded_bytes(bits_bytes)
        columns[c + FIRST] = total
        total += _padded_bytes(first_bytes)
        columns[c + SECOND] = total
        total += _padded_bytes(n_bytes)
    return total


@inner
def _has_doubts(columns: Any, nodes: Any, n_columns: int, keep_nulls: bool) -> Any:  # noqa: FBT001
    """Mark the attributes with values that may not fit, by counts and digits; return whether there are any."""
    has_doubts = peek(nodes, HAS_OTHERS) != 0
    for column in range(n_columns):
        columns[column * COLUMN_WIDTH + IS_DOUBTFUL] = 0
    for column in range(1, n_columns):
        # A value without a column is not counted, but its struct is marked.
        has_others = columns[column * COLUMN_WIDTH + KIND] == STRUCT and peek(nodes, column * NODE_WIDTH + HAS_OTHERS)
        if has_others or _is_doubtful(columns, nodes, column, keep_nulls):
            columns[columns[column * COLUMN_WIDTH + ATTRIBUTE] + IS_DOUBTFUL] = 1
            has_doubts = True
    return has_doubts


@inner
def _is_doubtful(columns: Any, nodes: Any, column: int, keep_nulls: bool) -> Any:  # noqa: FBT001 - compiled code
    c, record = column * COLUMN_WIDTH, column * NODE_WIDTH
    kind, parent = columns[c + KIND], columns[c + PARENT] * COLUMN_WIDTH
    n_values, n_nulls = _count_all(nodes, record), nodes[record + COUNTS + NULL]
    if columns[parent + KIND] == SET:
        record = columns[c + PARENT] * NODE_WIDTH
        n_values = _count_elements(nodes, record)
    elif kind == JSON or (keep_nulls and n_nulls > 0):
        if n_values > 0:
            return True
    elif kind == NOTHING:
        if n_values > n_nulls:
            return True
    elif c != columns[parent + KEY] and n_values > n_nulls + nodes[record + COUNTS + columns[c + TAG]]:
        return True
    n_integer, scale = nodes[record + WHOLE], nodes[record + SCALE]
    if kind == INTEGER and n_values > n_nulls:
        if nodes[record + IS_WIDE] or scale > 0 or n_integer > columns[c + SAFE_DIGITS]:
            return True
    elif kind == DECIMAL:
        return n_integer > columns[c + PRECISION] - columns[c + SCALE_OF] or scale > columns[c + SCALE_OF]
    return kind == NUMBER_TEXT and columns[c + PRECISION] != 0 and n_values > n_nulls


@inner
def _count_all(nodes: Any, record: int) -> Any:
    total = 0
    for tag in range(len(TAGS)):
        total += peek(nodes, record + COUNTS + tag)
    return total


@inner
def _count_elements(nodes: Any, record: int) -> Any:
    first = record + COUNTS + IN_SET
    return peek(nodes, first) + peek(nodes, first + 1) + peek(nodes, first + 2)


@inner
def _first_bytes(kind: int, length: int) -> Any:
    if kind == INTEGER:
        return length * 8
    if kind == DECIMAL:
        return length * 16
    if kind == BOOLEAN:
        return (length + 7) // 8
    return 0 if kind == STRUCT else (length + 1) * 4


@inner
def _padded_bytes(n_bytes: int) -> Any:
    return 0 if n_bytes == 0 else (n_bytes + 2 * PAD - 1) // PAD * PAD


@loop(Fill, int64)
def fill_columns(fill: Any, n_words: int) -> None:
    """Fill the planned buffers."""
    f = pointers(fill)
    n_columns = len(fill.columns) // COLUMN_WIDTH
    for column in range(1, n_columns):
        _begin_column(f, column * COLUMN_WIDTH)
    _distribute(f, n_words)
    for column in range(1, n_columns):
        _fill_in(f, column * COLUMN_WIDTH)
        _end_column(f, column * COLUMN_WIDTH)


@inner
def _begin_column(f: Any, c: int) -> None:
    out_of_line()
    columns = f.columns
    kind, is_sparse = peek(columns, c + KIND), peek(columns, c + NULLS) > 0
    if is_sparse:
        _clear(f.output, peek(columns, c + BITS), peek(columns, c + BITS_BYTES))
    if kind == BOOLEAN or (is_sparse and kind in (INTEGER, DECIMAL)):
        _clear(f.output, peek(columns, c + FIRST), peek(columns, c + FIRST_BYTES))


@inner
def _end_column(f: Any, c: int) -> None:
    """Fill in the entries after the last value."""
    out_of_line()
    columns, offsets = f.columns, f.offsets
    kind, at = peek(columns, c + KIND), peek(columns, c + FIRST) >> 2
    if kind in (STRUCT, INTEGER, DECIMAL, BOOLEAN):
        return
    total = peek(columns, c + (TARGET if kind > MAP else N_ELEMENTS))
    for entry in range(peek(columns, c + N_FILLED), peek(columns, c + LENGTH) + 1):
        poke(offsets, at + entry, total)
    if kind > MAP:
        poke(columns, c + SECOND_BYTES, total)


@inlined
def _distribute(f: Any, n_words: int) -> None:
    """Append the values to the pending ones of their columns."""
    tape, columns = f.tape, f.columns
    # The holder is the column of the list or map that contains the values, or -1 for members of structs.
    at, index, depth, holder, child = 0, 0, 0, -1, 0
    while at < n_words:
        head, word = peek(tape, at), peek(tape, at + 1)
        at += 2
        tag = head & TAG_BITS
        if tag >= ITEM:
            if tag == CLOSE:
                if depth == 0:
                    index += 1
                    continue
                depth -= 1
                frame = depth * FRAME_WIDTH
                holder = peek(f.stack, frame + FRAME_HOLDER)
                child = peek(f.stack, frame + FRAME_CHILD)
                index = peek(f.stack, frame + FRAME_INDEX)
            elif tag == SKIP:
                at = word
            elif tag == NAME and holder >= 0:
                _append_pending(f, peek(columns, holder + KEY), word, peek(columns, holder + N_ELEMENTS) << _ENTRY_BITS)
            continue
        if holder < 0:
            c, entry = peek(f.column_of, head >> NODE_BITS), index
        else:
            c, entry = child, peek(columns, holder + N_ELEMENTS)
            poke(columns, holder + N_ELEMENTS, entry + 1)
        if tag == NULL:
            continue
        if SS <= tag < IN_SET:
            frame = depth * FRAME_WIDTH
            poke(f.stack, frame + FRAME_HOLDER, holder)
            poke(f.stack, frame + FRAME_CHILD, child)
            poke(f.stack, frame + FRAME_INDEX, index)
            depth += 1
            if peek(columns, c + KIND) == STRUCT:
                holder, index = -1, entry
            else:
                # The word of a list is the index of its first element.
                word = peek(columns, c + N_ELEMENTS)
                holder, child = c, peek(columns, c + CHILD)
        _append_pending(f, c, word, entry << _ENTRY_BITS | ((head >> ENCODING_BITS) & 0xFF))


@inlined
def _append_pending(f: Any, c: int, word: int, entry: int) -> None:
    position = peek(f.columns, c + NEXT)
    poke(f.pending, position, word)
    poke(f.pending, position + 1, entry)
    poke(f.columns, c + NEXT, position + 2)
    if (position + 2) & (PENDING_WORDS - 1) == 0:
        _fill_in(f, c)


@inner
def _fill_in(f: Any, c: int) -> None:
    """Fill in the pending values of a column."""
    out_of_line()
    begin, stop = c // COLUMN_WIDTH * PENDING_WORDS, peek(f.columns, c + NEXT)
    poke(f.columns, c + NEXT, begin)
    _fill_column(f, c, begin, stop)


@inner
def _fill_column(f: Any, c: int, begin: int, stop: int) -> None:
    """Fill the next entries of a column from its pending values."""
    pending, output, columns = f.pending, f.output, f.columns
    kind, first = peek(columns, c + KIND), peek(columns, c + FIRST)
    if peek(columns, c + NULLS) > 0:
        bits = peek(columns, c + BITS)
        for index in range(begin + 1, stop, 2):
            _set_bit(output, bits, peek(pending, index) >> _ENTRY_BITS)
    if kind == INTEGER:
        for index in range(begin, stop, 2):
            word, entry = peek(pending, index), peek(pending, index + 1)
            if entry & _ENCODING_MASK != 1:
                word = _any_integer(f, word)
            poke(f.words, (first >> 3) + (entry >> _ENTRY_BITS), word)
    elif kind == DECIMAL:
        _fill_decimals(f, c, begin, stop)
    elif kind == BOOLEAN:
        for index in range(begin, stop, 2):
            if peek(pending, index):
                _set_bit(output, first, peek(pending, index + 1) >> _ENTRY_BITS)
    elif kind in (TEXT, JSON):
        _fill_texts(f, c, begin, stop)
    elif kind <= MAP:
        if kind != STRUCT:
            entry, at = peek(columns, c + N_FILLED), first >> 2
            for index in range(begin, stop, 2):
                # A missing list ends at the beginning of the next one.
                while entry <= peek(pending, index + 1) >> _ENTRY_BITS:
                    poke(f.offsets, at + entry, peek(pending, index))
                    entry += 1
            poke(columns, c + N_FILLED, entry)
    else:
        _fill_rare(f, c, begin, stop)


@inner
def _clear(output: Any, position: int, n_bytes: int) -> None:
    for index in range(position, position + n_bytes):
        poke(output, index, 0)


@inlined
def _set_bit(output: Any, position: int, index: int) -> None:
    byte = position + (index >> 3)
    poke(output, byte, peek(output, byte) | 1 << (index & 7))


@inner
def _fill_texts(f: Any, c: int, begin: int, stop: int) -> None:
    out_of_line()
    data, pending, output, offsets = f.data, f.pending, f.output, f.offsets
    at, start = peek(f.columns, c + FIRST) >> 2, peek(f.columns, c + SECOND)
    target, entry = start + peek(f.columns, c + TARGET), peek(f.columns, c + N_FILLED)
    for index in range(begin, stop, 2):
        word, own = peek(pending, index), peek(pending, index + 1) >> _ENTRY_BITS
        while entry <= own:
            poke(offsets, at + entry, target - start)
            entry += 1
        source, size = word >> 32, word & LENGTH_MASK
        end = target + size
        if size > 0:
            copy32(output, target, data, source)
            while target + 32 < end:
                target += 32
                source += 32
                copy32(output, target, data, source)
        target = end
    poke(f.columns, c + TARGET, target - start)
    poke(f.columns, c + N_FILLED, entry)


@inner
def _fill_decimals(f: Any, c: int, begin: int, stop: int) -> None:
    out_of_line()
    pending, at, scale = f.pending, peek(f.columns, c + FIRST) >> 3, peek(f.columns, c + SCALE_OF)
    is_short = peek(f.columns, c + IS_SHORT) != 0
    for index in range(begin, stop, 2):
        word, encoding = peek(pending, index), peek(pending, index + 1) & _ENCODING_MASK
        target = at + 2 * (peek(pending, index + 1) >> _ENTRY_BITS)
        if is_short and 0 < encoding <= _MAX_ENCODING:
            value = word * np.int64(power_of_ten(scale - encoding + 1))
            poke(f.words, target, value)
            poke(f.words, target + 1, value >> 63)
        else:
            _put_any_decimal(f, target, word, encoding, scale)


@inner
def _fill_rare(f: Any, c: int, begin: int, stop: int) -> None:
    """Fill binary values, numbers as text, or columns of NULL."""
    out_of_line()
    data, pending, output, offsets = f.data, f.pending, f.output, f.offsets
    kind = peek(f.columns, c + KIND)
    at, start = peek(f.columns, c + FIRST) >> 2, peek(f.columns, c + SECOND)
    target, entry = start + peek(f.columns, c + TARGET), peek(f.columns, c + N_FILLED)
    for index in range(begin, stop, 2):
        word, own = peek(pending, index), peek(pending, index + 1) >> _ENTRY_BITS
        encoding = peek(pending, index + 1) & _ENCODING_MASK
        while entry <= own:
            poke(offsets, at + entry, target - start)
            entry += 1
        source, size = word >> 32, word & LENGTH_MASK
        if kind == BINARY:
            target += decode_whole_base64(output, target, data, source, size, f.pairs)
        elif encoding == IS_CANONICAL:
            target = copy_bytes(output, target, data, source, size)
        elif 0 < encoding <= _MAX_ENCODING:
            target, _ = print_integer(output, target, np.uint64(abs(word)), word < 0, encoding - 1)
        else:
            _, negative, count, point = parse_number(data, source, source + size, f.digits)
            target = print_number(output, target, negative, f.digits, 0, count, point)
    poke(f.columns, c + TARGET, target - start)
    poke(f.columns, c + N_FILLED, entry)


@inner
def _any_integer(f: Any, word: int) -> Any:
    out_of_line()
    start, length = word >> 32, word & LENGTH_MASK
    _, negative, count, point = parse_number(f.data, start, start + length, f.digits)
    _, magnitude = unscaled(f.digits, count, point, 0)
    return -np.int64(magnitude) if negative else np.int64(magnitude)


@inner
def _put_any_decimal(f: Any, position: int, word: int, encoding: int, scale: int) -> None:
    out_of_line()
    if 0 < encoding <= _MAX_ENCODING:
        negative = word < 0
        high, low = times_power(np.uint64(0), np.uint64(-word if negative else word), scale - encoding + 1)
    else:
        start, length = word >> 32, word & LENGTH_MASK
        if encoding == IS_CANONICAL:
            negative = peek(f.data, start) == MINUS
            high, low = unscaled_text(f.data, start + negative, scale)
        else:
            _, negative, count, point = parse_number(f.data, start, start + length, f.digits)
            high, low = unscaled(f.digits, count, point, scale)
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == 0)
    poke(f.words, position, np.int64(low))
    poke(f.words, position + 1, np.int64(high))
