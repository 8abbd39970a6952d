"""Read a native export into Arrow or into files. What cannot be verified is an error, and then no file appears."""

from __future__ import annotations

import dataclasses
import functools
import logging
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_actual
from ddbio.catalog.sync import check_catalog, with_catalog
from ddbio.commit import committer
from ddbio.errors import OptionError
from ddbio.export.output_files import estimate_output, export_tasks_of, files_of_plan
from ddbio.export.tasks import (
    ExportFilesTask,
    ExportStream,
    collect_export_task,
    export_columns,
    export_tasks,
    spark_task_count,
    write_export_task,
)
from ddbio.formats.file_facts import file_bytes
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.engine import LocalEngine, available_cores, cluster_of, open_engine, running_spark_parallelism
from ddbio.jobs.estimate import (
    SENT_RATIO,
    Estimate,
    EstimatedPlan,
    Figures,
    input_parts,
    output_parts,
)
from ddbio.jobs.file_estimates import file_estimate, file_figures, run_limits
from ddbio.jobs.job_outline import JobOutline
from ddbio.jobs.report import (
    Clock,
    FileReport,
    MisfitReport,
    Report,
    file_reports,
    layout_of,
    merged_nulls,
    misfit_reports,
)
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.speeds import EXPORT_SPEED
from ddbio.jobs.staging import open_staging, require_same_columns, stored_format, target_of
from ddbio.jobs.stores import committed_report, protect_sources, require_shared
from ddbio.options.files import LAKE_FORMATS
from ddbio.sources.export_source import open_export

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.catalog.glue import CatalogReport
    from ddbio.commit.committer import Committer
    from ddbio.export.tasks import ExportColumns, ExportFilesResult
    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.staging import Staging
    from ddbio.lake_formats.base_load import LakeTarget
    from ddbio.options import ExportReadOptions, ExportToFilesOptions
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.staged import StagedFile


_LOG = logging.getLogger("ddbio.export")


@dataclass(frozen=True)
class ExportReadPlan(EstimatedPlan):
    """Describe what reading an export would do; its manifests are verified, and all its files exist.

    Attributes
    ----------
    source, dest
        The export and the target as given.
    engine
        ``local`` or ``spark``.
    kind, encoding
        ``full`` or ``incremental``; ``json`` or ``ion``.
    filtered
        Whether the export says that it left out items or attributes.
    items
        Items of the export, as its manifests say.
    files, file_bytes
        Data files with items in them, and their size as stored.
    columns
        Names and Arrow types of the columns.
    estimate
        What reading takes and costs: the text is assumed to be five times its stored size.
    partitions, estimated_files, estimated_file_bytes
        About how many partitions and files there will be, and how large a file, by a sample of the rows; of a run only
        if the files are partitioned.
    warnings
        What is to be said of small files.
    """

    source: str
    dest: str
    engine: str
    kind: str
    encoding: str
    filtered: bool
    items: int
    files: int
    file_bytes: int
    columns: dict[str, str]
    estimate: Estimate = field(default_factory=Estimate)
    partitions: int | None = None
    estimated_files: int | None = None
    estimated_file_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def outline(self) -> JobOutline:
        """Return what is known of the job's extent."""
        return JobOutline(f"read {self.source}", "", self.items, None)


@dataclass(frozen=True)
class ExportReadReport(Report):
    """Describe what was read of an export and what was written.

    Attributes
    ----------
    source, dest
        The export and the target as given.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    engine, tasks
        ``local`` or ``spark``, and how many tasks shared the files.
    kind
        ``full`` or ``incremental``.
    filtered
        Whether the export says that it left out items or attributes.
    items
        Items of the export; its manifests and its files agree on the number.
    rows
        Rows in the files; equal to items.
    rescued
        Rows whose ``_rescue`` is not null.
    files_read
        Data files read and verified; empty ones are not opened.
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of the driver's Python, all workers and the JVM.
    json_bytes
        Bytes of text in the files, uncompressed.
    misfits
        Values that did not fit their column.
    files
        What was written.
    merged_nulls
        NULLs that are no longer told from missing values, by attribute: see ``nulls``.
    catalog
        What was registered in the catalog, if that was asked for.
    planned, actual
        Seconds, bytes of files and USD, as planned and as it was.
    layout
        How the files lie: their sizes, and how many are small.
    """

    source: str
    dest: str
    job_id: str
    engine: str
    tasks: int
    kind: str
    filtered: bool
    items: int
    rows: int
    rescued: int
    files_read: int
    seconds: float
    cpu_seconds: float
    json_bytes: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()
    merged_nulls: dict[str, int] = field(default_factory=dict)
    catalog: CatalogReport | None = None
    planned: Figures | None = None
    actual: Figures | None = None
    layout: LayoutSummary | None = None


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


