"""Write one task's rows into staged files; show none of them."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.staged import FileNaming, Staged
from ddbio.lake.writer import FileOptions, RollingWriter
from ddbio.ops.task import ScanTask, SegmentStream

if TYPE_CHECKING:
    from ddbio.budget import Budget
    from ddbio.core.digest import Digest
    from ddbio.core.rescue import MisfitLog
    from ddbio.lake.store import ObjectStore


@dataclass(frozen=True)
class FilesTask:
    """Give a worker one task's scan and the place its rows go to."""

    scan: ScanTask
    store: ObjectStore
    job_id: str
    files: FileOptions


@dataclass(frozen=True)
class FilesResult:
    """Carry back what a task read, and what completes its files."""

    staged: tuple[Staged, ...]
    items: int
    rescued: int
    wire_bytes: int
    misfits: MisfitLog
    digest: Digest


def write_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Read one task's segments into staged files; leave nothing staged when it fails.

    The attempt in the file names is drawn at random, so that no attempt, speculative or not, meets another's files.
    """
    stream = SegmentStream(task.scan, budget)
    naming = FileNaming(task.job_id, task.scan.number, secrets.randbelow(10**6))
    writer = RollingWriter(task.store, naming, task.scan.schema, task.files)
    rescued = 0
    try:
        # Closed in any case, so that no lane reads on for a writer that failed.
        with closing(iter(stream)) as batches:
            for batch in batches:
                rescued += batch.num_rows - batch.column(batch.num_columns - 1).null_count
                writer.write(batch)
        staged = tuple(writer.finish())
    except BaseException:
        writer.abort()
        raise
    tally = stream.tally
    return FilesResult(staged, tally.items, rescued, tally.wire_bytes, tally.misfits, tally.digest)
