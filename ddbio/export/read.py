"""Reads of a native export into Arrow or into files; if anything cannot be verified, no file becomes visible."""

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


# Changes are read, spilled, and read again together with the items that they change.
_READS_OF_CHANGES = 3.0


@dataclass(frozen=True, kw_only=True)
class ExportFilesPlan(EstimatedPlan):
    """Base of the plans of jobs that write the content of exports to files, after verifying their manifests.

    Attributes
    ----------
    source, dest
        The export, or the full export of a fold, and the target, as given.
    engine
        ``local`` or ``spark``.
    items
        Items of the export, according to its manifests.
    files, file_bytes
        Number of data files to read, and their size as stored.
    columns
        Names and Arrow types of the columns.
    estimate
        Time and cost of the job; the text is assumed to be five times its stored size, and changes are read thrice.
    partitions, estimated_files, estimated_file_bytes
        Approximate numbers of partitions and files, and the size of a file, from a sample of the items. A run
        samples only if the files are partitioned.
    warnings
        Warnings about small files.
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
    """Plan of reading an export; its manifests are verified, and all its files exist.

    Attributes
    ----------
    kind, encoding
        Kind: ``full`` or ``incremental``; encoding: ``json`` or ``ion``.
    filtered
        Whether the export left out items or attributes.
    """

    kind: str
    encoding: str
    filtered: bool
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def outline(self) -> JobOutline:
        """Return the outline of the job, for progress output."""
        return JobOutline(f"read {self.source}", "", self.items, None)


@dataclass(frozen=True, kw_only=True)
class ExportReadReport(RowsReport):
    """Result of reading an export.

    Attributes
    ----------
    source
        The export, as given.
    tasks
        Number of tasks.
    kind
        ``full`` or ``incremental``.
    filtered
        Whether the export left out items or attributes.
    items
        Items of the export; manifests and files agree on it. Without ``where`` it is equal to the number of rows.
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

    A file is verified only when its last row has been yielded.

    Raises
    ------
    DdbioError
        As :func:`read_export`.
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
        If there is no export at the source.
    ExportIncompleteError
        If a manifest, a file's checksum or a count is wrong; the message names the file.
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
        As :func:`read_export`.
    """
    tasks = export_tasks(source, columns, options, available_cores())
    results = LocalEngine().run(collect_export_task, tasks, LocalBudget(None))
    return pa.Table.from_batches([batch for batches in results for batch in batches], columns.rows)


def plan_of(options: ExportToFilesOptions) -> ExportReadPlan:
    """Return the plan of reading an export, after verifying its manifests and finding its files; nothing is written.

    Raises
    ------
    NotFoundError, ExportIncompleteError, DecodeError
        As :func:`read_export`.
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
    """Return the fields of ``ExportFilesPlan`` for a plan.

    Parameters
    ----------
    sizes
        Sizes of the data files of the export, and of each increment to fold.
    estimates_files
        Whether to read rows of the export to estimate the files.

    Raises
    ------
    LimitError
        If the plan exceeds a limit.
    ExportIncompleteError, DecodeError
        If a sampled file is missing, or is not an export file.
    """
    own, *others = (sum(file_sizes.values()) for file_sizes in sizes)
    changed, count = sum(others), sum(map(len, sizes))
    text = (own + _READS_OF_CHANGES * changed) * TEXT_RATIOS["gzip"]
    stored = file_bytes(stored_format(options.format), own * TEXT_RATIOS["gzip"] / SENT_RATIO)
    written = max(1, -(-stored // options.target_file_bytes))
    files_estimate = _estimate_files(options, source, columns, sizes[0]) if estimates_files else None
    if files_estimate is not None:
        written, stored = files_estimate.files, files_estimate.files * files_estimate.file_bytes
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
    if files_estimate is not None:
        fields |= {
            "partitions": files_estimate.partitions,
            "estimated_files": files_estimate.files,
            "warnings": files_estimate.warnings,
        }
        fields["estimated_file_bytes"] = files_estimate.file_bytes
    return fields


def _estimate_files(
    options: ExportToFilesOptions, source: ExportSource, columns: ExportColumns, sizes: Mapping[str, int]
) -> FilesEstimate | None:
    """Return the estimate of the written files; None if the export has no rows."""
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
    """Write a native export as files that become visible together, after everything is verified, or not at all.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.
    watch
        Callback that shows the progress of the job.

    Raises
    ------
    DdbioError
        No file of this job is then visible at the target.
    """
    return _ReadJob(options, master=master, conf=conf, watch=watch).run()


class ExportFilesJob(RowsJob[ExportFilesResult, ReportT]):
    """Job that writes the content of exports to files."""

    log = logging.getLogger("ddbio.export")
    options: ExportToFilesOptions
    plan: ExportFilesPlan

    def figures(self, report: ReportT) -> Figures:
        """Return the actual figures of the job so far."""
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
        # Only partitioned output may have many small files, so only then a sample is read and paid for.
        estimates_files = options.partition_by is not None
        self.plan = _plan(options, self.export, self.found, self.sizes, estimates_files=estimates_files)
        self.extent = f"{self.plan.files} files"
        self.budget = LocalBudget(None, job="reading of the export")

    def _instant(self) -> datetime:
        """Return the time of the full export's state."""
        summary = self.export.summary
        if summary.kind != "full" or summary.filtered or summary.export_time is None:
            raise OptionError(
                f"{self.export.folder} is not a full export of a whole table, which a lake table needs: merge "
                "incremental exports by 'ddbio apply'"
            )
        return datetime.fromisoformat(summary.export_time)

    def work(self, engine: Engine) -> list[ExportFilesResult]:
        count = engine.parallelism
        if engine.name == "spark":
            count = spark_task_count(self.sizes, count)
        reads = export_tasks(self.export, self.found, self.options, self.options.tasks or count, self.sizes)
        tasks = [ExportFilesTask(read, self.output.staging) for read in reads]
        return engine.run(write_export_task, tasks, self.budget)

    def counts(self, results: Sequence[ExportFilesResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        total = ExportCounts.total(result.counts for result in results)
        own = {name: getattr(total, name) for name in ("rescued", "files_read", "json_bytes")}
        return {**super().counts(results, staged), **own}

    def source(self) -> dict[str, Any]:
        names = ("export_arn", "table_arn", "table_id", "kind", "export_time", "from_time", "to_time", "filtered")
        return {name: getattr(self.export.summary, name) for name in names}
