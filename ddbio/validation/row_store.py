"""Hold two words for each row of a side: in memory, and beyond a bound in a temporary file."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.key_hashes import Rows, bucket_groups, bucket_places, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from ddbio.items.key_hashes import Counts
    from ddbio.validation.meeting import Summary

HELD_BYTES = 128 * 1024 * 1024
"""Bytes of rows that a side holds in memory: eight million rows."""

_WORD_BYTES = 8


class _Run(NamedTuple):
    """Hold sorted rows, or where they lie in the file."""

    places: Counts
    rows: Rows | None
    offset: int


class RowStore:
    """Take rows in any order, and return those of a few buckets at a time.

    Parameters
    ----------
    held_bytes
        Bytes of rows beyond which they go to a temporary file, in sorted runs.
    """

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._held_bytes = held_bytes
        self._pending: list[Rows] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._file: Any = None
        self._file_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: Rows) -> None:
        """Take some rows."""
        self._pending.append(rows)
        self._pending_rows += len(rows.keys)
        if 2 * _WORD_BYTES * self._pending_rows >= self._held_bytes:
            self._flush(spills=True)

    def load(self, buckets: Sequence[int]) -> None:
        """Get the rows of some buckets from where they are; here they were all taken."""

    def repeated(self, buckets: Sequence[int], counts: Counts) -> int:
        """Return how many rows of some buckets have the key of another one."""
        return sum(repeated(self.rows(group).keys.copy()) for group in bucket_groups(buckets, counts))

    def rows(self, buckets: Sequence[int]) -> Rows:
        """Return the rows of some buckets."""
        self._flush(spills=False)
        return Rows.joined([part for run in self._runs for part in self._parts(run, buckets)])

    def _flush(self, *, spills: bool) -> None:
        if not self._pending_rows:
            return
        rows = Rows.joined(self._pending).sorted()
        places, offset = bucket_places(rows.keys), self._file_bytes
        self._pending, self._pending_rows = [], 0
        if spills:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ddbio-validate-")  # noqa: SIM115 - closed with the store
            self._file.seek(offset)
            for words in rows:
                self._file.write(words.tobytes())
                self._file_bytes += words.nbytes
        self._runs.append(_Run(places, None if spills else rows, offset))

    def _parts(self, run: _Run, buckets: Sequence[int]) -> Iterator[Rows]:
        for first, stop in _ranges(buckets):
            start, end = int(run.places[first]), int(run.places[stop])
            if start == end:
                continue
            if run.rows is not None:
                yield Rows(run.rows.keys[start:end], run.rows.items[start:end])
            else:
                whole = int(run.places[-1])
                yield Rows(
                    *(self._read(run.offset + _WORD_BYTES * (column * whole + start), end - start) for column in (0, 1))
                )

    def _read(self, offset: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        self._file.seek(offset)
        return np.frombuffer(self._file.read(_WORD_BYTES * count), np.uint64)


def _ranges(buckets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first bucket, and the one after the last, of each range of neighbours."""
    first = last = None
    for bucket in buckets:
        if last is not None and bucket == last + 1:
            last = bucket
            continue
        if first is not None and last is not None:
            yield first, last + 1
        first = last = bucket
    if first is not None and last is not None:
        yield first, last + 1


class RowsElsewhere(RowStore):
    """Get the rows of those buckets only that are asked for, from the processes that have read them.

    Parameters
    ----------
    group
        A group of attributes that must be unique, by its number; None for the keys.
    """

    def __init__(self, summary: Summary, group: int | None = None) -> None:
        super().__init__()
        self.summary = summary
        self._group, self._loaded = group, set[int]()
        self._counted: dict[tuple[int, ...], int] = {}

    def load(self, buckets: Sequence[int]) -> None:
        """Get the rows of some buckets in one more reading, unless they are there."""
        wanted = sorted(set(buckets) - self._loaded)
        self._loaded.update(wanted)
        if wanted:
            for rows in self.summary.rows(wanted, self._group):
                self.add(rows)

    def note_repeated(self, buckets: Sequence[int], count: int) -> None:
        """Note how many rows of some buckets have the key of another one."""
        self._counted[tuple(buckets)] = count

    def repeated(self, buckets: Sequence[int], counts: Counts) -> int:
        """Return how many rows of some buckets have the key of another one, counted where they are unless loaded."""
        noted = self._counted.get(tuple(buckets))
        if noted is not None:
            return noted
        wanted = [bucket for bucket in buckets if counts[bucket] > 1]
        if set(wanted) <= self._loaded:
            return super().repeated(wanted, counts)
        return self.summary.repeated(wanted, self._group)
