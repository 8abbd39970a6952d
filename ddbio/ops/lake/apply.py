"""Apply the changes of a log to a lake table: merge what is new of the log, in one commit after the other."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.lake.columns import BUCKET, TIME
from ddbio.core.lake.merge import BucketMerge, Outcome
from ddbio.core.lake.rows import LakeShape, item_columns, log_columns, new_shape, newest, rows_of_log, shape_of
from ddbio.core.schema.arrow import RESCUE_NAME
from ddbio.engine import available_cores
from ddbio.errors import DdbioError, NotFoundError, OptionError, TargetError
from ddbio.files.job_state import JobState
from ddbio.files.rolling_writer import FileOptions
from ddbio.files.snapshot import live_files
from ddbio.lake.bucket_files import NOTED, BucketFiles, MergedBucket
from ddbio.lake.lake_table import BASE, BUCKETS, EPOCHS, FLOOR, KEYS, WRITER, Commit, ConflictError
from ddbio.ops.capture.log_reader import CapturedLog, LogFile, captures_of, read_log_file
from ddbio.ops.job.lake_tables import open_lake_table
from ddbio.ops.job.report import Clock, Report
from ddbio.ops.job.storage import new_job_id, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.files.object_store import ObjectStore
    from ddbio.lake.lake_table import LakeFile, LakeState, LakeTable
    from ddbio.options.lake import ApplyOptions

_LOG = logging.getLogger("ddbio.apply")

# Changes so long before a base load began are in it: clocks of the service and of this machine may differ.
_SLACK_US = 300 * 1_000_000
_TRIES = 30
_LONGEST_PAUSE_SECONDS = 2.0
_MOST_THREADS = 4
_STATE_KIND = "apply"


@dataclass(frozen=True)
class ApplyReport(Report):
    """What a run did: each change was inserted, updated or deleted an item, or was stale.

    Attributes
    ----------
    changes
        Changes of the log that were new to the table.
    inserted, updated, deleted
        Items that came, changed and went.
    stale
        Changes that changed nothing, since a newer one of the item was there, in the table or in the run itself.
    version
        Version of the table at the end.
    seconds
        Wall time from the verb's start.
    cpu_seconds
        User + system seconds of this process.
    """

    changes: int
    inserted: int
    updated: int
    deleted: int
    stale: int
    version: int
    seconds: float
    cpu_seconds: float


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
    """Hold changes that are merged together.

    Attributes
    ----------
    start, end
        The positions of each capture before and behind them.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]
    rows: pa.Table
    changes: int


