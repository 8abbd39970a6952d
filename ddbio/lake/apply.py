"""Merge of changes into a lake table, one commit per batch of new changes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ddbio.commit.protocol import DEAD_AFTER, abort_old
from ddbio.errors import DdbioError, NotFoundError, OptionError
from ddbio.formats.rolling_writer import FileOptions
from ddbio.jobs.engine import cluster_of, open_engine
from ddbio.jobs.providers import provider
from ddbio.jobs.report import Clock, JobReport, Report
from ddbio.jobs.stores import new_job_id, require_shared
from ddbio.lake.bucket_merge import BucketMerge, Outcome
from ddbio.lake.change_source import AppliedTo
from ddbio.lake.changes import open_changes, row_changes
from ddbio.lake.merging import BucketMerger, LocalMerging, RowMaker, SpreadMerging
from ddbio.lake.registering import check_lake_catalog, register_lake
from ddbio.lake_formats.bucket_files import STATISTICS_COLUMNS, BucketFiles
from ddbio.lake_formats.registry import TABLE_FORMATS, open_lake_table, require_writable
from ddbio.lake_formats.rows import item_columns, new_shape, shape_of
from ddbio.lake_formats.table import (
    BASE,
    BUCKETS,
    EPOCHS,
    EXPORTED_TO,
    FLOOR,
    KEYS,
    WRITER,
    Commit,
    ConflictError,
    retry_conflicts,
)
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.lake.change_source import ChangePart, ChangeSource
    from ddbio.lake.merging import Merged, Merging
    from ddbio.lake.options import ApplyOptions
    from ddbio.lake_formats.rows import LakeShape
    from ddbio.lake_formats.table import LakeState, LakeTable

_LOG = logging.getLogger("ddbio.apply")

_STATE_KIND = "apply"


@dataclass(frozen=True, kw_only=True)
class ApplyReport(JobReport):
    """Result of a run. Each change inserted, updated or deleted an item, or was stale.

    Attributes
    ----------
    changes
        Changes of the source that were new to the table.
    inserted, updated, deleted
        Number of inserted, updated and deleted items.
    stale
        Changes without effect, because the table or the run already had a newer change of the item.
    version
        Version of the table at the end.
    """

    changes: int
    inserted: int
    updated: int
    deleted: int
    stale: int
    version: int


@dataclass(frozen=True)
class ApplyPlan(Report):
    """Expected effect of a run.

    Attributes
    ----------
    log, table, format
        The source of changes, the table, and its format.
    changes, inserted, updated, deleted, stale
        As in the report.
    new_columns
        Columns that the run would add to the table.
    buckets
        Number of buckets with changes.
    read_files, read_bytes
        Files in these buckets; only their columns of keys and versions are read.
    rewritten_files, rewritten_bytes
        Files with changed rows, which are read and rewritten completely.
    """

    log: str
    table: str
    format: str
    changes: int
    inserted: int
    updated: int
    deleted: int
    stale: int
    new_columns: tuple[str, ...]
    buckets: int
    read_files: int
    read_bytes: int
    rewritten_files: int
    rewritten_bytes: int


@dataclass(frozen=True)
class Batch:
    """Changes that are merged together.

    Attributes
    ----------
    start, end
        The position of each input of the source before and after the batch.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]
    parts: Sequence[ChangePart]


