"""Pack encoded writes into legal request bodies, every key's rows in their order; refuses to send and to parse items.

A write batch holds at most 25 writes and 16 MB, and no key twice. Rows are handed out by rank, that is all first rows
of every key before all second ones, and within a rank in the order of the keys' hashes: sorted input then meets
all partitions at once. What came back unprocessed goes before everything that was not sent yet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MOST_WRITES = 25
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html: 16 MB, the frame included.
MOST_BODY_BYTES = 16 * 1024 * 1024 - 64 * 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
WRITE_UNIT_BYTES = 1024


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
    parts
        Each row's own bytes in a request.
    frame
        What goes around them.
    alone
        Rows that need a request, and a frame, of their own; by position.
    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    units: NDArray[np.float64]
    parts: list[bytes]
    frame: Frame
    alone: dict[int, Frame]

    def __len__(self) -> int:
        return len(self.parts)


def write_units(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the write units of items of these sizes: 1 KiB a unit, one at least."""
    return np.maximum(1.0, np.ceil(sizes / WRITE_UNIT_BYTES))


def packing_order(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the order in which rows are handed out: by rank among the rows of their key, then by hash."""
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    places = np.arange(len(ordered))
    begins = np.empty(len(ordered), bool)
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    ranks = places - np.maximum.accumulate(np.where(begins, places, 0))
    return by_hash[np.argsort(ranks, kind="stable")] if ranks.any() else by_hash


class Packer:
    """Hand out the rows of some writes as legal write batches until every row was settled.

    What was handed out must be settled before more is taken: rows given back come again first.
    """

    def __init__(self, writes: Writes) -> None:
        self._hashes: list[int] = writes.hashes.tolist()
        self._sizes = [len(part) for part in writes.parts]
        self._alone = writes.alone.keys()
        self._single = writes.frame.separator is None
        self._overhead = 2 + max(len(writes.frame.separator or b""), len(writes.frame.opening))
        sizes = np.fromiter(self._sizes, np.int64, len(self._sizes)) + self._overhead
        self._ends: list[int] = np.concatenate(([0], np.cumsum(sizes))).tolist()
        # Between two falls hashes rise, so no key occurs twice.
        falls = np.flatnonzero(writes.hashes[1:] <= writes.hashes[:-1]) + 1
        self._falls = deque([*falls.tolist(), len(self._sizes)])
        self._next = 0
        self._back: list[int] = []
        self._parted: deque[list[int]] = deque()

    def take(self) -> list[int]:
        """Return the positions of the next batch's rows; an empty list when all rows were taken."""
        if self._parted:
            return self._parted.popleft()
        batch, self._back = self._back, []
        if batch:
            return batch if self._is_alone(batch[0]) else self._filled(batch)
        return self._run() or self._filled(batch)

    def give_back(self, batch: list[int]) -> None:
        """Take back rows that were not written; they go out first, and join no group that is being parted."""
        if not self._parted:
            self._back = batch
        elif batch:
            self._parted.appendleft(batch)

    def part(self, batch: list[int]) -> None:
        """Take back two rows or more, to send each half apart."""
        middle = len(batch) // 2
        self._parted.extendleft((batch[middle:], batch[:middle]))

    def _is_alone(self, place: int) -> bool:
        return self._single or place in self._alone

    def _run(self) -> list[int]:
        """Return a full batch where the next rows plainly make one."""
        start, end = self._next, self._next + MOST_WRITES
        while self._falls and self._falls[0] <= start:
            self._falls.popleft()
        if self._single or self._alone or not self._falls or end > self._falls[0]:
            return []
        if self._ends[end] - self._ends[start] > MOST_BODY_BYTES:
            return []
        self._next = end
        return list(range(start, end))

    def _filled(self, batch: list[int]) -> list[int]:
        count = len(self._sizes)
        seen = {self._hashes[place] for place in batch}
        size = sum(self._sizes[place] + self._overhead for place in batch)
        while self._next < count and len(batch) < MOST_WRITES:
            place = self._next
            size += self._sizes[place] + self._overhead
            if batch and (size > MOST_BODY_BYTES or self._hashes[place] in seen or self._is_alone(place)):
                break
            seen.add(self._hashes[place])
            batch.append(place)
            self._next += 1
            if self._is_alone(place):
                break
        return batch