@dataclass
class Applier:
    """Merge what is new of one log into one table; errors are those of :func:`apply_log`.

    Attributes
    ----------
    changes, outcome
        What this run has applied.
    """

    log_store: ObjectStore
    log: CapturedLog
    table: LakeTable
    options: ApplyOptions
    changes: int = 0
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> int:
        """Apply all batches that are there now; return the version of the table."""
        written, tries = self.log.written(), 0
        while True:
            try:
                state, batch = self._next(self.opened(), written)
                if batch is None:
                    return state.version
                self._merge(state, batch)
            except ConflictError as conflict:
                tries += 1
                if tries >= _TRIES:
                    raise TargetError(
                        f"{tries} times another writer was faster at {self.table.store.uri}: {conflict}",
                        self.table.store.uri,
                    ) from conflict
                _LOG.info("another writer changed %s: its new state is read", self.table.store.uri)
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, 0.02 * 2**tries)))
            else:
                tries = 0

    def opened(self) -> LakeState:
        """Return the state of the table, which is made if there is none."""
        keys = self.log.keys()
        state = self.table.load()
        if state is None:
            shape = new_shape(item_columns(self.log.schema()), keys, self.options.buckets)
            properties = {
                KEYS: json.dumps(keys),
                BUCKETS: str(shape.buckets),
                EPOCHS: json.dumps(self._lineages()),
                WRITER: "local",
            }
            return self.table.create(shape.schema, properties)
        check_ours(self.table, state)
        known = tuple(json.loads(state.properties[KEYS]))
        if known != keys:
            raise OptionError(f"the table {self.table.store.uri} has the key {known}, and the log the key {keys}")
        epochs = json.loads(state.properties.get(EPOCHS, "[]"))
        if new := [each for each in self._lineages() if each not in epochs]:
            state = self.table.alter(state, (), {EPOCHS: json.dumps([*epochs, *new])})
        return state

    def shape(self, state: LakeState) -> LakeShape:
        """Return how items lie in the table."""
        return shape_of(state.schema, json.loads(state.properties[KEYS]), int(state.properties[BUCKETS]))

    def plan(self, state: LakeState) -> tuple[ApplyPlan, LakeState]:
        """Return what all that is new of the log would do, as one batch."""
        written = self.log.written()
        start = self._positions(state, written)
        shape = self.shape(state)
        batch, grown = self._read(state, shape, start, written)
        files = BucketFiles(self.table.store, grown.schema, "plan", FileOptions())
        outcome, read, rewritten = self._outside(batch), list[Any](), list[Any]()
        parts = list(_by_bucket(batch.rows, state.files))
        for _, found, changes in parts:
            merge = BucketMerge(changes, _floor(state))
            rewritten += [file for file, _ in files.decide(found, merge)]
            read += found
            outcome += merge.outcome()
        plan = ApplyPlan(
            log=self.log_store.uri,
            table=self.table.store.uri,
            format=self.options.format,
            changes=batch.changes,
            inserted=outcome.inserted,
            updated=outcome.updated,
            deleted=outcome.deleted,
            stale=outcome.stale,
            new_columns=tuple(name for name in grown.attributes.names if name not in shape.attributes.names),
            buckets=len(parts),
            read_files=len(read),
            read_bytes=sum(each.size_bytes for each in read),
            rewritten_files=len(rewritten),
            rewritten_bytes=sum(each.size_bytes for each in rewritten),
        )
        return plan, state

    def _lineages(self) -> list[str]:
        """Return the streams that the log comes from, in the order in which their captures began."""
        heads = sorted(self.log.heads().values(), key=lambda head: float(head.get("started_at", 0)))
        found = list(dict.fromkeys(head.get("stream", "") for head in heads))
        if len({"table" in head for head in heads}) > 1:
            raise OptionError(
                f"the log {self.log_store.uri} has changes from DynamoDB Streams and from Kinesis, whose numbers "
                "cannot be compared: choose one capture by job_id"
            )
        return found

    def _next(self, state: LakeState, written: Mapping[str, int]) -> tuple[LakeState, Batch | None]:
        """Return the next batch, and the state of the table that has the columns for it."""
        start = self._positions(state, written)
        if start == written:
            return state, None
        end = self.log.limit(start, written, self.options.max_records_per_batch)
        shape = self.shape(state)
        batch, grown = self._read(state, shape, start, end)
        if new := [grown.attributes.field(place) for place in range(len(shape.attributes), len(grown.attributes))]:
            _LOG.info("new columns of %s: %s", self.table.store.uri, ", ".join(each.name for each in new))
            self.table.alter(state, new, {})
            # Other commits may lie between: what is read next has the columns.
            return self._next(self.opened(), written)
        return state, batch

    def _read(
        self, state: LakeState, shape: LakeShape, start: Mapping[str, int], end: Mapping[str, int]
    ) -> tuple[Batch, LakeShape]:
        """Return the changes between two positions as rows of the table, with the columns that it needs for them."""
        columns, epochs = log_columns(self.log.schema()), json.loads(state.properties[EPOCHS])
        found: list[tuple[int, pa.RecordBatch]] = []
        for job_id, head in self.log.heads().items():
            epoch = epochs.index(head.get("stream", "")) + 1
            files = self.log.files({job_id: start[job_id]}, {job_id: end[job_id]})
            found += [(epoch, batch) for batch in read_changes(self.log_store, files, columns)]
        rescued = [
            str(text)
            for _, batch in found
            if batch.column(RESCUE_NAME).null_count < batch.num_rows
            for text in batch.column(RESCUE_NAME).drop_null().to_pylist()
        ]
        grown = shape.grown(item_columns(columns), rescued)
        rows = pa.Table.from_batches([rows_of_log(batch, grown, epoch) for epoch, batch in found], grown.schema)
        since = self.table.position(state, BASE) - _SLACK_US
        if since > 0:
            rows = rows.filter(pc.greater_equal(rows.column(TIME), pa.scalar(since)))
        changes = sum(batch.num_rows for _, batch in found)
        return Batch(start, end, newest(rows), changes), grown

    def _outside(self, batch: Batch) -> Outcome:
        """Return what of a batch is not merged, since the batch itself has newer changes, or the base has them."""
        return Outcome(stale=batch.changes - batch.rows.num_rows)

    def _merge(self, state: LakeState, batch: Batch) -> None:
        job_id = new_job_id()
        options = FileOptions(
            compression=self.options.compression,
            target_file_bytes=int(self.options.target_file_bytes),
            statistics=NOTED,
        )
        files = BucketFiles(self.table.store, self.table.file_schema(state), job_id, options)
        floor = _floor(state)

        def merge(part: tuple[int, list[LakeFile], pa.Table]) -> MergedBucket:
            return files.merge(*part, floor)

        try:
            with ThreadPoolExecutor(min(_MOST_THREADS, available_cores())) as threads:
                merged = list(threads.map(merge, _by_bucket(batch.rows, state.files)))
            outcome = sum((each.outcome for each in merged), self._outside(batch))
            if outcome.changes_nothing:
                # A version in which nothing is different would only make the history longer.
                self._note(state, batch)
            else:
                self._commit(state, batch, merged, outcome)
        finally:
            # What was not completed goes, also what a step before an error has staged.
            with contextlib.suppress(DdbioError):
                self.table.store.abort(job_id)
        self.changes += batch.changes
        self.outcome += outcome

    def _commit(self, state: LakeState, batch: Batch, merged: list[MergedBucket], outcome: Outcome) -> None:
        added = [staged for each in merged for staged in each.added]
        for staged in added:
            self.table.store.complete(staged)
        commit = Commit(
            added=added,
            removed=[file for each in merged for file in each.removed],
            positions={
                self._position_name(state, job_id): number
                for job_id, number in batch.end.items()
                if number != batch.start[job_id]
            },
            metadata={
                "ddbio": json.dumps(
                    {"log": self.log_store.uri, "changes": batch.changes, "inserted": outcome.inserted}
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
        """Return how far each capture is applied, by the commits and by what was noted beside them."""
        found = {}
        for job_id, last in written.items():
            name = self._position_name(state, job_id)
            noted = (self._noted().read(_record_name(name)) or {"batch": 0})["batch"]
            found[job_id] = max(self.table.position(state, name), noted)
            if found[job_id] > last:
                # Another run may have applied what the log has since.
                now = self.log.written()[job_id]
                if found[job_id] > now:
                    raise TargetError(
                        f"{found[job_id]} batches of {job_id} are applied to {self.table.store.uri}, and the log "
                        f"{self.log_store.uri} has {now}: something has removed batches of it",
                        self.log_store.uri,
                    )
                found[job_id] = last
        return found

    def _note(self, state: LakeState, batch: Batch) -> None:
        for job_id, number in batch.end.items():
            if number != batch.start[job_id]:
                self._noted().put(_record_name(self._position_name(state, job_id)), {"batch": number})

    def _noted(self) -> JobState:
        return JobState(self.table.store, "lake", _STATE_KIND)

    def _position_name(self, state: LakeState, job_id: str) -> str:
        # A log that is begun anew, and a base that is loaded anew, count from the start.
        began = int(float(self.log.heads()[job_id].get("started_at", 0)) * 1000)
        return f"ddbio/{self.table.position(state, BASE)}/{job_id}/{began}"


def apply_log(options: ApplyOptions) -> ApplyReport:
    """Merge what is new of a log into a lake table, which is made if there is none.

    Raises
    ------
    NotFoundError
        If there is no such log, or no change was captured yet.
    OptionError
        If the table is not one that changes are applied to, or has another key.
    SchemaError
        If the table has a column of another type than changes can be written to.
    TargetError
        If other writers are faster again and again, or the log lacks batches that were applied.
    """
    clock, job = Clock(), _open(options)
    version = job.run()
    return ApplyReport(
        changes=job.changes,
        inserted=job.outcome.inserted,
        updated=job.outcome.updated,
        deleted=job.outcome.deleted,
        stale=job.outcome.stale,
        version=version,
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(clock.cpu_seconds(), 3),
    )


def plan_apply(options: ApplyOptions) -> ApplyPlan:
    """Return what :func:`apply_log` would do, with all that is new as one batch; the table stays as it is.

    Raises
    ------
    NotFoundError
        If there is no such log, or no such table yet.
    """
    job = _open(options)
    state = job.table.load()
    if state is None:
        raise NotFoundError(f"there is no {options.format} table at {options.table} yet: all changes would be inserted")
    check_ours(job.table, state)
    return job.plan(state)[0]


def _open(options: ApplyOptions) -> Applier:
    store = open_store(options.source, options)
    log = CapturedLog(store, captures_of(store) if options.job_id is None else [options.job_id])
    return Applier(store, log, open_lake_table(options.table, options.format, options), options)


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


def read_changes(store: ObjectStore, files: list[LogFile], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a log; of those that a compaction has replaced, what its hour has now.

    That may be more than was asked for: changes that come again change nothing.
    """
    hours = dict[str, None]()
    for file in files:
        try:
            yield from read_log_file(store, file, columns)
        except NotFoundError:
            hours[file.path.rpartition("/")[0]] = None
    if not hours:
        return
    live = [each for each in live_files(store).files if each.path.rpartition("/")[0] in hours]
    if not live:
        raise NotFoundError(f"{next(iter(hours))} of the log {store.uri} is gone: something has deleted its files")
    for each in live:
        yield from read_log_file(store, LogFile(each.path, 0), columns)


def _by_bucket(rows: pa.Table, files: tuple[LakeFile, ...]) -> Iterator[tuple[int, list[LakeFile], pa.Table]]:
    """Yield each bucket with changes, its files and its changes."""
    column: Any = rows.column(BUCKET)
    for bucket in sorted(map(int, pc.unique(column).to_pylist())):
        chosen = rows.filter(pc.equal(column, pa.scalar(bucket, column.type)))
        yield bucket, [each for each in files if each.bucket == bucket], chosen


def _floor(state: LakeState) -> int | None:
    found = state.properties.get(FLOOR)
    return None if found is None else int(found)


def _record_name(name: str) -> str:
    return name.replace("/", ".")
