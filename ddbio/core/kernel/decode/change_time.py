"""Read when a change was written, in an export's way and in a stream's; refuses what the plain reader might read.

A time of a stream is kept as its digits and a power of ten until all is known that scales it.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import load64, peek
from ddbio.core.kernel.number import MINUS, POINT, ZERO, read_digits
from ddbio.core.kernel.skip import CLOSE_OBJECT, COLON, OPEN_OBJECT
from ddbio.core.kernel.state import ERROR, TIME, TIME_POWER
from ddbio.core.kernel.text import QUOTE, read_text, same_text, skip_blank


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


_TIME_NAME = b"WriteTimestampMicros"
_TIME_START, _TIME_MIDDLE, _TIME_END = _word(_TIME_NAME[:8]), _word(_TIME_NAME[8:16]), _word(_TIME_NAME[16:])
_TIME_LENGTH = len(_TIME_NAME)
_FOUR_BYTES = 0xFFFFFFFF
_LETTER_N = ord("N")
_MAX_DIGITS = 18
# As many are the same in a double's shortest text.
_MAX_DOUBLE_DIGITS = 15
_LARGEST_EXPONENT, _TEN = np.uint64(30), np.uint64(10)
_SECONDS_POWER = 6
_LARGEST = (1 << 63) // 10 - 1
_EXPONENTS = (ord("e"), ord("E"))
_PLUS = ord("+")
_UNITS = np.frombuffer(bytearray(b"MILLISECONDMICROSECOND"), np.uint8)
_UNIT_LENGTH = len("MICROSECOND")


@inner
def read_time(data: Any, place: int, state: Any) -> Any:
    """Read a JSON number; return the place after it, or a negative status."""
    negative = peek(data, place) == MINUS
    first = place + negative
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
def read_precision(data: Any, place: int, state: Any) -> Any:
    """Read the unit of a time, where it is not the second; return the place after its name, or a negative status."""
    if peek(data, place) != QUOTE:
        return -ERROR
    start, length, place = read_text(data, place + 1, state)
    if place >= 0 and length == _UNIT_LENGTH:
        if same_text(data, start, _UNITS, 0, length):
            state[TIME_POWER] -= 3
        elif same_text(data, start, _UNITS, length, length):
            state[TIME_POWER] -= 6
    return place


@inner
def scaled_time(state: Any) -> Any:
    """Return the microseconds of a stream's time, cut to whole ones, and whether they fit 64 bits."""
    time, power = state[TIME], _SECONDS_POWER + state[TIME_POWER]
    magnitude = -time if time < 0 else time
    for _ in range(power):
        if magnitude > _LARGEST:
            return 0, False
        magnitude *= 10
    for _ in range(-power):
        magnitude //= 10
    return (-magnitude if time < 0 else magnitude), True


@inner
def _behind_colon(data: Any, place: int) -> Any:
    place = skip_blank(data, place)
    return skip_blank(data, place + 1) if peek(data, place) == COLON else -ERROR


@inner
def read_metadata(data: Any, place: int, state: Any) -> Any:
    """Return the time that a line's metadata holds and nothing else, and the place after it."""
    if peek(data, place) != OPEN_OBJECT:
        return 0, -ERROR
    place = skip_blank(data, place + 1)
    if peek(data, place) != QUOTE:
        return 0, -ERROR
    start, length, place = read_text(data, place + 1, state)
    if place < 0:
        return 0, place
    if (
        length != _TIME_LENGTH
        or np.int64(load64(data, start)) != _TIME_START
        or np.int64(load64(data, start + 8)) != _TIME_MIDDLE
        or np.int64(load64(data, start + 16)) & _FOUR_BYTES != _TIME_END
    ):
        return 0, -ERROR
    place = _behind_colon(data, place)
    if place < 0:
        return 0, place
    is_tagged = peek(data, place) == OPEN_OBJECT
    if is_tagged:
        place = skip_blank(data, place + 1)
        if peek(data, place) != QUOTE or peek(data, place + 1) != _LETTER_N or peek(data, place + 2) != QUOTE:
            return 0, -ERROR
        place = _behind_colon(data, place + 3)
        if place < 0:
            return 0, place
    time, place = _read_microseconds(data, place, is_tagged)
    if place < 0:
        return 0, place
    if is_tagged:
        place = skip_blank(data, place)
        if peek(data, place) != CLOSE_OBJECT:
            return 0, -ERROR
        place += 1
    place = skip_blank(data, place)
    return (time, place + 1) if peek(data, place) == CLOSE_OBJECT else (0, -ERROR)


@inner
def _read_microseconds(data: Any, place: int, is_tagged: bool) -> Any:  # noqa: FBT001 - compiled code
    is_text = peek(data, place) == QUOTE
    if is_tagged and not is_text:
        return 0, -ERROR
    place += is_text
    negative = peek(data, place) == MINUS
    first = place + negative
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
