"""Scan of a table into files on any engine: the job and its tasks."""

from __future__ import annotations

import base64
import logging
import secrets
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from ddbio.budget import LocalBudget
from ddbio.catalog.sync import check_catalog
from ddbio.errors import DdbioError, DecodeError, NotFoundError
from ddbio.formats import export_manifest as manifest
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.text_writers import RollingGzipWriter
from ddbio.items.digest import Digest
from ddbio.items.raw_items import PageSplitter
from ddbio.items.rescue import MisfitLog
from ddbio.jobs.costs import job_cost
from ddbio.jobs.estimate import Figures
from ddbio.jobs.report import ScanReport
from ddbio.jobs.staging import target_of
from ddbio.runner.rows_job import RowsJob, RowsOutput
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.plan import budget_of
from ddbio.scan.progress import (
    PARTITIONED_STEP_SECONDS,
    STEP_SECONDS,
    PageWriter,
    ScanProgress,
    forget_progress,
    is_resumable,
    open_progress,
)
from ddbio.scan.stream import MAX_MISSING_EXAMPLES, PageStream, ScanCounts, ScanTask, SegmentStream
from ddbio.storage.object_store import aborted_on_error
from ddbio.storage.staged import FileNaming, SmallObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget
    from ddbio.commit.committer import CommitInfo, Publish
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.staging import Staging
    from ddbio.jobs.watch import Watch
    from ddbio.scan.options import ScanToFilesOptions
    from ddbio.scan.plan import ScanPlan
    from ddbio.scan.stream import ReadPage
    from ddbio.storage.staged import StagedFile

_EXPORT_FOLDER = "data"
# The counts of everything that a job has read, in this run and in earlier ones.
_COUNTS = ("items", "scanned_items", "wire_bytes", "missing_keys")


def scan_to_files(
    options: ScanToFilesOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch[ScanPlan] | None = None,
) -> ScanReport:
    """Scan a DynamoDB table into files that become visible together, with a manifest, or not at all.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.
    watch
        Callback that follows the running job.

    Raises
    ------
    DdbioError
        Nothing of this job is then visible at the target, and the job can be run again.
    """
    return _ScanJob(options, master=master, conf=conf, watch=watch).run()


class _ExportOutput(RowsOutput):
    """Output of item lines in the layout of a native full export."""

    def check(self, columns: pa.Schema, keys: Sequence[str], table_arn: str | None) -> None:
        """Accept any columns, because item lines have no columns."""
        del keys, table_arn
        check_catalog(self.options, self.staging, columns, self.file_format)

    def without_rows(self, columns: pa.Schema) -> tuple[StagedFile, ...]:
        """Return no files: the manifests of an export describe an empty one."""
        del columns
        return ()


