"""Order of encoded rows, distribution to lanes, and packing of each lane's rows into valid write requests.

A batch has at most 25 writes and 16 MB, and no key twice. Rows of one key always use one lane, and keep their order. A
lane takes rows by rank, that is the first row of every key before any second one, and within a rank by the hash of
their keys. So even sorted input is written to all partitions of the table at the same time. Unprocessed rows are sent
again before new rows.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.capacity import WRITE_UNIT_BYTES
from ddbio.items.kernel.lines import take_texts
from ddbio.items.kernel.memory import PAD
from ddbio.load.plan import MOST_WRITES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MAX_COUNTED_KEYS = 2000
MAX_HOTTEST_KEYS = 5
# A key that is throttled by chance is throttled once or twice.
MIN_THROTTLES = 3


class HotKeys:
    """Counts of throttled keys. Above ``MAX_COUNTED_KEYS`` keys, the less frequent half is dropped."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def add(self, key: str, times: int = 1) -> None:
        """Count one key, given as the JSON text of its value."""
        self._times[key] += times
        if len(self._times) > MAX_COUNTED_KEYS:
            self._times = Counter(dict(self._times.most_common(MAX_COUNTED_KEYS // 2)))

    def merge(self, other: HotKeys) -> None:
        """Add the counts of another object."""
        for key, times in other._times.items():
            self.add(key, times)

    def hottest(self) -> dict[str, int]:
        """Return the most often throttled keys with their counts, in descending order."""
        return {key: times for key, times in self._times.most_common(MAX_HOTTEST_KEYS) if times >= MIN_THROTTLES}


@dataclass
class WriteCounts:
    """Counts of a lane, a task or a job.

    Attributes
    ----------
    rows
        Rows of the source.
    written, skipped, rejected
        Rows that the service acknowledged, rows whose condition failed, and rows that cannot be written.
    retries, unprocessed
        Requests that were sent again, and responses that left some rows unprocessed.
    write_seconds
        From the first request to the last response.
    hot_keys
        Partition keys that were throttled.
    """

    rows: int = 0
    written: int = 0
    skipped: int = 0
    rejected: int = 0
    retries: int = 0
    unprocessed: int = 0
    write_seconds: float = 0.0
    hot_keys: HotKeys = field(default_factory=HotKeys)

    def merge(self, other: WriteCounts) -> None:
        """Add the counts of another lane or task. The longer of the two times is kept."""
        for name in ("rows", "written", "skipped", "rejected", "retries", "unprocessed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.write_seconds = max(self.write_seconds, other.write_seconds)
        self.hot_keys.merge(other.hot_keys)


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html: 16 MB for the whole body.
MAX_BODY_BYTES = 16 * 1024 * 1024 - 64 * 1024

MAX_RANGES = 512
"""Maximum number of ranges from which rows of a window are taken in turn: several for each busy partition."""

_GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """Operation of a request, and the bytes around its rows.

    A request without ``separator`` takes one row.
    """

    operation: str
    opening: bytes
    separator: bytes | None
    closing: bytes

    def body(self, parts: Sequence[bytes]) -> bytes:
        """Return the request body of some rows."""
        return b"".join((self.opening, (self.separator or b"").join(parts), self.closing))


@dataclass(frozen=True)
class Writes:
    """Rows that one lane writes, in the order in which it takes them.

    Attributes
    ----------
    rows
        The number of each row in the source.
    hashes
        The hash of each row's key. Rows with equal hashes count as rows of one key.
    units
        The expected write units of each row.
    texts
        Each row's bytes in a request, followed by the template's separator. So adjacent rows are also adjacent in a
        body.
    starts
        The offset of each row's bytes, and the end of the last separator.
    template
        The template of the requests.
    own_templates
        By position: the templates of rows that need a separate request.
    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    units: NDArray[np.float64]
    texts: NDArray[np.uint8]
    starts: NDArray[np.int64]
    template: RequestTemplate
    own_templates: dict[int, RequestTemplate]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, position: int) -> bytes:
        """Return the bytes of one row."""
        return bytes(self._view[self.offsets[position] : self.offsets[position + 1] - self._separator_bytes])

    def body(self, batch: Sequence[int]) -> bytes:
        """Return the request body of some rows."""
        return self.request(batch)[1]

    def request(self, batch: Sequence[int]) -> tuple[str, bytes, float]:
        """Return the operation, the body and the expected write units of the request for some rows."""
        template = self.own_templates.get(batch[0], self.template) if self.own_templates else self.template
        if type(batch) is range:
            # This runs for each request, so avoiding one call is noticeable.
            first, stop, offsets, unit_ends = batch.start, batch.stop, self.offsets, self._unit_ends
            texts = self._view[offsets[first] : offsets[stop] - self._separator_bytes]
            body = b"".join((template.opening, texts, template.closing))
            return template.operation, body, unit_ends[stop] - unit_ends[first]
        body = template.body([self.part(position) for position in batch])
        return template.operation, body, self.units_of(batch)

    def units_of(self, batch: Sequence[int]) -> float:
        """Return the expected write units of some rows."""
        if isinstance(batch, range):
            return self._unit_ends[batch.stop] - self._unit_ends[batch.start]
        return float(self.units[batch].sum())

    # A request reads only a few of these. Elements of a list are read much faster than those of an array.
    @cached_property
    def _unit_ends(self) -> list[float]:
        return [0.0, *np.cumsum(self.units).tolist()]

    @cached_property
    def offsets(self) -> list[int]:
        """Return ``starts`` as a list of int."""
        return self.starts.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _view(self) -> memoryview:
        return memoryview(self.texts)  # type: ignore[arg-type] # numpy declares it in Python 3.12

    @cached_property
    def _separator_bytes(self) -> int:
        return len(self.template.separator or b"")


def write_units(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the write units of items by their sizes: one for each started KiB, and at least one."""
    return np.maximum(1.0, np.ceil(sizes / WRITE_UNIT_BYTES))


def packing_order(hashes: NDArray[np.uint64], is_single: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the order in which a lane takes rows: by rank among the rows of their key, then by hash.

    Parameters
    ----------
    is_single
        Whether each row needs a separate request. Within a rank such rows come last, so as not to split batches.
    """
    by_hash = np.argsort(hashes)
    if is_single is None and (hashes[by_hash[1:]] != hashes[by_hash[:-1]]).all():
        return by_hash
    # A stable sort is slower, but keeps the order of equal keys.
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    positions = np.arange(len(ordered))
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    ranks = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    if is_single is None:
        return by_hash[np.argsort(ranks, kind="stable")]
    return by_hash[np.lexsort((is_single[by_hash], ranks))]


class RowRanges(NamedTuple):
    """Order of rows as ranges of ascending rows.

    Attributes
    ----------
    starts
        The number of rows before each range, and the number of all rows.
    firsts
        The number of the first row of each range.
    """

    starts: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of_order(cls, order: NDArray[np.int64]) -> RowRanges:
        """Return the ranges for any order, with one range for each row."""
        return cls(np.arange(len(order) + 1), order)

    @property
    def order(self) -> NDArray[np.int64]:
        """Return the number of each row."""
        counts = np.diff(self.starts)
        return np.repeat(self.firsts - self.starts[:-1], counts) + np.arange(self.starts[-1])

    def row_at(self, position: int) -> int:
        """Return the number of the row at a position of the order."""
        number = int(np.searchsorted(self.starts, position, "right")) - 1
        return int(self.firsts[number]) + position - int(self.starts[number])


def spread_ranges(lengths: Sequence[int], n_chunks: int) -> list[RowRanges]:
    """Return chunks with about the same number of rows, each with rows from many ranges in turn.

    Parameters
    ----------
    lengths
        The number of rows in each batch. No range has rows of two batches.
    """
    n_rows = sum(lengths)
    # A single chunk takes all rows.
    most = MAX_RANGES if n_chunks > 1 else 1
    n_places = [max(1, most * length // n_rows) for length in lengths]
    stretches = [length * np.arange(n + 1) // n for length, n in zip(lengths, n_places, strict=True)]
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    firsts = np.concatenate([first + offsets[:-1] for first, offsets in zip(begins, stretches, strict=True)])
    counts = np.concatenate([np.diff(offsets) for offsets in stretches])
    # A chunk takes the next rows of each stretch. Stretches with fewer rows than there are chunks skip some chunks. The
    # steps of the golden ratio, which fill an interval evenly, make each skip different chunks.
    phases = np.arange(len(counts)) * _GOLDEN_RATIO % 1
    cuts = np.floor(np.outer(counts, np.arange(n_chunks + 1)) / n_chunks + phases[:, None]).astype(np.int64)
    taken, starts = np.diff(cuts, axis=1), firsts[:, None] + cuts[:, :-1]
    chunks = []
    for number in range(n_chunks):
        some = np.flatnonzero(taken[:, number])
        if len(some):
            chunks.append(RowRanges(np.concatenate([[0], np.cumsum(taken[some, number])]), starts[some, number]))
    return chunks


def in_key_order(order: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return an order in which the rows of each key ascend, at the positions that the rows of the key had together.

    Parameters
    ----------
    hashes
        The hash of each row's key. Rows with equal hashes count as rows of one key.
    """
    # Sorting values is much faster than an argsort, and in most windows every key occurs once.
    sorted_hashes = np.sort(hashes)
    if (sorted_hashes[1:] != sorted_hashes[:-1]).all():
        return order
    by_hash = np.argsort(hashes, kind="stable")
    equal = hashes[by_hash[1:]] == hashes[by_hash[:-1]]
    is_repeated = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    # Rows of a key ascend, since the sort is stable.
    rows = by_hash[is_repeated]
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    taken = positions[rows]
    ordered = order.copy()
    ordered[taken[np.lexsort((taken, hashes[rows]))]] = rows
    return ordered


class RowBytes(NamedTuple):
    """Encoded bytes of rows, their start and end offsets, their write units, and the number of the first row."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    units: NDArray[np.float64]
    first_row: int


class LaneSplitter:
    """Distribution of encoded rows to lanes. Rows of one key always use one lane.

    The bytes of each lane's rows have the layout of a request.

    Parameters
    ----------
    free_buffers
        Buffers to reuse. The ``texts`` of finished writes may be added at any time.
    """

    def __init__(self, lanes: int, template: RequestTemplate, free_buffers: deque[NDArray[np.uint8]]) -> None:
        self._lanes, self._template, self._free_buffers = lanes, template, free_buffers

    def split(
        self,
        texts: RowBytes,
        rows: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        templates: Mapping[int, RequestTemplate],
    ) -> list[Writes]:
        """Return the writes of each lane.

        Parameters
        ----------
        rows
            The rows to write.
        hashes
            The hash of each of their keys.
        templates
            The templates of rows that need a separate request.
        """
        order = packing_order(hashes, np.isin(rows, list(templates)) if templates else None)
        # The upper half of the hash chooses the lane. Within a lane, the order by hash still spreads the keys.
        lane_of = ((hashes[order] >> np.uint64(32)) * np.uint64(self._lanes) >> np.uint64(32)).astype(np.uint16)
        order = order[np.argsort(lane_of, kind="stable")]
        ends = np.cumsum(np.bincount(lane_of, minlength=self._lanes))
        return [
            self._lane_writes(texts, rows[indices], hashes[indices], templates)
            for indices in np.split(order, ends[:-1])
        ]

    def _lane_writes(
        self,
        texts: RowBytes,
        rows: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        templates: Mapping[int, RequestTemplate],
    ) -> Writes:
        separator = self._template.separator or b""
        n_bytes = int((texts.ends[rows] - texts.begins[rows]).sum()) + len(rows) * len(separator)
        buffer, starts = self._buffer(n_bytes + PAD), np.empty(len(rows) + 1, np.int64)
        padded = np.frombuffer(separator + bytes(PAD), np.uint8)
        take_texts(texts.data, texts.begins, texts.ends, rows, padded, buffer, starts)
        own = {}
        if templates:
            own = {position: templates[row] for position, row in enumerate(rows.tolist()) if row in templates}
        return Writes(rows + texts.first_row, hashes, texts.units[rows], buffer, starts, self._template, own)

    def _buffer(self, n_bytes: int) -> NDArray[np.uint8]:
        # Using new memory costs more than the copy into it.
        while self._free_buffers:
            buffer = self._free_buffers.pop()
            if len(buffer) >= n_bytes:
                return buffer
        return np.empty(n_bytes + n_bytes // 4, np.uint8)


DEFERRED_BYTES = 64 * 1024 * 1024
"""The maximum bytes of rows that all lanes of one process defer together."""


class _Row(NamedTuple):
    row: int
    key_hash: int
    units: float
    text: bytes
    template: RequestTemplate
    origin: object


class DeferredRows:
    """Deferred rows, returned in batches, with the longest waiting rows first.

    A batch must be settled before the next one is taken. The class has the interface of ``Writes`` and ``Packer``
    together.

    Parameters
    ----------
    most_bytes
        The bytes of rows from which it is full.

    Attributes
    ----------
    rows
        The rows by their numbers here, in the order in which they were added.
    """

    def __init__(self, most_bytes: int = DEFERRED_BYTES) -> None:
        self._most_bytes = most_bytes
        self.rows: dict[int, _Row] = {}
        self._line: deque[int] = deque()
        self._halves: deque[Sequence[int]] = deque()
        self._hashes: set[int] = set()
        self._bytes = self.next_number = 0
        # See ``Packer``.
        self.keys: dict[int, tuple[Any, ...]] = {}
        self.counted: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_full(self) -> bool:
        """Return whether no more rows should be added before some are settled."""
        return self._bytes >= self._most_bytes

    @property
    def oldest(self) -> int:
        """Return the number of the row that was added first, or the number of the next row if there is none."""
        return next(iter(self.rows), self.next_number)

    def add(
        self, writes: Writes, positions: Sequence[int], origin: object, keys: Mapping[int, tuple[Any, ...]]
    ) -> None:
        """Defer unprocessed rows.

        Parameters
        ----------
        origin
            The origin of the rows, as reported by ``row``.
        keys
            Their keys by position, as far as they are known.
        """
        for position in positions:
            number = self.next_number
            self.next_number += 1
            units, text = float(writes.units[position]), writes.part(position)
            row = _Row(int(writes.rows[position]), int(writes.hashes[position]), units, text, writes.template, origin)
            self.rows[number] = row
            self._line.append(number)
            # It was counted when it was returned as unprocessed.
            self.counted.add(number)
            if position in keys:
                self.keys[number] = keys[position]
            self._hashes.add(row.key_hash)
            self._bytes += len(row.text)

    def delays(self, writes: Writes, batch: Sequence[int]) -> bool:
        """Return whether rows with keys of a batch are deferred."""
        return not self._hashes.isdisjoint(writes.hashes[list(batch)].tolist())

    def rows_of(self, origin: object) -> list[int]:
        """Return the numbers, in the source, of the rows of one origin."""
        return [row.row for row in self.rows.values() if row.origin is origin]

    def row(self, number: int) -> tuple[int, object]:
        """Return a row's number in the source, and its origin."""
        deferred = self.rows[number]
        return deferred.row, deferred.origin

    def template_of(self, batch: Sequence[int]) -> RequestTemplate:
        """Return the template of the request for some rows."""
        return self.rows[batch[0]].template

    def body(self, batch: Sequence[int]) -> bytes:
        """Return the request body of some rows."""
        return self.template_of(batch).body([self.rows[number].text for number in batch])

    def units_of(self, batch: Sequence[int]) -> float:
        """Return the expected write units of some rows."""
        return sum(self.rows[number].units for number in batch)

    def take(self) -> Sequence[int]:
        """Return the numbers of the rows to send next, or an empty batch if there is none."""
        if self._halves:
            return self._halves.popleft()
        batch: list[int] = []
        size = 0
        while self._line and len(batch) < MOST_WRITES:
            size += len(self.rows[self._line[0]].text)
            if batch and size > MAX_BODY_BYTES:
                break
            batch.append(self._line.popleft())
        return batch

    def give_back(self, batch: Sequence[int]) -> None:
        """Take back rows that were not written. Longer waiting rows come before them."""
        self._line.extend(batch)

    def halve(self, batch: Sequence[int]) -> None:
        """Take back two rows or more, to send each half in a separate request."""
        middle = len(batch) // 2
        self._halves.extendleft((batch[middle:], batch[:middle]))

    def defer(self, _: Sequence[int], __: DeferredRows) -> bool:
        """Return False: rows that were deferred once are given back here."""
        return False

    def settle(self, batch: Sequence[int], left: Sequence[int]) -> None:
        """Remove the rows of a batch, and take back the remaining ones in ``left``."""
        kept = set(left)
        for number in batch:
            if number not in kept:
                row = self.rows.pop(number)
                self._hashes.discard(row.key_hash)
                self.counted.discard(number)
                self.keys.pop(number, None)
                self._bytes -= len(row.text)
        self.give_back(left)


class Packer:
    """Packing of the rows of a lane into valid batches, until every row is settled.

    A batch must be settled before the next one is taken. Rows that are given back are taken first.

    Parameters
    ----------
    origin
        The origin of the rows, as reported by ``row``.
    """

    def __init__(self, writes: Writes, origin: object = None) -> None:
        self._writes, self._origin = writes, origin
        self.body, self.units_of = writes.body, writes.units_of
        # State of rows that the lane uses, by position: their keys, if some of a batch were unprocessed, and the
        # counted rows.
        self.keys: dict[int, tuple[Any, ...]] = {}
        self.counted: set[int] = set()
        self._takes_one_row = writes.template.separator is None
        # Up to each end hashes rise, so that no key occurs twice, and no row needs a separate request.
        falls = np.flatnonzero(writes.hashes[1:] <= writes.hashes[:-1]) + 1
        if writes.own_templates:
            singles = np.fromiter(writes.own_templates, np.int64, len(writes.own_templates))
            falls = np.unique(np.concatenate((falls, singles, singles + 1)))
        self._ends = deque([*falls.tolist(), len(writes)])
        self._next, self._length = 0, len(writes)
        self._returned: list[int] = []
        self._halves: deque[Sequence[int]] = deque()

    def take(self) -> Sequence[int]:
        """Return the positions of the next batch's rows, as a range if they are adjacent. Empty after the last row."""
        if self._halves:
            return self._halves.popleft()
        if self._returned:
            batch, self._returned = self._returned, []
            return batch if self._is_single(batch[0]) else self._fill(batch)
        position = self._next
        if position >= self._length:
            return ()
        if self._takes_one_row or position in self._writes.own_templates:
            self._next = position + 1
            return range(position, position + 1)
        return self._full_batch() or self._fill([])

    def row(self, position: int) -> tuple[int, object]:
        """Return a row's number in the source, and its origin."""
        return int(self._writes.rows[position]), self._origin

    def defer(self, batch: Sequence[int], deferred: DeferredRows) -> bool:
        """Defer rows that were not written, unless they need separate requests. Return whether they were deferred."""
        if self._is_single(batch[0]) or self._halves:
            return False
        deferred.add(self._writes, batch, self._origin, self.keys)
        return True

    def settle(self, _: Sequence[int], left: Sequence[int]) -> None:
        """Take back the remaining rows of a batch; see ``give_back``."""
        if left:
            self.give_back(left)

    def give_back(self, batch: Sequence[int]) -> None:
        """Take back rows that were not written. They are taken next, and are not mixed with a halved batch."""
        if not self._halves:
            self._returned = list(batch)
        elif batch:
            self._halves.appendleft(batch)

    def halve(self, batch: Sequence[int]) -> None:
        """Take back two rows or more, to send each half in a separate request."""
        middle = len(batch) // 2
        self._halves.extendleft((batch[middle:], batch[:middle]))

    def _is_single(self, position: int) -> bool:
        return self._takes_one_row or position in self._writes.own_templates

    def _bytes(self, first: int, stop: int) -> int:
        return self._writes.offsets[stop] - self._writes.offsets[first]

    def _full_batch(self) -> Sequence[int]:
        """Return the next 25 rows, or the last ones, as a batch.

        Returns an empty batch if one of these rows ends it early.
        """
        start, ends = self._next, self._ends
        end = min(start + MOST_WRITES, self._length)
        while ends and ends[0] <= start:
            ends.popleft()
        if not ends or end > ends[0]:
            return ()
        if self._bytes(start, end) > MAX_BODY_BYTES:
            return ()
        self._next = end
        return range(start, end)

    def _fill(self, batch: list[int]) -> list[int]:
        """Fill a batch row by row."""
        hashes = self._writes.hashes
        seen = {int(hashes[position]) for position in batch}
        size = sum(self._bytes(position, position + 1) for position in batch)
        while self._next < len(self._writes) and len(batch) < MOST_WRITES:
            position = self._next
            size += self._bytes(position, position + 1)
            if batch and (size > MAX_BODY_BYTES or int(hashes[position]) in seen or self._is_single(position)):
                break
            seen.add(int(hashes[position]))
            batch.append(position)
            self._next += 1
        return batch
