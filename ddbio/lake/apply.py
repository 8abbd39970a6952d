"""Apply changes to a lake table: merge what a source has that is new, in one commit after the other."""

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
from ddbio.lake.changes import given_changes, open_changes
from ddbio.lake.merging import BucketMerger, LocalMerging, RowMaker, SpreadMerging
from ddbio.lake.registering import check_lake_catalog, register_lake
from ddbio.lake_formats.bucket_files import NOTED, BucketFiles
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
    """What a run did: each change was inserted, updated or deleted an item, or was stale.

    Attributes
    ----------
    changes
        Changes of the source that were new to the table.
    inserted, updated, deleted
        Items that came, changed and went.
    stale
        Changes that changed nothing, since a newer one of the item was there, in the table or in the run itself.
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
    """What a run would do.

    Attributes
    ----------
    log, table, format
        What is applied to what.
    changes, inserted, updated, deleted, stale
        As in the report.
    new_columns
        Columns that the table would get.
    buckets
        Buckets with changes.
    read_files, read_bytes
        Files in these buckets: of each the columns of keys and versions are read.
    rewritten_files, rewritten_bytes
        Files of which rows change: they are read whole, and written anew.
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
    """Name changes that are merged together.

    Attributes
    ----------
    start, end
        The numbers of each input of the source before and behind them.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]
    parts: Sequence[ChangePart]


@dataclass
class Applier:
    """Merge what is new of one source into one table; errors are those of :func:`apply_log`.

    Attributes
    ----------
    merging
        Where the changes are read and merged.
    changes, outcome
        What this run has applied.
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
        """Apply all batches that are there now; return the version of the table."""
        written = self.source.written()
        version = None
        while version is None:
            version = retry_conflicts(self.table.store, lambda: self._apply_next(written))
        return version

    def _apply_next(self, written: Mapping[str, int]) -> int | None:
        """Apply the next batch and return None; if there is none, return the version of the table."""
        state, batch = self._next(self.opened(), written)
        if batch is None:
            return state.version
        if not self._is_checked:
            require_writable(self.table.store)
            self._is_checked = True
        self._merge(state, batch)
        return None

    def opened(self) -> LakeState:
        """Return the state of the table, which is made if there is none."""
        keys = self.source.keys()
        state = self.table.load()
        if state is None:
            if not keys:
                raise OptionError(
                    f"there is no table at {self.table.store.uri} yet, and nothing tells its key: give key, the key "
                    "attributes"
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
        known = tuple(json.loads(state.properties[KEYS]))
        if keys and known != keys:
            raise OptionError(
                f"the table {self.table.store.uri} has the key {known}, and {self.source.uri} the key {keys}"
            )
        return state

    def shape(self, state: LakeState) -> LakeShape:
        """Return how items lie in the table."""
        return shape_of(state.schema, json.loads(state.properties[KEYS]), int(state.properties[BUCKETS]))

    def plan(self, state: LakeState) -> ApplyPlan:
        """Return what all that is new of the source would do, as one batch."""
        written = self.source.written()
        start = self._met(state, written)
        shape, merging = self.shape(state), LocalMerging()
        parts = self.source.parts(start, written) if start != written else []
        grown = merging.grown(shape, self.source.columns(), parts)
        changes, rows = merging.rows(self._maker(state, grown))
        files = BucketFiles(self.table.store, grown.schema, "plan", FileOptions())
        outcome, read, rewritten, buckets = Outcome(stale=changes), list[Any](), list[Any](), 0
        for _, found, chosen in BucketMerger(files, tuple(state.files), _floor(state)).of_bucket(rows):
            merge = BucketMerge(chosen, _floor(state))
            rewritten += [file for file, _ in merge.losing(files, found)]
            read += found
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
            read_bytes=sum(each.size_bytes for each in read),
            rewritten_files=len(rewritten),
            rewritten_bytes=sum(each.size_bytes for each in rewritten),
        )

    def _met(self, state: LakeState, written: Mapping[str, int]) -> dict[str, int]:
        """Return how far each input of the source is applied; refuse a table that the rest does not go with."""
        start = self._positions(state, written)
        if start != written:
            self.source.meet(
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
        """Return the next batch, and the state of the table that has the columns and epochs for it."""
        start = self._met(state, written)
        if start == written:
            return state, None
        epochs = _epochs(state)
        if new_epochs := [each for each in self.source.lineages() if each not in epochs]:
            self.table.alter(state, (), {EPOCHS: json.dumps([*epochs, *new_epochs])})
            return self._next(self.opened(), written)
        end = self.source.limit(start, written, self.options.max_records_per_batch)
        shape, parts = self.shape(state), self.source.parts(start, end)
        grown = self.merging.grown(shape, self.source.columns(), parts)
        if new := [grown.attributes.field(place) for place in range(len(shape.attributes), len(grown.attributes))]:
            _LOG.info("new columns of %s: %s", self.table.store.uri, ", ".join(each.name for each in new))
            self.table.alter(state, new, {})
            # Other commits may lie between: what is read next has the columns.
            return self._next(self.opened(), written)
        return state, Batch(start, end, parts)

    def _maker(self, state: LakeState, shape: LakeShape) -> RowMaker:
        epochs = _epochs(state)
        # Of a plan, which changes nothing, new streams are behind those that are known.
        epochs += [each for each in self.source.lineages() if each not in epochs]
        return RowMaker(shape, tuple(epochs), self.table.position(state, BASE) - self.source.slack_us)

    def _merge(self, state: LakeState, batch: Batch) -> None:
        job_id = new_job_id()
        options = FileOptions(
            compression=self.options.compression,
            target_file_bytes=int(self.options.target_file_bytes),
            column_statistics=NOTED,
        )
        files = BucketFiles(self.table.store, self.table.file_schema(state), job_id, options)
        merger = BucketMerger(files, tuple(state.files), _floor(state))
        try:
            merged = self.merging.merge(batch.parts, self._maker(state, self.shape(state)), merger)
            if merged.outcome.changes_nothing:
                # A version in which nothing is different would only make the history longer.
                self._note(state, batch)
            else:
                self._commit(state, batch, merged)
        finally:
            # What was not completed goes, also what a step before an error has staged.
            with contextlib.suppress(DdbioError):
                self.table.store.abort(job_id)
        self._done = dict(batch.end)
        self.changes += merged.changes
        self.outcome += merged.outcome

    def _commit(self, state: LakeState, batch: Batch, merged: Merged) -> None:
        added = [staged for each in merged.buckets for staged in each.added]
        for staged in added:
            self.table.store.complete(staged)
        outcome = merged.outcome
        commit = Commit(
            added=added,
            removed=[file for each in merged.buckets for file in each.removed],
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
            # Nobody else knows these names.
            self.table.store.delete([staged.path for staged in added])
            raise
        _LOG.info("%s: version %d, %s", self.table.store.uri, version, outcome)

    def _positions(self, state: LakeState, written: Mapping[str, int]) -> dict[str, int]:
        """Return how far each input is applied, by the commits and by what was noted beside them."""
        found = {}
        for name, last in written.items():
            stored = self.source.position(name)
            applied = self._position(state, stored) if stored else 0
            found[name] = self.source.resumed(name, max(applied, self._done.get(name, 0)), last)
        return found

    def _position(self, state: LakeState, name: str) -> int:
        whole = self._position_name(state, name)
        noted = int((self._noted().read(_record_name(whole)) or {"batch": 0})["batch"])
        return max(self.table.position(state, whole), noted)

    def _reached(self, state: LakeState, batch: Batch) -> dict[str, int]:
        """Return the positions behind a batch, by their names in the table."""
        inputs = {
            self.source.position(name): number for name, number in batch.end.items() if number != batch.start[name]
        }
        found = {**inputs, **self.source.reached(batch.start, batch.end)}
        return {self._position_name(state, name): number for name, number in found.items() if name}

    def _note(self, state: LakeState, batch: Batch) -> None:
        for name, number in self._reached(state, batch).items():
            self._noted().put(_record_name(name), {"batch": number})

    def _noted(self) -> JobState:
        return JobState(self.table.store, "lake", _STATE_KIND)

    def _position_name(self, state: LakeState, name: str) -> str:
        # A base that is loaded anew counts from the start.
        return f"ddbio/{self.table.position(state, BASE)}/{name}"


def apply(log: Any, options: ApplyOptions) -> ApplyReport:
    """Merge what is new of a log of changes into a table of a lake: a newer state of an item wins.

    Parameters
    ----------
    log
        Folder of the log of :func:`capture`, or of an incremental export; or changes as rows: a table of Arrow, or a
        DataFrame of polars, pandas or Spark, with the columns of a log.

    Raises
    ------
    NotFoundError
        If there is no such log, or no change was captured yet.
    OptionError
        If the table is not one that changes are applied to, or has another key.
    SchemaError
        If rows are given that are no changes.
    ExportIncompleteError
        If an export is damaged, or leaves a gap behind the changes that the table has.
    TargetError
        If other writers are faster again and again, or the log lacks batches that were applied.
    """
    if isinstance(log, str | os.PathLike):
        return apply_log(options)
    if hasattr(log, "sparkSession"):
        found: ApplyReport = provider("changes in DataFrames").apply_frame(log, options)
        return found
    return apply_rows(_rows_of(log), options)


def _rows_of(given: Any) -> pa.Table:
    """Return rows in memory as a table of Arrow.

    Raises
    ------
    OptionError
        If they are nothing that Arrow reads.
    """
    if isinstance(given, pa.Table):
        return given
    library = type(given).__module__.partition(".")[0]
    if library == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if library == "polars":
        # Its stream has views of texts, which casts of older Arrow do not take.
        found: pa.Table = given.to_arrow()
        return found
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).read_all()
    raise OptionError(f"log is a {type(given).__name__}: give a folder, a table of Arrow, or a DataFrame")


def apply_log(
    options: ApplyOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> ApplyReport:
    """Merge what is new of a log or an export into a lake table, which is made if there is none.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a session that has to be started.

    Raises
    ------
    NotFoundError
        If there is no such log, or no change was captured yet.
    OptionError
        If the table is not one that changes are applied to, or has another key.
    SchemaError
        If the table has a column of another type than changes can be written to.
    ExportIncompleteError
        If an export is damaged, or leaves a gap behind the changes that the table has.
    TargetError
        If other writers are faster again and again, or the log lacks batches that were applied.
    """
    if options.engine == "local":
        return apply_source(open_changes(options), options)
    places = {"table": options.table, "source": options.source}
    require_shared(cluster_of(master, conf), places, shared_paths=options.shared_paths)
    clock = Clock()
    if (writer := TABLE_FORMATS[options.format].spark_writer()) is not None:
        written: ApplyReport = writer.apply_changes(options, clock, master, conf or {})
        return written
    with closing(open_engine("spark", master=master, conf=conf)) as engine:
        report = apply_source(open_changes(options), options, SpreadMerging(cast("ShufflingEngine", engine)), clock)
        return dataclasses.replace(report, cpu_seconds=round(engine.cpu_seconds(), 3))


def apply_rows(rows: pa.Table, options: ApplyOptions) -> ApplyReport:
    """Merge changes that are given as rows into a lake table.

    Raises
    ------
    SchemaError
        If the rows are no changes.
    DdbioError
        As of :func:`apply_log`.
    """
    source = given_changes(rows.schema, options)
    source.rows = rows
    return apply_source(source, options)


def apply_source(
    source: ChangeSource,
    options: ApplyOptions,
    merging: Merging | None = None,
    clock: Clock | None = None,
    table: LakeTable | None = None,
) -> ApplyReport:
    """Merge what a source has into a lake table; errors are those of :func:`apply_log`."""
    clock = clock or Clock()
    check_lake_catalog(options)
    table = table or open_lake_table(options.table, options.format, options)
    job = Applier(source, table, options, merging or LocalMerging())
    # What killed runs have staged; whoever may not list it goes on all the same.
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
    """Return what :func:`apply` would do, and do none of it.

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
    """Refuse a table that has other columns than changes are merged by, or another kind of writer.

    Raises
    ------
    OptionError
        Saying how to make a table that changes can be applied to.
    """
    if KEYS not in state.properties or BUCKETS not in state.properties:
        raise OptionError(
            f"{table.store.uri} is a table that ddbio did not make: apply to a new folder, or load the base by "
            "ddbio scan --format delta"
        )
    writer = state.properties.get(WRITER, "local")
    if writer != "local" and table.store.uri.startswith("s3://"):
        raise OptionError(
            f"{table.store.uri} is written by {writer}: two kinds of writers on S3 do not see each other's commits; go "
            "on with that engine"
        )


def _epochs(state: LakeState) -> list[str]:
    found: list[str] = json.loads(state.properties.get(EPOCHS, "[]"))
    return found


def _floor(state: LakeState) -> int | None:
    found = state.properties.get(FLOOR)
    return None if found is None else int(found)


def _record_name(name: str) -> str:
    return name.replace("/", ".")
