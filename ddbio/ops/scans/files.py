"""Write one task's rows into staged files; show none of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.ops.scans.task import ScanTask, SegmentStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ddbio.budget import Budget
    from ddbio.core.digest import Digest
    from ddbio.core.rescue import MisfitLog
    from ddbio.core.staged import Staged
    from ddbio.ops.job.staging import Staging


@dataclass(frozen=True)
class FilesTask:
    """Give a worker one task's scan and the place its rows go to."""

    scan: ScanTask
    staging: Staging


@dataclass(frozen=True)
class FilesResult:
    """Carry back what a task read, and what completes its files; of an export's files their checksums, in order."""

    staged: tuple[Staged, ...]
    items: int
    rescued: int
    wire_bytes: int
    misfits: MisfitLog
    digest: Digest
    md5s: tuple[bytes, ...] = ()


def write_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Read one task's segments into staged files; leave nothing staged when it fails."""
    stream = SegmentStream(task.scan, budget)
    rescued = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rescued
        for batch in batches:
            rescued += batch.num_rows - batch.column(batch.num_columns - 1).null_count
            yield batch

    # Closed in any case, so that no lane reads on for a writer that failed.
    with closing(iter(stream)) as batches:
        staged = task.staging.write(counted(batches), task.scan.schema, task.scan.number)
    tally = stream.tally
    return FilesResult(staged, tally.items, rescued, tally.wire_bytes, tally.misfits, tally.digest)