class ExportWatch(Protocol):
    """Show the progress of reading an export."""

    def running(self, plan: ExportReadPlan, budget: LocalBudget) -> AbstractContextManager[None]:
        """Show the plan, and what the budget has counted while the context is open."""
        ...


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
    summary, size, engine = source.summary, sum(sizes.values()), engine_name(options)
    text = size * TEXT_RATIOS["gzip"]
    stored = file_bytes(stored_format(options.format), text / SENT_RATIO)
    files = max(1, -(-stored // options.target_file_bytes))
    found = None
    if estimates_files:
        found = estimate_output(options, source, columns, min(len(sizes), export_tasks_of(options, engine, sizes)))
    if found is not None:
        files, stored = found.files, found.files * found.file_bytes
    is_encrypted = options.s3_sse_kms_key_id is not None
    parts = [
        *input_parts(options.source, len(sizes)),
        *output_parts(options.dest, files, stored, is_encrypted=is_encrypted),
    ]
    return ExportReadPlan(
        source=options.source,
        dest=options.dest,
        engine=engine,
        kind=summary.kind,
        encoding=summary.encoding,
        filtered=summary.filtered,
        items=summary.items,
        files=len(sizes),
        file_bytes=size,
        columns={field.name: str(field.type) for field in columns.rows},
        estimate=file_estimate(options, parts, size, text, EXPORT_SPEED),
        **files_of_plan(found),
    )


def read_export_to_files(
    options: ExportToFilesOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: ExportWatch | None = None,
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
    if options.format != "hudi":
        return _read_to_files(options, master, conf, watch)
    # Hudi's own writer commits, by the session: what lacks it is told before anything is read.
    with closing(open_engine("spark", master=master, conf=conf)):
        return _read_to_files(options, None, None, watch)


def _read_to_files(
    options: ExportToFilesOptions,
    master: str | None,
    conf: Mapping[str, str] | None,
    watch: ExportWatch | None,
) -> ExportReadReport:
    clock = Clock()
    source = open_export(options.source, options)
    if engine_name(options) == "spark":
        require_shared(cluster_of(master, conf), {"dest": options.dest}, shared_paths=options.shared_paths)
    staging = open_staging(options, stored_format(options.format))
    columns, sizes = export_columns(source, options), source.sizes()
    # A sample is read, and paid, only where it may tell of many small files.
    plan = _plan(options, source, columns, sizes, estimates_files=options.partition_by is not None)
    for warning in plan.warnings:
        _LOG.warning("read %s to %s: %s", options.source, options.dest, warning)
    _LOG.info("read %s to %s: %d files, planned: %s", options.source, options.dest, plan.files, plan.estimate.figures)
    job = (_LakeJob if options.format in LAKE_FORMATS else _Job)(options, source, columns, staging, sizes, plan)
    protect_sources(staging.store, options.mode, source.folders)
    try:
        # An engine raises only after its tasks have ended.
        with committer.publishing(job.target(), staging.job_id) as complete:
            job.check()
            check_catalog(options, staging, job.columns.rows, options.format)
            cpu_planned = clock.cpu_seconds()
            with closing(open_engine(engine_name(options), master=master, conf=conf)) as engine:
                results = job.run(engine, watch)
                files = [file for result in results for file in result.staged] or job.without_rows()
                report = job.report(engine.name, results, files, clock.seconds(), cpu_planned + engine.cpu_seconds())
                check_actual(options, job.figures(report))
                complete(files, job.facts(report))
                cpu_seconds = round(cpu_planned + engine.cpu_seconds(), 3)
    except committer.AlreadyCommittedError as done:
        return with_catalog(options, committed_report(ExportReadReport, done))
    report = dataclasses.replace(report, seconds=round(clock.seconds(), 3), cpu_seconds=cpu_seconds)
    return with_catalog(options, dataclasses.replace(report, actual=job.figures(report)))


@dataclass(frozen=True)
class _Job:
    options: ExportToFilesOptions
    source: ExportSource
    columns: ExportColumns
    staging: Staging
    sizes: Mapping[str, int]
    plan: ExportReadPlan

    def target(self) -> Committer:
        """Return what publishes the files."""
        return target_of(self.options, self.staging.store)

    def check(self) -> None:
        """Refuse rows that do not go with what is at the target."""
        require_same_columns(self.options, self.staging, self.columns.rows)

    def stages(self) -> Staging:
        """Return where the tasks stage their files."""
        return self.staging

    def figures(self, report: ExportReadReport) -> Figures:
        """Return what the job took."""
        options, written = self.options, sum(file.bytes for file in report.files)
        is_encrypted = options.s3_sse_kms_key_id is not None
        outputs = output_parts(options.dest, len(report.files), written, is_encrypted=is_encrypted)
        parts = [*input_parts(options.source, report.files_read), *outputs]
        return file_figures(options, parts, self.plan.file_bytes, report.seconds)

    def run(self, engine: Engine, watch: ExportWatch | None) -> list[ExportFilesResult]:
        sizes, budget = self.sizes, LocalBudget(None, job="reading of the export")
        usual = spark_task_count(sizes, engine.parallelism) if engine.name == "spark" else engine.parallelism
        reads = export_tasks(self.source, self.columns, self.options, self.options.tasks or usual, sizes)
        tasks = [ExportFilesTask(read, self.stages()) for read in reads]
        budget.bound(run_limits(self.options, self.plan.estimate))
        with budget.within_limits(), nullcontext() if watch is None else watch.running(self.plan, budget):
            return engine.run(write_export_task, tasks, budget)

    def without_rows(self) -> tuple[StagedFile, ...]:
        # Without rows no partition is touched.
        return () if self.options.overwrite_partitions else self.staging.empty(self.columns.rows)

    def facts(self, report: ExportReadReport) -> committer.CommitInfo:
        summary = self.source.summary
        names = ("export_arn", "table_arn", "table_id", "kind", "export_time", "from_time", "to_time", "filtered")
        return committer.CommitInfo(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            source={name: getattr(summary, name) for name in names},
            schema=schema_to_json(normalize_schema(self.columns.rows)),
            report=report.to_dict(),
            partition_by=self.staging.described_partitions(self.columns.rows),
        )

    def report(
        self,
        engine: str,
        results: Sequence[ExportFilesResult],
        files: Sequence[StagedFile],
        seconds: float,
        cpu_seconds: float,
    ) -> ExportReadReport:
        counts = [result.counts for result in results]
        summary = self.source.summary
        report = ExportReadReport(
            source=self.options.source,
            dest=self.options.dest,
            job_id=self.staging.job_id,
            engine=engine,
            tasks=len(results),
            kind=summary.kind,
            filtered=summary.filtered,
            items=summary.items,
            rows=sum(file.rows for file in files),
            rescued=sum(each.rescued for each in counts),
            files_read=sum(each.files_read for each in counts),
            seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
            json_bytes=sum(each.json_bytes for each in counts),
            misfits=misfit_reports(each.misfits for each in counts),
            # Hudi writes files of its own.
            files=file_reports(self.options.dest, () if self.options.format == "hudi" else files),
            layout=layout_of(each.size_bytes for each in files),
            merged_nulls=merged_nulls(each.misfits for each in counts),
            planned=self.plan.estimate.figures,
        )
        return dataclasses.replace(report, actual=self.figures(report))


class _LakeJob(_Job):
    """Write the base of a lake table, behind which changes are applied."""

    @functools.cached_property
    def lake(self) -> LakeTarget:
        # Who writes plain files does not wait for it.
        from ddbio.lake_formats.base_load import base_target  # noqa: PLC0415

        summary = self.source.summary
        if summary.kind != "full" or summary.filtered or summary.export_time is None:
            raise OptionError(
                f"{self.source.folder} is not a full export of a whole table, which a lake table is made of: merge "
                "incremental exports by 'ddbio apply'"
            )
        at = datetime.fromisoformat(summary.export_time)
        return base_target(self.options, self.options.format, round(at.timestamp() * 1_000_000))

    def target(self) -> Committer:
        return self.lake

    def check(self) -> None:
        """Decide the columns of the table."""
        # Times are compared, and merged, as what the items hold.
        keys = self.lake.keys_of(self.options, self.source.summary.table_arn)
        self.lake.describe(self.columns.rows, keys, self.options.buckets)

    def stages(self) -> Staging:
        return self.lake.staging(self.staging)

    def without_rows(self) -> tuple[StagedFile, ...]:
        return ()


def engine_name(options: ExportToFilesOptions) -> Literal["local", "spark"]:
    """Return the engine that the options name; ``auto`` is Spark if a session is running, else local."""
    if options.engine != "auto":
        return options.engine
    return "local" if running_spark_parallelism() is None else "spark"
