"""Reads of an export as record batches: choice of columns, division of files into tasks, and decoding."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import DecodeError, SchemaError
from ddbio.export.selection import ExportSelection, export_selection
from ddbio.items.change_lines import checked_changes
from ddbio.items.changes import ChangeDecoder
from ddbio.items.decode import Decoder, infer_schema_of_bodies
from ddbio.items.framing import checked_items
from ddbio.items.rescue import MisfitLog, OnMisfit, rescue_text
from ddbio.items.schema.arrow import RESCUE_NAME, attributes_of, name_of_field, normalize_schema
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.items.time_columns import declares_times, sampled_formats
from ddbio.jobs.balance import balance
from ddbio.sources.export_source import FileText

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from ddbio.budget import Budget
    from ddbio.export.options import ExportReadOptions
    from ddbio.formats.export_manifest import ExportFile
    from ddbio.items.framing import Framing
    from ddbio.jobs.staging import Staging
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.staged import StagedFile

# On Spark each report is a round trip to the driver; a few per second are enough to show progress and to stop a job.
_PROGRESS_SECONDS = 0.1
_FILES_SAMPLED = 4
# About 20 s of one core: much more than the start of a Spark task, but little to repeat if a task fails.
_TASK_BYTES = 256 * 1024 * 1024
# The time to open a file, in bytes that could be read meanwhile, because many small files cost more than their bytes.
_FILE_BYTES = 256 * 1024


class LineDecoder(Protocol):
    """Decoder of blocks of an export's lines. An instance belongs to one thread."""

    @property
    def log(self) -> MisfitLog:
        """Return the counts of misfits so far."""
        ...

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        """Return one row for each selected line."""
        ...


@dataclass(frozen=True)
class ExportColumns:
    """Columns of the rows of an export.

    Attributes
    ----------
    items
        Columns of an item.
    keys
        Key attributes of the table if each row is a change of an item; None if each row is an item.
    selection
        The selected items and attributes; None means all.
    others
        Columns of attributes that are not selected. They are decoded and left out, which is faster than to select
        attributes before decoding.
    """

    items: pa.Schema
    keys: tuple[str, ...] | None = None
    selection: ExportSelection | None = None
    others: pa.Schema | None = None

    @property
    def rows(self) -> pa.Schema:
        """Return the columns of the rows."""
        if self.keys is None:
            return self.items
        full_schema = ChangeDecoder(self.items, self.keys).schema
        # Parquet has no struct without fields, and the images of an export without changes have none.
        return pa.schema([field for field in full_schema if field.type != pa.struct([])])

    def decoder(self, on_misfit: OnMisfit, nulls: Literal["merge", "keep"], drop: Sequence[str] = ()) -> LineDecoder:
        """Return a decoder of lines to these columns."""
        decoder: LineDecoder
        if self.others is not None:
            return ProjectingDecoder(self, on_misfit, nulls, drop)
        if self.keys is None:
            decoder = _ItemLines(Decoder(self.items, on_misfit=on_misfit, nulls=nulls, drop=drop))
        else:
            decoder = _ChangeLines(ChangeDecoder(self.items, self.keys, on_misfit=on_misfit, nulls=nulls, drop=drop))
        return decoder if self.selection is None else SelectingDecoder(decoder, self.selection)


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


