"""Runner of a job that writes files: plan it, run its tasks within limits, and publish the files together."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_actual
from ddbio.catalog.sync import registered
from ddbio.commit import committer
from ddbio.commit.committer import CommitInfo
from ddbio.jobs.engine import cluster_of, engine_for, open_engine
from ddbio.jobs.file_estimates import run_limits
from ddbio.jobs.report import Clock, Report, file_reports, layout_of
from ddbio.jobs.stores import committed_report, new_job_id, require_shared
from ddbio.jobs.watch import Unwatched, Watch

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping, Sequence

    from ddbio.commit.committer import Committer, Publish
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import EstimatedPlan, Figures
    from ddbio.storage.staged import StagedFile


class TaskResult(Protocol):
    """Result of a task."""

    @property
    def staged(self) -> Sequence[StagedFile]:
        """Return the files that the task has staged."""
        ...


@dataclass(frozen=True)
class StagedFiles:
    """Result of a task that has only staged files."""

    staged: Sequence[StagedFile]


ResultT = TypeVar("ResultT", bound=TaskResult)
ReportT = TypeVar("ReportT", bound=Report)


class FilesJob(ABC, Generic[ResultT, ReportT]):
    """Job that writes files, which become visible together or not at all; a verb implements the steps.

    The steps run in the order of the methods: ``open``, then, while the target is claimed, ``prepare``, ``work``,
    ``counts``, ``figures``, ``described`` and ``commit``, and finally ``committed``. A job is run once.

    Attributes
    ----------
    log
        Logger of the verb.
    report_class
        Class of the report.
    dest
        The target, as given.
    title, extent
        The action and the extent of the job, for the log.
    paths
        Paths or URIs that tasks read or write, by the name of their option.
    target
        The committer, which claims the target and publishes the files.
    plan
        Created by ``open``, or by ``prepare`` if planning costs something or reads the claimed target.
    budget
        Counts the consumption of the tasks, and stops them at a limit.
    replaced
        Files to replace; None if the target's mode determines them.
    """

    log: logging.Logger
    report_class: type[ReportT]
    title: str
    extent: str = ""
    target: Committer
    plan: EstimatedPlan
    replaced: Sequence[str] | None = None

    def __init__(
        self,
        options: Any,
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        watch: Watch[Any] | None = None,
    ) -> None:
        self.options = options
        self.clock = Clock()
        self.job_id: str = options.job_id or new_job_id()
        name = "dest" if hasattr(options, "dest") else "path"
        self.dest: str = getattr(options, name)
        self.paths: dict[str, str | None] = {name: self.dest}
        self.budget = LocalBudget(None)
        self._master, self._conf = master, conf
        self._watch = watch or Unwatched()

    def run(self) -> ReportT:
        """Run the job; if an earlier run of it is committed, return the report of that run.

        Raises
        ------
        DdbioError
            No file of the job is then visible at the target, unless only the registration in a catalog failed.
        """
        self._require_shared(self.known_engine)
        self.open()
        try:
            # An engine raises only after its tasks have ended.
            with committer.publishing(self.target, self.job_id) as publish:
                report = self._publish(publish)
        except committer.AlreadyCommittedError as done:
            report = self.committed_before(committed_report(self.report_class, done))
        else:
            report = self.committed(report)
        return registered(report, self.dest, getattr(self.options, "catalog", None), self.options)

    def _publish(self, publish: Publish) -> ReportT:
        """Run the tasks and publish their files."""
        self.prepare()
        engine_name = self.engine_name
        if engine_name != self.known_engine:
            self._require_shared(engine_name)
        for warning in getattr(self.plan, "warnings", ()):
            self.log.warning("%s: %s", self.title, warning)
        self.log.info("%s: job %s, %s; planned: %s", self.title, self.job_id, self.extent, self.plan.figures)
        self.budget.bound(run_limits(self.options, self.plan.estimate))
        cpu_seconds = self.clock.cpu_seconds()
        if not self.has_work:
            self.target.abort(self.job_id)
            return self.report([], [], cpu_seconds)
        with closing(open_engine(engine_name, master=self._master, conf=self._conf)) as engine:
            with self.budget.within_limits(), self._watch.running(self.plan, self.budget):
                results = self.work(engine)
            staged = self.staged(results)
            report = self.report(results, staged, cpu_seconds + engine.cpu_seconds())
            check_actual(self.options, self.figures(report))
            described = self.described(report, results)
            if described is None:
                self.target.abort(self.job_id)
            else:
                created_at = datetime.now(UTC).isoformat(timespec="seconds")
                self.commit(publish, staged, CommitInfo(created_at=created_at, report=report.to_dict(), **described))
            return self._timed(report, cpu_seconds + engine.cpu_seconds())

    def _require_shared(self, engine: str) -> None:
        if engine == "spark":
            cluster = cluster_of(self._master, self._conf)
            require_shared(cluster, self.paths, shared_paths=self.options.shared_paths)

    def report(self, results: Sequence[ResultT], staged: Sequence[StagedFile], cpu_seconds: float) -> ReportT:
        """Return the current report, with fields from the plan, the counts of all jobs, and the counts of the verb."""
        fields: dict[str, Any] = {
            **{field.name: getattr(self.plan, field.name) for field in dataclasses.fields(self.plan)},
            "dest": self.dest,
            "job_id": self.job_id,
            "tasks": len(results),
            "rows": sum(file.rows for file in staged),
            "files": file_reports(self.dest, staged),
            "layout": layout_of(file.size_bytes for file in staged),
            "planned": self.plan.figures,
            "seconds": 0.0,
            "cpu_seconds": 0.0,
            **self.counts(results, staged),
        }
        return self._timed(self.report_class(**_report_fields(self.report_class, fields)), cpu_seconds)

    def _timed(self, report: ReportT, cpu_seconds: float) -> ReportT:
        """Return the report with the actual figures so far."""
        times = {"seconds": round(self.clock.seconds(), 3), "cpu_seconds": round(cpu_seconds, 3)}
        report = dataclasses.replace(report, **_report_fields(self.report_class, times))
        actual: dict[str, Any] = {"actual": self.figures(report)}
        return dataclasses.replace(report, **actual)

    @property
    def known_engine(self) -> Literal["local", "spark"]:
        """Return the engine, as far as it is known before anything is opened."""
        return engine_for(getattr(self.options, "engine", "local"))

    @property
    def engine_name(self) -> Literal["local", "spark"]:
        """Return the engine of the plan."""
        engine: Literal["local", "spark"] = getattr(self.plan, "engine", "local")
        return engine

    @abstractmethod
    def open(self) -> None:
        """Open the source and the target, and raise if the job cannot work."""

    def prepare(self) -> None:
        """Compare the job with the content of the claimed target."""

    @property
    def has_work(self) -> bool:
        """Return whether there is anything to write; if not, no engine is opened."""
        return True

    @abstractmethod
    def work(self, engine: Engine) -> Sequence[ResultT]:
        """Run the tasks, and return their results."""

    def staged(self, results: Sequence[ResultT]) -> Sequence[StagedFile]:
        """Return the files to publish."""
        return [file for result in results for file in result.staged]

    def counts(self, results: Sequence[ResultT], staged: Sequence[StagedFile]) -> dict[str, Any]:
        """Return the fields of the report that the verb counts."""
        del results, staged
        return {}

    @abstractmethod
    def figures(self, report: ReportT) -> Figures:
        """Return the actual figures of the job so far."""

    @abstractmethod
    def described(self, report: ReportT, results: Sequence[ResultT]) -> dict[str, Any] | None:
        """Return the arguments of ``CommitInfo`` for the manifest; None if there is nothing to commit."""

    def commit(self, publish: Publish, staged: Sequence[StagedFile], info: CommitInfo) -> None:
        """Publish the files."""
        publish(staged, info, self.replaced)

    def committed(self, report: ReportT) -> ReportT:
        """Return the report after the commit; a job may first do work that follows the commit."""
        return report

    def committed_before(self, report: ReportT) -> ReportT:
        """Return the report of an earlier run, which may have been killed before the work that follows its commit."""
        return report


def _report_fields(kind: type[Report], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are fields of a class of reports."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
