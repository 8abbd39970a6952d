"""Fold a full export and the increments that follow it into the table's state, in memory or as files."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.budget import LocalBudget
from ddbio.core.exports.fold import fold, missing_windows, plan_fold
from ddbio.core.schema.arrow import normalize_schema
from ddbio.core.schema.file import schema_to_json
from ddbio.engine import cluster_of, open_engine
from ddbio.errors import ExportIncompleteError
from ddbio.files import commit
from ddbio.ops.exports.fold_tasks import (
    BucketsTask,
    ChangesTask,
    ItemsTask,
    fold_buckets,
    pass_items,
    set_changes_aside,
)
from ddbio.ops.exports.read import engine_name, read_source
from ddbio.ops.exports.source import open_export
from ddbio.ops.exports.tasks import ExportTally, Layout, export_tasks, layout_of_export, spark_task_count
from ddbio.ops.job.report import Clock, FileReport, MisfitReport, Report, file_reports, misfit_reports
from ddbio.ops.job.spill import Spill
from ddbio.ops.job.storage import committed_report, open_staging, open_store, protect_sources, require_shared, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.core.exports.fold import Window
    from ddbio.core.staged import StagedFile
    from ddbio.engine import Engine
    from ddbio.ops.exports.source import ExportSource
    from ddbio.ops.job.storage import Staging
    from ddbio.options import ExportFoldOptions, ExportReadOptions, ExportWindowsOptions


@dataclass(frozen=True)
class FoldSources:
    """Hold a full export, the increments that changed something, in the order of their windows, and one set of columns.

    Attributes
    ----------
    options
        Those by which everything is read: with the columns.
    windows
        How many increments follow the full export, those without changes included.
    reached
        The end of the last one.
    places
        The folders of all exports, those that are left out included.
    """

    options: ExportReadOptions
    full: ExportSource
    layout: Layout
    changed: tuple[tuple[ExportSource, Layout], ...]
    windows: int
    reached: datetime
    places: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the table's key attributes; nobody knows them where nothing changed."""
        return (self.changed[0][1].keys or ()) if self.changed else ()


def open_fold(options: ExportReadOptions, increments: Sequence[str], as_of: datetime | None = None) -> FoldSources:
    """Return the exports that together are the table's state, opened and with their columns.

    All of them are read into the columns of the full export, or into the given ones.

    Raises
    ------
    ExportIncompleteError
        If a manifest is not whole, or no export covers some time in between.
    """
    full = open_export(options.source, options)
    opened = [open_export(each, options) for each in increments]
    plan = plan_fold(full.summary, [each.summary for each in opened], as_of)
    layout = layout_of_export(full, options)
    changed = [opened[place] for place in plan.chosen if opened[place].files]
    if changed and not full.files and options.schema is None:
        first = layout_of_export(changed[0], options)
        layout = Layout(normalize_schema(first.items))
    given = dataclasses.replace(options, schema=layout.items)
    pairs = tuple((source, layout_of_export(source, given)) for source in changed)
    for (before, one), (after, other) in itertools.pairwise(pairs):
        if one.keys != other.keys:
            raise ExportIncompleteError(
                f"{after.summary.export_arn} has changes of keys {other.keys}, {before.summary.export_arn} "
                f"of {one.keys}: a table keeps its key; copy the exports again"
            )
    places = tuple(place for each in (full, *opened) for place in each.places)
    return FoldSources(given, full, layout, pairs, len(plan.chosen), plan.reached, places)


def fold_exports(options: ExportReadOptions, increments: Sequence[str]) -> pa.Table:
    """Return the table's state after a full export and the incremental ones that follow it.

    Raises
    ------
    ExportIncompleteError
        If an export is not whole, or no export covers some time in between.
    SchemaError
        If a key does not fit its column.
    """
    sources = open_fold(options, increments)
    items = read_source(sources.full, sources.layout, sources.options)
    if not sources.changed:
        return items
    changes = [read_source(source, layout, sources.options) for source, layout in sources.changed]
    return fold(items, changes, sources.keys)


def windows_to_request(options: ExportWindowsOptions, increments: Sequence[str]) -> list[Window]:
    """Return the windows to request so that increments follow a full export without a gap; read no data.

    Raises
    ------
    ExportIncompleteError
        If a manifest is not whole, or an export is not of the same whole table.
    """
    until = options.until or datetime.now(UTC)
    full = open_export(options.source, options)
    return missing_windows(full.summary, [open_export(each, options).summary for each in increments], until)


# As rows in memory about five times as much, and as much again for each step of folding them.
_BUCKET_BYTES = 8 * 1024 * 1024
_MOST_BUCKETS = 4096


