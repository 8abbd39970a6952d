"""Order encoded rows, deal them to lanes, and pack each lane's rows into legal write requests.

A batch holds at most 25 writes and 16 MB, and no key twice. Rows of one key always go to one lane, and keep their
order. A lane takes rows by rank, that is the first row of every key before any second one, and within a rank by the
hash of their keys: even sorted input then reaches all partitions of the table at once. Rows that come back unprocessed
go out before rows that were not sent yet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddbio.core.kernel.arrange import arrange
from ddbio.core.kernel.memory import PAD
from ddbio.core.plan import spread_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MOST_WRITES = 25
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html: 16 MB, the frame included.
MOST_BODY_BYTES = 16 * 1024 * 1024 - 64 * 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
WRITE_UNIT_BYTES = 1024

PLACES = 512
"""At how many places of a window rows are taken in turn: several in each partition, as many as one process can use."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Say what a request is made of around its rows' own bytes, and which operation takes it.

    A frame without ``separator`` takes one row a request.
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
    """Hold rows to be written, equal hashes adjacent and in their order.

    Attributes
    ----------
    rows
        Each write's row in its source batch.
    hashes
        Of each row's key; equal hashes count as equal keys.
    units
        Write units that a row is expected to cost.
    texts
        Each row's own bytes in a request, the frame's separator behind each: rows that are neighbours are so in a body.
    starts
        Where each row's bytes begin, and where the last separator ends.
    frame
        What goes around them.
    alone
        Rows that need a request, and a frame, of their own; by position.
    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    units: NDArray[np.float64]
    texts: NDArray[np.uint8]
    starts: NDArray[np.int64]
    frame: Frame
    alone: dict[int, Frame]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, place: int) -> bytes:
        """Return the bytes of one row."""
        return self._run(place, place + 1).tobytes()

    def frame_of(self, batch: Sequence[int]) -> Frame:
        """Return the frame of the request for some rows."""
        return self.alone.get(batch[0], self.frame)

    def body(self, batch: Sequence[int]) -> bytes:
        """Return the request body of some rows."""
        frame = self.frame_of(batch)
        if isinstance(batch, range):
            return b"".join((frame.opening, self._run(batch.start, batch.stop).data, frame.closing))
        return frame.body([self.part(place) for place in batch])

    def units_of(self, batch: Sequence[int]) -> float:
        """Return the write units that some rows are expected to cost."""
        if isinstance(batch, range):
            return float(self._unit_ends[batch.stop] - self._unit_ends[batch.start])
        return float(self.units[batch].sum())

    @cached_property
    def _unit_ends(self) -> NDArray[np.float64]:
        return np.concatenate(([0.0], np.cumsum(self.units)))

    def _run(self, first: int, stop: int) -> NDArray[np.uint8]:
        return self.texts[self.starts[first] : self.starts[stop] - len(self.frame.separator or b"")]


def write_units(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the write units of items of these sizes: 1 KiB a unit, one at least."""
    return np.maximum(1.0, np.ceil(sizes / WRITE_UNIT_BYTES))


