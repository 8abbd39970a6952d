"""Order encoded rows, deal them to lanes, and pack each lane's rows into legal write requests.

A batch holds at most 25 writes and 16 MB, and no key twice. Rows of one key always go to one lane, and keep their
order. A lane takes rows by rank, that is the first row of every key before any second one, and within a rank by the
hash of their keys: even sorted input then reaches all partitions of the table at once. Rows that come back unprocessed
go out before rows that were not sent yet.
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

MOST_KEYS = 2000
SHOWN_KEYS = 5
# A key that is throttled by chance is throttled once or twice.
FEWEST_TIMES = 3


class HotKeys:
    """Count how often each key was throttled; above ``MOST_KEYS`` keys the less frequent half is dropped."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def add(self, key: str, times: int = 1) -> None:
        """Count one key, given as the JSON text of its value."""
        self._times[key] += times
        if len(self._times) > MOST_KEYS:
            self._times = Counter(dict(self._times.most_common(MOST_KEYS // 2)))

    def merge(self, other: HotKeys) -> None:
        """Add what another one counted."""
        for key, times in other._times.items():
            self.add(key, times)

    def hottest(self) -> dict[str, int]:
        """Return the keys that were throttled most often, the hottest first, with their counts."""
        return {key: times for key, times in self._times.most_common(SHOWN_KEYS) if times >= FEWEST_TIMES}


@dataclass
class WriteCounts:
    """Count what a lane, a task or a job wrote.

    Attributes
    ----------
    rows
        Rows of the source.
    written, skipped, rejected
        Rows that the service acknowledged, rows whose condition failed, and rows that cannot be written.
    retries, unprocessed
        Requests that were sent again, and answers that left some rows unprocessed.
    write_seconds
        From the first request to the last answer.
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
        """Add what another lane or task counted; of the times the longer one is taken."""
        for name in ("rows", "written", "skipped", "rejected", "retries", "unprocessed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.write_seconds = max(self.write_seconds, other.write_seconds)
        self.hot_keys.merge(other.hot_keys)


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html: 16 MB for the whole body.
MOST_BODY_BYTES = 16 * 1024 * 1024 - 64 * 1024

PLACES = 512
"""Rows of a window are taken in turn from so many places: several in each partition that a process keeps busy."""

_GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """Hold the operation of a request, and the bytes around its rows.

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
    """Hold the rows that one lane writes, in the order in which it takes them.

    Attributes
    ----------
    rows
        The number of each row in the source.
    hashes
        The hash of each row's key; rows of equal hashes count as rows of one key.
    units
        Write units that each row is expected to cost.
    texts
        Each row's bytes in a request, followed by the template's separator: adjacent rows are adjacent in a body too.
    starts
        The offset of each row's bytes, and the end of the last separator.
    template
        The template of the requests.
    own_templates
        By position: the templates of rows that need a request of their own.
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

    def part(self, place: int) -> bytes:
        """Return the bytes of one row."""
        return bytes(self._view[self.offsets[place] : self.offsets[place + 1] - self._separator_bytes])

    def body(self, batch: Sequence[int]) -> bytes:
        """Return the request body of some rows."""
        return self.request(batch)[1]

    def request(self, batch: Sequence[int]) -> tuple[str, bytes, float]:
        """Return the operation and the body of the request for some rows, and its write units as they are expected."""
        template = self.own_templates.get(batch[0], self.template) if self.own_templates else self.template
        if type(batch) is range:
            # Each request passes here: a call less is felt.
            first, stop, offsets, unit_ends = batch.start, batch.stop, self.offsets, self._unit_ends
            texts = self._view[offsets[first] : offsets[stop] - self._separator_bytes]
            body = b"".join((template.opening, texts, template.closing))
            return template.operation, body, unit_ends[stop] - unit_ends[first]
        body = template.body([self.part(place) for place in batch])
        return template.operation, body, self.units_of(batch)

    def units_of(self, batch: Sequence[int]) -> float:
        """Return the write units that some rows are expected to cost."""
        if isinstance(batch, range):
            return self._unit_ends[batch.stop] - self._unit_ends[batch.start]
        return float(self.units[batch].sum())

    # A request takes a few of each: plain numbers are read in a fraction of the time of an array's elements.
    @cached_property
    def _unit_ends(self) -> list[float]:
        return [0.0, *np.cumsum(self.units).tolist()]

    @cached_property
    def offsets(self) -> list[int]:
        """Return ``starts`` as plain numbers."""
        return self.starts.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _view(self) -> memoryview:
        return memoryview(self.texts)  # type: ignore[arg-type] # numpy tells it in Python 3.12

    @cached_property
    def _separator_bytes(self) -> int:
        return len(self.template.separator or b"")


def write_units(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the write units of items by their sizes: one for each KiB begun, and at least one."""
    return np.maximum(1.0, np.ceil(sizes / WRITE_UNIT_BYTES))


def packing_order(hashes: NDArray[np.uint64], is_single: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the order in which a lane takes rows: by rank among the rows of their key, then by hash.

    Parameters
    ----------
    is_single
        Whether each row needs a request of its own: within a rank such rows come last, so as not to split batches.
    """
    by_hash = np.argsort(hashes)
    if is_single is None and (hashes[by_hash[1:]] != hashes[by_hash[:-1]]).all():
        return by_hash
    # A stable sort is slower, and keeps the order of equal keys.
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    places = np.arange(len(ordered))
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    ranks = places - np.maximum.accumulate(np.where(begins, places, 0))
    if is_single is None:
        return by_hash[np.argsort(ranks, kind="stable")]
    return by_hash[np.lexsort((is_single[by_hash], ranks))]


class RowRanges(NamedTuple):
    """Hold an order of rows as ranges of ascending rows.

    Attributes
    ----------
    places
        How many rows come before each range, and in all ranges together.
    firsts
        The number of the first row of each range.
    """

    places: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of_order(cls, order: NDArray[np.int64]) -> RowRanges:
        """Return any order, each row as a range of its own."""
        return cls(np.arange(len(order) + 1), order)

    @property
    def order(self) -> NDArray[np.int64]:
        """Return the number of each row."""
        counts = np.diff(self.places)
        return np.repeat(self.firsts - self.places[:-1], counts) + np.arange(self.places[-1])

    def row_at(self, place: int) -> int:
        """Return the number of the row at a place of the order."""
        number = int(np.searchsorted(self.places, place, "right")) - 1
        return int(self.firsts[number]) + place - int(self.places[number])


def spread_ranges(lengths: Sequence[int], n_chunks: int) -> list[RowRanges]:
    """Return some chunks of about as many rows each, which take rows from many places in turn.

    Parameters
    ----------
    lengths
        The number of rows in each batch; no range has rows of two batches.
    """
    n_rows = sum(lengths)
    # One chunk takes all.
    most = PLACES if n_chunks > 1 else 1
    n_places = [max(1, most * length // n_rows) for length in lengths]
    stretches = [length * np.arange(n + 1) // n for length, n in zip(lengths, n_places, strict=True)]
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    firsts = np.concatenate([first + places[:-1] for first, places in zip(begins, stretches, strict=True)])
    counts = np.concatenate([np.diff(places) for places in stretches])
    # A chunk takes the next rows of each stretch. Those that are shorter than the number of chunks skip some, not all
    # of them the same ones: the steps of the golden ratio fill an interval evenly.
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
    """Return an order with the rows of each key ascending, in the positions that they already take together.

    Parameters
    ----------
    hashes
        The hash of each row's key; rows of equal hashes count as rows of one key.
    """
    # Sorting values takes a fraction of the time of an argsort, and in most windows every key occurs once.
    found = np.sort(hashes)
    if (found[1:] != found[:-1]).all():
        return order
    by_hash = np.argsort(hashes, kind="stable")
    equal = hashes[by_hash[1:]] == hashes[by_hash[:-1]]
    is_repeated = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    # Rows of a key ascend, since the sort is stable.
    rows = by_hash[is_repeated]
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    taken = places[rows]
    ordered = order.copy()
    ordered[taken[np.lexsort((taken, hashes[rows]))]] = rows
    return ordered


class RowBytes(NamedTuple):
    """Hold the encoded bytes of rows, where each begins and ends, their write units, and the first row's number."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    units: NDArray[np.float64]
    first_row: int


class LaneSplitter:
    """Deal encoded rows to lanes, each row's bytes laid out as in a request; rows of one key always go to one lane.

    Parameters
    ----------
    free_buffers
        Buffers to use again: the ``texts`` of finished writes may be added at any time.
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
            The templates of rows that need a request of their own.
        """
        order = packing_order(hashes, np.isin(rows, list(templates)) if templates else None)
        # The top bits choose the lane: within a lane, the order by hash still spreads the keys.
        lane_of = ((hashes[order] >> np.uint64(32)) * np.uint64(self._lanes) >> np.uint64(32)).astype(np.uint16)
        order = order[np.argsort(lane_of, kind="stable")]
        ends = np.cumsum(np.bincount(lane_of, minlength=self._lanes))
        return [
            self._lane_writes(texts, rows[places], hashes[places], templates) for places in np.split(order, ends[:-1])
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
            own = {place: templates[row] for place, row in enumerate(rows.tolist()) if row in templates}
        return Writes(rows + texts.first_row, hashes, texts.units[rows], buffer, starts, self._template, own)

    def _buffer(self, n_bytes: int) -> NDArray[np.uint8]:
        # Memory that was never touched costs more than the copy into it.
        while self._free_buffers:
            buffer = self._free_buffers.pop()
            if len(buffer) >= n_bytes:
                return buffer
        return np.empty(n_bytes + n_bytes // 4, np.uint8)


DEFERRED_BYTES = 64 * 1024 * 1024
"""The bytes of rows that the lanes of one process defer, together."""


class _Row(NamedTuple):
    row: int
    key_hash: int
    units: float
    text: bytes
    template: RequestTemplate
    origin: object


class DeferredRows:
    """Hold rows by their number here, and give them out in batches, those first that waited for longest.

    A batch must be settled before the next one is taken; it has the interface of ``Writes`` and ``Packer`` together.

    Parameters
    ----------
    most_bytes
        How many bytes of rows make it full.

    Attributes
    ----------
    rows
        The rows by their numbers, in the order in which they came.
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
        """Return whether no more rows should come before some are settled."""
        return self._bytes >= self._most_bytes

    @property
    def oldest(self) -> int:
        """Return the number of the row that came first; the next row's if there is none."""
        return next(iter(self.rows), self.next_number)

    def add(self, writes: Writes, places: Sequence[int], origin: object, keys: Mapping[int, tuple[Any, ...]]) -> None:
        """Defer rows that came back.

        Parameters
        ----------
        origin
            What the rows are said to come from.
        keys
            Their keys, by their places, as far as they are known.
        """
        for place in places:
            number = self.next_number
            self.next_number += 1
            units, text = float(writes.units[place]), writes.part(place)
            row = _Row(int(writes.rows[place]), int(writes.hashes[place]), units, text, writes.template, origin)
            self.rows[number] = row
            self._line.append(number)
            # It was counted when it came back.
            self.counted.add(number)
            if place in keys:
                self.keys[number] = keys[place]
            self._hashes.add(row.key_hash)
            self._bytes += len(row.text)

    def delays(self, writes: Writes, batch: Sequence[int]) -> bool:
        """Return whether rows with keys of a batch wait."""
        return not self._hashes.isdisjoint(writes.hashes[list(batch)].tolist())

    def rows_of(self, origin: object) -> list[int]:
        """Return the numbers, in the source, of the rows of one origin."""
        return [each.row for each in self.rows.values() if each.origin is origin]

    def row(self, number: int) -> tuple[int, object]:
        """Return a row's number in the source, and its origin."""
        found = self.rows[number]
        return found.row, found.origin

    def template_of(self, batch: Sequence[int]) -> RequestTemplate:
        """Return the template of the request for some rows."""
        return self.rows[batch[0]].template

    def body(self, batch: Sequence[int]) -> bytes:
        """Return the request body of some rows."""
        return self.template_of(batch).body([self.rows[number].text for number in batch])

    def units_of(self, batch: Sequence[int]) -> float:
        """Return the write units that some rows are expected to cost."""
        return sum(self.rows[number].units for number in batch)

    def take(self) -> Sequence[int]:
        """Return the numbers of the rows that are sent next; none if none wait."""
        if self._halves:
            return self._halves.popleft()
        batch: list[int] = []
        size = 0
        while self._line and len(batch) < MOST_WRITES:
            size += len(self.rows[self._line[0]].text)
            if batch and size > MOST_BODY_BYTES:
                break
            batch.append(self._line.popleft())
        return batch

    def give_back(self, batch: Sequence[int]) -> None:
        """Take back rows that were not written; those that waited for longer come before them."""
        self._line.extend(batch)

    def halve(self, batch: Sequence[int]) -> None:
        """Take back two rows or more, to send each half in a request of its own."""
        middle = len(batch) // 2
        self._halves.extendleft((batch[middle:], batch[:middle]))

    def defer(self, _: Sequence[int], __: DeferredRows) -> bool:
        """Return that rows which were deferred once are given back here."""
        return False

    def settle(self, batch: Sequence[int], left: Sequence[int]) -> None:
        """Forget the rows of a batch but those that are left, and take those back."""
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
    """Pack the rows of a lane into legal batches, until every row is settled.

    A batch must be settled before the next one is taken. Rows that are given back come again first.

    Parameters
    ----------
    origin
        What the rows are said to come from.
    """

    def __init__(self, writes: Writes, origin: object = None) -> None:
        self._writes, self._origin = writes, origin
        self.body, self.units_of = writes.body, writes.units_of
        # What its lane knows of rows by their place: their keys, where some of a batch came back, and who was counted.
        self.keys: dict[int, tuple[Any, ...]] = {}
        self.counted: set[int] = set()
        self._takes_one_row = writes.template.separator is None
        # Up to each end hashes rise, so that no key occurs twice, and no row needs a request of its own.
        falls = np.flatnonzero(writes.hashes[1:] <= writes.hashes[:-1]) + 1
        if writes.own_templates:
            singles = np.fromiter(writes.own_templates, np.int64, len(writes.own_templates))
            falls = np.unique(np.concatenate((falls, singles, singles + 1)))
        self._ends = deque([*falls.tolist(), len(writes)])
        self._next, self._length = 0, len(writes)
        self._returned: list[int] = []
        self._halves: deque[Sequence[int]] = deque()

    def take(self) -> Sequence[int]:
        """Return the positions of the next batch's rows, as a range if they are adjacent; none after the last."""
        if self._halves:
            return self._halves.popleft()
        if self._returned:
            batch, self._returned = self._returned, []
            return batch if self._is_single(batch[0]) else self._fill(batch)
        place = self._next
        if place >= self._length:
            return ()
        if self._takes_one_row or place in self._writes.own_templates:
            self._next = place + 1
            return range(place, place + 1)
        return self._full_batch() or self._fill([])

    def row(self, place: int) -> tuple[int, object]:
        """Return a row's number in the source, and its origin."""
        return int(self._writes.rows[place]), self._origin

    def defer(self, batch: Sequence[int], deferred: DeferredRows) -> bool:
        """Defer rows that were not written, unless each needs a request of its own; return whether that was done."""
        if self._is_single(batch[0]) or self._halves:
            return False
        deferred.add(self._writes, batch, self._origin, self.keys)
        return True

    def settle(self, _: Sequence[int], left: Sequence[int]) -> None:
        """Take back what is left of a batch; see ``give_back``."""
        if left:
            self.give_back(left)

    def give_back(self, batch: Sequence[int]) -> None:
        """Take back rows that were not written; they come next, and are not mixed into a batch that was halved."""
        if not self._halves:
            self._returned = list(batch)
        elif batch:
            self._halves.appendleft(batch)

    def halve(self, batch: Sequence[int]) -> None:
        """Take back two rows or more, to send each half in a request of its own."""
        middle = len(batch) // 2
        self._halves.extendleft((batch[middle:], batch[:middle]))

    def _is_single(self, place: int) -> bool:
        return self._takes_one_row or place in self._writes.own_templates

    def _bytes(self, first: int, stop: int) -> int:
        return self._writes.offsets[stop] - self._writes.offsets[first]

    def _full_batch(self) -> Sequence[int]:
        """Return the next 25 rows, or the last ones, as a batch if nothing among them ends it; otherwise nothing."""
        start, ends = self._next, self._ends
        end = min(start + MOST_WRITES, self._length)
        while ends and ends[0] <= start:
            ends.popleft()
        if not ends or end > ends[0]:
            return ()
        if self._bytes(start, end) > MOST_BODY_BYTES:
            return ()
        self._next = end
        return range(start, end)

    def _fill(self, batch: list[int]) -> list[int]:
        """Fill a batch row by row."""
        hashes = self._writes.hashes
        seen = {int(hashes[place]) for place in batch}
        size = sum(self._bytes(place, place + 1) for place in batch)
        while self._next < len(self._writes) and len(batch) < MOST_WRITES:
            place = self._next
            size += self._bytes(place, place + 1)
            if batch and (size > MOST_BODY_BYTES or int(hashes[place]) in seen or self._is_single(place)):
                break
            seen.add(int(hashes[place]))
            batch.append(place)
            self._next += 1
        return batch
