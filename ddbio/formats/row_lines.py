"""Remember on which lines of a file of text its rows stand."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Lines: TypeAlias = "Sequence[int] | NDArray[np.int64]"
"""The line of each of some rows, from 1."""

# Far more than the lanes of a write can have unfinished.
_RETAINED_RANGES = 100_000


class RowLines:
    """Remember on which lines of a file its rows stand, of a very long one only the latest."""

    def __init__(self) -> None:
        self.rows = 0
        """The rows so far."""
        # The first row, the lines of rows from there on, and what counts the lines of the file before them.
        self._ranges: list[tuple[int, Lines | None, Callable[[], int] | None]] = []

    def add(self, rows: int, lines: Lines | None, lines_before: Callable[[], int] | None = None) -> None:
        """Remember the lines of the next rows.

        Parameters
        ----------
        lines
            None if they are not known.
        lines_before
            Counts the lines of the file before those of a range; called when a line is asked for.
        """
        self._ranges.append((self.rows, lines, lines_before))
        self.rows += rows
        if len(self._ranges) > _RETAINED_RANGES:
            del self._ranges[: _RETAINED_RANGES // 2]

    def line_of(self, row: int) -> int | None:
        """Return the line of a row that was added; None if it is not known."""
        place, lines, lines_before = self._range_of(row)
        if lines is None or place >= len(lines):
            return None
        return int(lines[place]) + (lines_before() if lines_before else 0)

    def lines_of(self, row: int, rows: int) -> NDArray[np.int64] | None:
        """Return the lines of adjacent rows that were added together; None if they are not known without counting."""
        place, lines, lines_before = self._range_of(row)
        if lines is None or lines_before is not None or place + rows > len(lines):
            return None
        return np.asarray(lines[place : place + rows], np.int64)

    def _range_of(self, row: int) -> tuple[int, Lines | None, Callable[[], int] | None]:
        """Return the place of a row among those that were added with it, and their lines."""
        index = bisect_right(self._ranges, row, key=itemgetter(0)) - 1
        first, lines, lines_before = self._ranges[index] if index >= 0 else (0, None, None)
        return row - first, lines, lines_before
