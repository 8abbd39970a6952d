"""Replay of changes that Firehose has delivered, or failed to deliver, into a log or a table.

Each object is replayed once.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.aws.control_plane import describe_table
from ddbio.cdc.batches import write_log_file
from ddbio.cdc.delivered import DeliveredObjects
from ddbio.cdc.log_jobs import COLUMNS, REPLAY, began_at, columns_in, lineages_in, log_jobs, replayed
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cdc.log_rows import LogRows, hour_folder
from ddbio.cdc.one_table import OneTable
from ddbio.commit.committer import Claim
from ddbio.commit.contents import require_target
from ddbio.errors import LimitError, OptionError
from ddbio.formats.log_columns import EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.items.kernel.arrays import int64_values
from ddbio.items.schema.file import schema_from_json, schema_to_json
from ddbio.items.schema.own_names import columns_of
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.report import Clock, JobReport
from ddbio.jobs.stores import open_store
from ddbio.load.load import write_table
from ddbio.load.options import WriteOptions
from ddbio.options import connection_of, parse_options
from ddbio.options.parsing import fixed_options
from ddbio.result import Result
from ddbio.storage.job_state import JobState
from ddbio.storage.staged import StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.cdc.options import ReplayOptions

_SINGLE, _FOLDED = re.compile(r"[0-9a-f]{24}"), "done-"


class DoneObjects:
    """Objects that are done. Only one process at a time adds objects.

    Parameters
    ----------
    fold_objects
        The number of records of single objects that are folded into one.
    """

    def __init__(self, state: JobState, fold_objects: int = 1_000) -> None:
        self._state, self._fold_objects = state, fold_objects
        names = state.listed()
        self._singles = [name for name in names if _SINGLE.fullmatch(name)]
        folded = (state.read(name) or {"objects": []} for name in names if name.startswith(_FOLDED))
        self._done_names = {*self._singles}.union(*(fold["objects"] for fold in folded))

    def __contains__(self, entry: StoredObject) -> bool:
        """Return whether an object is done."""
        return object_name(entry) in self._done_names

    def add(self, entry: StoredObject) -> None:
        """Record that an object is done."""
        name = object_name(entry)
        self._state.put(name, {"path": entry.path})
        self._done_names.add(name)
        self._singles.append(name)
        if len(self._singles) >= self._fold_objects:
            self._fold()

    def _fold(self) -> None:
        # An object that is in both kinds of records is done, too.
        digest = hashlib.sha256(" ".join(self._singles).encode()).hexdigest()[:24]
        self._state.put(f"{_FOLDED}{digest}", {"objects": self._singles})
        self._state.delete(self._singles)
        self._singles = []


def object_name(entry: StoredObject) -> str:
    """Return the identity of one version of an object."""
    return hashlib.sha256(f"{entry.path} {entry.version}".encode()).hexdigest()[:24]


_OWN = (SEQUENCE, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE)
# Changes of a table that are written together.
_CHUNK_ROWS = 200_000


@dataclass(frozen=True)
class ReplayPlan(Result):
    """Plan of a replay.

    Attributes
    ----------
    source, target
        The location of the changes, and the log or table that they are written to.
    job_id
        The id of the replay. Runs with the same id replay an object once.
    objects
        Objects to read.
    object_bytes
        Their stored size.
    done
        Objects that were replayed already.
    """

    source: str
    target: str
    job_id: str
    objects: int
    object_bytes: int
    done: int


@dataclass(frozen=True, kw_only=True)
class ReplayReport(JobReport):
    """Result of a replay.

    Attributes
    ----------
    source, target
        The location of the changes, and the log or table that they were written to.
    job_id
        The id of the replay. Runs with the same id replay an object once.
    objects
        Objects that this run replayed.
    done
        Objects that earlier runs replayed.
    records
        Changes that this run replayed.
    rejected
        Records that are not changes. They are in ``reject_to`` with the reason.
    duplicates
        Changes that were in an object twice. One of the two was left out.
    foreign
        Changes of other tables than ``source_table``, which were left out.
    files
        Files of the log that this run wrote.
    wcu_consumed
        Write units that the table's service charged.
    """

    source: str
    target: str
    job_id: str
    objects: int
    done: int
    records: int
    rejected: int
    duplicates: int
    files: int
    wcu_consumed: float = 0.0
    foreign: int = 0


class _Replay:
    """Objects of a replay, and the state of the objects that are done."""

    def __init__(self, options: ReplayOptions) -> None:
        self.options = options
        self.table = OneTable(options.source_table or options.table, "source_table")
        self.delivered = DeliveredObjects(
            options, replays=True, old_image=options.newer_by is not None, table=self.table
        )
        self.target = options.dest or options.table or ""
        digest = hashlib.sha256(f"{self.delivered.store.uri} {self.target}".encode()).hexdigest()
        job_id = options.job_id or f"replay_{digest[:12]}"
        store = open_store(options.dest or options.state or options.source, options)
        if options.dest is not None:
            require_target(store)
        self.state = JobState(store, job_id, REPLAY)
        self.done = DoneObjects(self.state)
        self.left = [entry for entry in self.delivered.objects if entry not in self.done]
        self.keys = options.keys or ()
        self.lineages = replayed(lineages_in(log_jobs(self.state.store))) if options.table is None else []
        self.files = 0
        self.units = self.usd = 0.0
        self._clock = Clock()

    def begin(self) -> None:
        """Store the identity of the replay. Raises if another replay has the same id."""
        fixed = fixed_options(self.options, without=("source", "dest", "table"))
        identity = {"source": self.delivered.store.uri, "target": self.target, **fixed}
        self.state.start_as(identity, {"started_at": time.time()})
        table = (self.state.read(COLUMNS) or {}).get("table")
        if not self.table.owns(table):
            raise OptionError(
                f"replay {self.state.job_id!r} was started with the changes of {table!r}, not of {self.table.name!r}: "
                "give another dest, or another job_id"
            )

    def plan(self) -> ReplayPlan:
        return ReplayPlan(
            self.delivered.store.uri,
            self.target,
            self.state.job_id,
            len(self.left),
            sum(entry.size_bytes for entry in self.left),
            len(self.delivered.objects) - len(self.left),
        )

    def prepare(self) -> None:
        """Use the columns of the first run, so that an object that is replayed again gives the same files."""
        stored = self.state.read(COLUMNS)
        if stored is None:
            self.delivered.prepare(keys=self.keys)
            is_free = self.options.table is None and self.options.schema is None
            columns = columns_in(self.state.store, self.delivered.keys) if is_free else None
            columns = self.delivered.items if columns is None else columns
            values: dict[str, Any] = {"schema": schema_to_json(columns), "keys": list(self.delivered.keys)}
            self.state.put_once(COLUMNS, {**values, "table": self.table.name})
            stored = self.state.read(COLUMNS) or values
        self.delivered.prepare(schema_from_json(stored["schema"]), tuple(stored["keys"]))

    def to_log(self) -> None:
        """Write the files of each object, then record it as done."""
        for entry in self.left:
            self._left("max_seconds", self._clock.seconds())
            rows = self.delivered.rows(entry)
            for stream, part in self._by_stream(rows) if rows is not None else ():
                for hour, rows_of_hour in part.of_hours():
                    path = f"{hour_folder(hour)}{self.state.job_id}-{object_name(entry)}{stream}.parquet"
                    table = pa.Table.from_batches([rows_of_hour.rows])
                    write_log_file(self.state.store, path, table, self.options.compression)
                    self.files += 1
            self.done.add(entry)

    def _by_stream(self, rows: LogRows) -> Iterator[tuple[str, LogRows]]:
        """Yield the rows of each stream of the log, with the suffix of the names of its files.

        Readers of the log determine the stream of a file from the time of its first change.
        """
        starts = [began_at(lineage) for lineage in self.lineages[1:]]
        indices = np.searchsorted(starts, int64_values(rows.rows.column(EVENT_TIME)) / 1_000_000, side="right")
        for index in np.unique(indices):
            yield f"-{index}" if index else "", rows.keep(indices == index)

    def to_table(self) -> None:
        """Apply the changes of some objects at a time, in order, then record the objects as done."""
        gathered, entries = list[LogRows](), list[StoredObject]()
        for entry in self.left:
            rows = self.delivered.rows(entry)
            entries.append(entry)
            if rows is not None:
                gathered.append(rows)
            if sum(part.rows.num_rows for part in gathered) >= _CHUNK_ROWS:
                self._apply(gathered, entries)
                gathered, entries = [], []
        self._apply(gathered, entries)

    def _apply(self, gathered: list[LogRows], entries: list[StoredObject]) -> None:
        if gathered:
            rows = in_order(pa.Table.from_batches([part.rows for part in gathered]))
            rows = last_of_each(rows, self.delivered.keys)
            if self.options.newer_by is not None:
                rows = _compared(rows, self.options.newer_by)
            operations = [
                "delete" if operation == "REMOVE" else "put" for operation in rows.column(OPERATION).to_pylist()
            ]
            rows = rows.set_column(rows.column_names.index(OPERATION), OPERATION, pa.array(operations, pa.string()))
            chosen = {name: getattr(self.options, name) for name in ("table", "newer_by", "wcu_per_second")}
            chosen |= {"operation_by": OPERATION, "prices": self.options.prices, "compute": self.options.compute}
            chosen |= {
                "max_units": self._left("max_units", self.units),
                "max_seconds": self._left("max_seconds", self._clock.seconds()),
                "max_usd": self._left("max_usd", self.usd),
            }
            item_rows = rows.drop_columns([name for name in _OWN if name in rows.column_names])
            report = write_table(item_rows, parse_options(WriteOptions, {**connection_of(self.options), **chosen}))
            self.units += report.wcu_consumed
            self.usd += (report.actual and report.actual.usd) or 0.0
        for entry in entries:
            self.done.add(entry)

    def _left(self, name: str, used: float) -> float | None:
        """Return the remaining part of a limit for the next objects. Raises if it is used up."""
        most: float | None = getattr(self.options, name)
        if most is None:
            return None
        if used >= most:
            raise LimitError(
                f"the replay was stopped: {name} {most:g} is used up; run it again to replay the other objects"
            )
        return most - used


def plan_replay(options: ReplayOptions) -> ReplayPlan:
    """Return the objects that :func:`replay` would read. Nothing is written.

    Raises
    ------
    NotFoundError
        If there are no objects.
    """
    return _Replay(options).plan()


def replay(options: ReplayOptions) -> ReplayReport:
    """Replay changes that Firehose has delivered, or written under its error prefix. Each object is replayed once.

    Raises
    ------
    NotFoundError
        If there are no objects, or the table does not exist.
    DecodeError
        If a record is not a change, and there is no ``reject_to``.
    OptionError
        If the job was started with another source, target or table; if there are changes of several tables.
    TargetError
        If another process runs this replay.
    """
    clock, job = Clock(), _Replay(options)
    if options.table is not None:
        job.keys = tuple(name for name, _ in describe_table(dynamodb_spec(options), options.table).key_types)
    job.begin()
    with Claim(job.state.store, job.state.job_id, "append").held():
        if job.left:
            job.prepare()
            (job.to_log if options.table is None else job.to_table)()
    return ReplayReport(
        source=job.delivered.store.uri,
        target=job.target,
        job_id=job.state.job_id,
        objects=len(job.left),
        done=len(job.delivered.objects) - len(job.left),
        records=job.delivered.changes,
        rejected=job.delivered.failures,
        duplicates=job.delivered.duplicates,
        foreign=job.delivered.foreign,
        files=job.files,
        **clock.times(),
        wcu_consumed=job.units,
    )


def _compared(rows: pa.Table, name: str) -> pa.Table:
    """Return rows in which a delete has the compared value of the item that it deleted."""
    (column,) = columns_of(rows.schema, [name])
    if column not in rows.column_names:
        raise OptionError(f"no change has the attribute {name!r} of newer_by")
    deleted = pc.struct_field(rows.column(OLD_IMAGE), column)
    index = rows.column_names.index(column)
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(rows.column(column), deleted))
