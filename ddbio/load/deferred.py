"""Hold the rows of a lane that came back unprocessed, to be sent again beside rows that are new.

Rows come back when their partition of the table is at its limit, while most other partitions take more. Such rows wait
here with their bytes alone, so that the lane goes on with rows of other partitions, of later chunks too, and the memory
of its chunks becomes free. No row is sent while another of its key waits: rows of one key keep their order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.load.batches import MOST_BODY_BYTES
from ddbio.load.plan import MOST_WRITES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.load.batches import RequestTemplate, Writes

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