@dataclass
class Applier:
    """Merge of new changes of a source into a table; errors are those of :func:`apply_log`.

    Attributes
    ----------
    merging
        The engine that reads and merges the changes.
    changes, outcome
        The changes that this run has applied, and their effect.
    """

    source: ChangeSource
    table: LakeTable
    options: ApplyOptions
    merging: Merging = field(default_factory=LocalMerging)
    changes: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    _done: dict[str, int] = field(default_factory=dict)
    _is_checked: bool = False

    def run(self) -> int:
        """Apply all batches that the source has now, and return the version of the table."""
        written = self.source.written()
        version = None
        while version is None:
            version = retry_conflicts(self.table.store, lambda: self._apply_next(written))
        return version

    def _apply_next(self, written: Mapping[str, int]) -> int | None:
        """Apply the next batch and return None; return the version of the table if there is none."""
        state, batch = self._next(self.opened(), written)
        if batch is None:
            return state.version
        if not self._is_checked:
            require_writable(self.table.store)
            self._is_checked = True
        self._merge(state, batch)
        return None

    def opened(self) -> LakeState:
        """Return the state of the table, which is created if it does not exist."""
        keys = self.source.keys()
        state = self.table.load()
        if state is None:
            if not keys:
                raise OptionError(
                    f"there is no table at {self.table.store.uri} yet, and its key attributes are unknown: set the "
                    "option key to their names"
                )
            shape = new_shape(item_columns(self.source.columns()), keys, self.options.buckets)
            properties = {
                KEYS: json.dumps(keys),
                BUCKETS: str(shape.buckets),
                EPOCHS: json.dumps(self.source.lineages()),
                WRITER: "local",
            }
            return self.table.create(shape.schema, properties)
        check_ours(self.table, state)
        stored_keys = tuple(json.loads(state.properties[KEYS]))
        if keys and stored_keys != keys:
            raise OptionError(
                f"the table {self.table.store.uri} has the key {stored_keys}, but {self.source.uri} has the key {keys}"
            )
        return state

    def shape(self, state: LakeState) -> LakeShape:
        """Return the columns, keys and buckets of the table."""
        return shape_of(state.schema, json.loads(state.properties[KEYS]), int(state.properties[BUCKETS]))

    def plan(self, state: LakeState) -> ApplyPlan:
        """Return the effect of applying all new changes of the source as one batch."""
        written = self.source.written()
        start = self._check_source(state, written)
        shape, merging = self.shape(state), LocalMerging()
        parts = self.source.parts(start, written) if start != written else []
        grown = merging.grown(shape, self.source.columns(), parts)
        changes, rows = merging.rows(self._maker(state, grown))
        files = BucketFiles(self.table.store, grown.schema, "plan", FileOptions())
        outcome, read, rewritten, buckets = Outcome(stale=changes), list[Any](), list[Any](), 0
        for _, bucket_files, chosen in BucketMerger(files, tuple(state.files), _floor(state)).of_bucket(rows):
            merge = BucketMerge(chosen, _floor(state))
            rewritten += [file for file, _ in merge.losing(files, bucket_files)]
            read += bucket_files
            outcome += merge.outcome() + Outcome(stale=-chosen.num_rows)
            buckets += 1
        return ApplyPlan(
            log=self.source.uri,
            table=self.table.store.uri,
            format=self.options.format,
            changes=changes,
            inserted=outcome.inserted,
            updated=outcome.updated,
            deleted=outcome.deleted,
            stale=outcome.stale,
            new_columns=tuple(name for name in grown.attributes.names if name not in shape.attributes.names),
            buckets=buckets,
            read_files=len(read),
            read_bytes=sum(file.size_bytes for file in read),
            rewritten_files=len(rewritten),
            rewritten_bytes=sum(file.size_bytes for file in rewritten),
        )

    def _check_source(self, state: LakeState, written: Mapping[str, int]) -> dict[str, int]:
        """Return the applied position of each input. Raise if the table and the source do not match."""
        start = self._positions(state, written)
        if start != written:
            self.source.check_table(
                AppliedTo(
                    uri=self.table.store.uri,
                    keys=tuple(json.loads(state.properties[KEYS])),
                    epochs=_epochs(state),
                    base_us=self.table.position(state, BASE),
                    reached_us=self._position(state, EXPORTED_TO),
                )
            )
        return start

    def _next(self, state: LakeState, written: Mapping[str, int]) -> tuple[LakeState, Batch | None]:
        """Return the next batch, and the state of the table with the columns and epochs that the batch needs."""
        start = self._check_source(state, written)
        if start == written:
            return state, None
        epochs = _epochs(state)
        if new_epochs := [lineage for lineage in self.source.lineages() if lineage not in epochs]:
            self.table.alter(state, (), {EPOCHS: json.dumps([*epochs, *new_epochs])})
            return self._next(self.opened(), written)
        end = self.source.limit(start, written, self.options.max_records_per_batch)
        shape, parts = self.shape(state), self.source.parts(start, end)
        grown = self.merging.grown(shape, self.source.columns(), parts)
        if new := [grown.attributes.field(index) for index in range(len(shape.attributes), len(grown.attributes))]:
            _LOG.info("new columns of %s: %s", self.table.store.uri, ", ".join(column.name for column in new))
            self.table.alter(state, new, {})
            # Other commits may have followed, so the state is loaded again.
            return self._next(self.opened(), written)
        return state, Batch(start, end, parts)

    def _maker(self, state: LakeState, shape: LakeShape) -> RowMaker:
        epochs = _epochs(state)
        # A plan changes nothing, so new streams follow the known ones here.
        epochs += [lineage for lineage in self.source.lineages() if lineage not in epochs]
        return RowMaker(shape, tuple(epochs), self.table.position(state, BASE) - self.source.slack_us)

    def _merge(self, state: LakeState, batch: Batch) -> None:
        job_id = new_job_id()
        options = FileOptions(
            compression=self.options.compression,
            target_file_bytes=int(self.options.target_file_bytes),
            column_statistics=STATISTICS_COLUMNS,
        )
        files = BucketFiles(self.table.store, self.table.file_schema(state), job_id, options)
        merger = BucketMerger(files, tuple(state.files), _floor(state))
        try:
            merged = self.merging.merge(batch.parts, self._maker(state, self.shape(state)), merger)
            if merged.outcome.changes_nothing:
                # A version without changes would only make the history longer.
                self._note(state, batch)
            else:
                self._commit(state, batch, merged)
        finally:
            # Delete incomplete uploads, also those of a step that failed.
            with contextlib.suppress(DdbioError):
                self.table.store.abort(job_id)
        self._done = dict(batch.end)
        self.changes += merged.changes
        self.outcome += merged.outcome

    def _commit(self, state: LakeState, batch: Batch, merged: Merged) -> None:
        added = [staged for bucket in merged.buckets for staged in bucket.added]
        for staged in added:
            self.table.store.complete(staged)
        outcome = merged.outcome
        commit = Commit(
            added=added,
            removed=[file for bucket in merged.buckets for file in bucket.removed],
            positions=self._reached(state, batch),
            metadata={
                "ddbio": json.dumps(
                    {"log": self.source.uri, "changes": merged.changes, "inserted": outcome.inserted}
                    | {"updated": outcome.updated, "deleted": outcome.deleted, "stale": outcome.stale}
                )
            },
        )
        try:
            version = self.table.commit(state, commit)
        except ConflictError:
            # No other process can have used these names.
            self.table.store.delete([staged.path for staged in added])
            raise
        _LOG.info("%s: version %d, %s", self.table.store.uri, version, outcome)

    def _positions(self, state: LakeState, written: Mapping[str, int]) -> dict[str, int]:
        """Return the applied position of each input, from the commits and from the notes next to the table."""
        positions = {}
        for name, last in written.items():
            stored = self.source.position(name)
            applied = self._position(state, stored) if stored else 0
            positions[name] = self.source.resumed(name, max(applied, self._done.get(name, 0)), last)
        return positions

    def _position(self, state: LakeState, name: str) -> int:
        full_name = self._position_name(state, name)
        noted = int((self._noted().read(_record_name(full_name)) or {"batch": 0})["batch"])
        return max(self.table.position(state, full_name), noted)

    def _reached(self, state: LakeState, batch: Batch) -> dict[str, int]:
        """Return the positions after a batch, by their names in the table."""
        inputs = {
            self.source.position(name): number for name, number in batch.end.items() if number != batch.start[name]
        }
        positions = {**inputs, **self.source.reached(batch.start, batch.end)}
        return {self._position_name(state, name): number for name, number in positions.items() if name}

    def _note(self, state: LakeState, batch: Batch) -> None:
        for name, number in self._reached(state, batch).items():
            self._noted().put(_record_name(name), {"batch": number})

    def _noted(self) -> JobState:
        return JobState(self.table.store, "lake", _STATE_KIND)

    def _position_name(self, state: LakeState, name: str) -> str:
        # The positions are counted from the start again after a new base is loaded.
        return f"ddbio/{self.table.position(state, BASE)}/{name}"