def packing_order(hashes: NDArray[np.uint64], alone: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the order in which rows are handed out: by rank among the rows of their key, then by hash.

    Parameters
    ----------
    alone
        Rows that take a request each: within a rank they come last, so that they break no batch of the others.
    """
    by_hash = np.argsort(hashes)
    if alone is None and (hashes[by_hash[1:]] != hashes[by_hash[:-1]]).all():
        return by_hash
    # What is slower keeps the order of equal keys.
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    places = np.arange(len(ordered))
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    ranks = places - np.maximum.accumulate(np.where(begins, places, 0))
    if alone is None:
        return by_hash[np.argsort(ranks, kind="stable")]
    return by_hash[np.lexsort((alone[by_hash], ranks))]


def spread_rows(count: int) -> NDArray[np.int64]:
    """Return the numbers of some rows in an order that takes one at each of many places in turn."""
    each = max(1, -(-count // PLACES))
    places = np.array(spread_order(-(-count // each)), np.int64) * each
    order = (np.arange(each)[:, None] + places).reshape(-1)
    return order[order < count]


def in_key_order(order: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return an order in which rows of one key ascend, at the places that they have together.

    Parameters
    ----------
    hashes
        Of each row's key; equal hashes count as equal keys.
    """
    # Sorting values takes a fraction of what sorting places takes, and most windows have every key once.
    found = np.sort(hashes)
    if (found[1:] != found[:-1]).all():
        return order
    by_hash = np.argsort(hashes, kind="stable")
    equal = hashes[by_hash[1:]] == hashes[by_hash[:-1]]
    is_repeated = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    # Ascending within each key, as the sort is stable.
    rows = by_hash[is_repeated]
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    taken = places[rows]
    ordered = order.copy()
    ordered[taken[np.lexsort((taken, hashes[rows]))]] = rows
    return ordered


class Texts(NamedTuple):
    """Hold rows' own bytes of a request, where each begins and ends, its units, and the first row's number."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    units: NDArray[np.float64]
    first_row: int


class LaneSplitter:
    """Lay encoded rows out by lane, as their requests will have them: rows of one key always go to one lane.

    Parameters
    ----------
    spare
        Memory to put texts into; what was ``texts`` of writes that are done may be added at any time.
    """

    def __init__(self, lanes: int, frame: Frame, spare: deque[NDArray[np.uint8]]) -> None:
        self._lanes, self._frame, self._spare = lanes, frame, spare

    def split(
        self, texts: Texts, rows: NDArray[np.int64], hashes: NDArray[np.uint64], frames: Mapping[int, Frame]
    ) -> list[Writes]:
        """Return the writes of each lane.

        Parameters
        ----------
        rows
            Those that are written.
        hashes
            The hash of each of their keys.
        frames
            The frame of each row that does not have the common one.
        """
        order = packing_order(hashes, np.isin(rows, list(frames)) if frames else None)
        # The top bits choose the lane: within one, sorting by hash still spreads the keys.
        lane_of = ((hashes[order] >> np.uint64(32)) * np.uint64(self._lanes) >> np.uint64(32)).astype(np.uint16)
        order = order[np.argsort(lane_of, kind="stable")]
        ends = np.cumsum(np.bincount(lane_of, minlength=self._lanes))
        return [self._share(texts, rows[places], hashes[places], frames) for places in np.split(order, ends[:-1])]

    def _share(
        self, texts: Texts, rows: NDArray[np.int64], hashes: NDArray[np.uint64], frames: Mapping[int, Frame]
    ) -> Writes:
        separator = self._frame.separator or b""
        n_bytes = int((texts.ends[rows] - texts.begins[rows]).sum()) + len(rows) * len(separator)
        room, starts = self._room(n_bytes + PAD), np.empty(len(rows) + 1, np.int64)
        padded = np.frombuffer(separator + bytes(PAD), np.uint8)
        arrange(texts.data, texts.begins, texts.ends, rows, padded, room, starts)
        alone = {}
        if frames:
            alone = {place: frames[row] for place, row in enumerate(rows.tolist()) if row in frames}
        return Writes(rows + texts.first_row, hashes, texts.units[rows], room, starts, self._frame, alone)

    def _room(self, n_bytes: int) -> NDArray[np.uint8]:
        # Fresh memory costs more than what is copied into it.
        while self._spare:
            room = self._spare.pop()
            if len(room) >= n_bytes:
                return room
        return np.empty(n_bytes + n_bytes // 4, np.uint8)


class Packer:
    """Hand out the rows of some writes as legal write batches until every row was settled.

    What was handed out must be settled before more is taken: rows given back come again first.
    """

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._single = writes.frame.separator is None
        # Between two falls hashes rise, so no key occurs twice; nor is there a row that goes alone.
        falls = np.flatnonzero(writes.hashes[1:] <= writes.hashes[:-1]) + 1
        alone = np.fromiter(writes.alone, np.int64, len(writes.alone))
        self._falls = deque([*np.unique(np.concatenate((falls, alone, alone + 1))).tolist(), len(writes)])
        self._next = 0
        self._back: list[int] = []
        self._parted: deque[Sequence[int]] = deque()

    def take(self) -> Sequence[int]:
        """Return the positions of the next batch's rows, a range where they are neighbours; none after the last."""
        if self._parted:
            return self._parted.popleft()
        batch, self._back = self._back, []
        if batch:
            return batch if self._is_alone(batch[0]) else self._filled(batch)
        if self._next < len(self._writes) and self._is_alone(self._next):
            self._next += 1
            return range(self._next - 1, self._next)
        return self._run() or self._filled(batch)

    def give_back(self, batch: Sequence[int]) -> None:
        """Take back rows that were not written; they go out first, and join no group that is being parted."""
        if not self._parted:
            self._back = list(batch)
        elif batch:
            self._parted.appendleft(batch)

    def part(self, batch: Sequence[int]) -> None:
        """Take back two rows or more, to send each half apart."""
        middle = len(batch) // 2
        self._parted.extendleft((batch[middle:], batch[:middle]))

    def _is_alone(self, place: int) -> bool:
        return self._single or place in self._writes.alone

    def _bytes(self, first: int, stop: int) -> int:
        return int(self._writes.starts[stop] - self._writes.starts[first])

    def _run(self) -> Sequence[int]:
        """Return a full batch where the next rows plainly make one."""
        start, end = self._next, self._next + MOST_WRITES
        while self._falls and self._falls[0] <= start:
            self._falls.popleft()
        if not self._falls or end > self._falls[0]:
            return ()
        if self._bytes(start, end) > MOST_BODY_BYTES:
            return ()
        self._next = end
        return range(start, end)

    def _filled(self, batch: list[int]) -> list[int]:
        hashes = self._writes.hashes
        seen = {int(hashes[place]) for place in batch}
        size = sum(self._bytes(place, place + 1) for place in batch)
        while self._next < len(self._writes) and len(batch) < MOST_WRITES:
            place = self._next
            size += self._bytes(place, place + 1)
            if batch and (size > MOST_BODY_BYTES or int(hashes[place]) in seen or self._is_alone(place)):
                break
            seen.add(int(hashes[place]))
            batch.append(place)
            self._next += 1
        return batch