def fold_to_files(
    options: ExportFoldOptions,
    increments: Sequence[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> ExportFoldReport:
    """Write the table's state after a full export and the increments that follow it, as files that appear together.

    Memory is bounded by the number of changes, eight bytes for each, not by their size or that of the table.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a session that has to be started.

    Raises
    ------
    ExportIncompleteError
        If an export is not whole, or no export covers some time in between; the message names the window.
    SchemaError
        If a key does not fit its column.
    """
    clock = Clock()
    sources = open_fold(options, increments, options.as_of)
    if engine_name(options) == "spark":
        require_shared(
            cluster_of(master, conf), {"dest": options.dest, "spill": options.spill}, shared_paths=options.shared_paths
        )
    staging = open_staging(options, options.format)
    protect_sources(staging.store, options.mode, sources.places)
    try:
        # An engine raises only after its tasks have ended.
        with commit.publishing(target_of(options, staging.store), staging.job_id) as complete:
            cpu_planned = clock.cpu_seconds()
            with contextlib.closing(open_engine(engine_name(options), master=master, conf=conf)) as engine:
                job = _Job(options, sources, staging, engine)
                staged, tallies = job.run()
                files = staged or staging.empty(sources.layout.rows)
                report = job.report(files, tallies, clock.seconds(), cpu_planned + engine.cpu_seconds())
                complete(files, job.facts(report))
                cpu_seconds = round(cpu_planned + engine.cpu_seconds(), 3)
    except commit.AlreadyCommittedError as done:
        return committed_report(ExportFoldReport, done)
    return dataclasses.replace(report, seconds=round(clock.seconds(), 3), cpu_seconds=cpu_seconds)


@dataclass(frozen=True)
class ExportFoldReport(Report):
    """State what of a full export and its increments was read, and the state that was written.

    Attributes
    ----------
    source, dest
        The full export and the target as given.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    engine
        ``local`` or ``spark``.
    windows
        Incremental exports that were folded; those the full export has seen already are not.
    state_at
        The time at which the table held these rows.
    items, changes
        Items of the full export, and changes of the increments.
    rows
        Rows in the files: the items at that time.
    files_read
        Data files read and verified; empty ones are not opened.
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of the driver's Python, all workers and the JVM.
    json_bytes
        Bytes of text in the files, inflated.
    misfits
        Values that did not fit their column, in items and in images.
    files
        What was written.
    """

    source: str
    dest: str
    job_id: str
    engine: str
    windows: int
    state_at: str
    items: int
    changes: int
    rows: int
    files_read: int
    seconds: float
    cpu_seconds: float
    json_bytes: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()


@dataclass(frozen=True)
class _Job:
    options: ExportFoldOptions
    sources: FoldSources
    staging: Staging
    engine: Engine

    def run(self) -> tuple[tuple[StagedFile, ...], list[ExportTally]]:
        """Return the staged files, and what was read of the increments and of the full export."""
        sources, engine, budget = self.sources, self.engine, LocalBudget(None)
        with self._spill() as spill:
            changes = engine.run(set_changes_aside, self._changes_tasks(spill), budget)
            items_tasks = self._items_tasks(spill)
            passed = engine.run(pass_items, items_tasks, budget)
            shares = [tuple(range(spill.buckets))[share :: self._parallelism] for share in range(self._parallelism)]
            tasks = [
                BucketsTask(len(items_tasks) + number, share, sources.keys, sources.layout.items, spill, self.staging)
                for number, share in enumerate(shares)
                if share and sources.changed
            ]
            folded = engine.run(fold_buckets, tasks, budget)
        staged = [file for result in passed for file in result.staged] + [file for files in folded for file in files]
        return tuple(staged), [_sum(changes), _sum([result.tally for result in passed])]

    @property
    def _parallelism(self) -> int:
        return self.options.tasks or self.engine.parallelism

    @contextlib.contextmanager
    def _spill(self) -> Iterator[Spill]:
        size = sum(sum(source.sizes().values()) for source, _ in self.sources.changed)
        buckets = min(_MOST_BUCKETS, max(self._parallelism, -(-size // _BUCKET_BYTES)))
        options, job_id = self.options, self.staging.job_id
        with tempfile.TemporaryDirectory(prefix="ddbio-") as folder:
            if options.spill is not None:
                place = f"{options.spill.rstrip('/')}/{job_id}"
            elif self.engine.name == "spark":
                # Where a job's own staging lies, which goes with the job.
                place = f"{options.dest.rstrip('/')}/_ddbio/staging/{job_id}/spill"
            else:
                place = folder
            spill = Spill(open_store(place, options), buckets)
            try:
                yield spill
            finally:
                spill.clear(job_id)

    def _changes_tasks(self, spill: Spill) -> list[ChangesTask]:
        sources, count = self.sources, self._parallelism
        given = sources.options
        reads = [
            [(window, task) for task in export_tasks(source, layout, given, count)]
            for window, (source, layout) in enumerate(sources.changed)
        ]
        shares = [tuple(window[share] for window in reads if share < len(window)) for share in range(count)]
        return [ChangesTask(share, sources.keys, spill) for share in shares if share]

    def _items_tasks(self, spill: Spill) -> list[ItemsTask]:
        sources, sizes = self.sources, self.sources.full.sizes()
        usual = self._parallelism
        if self.engine.name == "spark" and self.options.tasks is None:
            usual = spark_task_count(sizes, usual)
        reads = export_tasks(sources.full, sources.layout, sources.options, usual, sizes)
        return [ItemsTask(read, sources.keys, spill, self.staging) for read in reads]

    def facts(self, report: ExportFoldReport) -> commit.CommitInfo:
        summary = self.sources.full.summary
        names = ("export_arn", "table_arn", "table_id", "export_time")
        return commit.CommitInfo(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            source={
                **{name: getattr(summary, name) for name in names},
                "increments": [source.summary.export_arn for source, _ in self.sources.changed],
                "state_at": self.sources.reached.isoformat(),
            },
            schema=schema_to_json(normalize_schema(self.sources.layout.rows)),
            report=report.to_dict(),
        )

    def report(
        self, files: Sequence[StagedFile], tallies: Sequence[ExportTally], seconds: float, cpu_seconds: float
    ) -> ExportFoldReport:
        changes, items = tallies
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
        )


def _sum(tallies: Sequence[ExportTally]) -> ExportTally:
    whole = ExportTally()
    for tally in tallies:
        whole.add(tally)
    return whole
