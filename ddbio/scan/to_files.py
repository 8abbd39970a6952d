"""Scan a table into files on any engine: the job, and its tasks."""

from __future__ import annotations

import functools
import logging
import secrets
from collections import Counter
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, cast

from ddbio.budget import LocalBudget
from ddbio.catalog.sync import check_catalog, with_catalog
from ddbio.commit import committer
from ddbio.commit.export_target import FOLDER, ExportTarget
from ddbio.errors import DdbioError, DecodeError, NotFoundError
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.text_writers import RollingGzipWriter
from ddbio.items.digest import Digest
from ddbio.items.raw_items import PageSplitter
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.costs import job_cost
from ddbio.jobs.engine import cluster_of, open_engine
from ddbio.jobs.estimate import Figures, output_parts
from ddbio.jobs.report import Clock, ScanReport, file_reports, layout_of, merged_nulls, misfit_reports
from ddbio.jobs.staging import open_staging, require_same_columns, stored_format, target_of
from ddbio.jobs.stores import committed_report, require_shared
from ddbio.options.files import LAKE_FORMATS
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.plan import ScanPlan, budget_of
from ddbio.scan.progress import (
    PARTITIONED_STEP_SECONDS,
    STEP_SECONDS,
    PageWriter,
    ScanProgress,
    forget_progress,
    goes_on,
    open_progress,
)
from ddbio.scan.stream import MOST_MISSING, PageStream, ScanCounts, ScanTask, SegmentStream
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget
    from ddbio.commit.committer import Committer, Publish
    from ddbio.jobs.staging import Staging
    from ddbio.lake_formats.base_load import LakeTarget
    from ddbio.options import ScanToFilesOptions
    from ddbio.scan.stream import ReadPage
    from ddbio.storage.staged import StagedFile

_LOG = logging.getLogger("ddbio.scan")


class Watch(Protocol):
    """Follow a running job, to show its progress."""

    def running(self, plan: ScanPlan, budget: LocalBudget) -> AbstractContextManager[None]:
        """Show the plan, then the use of the budget while the context is open."""
        ...


class Unwatched:
    """Show nothing."""

    def running(self, plan: ScanPlan, budget: LocalBudget) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        del plan, budget
        return nullcontext()


