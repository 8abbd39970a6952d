"""Order of rows that spreads them over the partitions of a table, so that all partitions are written at the same time.

Rows that were read from DynamoDB are in the order of its hashes, and so would be written partition by partition. They
are collected in windows of some megabytes, and each chunk takes rows from the whole window. Rows of one key keep their
order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.batch_size import batch_bytes
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.arrays import joined_batches, take_rows
from ddbio.items.raw_items import RawItemParts, RawItems
from ddbio.load.batches import RowRanges, in_key_order, spread_ranges
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import chunk_rows
from ddbio.load.plan import MOST_WRITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.load.plan import WritePlan

    Rows: TypeAlias = pa.RecordBatch | RawItems | Checkpoint

WINDOW_BYTES = 64 * 1024 * 1024
"""Size of a window."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html: a job that is slower
# than one partition needs only short windows. Checkpoints wait for the end of a window, so no window may take long.
_PARTITION_WCU = 1000.0
_WINDOW_SECONDS = 10
# More than the lanes can have unfinished, with large chunks and with small ones.
_RETAINED_CHUNKS = 16
_RETAINED_ROWS = 100_000


class RowSpreader:
    """Spreading of the rows of one task. It remembers the original number of each row.

    Parameters
    ----------
    any_order
        Whether rows may be written in any order: each key occurs once, or the result does not depend on it. Otherwise
        rows of one key keep their order.
    window_bytes
        The size of a window.
    """

    def __init__(self, plan: WritePlan, *, any_order: bool, window_bytes: int = WINDOW_BYTES) -> None:
        self._plan, self._any_order, self._window_bytes = plan, any_order, window_bytes
        self._rows = 0
        self._orders: deque[tuple[int, RowRanges]] = deque()

    def spread(self, rows: Iterable[Rows]) -> Iterator[Rows | None]:
        """Yield the rows in chunks that fill the batches of all lanes. A checkpoint follows the rows before it.

        None is yielded when rows were added and more rows are awaited.
        """
        window = _Window(self._plan, self._window_bytes)
        for element in rows:
            if not isinstance(element, Checkpoint):
                if not window.accepts(element):
                    yield from self._close(window)
                window.add(element)
            else:
                window.checkpoints.append(element)
            if window.is_full or not window.rows:
                yield from self._close(window)
            else:
                yield None
        yield from self._close(window)

    def number_of(self, row: int) -> int:
        """Return the number, in the input, of a row that was yielded recently."""
        for first, chunk in reversed(self._orders):
            if row >= first:
                return chunk.row_at(row - first)
        return row

    def _close(self, window: _Window) -> Iterator[Rows]:
        if window.rows:
            yield from self._chunks(window)
        yield from window.checkpoints
        window.clear()

    def _chunks(self, window: _Window) -> Iterator[Rows]:
        n_chunks = -(-window.rows // window.chunk_rows)
        chunks = spread_ranges([batch.num_rows for batch in window.batches], n_chunks)
        parts = _RawParts(window.batches) if isinstance(window.batches[0], RawItems) else _BatchParts(window.batches)
        order = None if self._any_order else self._order_of_keys(chunks, parts)
        if order is None:
            self._note(chunks)
            for chunk in chunks:
                yield parts.joined_ranges(chunk)
            return
        self._note([RowRanges.of_order(order)])
        for rows in np.array_split(order, n_chunks):
            yield parts.taken(rows)

    def _note(self, chunks: Sequence[RowRanges]) -> None:
        """Remember the rows that are yielded next."""
        first = self._rows
        for chunk in chunks:
            self._orders.append((self._rows, RowRanges(chunk.starts, chunk.firsts + first)))
            self._rows += int(chunk.starts[-1])
        while len(self._orders) > _RETAINED_CHUNKS and self._rows - self._orders[1][0] > _RETAINED_ROWS:
            self._orders.popleft()

    def _order_of_keys(self, chunks: Sequence[RowRanges], parts: _RawParts | _BatchParts) -> NDArray[np.int64] | None:
        """Return another order if the rows of a key would be in the wrong order."""
        try:
            hashes = parts.hashes(list(dict(self._plan.key_types)))
        except (SchemaError, DecodeError):
            # A row has no valid key. It is rejected when it is encoded.
            hashes = None
        if hashes is None:
            return np.arange(parts.n_rows)
        order = np.concatenate([chunk.order for chunk in chunks])
        ordered = in_key_order(order, hashes)
        return None if ordered is order else ordered


class _RawParts:
    """Raw items of a window."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = RawItemParts(parts)
        self.n_rows = len(self._parts.hashes)
        self._joined: RawItems | None = None

    def taken(self, rows: NDArray[np.int64]) -> RawItems:
        """Return some rows, in their order."""
        if self._joined is None:
            self._joined = self._parts.joined()
        return self._joined.take(rows)

    def hashes(self, _: list[str]) -> NDArray[np.uint64] | None:
        """Return the hash of each item's key, or None if an item, which its reader could not validate, has no key."""
        return None if self._parts.doubtful.any() else self._parts.hashes

    def joined_ranges(self, chunk: RowRanges) -> RawItems:
        """Return a chunk."""
        return self._parts.joined_ranges(chunk.firsts, np.diff(chunk.starts))


class _BatchParts:
    """Record batches of one schema."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._joined = joined_batches(parts)
        self.n_rows = self._joined.num_rows

    def taken(self, rows: NDArray[np.int64]) -> pa.RecordBatch:
        """Return some rows, in their order."""
        return take_rows(self._joined, rows)

    def hashes(self, keys: list[str]) -> NDArray[np.uint64]:
        """Return the hash of each row's key."""
        return key_hashes(self._joined, keys)

    def joined_ranges(self, chunk: RowRanges) -> pa.RecordBatch:
        """Return a chunk."""
        # Joining a slice of each range takes several times as long, as each slice has one array per column.
        return take_rows(self._joined, chunk.order)


class _Window:
    """Rows of one schema, and the checkpoints after them."""

    def __init__(self, plan: WritePlan, most_bytes: int) -> None:
        self._plan, self._most_bytes = plan, most_bytes
        rate, full = plan.wcu_per_second, plan.lanes * MOST_WRITES
        self._most_chunk_rows = self._most_rows = None
        if rate is not None:
            self._most_chunk_rows = max(full, int(rate))
            self._most_rows = self._most_chunk_rows * (_WINDOW_SECONDS if rate > _PARTITION_WCU else 1)
        self.checkpoints: list[Checkpoint] = []
        self.batches: list[pa.RecordBatch | RawItems] = []
        self.rows = self._bytes = 0

    def accepts(self, batch: pa.RecordBatch | RawItems) -> bool:
        """Return whether rows can be joined with those of the window."""
        first = self.batches[0] if self.batches else batch
        if isinstance(first, RawItems) or isinstance(batch, RawItems):
            return type(first) is type(batch)
        return first.schema.equals(batch.schema, check_metadata=True)

    def add(self, batch: pa.RecordBatch | RawItems) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self._bytes += int(batch.sizes.sum()) if isinstance(batch, RawItems) else batch_bytes(batch)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._most_bytes or (self._most_rows is not None and self.rows >= self._most_rows)

    @property
    def chunk_rows(self) -> int:
        """Return the number of rows that fill the batches of all lanes, limited to about one second of the budget."""
        full = chunk_rows(self._bytes // max(1, self.rows), self._plan)
        return full if self._most_chunk_rows is None else min(full, self._most_chunk_rows)

    def clear(self) -> None:
        self.checkpoints.clear()
        self.batches.clear()
        self.rows = self._bytes = 0
