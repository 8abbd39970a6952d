"""Scan a table into Parquet files, on any engine: whole, or not at all."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from ddbio.budget import LocalBudget
from ddbio.core.digest import Digest
from ddbio.core.plan import Resources, ScanPlan, budget_of, plan_scan
from ddbio.core.schema.arrow import schema_to_json
from ddbio.engine import available_cores, cluster_of, is_spark_installed, open_engine, running_spark_parallelism
from ddbio.files import commit
from ddbio.ops.job.clock import Clock
from ddbio.ops.job.report import ScanReport, file_reports, misfit_reports
from ddbio.ops.job.staging import open_staging, report_again, target_of
from ddbio.ops.job.target import dynamodb_spec, open_store, require_shared
from ddbio.ops.scans.files import FilesTask, write_task
from ddbio.ops.scans.lines import export_objects, write_lines_task
from ddbio.ops.scans.survey import describe_scan, request_of, sample_table
from ddbio.ops.scans.task import ScanTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.core.facts import TableFacts
    from ddbio.core.staged import SmallObject, Staged
    from ddbio.ops.job.staging import Staging
    from ddbio.options import ScanOptions, ScanToFilesOptions


_LOG = logging.getLogger("ddbio.scan")


class Watch(Protocol):
    """Follow a running job, to show it to somebody."""

    def running(self, plan: ScanPlan, budget: LocalBudget) -> AbstractContextManager[None]:
        """Show the plan, then the budget's usage while the context is open."""
        ...


class Unwatched:
    """Follow nothing."""

    def running(self, plan: ScanPlan, budget: LocalBudget) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        del plan, budget
        return nullcontext()


def plan_of(options: ScanOptions, budget: LocalBudget | None = None, facts: TableFacts | None = None) -> ScanPlan:
    """Return the plan of a scan after describing and sampling the table.

    Raises
    ------
    DdbioError
        As :func:`ddbio.ops.scans.survey.describe_scan` and :func:`ddbio.ops.scans.survey.sample_table` say.
    """
    facts = facts or describe_scan(options)
    sample = sample_table(facts, options, budget or LocalBudget(budget_of(facts, options)))
    return plan_scan(facts, sample, options, available_resources())


def plan_to_files(options: ScanToFilesOptions) -> ScanPlan:
    """Return the plan of a scan into files, after looking at their target too; nothing is written.

    Raises
    ------
    TargetError, OptionError
        If the target would be refused.
    DdbioError
        As of ``plan_of``.
    """
    store = open_store(options.dest, options)
    if options.job_id is None:
        # A job of a known id may be one that is committed, whose report is then given again.
        commit.foresee(target_of(options, store))
    return plan_of(options)


def available_resources() -> Resources:
    """Return what this process could run a plan on; start nothing."""
    return Resources(available_cores(), running_spark_parallelism(), is_spark_installed())


def scan_tasks(plan: ScanPlan, options: ScanOptions, facts: TableFacts) -> list[ScanTask]:
    """Return the tasks of a plan; each reads its own segments, together they read every segment once."""
    whole = request_of(facts, options, plan.item_bytes)
    return [
        ScanTask(
            number=number,
            spec=dynamodb_spec(options),
            requests=tuple(whole.of_segment(segment, plan.segments) for segment in group),
            lanes=plan.lanes_per_task,
            schema=plan.schema,
            on_misfit=options.on_misfit,
            nulls=options.nulls,
            drop=options.drop or (),
            digest=getattr(options, "digest", False),
            deadline_seconds=options.deadline_seconds,
            accept_encoding=options.accept_encoding,
        )
        for number, group in enumerate(plan.groups())
    ]


