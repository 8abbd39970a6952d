"""Fold a full export and the increments that follow it into the table's state, in memory or as files."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_actual
from ddbio.catalog.sync import check_catalog, with_catalog
from ddbio.commit import committer
from ddbio.errors import ExportIncompleteError
from ddbio.export.fold_plan import ExportFoldReport, FoldSources, fold_figures, plan_fold_files
from ddbio.export.fold_rows import fold, missing_windows, plan_fold
from ddbio.export.fold_tasks import (
    BucketsTask,
    ChangesTask,
    ItemsTask,
    fold_buckets,
    spill_changes,
    split_items,
)
from ddbio.export.read import engine_name, read_source
from ddbio.export.spill import Spill, claimed_folder
from ddbio.export.tasks import ExportColumns, ExportCounts, export_columns, export_tasks, spark_task_count
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.times import stored_schema
from ddbio.jobs.engine import cluster_of, open_engine
from ddbio.jobs.file_estimates import run_limits
from ddbio.jobs.report import (
    Clock,
    file_reports,
    layout_of,
    merged_nulls,
    misfit_reports,
)
from ddbio.jobs.staging import open_staging, require_same_columns, stored_format, target_of
from ddbio.jobs.stores import committed_report, open_store, protect_sources, require_shared
from ddbio.options.files import LAKE_FORMATS
from ddbio.sources.export_source import open_export
from ddbio.storage.local_store import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddbio.export.fold_plan import ExportFoldPlan
    from ddbio.export.fold_rows import Window
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.staging import Staging
    from ddbio.lake_formats.base_load import LakeTarget
    from ddbio.options import ExportFoldOptions, ExportReadOptions, ExportWindowsOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile

_LOG = logging.getLogger("ddbio.export")
# Of compressed text. As rows in memory it is about five times as much, and as much again for each step of folding.
_BUCKET_BYTES = 8 * 1024 * 1024
_MOST_BUCKETS = 4096


def open_fold(options: ExportReadOptions, increments: Sequence[str], as_of: datetime | None = None) -> FoldSources:
    """Open the exports that together are the state of the table.

    All of them are read into the given columns, or into the columns of the full export.

    Raises
    ------
    ExportIncompleteError
        If a manifest is damaged, or no export covers some time in between.
    """
    full = open_export(options.source, options)
    opened = [open_export(each, options) for each in increments]
    plan = plan_fold(full.summary, [each.summary for each in opened], as_of)
    columns = export_columns(full, options)
    # Times are compared, and spilled, as what the items hold.
    rules = ColumnRules.of(options)
    options = dataclasses.replace(options, timestamps=None, types=None, numbers="exact")
    changed = [opened[place] for place in plan.chosen if opened[place].files]
    if changed and not full.files and options.schema is None:
        first = export_columns(changed[0], options)
        columns = ExportColumns(rules.apply(normalize_schema(first.items)))
    rows, columns = normalize_schema(columns.items), ExportColumns(stored_schema(columns.items))
    given = dataclasses.replace(options, schema=columns.items)
    pairs = tuple((source, export_columns(source, given)) for source in changed)
    for (before, one), (after, other) in itertools.pairwise(pairs):
        if one.keys != other.keys:
            raise ExportIncompleteError(
                f"{after.summary.export_arn} has changes of keys {other.keys}, {before.summary.export_arn} "
                f"of {one.keys}: a table keeps its key; copy the exports again"
            )
    folders = tuple(folder for each in (full, *opened) for folder in each.folders)
    return FoldSources(given, full, columns, rows, pairs, len(plan.chosen), plan.reached, folders)


def fold_exports(options: ExportReadOptions, increments: Sequence[str]) -> pa.Table:
    """Return a table's state after a full export and the incremental exports that follow it, held in memory.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; their windows must leave no gap.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or no export covers some time in between.
    SchemaError
        If a key does not fit its column.
    """
    sources = open_fold(options, increments)
    items = read_source(sources.full, sources.columns, sources.options)
    if sources.changed:
        changes = [read_source(source, columns, sources.options) for source, columns in sources.changed]
        items = fold(items, changes, sources.keys)
    return pa.Table.from_batches(sources.result.convert(items.to_batches(), MisfitLog()), sources.rows)


def windows_to_request(options: ExportWindowsOptions, increments: Sequence[str] = ()) -> list[Window]:
    """Return the windows of the incremental exports to request so that they follow a full export without a gap.

    Nothing is requested: give ``start`` and ``end`` of each to :func:`start_export` as ``from_time`` and ``to_time``.

    Parameters
    ----------
    increments
        Incremental exports that exist already.

    Raises
    ------
    ExportIncompleteError
        If a manifest is damaged, or an export is not of the same whole table.
    """
    until = options.until or datetime.now(UTC)
    full = open_export(options.source, options)
    return missing_windows(full.summary, [open_export(each, options).summary for each in increments], until)


def plan_of(options: ExportFoldOptions, increments: Sequence[str]) -> ExportFoldPlan:
    """Return what :func:`fold_exports_to_files` would do, all manifests verified; nothing is written.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; their windows must leave no gap.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or no export covers some time in between; the message names the window.
    LimitError
        If the plan is above a limit.
    """
    return plan_fold_files(options, open_fold(options, increments, options.as_of))


def fold_to_files(
    options: ExportFoldOptions,
    increments: Sequence[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> ExportFoldReport:
    """Write a table's state after a full export and the increments that follow it, as files that appear together.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; their windows must leave no gap.
    master, conf
        Spark master and configuration for a session that has to be started.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or no export covers some time in between; the message names the window.
    SchemaError
        If a key does not fit its column.
    """
    clock = Clock()
    sources = open_fold(options, increments, options.as_of)
    plan = plan_fold_files(options, sources, estimates_files=options.partition_by is not None)
    for warning in plan.warnings:
        _LOG.warning("fold %s to %s: %s", options.source, options.dest, warning)
    _LOG.info(
        "fold %s to %s: %d windows, planned: %s", options.source, options.dest, plan.windows, plan.estimate.figures
    )
    if engine_name(options) == "spark":
        require_shared(
            cluster_of(master, conf), {"dest": options.dest, "spill": options.spill}, shared_paths=options.shared_paths
        )
    staging = open_staging(options, stored_format(options.format), sources.keys)
    protect_sources(staging.store, options.mode, sources.folders)
    lake = _lake(options, sources)
    try:
        # An engine raises only after its tasks have ended.
        target = target_of(options, staging.store) if lake is None else lake
        with committer.publishing(target, staging.job_id) as complete:
            if lake is None:
                require_same_columns(options, staging, sources.rows)
                check_catalog(options, staging, sources.rows, options.format)
            else:
                keys = options.key or sources.keys or lake.keys_of(options, sources.full.summary.table_arn)
                lake.describe(sources.rows, keys, options.buckets)
            cpu_planned = clock.cpu_seconds()
            with contextlib.closing(open_engine(engine_name(options), master=master, conf=conf)) as engine:
                job = _Job(options, sources, staging if lake is None else lake.staging(staging), engine)
                budget = LocalBudget(None, job="fold of the exports")
                budget.bound(run_limits(options, plan.estimate))
                with budget.within_limits():
                    staged, counts = job.run(budget)
                files = staged or job.without_rows()
                report = job.report(files, counts, clock.seconds(), cpu_planned + engine.cpu_seconds())
                report = dataclasses.replace(report, planned=plan.estimate.figures)
                check_actual(options, fold_figures(options, plan, report))
                complete(files, job.facts(report))
                cpu_seconds = round(cpu_planned + engine.cpu_seconds(), 3)
    except committer.AlreadyCommittedError as done:
        return with_catalog(options, committed_report(ExportFoldReport, done))
    report = dataclasses.replace(report, seconds=round(clock.seconds(), 3), cpu_seconds=cpu_seconds)
    return with_catalog(options, dataclasses.replace(report, actual=fold_figures(options, plan, report)))


def _lake(options: ExportFoldOptions, sources: FoldSources) -> LakeTarget | None:
    """Return the lake table whose base the rows become, behind which changes are applied; None for files."""
    if options.format not in LAKE_FORMATS:
        return None
    # Who writes plain files does not wait for it.
    from ddbio.lake_formats.base_load import base_target  # noqa: PLC0415

    return base_target(options, options.format, round(sources.reached.timestamp() * 1_000_000))


@dataclass(frozen=True)
class _Job:
    options: ExportFoldOptions
    sources: FoldSources
    staging: Staging
    engine: Engine

    def run(self, budget: LocalBudget) -> tuple[tuple[StagedFile, ...], list[ExportCounts]]:
        """Return the staged files, and the counts of the increments and of the full export."""
        sources, engine = self.sources, self.engine
        with self._spill() as spill:
            changes = engine.run(spill_changes, self._changes_tasks(spill), budget)
            items_tasks = self._items_tasks(spill)
            passed = engine.run(split_items, items_tasks, budget)
            groups = _neighbours(spill.buckets, self._parallelism)
            tasks = [
                BucketsTask(
                    number=len(items_tasks) + number,
                    buckets=buckets,
                    keys=sources.keys,
                    schema=sources.columns.items,
                    spill=spill,
                    staging=self.staging,
                    result=sources.result,
                )
                for number, buckets in enumerate(groups)
                if buckets and sources.changed
            ]
            folded = engine.run(fold_buckets, tasks, budget)
        results = [*passed, *folded]
        staged = tuple(file for result in results for file in result.staged)
        return staged, [_sum(changes), _sum([result.counts for result in results])]

    def without_rows(self) -> tuple[StagedFile, ...]:
        # Without rows no partition is touched.
        return () if self.options.overwrite_partitions else self.staging.empty(self.sources.rows)

    @property
    def _parallelism(self) -> int:
        return self.options.tasks or self.engine.parallelism

    @contextlib.contextmanager
    def _spill(self) -> Iterator[Spill]:
        size = sum(sum(source.sizes().values()) for source, _ in self.sources.changed)
        buckets = min(_MOST_BUCKETS, max(self._parallelism, -(-size // _BUCKET_BYTES)))
        with self._spill_store() as store:
            spill = Spill(store, buckets)
            try:
                yield spill
            finally:
                spill.clear(self.staging.job_id)

    @contextlib.contextmanager
    def _spill_store(self) -> Iterator[ObjectStore]:
        options, job_id = self.options, self.staging.job_id
        with contextlib.ExitStack() as stack:
            if options.spill is not None:
                stack.enter_context(claimed_folder(open_store(options.spill, options, is_temporary=True), job_id))
                place = f"{options.spill.rstrip('/')}/{job_id}"
            elif self.engine.name == "spark":
                # In the staging folder of the job, which is deleted with the job.
                place = f"{options.dest.rstrip('/')}/_ddbio/staging/{job_id}/spill"
            else:
                place = f"{stack.enter_context(temporary_folder())}/rows"
            yield open_store(place, options, is_temporary=True)

    def _changes_tasks(self, spill: Spill) -> list[ChangesTask]:
        sources, count = self.sources, self._parallelism
        given = sources.options
        reads = [
            [(window, task) for task in export_tasks(source, columns, given, count)]
            for window, (source, columns) in enumerate(sources.changed)
        ]
        groups = [tuple(window[number] for window in reads if number < len(window)) for number in range(count)]
        return [ChangesTask(group, sources.keys, spill) for group in groups if group]

    def _items_tasks(self, spill: Spill) -> list[ItemsTask]:
        sources, sizes = self.sources, self.sources.full.sizes()
        usual = self._parallelism
        if self.engine.name == "spark" and self.options.tasks is None:
            usual = spark_task_count(sizes, usual)
        reads = export_tasks(sources.full, sources.columns, sources.options, usual, sizes)
        return [ItemsTask(read, sources.keys, spill, self.staging, sources.result) for read in reads]

    def facts(self, report: ExportFoldReport) -> committer.CommitInfo:
        summary = self.sources.full.summary
        names = ("export_arn", "table_arn", "table_id", "export_time")
        return committer.CommitInfo(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            source={
                **{name: getattr(summary, name) for name in names},
                "increments": [source.summary.export_arn for source, _ in self.sources.changed],
                "state_at": self.sources.reached.isoformat(),
            },
            schema=schema_to_json(self.sources.rows),
            report=report.to_dict(),
            partition_by=self.staging.described_partitions(self.sources.rows),
        )

    def report(
        self, files: Sequence[StagedFile], counts: Sequence[ExportCounts], seconds: float, cpu_seconds: float
    ) -> ExportFoldReport:
        changes, items = counts
        return ExportFoldReport(
            source=self.options.source,
            dest=self.options.dest,
            job_id=self.staging.job_id,
            engine=self.engine.name,
            windows=self.sources.windows,
            state_at=self.sources.reached.isoformat(),
            items=items.items,
            changes=changes.items,
            rows=sum(file.rows for file in files),
            files_read=items.files_read + changes.files_read,
            seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
            json_bytes=items.json_bytes + changes.json_bytes,
            misfits=misfit_reports([items.misfits, changes.misfits]),
            files=file_reports(self.options.dest, files),
            layout=layout_of(each.size_bytes for each in files),
            merged_nulls=merged_nulls([items.misfits, changes.misfits]),
        )


def _neighbours(buckets: int, tasks: int) -> list[range]:
    """Return the buckets of each task: neighbours, which lie side by side in each spilled object."""
    return [range(buckets * number // tasks, buckets * (number + 1) // tasks) for number in range(tasks)]


def _sum(counts: Sequence[ExportCounts]) -> ExportCounts:
    total = ExportCounts()
    for each in counts:
        total.add(each)
    return total
