"""Do one task's share of folding increments into a full export, step by step; each step's rows stay in bounded memory.

First changes are set aside by the bucket of their key. Then the full export's rows pass through to the output, but for
those whose key's hash a change has: they are set aside too. Last, each bucket is folded by itself, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.exports.fold import fold, require_keys
from ddbio.core.item_key import key_hashes
from ddbio.ops.exports.tasks import ExportFilesResult, ExportStream, ExportTally
from ddbio.ops.job.spill import SpillWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.budget import Budget
    from ddbio.core.staged import StagedFile
    from ddbio.ops.exports.tasks import ExportTask
    from ddbio.ops.job.spill import Spill
    from ddbio.ops.job.storage import Staging

_CHANGES, _ITEMS = "changes", "items"


@dataclass(frozen=True)
class ChangesTask:
    """Give a worker its share of several increments' files, each with the place of its window."""

    reads: tuple[tuple[int, ExportTask], ...]
    keys: tuple[str, ...]
    spill: Spill


@dataclass(frozen=True)
class ItemsTask:
    """Give a worker its share of the full export's files."""

    read: ExportTask
    keys: tuple[str, ...]
    spill: Spill
    staging: Staging


@dataclass(frozen=True)
class BucketsTask:
    """Give a worker its share of the buckets."""

    number: int
    buckets: tuple[int, ...]
    keys: tuple[str, ...]
    schema: pa.Schema
    spill: Spill
    staging: Staging


def set_changes_aside(task: ChangesTask, budget: Budget) -> ExportTally:
    """Set one task's changes aside, and the hashes of their keys."""
    whole = ExportTally()
    for window, read in task.reads:
        # Rows come back in the order of these names: by window.
        name = f"{window:05d}-{read.number:05d}"
        stream, writer, seen = ExportStream(read, budget), SpillWriter(task.spill, _CHANGES, name), list[Any]()
        for batch in stream:
            keys: Any = batch.column("keys")
            own = pa.RecordBatch.from_arrays(keys.flatten(), schema=pa.schema(list(keys.type)))
            require_keys(own, task.keys)
            hashes = key_hashes(own, task.keys)
            writer.write(batch.drop_columns(["old_image"]), hashes)
            seen.append(hashes)
        writer.flush()
        task.spill.put_hashes(name, np.concatenate([np.zeros(0, np.uint64), *seen]))
        whole.add(stream.tally)
    return whole


def pass_items(task: ItemsTask, budget: Budget) -> ExportFilesResult:
    """Stage the items that no change is about, and set the others aside; leave nothing staged when it fails."""
    stream, changed = ExportStream(task.read, budget), task.spill.hashes()
    writer = SpillWriter(task.spill, _ITEMS, f"{task.read.number:05d}")

    def unchanged() -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if not len(changed):
                yield batch
                continue
            require_keys(batch, task.keys)
            hashes = key_hashes(batch, task.keys)
            hit = changed[np.minimum(np.searchsorted(changed, hashes), len(changed) - 1)] == hashes
            writer.write(batch.filter(pa.array(hit)), hashes[hit])
            yield batch.filter(pa.array(~hit))

    staged = task.staging.write(unchanged(), task.read.layout.rows, task.read.number)
    writer.flush()
    return ExportFilesResult(staged, stream.tally)


def fold_buckets(task: BucketsTask, budget: Budget) -> tuple[StagedFile, ...]:
    """Stage what the changes made of the items of one task's buckets; leave nothing staged when it fails."""
    del budget  # what was set aside has been counted

    def folded() -> Iterator[pa.RecordBatch]:
        for bucket in task.buckets:
            items = task.spill.tables(_ITEMS, bucket)
            changes = task.spill.tables(_CHANGES, bucket)
            before = pa.concat_tables(items) if items else task.schema.empty_table()
            yield from fold(before, changes, task.keys).to_batches()

    return task.staging.write(folded(), task.schema, task.number)
