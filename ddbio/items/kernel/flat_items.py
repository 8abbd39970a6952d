"""Print items, or images of changes, as members of plain JSON: those of the key first, then others of the new image.

What is read is JSON that the loops have written: attribute values without white space or needless escapes.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.lines import end_of_compact, end_of_text
from ddbio.items.kernel.memory import PAD, copy_bytes, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import LONGEST_NUMBER, canonicalise_number
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.items.kernel.text import QUOTE, same_text

if TYPE_CHECKING:
    import numpy.typing as npt

REFUSED, NO_ROOM = -1, -2
MEMBER_WORDS, LEAST_MEMBER_BYTES = 3, 11
"""What is kept of a member, and its fewest bytes: ``"":{"S":""}``."""
_LEVELS = 128
_LETTER_S, _LETTER_N, _LETTER_B = ord("S"), ord("N"), ord("B")
_LETTER_M, _LETTER_O, _LETTER_U = ord("M"), ord("O"), ord("U")
_TRUE = ord("t")
# What opens a value of one letter, {"S":, and those of two and four.
_OPENING, _SET_OPENING, _LONG_OPENING = 5, 6, 8
_WORDS = np.frombuffer(bytearray(b"null".ljust(PAD, b"\0")), np.uint8)


class Images(NamedTuple):
    """Hold images of changes, and what is printed of them.

    Attributes
    ----------
    data, offsets
        The images of each change, side by side, padded, and where they begin and end; a row may have none.
    has_new
        Whether a new image follows the key.
    out, ends
        The members, padded, and where those of each change end.
    members
        Room for the places of an image's members, ``MEMBER_WORDS`` each.
    digits
        Room for the digits of a number.
    levels
        Room for what a value is in.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    has_new: npt.NDArray[np.bool_]
    out: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    levels: npt.NDArray[np.int64]


