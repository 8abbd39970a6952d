"""Find the lines on which the rows of a text stand: of CSV, where cells may hold line ends, and of JSON."""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ddbio.formats.csv_records import record_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Lines: TypeAlias = "Sequence[int] | NDArray[np.int64]"
"""The line of each of some rows."""

# Far more than the lanes of a write can have unfinished.
_RETAINED_RANGES = 100_000
# Nothing of this stands within a document: objects are separated by commas, and strings that hold it make too many.
_BETWEEN = re.compile(rb"\}\s*\{")


class RowLines:
    """Remember on which lines of a file its rows stand, of a very long one only the latest.

    Parameters
    ----------
    lines_before
        Counts the lines of the file before those that are added, once a line is asked for; None if there are none.
    """

    def __init__(self, lines_before: Callable[[], int] | None = None) -> None:
        self._lines_before = lines_before
        self.rows = 0
        """The rows so far."""
        # The first row, and the lines of rows from there on.
        self._ranges: list[tuple[int, Lines | None]] = []

    def add(self, rows: int, lines: Lines | None) -> None:
        """Remember the lines of the next rows; None if they are not known."""
        self._ranges.append((self.rows, lines))
        self.rows += rows
        if len(self._ranges) > _RETAINED_RANGES:
            del self._ranges[: _RETAINED_RANGES // 2]

    def line_of(self, row: int) -> int | None:
        """Return the line of a row that was added, from 1; None if it is not known."""
        place = bisect_right(self._ranges, row, key=itemgetter(0)) - 1
        if place < 0:
            return None
        first, lines = self._ranges[place]
        if lines is None or row - first >= len(lines):
            return None
        return int(lines[row - first]) + (self._lines_before() if self._lines_before else 0)

    def lines_of(self, row: int, rows: int) -> NDArray[np.int64] | None:
        """Return the lines of adjacent rows that were added together; None if they are not known without counting."""
        if self._lines_before is not None:
            return None
        place = bisect_right(self._ranges, row, key=itemgetter(0)) - 1
        first, lines = self._ranges[place] if place >= 0 else (0, None)
        found = None if lines is None else np.asarray(lines[row - first : row - first + rows], np.int64)
        return None if found is None or len(found) < rows else found


def lines_of_csv(text: bytes, rows: int, first_line: int, *, has_header: bool) -> Lines | None:
    """Return the lines on which records begin; None if their number is not that of the rows.

    Parameters
    ----------
    first_line
        The line of the file with which the text begins.
    """
    records = rows + has_header
    if _line_count(text) == records and text.count(b"\r") == text.count(b"\r\n"):
        # Each record takes a line at least, and no line is left for more.
        return range(first_line + has_header, first_line + records)
    starts = record_starts(text)
    return _lines_at(text, starts[has_header:], first_line) if len(starts) == records else None


def lines_of_json(text: bytes, rows: int, first_line: int) -> Lines | None:
    """Return the lines on which documents begin; None if their number is not that of the rows."""
    if text.count(b"}\n{") == rows - 1 and _line_count(text) == rows:
        return range(first_line, first_line + rows)
    starts = [text.find(b"{"), *(match.end() - 1 for match in _BETWEEN.finditer(text))]
    return _lines_at(text, np.array(starts), first_line) if len(starts) == rows else None


def _line_count(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _lines_at(text: bytes, places: NDArray[np.int64], first_line: int) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    return first_line + np.searchsorted(ends, places)