class ProjectingDecoder:
    """Decoder of some attributes of all lines, by the compiled loops.

    Parameters
    ----------
    columns
        Columns with a selection without a condition, and with columns of other attributes.
    """

    def __init__(
        self, columns: ExportColumns, on_misfit: OnMisfit, nulls: Literal["merge", "keep"], drop: Sequence[str]
    ) -> None:
        selection, others = columns.selection or ExportSelection(), columns.others or pa.schema([])
        self._names = frozenset(selection.columns or ())
        self._columns = normalize_schema(columns.items).names
        self._fails = on_misfit == "fail"
        fields = [field for field in (*columns.items, *others) if field.name != RESCUE_NAME]
        # Attributes that are not selected may have any type.
        self._decoder = Decoder(
            pa.schema(fields), on_misfit="rescue" if self._fails else on_misfit, nulls=nulls, drop=drop
        )

    @property
    def log(self) -> MisfitLog:
        """Return the counts of misfits of the selected attributes so far."""
        return self._decoder.log.of_attributes(self._names)

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        """Return one row for each line.

        Raises
        ------
        SchemaError
            If a selected value does not fit its column, and ``on_misfit`` is ``fail``.
        """
        batches = [self._projected(batch) for batch in self._decoder.decode_batches(block, "export")]
        if self._fails:
            self.log.require_empty()
        return batches

    def _projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch.select(self._columns)
        index = batch.num_columns - 1
        if batch.column(index).null_count == batch.num_rows:
            return batch
        texts = [self._rescued(text) for text in batch.column(index).to_pylist()]
        return batch.set_column(index, batch.schema.field(index), pa.array(texts, pa.string()))

    def _rescued(self, text: str | None) -> str | None:
        values = json.loads(text or "{}")
        return rescue_text({name: value for name, value in values.items() if name in self._names})


@dataclass
class SelectingDecoder:
    """Decoder of the selected lines.

    Attributes
    ----------
    skipped
        The number of lines so far that the condition left out.
    """

    decoder: LineDecoder
    selection: ExportSelection
    skipped: int = 0

    @property
    def log(self) -> MisfitLog:
        """Return the counts of misfits of the selected lines."""
        return self.decoder.log

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        """Return one row for each selected line."""
        lines = self.selection.select(bytes(block))
        self.skipped += lines.count - len(lines.numbers)
        if not lines.numbers:
            return []
        try:
            return self.decoder.decode_batches(lines.text)
        except DecodeError as error:
            raise lines.located(error) from None


@dataclass(frozen=True)
class ExportTask:
    """Files of an export that one task reads, and the columns of the result; a picklable value."""

    number: int
    source: ExportSource
    files: tuple[ExportFile, ...]
    columns: ExportColumns
    on_misfit: OnMisfit = "rescue"
    nulls: Literal["merge", "keep"] = "merge"
    drop: tuple[str, ...] = ()


@dataclass
class ExportCounts:
    """Counts of the input that a task has read."""

    items: int = 0
    rescued: int = 0
    files_read: int = 0
    json_bytes: int = 0
    misfits: MisfitLog = field(default_factory=MisfitLog)

    @classmethod
    def total(cls, counts: Iterable[ExportCounts]) -> ExportCounts:
        """Return the sum of the counts of several tasks."""
        sums = cls()
        for part in counts:
            sums.add(part)
        return sums

    def add(self, other: ExportCounts) -> None:
        """Add the counts of another task."""
        self.items += other.items
        self.rescued += other.rescued
        self.files_read += other.files_read
        self.json_bytes += other.json_bytes
        self.misfits.merge(other.misfits)


class ExportStream:
    """Iterable over the batches of a task's files; ``counts`` is complete at the end of the iteration.

    The rows of a file are yielded before its count and its MD5 are verified, so a caller must not publish them before
    the end of the iteration. Reading an export consumes no units of the budget. The budget only counts progress, and
    raises to end the iteration when the job is stopping.
    """

    def __init__(self, task: ExportTask, budget: Budget | None = None) -> None:
        self._task = task
        self._budget = LocalBudget(None) if budget is None else budget
        self.counts = ExportCounts()
        self._unreported_items, self._unreported_bytes, self._reported_at = 0, 0, float("-inf")

    def __iter__(self) -> Generator[pa.RecordBatch]:
        """Yield the batches of one file after another.

        Raises
        ------
        ExportIncompleteError
            If a file is missing or differs from the manifest; the message names it.
        DecodeError
            If a file matches the manifest, but is not an export file.
        """
        task = self._task
        decoder = task.columns.decoder(task.on_misfit, task.nulls, task.drop)
        for file in task.files:
            yield from self._read(file, decoder)
            self.counts.files_read += 1
        self._report_progress()
        self.counts.misfits.merge(decoder.log)

    def _read(self, file: ExportFile, decoder: LineDecoder) -> Iterator[pa.RecordBatch]:
        text = FileText(self._task.source, file)
        with text.blocks() as blocks:
            for block in blocks:
                if time.monotonic() >= self._reported_at + _PROGRESS_SECONDS:
                    self._report_progress()
                skipped = _skipped(decoder)
                batches = decoder.decode_batches(block)
                rows = sum(batch.num_rows for batch in batches) + _skipped(decoder) - skipped
                self._unreported_items += rows
                self._unreported_bytes += len(block)
                text.rows += rows
                for batch in batches:
                    self.counts.rescued += batch.num_rows - batch.column(batch.num_columns - 1).null_count
                    yield batch
        text.verify()
        self.counts.items += text.rows
        self.counts.json_bytes += text.text_bytes

    def _report_progress(self) -> None:
        """Report the input read since the last report; raise if the job is stopping."""
        reservation = self._budget.acquire(0)
        self._budget.settle(reservation, 0, items=self._unreported_items, wire_bytes=self._unreported_bytes)
        self._unreported_items, self._unreported_bytes, self._reported_at = 0, 0, time.monotonic()