def flat_members(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], has_new: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None:
    """Return the members of each change, without braces, and where each one's end; None if a number is none.

    Parameters
    ----------
    data, offsets, has_new
        As for :class:`Images`; ``data`` needs no padding.
    """
    padded = np.zeros(len(data) + PAD, np.uint8)
    padded[: len(data)] = data
    longest = int(np.diff(offsets).max(initial=0))
    room, ends = len(data) + LONGEST_NUMBER, np.zeros(len(has_new), np.int64)
    members = np.zeros((longest // LEAST_MEMBER_BYTES + 1) * MEMBER_WORDS, np.int64)
    while True:
        out = np.empty(room + PAD, np.uint8)
        digits, levels = np.zeros(LONGEST_NUMBER + PAD, np.uint8), np.zeros(_LEVELS, np.int64)
        images = Images(padded, offsets, has_new, out, ends, members, digits, levels)
        status = int(print_members(images, len(has_new), room))
        if status != NO_ROOM:
            return None if status == REFUSED else (out[:status], ends)
        # A number may be shorter with an exponent than without.
        room *= 2


@loop
def print_members(images: Any, n_rows: int, room: int) -> Any:
    """Print the members of every change; return the bytes, or ``REFUSED`` or ``NO_ROOM``."""
    return _print_members(pointers(images), n_rows, room)


@inner
def _print_members(w: Any, n_rows: int, room: int) -> Any:
    at = 0
    for row in range(n_rows):
        place, begin = peek(w.offsets, row), at
        if place == peek(w.offsets, row + 1):
            # A row that is no item.
            poke(w.ends, row, at)
            continue
        end = end_of_compact(w.data, place)
        n_new = _find_members(w, end) if peek(w.has_new, row) else 0
        while peek(w.data, place + 1) == QUOTE:
            name, stop = place + 1, end_of_text(w.data, place + 2) + 2
            value, place = stop, end_of_compact(w.data, stop)
            for index in range(n_new):
                member = index * MEMBER_WORDS
                start = peek(w.members, member)
                length = peek(w.members, member + 1) - start
                if length == stop - name and same_text(w.data, start, w.data, name, length):
                    # The new image has it, too.
                    value = peek(w.members, member + 1)
                    poke(w.members, member + 2, 1)
                    break
            at = _print_member(w, at, name, stop, value, room)
            if at < 0:
                return at
        for index in range(n_new):
            member = index * MEMBER_WORDS
            if not peek(w.members, member + 2):
                stop = peek(w.members, member + 1)
                at = _print_member(w, at, peek(w.members, member), stop, stop, room)
                if at < 0:
                    return at
        # No comma follows the last.
        at -= at > begin
        poke(w.ends, row, at)
    return at


@inner
def _find_members(w: Any, place: int) -> Any:
    """Note where the members of the object at ``place`` begin, and where their values do; return how many."""
    count = 0
    while peek(w.data, place + 1) == QUOTE:
        member = count * MEMBER_WORDS
        stop = end_of_text(w.data, place + 2) + 2
        poke(w.members, member, place + 1)
        poke(w.members, member + 1, stop)
        poke(w.members, member + 2, 0)
        place = end_of_compact(w.data, stop)
        count += 1
    return count


@inner
def _print_member(w: Any, at: int, name: int, stop: int, value: int, room: int) -> Any:
    """Print a name with its colon, a value and a comma; return the place after them."""
    if at + stop - name > room:
        return NO_ROOM
    at = _print_value(w, copy_bytes(w.out, at, w.data, name, stop - name), value, room)
    if at >= 0:
        poke(w.out, at, COMMA)
        at += 1
    return at


@inner
def _print_number(w: Any, at: int, place: int, stop: int) -> Any:
    at, _ = canonicalise_number(w.out, at, w.data, place, stop - place, w.digits)
    return at


@inner
def _print_value(w: Any, at: int, place: int, room: int) -> Any:
    """Print the attribute value at ``place``; return the place after it in the output."""
    out_of_line()
    data, depth, has_name = w.data, 0, False
    while True:
        if has_name:
            stop = end_of_text(data, place + 1) + 2
            if at + stop - place > room:
                return NO_ROOM
            at = copy_bytes(w.out, at, data, place, stop - place)
            place = stop
        if at + LONGEST_NUMBER + 2 > room:
            return NO_ROOM
        # An attribute value: {"S":…
        tag, second = peek(data, place + 2), peek(data, place + 3)
        if second != QUOTE:
            is_null = second == _LETTER_U
            if is_null or second == _LETTER_O:
                place += _LONG_OPENING
                length = 4 if peek(data, place) == _TRUE else 5
                at = copy_bytes(w.out, at, _WORDS, 0, 4) if is_null else copy_bytes(w.out, at, data, place, length)
                place += length
            else:
                place += _SET_OPENING
                poke(w.out, at, OPEN_ARRAY)
                at += 1
                while peek(data, place + 1) == QUOTE:
                    begin = place + 1
                    place = end_of_text(data, begin + 1) + 1
                    if at + place - begin + LONGEST_NUMBER + 2 > room:
                        return NO_ROOM
                    if tag == _LETTER_N:
                        at = _print_number(w, at, begin + 1, place - 1)
                        if at < 0:
                            return REFUSED
                    else:
                        at = copy_bytes(w.out, at, data, begin, place - begin)
                    poke(w.out, at, COMMA)
                    at += 1
                # No comma follows the last.
                at -= peek(w.out, at - 1) == COMMA
                poke(w.out, at, CLOSE_ARRAY)
                at += 1
                place += 1 + (peek(data, place) == OPEN_ARRAY)
        elif tag in (_LETTER_S, _LETTER_B):
            place += _OPENING
            stop = end_of_text(data, place + 1) + 1
            if at + stop - place > room:
                return NO_ROOM
            at = copy_bytes(w.out, at, data, place, stop - place)
            place = stop
        elif tag == _LETTER_N:
            place += _OPENING + 1
            stop = end_of_text(data, place)
            at = _print_number(w, at, place, stop)
            if at < 0:
                return REFUSED
            place = stop + 1
        else:
            place += _OPENING
            is_map = tag == _LETTER_M
            opening = OPEN_OBJECT if is_map else OPEN_ARRAY
            poke(w.out, at, opening)
            at += 1
            place += 1
            if peek(data, place) not in (CLOSE_OBJECT, CLOSE_ARRAY):
                if depth == _LEVELS:
                    return REFUSED
                poke(w.levels, depth, np.int64(is_map))
                depth += 1
                has_name = is_map
                continue
            poke(w.out, at, peek(data, place))
            at += 1
            place += 1
        # A value's content has ended: close what closes with it.
        while True:
            place += 1
            if depth == 0:
                return at
            byte = peek(data, place)
            poke(w.out, at, byte)
            at += 1
            place += 1
            if byte == COMMA:
                has_name = peek(w.levels, depth - 1) != 0
                break
            depth -= 1
