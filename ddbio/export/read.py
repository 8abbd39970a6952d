"""Read a native export into Arrow or into files. What cannot be verified is an error, and then no file appears."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import OptionError
from ddbio.export.tasks import (
    ExportCounts,
    ExportFilesResult,
    ExportFilesTask,
    ExportStream,
    collect_export_task,
    export_columns,
    export_tasks,
    sampled_rows,
    spark_task_count,
    write_export_task,
)
from ddbio.formats.file_facts import file_bytes
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.jobs.engine import LocalEngine, available_cores, engine_for, running_spark_parallelism
from ddbio.jobs.estimate import EXPORT_SPEED, SENT_RATIO, Estimate, EstimatedPlan, input_parts
from ddbio.jobs.file_estimates import estimate_files, file_estimate, file_figures, sampled_partitions
from ddbio.jobs.report import RowsReport
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.staging import stored_format
from ddbio.jobs.watch import JobOutline
from ddbio.runner.rows_job import ReportT, RowsJob, written_parts
from ddbio.sources.export_source import open_export

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.export.options import ExportReadOptions, ExportToFilesOptions
    from ddbio.export.tasks import ExportColumns
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import Figures
    from ddbio.jobs.file_estimates import FilesEstimate
    from ddbio.jobs.watch import Watch
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.staged import StagedFile


# Changes are read, spilled, and read again with the items that they change.
_READS_OF_CHANGES = 3.0


@dataclass(frozen=True, kw_only=True)
class ExportFilesPlan(EstimatedPlan):
    """Base of the plans of jobs that make files of exports, whose manifests are verified.

    Attributes
    ----------
    source, dest
        The export, or the full one, and the target as given.
    engine
        ``local`` or ``spark``.
    items
        Items of the export, as its manifests say.
    files, file_bytes
        Data files that are read, and their size as stored.
    columns
        Names and Arrow types of the columns.
    estimate
        What the job takes and costs: the text is assumed to be five times its stored size, and changes are read thrice.
    partitions, estimated_files, estimated_file_bytes
        About how many partitions and files there will be, and how large a file, by a sample of the items; of a run only
        if the files are partitioned.
    warnings
        What is to be said of small files.
    """

    source: str
    dest: str
    engine: str
    items: int
    files: int
    file_bytes: int
    columns: dict[str, str]
    estimate: Estimate
    partitions: int | None = None
    estimated_files: int | None = None
    estimated_file_bytes: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExportReadPlan(ExportFilesPlan):
    """Describe what reading an export would do; its manifests are verified, and all its files exist.

    Attributes
    ----------
    kind, encoding
        ``full`` or ``incremental``; ``json`` or ``ion``.
    filtered
        Whether the export says that it left out items or attributes.
    """

    kind: str
    encoding: str
    filtered: bool
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def outline(self) -> JobOutline:
        """Return what is known of the job's extent."""
        return JobOutline(f"read {self.source}", "", self.items, None)


@dataclass(frozen=True, kw_only=True)
class ExportReadReport(RowsReport):
    """Describe what was read of an export and what was written.

    Attributes
    ----------
    source
        The export as given.
    tasks
        How many tasks shared the files.
    kind
        ``full`` or ``incremental``.
    filtered
        Whether the export says that it left out items or attributes.
    items
        Items of the export, as many as there are rows; its manifests and its files agree on the number.
    rescued
        Rows whose ``_rescue`` is not null.
    files_read
        Data files read and verified; empty ones are not opened.
    json_bytes
        Bytes of text in the files, uncompressed.
    """

    source: str
    tasks: int
    kind: str
    filtered: bool
    items: int
    rescued: int
    files_read: int
    json_bytes: int


def read_export_batches(options: ExportReadOptions) -> RecordBatchStream:
    """Return a native export as an iterator of record batches of one schema, in bounded memory.

    A file is known to be whole only when its last row has been yielded.

    Raises
    ------
    DdbioError
        As :func:`read_export` says.
    """
    source = open_export(options.source, options)
    columns = export_columns(source, options)
    tasks = export_tasks(source, columns, options, 1)
    return RecordBatchStream(columns.rows, (batch for task in tasks for batch in ExportStream(task)))


def read_export(options: ExportReadOptions) -> pa.Table:
    """Return a native export as an Arrow table, verified against its manifests; no JVM is started.

    Raises
    ------
    NotFoundError
        If the source holds no export.
    ExportIncompleteError
        If a manifest, a file's checksum or a count is not what it should be; the message names the file.
    DecodeError
        If a file is not DynamoDB JSON.
    """
    source = open_export(options.source, options)
    return read_source(source, export_columns(source, options), options)


def read_source(source: ExportSource, columns: ExportColumns, options: ExportReadOptions) -> pa.Table:
    """Return an opened export as one Arrow table with the given columns.

    Raises
    ------
    ExportIncompleteError, DecodeError
        As :func:`read_export` says.
    """
    tasks = export_tasks(source, columns, options, available_cores())
    results = LocalEngine().run(collect_export_task, tasks, LocalBudget(None))
    return pa.Table.from_batches([batch for batches in results for batch in batches], columns.rows)


def plan_of(options: ExportToFilesOptions) -> ExportReadPlan:
    """Return how an export would be read, its manifests verified and all its files found; nothing is written.

    Raises
    ------
    NotFoundError, ExportIncompleteError, DecodeError
        As :func:`read_export` says.
    """
    source = open_export(options.source, options)
    return _plan(options, source, export_columns(source, options), source.sizes(), estimates_files=True)


def _plan(
    options: ExportToFilesOptions,
    source: ExportSource,
    columns: ExportColumns,
    sizes: Mapping[str, int],
    *,
    estimates_files: bool,
) -> ExportReadPlan:
    summary = source.summary
    return ExportReadPlan(
        kind=summary.kind,
        encoding=summary.encoding,
        filtered=summary.filtered,
        **plan_files(options, source, columns, [sizes], estimates_files=estimates_files),
    )


