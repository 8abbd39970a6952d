"""Line numbers of the rows of a text file."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Lines: TypeAlias = "Sequence[int] | NDArray[np.int64]"
"""The line numbers of some rows, from 1."""

# Far more than the unfinished rows of all lanes of a write.
_RETAINED_RANGES = 100_000


class RowLines:
    """Line numbers of the rows of a file; of a very long file, only the latest ones."""

    def __init__(self) -> None:
        self.rows = 0
        """Number of rows until now."""
        # The first row, the line numbers of the rows from it on, and a function that counts the lines before them.
        self._ranges: list[tuple[int, Lines | None, Callable[[], int] | None]] = []

    def add(self, rows: int, lines: Lines | None, lines_before: Callable[[], int] | None = None) -> None:
        """Record the line numbers of the next rows.

        Parameters
        ----------
        lines
            None if they are unknown.
        lines_before
            Counts the lines of the file before a range; called when a line number is requested.
        """
        self._ranges.append((self.rows, lines, lines_before))
        self.rows += rows
        if len(self._ranges) > _RETAINED_RANGES:
            del self._ranges[: _RETAINED_RANGES // 2]

    def line_of(self, row: int) -> int | None:
        """Return the line number of an added row; None if it is unknown."""
        index, lines, lines_before = self._range_of(row)
        if lines is None or index >= len(lines):
            return None
        return int(lines[index]) + (lines_before() if lines_before else 0)

    def lines_of(self, row: int, rows: int) -> NDArray[np.int64] | None:
        """Return the line numbers of adjacent rows that were added together; None if unknown without counting."""
        index, lines, lines_before = self._range_of(row)
        if lines is None or lines_before is not None or index + rows > len(lines):
            return None
        return np.asarray(lines[index : index + rows], np.int64)

    def _range_of(self, row: int) -> tuple[int, Lines | None, Callable[[], int] | None]:
        """Return the index of a row among the rows that were added with it, and their line numbers."""
        index = bisect_right(self._ranges, row, key=itemgetter(0)) - 1
        first, lines, lines_before = self._ranges[index] if index >= 0 else (0, None, None)
        return row - first, lines, lines_before
