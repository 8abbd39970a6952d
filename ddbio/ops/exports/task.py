"""Read one task's share of an export's files and hand out record batches, every file verified; write nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ddbio.budget import LocalBudget
from ddbio.core.rescue import MisfitLog, OnMisfit
from ddbio.ops.exports.file import FileText

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pyarrow as pa

    from ddbio.budget import Budget
    from ddbio.core.exports.manifest import ExportFile
    from ddbio.core.staged import Staged
    from ddbio.ops.exports.layout import Layout, LineDecoder
    from ddbio.ops.exports.source import ExportSource
    from ddbio.ops.job.staging import Staging


@dataclass(frozen=True)
class ExportTask:
    """Give a worker everything it needs, picklable: which files of which export, and into which columns."""

    number: int
    source: ExportSource
    files: tuple[ExportFile, ...]
    layout: Layout
    on_misfit: OnMisfit = "rescue"
    nulls: Literal["merge", "keep"] = "merge"
    drop: tuple[str, ...] = ()


@dataclass
class ExportTally:
    """Count what a task read."""

    items: int = 0
    rescued: int = 0
    files_read: int = 0
    json_bytes: int = 0
    misfits: MisfitLog = field(default_factory=MisfitLog)

    def add(self, other: ExportTally) -> None:
        """Add what another task, or file, brought."""
        self.items += other.items
        self.rescued += other.rescued
        self.files_read += other.files_read
        self.json_bytes += other.json_bytes
        self.misfits.merge(other.misfits)


# On Spark each word to the budget is one to the driver and back: a few a second show progress, and stop a job.
_TELL_SECONDS = 0.1


class ExportStream:
    """Iterate over the batches of a task's files; ``tally`` is complete when the iteration has ended.

    A file's rows come before its count and its MD5 are known: who shows them waits for the end. The budget, of which an
    export uses nothing, counts what was read so far, and ends the iteration where the job is being stopped.
    """

    def __init__(self, task: ExportTask, budget: Budget | None = None) -> None:
        self._task = task
        self._budget = LocalBudget(None) if budget is None else budget
        self.tally = ExportTally()
        self._untold_items, self._untold_bytes, self._told_at = 0, 0, float("-inf")

    def __iter__(self) -> Generator[pa.RecordBatch]:
        """Yield the batches of one file after the other.

        Raises
        ------
        ExportIncompleteError
            A file is missing, or not what the manifest says; the message names it.
        DecodeError
            A file is what the manifest says, and yet not an export's.
        """
        task = self._task
        decoder = task.layout.decoder(task.on_misfit, task.nulls, task.drop)
        for file in task.files:
            yield from self._read(file, decoder)
            self.tally.files_read += 1
        self._tell()
        self.tally.misfits.merge(decoder.log)

    def _read(self, file: ExportFile, decoder: LineDecoder) -> Iterator[pa.RecordBatch]:
        text = FileText(self._task.source, file)
        with text.blocks() as blocks:
            for block in blocks:
                if time.monotonic() >= self._told_at + _TELL_SECONDS:
                    self._tell()
                batches = decoder.decode_batches(block)
                rows = sum(batch.num_rows for batch in batches)
                self._untold_items += rows
                self._untold_bytes += len(block)
                text.rows += rows
                for batch in batches:
                    self.tally.rescued += batch.num_rows - batch.column(batch.num_columns - 1).null_count
                    yield batch
        text.verify()
        self.tally.items += text.rows
        self.tally.json_bytes += text.text_bytes

    def _tell(self) -> None:
        """Count in the budget what was read since it was told last; raise where the job is being stopped."""
        grant = self._budget.acquire(0)
        self._budget.settle(grant, 0, items=self._untold_items, wire_bytes=self._untold_bytes)
        self._untold_items, self._untold_bytes, self._told_at = 0, 0, time.monotonic()


@dataclass(frozen=True)
class ExportFilesTask:
    """Give a worker one task's share of an export and the place its rows go to."""

    read: ExportTask
    staging: Staging


@dataclass(frozen=True)
class ExportFilesResult:
    """Carry back what a task read, and what completes its files."""

    staged: tuple[Staged, ...]
    tally: ExportTally


def write_export_task(task: ExportFilesTask, budget: Budget) -> ExportFilesResult:
    """Read one task's files into staged files; leave nothing staged when it fails."""
    stream = ExportStream(task.read, budget)
    staged = task.staging.write(stream, task.read.layout.rows, task.read.number)
    return ExportFilesResult(staged, stream.tally)


def collect_export_task(task: ExportTask, budget: Budget) -> list[pa.RecordBatch]:
    """Return all batches of one task's files."""
    return list(ExportStream(task, budget))