def _skipped(decoder: LineDecoder) -> int:
    return decoder.skipped if isinstance(decoder, SelectingDecoder) else 0


@dataclass(frozen=True)
class ExportFilesTask:
    """Input of one task, and the staging of its files."""

    read: ExportTask
    staging: Staging


@dataclass(frozen=True)
class ExportFilesResult:
    """Staged files of a task, and the counts of its input."""

    staged: tuple[StagedFile, ...]
    counts: ExportCounts

    @property
    def misfits(self) -> MisfitLog:
        """Return the misfits."""
        return self.counts.misfits


def write_export_task(task: ExportFilesTask, budget: Budget) -> ExportFilesResult:
    """Read one task's files and stage the rows as files; after an error, no files stay staged."""
    stream = ExportStream(task.read, budget)
    log = MisfitLog()
    staged = task.staging.write(stream, task.read.columns.rows, task.read.number, log)
    stream.counts.misfits.merge(log)
    return ExportFilesResult(staged, stream.counts)


def collect_export_task(task: ExportTask, budget: Budget) -> list[pa.RecordBatch]:
    """Return all batches of one task's files."""
    return list(ExportStream(task, budget))


def export_columns(source: ExportSource, options: ExportReadOptions) -> ExportColumns:
    """Return the given columns, or the columns of a sample of several files.

    Raises
    ------
    SchemaError
        If the given schema is not valid.
    ExportIncompleteError, DecodeError
        If a sampled file is missing, or is not an export file.
    """
    schema_option, rules = options.schema, ColumnRules.of(options)
    schema = None if schema_option is None else arrow_schema_of(schema_option)
    if source.summary.kind == "full":
        selection = export_selection(source.summary, options.where, options.columns, None)
        return _item_columns(source, schema, rules, selection, options.sample_items)
    files, count = _sampled_files(source, options.sample_items)
    changes = itertools.chain.from_iterable(_sample(source, file, count) for file in files)
    if rules or (schema is not None and declares_times(schema)):
        raise SchemaError(
            f"{source.summary.export_arn}: the images of changes have the types of their attributes: omit timestamps, "
            "types and numbers, or give them to a fold, whose rows are items"
        )
    first = next(changes, None)
    keys = () if first is None else tuple(first.keys)
    selection = None if first is None else export_selection(source.summary, options.where, options.columns, keys)
    if schema is not None:
        names = {name_of_field(field) for field in schema} if options.columns is None else {*options.columns}
        return ExportColumns(pa.schema([field for field in schema if name_of_field(field) in names]), keys, selection)
    all_changes = itertools.chain([] if first is None else [first], changes)
    images = (image for change in all_changes for image in (change.keys, change.new_image, change.old_image) if image)
    if options.columns is not None:
        images = ({name: image[name] for name in image if name in options.columns} for image in images)
    return ExportColumns(ItemSchema.of_items(images).to_arrow(), keys, selection)