class _ScanJob(RowsJob["FilesResult", ScanReport]):
    log = logging.getLogger("ddbio.scan")
    report_class = ScanReport
    options: ScanToFilesOptions
    plan: ScanPlan
    progress: ScanProgress | None = None

    def open(self) -> None:
        options = self.options
        self.began, self.table = datetime.now(UTC), describe_scan(options)
        self.title = f"scan {self.table.name} to {options.dest}"
        self.keys, self.table_arn = tuple(name for name, _ in self.table.key_types), self.table.arn
        self.budget = LocalBudget(budget_of(self.table, options), job=f"scan of {self.table.name}")
        if options.format == "dynamodb-export":
            self.use_output(_ExportOutput(options, options.format))
            return
        self.open_output()
        if is_resumable(options):
            self.target = replace(target_of(options, self.output.staging.store), keeps_staged=True)

    @property
    def known_engine(self) -> Literal["local", "spark"]:
        return "spark" if self.options.engine == "spark" else "local"

    def prepare(self) -> None:
        # A sample costs read units, and a committed job does not need one.
        self.plan = plan_of(self.options, self.budget, self.table)
        if is_resumable(self.options):
            self.progress = open_progress(self.options, self.output.staging, self.table)
            self.plan = self.progress.planned(self.plan)
        plan = self.plan
        self.extent = f"{plan.segments} segments, {plan.tasks} tasks on {plan.engine}, about {plan.item_count} items"
        self.columns = plan.schema
        super().prepare()

    def work(self, engine: Engine) -> list[FilesResult]:
        scans, staging, progress = scan_tasks(self.plan, self.options, self.table), self.output.staging, self.progress
        tasks = [FilesTask(scan, staging, progress.of_task(scan) if progress else None) for scan in scans]
        function = write_lines_task if self.options.format == "dynamodb-export" else write_task
        return engine.run(function, tasks, self.budget)

    def staged(self, results: Sequence[FilesResult]) -> Sequence[StagedFile]:
        earlier = self.progress.files if self.progress else ()
        return [*earlier, *(file for result in results for file in result.staged)] or super().staged(results)

    def counts(self, results: Sequence[FilesResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        usage, read = self.budget.usage(), [result.read for result in results]
        before = Counter[str](self.progress.counts if self.progress else ())
        earlier = [self.progress.digest] if self.progress else []
        digest = Digest.merged([*earlier, *(task_counts.digest for task_counts in read)])
        return {
            **super().counts(results, staged),
            **{name: before[name] + sum(getattr(task_counts, name) for task_counts in read) for name in _COUNTS},
            "rescued": before["rescued"] + sum(result.rescued for result in results),
            "resumed_items": before["items"] + sum(result.resumed_items for result in results),
            "rcu_asked_per_second": self.plan.rcu_per_second,
            "rcu_consumed": usage.consumed_units,
            "rcu_peak_10s_ratio": usage.peak_10s_ratio,
            "throttles": usage.throttles,
            "digest": digest.hexdigest() if self.options.digest else None,
            "missing_examples": tuple(key.decode() for task_counts in read for key in task_counts.missing)[
                :MAX_MISSING_EXAMPLES
            ],
        }

    def figures(self, report: ScanReport) -> Figures:
        used: list[tuple[Literal["reads", "writes"], float | None, TableDescription]]
        used = [("reads", report.rcu_consumed, self.table)]
        cost = job_cost(self.options, used, self.written_parts(report), report.seconds)
        return Figures(report.rcu_consumed, report.seconds, report.wire_bytes, cost.usd)

    def source(self) -> dict[str, Any]:
        return {
            "table_arn": self.table.arn,
            "table_id": self.table.table_id,
            "key": dict(self.table.key_types),
            "index": self.plan.index,
            "columns": self.plan.columns,
            "where": self.plan.where,
            "nulls": self.options.nulls,
        }

    def commit(self, publish: Publish, staged: Sequence[StagedFile], info: CommitInfo) -> None:
        if self.options.format == "dynamodb-export":
            info = replace(info, objects=(*info.objects, *self._manifests(staged)))
        try:
            publish(staged, info)
        except NotFoundError:
            # The staged files of an earlier run are gone: the next run restarts.
            if self.progress is not None:
                forget_progress(self.options, self.output.staging)
            raise

    def _manifests(self, staged: Sequence[StagedFile]) -> tuple[SmallObject, ...]:
        """Return the manifests of an export; the last one, the summary, marks it as complete for readers."""
        files = [
            manifest.ExportFile(file.path.rpartition("/")[2], file.rows, base64.b64decode(file.md5 or ""))
            for file in staged
        ]
        options, (bucket, prefix) = self.options, _bucket_and_prefix(self.output.staging.store.uri)
        filtered = {name: value for name in ("index", "columns", "where", "limit") if (value := getattr(options, name))}
        listed = manifest.files_text(files, prefix)
        summary = manifest.summary_text(
            export_id=f"{int(self.began.timestamp() * 1000):014d}-{secrets.token_hex(4)}",
            table_arn=self.table.arn,
            table_id=self.table.table_id,
            times=(self.began, datetime.now(UTC)),
            bucket=bucket,
            prefix=prefix,
            items=sum(file.items for file in files),
            filtered=filtered | ({"keys": True} if options.keys else {}),
        )
        objects = [SmallObject(manifest.STARTED, "")]
        for name, text in ((manifest.FILES, listed), (manifest.SUMMARY, summary)):
            objects.append(SmallObject(f"{name}.md5", manifest.checksum_text(text).decode()))
            objects.append(SmallObject(f"{name}.json", text.decode()))
        return tuple(objects)

    def committed(self, report: ScanReport) -> ScanReport:
        self._forget()
        took = report.rows, report.seconds, report.rcu_consumed
        self.log.info("scan %s: %d rows in %.1f s, %.1f RCU", report.table, *took)
        return report

    def committed_before(self, report: ScanReport) -> ScanReport:
        # The run that committed may have been killed before it deleted the progress.
        self._forget()
        return report

    def _forget(self) -> None:
        if is_resumable(self.options):
            with suppress(DdbioError):
                forget_progress(self.options, self.output.staging)


def _bucket_and_prefix(uri: str) -> tuple[str, str]:
    """Return bucket and prefix (ending in a slash) of a target; empty for a local folder."""
    scheme, _, path = uri.rpartition("://")
    if not scheme:
        return "", ""
    bucket, _, prefix = path.partition("/")
    return bucket, f"{prefix}/" if prefix else ""


@dataclass(frozen=True)
class FilesTask:
    """Picklable description of the scan of one task into files."""

    scan: ScanTask
    staging: Staging
    progress: ScanProgress | None = None


@dataclass(frozen=True)
class FilesResult:
    """Counts and staged files of a task."""

    staged: tuple[StagedFile, ...]
    read: ScanCounts
    rescued: int = 0
    resumed_items: int = 0
    """The items that came from the page journal of earlier runs."""

    @property
    def misfits(self) -> MisfitLog:
        """Return the misfits of the scan."""
        return self.read.misfits


def write_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Read one task's segments into staged files; after an error, only files that a later run resumes from remain."""
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
    # Closed in any case, so that no lane continues to read for a writer that failed.
    with closing(iter(stream)) as batches:
        staged = task.staging.write(counted(batches), task.scan.schema, task.scan.number, log)
    stream.counts.misfits.merge(log)
    return FilesResult(staged, stream.counts, rescued)


def _write_pages(task: FilesTask, progress: ScanProgress, budget: Budget) -> FilesResult:
    staging, number = task.staging, task.scan.number
    progress = progress.of_attempt(number)
    scan = progress.remaining_task(task.scan)
    journal = progress.open_journal()
    stream = SegmentStream(scan, budget, journal)
    writer = staging.writer(scan.schema, FileNaming(staging.job_id, number, secrets.randbelow(10**6)))
    step_seconds = STEP_SECONDS if staging.partition_by is None else PARTITIONED_STEP_SECONDS
    pages = PageWriter(progress, number, writer, step_seconds, journal)
    with aborted_on_error(writer), closing(iter(stream)) as read:
        pages.write(cast("Iterator[ReadPage[pa.RecordBatch]]", read))
    if journal is not None:
        journal.finish(staging.job_id)
    if isinstance(writer, PartitionedWriter):
        stream.counts.misfits.merge(writer.log)
    counts: dict[str, Any] = {name: pages.counts[name] for name in _COUNTS}
    task_counts = replace(stream.counts, digest=pages.digest, **counts)
    return FilesResult(tuple(pages.files), task_counts, pages.counts["rescued"], pages.counts["resumed_items"])


def write_lines_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Write one task's segments into staged files of item lines, as in an export; after an error, none remain."""
    stream = PageStream(task.scan, budget, PageSplitter)
    staging = task.staging
    naming = FileNaming(staging.job_id, task.scan.number, secrets.randbelow(10**6))
    writer = RollingGzipWriter(staging.store, naming, _EXPORT_FOLDER, staging.files.target_file_bytes)
    with aborted_on_error(writer):
        with closing(iter(stream)) as blocks:
            for lines in blocks:
                writer.write(lines.text, lines.items)
        staged = tuple(writer.finish())
    counts, written = stream.counts, sum(file.rows for file in staged)
    if written != counts.items:
        raise DecodeError(f"the pages contain {written} items, but their counts add up to {counts.items}")
    return FilesResult(staged, counts)