def apply(log: Any, options: ApplyOptions) -> ApplyReport:
    """Merge the new changes of a log into a lake table; the newest state of an item wins.

    Parameters
    ----------
    log
        Folder of a log of :func:`capture`, or of an incremental export. Or changes as rows with the columns of a log:
        an Arrow table, or a DataFrame of polars, pandas or Spark.

    Raises
    ------
    NotFoundError
        If there is no such log, or it has no changes yet.
    OptionError
        If changes cannot be applied to the table, or it has another key.
    SchemaError
        If the rows are not changes.
    ExportIncompleteError
        If an export is damaged, or there is a gap between the table's changes and the export.
    TargetError
        If other writers repeatedly win the race for a commit, or the log lacks batches that were applied.
    """
    if isinstance(log, str | os.PathLike):
        return apply_log(options)
    if hasattr(log, "sparkSession"):
        report: ApplyReport = provider("changes in DataFrames").apply_frame(log, options)
        return report
    return apply_rows(_rows_of(log), options)


def _rows_of(log: Any) -> pa.Table:
    """Return rows in memory as an Arrow table.

    Raises
    ------
    OptionError
        If Arrow cannot read them.
    """
    if isinstance(log, pa.Table):
        return log
    library = type(log).__module__.partition(".")[0]
    if library == "pandas":
        return pa.Table.from_pandas(log, preserve_index=False)
    if library == "polars":
        # Its Arrow stream has string views, which older versions of Arrow cannot cast.
        table: pa.Table = log.to_arrow()
        return table
    if hasattr(log, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(log).read_all()
    raise OptionError(f"log is a {type(log).__name__}: give a folder, an Arrow table, or a DataFrame")


def apply_log(
    options: ApplyOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> ApplyReport:
    """Merge the new changes of a log or an export into a lake table, which is created if it does not exist.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.

    Raises
    ------
    NotFoundError
        If there is no such log, or it has no changes yet.
    OptionError
        If changes cannot be applied to the table, or it has another key.
    SchemaError
        If a column of the table has a type that the changes cannot be written to.
    ExportIncompleteError
        If an export is damaged, or there is a gap between the table's changes and the export.
    TargetError
        If other writers repeatedly win the race for a commit, or the log lacks batches that were applied.
    """
    if options.engine == "local":
        return apply_source(open_changes(options), options)
    folders = {"table": options.table, "source": options.source}
    require_shared(cluster_of(master, conf), folders, shared_paths=options.shared_paths)
    clock = Clock()
    if (writer := TABLE_FORMATS[options.format].spark_writer()) is not None:
        written: ApplyReport = writer.apply_changes(options, clock, master, conf or {})
        return written
    with closing(open_engine("spark", master=master, conf=conf)) as engine:
        report = apply_source(open_changes(options), options, SpreadMerging(cast("ShufflingEngine", engine)), clock)
        return dataclasses.replace(report, cpu_seconds=round(engine.cpu_seconds(), 3))


def apply_rows(rows: pa.Table, options: ApplyOptions) -> ApplyReport:
    """Merge changes in rows into a lake table.

    Raises
    ------
    SchemaError
        If the rows are not changes.
    DdbioError
        As :func:`apply_log`.
    """
    source = row_changes(rows.schema, options)
    source.rows = rows
    return apply_source(source, options)


def apply_source(
    source: ChangeSource,
    options: ApplyOptions,
    merging: Merging | None = None,
    clock: Clock | None = None,
    table: LakeTable | None = None,
) -> ApplyReport:
    """Merge the changes of a source into a lake table; errors are those of :func:`apply_log`."""
    clock = clock or Clock()
    check_lake_catalog(options)
    table = table or open_lake_table(options.table, options.format, options)
    job = Applier(source, table, options, merging or LocalMerging())
    # Delete staged files of killed runs; without the permission to list them, the run continues.
    with contextlib.suppress(DdbioError):
        abort_old(table.store, datetime.now(UTC) - DEAD_AFTER)
    version = job.run()
    if options.catalog is not None:
        register_lake(options, table, job.opened())
    return ApplyReport(
        changes=job.changes,
        inserted=job.outcome.inserted,
        updated=job.outcome.updated,
        deleted=job.outcome.deleted,
        stale=job.outcome.stale,
        version=version,
        **clock.times(),
    )


def plan_apply(options: ApplyOptions, source: ChangeSource | None = None) -> ApplyPlan:
    """Return the expected effect of :func:`apply`; nothing is written.

    Raises
    ------
    NotFoundError
        If there is no such log, or no such table yet.
    """
    LAKE_FORMATS[options.format].check("dry_run")
    changes, table = source or open_changes(options), open_lake_table(options.table, options.format, options)
    job = Applier(changes, table, options)
    state = table.load()
    if state is None:
        raise NotFoundError(f"there is no {options.format} table at {options.table} yet: all changes would be inserted")
    check_ours(table, state)
    return job.plan(state)


def check_ours(table: LakeTable, state: LakeState) -> None:
    """Raise if changes cannot be merged into the table, because of its columns or of its kind of writer.

    Raises
    ------
    OptionError
        The message explains how to create a table for changes.
    """
    if KEYS not in state.properties or BUCKETS not in state.properties:
        raise OptionError(
            f"{table.store.uri} is a table that ddbio did not create: apply to a new folder, or load the base with "
            "ddbio scan --format delta"
        )
    writer = state.properties.get(WRITER, "local")
    if writer != "local" and table.store.uri.startswith("s3://"):
        raise OptionError(
            f"{table.store.uri} is written by {writer}: on S3 two kinds of writers do not see each other's commits; "
            f"use only {writer} for this table"
        )


def _epochs(state: LakeState) -> list[str]:
    epochs: list[str] = json.loads(state.properties.get(EPOCHS, "[]"))
    return epochs


def _floor(state: LakeState) -> int | None:
    floor = state.properties.get(FLOOR)
    return None if floor is None else int(floor)


def _record_name(name: str) -> str:
    return name.replace("/", ".")
