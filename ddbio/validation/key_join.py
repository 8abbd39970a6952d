"""Comparison of rows, and counts of repeated keys, in the tasks of a shuffle that brings equal keys together.

The rows of both sides in some buckets are divided into slots of about a million rows each. One task compares its slots
one after the other. The driver gets counts, and the keys of a few examples.
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

from ddbio.items.key_hashes import BUCKETS, Rows, bucket_groups, bucket_starts, buckets_of, differences, repeated
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
"""Bytes of rows that a side keeps in memory: eight million rows."""

_WORD_BYTES = 8


class _Run(NamedTuple):
    """Sorted rows, or their offset in the file."""

    starts: Counts
    rows: Rows | None
    offset: int


class RowStore:
    """Store that takes rows in any order, and returns those of a few buckets at a time.

    Parameters
    ----------
    held_bytes
        Bytes of rows above which they are written to a temporary file, in sorted runs.
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
        """Add rows."""
        self._pending.append(rows)
        self._pending_rows += len(rows.keys)
        if 2 * _WORD_BYTES * self._pending_rows >= self._held_bytes:
            self._flush(spills=True)

    def load(self, buckets: Sequence[int]) -> None:
        """Load the rows of some buckets. This store already has them all."""

    def repeated(self, buckets: Sequence[int], counts: Counts) -> int:
        """Return the number of rows of some buckets that have the key of another row."""
        return sum(repeated(self.rows(group).keys.copy()) for group in bucket_groups(buckets, counts))

    def rows(self, buckets: Sequence[int]) -> Rows:
        """Return the rows of some buckets."""
        self._flush(spills=False)
        return Rows.joined([part for run in self._runs for part in self._parts(run, buckets)])

    def _flush(self, *, spills: bool) -> None:
        if not self._pending_rows:
            return
        rows = Rows.joined(self._pending).sorted()
        starts, offset = bucket_starts(rows.keys), self._file_bytes
        self._pending, self._pending_rows = [], 0
        if spills:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ddbio-validate-")  # noqa: SIM115 - closed with the store
            self._file.seek(offset)
            for words in rows:
                self._file.write(words.tobytes())
                self._file_bytes += words.nbytes
        self._runs.append(_Run(starts, None if spills else rows, offset))

    def _parts(self, run: _Run, buckets: Sequence[int]) -> Iterator[Rows]:
        for first, stop in _ranges(buckets):
            start, end = int(run.starts[first]), int(run.starts[stop])
            if start == end:
                continue
            if run.rows is not None:
                yield Rows(run.rows.keys[start:end], run.rows.items[start:end])
            else:
                row_count = int(run.starts[-1])
                yield Rows(
                    *(
                        self._read(run.offset + _WORD_BYTES * (column * row_count + start), end - start)
                        for column in (0, 1)
                    )
                )

    def _read(self, offset: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        self._file.seek(offset)
        return np.frombuffer(self._file.read(_WORD_BYTES * count), np.uint64)


def _ranges(buckets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first bucket, and the one after the last, of each range of consecutive buckets."""
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


class RemoteRowStore(RowStore):
    """Store that gets the rows of requested buckets from the processes that have read them.

    Parameters
    ----------
    group
        The number of a group of unique attributes; None for the keys.
    """

    def __init__(self, summary: Summary, group: int | None = None) -> None:
        super().__init__()
        self.summary = summary
        self._group, self._loaded = group, set[int]()
        self._counted: dict[tuple[int, ...], int] = {}

    def load(self, buckets: Sequence[int]) -> None:
        """Load the rows of some buckets in another pass, unless they are loaded."""
        wanted = sorted(set(buckets) - self._loaded)
        self._loaded.update(wanted)
        if wanted:
            for rows in self.summary.rows(wanted, self._group):
                self.add(rows)

    def record_repeated(self, buckets: Sequence[int], count: int) -> None:
        """Record the number of rows of some buckets that have the key of another row."""
        self._counted[tuple(buckets)] = count

    def repeated(self, buckets: Sequence[int], counts: Counts) -> int:
        """Return the number of rows of some buckets with the key of another row, counted remotely unless loaded."""
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
class JoinSpec:
    """The rows of a side to shuffle, and their partitions. It is picklable.

    Attributes
    ----------
    slots
        The slot of each bucket, ascending with the buckets; -1 for buckets whose rows are not shuffled.
    partitions
        Number of tasks that the slots are assigned to.
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
        """Return the specification for some buckets, from the number of rows in each."""
        slots, groups = np.full(BUCKETS, -1, np.int64), 0
        for number, group in enumerate(bucket_groups(buckets, counts)):
            slots[group], groups = number, number + 1
        return cls(slots, max(1, min(groups, parallelism)))


class Summary(Protocol):
    """Summary of the rows that other processes have read. Its size does not depend on the number of rows."""

    @property
    def sums(self) -> Sums:
        """Return the sums of all rows."""
        ...

    def rows(self, buckets: Sequence[int], group: int | None = None) -> Iterator[Rows]:
        """Yield the rows of some buckets by their keys, or of a unique group. This reads the side once more."""
        ...

    def repeated(self, buckets: Sequence[int], group: int | None = None) -> int:
        """Return the number of rows of some buckets that have the key of another row, counted remotely."""
        ...

    def parts(self, wanted: JoinSpec, stack: ExitStack) -> Any:
        """Return this side as input of ``ShufflingEngine.run_joined``, open until the stack is closed."""
        ...


@dataclass
class JoinResult:
    """Counts of differences and repeated keys, and hashes of the keys of some differences."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(get_args(Kind), 0))
    keys: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in get_args(Kind)})
    repeated: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, differences: Differences, most: int) -> None:
        """Add the differences of some buckets, and at most ``most`` keys of each kind."""
        for kind in get_args(Kind):
            self._add(kind, getattr(differences, kind), getattr(differences, f"{kind}_keys")[:most].tolist(), most)

    def merge(self, other: JoinResult, most: int) -> None:
        """Add the result of other buckets."""
        for kind in get_args(Kind):
            self._add(kind, other.counts[kind], other.keys[kind], most)
        self.repeated = [one + another for one, another in zip(self.repeated, other.repeated, strict=True)]

    def _add(self, kind: str, count: int, keys: list[int], most: int) -> None:
        self.counts[kind] += count
        self.keys[kind] += keys[: max(0, most - len(self.keys[kind]))]


def join_keys(engine: ShufflingEngine, summaries: Sequence[Summary], wanted: JoinSpec, most: int = 0) -> JoinResult:
    """Return the result of joining the requested rows of one or two sides, which are read once more.

    Parameters
    ----------
    most
        Maximum number of keys to return of each kind of difference.
    """
    joined = JoinResult()
    with ExitStack() as stack:
        sources = [summary.parts(replace(wanted, side=side), stack) for side, summary in enumerate(summaries)]
        for part in engine.run_joined(sources, partial(compare_parts, most), wanted.partitions):
            joined.merge(part, most)
    return joined


def parts_of(hashed: Iterable[HashedRows], wanted: JoinSpec) -> Iterator[tuple[PartKey, bytes]]:
    """Yield the requested rows as parts of slots: partition, slot and side, then one or two words per row."""
    chosen = wanted.slots >= 0
    gathered, count = list[Rows](), 0
    for rows in itertools.chain(hashed, [None]):
        if rows is not None:
            gathered.append(rows_in(rows, chosen, wanted.names))
            count += len(gathered[-1].keys)
        if count >= _GATHERED_ROWS or (rows is None and count):
            yield from _divided(Rows.joined(gathered).sorted(), wanted)
            gathered, count = [], 0


def _divided(rows: Rows, wanted: JoinSpec) -> Iterator[tuple[PartKey, bytes]]:
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


def compare_parts(most: int, parts: Iterable[bytes], budget: Budget) -> JoinResult:
    """Return the differences and repeated keys of some slots. The parts arrive slot by slot."""
    del budget
    joined = JoinResult()
    for _, held in itertools.groupby(map(_part_of, parts), key=attrgetter("slot")):
        sides: tuple[list[Rows], list[Rows]] = ([], [])
        with_items = False
        for part in held:
            sides[part.side].append(part.rows)
            with_items = part.with_items
        source, target = map(Rows.joined, sides)
        if with_items:
            joined.add(differences(source, target), most)
        joined.repeated[0] += repeated(source.keys)
        joined.repeated[1] += repeated(target.keys)
    return joined
