"""Join the texts of rows, column by column, without a step of Python for a row.

A request for one row holds several texts: a key or an item, what stands between, values, an expression. Each column of
such texts says where the text of each row lies, and one loop copies them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.items.kernel.lines import take_texts
from ddbio.items.kernel.memory import PAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# Of so many texts the places are held at once.
_BLOCK_TEXTS = 1 << 18


@dataclass(frozen=True)
class RowTexts:
    """Say where the text of each row lies; several rows may share one, and a text may be empty."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of_offsets(cls, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> RowTexts:
        """Return texts that lie back to back."""
        return cls(data, offsets[:-1], offsets[1:])

    @classmethod
    def chosen(cls, texts: Sequence[bytes], choices: NDArray[np.integer]) -> RowTexts:
        """Return one of a few texts for each row."""
        ends = np.cumsum([0, *map(len, texts)])
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends[:-1][choices], ends[1:][choices])

    @classmethod
    def where(cls, has_text: NDArray[np.bool_], text: bytes) -> RowTexts:
        """Return a text for some of the rows, and none for the others."""
        return cls.chosen((b"", text), has_text.astype(np.intp))

    def within(self, has_text: NDArray[np.bool_]) -> RowTexts:
        """Return the texts of some of the rows, and none for the others."""
        return RowTexts(self.data, np.where(has_text, self.begins, 0), np.where(has_text, self.ends, 0))

    def spread(self, rows: NDArray[np.int64], count: int) -> RowTexts:
        """Return the texts as those of some among so many rows; the others have none."""
        begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        begins[rows], ends[rows] = self.begins, self.ends
        return RowTexts(self.data, begins, ends)

    def replaced(self, texts: Mapping[int, bytes]) -> RowTexts:
        """Return the texts with others for a few rows."""
        if not texts:
            return self
        rows = np.fromiter(texts, np.int64, len(texts))
        ends = len(self.data) + np.cumsum([0, *map(len, texts.values())])
        found = RowTexts(
            np.concatenate([self.data, np.frombuffer(b"".join(texts.values()), np.uint8)]),
            self.begins.copy(),
            self.ends.copy(),
        )
        found.begins[rows], found.ends[rows] = ends[:-1], ends[1:]
        return found

    def text(self, row: int) -> bytes:
        """Return the text of one row."""
        return self.data[self.begins[row] : self.ends[row]].tobytes()


def joined_texts(columns: Sequence[RowTexts]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the texts of all columns, row after row, and where each row's begin and the last one's end."""
    shifts: dict[int, int] = {}
    sources: list[NDArray[np.uint8]] = []
    size = 0
    for column in columns:
        # Columns of the same source need it only once.
        if id(column.data) not in shifts:
            shifts[id(column.data)] = size
            sources.append(column.data)
            size += len(column.data)
    begins, ends = (
        np.stack([getattr(column, place) + shifts[id(column.data)] for column in columns], axis=1).ravel()
        for place in ("begins", "ends")
    )
    made, starts = _copied(np.concatenate(sources), begins, ends)
    return made, np.ascontiguousarray(starts[:: len(columns)])


class UpdateExpressions:
    """Make the update expressions of rows: set the columns that a row has, remove the others.

    Parameters
    ----------
    columns
        How many columns there are; each has its number as alias.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        pieces = [f", #n{place} = :v{place}".encode() for place in range(columns)]
        pieces += [f", #n{place}".encode() for place in range(columns)]
        pieces += [b',"UpdateExpression":"SET ', b',"UpdateExpression":"REMOVE ', b" REMOVE ", b'"', b""]
        self._pieces = np.frombuffer(bytearray(b"".join(pieces)), np.uint8)
        ends = np.cumsum([0, *map(len, pieces)])
        self._begins, self._ends = ends[:-1], ends[1:]

    def of(self, present: NDArray[np.bool_]) -> RowTexts:
        """Return the expression of each row, with its name in the request.

        Parameters
        ----------
        present
            Which columns, of at least one, each row has. Rows that have the same share a text.
        """
        patterns, choices = distinct_rows(present)
        step = max(1, _BLOCK_TEXTS // (2 * self._columns + 3))
        blocks = [self._texts_of(patterns[first : first + step]) for first in range(0, max(1, len(patterns)), step)]
        texts = np.concatenate([text for text, _ in blocks])
        counts = np.concatenate([np.diff(offsets) for _, offsets in blocks])
        ends = np.concatenate([[0], np.cumsum(counts)])
        return RowTexts(texts, ends[:-1][choices], ends[1:][choices])

    def _texts_of(self, present: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the expression of each pattern."""
        count, opening = self._columns, 2 * self._columns
        sets, removes = present.any(axis=1), ~present.all(axis=1)
        nothing = opening + 4
        chosen = np.full((len(present), 2 * count + 3), nothing)
        chosen[:, 0] = np.where(sets, opening, opening + 1)
        chosen[:, 1 : count + 1] = np.where(present, np.arange(count), nothing)
        chosen[:, count + 1] = np.where(sets & removes, opening + 2, nothing)
        chosen[:, count + 2 : -1] = np.where(present, nothing, np.arange(count, 2 * count))
        chosen[:, -1] = opening + 3
        begins, ends = self._begins[chosen], self._ends[chosen]
        # The first of each clause has no comma before it.
        rows = np.arange(len(present))
        for has_any, given, first in ((sets, present, 1), (removes, ~present, count + 2)):
            begins[rows[has_any], first + given.argmax(axis=1)[has_any]] += len(b", ")
        texts, starts = _copied(self._pieces, begins.ravel(), ends.ravel())
        return texts, starts[:: chosen.shape[1]]


def distinct_rows(flags: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return the distinct rows of a table, and the number of each row among them."""
    packed = np.packbits(flags, axis=1)
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, numbers = np.unique(rows, return_index=True, return_inverse=True)
    return flags[first], numbers.astype(np.int64, copy=False)


def _copied(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return some texts back to back, and where each begins and the last one ends."""
    size = int((ends - begins).sum())
    made, starts = np.empty(size + PAD, np.uint8), np.empty(len(begins) + 1, np.int64)
    take_texts(data, begins, ends, np.arange(len(begins)), np.frombuffer(bytes(PAD), np.uint8), made, starts)
    return made[:size], starts
