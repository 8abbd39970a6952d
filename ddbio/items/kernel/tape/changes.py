"""Walk of the members of change lines and of stream records, in any order.

A line is a change of an incremental export, a stream record, or a body whose ``Records`` are stream records. The time
of a stream record is kept as digits and a power of ten until its unit is known. Input that is not exactly one change is
refused, and so are times that perhaps only the plain reader can read.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.codes import (
    CHANGE_INSTANCE,
    CHANGE_MEMBERS,
    CONTAINER,
    ERROR,
    INSTANCE,
    IS_DELETED,
    KEYS,
    NEW_IMAGE,
    OLD_IMAGE,
    RECORDS_FIRST,
    RECORDS_LATER,
    TIME,
    TIME_POWER,
    WRITE_TIME,
)
from ddbio.items.kernel.jit import inner
from ddbio.items.kernel.memory import load64, out_of_line, peek
from ddbio.items.kernel.number import MINUS, POINT, ZERO, read_digits
from ddbio.items.kernel.skip import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    is_null,
    remember_name,
    skip_json,
)
from ddbio.items.kernel.text import QUOTE, hash_text, read_text, same_text, skip_blank


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


_TIME_NAME = b"WriteTimestampMicros"
_TIME_START, _TIME_MIDDLE, _TIME_END = _word(_TIME_NAME[:8]), _word(_TIME_NAME[8:16]), _word(_TIME_NAME[16:])
_TIME_LENGTH = len(_TIME_NAME)
_FOUR_BYTES = 0xFFFFFFFF
_LETTER_N = ord("N")
_MAX_DIGITS = 18
# More digits may differ from those of a double's shortest text.
_MAX_DOUBLE_DIGITS = 15
_LARGEST_EXPONENT, _TEN = np.uint64(30), np.uint64(10)
_SECONDS_POWER = 6
_LARGEST = (1 << 63) // 10 - 1
_EXPONENTS = (ord("e"), ord("E"))
_PLUS = ord("+")
_UNITS = np.frombuffer(bytearray(b"MILLISECONDMICROSECOND"), np.uint8)
_UNIT_LENGTH = len("MICROSECOND")
_END_OF_TIME, _THOUSAND = 253_402_300_800, 1_000


@inner
def read_time(data: Any, position: int, state: Any) -> Any:
    """Read a JSON number; return the position after it, or a negative status."""
    negative = peek(data, position) == MINUS
    first = position + negative
    magnitude, stop = read_digits(data, first)
    power: Any = 0
    n_digits, is_double = stop - first, False
    if n_digits == 0 or n_digits > _MAX_DIGITS or (n_digits > 1 and peek(data, first) == ZERO):
        return -ERROR
    if peek(data, stop) == POINT:
        fraction, after = read_digits(data, stop + 1)
        power = stop + 1 - after
        n_digits -= power
        if power == 0 or n_digits > _MAX_DOUBLE_DIGITS:
            return -ERROR
        for _ in range(-power):
            magnitude *= _TEN
        magnitude += fraction
        stop, is_double = after, True
    if peek(data, stop) in _EXPONENTS:
        stop += 1
        is_below = peek(data, stop) == MINUS
        stop += is_below or peek(data, stop) == _PLUS
        exponent, after = read_digits(data, stop)
        if after == stop or exponent > _LARGEST_EXPONENT:
            return -ERROR
        power += -np.int64(exponent) if is_below else np.int64(exponent)
        stop, is_double = after, True
    if is_double and n_digits > _MAX_DOUBLE_DIGITS:
        return -ERROR
    state[TIME] = -np.int64(magnitude) if negative else np.int64(magnitude)
    state[TIME_POWER] += power
    return stop


@inner
def read_precision(data: Any, position: int, state: Any) -> Any:
    """Read the unit of a time; return the position after its name, or a negative status."""
    if peek(data, position) != QUOTE:
        return -ERROR
    start, length, position = read_text(data, position + 1, state)
    if position < 0:
        return position
    if length == _UNIT_LENGTH and same_text(data, start, _UNITS, 0, length):
        state[TIME_POWER] -= 3
    elif length == _UNIT_LENGTH and same_text(data, start, _UNITS, length, length):
        state[TIME_POWER] -= 6
    else:
        return -ERROR
    return position


@inner
def scaled_time(state: Any, has_unit: bool) -> Any:  # noqa: FBT001 - compiled code
    """Return the time of a stream record, truncated to whole microseconds, and whether it fits 64 bits.

    Without a unit the magnitude determines it, as in ``ticks_per_second``.
    """
    time, power = state[TIME], _SECONDS_POWER + state[TIME_POWER]
    magnitude = -time if time < 0 else time
    if not has_unit:
        seconds, is_large = magnitude, False
        for _ in range(power - _SECONDS_POWER):
            is_large |= seconds >= _END_OF_TIME * _THOUSAND
            seconds = seconds if is_large else seconds * 10
        for _ in range(_SECONDS_POWER - power):
            seconds //= 10
        if is_large or seconds >= _END_OF_TIME * _THOUSAND:
            power -= 6
        elif seconds >= _END_OF_TIME:
            power -= 3
    for _ in range(power):
        if magnitude > _LARGEST:
            return 0, False
        magnitude *= 10
    for _ in range(-power):
        magnitude //= 10
    return (-magnitude if time < 0 else magnitude), True


@inner
def _after_colon(data: Any, position: int) -> Any:
    position = skip_blank(data, position)
    return skip_blank(data, position + 1) if peek(data, position) == COLON else -ERROR


@inner
def read_metadata(data: Any, position: int, state: Any) -> Any:
    """Return the time in the metadata of a line, which has no other members, and the position after the metadata."""
    if peek(data, position) != OPEN_OBJECT:
        return 0, -ERROR
    position = skip_blank(data, position + 1)
    if peek(data, position) != QUOTE:
        return 0, -ERROR
    start, length, position = read_text(data, position + 1, state)
    if position < 0:
        return 0, position
    if (
        length != _TIME_LENGTH
        or np.int64(load64(data, start)) != _TIME_START
        or np.int64(load64(data, start + 8)) != _TIME_MIDDLE
        or np.int64(load64(data, start + 16)) & _FOUR_BYTES != _TIME_END
    ):
        return 0, -ERROR
    position = _after_colon(data, position)
    if position < 0:
        return 0, position
    is_tagged = peek(data, position) == OPEN_OBJECT
    if is_tagged:
        position = skip_blank(data, position + 1)
        if peek(data, position) != QUOTE or peek(data, position + 1) != _LETTER_N or peek(data, position + 2) != QUOTE:
            return 0, -ERROR
        position = _after_colon(data, position + 3)
        if position < 0:
            return 0, position
    time, position = _read_microseconds(data, position, is_tagged)
    if position < 0:
        return 0, position
    if is_tagged:
        position = skip_blank(data, position)
        if peek(data, position) != CLOSE_OBJECT:
            return 0, -ERROR
        position += 1
    position = skip_blank(data, position)
    return (time, position + 1) if peek(data, position) == CLOSE_OBJECT else (0, -ERROR)


@inner
def _read_microseconds(data: Any, position: int, is_tagged: bool) -> Any:  # noqa: FBT001 - compiled code
    is_text = peek(data, position) == QUOTE
    if is_tagged and not is_text:
        return 0, -ERROR
    position += is_text
    negative = peek(data, position) == MINUS
    first = position + negative
    magnitude, stop = read_digits(data, first)
    if stop == first or stop - first > _MAX_DIGITS:
        return 0, -ERROR
    if is_text:
        if peek(data, stop) != QUOTE:
            return 0, -ERROR
    elif stop - first > 1 and peek(data, first) == ZERO:
        return 0, -ERROR
    time = np.int64(magnitude)
    return (-time if negative else time), stop + is_text


# The names of members, by their numbers; for the time and images these are the numbers of their nodes.
_NAMES = (
    *(b"", b"Metadata", b"Keys", b"NewImage", b"OldImage", b"dynamodb", b"eventName", b"Records"),
    *(b"ApproximateCreationDateTime", b"ApproximateCreationDateTimePrecision"),
)
_RECORD, _EVENT, _RECORDS, _CREATED, _PRECISION = 5, 6, 7, 8, 9
_TEXTS = np.frombuffer(bytearray(b"".join(_NAMES)), np.uint8)
_LENGTHS = np.array([len(name) for name in _NAMES], np.int64)
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_REMOVE = np.frombuffer(bytearray(b"REMOVE"), np.uint8)

# The flags of a change, in addition to a bit for each of its members.
_HAS_OTHERS, _IS_EXPORTED, _IS_REMOVED, _IS_WITHIN = 1 << 0, 1 << 16, 1 << 17, 1 << 18
_EXPORTED_NEEDS = 1 << WRITE_TIME | 1 << KEYS
_RECORD_NEEDS = 1 << _CREATED | 1 << KEYS


@inner
def next_image(walk: Any, position: int, inside: int) -> Any:
    """Return the position of the next image and its node, or the position after the change and its container.

    The third result is whether a change has ended: then the state has its time, and whether it deletes the item.
    """
    out_of_line()
    data, state = walk.data, walk.state
    is_after = inside > 0
    if not is_after:
        if peek(data, position) != OPEN_OBJECT:
            return -ERROR, 0, False
        state[INSTANCE] += 2
        state[CHANGE_INSTANCE] = state[INSTANCE] - 1
        state[CHANGE_MEMBERS], state[CONTAINER], state[TIME_POWER] = 0, inside, 0
        position = skip_blank(data, position + 1)
    while True:
        members = state[CHANGE_MEMBERS]
        if is_after:
            position = skip_blank(data, position)
            byte = peek(data, position)
            if byte == CLOSE_OBJECT:
                if members & _IS_WITHIN == 0:
                    return _end_change(walk, position + 1)
                if members & _RECORD_NEEDS != _RECORD_NEEDS:
                    return -ERROR, 0, False
                state[CHANGE_MEMBERS] = members & ~_IS_WITHIN
                position += 1
                continue
            if byte != COMMA:
                return -ERROR, 0, False
            position = skip_blank(data, position + 1)
        is_after = True
        if peek(data, position) != QUOTE:
            return -ERROR, 0, False
        start, length, position = read_text(data, position + 1, state)
        if position < 0:
            return position, 0, False
        member = _member(data, start, length)
        position = skip_blank(data, position)
        if peek(data, position) != COLON:
            return -ERROR, 0, False
        position = skip_blank(data, position + 1)
        is_within = members & _IS_WITHIN != 0
        # A name of the other level is treated as an unknown name.
        is_outer = member in (WRITE_TIME, _RECORD, _EVENT, _RECORDS)
        if is_within == is_outer and member not in (KEYS, NEW_IMAGE, OLD_IMAGE):
            member = 0
        if members >> member & 1 and member > 0:
            return -ERROR, 0, False
        state[CHANGE_MEMBERS] = members | 1 << member
        if WRITE_TIME <= member <= OLD_IMAGE:
            if not is_within:
                state[CHANGE_MEMBERS] |= _IS_EXPORTED
            if member != WRITE_TIME:
                return position, member, False
            time, position = read_metadata(data, position, state)
            state[TIME] = time
        elif member == _RECORD:
            if members & _IS_EXPORTED or peek(data, position) != OPEN_OBJECT:
                return -ERROR, 0, False
            state[CHANGE_MEMBERS] |= _IS_WITHIN
            position = skip_blank(data, position + 1)
            is_after = False
        elif member == _EVENT:
            position = _read_event(data, position, state)
        elif member == _RECORDS:
            return _enter_records(walk, position, members)
        elif member == _CREATED:
            position = read_time(data, position, state)
        elif member == _PRECISION:
            position = read_precision(data, position, state)
        else:
            instance = state[CHANGE_INSTANCE] + is_within
            status = remember_name(walk.names, hash_text(data, start, length), instance, state)
            if status != 0:
                return -status, 0, False
            position = skip_json(data, position, walk.names, walk.stack, state)
        if position < 0:
            return position, 0, False


@inner
def _member(data: Any, start: int, length: int) -> Any:
    for member in range(1, len(_LENGTHS)):
        if _LENGTHS[member] == length and same_text(data, start, _TEXTS, _STARTS[member], length):
            return member
    return 0


@inner
def _read_event(data: Any, position: int, state: Any) -> Any:
    """Read the name of the event; null counts as a missing event."""
    if is_null(data, position):
        state[CHANGE_MEMBERS] = state[CHANGE_MEMBERS] & ~(1 << _EVENT) | _HAS_OTHERS
        return position + 4
    if peek(data, position) != QUOTE:
        return -ERROR
    start, length, position = read_text(data, position + 1, state)
    if position >= 0 and length == len(_REMOVE) and same_text(data, start, _REMOVE, 0, length):
        state[CHANGE_MEMBERS] |= _IS_REMOVED
    return position


@inner
def _end_change(walk: Any, position: int) -> Any:
    state = walk.state
    members = state[CHANGE_MEMBERS]
    is_deleted = members >> NEW_IMAGE & 1 == 0
    if members >> _RECORD & 1:
        if members & _IS_EXPORTED:
            return -ERROR, 0, False
        is_deleted = members & _IS_REMOVED != 0 or (members >> _EVENT & 1 == 0 and is_deleted)
        time, is_whole = scaled_time(state, members >> _PRECISION & 1 != 0)
        if not is_whole:
            return -ERROR, 0, False
    else:
        lacks = members & _EXPORTED_NEEDS != _EXPORTED_NEEDS
        if lacks or members & (_HAS_OTHERS | 1 << _EVENT) or state[CONTAINER] < 0:
            return -ERROR, 0, False
        time = state[TIME]
    state[TIME], state[IS_DELETED] = time, np.int64(is_deleted)
    if state[CONTAINER] == 0:
        return position, 0, True
    position, container = _after_record(walk, position)
    return position, container, True


@inner
def _enter_records(walk: Any, position: int, members: int) -> Any:
    """Return the position of the first record and its container; other members are all before it or all after it."""
    data, state = walk.data, walk.state
    if state[CONTAINER] < 0 or members & ~_HAS_OTHERS or peek(data, position) != OPEN_ARRAY:
        return -ERROR, 0, False
    container = RECORDS_LATER if members else RECORDS_FIRST
    position = skip_blank(data, position + 1)
    if peek(data, position) == CLOSE_ARRAY:
        position, container = _end_records(walk, position, container)
    return position, container, False


@inner
def _after_record(walk: Any, position: int) -> Any:
    """Return the position of the next record or the next line, and its container."""
    data, state = walk.data, walk.state
    position = skip_blank(data, position)
    if peek(data, position) == COMMA:
        return skip_blank(data, position + 1), state[CONTAINER]
    if peek(data, position) != CLOSE_ARRAY:
        return -ERROR, 0
    return _end_records(walk, position, state[CONTAINER])


@inner
def _end_records(walk: Any, position: int, container: int) -> Any:
    """Return the position after the body whose records end at ``position``, and 0."""
    data, state = walk.data, walk.state
    position = skip_blank(data, position + 1)
    if container == RECORDS_FIRST:
        state[INSTANCE] += 1
        instance = state[INSTANCE]
        while peek(data, position) == COMMA:
            position = skip_blank(data, position + 1)
            if peek(data, position) != QUOTE:
                return -ERROR, 0
            start, length, position = read_text(data, position + 1, state)
            if position < 0:
                return position, 0
            status = remember_name(walk.names, hash_text(data, start, length), instance, state)
            if status != 0 or _member(data, start, length) in (_RECORD, _RECORDS):
                return -max(status, ERROR), 0
            position = skip_blank(data, position)
            if peek(data, position) != COLON:
                return -ERROR, 0
            position = skip_json(data, skip_blank(data, position + 1), walk.names, walk.stack, state)
            if position < 0:
                return position, 0
            position = skip_blank(data, position)
    return (position + 1, 0) if peek(data, position) == CLOSE_OBJECT else (-ERROR, 0)
