"""Compare rows, and count repeated keys, in the tasks of a shuffle that brings equal keys together.

What two sides hold of some buckets is divided into slots, of about a million rows each, that one task looks at one
after the other. Whoever started them gets counts, and the keys of a few examples.
"""

from __future__ import annotations

import itertools
import struct
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, get_args

import numpy as np

from ddbio.items.key_hashes import BUCKETS, Rows, bucket_groups, bucket_places, buckets_of, differences, repeated
from ddbio.validation.comparison import Kind
from ddbio.validation.sums import rows_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self, TypeAlias

    from ddbio.budget import Budget
    from ddbio.items.key_hashes import Counts, Differences
    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.validation.sums import HashedRows, Sums

    PartKey: TypeAlias = tuple[int, int, int]

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


# Slot, side, rows, and whether the hashes of items follow those of keys.
_HEAD = struct.Struct("<qqq?")
_GATHERED_ROWS = 500_000


@dataclass(frozen=True)
class Wanted:
    """Say which rows of a side go to a shuffle, and where; a picklable value.

    Attributes
    ----------
    slots
        The slot of each bucket, which rise with the buckets; -1 of those whose rows are not wanted.
    partitions
        How many tasks the slots are dealt to.
    names
        The attributes whose values must be unique; None for the keys.
    with_items
        Whether items are compared, or only keys.
    side
        0 for the source, 1 for the target.
    """

    slots: Counts
    partitions: int
    names: tuple[str, ...] | None = None
    with_items: bool = False
    side: int = 0

    @classmethod
    def of(cls, buckets: Sequence[int], counts: Counts, parallelism: int) -> Self:
        """Return what is wanted of some buckets, given the rows in each."""
        slots, groups = np.full(BUCKETS, -1, np.int64), 0
        for number, group in enumerate(bucket_groups(buckets, counts)):
            slots[group], groups = number, number + 1
        return cls(slots, max(1, min(groups, parallelism)))


class Summary(Protocol):
    """Hold what processes elsewhere have read: little, however many rows there are."""

    @property
    def sums(self) -> Sums:
        """Return what all rows add up to."""
        ...

    def rows(self, buckets: Sequence[int], group: int | None = None) -> Iterator[Rows]:
        """Yield the rows of some buckets by their keys, or of a unique group; that reads everything once more."""
        ...

    def repeated(self, buckets: Sequence[int], group: int | None = None) -> int:
        """Return how many rows of some buckets have the key of another, counted elsewhere."""
        ...

    def parts(self, wanted: Wanted, stack: ExitStack) -> Any:
        """Return what ``ShufflingEngine.run_joined`` takes of this side, open as long as the stack is."""
        ...


@dataclass
class Found:
    """Count what differs and what is repeated, and hold the hashes of the keys of some of what differs."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(get_args(Kind), 0))
    keys: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in get_args(Kind)})
    repeated: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, given: Differences, most: int) -> None:
        """Add what differs in some buckets, and keep so many keys of each kind."""
        for kind in get_args(Kind):
            self._add(kind, getattr(given, kind), getattr(given, f"{kind}_keys")[:most].tolist(), most)

    def merge(self, other: Found, most: int) -> None:
        """Add what was found in other buckets."""
        for kind in get_args(Kind):
            self._add(kind, other.counts[kind], other.keys[kind], most)
        self.repeated = [one + another for one, another in zip(self.repeated, other.repeated, strict=True)]

    def _add(self, kind: str, count: int, keys: list[int], most: int) -> None:
        self.counts[kind] += count
        self.keys[kind] += keys[: max(0, most - len(self.keys[kind]))]


def meet(engine: ShufflingEngine, summaries: Sequence[Summary], wanted: Wanted, most: int = 0) -> Found:
    """Return what the wanted rows of one side, or of two, come to, by reading the sides once more.

    Parameters
    ----------
    most
        Keys to return of each kind of difference.
    """
    found = Found()
    with ExitStack() as stack:
        sources = [each.parts(replace(wanted, side=side), stack) for side, each in enumerate(summaries)]
        for each in engine.run_joined(sources, partial(compare_parts, most), wanted.partitions):
            found.merge(each, most)
    return found


def parts_of(hashed: Iterable[HashedRows], wanted: Wanted) -> Iterator[tuple[PartKey, bytes]]:
    """Yield the wanted rows as parts of slots: partition, slot and side, then two words a row or one."""
    chosen = wanted.slots >= 0
    gathered, count = list[Rows](), 0
    for each in itertools.chain(hashed, [None]):
        if each is not None:
            gathered.append(rows_in(each, chosen, wanted.names))
            count += len(gathered[-1].keys)
        if count >= _GATHERED_ROWS or (each is None and count):
            yield from _divided(Rows.joined(gathered).sorted(), wanted)
            gathered, count = [], 0


def _divided(rows: Rows, wanted: Wanted) -> Iterator[tuple[PartKey, bytes]]:
    slots = wanted.slots[buckets_of(rows.keys)]
    starts = np.flatnonzero(np.diff(slots, prepend=-1)).tolist()
    for first, last in itertools.pairwise([*starts, len(slots)]):
        slot = int(slots[first])
        head = _HEAD.pack(slot, wanted.side, last - first, wanted.with_items)
        items = rows.items[first:last].tobytes() if wanted.with_items else b""
        yield (slot % wanted.partitions, slot, wanted.side), head + rows.keys[first:last].tobytes() + items


class _Part(NamedTuple):
    slot: int
    side: int
    rows: Rows
    with_items: bool


def _part_of(data: bytes) -> _Part:
    slot, side, count, with_items = _HEAD.unpack_from(data)
    keys = np.frombuffer(data, np.uint64, count, _HEAD.size)
    items = np.frombuffer(data, np.uint64, count, _HEAD.size + keys.nbytes) if with_items else keys
    return _Part(slot, side, Rows(keys, items), with_items)


def compare_parts(most: int, parts: Iterable[bytes], budget: Budget) -> Found:
    """Return what the parts of some slots, which come slot by slot, differ in, and how many keys are repeated."""
    del budget
    found = Found()
    for _, held in itertools.groupby(map(_part_of, parts), key=attrgetter("slot")):
        sides: tuple[list[Rows], list[Rows]] = ([], [])
        with_items = False
        for part in held:
            sides[part.side].append(part.rows)
            with_items = part.with_items
        source, target = map(Rows.joined, sides)
        if with_items:
            found.add(differences(source, target), most)
        found.repeated[0] += repeated(source.keys)
        found.repeated[1] += repeated(target.keys)
    return found
