"""Fold of a full export and the following increments into the table's state, in memory or as files."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import ExportIncompleteError, OptionError
from ddbio.export.fold_rows import changed_keys, fold, missing_windows, plan_fold
from ddbio.export.read import ExportFilesJob, ExportFilesPlan, plan_files, read_source
from ddbio.export.spill import Spill, SpillReader, SpillWriter, claimed_folder
from ddbio.export.tasks import (
    ExportColumns,
    ExportCounts,
    ExportFilesResult,
    ExportStream,
    export_columns,
    export_tasks,
    spark_task_count,
)
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.arrays import bool_array, take_rows
from ddbio.items.key_hashes import HashSet
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.times import stored_schema
from ddbio.items.time_columns import TimeColumns
from ddbio.jobs.report import RowsReport
from ddbio.jobs.stores import open_store
from ddbio.sources.export_source import open_export
from ddbio.storage.local_store import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddbio.budget import Budget
    from ddbio.export.fold_rows import Window
    from ddbio.export.options import ExportFoldOptions, ExportReadOptions, ExportWindowsOptions
    from ddbio.export.tasks import ExportTask
    from ddbio.items.rescue import OnMisfit
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.staging import Staging
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile

_CHANGES, _ITEMS = "changes", "items"


@dataclass(frozen=True)
class ResultColumns:
    """Columns of the result, which may be times, and the handling of misfits."""

    rows: pa.Schema
    on_misfit: OnMisfit
    drop: tuple[str, ...]

    def convert(self, batches: Iterable[pa.RecordBatch], log: MisfitLog) -> Iterator[pa.RecordBatch]:
        """Yield batches with these columns, from batches that have times as text or numbers."""
        times = TimeColumns(self.rows, self.drop)
        for batch in batches:
            yield times.convert(batch, log) if times else batch
            if self.on_misfit == "fail":
                log.require_empty()


@dataclass(frozen=True)
class ChangesTask:
    """Files of increments that one task spills, each with the number of its window."""

    reads: tuple[tuple[int, ExportTask], ...]
    keys: tuple[str, ...]
    spill: Spill


@dataclass(frozen=True)
class ItemsTask:
    """Files of the full export that one task reads."""

    read: ExportTask
    keys: tuple[str, ...]
    spill: Spill
    staging: Staging
    result: ResultColumns


@dataclass(frozen=True)
class BucketsTask:
    """Buckets that one task folds."""

    number: int
    buckets: range
    keys: tuple[str, ...]
    schema: pa.Schema
    spill: Spill
    staging: Staging
    result: ResultColumns


def spill_changes(task: ChangesTask, budget: Budget) -> ExportCounts:
    """Spill the changes of one task, and the hashes of their keys."""
    total = ExportCounts()
    for window, read in task.reads:
        # Rows are read back in the order of these names, by window.
        name = f"{window:05d}-{read.number:05d}"
        stream, writer, hash_arrays = ExportStream(read, budget), SpillWriter(task.spill, _CHANGES, name), list[Any]()
        for batch in stream:
            hashes = key_hashes(changed_keys(batch), task.keys)
            writer.write(batch.drop_columns(["old_image"]), hashes)
            hash_arrays.append(hashes)
        writer.flush()
        task.spill.put_hashes(name, np.concatenate([np.zeros(0, np.uint64), *hash_arrays]))
        total.add(stream.counts)
    return total


def split_items(task: ItemsTask, budget: Budget) -> ExportFilesResult:
    """Stage the items without changes, and spill the others; after an error, no files stay staged."""
    stream, changed = ExportStream(task.read, budget), HashSet(task.spill.hashes())
    writer = SpillWriter(task.spill, _ITEMS, f"{task.read.number:05d}")

    def unchanged() -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if not len(changed):
                yield batch
                continue
            hashes = key_hashes(batch, task.keys)
            hit = changed.holds(hashes)
            if not hit.any():
                yield batch
                continue
            writer.write(take_rows(batch, np.flatnonzero(hit)), hashes[hit])
            yield batch.filter(bool_array(~hit))

    log = MisfitLog()
    staged = task.staging.write(task.result.convert(unchanged(), log), task.result.rows, task.read.number, log)
    writer.flush()
    stream.counts.misfits.merge(log)
    return ExportFilesResult(staged, stream.counts)


def fold_buckets(task: BucketsTask, budget: Budget) -> ExportFilesResult:
    """Fold the buckets of one task and stage the result; after an error, no files stay staged.

    The counts contain only misfits, because the input is counted already.
    """

    def folded() -> Iterator[pa.RecordBatch]:
        items_of, changes_of = (SpillReader(task.spill, kind, task.buckets) for kind in (_ITEMS, _CHANGES))
        for bucket in task.buckets:
            # Spilled rows are counted already; this call raises if the job is stopping.
            budget.settle(budget.acquire(0), 0)
            items, changes = items_of.tables(bucket), changes_of.tables(bucket)
            before = pa.concat_tables(items) if items else task.schema.empty_table()
            yield from fold(before, changes, task.keys).to_batches()

    counts = ExportCounts()
    rows = task.result.convert(folded(), counts.misfits)
    return ExportFilesResult(task.staging.write(rows, task.result.rows, task.number, counts.misfits), counts)


# Compressed text; rows in memory are about five times as large, and each step of the fold needs the same again.
_BUCKET_BYTES = 8 * 1024 * 1024
_MAX_BUCKETS = 4096


@dataclass(frozen=True)
class FoldSources:
    """A full export and the increments to fold into it, with their common columns.

    Attributes
    ----------
    options
        The options of all reads, with the columns as schema.
    rows
        The columns of the result, which may be times.
    windows
        Number of increments after the full export, including those without changes.
    reached
        The end of the last increment.
    folders
        The folders of all given exports, including those that are not folded.
    """

    options: ExportReadOptions
    full: ExportSource
    columns: ExportColumns
    rows: pa.Schema
    changed: tuple[tuple[ExportSource, ExportColumns], ...]
    windows: int
    reached: datetime
    folders: tuple[str, ...]

    @property
    def result(self) -> ResultColumns:
        """Return the columns and the handling of misfits of the result."""
        return ResultColumns(self.rows, self.options.on_misfit, self.options.drop or ())

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the table's key attributes; empty if there are no changes."""
        return (self.changed[0][1].keys or ()) if self.changed else ()


