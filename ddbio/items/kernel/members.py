"""Search of a few members at any level of JSON, without parsing it, and of a few texts.

A member is found by the bytes before its value: its name and the quote that opens a text. Quotes within texts are
escaped, so other bytes do not match. A value with escapes is refused, and so is text that is not JSON. Values in base64
are decoded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.items.kernel import memory
from ddbio.items.kernel.base64 import PAIRS, decode_whole_base64, decoded_length
from ddbio.items.kernel.jit import inner, int64, loop
from ddbio.items.kernel.memory import PAD, copy_bytes, equal32, load64, lowest_bit, peek, pointers, poke
from ddbio.items.kernel.text import QUOTE, same_text, text_end

_STEP, _WORD, _NEWLINE = 32, 8, ord("\n")
# The last letters of the name and the punctuation at the end of an opening.
_LETTERS, _SIGNS = 5, 3
_QUOTE_AND_COLON = np.frombuffer(b'"' * _STEP + b":" * _STEP, np.uint8)
NO_BASE64 = -1


class _Walk(NamedTuple):
    """Arrays of a walk; the first three are padded, and so is each part of ``values``."""

    data: npt.NDArray[np.uint8]
    openings: npt.NDArray[np.uint8]
    values: npt.NDArray[np.uint8]
    signs: npt.NDArray[np.uint8]
    pairs: npt.NDArray[np.uint16]
    words: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    capacities: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]


class Openings:
    """Names of members to search for, with the JSON before their values.

    Parameters
    ----------
    names
        The names of the members.
    base64
        The index of the member that is in base64, or ``NO_BASE64``.
    """

    def __init__(self, names: tuple[bytes, ...], base64: int = NO_BASE64) -> None:
        texts = [b'"' + name + b'":"' for name in names]
        self.base64, self.min_length = base64, min(map(len, texts))
        self.lengths = np.array([len(text) for text in texts], np.int64)
        width = int(self.lengths.max())
        self.texts = np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts) + bytes(PAD), np.uint8)
        lasts = [text[-_LETTERS - _SIGNS :] for text in texts]
        self.words = np.array([int.from_bytes(last, "little", signed=True) for last in lasts], np.int64)

    def find(self, text: bytes | bytearray | memoryview) -> list[Any] | None:
        """Return the values of each member as an array of texts, or of decoded bytes; None if a value is refused.

        Decoded values are followed by a line end each, which belongs to the value.
        """
        source = np.frombuffer(text, np.uint8)
        size = len(source)
        data = memory.allocate(size + PAD)
        data[:size], data[size:] = source, QUOTE
        capacities = np.full(len(self.words), size, np.int64)
        if self.base64 >= 0:
            capacities[self.base64] = size * 3 // 4
        starts = np.cumsum(capacities + PAD) - capacities - PAD
        max_values = size // self.min_length + 2
        values = memory.allocate(int(capacities.sum()) + PAD * len(capacities))
        ends, counts = np.zeros(max_values * len(capacities), np.int32), np.zeros(len(capacities), np.int64)
        walk = _Walk(
            data,
            self.texts,
            values,
            _QUOTE_AND_COLON,
            PAIRS,
            self.words,
            self.lengths,
            starts,
            capacities,
            ends,
            counts,
        )
        if find_members(walk, size, max_values, self.base64) < 0:
            return None
        matches = [
            (values[start:], ends[member * max_values :][: count + 1].copy())
            for member, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True))
        ]
        try:
            return [_array(*parts, is_text=member != self.base64) for member, parts in enumerate(matches)]
        except pa.ArrowInvalid:
            # A text is not UTF-8.
            return None


class _Search(NamedTuple):
    """Arrays of a search: two characters of each opening, repeated, and the texts that begin with each of them."""

    data: npt.NDArray[np.uint8]
    signs: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    masks: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]


class Marks:
    """Set of texts to search for in another text, in a single pass over it.

    Parameters
    ----------
    *texts
        From 2 to 32 bytes each.
    """

    def __init__(self, *texts: bytes) -> None:
        # Texts with the same first two bytes share one comparison.
        ordered = sorted(texts)
        self._texts, openings = ordered, sorted({text[:2] for text in ordered})
        signs = b"".join(bytes([sign]) * _STEP for opening in openings for sign in opening)
        bounds = [0, *(sum(text[:2] <= opening for text in ordered) for opening in openings)]
        self._arrays = (
            np.frombuffer(signs, np.uint8),
            np.frombuffer(b"".join(text.ljust(_STEP, b"\0") for text in ordered) + bytes(PAD), np.uint8),
            np.array([_word_of(text[:_WORD]) for text in ordered], np.int64),
            np.array([_word_of(b"\xff" * len(text[:_WORD])) for text in ordered], np.int64),
            np.array([len(text) for text in ordered], np.int64),
            np.array(bounds, np.int64),
        )

    def find(self, text: bytes | memoryview) -> frozenset[bytes]:
        """Return the texts that occur in ``text``."""
        # The last bytes are searched in a padded copy.
        max_values = max(0, len(text) - PAD)
        tail = bytes(text[max_values:]) + bytes(PAD)
        bits = 0
        for data, stop in ((text, max_values), (tail, len(text) - max_values)):
            bits |= int(find_marks(_Search(np.frombuffer(data, np.uint8), *self._arrays), stop))
        return frozenset(text for index, text in enumerate(self._texts) if bits >> index & 1)


def _word_of(data: bytes) -> int:
    return int.from_bytes(data.ljust(_WORD, b"\0"), "little", signed=True)


def _array(values: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], *, is_text: bool) -> Any:
    # The buffer is larger than the values.
    buffer = pa.py_buffer(values[: ends[-1]].copy().data)
    array = pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.data), buffer])
    return array.cast(pa.string()) if is_text else array


@loop(_Search, int64)
def find_marks(search: Any, stop: int) -> Any:
    """Return a bit for each text that begins before ``stop``; the data has at least ``PAD`` bytes after that."""
    return _find_marks(pointers(search), len(search.bounds) - 1, stop)


@inner
def _find_marks(w: Any, n_openings: int, stop: int) -> Any:
    data, position, bits = w.data, 0, 0
    while position < stop:
        for opening in range(n_openings):
            signs = 2 * _STEP * opening
            hits = equal32(data, position, w.signs, signs) & equal32(data, position + 1, w.signs, signs + _STEP)
            while hits != 0:
                at = position + lowest_bit(np.uint64(hits))
                hits &= hits - 1
                if at >= stop:
                    break
                word = np.int64(load64(data, at))
                for mark in range(peek(w.bounds, opening), peek(w.bounds, opening + 1)):
                    if word & peek(w.masks, mark) == peek(w.words, mark) and same_text(
                        data, at, w.texts, _STEP * mark, peek(w.lengths, mark)
                    ):
                        bits |= 1 << mark
        position += _STEP
    return bits


@loop(_Walk, int64, int64, int64)
def find_members(walk: Any, stop: int, max_values: int, base64: int) -> Any:
    """Find the values; return 0, or -1 if the text is refused."""
    n_members = len(walk.words)
    width = (len(walk.openings) - PAD) // n_members
    return _find_members(pointers(walk), n_members, width, stop, max_values, base64)


@inner
def _find_members(w: Any, n_members: int, width: int, stop: int, max_values: int, base64: int) -> Any:
    data, position = w.data, 0
    while position < stop:
        # A name has ended, and a text begins.
        hits = equal32(data, position, w.signs, 0) & equal32(data, position + 1, w.signs, _STEP)
        hits &= equal32(data, position + 2, w.signs, 0)
        after = position + _STEP
        while hits != 0:
            at = position + lowest_bit(np.uint64(hits))
            hits &= hits - 1
            if at < _LETTERS or at >= stop:
                continue
            word, begin = np.int64(load64(data, at - _LETTERS)), at + _SIGNS
            for member in range(n_members):
                length = peek(w.lengths, member)
                if (
                    word != peek(w.words, member)
                    or begin < length
                    or not same_text(data, begin - length, w.openings, member * width, length)
                ):
                    continue
                end = text_end(data, begin)
                is_text = peek(data, end) == QUOTE and end < stop
                if not is_text or not _take(w, member, begin, end - begin, max_values, member == base64):
                    return -1
                if end >= after:
                    after, hits = end, 0
                break
        position = after
    return 0


@inner
def _take(w: Any, member: int, position: int, length: int, max_values: int, is_decoded: bool) -> Any:  # noqa: FBT001 - compiled code
    """Copy or decode a value; return False if it does not fit or is not base64."""
    count = peek(w.counts, member)
    at = np.int64(peek(w.ends, member * max_values + count))
    target = peek(w.starts, member) + at
    if count + 1 >= max_values:
        return False
    if is_decoded:
        if at + decoded_length(w.data, position, length) >= peek(w.capacities, member) + PAD:
            return False
        size = decode_whole_base64(w.values, target, w.data, position, length, w.pairs)
        if size < 0:
            return False
        poke(w.values, target + size, _NEWLINE)
        at += size + 1
    else:
        if at + length > peek(w.capacities, member):
            return False
        copy_bytes(w.values, target, w.data, position, length)
        at += length
    poke(w.ends, member * max_values + count + 1, np.int32(at))
    poke(w.counts, member, count + 1)
    return True
