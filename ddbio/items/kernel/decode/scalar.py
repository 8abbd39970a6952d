"""Read one string, number or boolean into its slot.

Returned is the offset after it and whether the value fits its column, or a negative status if no reader accepts it.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.base64 import is_base64
from ddbio.items.kernel.codes import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    ERROR,
    FITS,
    GROW_UNESCAPED,
    INTEGER,
    IS_UNFIT,
    NUMBER_TEXT,
    UNESCAPED,
    UNESCAPED_END,
)
from ddbio.items.kernel.jit import inlined, inner
from ddbio.items.kernel.memory import out_of_line, peek, poke
from ddbio.items.kernel.number import (
    LONGEST_NUMBER,
    MAX_SHORT_DIGITS,
    MINUS,
    POINT,
    ZERO,
    is_canonical,
    parse_number,
    power_of_ten,
    print_number,
    read_digits,
    unscaled,
)
from ddbio.items.kernel.skip import read_literal
from ddbio.items.kernel.text import QUOTE, read_text, skip_blank, text_end
from ddbio.items.schema.arrow import MAX_FLOAT32

_MAX_SHIFTED_DIGITS = 18
# The largest number that is read as the largest float32: half a step of a double above it.
_FLOAT32_LIMIT = np.frombuffer(str(int(MAX_FLOAT32) + (1 << 74)).encode(), dtype=np.uint8).copy()


@inlined
def read_scalar(data: Any, place: int, kind: int, node: int, slot: int, tables: Any, work: Any) -> Any:
    """Return the place after a leaf's content whose opening is passed, and whether it fits its column."""
    if kind == INTEGER:
        negative = peek(data, place) == MINUS
        first = place + negative
        magnitude, stop = read_digits(data, first)
        count = stop - first
        if count == 0 or count > MAX_SHORT_DIGITS or peek(data, stop) != QUOTE:
            return _read_any_number(data, place, kind, node, slot, tables, work)
        if magnitude > (np.uint64(peek(tables.least, node)) if negative else np.uint64(peek(tables.most, node))):
            return stop + 1, IS_UNFIT
        poke(work.values, slot, -np.int64(magnitude) if negative else np.int64(magnitude))
        return stop + 1, FITS
    if kind == DECIMAL:
        return _read_decimal(data, place, kind, node, slot, tables, work)
    if kind == BOOLEAN:
        literal = read_literal(data, place)
        if literal < 0:
            place = skip_blank(data, place)
            literal = read_literal(data, place)
            if literal < 0:
                return -ERROR, FITS
        poke(work.values, slot, literal)
        return place + 5 - literal, FITS
    if kind == NUMBER_TEXT:
        return _read_any_number(data, place, kind, node, slot, tables, work)
    stop = text_end(data, place)
    if peek(data, stop) == QUOTE:
        start, length, place = place, stop - place, stop + 1
    else:
        start, length, place = read_text(data, place, work.state)
    poke(work.values, slot, start << 32 | length)
    if kind == BINARY and place >= 0 and not is_base64(data, start, length):
        return -ERROR, FITS
    return place, FITS


@inlined
def _read_decimal(data: Any, place: int, kind: int, node: int, slot: int, tables: Any, work: Any) -> Any:
    scale = peek(tables.scale, node)
    negative = peek(data, place) == MINUS
    first = place + negative
    magnitude, stop = read_digits(data, first)
    n_whole, n_fraction = stop - first, 0
    if peek(data, stop) == POINT and n_whole <= _MAX_SHIFTED_DIGITS:
        fraction, stop_of_fraction = read_digits(data, stop + 1)
        n_fraction = stop_of_fraction - stop - 1
        stop = stop_of_fraction
        if 0 < n_fraction <= scale and n_whole + n_fraction <= _MAX_SHIFTED_DIGITS:
            magnitude = magnitude * power_of_ten(n_fraction) + fraction
        else:
            n_whole = 0
    room = min(tables.precision[node] - scale, _MAX_SHIFTED_DIGITS - scale)
    if n_whole == 0 or n_whole > room or peek(data, stop) != QUOTE:
        return _read_any_number(data, place, kind, node, slot, tables, work)
    value = np.int64(magnitude * power_of_ten(scale - n_fraction))
    poke(work.values, slot, -value if negative else value)
    poke(work.values, slot + 1, -1 if negative and value != 0 else 0)
    return stop + 1, FITS


@inner
def _read_any_number(data: Any, place: int, kind: int, node: int, slot: int, tables: Any, work: Any) -> Any:
    """Read a number in any form."""
    out_of_line()
    state, digits = work.state, work.digits
    side = state[UNESCAPED]
    start, length, place = read_text(data, place, state)
    if place < 0:
        return place, FITS
    if kind == NUMBER_TEXT and tables.precision[node] == 0 and is_canonical(data, start, start + length):
        poke(work.values, slot, start << 32 | length)
        return place, FITS
    is_number, negative, count, point = parse_number(data, start, start + length, digits)
    if not is_number:
        return -ERROR, FITS
    if kind == NUMBER_TEXT:
        precision, scale = tables.precision[node], tables.scale[node]
        if precision > 0 and not _fits(count, point, precision, scale):
            return place, IS_UNFIT
        if precision < 0 and _is_beyond_float32(digits, count, point):
            return place, IS_UNFIT
        if state[UNESCAPED] + LONGEST_NUMBER > state[UNESCAPED_END]:
            return -GROW_UNESCAPED, FITS
        stop = print_number(data, state[UNESCAPED], negative, digits, 0, count, point)
        poke(work.values, slot, state[UNESCAPED] << 32 | (stop - state[UNESCAPED]))
        state[UNESCAPED] = stop
        return place, FITS
    state[UNESCAPED] = side
    if kind == INTEGER:
        if not _fits(count, point, 20, 0):
            return place, IS_UNFIT
        high, magnitude = unscaled(digits, count, point, 0)
        if high > 0 or magnitude > (
            np.uint64(peek(tables.least, node)) if negative else np.uint64(peek(tables.most, node))
        ):
            return place, IS_UNFIT
        poke(work.values, slot, -np.int64(magnitude) if negative else np.int64(magnitude))
        return place, FITS
    if not _fits(count, point, tables.precision[node], tables.scale[node]):
        return place, IS_UNFIT
    high, low = unscaled(digits, count, point, tables.scale[node])
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == 0)
    poke(work.values, slot, np.int64(low))
    poke(work.values, slot + 1, np.int64(high))
    return place, FITS


@inner
def _fits(count: int, point: int, precision: int, scale: int) -> Any:
    """Return whether a parsed number fits a decimal: zero has neither whole nor fractional digits."""
    whole = max(point, 0) if count > 0 else 0
    fraction = max(count - point, 0) if count > 0 else 0
    return whole <= precision - scale and fraction <= scale


@inner
def _is_beyond_float32(digits: Any, count: int, point: int) -> Any:
    if point != len(_FLOAT32_LIMIT) or count == 0:
        return point > len(_FLOAT32_LIMIT)
    for index in range(len(_FLOAT32_LIMIT)):
        digit = peek(digits, index) if index < count else ZERO
        if digit != _FLOAT32_LIMIT[index]:
            return digit > _FLOAT32_LIMIT[index]
    return False