def _item_columns(
    source: ExportSource,
    schema: pa.Schema | None,
    rules: ColumnRules,
    selection: ExportSelection | None,
    sample_items: int,
) -> ExportColumns:
    """Return the columns of items. A sample has the selected attributes of all items, also of those left out."""
    if schema is not None and not rules.sampled:
        rules.require(attributes_of(schema))
        return _projected_columns(rules.apply(schema), selection)
    files, count = _sampled_files(source, sample_items)
    lines = [_sample(source, file, count) for file in files]
    with suppress(DecodeError):
        heads: list[tuple[bytes, Framing]] = [(_head(source, file, count), "export") for file in files]
        if selection is not None and selection.where is not None:
            heads = [(selection.project(head), framing) for head, framing in heads]
        sampled_schema = infer_schema_of_bodies(heads).to_arrow() if schema is None else schema
        rules.require(attributes_of(sampled_schema))
        ruled = rules.apply(sampled_schema, sampled_formats(rules.sampled, heads))
        return _projected_columns(ruled, selection)
    # Decode again, line by line, because this error names the broken file.
    inferred = ItemSchema.of_items(itertools.chain.from_iterable(lines)).to_arrow()
    return _projected_columns(rules.apply(inferred), selection)


def _projected_columns(schema: pa.Schema, selection: ExportSelection | None) -> ExportColumns:
    """Return the columns of the selected attributes, and the others if there is no condition."""
    if selection is None or selection.columns is None:
        return ExportColumns(schema, None, selection)
    names = {*selection.columns, RESCUE_NAME}
    others = pa.schema([field for field in schema if name_of_field(field) not in names])
    items = pa.schema([field for field in schema if name_of_field(field) in names])
    return ExportColumns(items, None, selection, others if selection.where is None else None)


def _sampled_files(source: ExportSource, sample_items: int) -> tuple[Sequence[ExportFile], int]:
    """Return the files of a sample, and the number of lines to sample of each."""
    files = source.files[:: max(1, len(source.files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
    return files, -(-sample_items // max(1, len(files)))


def spark_task_count(sizes: Mapping[str, int], parallelism: int) -> int:
    """Return the number of Spark tasks for files of these sizes: one per core, and more for a large export."""
    return max(parallelism, -(-sum(sizes.values()) // _TASK_BYTES))


def export_tasks(
    source: ExportSource,
    columns: ExportColumns,
    options: ExportReadOptions,
    tasks: int,
    sizes: Mapping[str, int] | None = None,
) -> list[ExportTask]:
    """Return at most this many tasks of about the same size, which together read every file once.

    Raises
    ------
    ExportIncompleteError
        If a file is missing when the store lists the sizes.
    """
    files = source.files
    if min(tasks, len(files)) > 1:
        sizes = source.sizes() if sizes is None else sizes
        assignments = balance([sizes[file.name] + _FILE_BYTES for file in files], tasks)
    else:
        assignments = balance([0] * len(files), 1)
    return [
        ExportTask(
            number, source, tuple(files[i] for i in task), columns, options.on_misfit, options.nulls, options.drop or ()
        )
        for number, task in enumerate(assignments)
    ]


def sampled_rows(source: ExportSource, columns: ExportColumns, count: int) -> list[pa.RecordBatch]:
    """Return the first rows of some files, ``count`` in total.

    Raises
    ------
    ExportIncompleteError, DecodeError
        If a file is missing, or is not an export file.
    """
    files = source.files[:: max(1, len(source.files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
    decoder = columns.decoder("rescue", "merge")
    heads = (_head(source, file, -(-count // len(files))) for file in files)
    batches = (batch for head in heads if head for batch in decoder.decode_batches(head))
    return [batch.select(columns.rows.names) for batch in batches]


def _sample(source: ExportSource, file: ExportFile, count: int) -> Iterator[Any]:
    with FileText(source, file).blocks() as blocks:
        lines = _first_lines(next(blocks, b""), count)
        yield from checked_items(lines, "export") if source.summary.kind == "full" else checked_changes(lines)


def _head(source: ExportSource, file: ExportFile, count: int) -> bytes:
    with FileText(source, file).blocks() as blocks:
        return _first_lines(next(blocks, b""), count)


def _first_lines(block: bytes | memoryview, count: int) -> bytes:
    return b"\n".join(bytes(block).split(b"\n", count)[:count])
