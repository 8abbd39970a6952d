"""Byte ranges of a large text file, which are read independently as complete rows.

A row belongs to the range in which it starts. JSON itself shows the starts of rows. In CSV a line end may be within a
quoted cell, so the quotes of all previous ranges are counted first (:func:`count_csv`, :func:`csv_starts`).
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
"""Maximum size of a range; a file of at most this size is one range."""

# At most this much white space is expected before a line end.
_LOOK_BACK_BYTES = 64
_TAIL_BYTES = 64 * 1024
_COUNTED_BYTES = 8 * 1024 * 1024
# Small blocks of local files are read as fast as large ones, and stay in the processor's cache.
_BLOCK_BYTES = 2 * 1024 * 1024


def byte_ranges(size_bytes: int, most_bytes: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Return the start and end of each range of a file, of about equal size."""
    count = max(1, -(-size_bytes // most_bytes))
    bounds = [size_bytes * number // count for number in range(count + 1)]
    return list(itertools.pairwise(bounds))


def last_document(text: bytes) -> int:
    """Return the start of the last document that certainly follows another one; 0 if there is none."""
    end = len(text)
    # This text is never within a document: objects are separated by commas, and strings contain no line end.
    while (end := text.rfind(b"\n{", 0, end)) >= 0:
        if text[max(0, end - _LOOK_BACK_BYTES) : end].rstrip().endswith(b"}"):
            return end + 1
    return 0


def next_document(text: bytes, offset: int) -> int | None:
    """Return the start of the first document at or after ``offset`` that follows another one."""
    end = max(0, offset - 1)
    while (end := text.find(b"\n{", end)) >= 0:
        if text[max(0, end - _LOOK_BACK_BYTES) : end].rstrip().endswith(b"}"):
            return end + 1
        end += 1
    return None


def document_blocks(store: ObjectStore, entry: StoredObject, begin: int, end: int) -> tuple[int, Iterable[memoryview]]:
    """Return the byte offset of the first document in a range, and the documents that start in the range, in blocks.

    Each block ends at a line end, and is valid until the next one is read.
    """
    if not isinstance(store, LocalStore):
        first, text = read_documents(store, entry, begin, end)
        return first, [text] if text else []
    first, last = (find_document(store, entry, offset) for offset in (begin, end))
    return first, store.line_blocks(entry, first, last, _BLOCK_BYTES)


def find_document(store: ObjectStore, entry: StoredObject, offset: int) -> int:
    """Return the byte offset of the first JSON document that starts at or after ``offset``."""
    if not offset or offset >= entry.size_bytes:
        return min(offset, entry.size_bytes)
    first, length = max(0, offset - _LOOK_BACK_BYTES - 1), _TAIL_BYTES
    while True:
        text = store.read_range(entry, first, min(length, entry.size_bytes - first))
        start = next_document(text, offset - first)
        if start is not None:
            return first + start
        if first + length >= entry.size_bytes:
            return entry.size_bytes
        length *= 4


def read_documents(store: ObjectStore, entry: StoredObject, begin: int, end: int) -> tuple[int, memoryview]:
    """Return the offset of the first JSON document that starts within a range, and the documents that start there."""
    first = max(0, begin - _LOOK_BACK_BYTES - 1)
    # Usually the last document ends within the bytes that are read beyond the range.
    text = store.read_range(entry, first, min(end + _TAIL_BYTES, entry.size_bytes) - first)
    start = next_document(text, begin - first) if begin else 0
    if start is None or first + start >= end:
        # It starts at the end of the range, or is a part of a document that started before.
        return end, memoryview(b"")
    tail_bytes, last = _TAIL_BYTES, len(text) if end == entry.size_bytes else next_document(text, end - first)
    if last is None and first + len(text) >= entry.size_bytes:
        last = len(text)
    while last is None:
        read_bytes = len(text)
        text += store.read_range(entry, first + read_bytes, min(tail_bytes, entry.size_bytes - first - read_bytes))
        # The searched part has no other document.
        last = next_document(text, max(end - first, read_bytes - 1))
        tail_bytes *= 4
        if last is None and (first + len(text) >= entry.size_bytes or len(text) == read_bytes):
            last = len(text)
    return first + start, memoryview(text)[start:last]


def lines_at(text: bytes, offsets: NDArray[np.int64], first_line: int) -> NDArray[np.int64]:
    """Return the line number of each offset; the text starts at the start of ``first_line``."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == LINE_END)
    return first_line + np.searchsorted(ends, offsets)


class LineCounts:
    """Counter of the line ends before offsets of files, which reads each part of a file once; use it in one thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._counts: dict[str, list[tuple[int, int]]] = {}

    def before(self, entry: StoredObject, byte: int) -> int:
        """Return the number of line ends before a byte of a file, which is read up to that byte."""
        counts = self._counts.setdefault(entry.path, [(0, 0)])
        at, lines = counts[bisect.bisect_right(counts, (byte, entry.size_bytes)) - 1]
        while at < byte:
            text = self._store.read_range(entry, at, min(_COUNTED_BYTES, byte - at))
            at, lines = at + len(text), lines + text.count(b"\n")
        bisect.insort(counts, (byte, lines))
        return lines


@dataclass(frozen=True)
class CsvCount:
    """Facts about a range of CSV, for a start outside of quotes (index 0) and within quotes (index 1).

    Attributes
    ----------
    quotes, lines
        Number of quotes and of line ends in the range.
    is_paired
        Whether every quote that would open a cell is at the start of a cell.
    starts
        The start of the first record in the range, or None.
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
    # A record starts after a line end, which may be the last byte before the range.
    starts, quotes_before = lines + first + 1, np.searchsorted(quotes, lines)
    return CsvCount(
        len(quotes),
        len(lines),
        (opens_cells(signs, quotes), opens_cells(signs, quotes[1:])),
        (_first_record(starts, quotes_before), _first_record(starts, quotes_before + 1)),
    )


def _first_record(starts: NDArray[np.intp], quotes_before: NDArray[np.intp]) -> TextStart | None:
    """Return the first start that has an even number of quotes before it."""
    outside = np.flatnonzero(quotes_before % 2 == 0)
    return TextStart(int(starts[outside[0]]), int(outside[0]) + 1) if len(outside) else None


def csv_starts(counts: Sequence[CsvCount], size_bytes: int) -> tuple[TextStart, ...]:
    """Return the first record of each range, and the end of the file; all rows in the first range for unpaired quotes.

    A range has the records from its first one to that of the next range.
    """
    starts, quotes, lines = list[TextStart | None](), 0, 0
    for number, count in enumerate(counts):
        within = quotes % 2
        if not count.is_paired[within]:
            return (TextStart(0, 0), *[TextStart(size_bytes, 0)] * len(counts))
        start = count.starts[within]
        starts.append(None if start is None else TextStart(start.byte, start.lines + lines))
        if not number:
            starts[0] = TextStart(0, 0)
        quotes, lines = quotes + count.quotes, lines + count.lines
    ends = TextStart(size_bytes, lines)
    for number in reversed(range(len(starts))):
        # Without its own record, a range is empty.
        starts[number] = ends = starts[number] or ends
    return (*(start for start in starts if start is not None), TextStart(size_bytes, lines))