def scan_to_files(
    options: ScanToFilesOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> ScanReport:
    """Scan a table into Parquet files; they appear whole, all together with their manifest, or not at all.

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
    clock = Clock()
    if options.engine == "spark":
        require_shared(cluster_of(master, conf), {"dest": options.dest}, shared_paths=options.shared_paths)
    facts = describe_scan(options)
    staging = open_staging(options)
    try:
        # An engine raises only after its tasks have ended.
        with commit.whole(target_of(options, staging.store), staging.job_id) as complete:
            return _run(_Job(options, facts, staging), complete, clock, _Settings(master, conf, watch or Unwatched()))
    except commit.AlreadyCommittedError as done:
        return report_again(ScanReport, done)


@dataclass(frozen=True)
class _Job:
    options: ScanToFilesOptions
    facts: TableFacts
    staging: Staging

    @property
    def is_export(self) -> bool:
        return self.options.format == "dynamodb-export"

    def without_rows(self, plan: ScanPlan) -> tuple[Staged, ...]:
        return () if self.is_export else self.staging.empty(plan.schema)

    def tasks(self, plan: ScanPlan) -> list[FilesTask]:
        return [FilesTask(scan, self.staging) for scan in scan_tasks(plan, self.options, self.facts)]

    def facts_of(self, plan: ScanPlan, report: ScanReport, objects: tuple[SmallObject, ...]) -> commit.JobFacts:
        return commit.JobFacts(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            source={
                "table_arn": self.facts.arn,
                "table_id": self.facts.table_id,
                "key": dict(self.facts.key_types),
                "index": plan.index,
                "columns": plan.columns,
            },
            schema=schema_to_json(plan.schema),
            digest=report.digest,
            objects=objects,
            report=report.to_dict(),
        )


@dataclass(frozen=True)
class _Settings:
    master: str | None
    conf: Mapping[str, str] | None
    watch: Watch


def _run(job: _Job, complete: commit.Complete, clock: Clock, settings: _Settings) -> ScanReport:
    options, staging = job.options, job.staging
    budget = LocalBudget(budget_of(job.facts, options))
    began_at = datetime.now(UTC)
    plan = plan_of(options, budget, job.facts)
    if plan.engine == "spark":
        cluster = cluster_of(settings.master, settings.conf)
        require_shared(cluster, {"dest": options.dest}, shared_paths=options.shared_paths)
    cpu_planned = clock.cpu_seconds()
    _LOG.info(
        "scan %s to %s: job %s, %d segments, %d tasks on %s, about %d items",
        *(plan.table, options.dest, staging.job_id, plan.segments, plan.tasks, plan.engine, plan.item_count),
    )
    with closing(open_engine(plan.engine, master=settings.master, conf=settings.conf)) as engine, closing(budget):
        with settings.watch.running(plan, budget):
            results = engine.run(write_lines_task if job.is_export else write_task, job.tasks(plan), budget)
        files = [file for result in results for file in result.staged] or job.without_rows(plan)
        digest = _merged([result.digest for result in results]).hexdigest() if options.digest else None
        objects = export_objects(staging, options, job.facts, began_at, results) if job.is_export else ()
        usage = budget.usage()
        report = ScanReport(
            table=plan.table,
            dest=options.dest,
            job_id=staging.job_id,
            engine=plan.engine,
            segments=plan.segments,
            tasks=plan.tasks,
            lanes=plan.lanes,
            items=sum(result.items for result in results),
            rows=sum(file.rows for file in files),
            rescued=sum(result.rescued for result in results),
            seconds=round(clock.seconds(), 3),
            cpu_seconds=round(cpu_planned + engine.cpu_seconds(), 3),
            wire_bytes=sum(result.wire_bytes for result in results),
            rcu_asked_per_second=plan.rcu_per_second,
            rcu_consumed=usage.consumed_units,
            rcu_peak_10s_ratio=usage.peak_10s_ratio,
            throttles=usage.throttles,
            misfits=misfit_reports(result.misfits for result in results),
            files=file_reports(options.dest, files),
            digest=digest,
        )
        complete(files, job.facts_of(plan, report, objects))
        cpu_seconds = round(cpu_planned + engine.cpu_seconds(), 3)
    _LOG.info("scan %s: %d rows in %.1f s, %.1f RCU", plan.table, report.rows, clock.seconds(), report.rcu_consumed)
    return replace(report, seconds=round(clock.seconds(), 3), cpu_seconds=cpu_seconds)


def _merged(digests: Sequence[Digest]) -> Digest:
    whole = Digest()
    for digest in digests:
        whole.merge(digest)
    return whole
