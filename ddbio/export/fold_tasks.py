"""Fold increments into a full export in three steps of tasks, each in bounded memory.

1. The changes are spilled by key: the hash of a key chooses one of many buckets. The hashes are spilled as well.
2. Rows of the full export whose key has none of the hashes go to the output. The others are spilled like the changes.
3. Each bucket is read back and folded by itself, comparing whole keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.export.fold_rows import changed_keys, fold
from ddbio.export.spill import SpillReader, SpillWriter
from ddbio.export.tasks import ExportCounts, ExportFilesResult, ExportStream
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.arrays import bool_array, take_rows
from ddbio.items.key_hashes import HashSet
from ddbio.items.rescue import MisfitLog
from ddbio.items.time_columns import TimeColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.budget import Budget
    from ddbio.export.spill import Spill
    from ddbio.export.tasks import ExportTask
    from ddbio.items.rescue import OnMisfit
    from ddbio.jobs.staging import Staging

_CHANGES, _ITEMS = "changes", "items"


@dataclass(frozen=True)
class ResultColumns:
    """Say what the rows of the result are: their columns, which may be times, and what becomes of misfits."""

    rows: pa.Schema
    on_misfit: OnMisfit
    drop: tuple[str, ...]

    def convert(self, batches: Iterable[pa.RecordBatch], log: MisfitLog) -> Iterator[pa.RecordBatch]:
        """Yield batches that hold times as text or numbers with these columns."""
        times = TimeColumns(self.rows, self.drop)
        for batch in batches:
            yield times.convert(batch, log) if times else batch
            if self.on_misfit == "fail":
                log.require_empty()


@dataclass(frozen=True)
class ChangesTask:
    """Name the files of increments that one task spills, each with the number of its window."""

    reads: tuple[tuple[int, ExportTask], ...]
    keys: tuple[str, ...]
    spill: Spill


@dataclass(frozen=True)
class ItemsTask:
    """Name the files of the full export that one task reads."""

    read: ExportTask
    keys: tuple[str, ...]
    spill: Spill
    staging: Staging
    result: ResultColumns


@dataclass(frozen=True)
class BucketsTask:
    """Name the buckets that one task folds."""

    number: int
    buckets: range
    keys: tuple[str, ...]
    schema: pa.Schema
    spill: Spill
    staging: Staging
    result: ResultColumns


def spill_changes(task: ChangesTask, budget: Budget) -> ExportCounts:
    """Spill the changes of one task, and the hashes of their keys."""
    total = ExportCounts()
    for window, read in task.reads:
        # Rows are read back in the order of these names: by window.
        name = f"{window:05d}-{read.number:05d}"
        stream, writer, seen = ExportStream(read, budget), SpillWriter(task.spill, _CHANGES, name), list[Any]()
        for batch in stream:
            hashes = key_hashes(changed_keys(batch), task.keys)
            writer.write(batch.drop_columns(["old_image"]), hashes)
            seen.append(hashes)
        writer.flush()
        task.spill.put_hashes(name, np.concatenate([np.zeros(0, np.uint64), *seen]))
        total.add(stream.counts)
    return total


def split_items(task: ItemsTask, budget: Budget) -> ExportFilesResult:
    """Stage the items that have no change, and spill the others; nothing stays staged if it fails."""
    stream, changed = ExportStream(task.read, budget), HashSet(task.spill.hashes())
    writer = SpillWriter(task.spill, _ITEMS, f"{task.read.number:05d}")

    def unchanged() -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if not len(changed):
                yield batch
                continue
            hashes = key_hashes(batch, task.keys)
            hit = changed.holds(hashes)
            if not hit.any():
                yield batch
                continue
            writer.write(take_rows(batch, np.flatnonzero(hit)), hashes[hit])
            yield batch.filter(bool_array(~hit))

    log = MisfitLog()
    staged = task.staging.write(task.result.convert(unchanged(), log), task.result.rows, task.read.number, log)
    writer.flush()
    stream.counts.misfits.merge(log)
    return ExportFilesResult(staged, stream.counts)


def fold_buckets(task: BucketsTask, budget: Budget) -> ExportFilesResult:
    """Fold the buckets of one task and stage the result; nothing stays staged if it fails.

    What was read is counted already: the counts hold misfits alone.
    """

    def folded() -> Iterator[pa.RecordBatch]:
        items_of, changes_of = (SpillReader(task.spill, kind, task.buckets) for kind in (_ITEMS, _CHANGES))
        for bucket in task.buckets:
            # What was spilled is counted already; this raises if the job is being stopped.
            budget.settle(budget.acquire(0), 0)
            items, changes = items_of.tables(bucket), changes_of.tables(bucket)
            before = pa.concat_tables(items) if items else task.schema.empty_table()
            yield from fold(before, changes, task.keys).to_batches()

    counts = ExportCounts()
    rows = task.result.convert(folded(), counts.misfits)
    return ExportFilesResult(task.staging.write(rows, task.result.rows, task.number, counts.misfits), counts)
