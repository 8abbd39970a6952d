"""Walk the members of change lines and of stream records, in any order; refuses what is not exactly one change.

A line is a change of an incremental export, a stream record, or a body whose ``Records`` are stream records.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.decode.change_time import read_metadata, read_precision, read_time, scaled_time
from ddbio.core.kernel.memory import out_of_line, peek, poke
from ddbio.core.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT, remember_name
from ddbio.core.kernel.skip_json import is_null, skip_json
from ddbio.core.kernel.state import (
    AROUND,
    CHANGE_INSTANCE,
    CHANGE_MEMBERS,
    DELETED,
    ERROR,
    INSTANCE,
    KEYS,
    NEW_IMAGE,
    OLD_IMAGE,
    RECORDS_FIRST,
    RECORDS_LATER,
    TIME,
    TIME_POWER,
    WRITE_TIME,
)
from ddbio.core.kernel.text import QUOTE, hash_text, read_text, same_text, skip_blank

# What members are called, by their numbers, which for time and images are those of their nodes.
_NAMES = (
    *(b"", b"Metadata", b"Keys", b"NewImage", b"OldImage", b"dynamodb", b"eventName", b"Records"),
    *(b"ApproximateCreationDateTime", b"ApproximateCreationDateTimePrecision"),
)
_RECORD, _EVENT, _RECORDS, _CREATED, _PRECISION = 5, 6, 7, 8, 9
_TEXTS = np.frombuffer(bytearray(b"".join(_NAMES)), np.uint8)
_LENGTHS = np.array([len(name) for name in _NAMES], np.int64)
_PLACES = np.cumsum(_LENGTHS) - _LENGTHS
_REMOVE = np.frombuffer(bytearray(b"REMOVE"), np.uint8)

# What is known of a change beside the members it has.
_HAS_OTHERS, _IS_EXPORTED, _IS_REMOVED, _IS_WITHIN = 1 << 0, 1 << 16, 1 << 17, 1 << 18
_EXPORTED_NEEDS = 1 << WRITE_TIME | 1 << KEYS
_RECORD_NEEDS = 1 << _CREATED | 1 << KEYS


@inner
def next_image(work: Any, place: int, row: int, inside: int) -> Any:
    """Return where the next image begins and its node; or where it goes on behind the change, and what is around it.

    The third value is whether a change has ended.
    """
    out_of_line()
    data, state = work.data, work.state
    is_behind = inside > 0
    if not is_behind:
        if peek(data, place) != OPEN_OBJECT:
            return -ERROR, 0, False
        state[INSTANCE] += 2
        state[CHANGE_INSTANCE] = state[INSTANCE] - 1
        state[CHANGE_MEMBERS], state[AROUND], state[TIME_POWER] = 0, inside, 0
        place = skip_blank(data, place + 1)
    while True:
        members = state[CHANGE_MEMBERS]
        if is_behind:
            place = skip_blank(data, place)
            byte = peek(data, place)
            if byte == CLOSE_OBJECT:
                if members & _IS_WITHIN == 0:
                    return _end_change(work, place + 1, row)
                if members & _RECORD_NEEDS != _RECORD_NEEDS:
                    return -ERROR, 0, False
                state[CHANGE_MEMBERS] = members & ~_IS_WITHIN
                place += 1
                continue
            if byte != COMMA:
                return -ERROR, 0, False
            place = skip_blank(data, place + 1)
        is_behind = True
        if peek(data, place) != QUOTE:
            return -ERROR, 0, False
        start, length, place = read_text(data, place + 1, state)
        if place < 0:
            return place, 0, False
        member = _member(data, start, length)
        place = skip_blank(data, place)
        if peek(data, place) != COLON:
            return -ERROR, 0, False
        place = skip_blank(data, place + 1)
        is_within = members & _IS_WITHIN != 0
        # Names of the other level are any other names.
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
                poke(work.valid, peek(work.valid_place, member) + row, 1)
                return place, member, False
            time, place = read_metadata(data, place, state)
            state[TIME] = time
        elif member == _RECORD:
            if members & _IS_EXPORTED or peek(data, place) != OPEN_OBJECT:
                return -ERROR, 0, False
            state[CHANGE_MEMBERS] |= _IS_WITHIN
            place = skip_blank(data, place + 1)
            is_behind = False
        elif member == _EVENT:
            place = _read_event(data, place, state)
        elif member == _RECORDS:
            return _enter_records(work, place, members)
        elif member == _CREATED:
            place = read_time(data, place, state)
        elif member == _PRECISION:
            place = read_precision(data, place, state)
        else:
            instance = state[CHANGE_INSTANCE] + is_within
            status = remember_name(work.seen_names, hash_text(data, start, length), instance, state)
            if status != 0:
                return -status, 0, False
            place = skip_json(work, place)
        if place < 0:
            return place, 0, False


@inner
def _member(data: Any, start: int, length: int) -> Any:
    for member in range(1, len(_LENGTHS)):
        if _LENGTHS[member] == length and same_text(data, start, _TEXTS, _PLACES[member], length):
            return member
    return 0


@inner
def _read_event(data: Any, place: int, state: Any) -> Any:
    """Read what has happened; null is as no event at all."""
    if is_null(data, place):
        state[CHANGE_MEMBERS] = state[CHANGE_MEMBERS] & ~(1 << _EVENT) | _HAS_OTHERS
        return place + 4
    if peek(data, place) != QUOTE:
        return -ERROR
    start, length, place = read_text(data, place + 1, state)
    if place >= 0 and length == len(_REMOVE) and same_text(data, start, _REMOVE, 0, length):
        state[CHANGE_MEMBERS] |= _IS_REMOVED
    return place


@inner
def _end_change(work: Any, place: int, row: int) -> Any:
    state = work.state
    members = state[CHANGE_MEMBERS]
    is_deleted = members >> NEW_IMAGE & 1 == 0
    if members >> _RECORD & 1:
        if members & _IS_EXPORTED:
            return -ERROR, 0, False
        is_deleted = members & _IS_REMOVED != 0 or (members >> _EVENT & 1 == 0 and is_deleted)
        time, is_whole = scaled_time(state)
        if not is_whole:
            return -ERROR, 0, False
    else:
        lacks = members & _EXPORTED_NEEDS != _EXPORTED_NEEDS
        if lacks or members & (_HAS_OTHERS | 1 << _EVENT) or state[AROUND] < 0:
            return -ERROR, 0, False
        time = state[TIME]
    poke(work.valid, peek(work.valid_place, WRITE_TIME) + row, 1)
    poke(work.values, peek(work.value_place, WRITE_TIME) + row, time)
    poke(work.valid, peek(work.valid_place, DELETED) + row, 1)
    poke(work.values, peek(work.value_place, DELETED) + row, np.int64(is_deleted))
    if state[AROUND] == 0:
        return place, 0, True
    place, around = _behind_record(work, place)
    return place, around, True


@inner
def _enter_records(work: Any, place: int, members: int) -> Any:
    """Return where the first record begins, and what is around it; other members may only precede or only follow."""
    data, state = work.data, work.state
    if state[AROUND] < 0 or members & ~_HAS_OTHERS or peek(data, place) != OPEN_ARRAY:
        return -ERROR, 0, False
    around = RECORDS_LATER if members else RECORDS_FIRST
    place = skip_blank(data, place + 1)
    if peek(data, place) == CLOSE_ARRAY:
        place, around = _end_records(work, place, around)
    return place, around, False


@inner
def _behind_record(work: Any, place: int) -> Any:
    """Return where the next record begins, or the next line, and what is around it."""
    data, state = work.data, work.state
    place = skip_blank(data, place)
    if peek(data, place) == COMMA:
        return skip_blank(data, place + 1), state[AROUND]
    if peek(data, place) != CLOSE_ARRAY:
        return -ERROR, 0
    return _end_records(work, place, state[AROUND])


@inner
def _end_records(work: Any, place: int, around: int) -> Any:
    """Return the place behind the body whose records end at ``place``, and 0."""
    data, state = work.data, work.state
    place = skip_blank(data, place + 1)
    if around == RECORDS_FIRST:
        state[INSTANCE] += 1
        instance = state[INSTANCE]
        while peek(data, place) == COMMA:
            place = skip_blank(data, place + 1)
            if peek(data, place) != QUOTE:
                return -ERROR, 0
            start, length, place = read_text(data, place + 1, state)
            if place < 0:
                return place, 0
            status = remember_name(work.seen_names, hash_text(data, start, length), instance, state)
            if status != 0 or _member(data, start, length) in (_RECORD, _RECORDS):
                return -max(status, ERROR), 0
            place = skip_blank(data, place)
            if peek(data, place) != COLON:
                return -ERROR, 0
            place = skip_json(work, skip_blank(data, place + 1))
            if place < 0:
                return place, 0
            place = skip_blank(data, place)
    return (place + 1, 0) if peek(data, place) == CLOSE_OBJECT else (-ERROR, 0)
