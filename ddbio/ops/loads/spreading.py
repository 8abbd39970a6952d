"""Spread rows over the partitions of a table: order them so that any requests reach all partitions at the same time.

Rows that were read from DynamoDB come in the order of its hashes, and so would be written partition by partition. They
are collected in windows of some megabytes, and each chunk takes rows from all over a window. Rows of one key keep their
order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ddbio.core.batch_size import batch_bytes
from ddbio.core.item_key import key_hashes
from ddbio.core.loads.batches import in_key_order, spread_rows
from ddbio.core.loads.encode import chunk_rows
from ddbio.core.loads.plan import MOST_WRITES
from ddbio.core.raw_items import RawItems, joined_items
from ddbio.errors import DecodeError, SchemaError
from ddbio.ops.loads.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ddbio.core.loads.plan import WritePlan

    Rows: TypeAlias = pa.RecordBatch | RawItems | Checkpoint

WINDOW_BYTES = 64 * 1024 * 1024
"""The bytes of a window."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html: a job that is slower
# than one partition needs only short windows. Checkpoints wait for the end of a window, so no window may take long.
_PARTITION_WCU = 1000.0
_WINDOW_SECONDS = 10
# More than the lanes can have unfinished, with large windows and with small ones.
_RETAINED_WINDOWS = 16
_RETAINED_ROWS = 100_000


class RowSpreader:
    """Spread the rows of one task, and remember the number of each among the rows that came.

    Parameters
    ----------
    any_order
        Whether rows may be written in any order: each key occurs once, or the result does not depend on it. Otherwise
        rows of one key keep their order.
    window_bytes
        The bytes of a window.
    """

    def __init__(self, plan: WritePlan, *, any_order: bool, window_bytes: int = WINDOW_BYTES) -> None:
        self._plan, self._any_order, self._window_bytes = plan, any_order, window_bytes
        self._rows = 0
        self._numbers: deque[tuple[int, NDArray[np.int64]]] = deque()

    def spread(self, rows: Iterable[Rows]) -> Iterator[Rows]:
        """Yield the rows in chunks that fill the batches of all lanes; a checkpoint comes after the rows before it."""
        window = _Window(self._plan, self._window_bytes)
        for each in rows:
            if not isinstance(each, Checkpoint):
                if not window.accepts(each):
                    yield from self._close(window)
                window.add(each)
            else:
                window.checkpoints.append(each)
            if window.is_full or not window.rows:
                yield from self._close(window)
        yield from self._close(window)

    def number_of(self, row: int) -> int:
        """Return the number, among the rows that came, of a row that was yielded lately."""
        for first, order in reversed(self._numbers):
            if row >= first:
                return first + int(order[row - first])
        return row

    def _close(self, window: _Window) -> Iterator[Rows]:
        if window.rows:
            joined = joined_rows(window.batches)
            order = spread_rows(window.rows)
            if not self._any_order:
                order = self._with_keys_in_order(order, joined)
            self._numbers.append((self._rows, order))
            self._rows += window.rows
            while len(self._numbers) > _RETAINED_WINDOWS and self._rows - self._numbers[1][0] > _RETAINED_ROWS:
                self._numbers.popleft()
            n_chunks = -(-window.rows // window.chunk_rows)
            for places in np.array_split(order, n_chunks):
                yield joined.take(places)
        yield from window.checkpoints
        window.clear()

    def _with_keys_in_order(self, order: NDArray[np.int64], rows: pa.RecordBatch | RawItems) -> NDArray[np.int64]:
        if isinstance(rows, RawItems):
            # An item that its reader could not vouch for has no hash: it may have any key.
            return np.arange(len(rows)) if rows.doubtful.any() else in_key_order(order, rows.hashes)
        try:
            return in_key_order(order, key_hashes(rows, list(dict(self._plan.key_types))))
        except (SchemaError, DecodeError):
            # A row has no legal key; it is rejected when it is encoded.
            return np.arange(rows.num_rows)


class _Window:
    """Hold rows of one schema, and the checkpoints after them."""

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
        """Return how many rows fill the batches of all lanes, but no more than the budget allows in about a second."""
        full = chunk_rows(self._bytes // max(1, self.rows), self._plan)
        return full if self._most_chunk_rows is None else min(full, self._most_chunk_rows)

    def clear(self) -> None:
        self.checkpoints.clear()
        self.batches.clear()
        self.rows = self._bytes = 0


def joined_rows(batches: list[Any]) -> pa.RecordBatch | RawItems:
    """Join batches of one schema, or raw items."""
    if len(batches) == 1:
        return batches[0]  # type: ignore[no-any-return]
    if isinstance(batches[0], RawItems):
        return joined_items(batches)
    columns = [pa.concat_arrays(list(column)) for column in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