def plan_files(
    options: ExportToFilesOptions,
    source: ExportSource,
    columns: ExportColumns,
    sizes: Sequence[Mapping[str, int]],
    *,
    estimates_files: bool,
) -> dict[str, Any]:
    """Return the fields of a plan that are those of ``ExportFilesPlan``.

    Parameters
    ----------
    sizes
        Sizes of the data files of the export, and of each increment that is folded into it.
    estimates_files
        Whether rows of the export are read, to tell how the files will be.

    Raises
    ------
    LimitError
        If the plan is above a limit.
    ExportIncompleteError, DecodeError
        If a file of the sample is missing, or is not the file of an export.
    """
    own, *others = (sum(each.values()) for each in sizes)
    changed, count = sum(others), sum(map(len, sizes))
    text = (own + _READS_OF_CHANGES * changed) * TEXT_RATIOS["gzip"]
    stored = file_bytes(stored_format(options.format), own * TEXT_RATIOS["gzip"] / SENT_RATIO)
    written = max(1, -(-stored // options.target_file_bytes))
    found = _estimate_files(options, source, columns, sizes[0]) if estimates_files else None
    if found is not None:
        written, stored = found.files, found.files * found.file_bytes
    parts = [*input_parts(options.source, count), *written_parts(options, written, stored)]
    fields: dict[str, Any] = {
        "source": options.source,
        "dest": options.dest,
        "engine": engine_for(options.engine),
        "items": source.summary.items,
        "files": count,
        "file_bytes": own + changed,
        "columns": {field.name: str(field.type) for field in columns.rows},
        "estimate": file_estimate(options, parts, own + changed, text, EXPORT_SPEED),
    }
    if found is not None:
        fields |= {"partitions": found.partitions, "estimated_files": found.files, "warnings": found.warnings}
        fields["estimated_file_bytes"] = found.file_bytes
    return fields


def _estimate_files(
    options: ExportToFilesOptions, source: ExportSource, columns: ExportColumns, sizes: Mapping[str, int]
) -> FilesEstimate | None:
    """Return the estimate of the files into which an export is written; None if it has no rows."""
    sample = sampled_partitions(options, columns.rows, sampled_rows(source, columns, options.sample_items))
    if sample is None:
        return None
    tasks = available_cores()
    if engine_for(options.engine) == "spark":
        tasks = spark_task_count(sizes, running_spark_parallelism() or tasks)
    tasks = min(len(sizes), options.tasks or tasks)
    return estimate_files(sample, source.summary.items, tasks, options.target_file_bytes)


def read_export_to_files(
    options: ExportToFilesOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch[ExportReadPlan] | None = None,
) -> ExportReadReport:
    """Turn a native export into files that appear all together, once everything is verified, or not at all.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a session that has to be started.
    watch
        Shows the progress of the job.

    Raises
    ------
    DdbioError
        No file of this job is then visible at the target.
    """
    return _ReadJob(options, master=master, conf=conf, watch=watch).run()


class ExportFilesJob(RowsJob[ExportFilesResult, ReportT]):
    """A job that makes files of exports."""

    log = logging.getLogger("ddbio.export")
    options: ExportToFilesOptions
    plan: ExportFilesPlan

    def figures(self, report: ReportT) -> Figures:
        """Return what the job took until now."""
        files_read: int = getattr(report, "files_read", 0)
        parts = [*input_parts(self.options.source, files_read), *self.written_parts(report)]
        return file_figures(self.options, parts, self.plan.file_bytes, report.seconds)


class _ReadJob(ExportFilesJob[ExportReadReport]):
    report_class = ExportReadReport

    def open(self) -> None:
        options = self.options
        self.export = open_export(options.source, options)
        self.title = f"read {options.source} to {options.dest}"
        self.open_output(self.export.folders, self._instant)
        self.found, self.sizes = export_columns(self.export, options), self.export.sizes()
        self.columns, self.table_arn = self.found.rows, self.export.summary.table_arn
        # A sample is read, and paid, only where it may tell of many small files.
        estimates_files = options.partition_by is not None
        self.plan = _plan(options, self.export, self.found, self.sizes, estimates_files=estimates_files)
        self.extent = f"{self.plan.files} files"
        self.budget = LocalBudget(None, job="reading of the export")

    def _instant(self) -> datetime:
        """Return the time whose items the export has, all of them."""
        summary = self.export.summary
        if summary.kind != "full" or summary.filtered or summary.export_time is None:
            raise OptionError(
                f"{self.export.folder} is not a full export of a whole table, which a lake table is made of: merge "
                "incremental exports by 'ddbio apply'"
            )
        return datetime.fromisoformat(summary.export_time)

    def work(self, engine: Engine) -> list[ExportFilesResult]:
        usual = engine.parallelism
        if engine.name == "spark":
            usual = spark_task_count(self.sizes, usual)
        reads = export_tasks(self.export, self.found, self.options, self.options.tasks or usual, self.sizes)
        tasks = [ExportFilesTask(read, self.output.staging) for read in reads]
        return engine.run(write_export_task, tasks, self.budget)

    def counts(self, results: Sequence[ExportFilesResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        read = ExportCounts.total(result.counts for result in results)
        own = {name: getattr(read, name) for name in ("rescued", "files_read", "json_bytes")}
        return {**super().counts(results, staged), **own}

    def source(self) -> dict[str, Any]:
        names = ("export_arn", "table_arn", "table_id", "kind", "export_time", "from_time", "to_time", "filtered")
        return {name: getattr(self.export.summary, name) for name in names}