def scan_to_files(
    options: ScanToFilesOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> ScanReport:
    """Scan a DynamoDB table into Parquet files that appear all together, with a manifest, or not at all.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a session that has to be started.
    watch
        Follows the job while it runs.

    Raises
    ------
    DdbioError
        Nothing of this job is then visible at the target, and running it again just works.
    """
    settings = _Settings(master, conf, watch or Unwatched())
    if options.format != "hudi":
        return _scan_to_files(options, settings)
    # Hudi's own writer commits, by the session: what lacks it is told before anything is read.
    with closing(open_engine("spark", master=master, conf=conf)):
        return _scan_to_files(options, replace(settings, master=None, conf=None))


def _scan_to_files(options: ScanToFilesOptions, settings: _Settings) -> ScanReport:
    clock = Clock()
    if options.engine == "spark":
        cluster = cluster_of(settings.master, settings.conf)
        require_shared(cluster, {"dest": options.dest}, shared_paths=options.shared_paths)
    table = describe_scan(options)
    form = stored_format(options.format)
    staging = open_staging(options, form, [name for name, _ in table.key_types])
    try:
        # An engine raises only after its tasks have ended.
        job = _job_of(options, table, staging)
        with committer.publishing(job.target(), staging.job_id) as publish:
            report = _run(job, publish, clock, settings)
    except committer.AlreadyCommittedError as done:
        if goes_on(options):
            # The run that committed may have ended before it could.
            with suppress(DdbioError):
                forget_progress(options, staging)
        report = committed_report(ScanReport, done)
    return with_catalog(options, report)


@dataclass(frozen=True)
class _Job:
    options: ScanToFilesOptions
    table: TableDescription
    staging: Staging

    def target(self) -> Committer:
        """Return what publishes the files."""
        return replace(target_of(self.options, self.staging.store), keeps_staged=goes_on(self.options))

    def check(self, plan: ScanPlan) -> None:
        """Refuse rows that do not go with what is at the target."""
        require_same_columns(self.options, self.staging, plan.schema)

    @property
    def task(self) -> Callable[[FilesTask, Budget], FilesResult]:
        """Return what the engine runs for each task."""
        return write_task

    def without_rows(self, plan: ScanPlan) -> tuple[StagedFile, ...]:
        """Return what is staged if no item was read."""
        # Without rows no partition is touched.
        return () if self.options.overwrite_partitions else self.staging.empty(plan.schema)

    def tasks(self, plan: ScanPlan, progress: ScanProgress | None = None) -> list[FilesTask]:
        scans = scan_tasks(plan, self.options, self.table)
        if progress is None:
            return [FilesTask(scan, self.staging) for scan in scans]
        return [FilesTask(scan, self.staging, progress.of_task(scan)) for scan in scans]

    def commit_info(self, plan: ScanPlan, report: ScanReport) -> committer.CommitInfo:
        return committer.CommitInfo(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            source={
                "table_arn": self.table.arn,
                "table_id": self.table.table_id,
                "key": dict(self.table.key_types),
                "index": plan.index,
                "columns": plan.columns,
                "where": plan.where,
                "nulls": self.options.nulls,
            },
            schema=schema_to_json(plan.schema),
            digest=report.digest,
            report=report.to_dict(),
            partition_by=self.staging.described_partitions(plan.schema),
        )


class _ExportJob(_Job):
    """Write lines of items, and the manifests of a full export."""

    def target(self) -> Committer:
        options = self.options
        return ExportTarget(
            folder=target_of(options, self.staging.store),
            table_arn=self.table.arn,
            table_id=self.table.table_id,
            began=datetime.now(UTC),
            filtered={
                **{name: value for name in ("index", "columns", "where", "limit") if (value := getattr(options, name))},
                **({"keys": True} if options.keys else {}),
            },
        )

    def check(self, plan: ScanPlan) -> None:
        """Accept any: lines have no columns."""

    @property
    def task(self) -> Callable[[FilesTask, Budget], FilesResult]:
        return write_lines_task

    def without_rows(self, plan: ScanPlan) -> tuple[StagedFile, ...]:
        del plan
        return ()


class _LakeJob(_Job):
    """Write the base of a lake table, which changes are applied to."""

    @functools.cached_property
    def lake(self) -> LakeTarget:
        # Who writes plain files does not wait for it.
        from ddbio.lake_formats.base_load import base_target  # noqa: PLC0415

        return base_target(self.options, self.options.format)

    def target(self) -> Committer:
        return self.lake

    def check(self, plan: ScanPlan) -> None:
        """Decide the columns of the table."""
        self.lake.describe(plan.schema, [name for name, _ in self.table.key_types], self.options.buckets)

    def tasks(self, plan: ScanPlan, progress: ScanProgress | None = None) -> list[FilesTask]:
        del progress
        staging = self.lake.staging(self.staging)
        return [FilesTask(scan, staging) for scan in scan_tasks(plan, self.options, self.table)]

    def without_rows(self, plan: ScanPlan) -> tuple[StagedFile, ...]:
        del plan
        return ()


def _job_of(options: ScanToFilesOptions, table: TableDescription, staging: Staging) -> _Job:
    if options.format in LAKE_FORMATS:
        return _LakeJob(options, table, staging)
    return (_ExportJob if options.format == "dynamodb-export" else _Job)(options, table, staging)


@dataclass(frozen=True)
class _Settings:
    master: str | None
    conf: Mapping[str, str] | None
    watch: Watch


def _run(job: _Job, publish: Publish, clock: Clock, settings: _Settings) -> ScanReport:
    options, staging = job.options, job.staging
    budget = LocalBudget(budget_of(job.table, options), job=f"scan of {job.table.name}")
    plan = plan_of(options, budget, job.table)
    progress = open_progress(options, staging, job.table) if goes_on(options) else None
    if progress is not None:
        plan = progress.planned(plan)
    check_catalog(options, staging, plan.schema, options.format)
    job.check(plan)
    if plan.engine == "spark":
        cluster = cluster_of(settings.master, settings.conf)
        require_shared(cluster, {"dest": options.dest}, shared_paths=options.shared_paths)
    for warning in plan.warnings:
        _LOG.warning("scan %s to %s: %s", plan.table, options.dest, warning)
    cpu_planned = clock.cpu_seconds()
    _LOG.info(
        "scan %s to %s: job %s, %d segments, %d tasks on %s, about %d items; planned: %s",
        *(plan.table, options.dest, staging.job_id, plan.segments, plan.tasks, plan.engine, plan.item_count),
        plan.figures,
    )
    with (
        closing(open_engine(plan.engine, master=settings.master, conf=settings.conf)) as engine,
        budget.within_limits(),
    ):
        with settings.watch.running(plan, budget):
            results = engine.run(job.task, job.tasks(plan, progress), budget)
        before = Counter[str]() if progress is None else Counter(progress.counts)
        staged = [] if progress is None else list(progress.files)
        files = staged + [file for result in results for file in result.staged] or job.without_rows(plan)
        digests = [result.digest for result in results] + ([] if progress is None else [progress.digest])
        digest = _merged(digests).hexdigest() if options.digest else None
        usage = budget.usage()
        report = ScanReport(
            table=plan.table,
            dest=options.dest,
            job_id=staging.job_id,
            engine=plan.engine,
            segments=plan.segments,
            tasks=plan.tasks,
            lanes=plan.lanes,
            items=sum(result.items for result in results) + before["items"],
            scanned_items=sum(result.scanned_items for result in results) + before["scanned_items"],
            resumed_items=before["items"] + sum(result.resumed_items for result in results),
            rows=sum(file.rows for file in files),
            rescued=sum(result.rescued for result in results) + before["rescued"],
            seconds=round(clock.seconds(), 3),
            cpu_seconds=round(cpu_planned + engine.cpu_seconds(), 3),
            wire_bytes=sum(result.wire_bytes for result in results) + before["wire_bytes"],
            rcu_asked_per_second=plan.rcu_per_second,
            rcu_consumed=usage.consumed_units,
            rcu_peak_10s_ratio=usage.peak_10s_ratio,
            throttles=usage.throttles,
            misfits=misfit_reports(result.misfits for result in results),
            # Hudi writes files of its own.
            files=file_reports(options.dest, () if options.format == "hudi" else files),
            layout=layout_of(each.size_bytes for each in files),
            digest=digest,
            merged_nulls=merged_nulls(result.misfits for result in results),
            missing_keys=sum(result.missing_keys for result in results) + before["missing_keys"],
            missing_examples=tuple(key.decode() for result in results for key in result.missing)[:MOST_MISSING],
            planned=plan.figures,
        )
        report = replace(report, actual=_actual(job, report))
        try:
            publish(files, job.commit_info(plan, report))
        except NotFoundError:
            # What an earlier run had staged is gone: the next one begins anew.
            if progress is not None:
                forget_progress(options, staging)
            raise
        if progress is not None:
            with suppress(DdbioError):
                forget_progress(options, staging)
        cpu_seconds = round(cpu_planned + engine.cpu_seconds(), 3)
    _LOG.info("scan %s: %d rows in %.1f s, %.1f RCU", plan.table, report.rows, clock.seconds(), report.rcu_consumed)
    report = replace(report, seconds=round(clock.seconds(), 3), cpu_seconds=cpu_seconds)
    return replace(report, actual=_actual(job, report))


def _actual(job: _Job, report: ScanReport) -> Figures:
    """Return what a scan took."""
    options, files = job.options, report.files
    is_encrypted = options.s3_sse_kms_key_id is not None
    parts = output_parts(options.dest, len(files), sum(file.bytes for file in files), is_encrypted=is_encrypted)
    cost = job_cost(options, [("reads", report.rcu_consumed, job.table)], parts, report.seconds)
    return Figures(report.rcu_consumed, report.seconds, report.wire_bytes, cost.usd)


def _merged(digests: Sequence[Digest]) -> Digest:
    whole = Digest()
    for digest in digests:
        whole.merge(digest)
    return whole


@dataclass(frozen=True)
class FilesTask:
    """Everything that a worker needs to scan one task into files."""

    scan: ScanTask
    staging: Staging
    progress: ScanProgress | None = None


@dataclass(frozen=True)
class FilesResult:
    """What a task read, and its staged files."""

    staged: tuple[StagedFile, ...]
    items: int
    rescued: int
    wire_bytes: int
    misfits: MisfitLog
    digest: Digest
    scanned_items: int
    missing_keys: int = 0
    missing: tuple[bytes, ...] = ()
    resumed_items: int = 0
    """Those of the items that earlier runs had read, and that were kept in the page journal."""


def write_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Read one task's segments into staged files; if it fails, only what a later run goes on with stays staged."""
    if task.progress is not None:
        return _write_pages(task, task.progress, budget)
    stream = SegmentStream(task.scan, budget)
    rescued = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rescued
        for batch in batches:
            rescued += batch.num_rows - batch.column(batch.num_columns - 1).null_count
            yield batch

    log = MisfitLog()
    # Closed in any case, so that no lane goes on reading for a writer that failed.
    with closing(iter(stream)) as batches:
        staged = task.staging.write(counted(batches), task.scan.schema, task.scan.number, log)
    counts = stream.counts
    counts.misfits.merge(log)
    return _result(staged, rescued, counts)


def _write_pages(task: FilesTask, progress: ScanProgress, budget: Budget) -> FilesResult:
    staging, number = task.staging, task.scan.number
    progress = progress.of_attempt(number)
    scan = progress.rest_of(task.scan)
    journal = progress.open_journal()
    stream = SegmentStream(scan, budget, journal)
    writer = staging.writer(scan.schema, FileNaming(staging.job_id, number, secrets.randbelow(10**6)))
    step_seconds = STEP_SECONDS if staging.partition_by is None else PARTITIONED_STEP_SECONDS
    pages = PageWriter(progress, number, writer, step_seconds, journal)
    try:
        with closing(iter(stream)) as read:
            pages.write(cast("Iterator[ReadPage[pa.RecordBatch]]", read))
    except BaseException:
        writer.abort()
        raise
    if journal is not None:
        journal.finish(staging.job_id)
    if isinstance(writer, PartitionedWriter):
        stream.counts.misfits.merge(writer.log)
    return FilesResult(
        *(tuple(pages.files), pages.counts["items"], pages.counts["rescued"], pages.counts["wire_bytes"]),
        *(stream.counts.misfits, pages.digest, pages.counts["scanned_items"], pages.counts["missing_keys"]),
        missing=tuple(stream.counts.missing),
        resumed_items=pages.counts["resumed_items"],
    )


def write_lines_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Write one task's segments into staged files of lines, as an export has; if it fails, nothing stays staged."""
    stream = PageStream(task.scan, budget, PageSplitter)
    staging = task.staging
    naming = FileNaming(staging.job_id, task.scan.number, secrets.randbelow(10**6))
    writer = RollingGzipWriter(staging.store, naming, FOLDER, staging.files.target_file_bytes)
    try:
        with closing(iter(stream)) as blocks:
            for lines in blocks:
                writer.write(lines.text, lines.items)
        staged = tuple(writer.finish())
    except BaseException:
        writer.abort()
        raise
    counts, written = stream.counts, sum(file.rows for file in staged)
    if written != counts.items:
        raise DecodeError(f"the pages hold {written} items, and said that they hold {counts.items}")
    return _result(staged, 0, counts)


def _result(staged: tuple[StagedFile, ...], rescued: int, counts: ScanCounts) -> FilesResult:
    return FilesResult(
        *(staged, counts.items, rescued, counts.wire_bytes, counts.misfits, counts.digest, counts.scanned_items),
        missing_keys=counts.missing_keys,
        missing=tuple(counts.missing),
    )
