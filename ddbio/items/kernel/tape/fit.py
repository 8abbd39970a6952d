"""Search of the values of a tape that do not fit their columns, and texts for columns of JSON.

An attribute with any value that does not fit is a misfit as a whole: its entries are skipped, and its text is listed.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.codes import (
    BOOL,
    DECIMAL,
    DONE,
    FITS,
    GROW_UNESCAPED,
    INTEGER,
    IS_NULL,
    IS_OTHER_TYPE,
    IS_UNFIT,
    IS_UNKNOWN,
    JSON,
    MISFIT_KIND,
    MISFIT_NAME,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_STOP,
    MISFIT_WIDTH,
    MISFITS,
    NULL,
    NUMBER_TEXT,
    SS,
    STRUCT,
    UNESCAPED,
    UNESCAPED_END,
    N,
)
from ddbio.items.kernel.jit import boolean, inner, int64, loop
from ddbio.items.kernel.memory import PAD, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import ZERO, parse_number, print_integer, unscaled
from ddbio.items.kernel.skip import CLOSE_OBJECT
from ddbio.items.kernel.tape.columns import (
    CHILD,
    COLUMN_WIDTH,
    FRAME_CHILD,
    FRAME_HOLDER,
    FRAME_WIDTH,
    IS_DOUBTFUL,
    KIND,
    MAX_MAGNITUDE,
    MIN_MAGNITUDE,
    PRECISION,
    SCALE_OF,
    TAG,
)
from ddbio.items.kernel.tape.paths import COUNTS, NODE_BITS, NODE_WIDTH, OPENING_LENGTHS
from ddbio.items.kernel.tape.walk import (
    CLOSE,
    ENCODING_BITS,
    IN_SET,
    ITEM,
    JSON_TEXT,
    LENGTH_MASK,
    NAME,
    ODD,
    SKIP,
    TAG_BITS,
    add_bytes,
    uncount_values,
)
from ddbio.items.kernel.text import QUOTE, canonical_json, skip_blank
from ddbio.items.schema.arrow import MAX_FLOAT32

_MAX_ENCODING = 19
# The largest number that rounds to the largest float32: half a step of a double above it.
_FLOAT32_LIMIT = np.frombuffer(str(int(MAX_FLOAT32) + (1 << 74)).encode(), dtype=np.uint8).copy()
_TEN = np.uint64(10)


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


_NULL_TEXT = np.frombuffer(bytearray(b'{"NULL":true}'), np.uint8)
_TRUE_TEXT = np.frombuffer(bytearray(b'{"BOOL":true}'), np.uint8)
_FALSE_TEXT = np.frombuffer(bytearray(b'{"BOOL":false}'), np.uint8)
_NUMBER_OPENING = np.frombuffer(bytearray(b'{"N":"'), np.uint8)


class Fit(NamedTuple):
    """Tape and columns that are compared, and the list of misfits."""

    data: npt.NDArray[np.uint8]
    tape: npt.NDArray[np.int64]
    column_of: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    nodes: npt.NDArray[np.int64]
    misfits: npt.NDArray[np.int64]
    """Space for every value."""
    state: npt.NDArray[np.int64]


@loop(Fit, int64, boolean, boolean)
def find_misfits(fit: Any, n_words: int, keep_nulls: bool, has_images: bool) -> Any:  # noqa: FBT001 - compiled code
    """List the misfits; return the status. Another call needs the tape as it was before this one.

    Parameters
    ----------
    has_images
        Whether the structs of the root are images of changes, whose members are attributes.
    """
    return _find_misfits(pointers(fit), n_words, keep_nulls, has_images)


@inner
def _find_misfits(f: Any, n_words: int, keep_nulls: bool, has_images: bool) -> Any:  # noqa: FBT001
    tape, columns, stack, state = f.tape, f.columns, f.stack, f.state
    state[MISFITS] = 0
    at, row, depth, base, name, odd = 0, 0, 0, 0, 0, -1
    # The context is the column of a struct, with ``child`` -1, or of a list or map, with ``child`` the column of its
    # values.
    context, child = 0, -1
    top, top_name, top_odd = 0, 0, -1
    while at < n_words:
        if depth == 0 and not has_images:
            entry = at
            at, row = _skip_sure(tape, f.column_of, columns, at, n_words, row)
            odd = odd if at == entry else -1
            if at == n_words:
                break
        entry = at
        head, word = peek(tape, at), peek(tape, at + 1)
        at += 2
        tag = head & TAG_BITS
        if tag >= ITEM:
            if tag == CLOSE:
                if depth == 0:
                    row += 1
                else:
                    depth -= 1
                    base = min(base, depth)
                    context = peek(stack, depth * FRAME_WIDTH + FRAME_HOLDER)
                    child = peek(stack, depth * FRAME_WIDTH + FRAME_CHILD)
            elif tag == NAME:
                name = word
            elif tag == ODD:
                odd = entry
            continue
        is_member = child < 0
        c = peek(f.column_of, head >> NODE_BITS) if is_member else child
        if depth == 0 and has_images and peek(columns, c + KIND) == STRUCT:
            poke(stack, FRAME_HOLDER, context)
            poke(stack, FRAME_CHILD, child)
            depth, base, context = 1, 1, c
            continue
        if depth == base:
            top, top_name, top_odd = entry, name, odd
            if c >= 0 and peek(columns, c + IS_DOUBTFUL) == 0:
                odd = -1
                if SS <= tag < IN_SET:
                    at = _after(tape, entry)
                continue
        own_odd, odd = odd, -1
        bad = IS_UNKNOWN if c < 0 else _misfit(f, c, tag, head, word, is_member and keep_nulls)
        if bad == FITS:
            kind = peek(columns, c + KIND)
            if kind == JSON:
                at = _after(tape, entry)
                start, stop = _value_text(f, entry, own_odd, at)
                if stop < 0:
                    return -stop
                uncount_values(f, entry, at)
                record = (head >> NODE_BITS) * NODE_WIDTH
                poke(f.nodes, record + COUNTS, peek(f.nodes, record + COUNTS) + 1)
                add_bytes(f.nodes, record, stop - start)
                poke(tape, entry, (head >> NODE_BITS) << NODE_BITS | JSON_TEXT)
                poke(tape, entry + 1, start << 32 | (stop - start))
                if at > entry + 2:
                    poke(tape, entry + 2, SKIP)
                    poke(tape, entry + 3, at)
            elif SS <= tag < IN_SET:
                frame = depth * FRAME_WIDTH
                poke(stack, frame + FRAME_HOLDER, context)
                poke(stack, frame + FRAME_CHILD, child)
                depth += 1
                context, child = c, (-1 if kind == STRUCT else peek(columns, c + CHILD))
            continue
        # Skip the whole attribute.
        bad_node = context // COLUMN_WIDTH if bad == IS_UNKNOWN else c // COLUMN_WIDTH
        node = peek(f.column_of, peek(tape, top) >> NODE_BITS) // COLUMN_WIDTH
        if depth > base:
            depth = base
            context = peek(stack, base * FRAME_WIDTH + FRAME_HOLDER)
            child = -1
        elif bad == IS_UNKNOWN:
            node, bad_node = -1 - context // COLUMN_WIDTH, -1
        at = _after(tape, top)
        start, stop = _value_text(f, top, top_odd, at)
        if stop < 0:
            return -stop
        listed = state[MISFITS] * MISFIT_WIDTH
        poke(f.misfits, listed + MISFIT_ROW, row)
        poke(f.misfits, listed + MISFIT_NODE, node)
        poke(f.misfits, listed + MISFIT_NAME, top_name >> 32)
        poke(f.misfits, listed + MISFIT_NAME_LENGTH, top_name & LENGTH_MASK)
        poke(f.misfits, listed + MISFIT_START, start)
        poke(f.misfits, listed + MISFIT_STOP, stop)
        poke(f.misfits, listed + MISFIT_KIND, bad | bad_node << 8)
        state[MISFITS] += 1
        uncount_values(f, top, at)
        poke(tape, top, SKIP)
        poke(tape, top + 1, at)
    return DONE


@inner
def _skip_sure(tape: Any, column_of: Any, columns: Any, at: int, n_words: int, row: int) -> Any:
    """Return the position of the next attribute that may not fit, or of an entry that belongs to it, and its row."""
    out_of_line()
    while at < n_words:
        head = peek(tape, at)
        tag = head & TAG_BITS
        if tag < IN_SET:
            c = peek(column_of, head >> NODE_BITS)
            if c < 0 or peek(columns, c + IS_DOUBTFUL) != 0:
                break
            at = at + 2 if tag < SS else _after(tape, at)
        elif tag == CLOSE:
            row += 1
            at += 2
        elif tag == ITEM:
            at += 2
        else:
            break
    return at, row


@inner
def _after(tape: Any, entry: int) -> Any:
    """Return the position of the entry after a value and its content."""
    tag = peek(tape, entry) & TAG_BITS
    at, depth = entry + 2, 1 if SS <= tag < IN_SET else 0
    while depth > 0:
        tag = peek(tape, at) & TAG_BITS
        if tag == CLOSE:
            depth -= 1
        elif SS <= tag < IN_SET:
            depth += 1
        at = peek(tape, at + 1) if tag == SKIP else at + 2
    return at


@inner
def _misfit(f: Any, c: int, tag: int, head: int, word: int, keeps_null: bool) -> Any:  # noqa: FBT001
    """Return the reason why a value does not fit its column, or ``FITS``."""
    kind = peek(f.columns, c + KIND)
    if tag == NULL and kind != JSON:
        return IS_NULL if keeps_null else FITS
    if tag >= IN_SET:
        tag -= IN_SET
    elif kind == JSON:
        return FITS
    elif tag != peek(f.columns, c + TAG):
        return IS_OTHER_TYPE
    if tag != N or _fits(f, c, kind, (head >> ENCODING_BITS) & 0xFF, word):
        return FITS
    return IS_UNFIT


@inner
def _fits(f: Any, c: int, kind: int, encoding: int, word: int) -> Any:
    """Return whether a number fits its column."""
    precision, scale = peek(f.columns, c + PRECISION), peek(f.columns, c + SCALE_OF)
    if kind == NUMBER_TEXT and precision == 0:
        return True
    is_short = 0 < encoding <= _MAX_ENCODING
    if is_short and kind == INTEGER:
        limit = peek(f.columns, c + MIN_MAGNITUDE) if word < 0 else peek(f.columns, c + MAX_MAGNITUDE)
        return encoding == 1 and np.uint64(abs(word)) <= np.uint64(limit)
    if is_short and kind == DECIMAL:
        n_integer, quotient = -(encoding - 1), np.uint64(abs(word))
        while quotient > 0:
            quotient //= _TEN
            n_integer += 1
        return max(n_integer, 0) <= precision - scale and encoding - 1 <= scale
    # The paths of columns of text keep the text of numbers.
    start, length = word >> 32, word & LENGTH_MASK
    _, negative, count, point = parse_number(f.data, start, start + length, f.digits)
    if kind == INTEGER:
        if not _fits_decimal(count, point, 20, 0):
            return False
        high, magnitude = unscaled(f.digits, count, point, 0)
        limit = peek(f.columns, c + MIN_MAGNITUDE) if negative else peek(f.columns, c + MAX_MAGNITUDE)
        return high == 0 and magnitude <= np.uint64(limit)
    if precision < 0:
        return not _is_beyond_float32(f.digits, count, point)
    return _fits_decimal(count, point, precision, scale)


@inner
def _fits_decimal(count: int, point: int, precision: int, scale: int) -> Any:
    """Return whether a parsed number fits a decimal; zero has neither integer nor fractional digits."""
    n_integer = max(point, 0) if count > 0 else 0
    fraction = max(count - point, 0) if count > 0 else 0
    return n_integer <= precision - scale and fraction <= scale


@inner
def _is_beyond_float32(digits: Any, count: int, point: int) -> Any:
    if point != len(_FLOAT32_LIMIT) or count == 0:
        return point > len(_FLOAT32_LIMIT)
    for index in range(len(_FLOAT32_LIMIT)):
        digit = peek(digits, index) if index < count else ZERO
        if digit != _FLOAT32_LIMIT[index]:
            return digit > _FLOAT32_LIMIT[index]
    return False


@inner
def _value_text(f: Any, entry: int, odd: int, after: int) -> Any:
    """Return the begin and end of the canonical JSON of a value; the end is a status if the space is too small."""
    out_of_line()
    data, state = f.data, f.state
    head, word = peek(f.tape, entry), peek(f.tape, entry + 1)
    tag, encoding = head & TAG_BITS, (head >> ENCODING_BITS) & 0xFF
    is_container = SS <= tag < IN_SET
    if odd >= 0:
        start, stop = peek(f.tape, odd + 1) >> 32, peek(f.tape, odd + 1) & LENGTH_MASK
    elif is_container:
        start, stop = word - OPENING_LENGTHS[tag] - 2, 0
    elif tag in (BOOL, NULL) or (tag == N and 0 < encoding <= _MAX_ENCODING):
        if state[UNESCAPED] + PAD > state[UNESCAPED_END]:
            return 0, -GROW_UNESCAPED
        start = state[UNESCAPED]
        state[UNESCAPED] = _print_scalar(data, start, tag, encoding, word)
        return start, state[UNESCAPED]
    else:
        start = (word >> 32) - len('{"S":"')
        stop = (word >> 32) + (word & LENGTH_MASK) + 1
        if peek(data, stop) == CLOSE_OBJECT:
            # It has neither escapes nor white space.
            return start, stop + 1
    if is_container:
        stop = peek(f.tape, after - 1)
    return canonical_json(data, start, skip_blank(data, stop) + 1, state)


@inner
def _print_scalar(data: Any, at: int, tag: int, encoding: int, word: int) -> Any:
    if tag == NULL:
        return _print(data, at, _NULL_TEXT)
    if tag == BOOL:
        return _print(data, at, _TRUE_TEXT) if word else _print(data, at, _FALSE_TEXT)
    at, _ = print_integer(data, _print(data, at, _NUMBER_OPENING), np.uint64(abs(word)), word < 0, encoding - 1)
    poke(data, at, QUOTE)
    poke(data, at + 1, CLOSE_OBJECT)
    return at + 2


@inner
def _print(data: Any, at: int, text: Any) -> Any:
    for index in range(len(text)):
        poke(data, at + index, text[index])
    return at + len(text)
