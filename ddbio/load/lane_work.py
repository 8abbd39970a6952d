"""Hold what the lanes of a write have to do: chunks of rows, and checkpoints between them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ddbio.items.kernel.arrays import take_rows
from ddbio.items.raw_items import RawItems
from ddbio.jobs.rejected_rows import RejectedRow, row_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pyarrow as pa

    from ddbio.load.batches import Writes
    from ddbio.load.checkpoint import Checkpoint
    from ddbio.load.write_retries import Answer, Lane, Pause, Send

Rows: TypeAlias = "pa.RecordBatch | RawItems"
Steps: TypeAlias = "Generator[Send | Pause | None, Answer | None, None]"


class LaneWork:
    """Hold what one lane writes of a chunk of rows, and the chunk, of which some rows may be all that is kept."""

    def __init__(self, writes: Writes, chunk: Rows, first_row: int) -> None:
        self.writes: Writes | None = writes
        self._chunk, self._first_row = chunk, first_row
        self._kept: dict[int, int] | None = None

    def keep(self, rows: list[int]) -> None:
        """Keep only the rows of these numbers, and give the memory of the others free."""
        self.writes = None
        self._kept = {row: place for place, row in enumerate(rows)}
        places = np.asarray(rows) - self._first_row
        self._chunk = self._chunk.take(places) if isinstance(self._chunk, RawItems) else take_rows(self._chunk, places)

    def rejected(self, row: int, reason: str, *, nulls: bool) -> RejectedRow:
        """Return the row of that number with the service's reason."""
        code, _, message = reason.partition(": ")
        place = row - self._first_row if self._kept is None else self._kept[row]
        return RejectedRow(row, code, message, row_text(self._chunk, place, nulls=nulls))


class LaneQueue:
    """Hold a lane, its work, and the generator of its steps."""

    def __init__(self, lane: Lane, steps: Callable[[LaneQueue], Steps]) -> None:
        self.lane = lane
        self.work: deque[LaneWork | Checkpoint] = deque()
        # Checkpoints that wait for deferred rows: those with a smaller number came before.
        self.waiting: deque[tuple[int, Checkpoint]] = deque()
        # Chunks that it has not begun.
        self.queued = 0
        self.is_idle = True
        self.steps = steps(self)
