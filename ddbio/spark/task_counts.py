"""Tell the JVM what a task's requests cost, for Spark's pages: the shim ``PushdownSource`` says into which file."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark import TaskContext

from ddbio.budget.counted import CountedBudget
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    import pyarrow as pa

    from ddbio.budget import Budget
    from ddbio.scan.stream import ScanCounts

PROPERTY = "ddbio.counts"
"""The local property of a task by which the shim says where counts go."""


class TaskCounts:
    """Count what a task's requests consume, and the rows with rescued values that it yields."""

    def __init__(self, budget: Budget) -> None:
        context = TaskContext.get()
        self._path = None if context is None else context.getLocalProperty(PROPERTY)
        self._counted = CountedBudget(budget)
        self.budget: Budget = budget if self._path is None else self._counted
        self._rescued = 0

    def add_rows(self, batch: pa.RecordBatch) -> None:
        """Count the rescued values of rows that Spark gets; there are none in queries that do not read them."""
        if self._path is not None and RESCUE_NAME in batch.schema.names:
            self._rescued += batch.num_rows - batch.column(RESCUE_NAME).null_count

    def tell(self, counts: ScanCounts) -> None:
        """Write the counts so far over those that were written before; a file that is gone stays so."""
        if self._path is None:
            return
        units, throttles = round(self._counted.units * 10), self._counted.throttles.total()
        text = f"{counts.scanned_items} {counts.wire_bytes} {units} {throttles} {self._rescued}"
        with suppress(OSError):
            # Numbers only grow: the new text is as long as the old one, or longer.
            file = os.open(self._path, os.O_WRONLY)
            try:
                os.pwrite(file, text.encode(), 0)
            finally:
                os.close(file)
