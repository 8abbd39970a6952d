"""Read an export as record batches: choose its columns, divide its files into tasks, and decode a task's files."""

from __future__ import annotations

import heapq
import itertools
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.core.changes import ChangeDecoder
from ddbio.core.decode import Decoder, infer_schema_of_bodies
from ddbio.core.rescue import MisfitLog, OnMisfit
from ddbio.core.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.core.text.change_lines import checked_changes
from ddbio.core.text.framing import checked_items
from ddbio.errors import DecodeError
from ddbio.ops.exports.source import FileText

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from ddbio.budget import Budget
    from ddbio.core.exports.manifest import ExportFile
    from ddbio.core.staged import StagedFile
    from ddbio.ops.exports.source import ExportSource
    from ddbio.ops.job.storage import Staging
    from ddbio.options import ExportReadOptions


class LineDecoder(Protocol):
    """Decode blocks of an export's lines; keep one per thread."""

    @property
    def log(self) -> MisfitLog:
        """Return the count of what fitted no column so far."""
        ...

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        """Return a row per line."""
        ...


@dataclass(frozen=True)
class Layout:
    """Hold the columns of the items, and the table's keys where each row is a change of an item."""

    items: pa.Schema
    keys: tuple[str, ...] | None = None

    @property
    def rows(self) -> pa.Schema:
        """Return the columns of the rows."""
        if self.keys is None:
            return self.items
        whole = ChangeDecoder(self.items, self.keys).schema
        # No Parquet file holds a struct without fields, as an export without changes would have.
        return pa.schema([field for field in whole if field.type != pa.struct([])])

    def decoder(self, on_misfit: OnMisfit, nulls: Literal["merge", "keep"], drop: Sequence[str] = ()) -> LineDecoder:
        """Return a decoder of this layout's lines."""
        if self.keys is None:
            return _ItemLines(Decoder(self.items, on_misfit=on_misfit, nulls=nulls, drop=drop))
        return _ChangeLines(ChangeDecoder(self.items, self.keys, on_misfit=on_misfit, nulls=nulls, drop=drop))


@dataclass(frozen=True)
class _ItemLines:
    decoder: Decoder

    @property
    def log(self) -> MisfitLog:
        return self.decoder.log

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        return self.decoder.decode_batches(block, "export")


@dataclass(frozen=True)
class _ChangeLines:
    decoder: ChangeDecoder

    @property
    def log(self) -> MisfitLog:
        return self.decoder.log

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        return [self.decoder.decode(block)]


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

    staged: tuple[StagedFile, ...]
    tally: ExportTally


def write_export_task(task: ExportFilesTask, budget: Budget) -> ExportFilesResult:
    """Read one task's files into staged files; leave nothing staged when it fails."""
    stream = ExportStream(task.read, budget)
    staged = task.staging.write(stream, task.read.layout.rows, task.read.number)
    return ExportFilesResult(staged, stream.tally)


def collect_export_task(task: ExportTask, budget: Budget) -> list[pa.RecordBatch]:
    """Return all batches of one task's files."""
    return list(ExportStream(task, budget))


_FILES_SAMPLED = 4

# Some twenty seconds of a core: what Spark spends on a task is little beside it, and little is lost with one.
_TASK_BYTES = 256 * 1024 * 1024

# What opening a file costs, in bytes that could be read meanwhile: many small files weigh more than their bytes.
_FILE_BYTES = 256 * 1024


def layout_of_export(source: ExportSource, options: ExportReadOptions) -> Layout:
    """Return the columns: the given ones, or those that a sample of several files needs.

    Raises
    ------
    SchemaError
        If the given schema is none.
    ExportIncompleteError, DecodeError
        If a sampled file is missing, or not an export's.
    """
    given = options.schema
    schema = None if given is None else arrow_schema_of(given)
    if source.summary.kind == "full" and schema is not None:
        return Layout(schema)
    files = source.files[:: max(1, len(source.files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
    share = -(-options.sample_items // max(1, len(files)))
    lines = [_sample(source, file, share) for file in files]
    if source.summary.kind == "full":
        with suppress(DecodeError):
            return Layout(infer_schema_of_bodies([(_head(source, file, share), "export") for file in files]).to_arrow())
        # Once more: to say which file is broken.
        return Layout(ItemSchema.of_items(itertools.chain.from_iterable(lines)).to_arrow())
    changes = list(itertools.chain.from_iterable(lines))
    images = (image for change in changes for image in (change.keys, change.new_image, change.old_image) if image)
    keys = tuple(changes[0].keys) if changes else ()
    return Layout(schema or ItemSchema.of_items(images).to_arrow(), keys)


def spark_task_count(sizes: Mapping[str, int], parallelism: int) -> int:
    """Return how many tasks Spark should make of files of such sizes: one for each core, more of a large export."""
    return max(parallelism, -(-sum(sizes.values()) // _TASK_BYTES))


def export_tasks(
    source: ExportSource, layout: Layout, options: ExportReadOptions, tasks: int, sizes: Mapping[str, int] | None = None
) -> list[ExportTask]:
    """Return at most so many tasks, alike in bytes, that together read every file once.

    Raises
    ------
    ExportIncompleteError
        If the store, asked for the sizes, lacks a file.
    """
    shares: list[list[ExportFile]] = [[] for _ in range(min(tasks, len(source.files)))]
    if len(shares) > 1:
        sizes = source.sizes() if sizes is None else sizes
        loads = [(0, number) for number in range(len(shares))]
        for file in sorted(source.files, key=lambda each: -sizes[each.name]):
            load, number = heapq.heappop(loads)
            shares[number].append(file)
            heapq.heappush(loads, (load + sizes[file.name] + _FILE_BYTES, number))
    elif shares:
        shares = [list(source.files)]
    return [
        ExportTask(number, source, tuple(files), layout, options.on_misfit, options.nulls, options.drop or ())
        for number, files in enumerate(shares)
    ]


def _sample(source: ExportSource, file: ExportFile, count: int) -> Iterator[Any]:
    with FileText(source, file).blocks() as blocks:
        lines = _first_lines(next(blocks, b""), count)
        yield from checked_items(lines, "export") if source.summary.kind == "full" else checked_changes(lines)


def _head(source: ExportSource, file: ExportFile, count: int) -> bytes:
    with FileText(source, file).blocks() as blocks:
        return _first_lines(next(blocks, b""), count)


def _first_lines(block: bytes | memoryview, count: int) -> bytes:
    return b"\n".join(bytes(block).split(b"\n", count)[:count])
