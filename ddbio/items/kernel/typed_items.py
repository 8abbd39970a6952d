"""Conversion of plain JSON objects to lines of DynamoDB JSON: each value gets the type that it has in JSON.

Members that are null are left out; a null in a list becomes NULL. Texts and numbers are copied unchanged: the decoder
of the lines validates them.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.kernel import memory
from ddbio.items.kernel.codes import ERROR, INSTANCE, NAMES, NAMES_MASK, STATE_LENGTH
from ddbio.items.kernel.jit import boolean, inner, int64, loop
from ddbio.items.kernel.lines import end_of_text
from ddbio.items.kernel.memory import PAD, copy_bytes, peek, pointers, poke
from ddbio.items.kernel.number import MINUS, NINE, ZERO
from ddbio.items.kernel.skip import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    is_null,
    read_literal,
    remember_name,
    skip_number,
)
from ddbio.items.kernel.text import BACKSLASH, QUOTE, hash_text, skip_blank

if TYPE_CHECKING:
    import numpy.typing as npt

_REFUSED, _OUTPUT_FULL, _NO_NAMES = -1, -2, -3
# Far more levels than an item may have; the decoder reports the limit.
_LEVELS = 64
_IS_MAP, _HAS_MEMBERS = 1, 2
_NEWLINE = ord("\n")
_SURROGATE = rb"\ud"
_DOUBLE_DIGITS, _EXPONENTS = 15, (ord("e"), ord("E"))
# The most bytes that a value adds: {"BOOL":…} with a comma.
_STEP = 32
_FIRST_NAMES = 1 << 12
_OPEN_S, _OPEN_N, _OPEN_BOOL, _OPEN_MAP, _OPEN_LIST, _NULL = (
    np.frombuffer(text.ljust(_STEP, b"\0"), np.uint8)
    for text in (b'{"S":', b'{"N":"', b'{"BOOL":', b'{"M":{', b'{"L":[', b'{"NULL":true}')
)


class _Walk(NamedTuple):
    """Arrays of a walk.

    Attributes
    ----------
    data, out, nulls
        The text, the lines, and the names of null members of rows, each followed by a comma; all are padded.
    levels
        The open containers: whether each is a map or a list, and whether it has members already.
    names
        The names of open objects, if the text may have nulls.
    """

    data: npt.NDArray[np.uint8]
    out: npt.NDArray[np.uint8]
    nulls: npt.NDArray[np.uint8]
    levels: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint64]
    state: npt.NDArray[np.int64]


class TypedLines(NamedTuple):
    """Lines of DynamoDB JSON, with facts that they do not show.

    Attributes
    ----------
    lines
        One line per object.
    nulls
        The quoted names of null members, separated by commas.
    has_long_numbers
        Whether a number has an exponent or more than 15 characters. Doubles represent all other numbers exactly.
    """

    lines: memoryview
    nulls: bytes
    has_long_numbers: bool


def typed_lines(text: bytes) -> TypedLines | None:
    """Return the objects of a text as DynamoDB JSON; None if only the plain reference can report the error."""
    size, has_nulls = len(text), b"null" in text
    data = memory.allocate(size + PAD)
    data[:size], data[size:] = np.frombuffer(text, np.uint8), 0
    capacity, slots = 2 * size + _STEP, _FIRST_NAMES if has_nulls else 2
    nulls = memory.allocate((size if has_nulls else 0) + PAD)
    levels = np.zeros(_LEVELS, np.int64)
    while True:
        out, state = memory.allocate(capacity + PAD), np.zeros(STATE_LENGTH, np.int64)
        state[NAMES_MASK] = slots - 1
        walk = _Walk(data, out, nulls, levels, np.zeros(slots, np.uint64), state)
        stop, null_bytes, long_numbers = map(int, type_items(walk, size, capacity, has_nulls))
        if stop >= 0:
            names = nulls[: max(0, null_bytes - 1)].tobytes()
            # Half of a surrogate pair is not a valid name; the decoder checks the names of the other members.
            if _SURROGATE in names.lower():
                return None
            return TypedLines(out[:stop].data, names, bool(long_numbers))
        if stop == _REFUSED:
            return None
        capacity, slots = (4 * capacity, slots) if stop == _OUTPUT_FULL else (capacity, 8 * slots)


@inner
def _has_exponent(data: Any, position: int, end: int) -> Any:
    for index in range(position, end):  # noqa: SIM110 - compiled code has no generators
        if peek(data, index) in _EXPONENTS:
            return True
    return False


@loop(_Walk, int64, int64, boolean)
def type_items(walk: Any, stop: int, capacity: int, has_nulls: bool) -> Any:  # noqa: FBT001 - compiled code
    """Print the objects before ``stop``; return the bytes of lines and of names, or a negative status.

    The last result is the number of long numbers.
    """
    return _type_items(pointers(walk), stop, capacity, has_nulls, len(walk.names))


@inner
def _type_items(w: Any, stop: int, capacity: int, has_nulls: bool, slots: int) -> Any:  # noqa: FBT001 - compiled code
    data, out, levels, state = w.data, w.out, w.levels, w.state
    at, null_bytes, long_numbers = 0, 0, 0
    position = skip_blank(data, 0)
    while position < stop:
        if peek(data, position) != OPEN_OBJECT:
            return _REFUSED, 0, 0
        if at + _STEP > capacity:
            return _OUTPUT_FULL, 0, 0
        if state[NAMES] * 8 > slots:
            # Names of closed objects are not needed. The table is cleared so rarely that the cost per row is constant.
            for slot in range(slots):
                poke(w.names, slot, np.uint64(0))
            state[NAMES] = 0
        poke(out, at, OPEN_OBJECT)
        at += 1
        position += 1
        depth, is_first = 1, True
        state[INSTANCE] += 1
        poke(levels, 0, state[INSTANCE] << 2 | _IS_MAP)
        while depth > 0:
            level = peek(levels, depth - 1) & (_IS_MAP | _HAS_MEMBERS)
            position = skip_blank(data, position)
            if at + _STEP > capacity:
                return _OUTPUT_FULL, 0, 0
            has_ended = is_first and peek(data, position) == (CLOSE_OBJECT if level & _IS_MAP else CLOSE_ARRAY)
            if not has_ended:
                name, length = position, 0
                if level & _IS_MAP:
                    if peek(data, position) != QUOTE:
                        return _REFUSED, 0, 0
                    end = end_of_text(data, position + 1)
                    if peek(data, end) != QUOTE:
                        return _REFUSED, 0, 0
                    length = end + 1 - name
                    position = skip_blank(data, end + 1)
                    if peek(data, position) != COLON:
                        return _REFUSED, 0, 0
                    position = skip_blank(data, position + 1)
                    if has_nulls:
                        # The decoder does not see the names of members that are left out.
                        for index in range(name, end):
                            if peek(data, index) == BACKSLASH:
                                return _REFUSED, 0, 0
                        value = hash_text(data, name + 1, length - 2)
                        status = remember_name(w.names, value, peek(levels, depth - 1) >> 2, state)
                        if status != 0:
                            return (_REFUSED if status == ERROR else _NO_NAMES), 0, 0
                byte = peek(data, position)
                if level & _IS_MAP and is_null(data, position):
                    position += 4
                    if depth == 1:
                        null_bytes = copy_bytes(w.nulls, null_bytes, data, name, length)
                        poke(w.nulls, null_bytes, COMMA)
                        null_bytes += 1
                else:
                    if level & _HAS_MEMBERS:
                        poke(out, at, COMMA)
                        at += 1
                    poke(levels, depth - 1, peek(levels, depth - 1) | _HAS_MEMBERS)
                    if length > 0:
                        if at + length + 2 * _STEP > capacity:
                            return _OUTPUT_FULL, 0, 0
                        at = copy_bytes(out, at, data, name, length)
                        poke(out, at, COLON)
                        at += 1
                    if byte == QUOTE:
                        end = end_of_text(data, position + 1)
                        if peek(data, end) != QUOTE:
                            return _REFUSED, 0, 0
                        length = end + 1 - position
                        if at + length + _STEP > capacity:
                            return _OUTPUT_FULL, 0, 0
                        at = copy_bytes(out, copy_bytes(out, at, _OPEN_S, 0, 5), data, position, length)
                        position = end + 1
                        poke(out, at, CLOSE_OBJECT)
                        at += 1
                    elif byte in (OPEN_OBJECT, OPEN_ARRAY):
                        if depth == _LEVELS:
                            return _REFUSED, 0, 0
                        is_map = byte == OPEN_OBJECT
                        at = copy_bytes(out, at, _OPEN_MAP if is_map else _OPEN_LIST, 0, 6)
                        position += 1
                        state[INSTANCE] += 1
                        poke(levels, depth, state[INSTANCE] << 2 | (_IS_MAP if is_map else 0))
                        depth += 1
                        is_first = True
                        continue
                    elif byte == MINUS or ZERO <= byte <= NINE:
                        end = skip_number(data, position)
                        length = end - position
                        if end < 0:
                            return _REFUSED, 0, 0
                        if at + length + _STEP > capacity:
                            return _OUTPUT_FULL, 0, 0
                        at = copy_bytes(out, copy_bytes(out, at, _OPEN_N, 0, 6), data, position, length)
                        long_numbers += length > _DOUBLE_DIGITS or _has_exponent(data, position, end)
                        position = end
                        poke(out, at, QUOTE)
                        poke(out, at + 1, CLOSE_OBJECT)
                        at += 2
                    elif is_null(data, position):
                        at = copy_bytes(out, at, _NULL, 0, 13)
                        position += 4
                    else:
                        literal = read_literal(data, position)
                        if literal < 0:
                            return _REFUSED, 0, 0
                        length = 5 - literal
                        at = copy_bytes(out, copy_bytes(out, at, _OPEN_BOOL, 0, 8), data, position, length)
                        position += length
                        poke(out, at, CLOSE_OBJECT)
                        at += 1
            # A value that has ended may also end its container.
            while True:
                if has_ended:
                    position += 1
                    depth -= 1
                    if at + _STEP > capacity:
                        return _OUTPUT_FULL, 0, 0
                    poke(out, at, CLOSE_OBJECT if level & _IS_MAP else CLOSE_ARRAY)
                    poke(out, at + 1, CLOSE_OBJECT if depth > 0 else _NEWLINE)
                    at += 2
                    if depth == 0:
                        break
                position = skip_blank(data, position)
                byte = peek(data, position)
                level = peek(levels, depth - 1)
                if byte == COMMA:
                    position += 1
                    is_first = False
                    break
                has_ended = byte == (CLOSE_OBJECT if level & _IS_MAP else CLOSE_ARRAY)
                if not has_ended:
                    return _REFUSED, 0, 0
        position = skip_blank(data, position)
    return at, null_bytes, long_numbers