@dataclass(frozen=True, kw_only=True)
class ExportFoldReport(RowsReport):
    """Result of a fold: the counts of the full export and its increments, and the state that was written.

    Misfits and merged NULLs are those of items and of images.

    Attributes
    ----------
    source
        The full export, as given.
    windows
        Number of folded incremental exports, without those that end before the full export.
    state_at
        The time of the state of the rows.
    items, changes
        Items of the full export, and changes of the increments.
    files_read
        Data files read and verified; empty files are not opened.
    json_bytes
        Bytes of text in the files, uncompressed.
    """

    source: str
    windows: int
    state_at: str
    items: int
    changes: int
    files_read: int
    json_bytes: int


@dataclass(frozen=True, kw_only=True)
class ExportFoldPlan(ExportFilesPlan):
    """Plan of a fold, with verified manifests.

    Attributes
    ----------
    windows
        Number of incremental exports to fold.
    state_at
        The time of the state of the rows.
    changes
        Changes of the increments, according to their manifests.
    """

    windows: int
    state_at: str
    changes: int


def open_fold(options: ExportReadOptions, increments: Sequence[str], as_of: datetime | None = None) -> FoldSources:
    """Open the exports that together contain the state of the table.

    All of them are read into the given columns, or into the columns of the full export.

    Raises
    ------
    ExportIncompleteError
        If a manifest is damaged, or there is a gap between the windows.
    OptionError
        If the options select items or attributes.
    """
    if options.where is not None or options.columns is not None:
        raise OptionError("a fold needs all items and attributes: omit where and columns, and select from its result")
    full = open_export(options.source, options)
    opened = [open_export(folder, options) for folder in increments]
    plan = plan_fold(full.summary, [export.summary for export in opened], as_of)
    columns = export_columns(full, options)
    # Times are compared and spilled with the types of the items.
    rules = ColumnRules.of(options)
    options = dataclasses.replace(options, timestamps=None, types=None, numbers="exact")
    changed = [opened[index] for index in plan.chosen if opened[index].files]
    if changed and not full.files and options.schema is None:
        first = export_columns(changed[0], options)
        columns = ExportColumns(rules.apply(normalize_schema(first.items)))
    rows, columns = normalize_schema(columns.items), ExportColumns(stored_schema(columns.items))
    read_options = dataclasses.replace(options, schema=columns.items)
    pairs = tuple((source, export_columns(source, read_options)) for source in changed)
    for (before, one), (after, other) in itertools.pairwise(pairs):
        if one.keys != other.keys:
            raise ExportIncompleteError(
                f"{after.summary.export_arn} has changes of keys {other.keys}, but {before.summary.export_arn} "
                f"of {one.keys}: a table keeps its key; copy the exports again"
            )
    folders = tuple(folder for export in (full, *opened) for folder in export.folders)
    return FoldSources(read_options, full, columns, rows, pairs, len(plan.chosen), plan.reached, folders)


