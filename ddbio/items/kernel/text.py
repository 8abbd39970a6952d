"""JSON strings: their ends, escapes and hashes, and the validation of UTF-8.

Control characters and unpaired surrogates are refused, as in the plain reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.items.kernel.codes import ERROR, GROW_UNESCAPED, UNESCAPED, UNESCAPED_END
from ddbio.items.kernel.jit import inner, int64, loop, uint8
from ddbio.items.kernel.memory import (
    PAD,
    copy32,
    is_ascii35,
    is_utf8_32,
    load64,
    lowest_bit,
    mark32,
    out_of_line,
    peek,
    poke,
    special32,
)

QUOTE, BACKSLASH = ord('"'), ord("\\")
_SPACE, _TAB, _NEWLINE, _RETURN = ord(" "), ord("\t"), ord("\n"), ord("\r")
_ESCAPES = np.zeros(128, dtype=np.uint8)
for _letter, _character in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _character
_UNICODE = ord("u")
# The letter after the backslash, for each byte that JSON must escape.
_LETTERS = np.zeros(256, dtype=np.uint8)
_LETTERS[:32] = _UNICODE
for _letter, _character in zip(b'"\\bfnrt', b'"\\\b\f\n\r\t', strict=True):
    _LETTERS[_character] = _letter
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_LONGEST_STEP = 40
_WORD_BYTES = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
HASH_HIGH_BITS = 40
_HASH_SHIFT = np.uint64(29)


@inner
def skip_blank(data: Any, position: int) -> Any:
    """Return the first position without white space."""
    while True:
        byte = peek(data, position)
        if byte not in (_SPACE, _NEWLINE, _RETURN, _TAB):
            return position
        position += 1


@inner
def text_end(data: Any, position: int) -> Any:
    """Return the position of the first quote, backslash or control character."""
    while True:
        step = special32(data, position)
        position += step
        if step < 32:  # noqa: PLR2004 - the width of a step
            return position


@inner
def marked_end(marks: Any, position: int) -> Any:
    """Do the same as ``text_end``, using the marks of the data."""
    byte, bits = position >> 3, load64(marks, position >> 3) >> np.uint64(position & 7)
    if bits != 0:
        return position + lowest_bit(bits)
    while True:
        byte += _WORD_BYTES
        bits = load64(marks, byte)
        if bits != 0:
            return (byte << 3) + lowest_bit(bits)


@inner
def read_text(data: Any, position: int, state: Any) -> Any:
    """Return the position and the length of an unescaped text, and the position after its quote.

    The last one is a negative status if the text is refused. A text with escapes is first written without them to the
    space before the data.
    """
    stop = text_end(data, position)
    if peek(data, stop) == QUOTE:
        return position, stop - position, stop + 1
    return _read_escaped(data, position, stop, state)


@inner
def _read_escaped(data: Any, position: int, stop: int, state: Any) -> Any:
    out_of_line()
    target = state[UNESCAPED]
    start = target
    while True:
        # The bytes before ``stop`` have no escapes.
        while position < stop:
            if target + _LONGEST_STEP > state[UNESCAPED_END]:
                return 0, 0, -GROW_UNESCAPED
            copy32(data, target, data, position)
            step = min(stop - position, 32)
            target += step
            position += step
        byte = peek(data, position)
        if byte == QUOTE:
            state[UNESCAPED] = target
            return start, target - start, position + 1
        if byte != BACKSLASH:
            return 0, 0, -ERROR
        if target + _LONGEST_STEP > state[UNESCAPED_END]:
            return 0, 0, -GROW_UNESCAPED
        position, target = _unescape(data, position + 1, target)
        if position < 0:
            return 0, 0, position
        stop = text_end(data, position)


@inner
def _unescape(data: Any, position: int, target: int) -> Any:
    letter = peek(data, position)
    if letter != _UNICODE:
        character = _ESCAPES[letter] if letter < 128 else 0  # noqa: PLR2004 - ASCII
        if character == 0:
            return -ERROR, target
        poke(data, target, character)
        return position + 1, target + 1
    code = _hexadecimal(data, position + 1)
    position += 5
    if 0xD800 <= code < 0xDC00:  # noqa: PLR2004 - the first half of a surrogate pair
        low = -1
        if peek(data, position) == BACKSLASH and peek(data, position + 1) == _UNICODE:
            low = _hexadecimal(data, position + 2)
        if not 0xDC00 <= low < 0xE000:  # noqa: PLR2004 - the second half
            return -ERROR, target
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        position += 6
    elif code < 0 or 0xDC00 <= code < 0xE000:  # noqa: PLR2004 - as above
        return -ERROR, target
    return position, _put_utf8(data, target, code)


@inner
def canonical_json(data: Any, position: int, stop: int, state: Any) -> Any:
    """Return the begin and the end of JSON text without white space between tokens and needless escapes.

    Text that has them is written without them to the space before the data. The text must be valid JSON. The end is a
    negative status if the space is too small.
    """
    if _is_canonical(data, position, stop):
        return position, stop
    return _write_canonical(data, position, stop, state)


@inner
def _is_canonical(data: Any, position: int, stop: int) -> Any:
    while position < stop:
        byte = peek(data, position)
        if byte <= _SPACE:
            return False
        position += 1
        if byte == QUOTE:
            position = text_end(data, position) + 1
            if peek(data, position - 1) != QUOTE:
                return False
    return True


@inner
def _write_canonical(data: Any, position: int, stop: int, state: Any) -> Any:
    out_of_line()
    # The canonical spelling of a character is never longer than another one.
    start = at = state[UNESCAPED]
    if start + stop - position + PAD > state[UNESCAPED_END]:
        return 0, -GROW_UNESCAPED
    inside = False
    while position < stop:
        byte = peek(data, position)
        if byte == BACKSLASH:
            position, after = _unescape(data, position + 1, at)
            at = _escape(data, at) if after == at + 1 else after
            continue
        if byte == QUOTE:
            inside = not inside
        if inside or byte > _SPACE:
            poke(data, at, byte)
            at += 1
        position += 1
    state[UNESCAPED] = at
    return start, at


@inner
def _escape(data: Any, at: int) -> Any:
    """Escape the byte at ``at`` if JSON requires that in a text; return the position after it."""
    byte = peek(data, at)
    letter = _LETTERS[byte]
    if letter == 0:
        return at + 1
    poke(data, at, BACKSLASH)
    poke(data, at + 1, letter)
    if letter != _UNICODE:
        return at + 2
    poke(data, at + 2, _HEXADECIMAL[0])
    poke(data, at + 3, _HEXADECIMAL[0])
    poke(data, at + 4, _HEXADECIMAL[byte >> 4])
    poke(data, at + 5, _HEXADECIMAL[byte & 15])
    return at + 6


@inner
def _hexadecimal(data: Any, position: int) -> Any:
    code = 0
    for index in range(position, position + 4):
        byte = peek(data, index)
        if 48 <= byte <= 57:  # noqa: PLR2004 - 0 to 9
            digit = byte - 48
        elif 97 <= (byte | 32) <= 102:  # noqa: PLR2004 - a to f, A to F
            digit = (byte | 32) - 87
        else:
            return -1
        code = code * 16 + digit
    return code


@inner
def _put_utf8(data: Any, target: int, code: int) -> Any:
    if code < 0x80:  # noqa: PLR2004 - one byte
        poke(data, target, code)
        return target + 1
    if code < 0x800:  # noqa: PLR2004 - two bytes
        poke(data, target, 0xC0 | code >> 6)
    else:
        if code < 0x10000:  # noqa: PLR2004 - three bytes
            poke(data, target, 0xE0 | code >> 12)
        else:
            poke(data, target, 0xF0 | code >> 18)
            target += 1
            poke(data, target, 0x80 | code >> 12 & 0x3F)
        target += 1
        poke(data, target, 0x80 | code >> 6 & 0x3F)
    target += 1
    poke(data, target, 0x80 | code & 0x3F)
    return target + 1


@inner
def hash_text(data: Any, position: int, length: int) -> Any:
    """Return a 64-bit hash of a text."""
    value = np.uint64(length) * _MULTIPLIER
    while length > 0:
        word = load64(data, position)
        if length < _WORD_BYTES:
            word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        value = (value ^ word) * _MULTIPLIER
        value ^= value >> _HASH_SHIFT
        position += 8
        length -= 8
    return value


def hash_text_plainly(text: bytes) -> int:
    """Return the result of ``hash_text``, in plain Python."""
    mask, multiplier = (1 << 64) - 1, int(_MULTIPLIER)
    value = len(text) * multiplier & mask
    for offset in range(0, len(text), 8):
        value = (value ^ int.from_bytes(text[offset : offset + 8], "little")) * multiplier & mask
        value ^= value >> int(_HASH_SHIFT)
    return value


@inner
def same_text(data: Any, position: int, other: Any, start: int, length: int) -> Any:
    """Return whether two ranges of bytes are equal."""
    for index in range(length):  # noqa: SIM110 - compiled code has no generators
        if peek(data, position + index) != peek(other, start + index):
            return False
    return True


# The bytes that are checked per step, and the bytes before them that affect the result.
_STEP, _BEFORE = 32, 3


def is_utf8(body: bytes | memoryview | npt.NDArray[np.uint8]) -> bool:
    """Return whether the bytes are UTF-8."""
    data = np.frombuffer(body, np.uint8)
    # The loop is compiled for read-only arrays.
    data.flags.writeable = False
    return bool(check_utf8(data, np.zeros(PAD + _STEP, np.uint8)))


def load_utf8(body: Any, target: npt.NDArray[np.uint8], at: int, marks: npt.NDArray[np.uint8]) -> bool:
    """Copy the bytes to a multiple of eight, append ``PAD`` quotes, and mark the bytes that end a text.

    Return whether the bytes are UTF-8: if not, the copy may be incomplete.
    """
    data = np.frombuffer(body, np.uint8)
    data.flags.writeable = False
    return bool(check_and_mark_utf8(data, np.zeros(PAD + _STEP, np.uint8), target, at, marks))


@loop(uint8[:], uint8[:])
def check_utf8(data: Any, edge: Any) -> Any:
    """Return whether ``data`` is UTF-8.

    Parameters
    ----------
    edge
        Zeros. The first and the last bytes of the data are copied to it, so that nothing is read outside of both
        arrays.
    """
    return _check_utf8(data, edge, None, 0, None)


@loop(uint8[:], uint8[:], uint8[:], int64, uint8[:])
def check_and_mark_utf8(data: Any, edge: Any, target: Any, at: int, marks: Any) -> Any:
    """Copy ``data`` while it is UTF-8, and mark the bytes that end a text; return whether all of it is UTF-8."""
    return _check_utf8(data, edge, target, at, marks)


@inner
def _check_utf8(data: Any, edge: Any, target: Any, at: int, marks: Any) -> Any:
    """Check, and copy and mark if ``target`` is not None."""
    length = len(data)
    position = min(length, _STEP)
    for index in range(position):
        edge[_BEFORE + index] = data[index]
    if not is_utf8_32(edge, _BEFORE):
        return False
    while position + _STEP <= length:
        if target is not None:
            copy32(target, at + position, data, position)
            mark32(data, position, marks, (at + position) >> 3)
        if not is_ascii35(data, position) and not is_utf8_32(data, position):
            return False
        position += _STEP
    if target is not None:
        _copy_edges(data, target, at, position, marks)
    # At least one zero follows the data: it ends an incomplete character.
    for index in range(_BEFORE + _STEP):
        at = position - _BEFORE + index
        edge[index] = data[at] if 0 <= at < length else 0
    return is_utf8_32(edge, _BEFORE)


@inner
def _copy_edges(data: Any, target: Any, at: int, position: int, marks: Any) -> None:
    """Copy and mark the first and the last bytes, and append quotes."""
    out_of_line()
    length = len(data)
    for index in range(min(length, _STEP)):
        poke(target, at + index, data[index])
    for index in range(position, length):
        poke(target, at + index, data[index])
    for index in range(length, length + PAD):
        poke(target, at + index, QUOTE)
    mark32(target, at, marks, at >> 3)
    for index in range(position // _STEP * _STEP, length + _STEP, _STEP):
        mark32(target, at + index, marks, (at + index) >> 3)


NOT_UTF8 = "the text is not UTF-8"
_FIRST_BITS, _CONTINUATION = 0xC0, 0x80


def broken_texts(array: Any, offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> list[int]:
    """Return the numbers of the entries that are not UTF-8.

    Parameters
    ----------
    array
        An array of texts with offsets.
    offsets
        The offsets of the entries.
    data
        All bytes of the texts, from the first offset on.
    """
    if not len(data) or data.view(np.int8).min() >= 0:
        return []
    starts = offsets[: np.searchsorted(offsets, offsets[-1])] - offsets[0]
    # Adjacent texts are all UTF-8 if their bytes together are, and no text begins with a continuation byte.
    if is_utf8(data) and not (data[starts] & _FIRST_BITS == _CONTINUATION).any():
        return []
    texts = array.cast(pa.large_binary()).to_pylist()
    return [entry for entry, text in enumerate(texts) if text is not None and not _is_utf8(text)]


def _is_utf8(text: bytes) -> bool:
    # Python's own check is faster for one short text.
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
