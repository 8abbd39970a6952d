"""Split a large file of text by ranges of bytes, each of which is read as whole rows without the others.

A row belongs to the range in which it begins. JSON shows where that is by itself; in CSV a line end may stand within a
quoted cell, so the quotes of all ranges before are counted first (:func:`count_csv`, :func:`csv_starts`).
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.formats.csv_records import LINE_END, QUOTE, opens_cells
from ddbio.formats.file_format import TextStart
from ddbio.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

RANGE_BYTES = 32 * 1024 * 1024
"""A range is at most so large; a file of no more is one range."""

# More white space than this does not stand before a line end.
_LOOK_BACK = 64
_TAIL_BYTES = 64 * 1024
_COUNTED_BYTES = 8 * 1024 * 1024
# Local files are read as fast in small blocks, which stay in the processor's cache.
_BLOCK_BYTES = 2 * 1024 * 1024


def byte_ranges(size_bytes: int, most_bytes: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Return the ranges of a file: begin and end of each, about equally large."""
    count = max(1, -(-size_bytes // most_bytes))
    places = [size_bytes * number // count for number in range(count + 1)]
    return list(itertools.pairwise(places))


def last_document(text: bytes) -> int:
    """Return where the last document of a text begins that is known to follow another one; 0 if none is."""
    end = len(text)
    # No document has this inside: objects are separated by commas, and strings hold no line end.
    while (end := text.rfind(b"\n{", 0, end)) >= 0:
        if text[max(0, end - _LOOK_BACK) : end].rstrip().endswith(b"}"):
            return end + 1
    return 0


def next_document(text: bytes, place: int) -> int | None:
    """Return where the first document from a place on begins that follows another one."""
    end = max(0, place - 1)
    while (end := text.find(b"\n{", end)) >= 0:
        if text[max(0, end - _LOOK_BACK) : end].rstrip().endswith(b"}"):
            return end + 1
        end += 1
    return None


def document_blocks(store: ObjectStore, entry: StoredObject, begin: int, end: int) -> tuple[int, Iterable[memoryview]]:
    """Return the byte where the first document begins within a range, and the documents that begin there, in blocks.

    Each block ends at a line end, and is good until the next is asked for.
    """
    if not isinstance(store, LocalStore):
        first, text = read_documents(store, entry, begin, end)
        return first, [text] if text else []
    first, last = (find_document(store, entry, place) for place in (begin, end))
    return first, store.line_blocks(entry, first, last, _BLOCK_BYTES)


def find_document(store: ObjectStore, entry: StoredObject, place: int) -> int:
    """Return the byte where the first document of JSON begins that does so at a byte of a file or behind it."""
    if not place or place >= entry.size_bytes:
        return min(place, entry.size_bytes)
    first, length = max(0, place - _LOOK_BACK - 1), _TAIL_BYTES
    while True:
        text = store.read_range(entry, first, min(length, entry.size_bytes - first))
        found = next_document(text, place - first)
        if found is not None:
            return first + found
        if first + length >= entry.size_bytes:
            return entry.size_bytes
        length *= 4


def read_documents(store: ObjectStore, entry: StoredObject, begin: int, end: int) -> tuple[int, memoryview]:
    """Return the documents of JSON that begin within a range, and the byte where the first one does."""
    first = max(0, begin - _LOOK_BACK - 1)
    # As a rule the last document ends in what is read beyond the range.
    text = store.read_range(entry, first, min(end + _TAIL_BYTES, entry.size_bytes) - first)
    start = next_document(text, begin - first) if begin else 0
    if start is None or first + start >= end:
        # It begins at the end of the range, or is a part of a document that began before.
        return end, memoryview(b"")
    tail_bytes, last = _TAIL_BYTES, len(text) if end == entry.size_bytes else next_document(text, end - first)
    if last is None and first + len(text) >= entry.size_bytes:
        last = len(text)
    while last is None:
        held = len(text)
        text += store.read_range(entry, first + held, min(tail_bytes, entry.size_bytes - first - held))
        # What was searched before has no other document.
        last = next_document(text, max(end - first, held - 1))
        tail_bytes *= 4
        if last is None and (first + len(text) >= entry.size_bytes or len(text) == held):
            last = len(text)
    return first + start, memoryview(text)[start:last]


def lines_at(text: bytes, places: NDArray[np.int64], first_line: int) -> NDArray[np.int64]:
    """Return the line of each place of a text that begins with a line."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == LINE_END)
    return first_line + np.searchsorted(ends, places)


class LineCounts:
    """Count the lines of files before some bytes, each part of a file once; use it in one thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, list[tuple[int, int]]] = {}

    def before(self, entry: StoredObject, byte: int) -> int:
        """Return how many lines end before a byte of a file, which is read up to there."""
        known = self._known.setdefault(entry.path, [(0, 0)])
        at, lines = known[bisect.bisect_right(known, (byte, entry.size_bytes)) - 1]
        while at < byte:
            text = self._store.read_range(entry, at, min(_COUNTED_BYTES, byte - at))
            at, lines = at + len(text), lines + text.count(b"\n")
        bisect.insort(known, (byte, lines))
        return lines


@dataclass(frozen=True)
class CsvCount:
    """Hold what a range of CSV shows, if it begins outside of quotes (0), and if it begins within them (1).

    Attributes
    ----------
    quotes, lines
        The quotes and the line ends in it.
    is_paired
        Whether every quote that would open a cell stands where a cell begins.
    starts
        Where the first record begins that begins in the range, or None.
    """

    quotes: int
    lines: int
    is_paired: tuple[bool, bool]
    starts: tuple[TextStart | None, TextStart | None]


def count_csv(store: ObjectStore, entry: StoredObject, begin: int, end: int) -> CsvCount:
    """Count the quotes and the line ends of a range."""
    first = max(0, begin - 1)
    signs = np.frombuffer(store.read_range(entry, first, end - first), np.uint8)
    own = begin - first
    quotes = np.flatnonzero(signs[own:] == QUOTE) + own
    lines = np.flatnonzero(signs[own:] == LINE_END) + own
    # A record begins behind a line end, which may be the last byte before the range.
    places, quotes_before = lines + first + 1, np.searchsorted(quotes, lines)
    return CsvCount(
        len(quotes),
        len(lines),
        (opens_cells(signs, quotes), opens_cells(signs, quotes[1:])),
        (_first_record(places, quotes_before), _first_record(places, quotes_before + 1)),
    )


def _first_record(places: NDArray[np.intp], quotes_before: NDArray[np.intp]) -> TextStart | None:
    """Return the first of the places behind line ends with an even number of quotes before it."""
    outside = np.flatnonzero(quotes_before % 2 == 0)
    return TextStart(int(places[outside[0]]), int(outside[0]) + 1) if len(outside) else None


def csv_starts(counts: Sequence[CsvCount], size_bytes: int) -> tuple[TextStart, ...]:
    """Return where the records of each range begin, and the end of the file; all in the first if quotes are unpaired.

    A range takes the records from its first one on to that of the next range.
    """
    starts, quotes, lines = list[TextStart | None](), 0, 0
    for number, each in enumerate(counts):
        within = quotes % 2
        if not each.is_paired[within]:
            return (TextStart(0, 0), *[TextStart(size_bytes, 0)] * len(counts))
        found = each.starts[within]
        starts.append(None if found is None else TextStart(found.byte, found.lines + lines))
        if not number:
            starts[0] = TextStart(0, 0)
        quotes, lines = quotes + each.quotes, lines + each.lines
    ends = TextStart(size_bytes, lines)
    for number in reversed(range(len(starts))):
        # Without a record of its own, a range ends where it begins.
        starts[number] = ends = starts[number] or ends
    return (*(each for each in starts if each is not None), TextStart(size_bytes, lines))