def fold_exports(options: ExportReadOptions, increments: Sequence[str]) -> pa.Table:
    """Return a table's state after a full export and the following incremental exports, in memory.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; there must be no gap between their windows.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows.
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
    """Return the windows of the incremental exports that are missing after a full export.

    Nothing is requested: pass ``start`` and ``end`` of each to :func:`start_export` as ``from_time`` and ``to_time``.

    Parameters
    ----------
    increments
        Existing incremental exports.

    Raises
    ------
    ExportIncompleteError
        If a manifest is damaged, or an export is not an unfiltered export of the same table.
    """
    until = options.until or datetime.now(UTC)
    full = open_export(options.source, options)
    return missing_windows(full.summary, [open_export(folder, options).summary for folder in increments], until)


def plan_of(options: ExportFoldOptions, increments: Sequence[str]) -> ExportFoldPlan:
    """Return the plan of :func:`fold_exports_to_files`, after verifying all manifests; nothing is written.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; there must be no gap between their windows.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows; the message names the missing window.
    LimitError
        If the plan exceeds a limit.
    """
    return _plan(options, open_fold(options, increments, options.as_of), estimates_files=True)


def _plan(options: ExportFoldOptions, sources: FoldSources, *, estimates_files: bool) -> ExportFoldPlan:
    sizes = [sources.full.sizes(), *(source.sizes() for source, _ in sources.changed)]
    columns = ExportColumns(sources.rows)
    return ExportFoldPlan(
        windows=sources.windows,
        state_at=sources.reached.isoformat(),
        changes=sum(source.summary.items for source, _ in sources.changed),
        **plan_files(options, sources.full, columns, sizes, estimates_files=estimates_files),
    )


def fold_to_files(
    options: ExportFoldOptions,
    increments: Sequence[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> ExportFoldReport:
    """Write a table's state after a full export and the following increments, as files that appear together.

    Parameters
    ----------
    increments
        Incremental exports of the same table, in any order; there must be no gap between their windows.
    master, conf
        Spark master and configuration for a new session.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows; the message names the missing window.
    SchemaError
        If a key does not fit its column.
    """
    return _FoldJob(options, increments, master=master, conf=conf).run()


class _FoldJob(ExportFilesJob[ExportFoldReport]):
    report_class = ExportFoldReport
    options: ExportFoldOptions

    def __init__(self, options: ExportFoldOptions, increments: Sequence[str], **run: Any) -> None:
        super().__init__(options, **run)
        self.paths["spill"] = options.spill
        self._increments = increments

    def open(self) -> None:
        options = self.options
        self.sources = open_fold(options, self._increments, options.as_of)
        self.title = f"fold {options.source} to {options.dest}"
        self.plan = _plan(options, self.sources, estimates_files=options.partition_by is not None)
        self.extent = f"{self.sources.windows} windows"
        self.columns, self.keys = self.sources.rows, self.sources.keys
        self.table_arn = self.sources.full.summary.table_arn
        self.open_output(self.sources.folders, lambda: self.sources.reached)
        self.budget = LocalBudget(None, job="fold of the exports")

    def work(self, engine: Engine) -> list[ExportFilesResult]:
        self.changes, results = Fold(self.options, self.sources, self.output.staging, engine).run(self.budget)
        self.other_misfits = [self.changes.misfits]
        return results

    def counts(self, results: Sequence[ExportFilesResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        items, changes = ExportCounts.total(result.counts for result in results), self.changes
        return {
            **super().counts(results, staged),
            "items": items.items,
            "changes": changes.items,
            "files_read": items.files_read + changes.files_read,
            "json_bytes": items.json_bytes + changes.json_bytes,
        }

    def source(self) -> dict[str, Any]:
        names = ("export_arn", "table_arn", "table_id", "export_time")
        return {
            **{name: getattr(self.sources.full.summary, name) for name in names},
            "increments": [source.summary.export_arn for source, _ in self.sources.changed],
            "state_at": self.sources.reached.isoformat(),
        }


@dataclass(frozen=True)
class Fold:
    """Fold of opened exports on an engine, which stages the rows."""

    options: ExportFoldOptions
    sources: FoldSources
    staging: Staging
    engine: Engine

    def run(self, budget: LocalBudget) -> tuple[ExportCounts, list[ExportFilesResult]]:
        """Return the counts of the increments, and the results of the tasks that staged rows."""
        sources, engine = self.sources, self.engine
        with self._spill() as spill:
            changes = engine.run(spill_changes, self._changes_tasks(spill), budget)
            items_tasks = self._items_tasks(spill)
            passed = engine.run(split_items, items_tasks, budget)
            groups = _bucket_ranges(spill.buckets, self._parallelism)
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
        return ExportCounts.total(changes), [*passed, *folded]

    @property
    def _parallelism(self) -> int:
        return self.options.tasks or self.engine.parallelism

    @contextlib.contextmanager
    def _spill(self) -> Iterator[Spill]:
        size = sum(sum(source.sizes().values()) for source, _ in self.sources.changed)
        buckets = min(_MAX_BUCKETS, max(self._parallelism, -(-size // _BUCKET_BYTES)))
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
                folder = f"{options.spill.rstrip('/')}/{job_id}"
            elif self.engine.name == "spark":
                # In the staging folder of the job, which is deleted with the job.
                folder = f"{options.dest.rstrip('/')}/_ddbio/staging/{job_id}/spill"
            else:
                folder = f"{stack.enter_context(temporary_folder())}/rows"
            yield open_store(folder, options, is_temporary=True)

    def _changes_tasks(self, spill: Spill) -> list[ChangesTask]:
        sources, count = self.sources, self._parallelism
        read_options = sources.options
        reads = [
            [(window, task) for task in export_tasks(source, columns, read_options, count)]
            for window, (source, columns) in enumerate(sources.changed)
        ]
        groups = [tuple(window[number] for window in reads if number < len(window)) for number in range(count)]
        return [ChangesTask(group, sources.keys, spill) for group in groups if group]

    def _items_tasks(self, spill: Spill) -> list[ItemsTask]:
        sources, sizes = self.sources, self.sources.full.sizes()
        count = self._parallelism
        if self.engine.name == "spark" and self.options.tasks is None:
            count = spark_task_count(sizes, count)
        reads = export_tasks(sources.full, sources.columns, sources.options, count, sizes)
        return [ItemsTask(read, sources.keys, spill, self.staging, sources.result) for read in reads]


def _bucket_ranges(buckets: int, tasks: int) -> list[range]:
    """Return the buckets of each task, which are adjacent in each spilled object."""
    return [range(buckets * number // tasks, buckets * (number + 1) // tasks) for number in range(tasks)]
