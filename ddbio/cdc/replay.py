"""Put changes through again that Firehose has delivered, or could not: into a log or a table; each object once."""

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
    """Hold the objects that are done; one process at a time notes more.

    Parameters
    ----------
    fold_objects
        So many records of single objects become one.
    """

    def __init__(self, state: JobState, fold_objects: int = 1_000) -> None:
        self._state, self._fold_objects = state, fold_objects
        names = state.listed()
        self._singles = [each for each in names if _SINGLE.fullmatch(each)]
        folded = (state.read(each) or {"objects": []} for each in names if each.startswith(_FOLDED))
        self._known = {*self._singles}.union(*(each["objects"] for each in folded))

    def __contains__(self, entry: StoredObject) -> bool:
        """Return whether an object is done."""
        return object_name(entry) in self._known

    def add(self, entry: StoredObject) -> None:
        """Note that an object is done."""
        name = object_name(entry)
        self._state.put(name, {"path": entry.path})
        self._known.add(name)
        self._singles.append(name)
        if len(self._singles) >= self._fold_objects:
            self._fold()

    def _fold(self) -> None:
        # An object that is in both kinds of records is done all the same.
        digest = hashlib.sha256(" ".join(self._singles).encode()).hexdigest()[:24]
        self._state.put(f"{_FOLDED}{digest}", {"objects": self._singles})
        self._state.delete(self._singles)
        self._singles = []


def object_name(entry: StoredObject) -> str:
    """Return what stands for one version of an object."""
    return hashlib.sha256(f"{entry.path} {entry.version}".encode()).hexdigest()[:24]


_OWN = (SEQUENCE, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE)
# Changes of a table that are written together.
_CHUNK_ROWS = 200_000


@dataclass(frozen=True)
class ReplayPlan(Result):
    """What a replay would do.

    Attributes
    ----------
    source, target
        Where changes are, and where they would go.
    job_id
        The replay: under the same one an object is put through once.
    objects
        Objects that would be read.
    object_bytes
        Their size as they are stored.
    done
        Objects that were put through already.
    """

    source: str
    target: str
    job_id: str
    objects: int
    object_bytes: int
    done: int


@dataclass(frozen=True, kw_only=True)
class ReplayReport(JobReport):
    """What a replay did.

    Attributes
    ----------
    source, target
        Where changes were, and where they went.
    job_id
        The replay: under the same one an object is put through once.
    objects
        Objects that this run put through.
    done
        Objects that earlier runs put through.
    records
        Changes that this run put through.
    rejected
        What was no change, and is in ``reject_to`` with its reason.
    duplicates
        Changes that came twice in an object, and were left out once.
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
    """Hold the objects, and the state of what is done."""

    def __init__(self, options: ReplayOptions) -> None:
        self.options = options
        self.table = OneTable(options.source_table or options.table, "source_table")
        self.found = DeliveredObjects(options, replays=True, old_image=options.newer_by is not None, table=self.table)
        self.target = options.dest or options.table or ""
        digest = hashlib.sha256(f"{self.found.store.uri} {self.target}".encode()).hexdigest()
        job_id = options.job_id or f"replay_{digest[:12]}"
        place = open_store(options.dest or options.state or options.source, options)
        if options.dest is not None:
            require_target(place)
        self.state = JobState(place, job_id, REPLAY)
        self.done = DoneObjects(self.state)
        self.left = [each for each in self.found.objects if each not in self.done]
        self.keys = options.keys or ()
        self.lineages = replayed(lineages_in(log_jobs(self.state.store))) if options.table is None else []
        self.files = 0
        self.units = self.usd = 0.0
        self._clock = Clock()

    def begin(self) -> None:
        """Note what the replay is; refuse another one under its name."""
        fixed = fixed_options(self.options, without=("source", "dest", "table"))
        identity = {"source": self.found.store.uri, "target": self.target, **fixed}
        self.state.begin_as(identity, {"started_at": time.time()})
        table = (self.state.read(COLUMNS) or {}).get("table")
        if not self.table.owns(table):
            raise OptionError(
                f"replay {self.state.job_id!r} was begun with the changes of {table!r}, not of {self.table.name!r}: "
                "give another dest, or another job_id"
            )

    def plan(self) -> ReplayPlan:
        return ReplayPlan(
            self.found.store.uri,
            self.target,
            self.state.job_id,
            len(self.left),
            sum(each.size_bytes for each in self.left),
            len(self.found.objects) - len(self.left),
        )

    def prepare(self) -> None:
        """Use the columns of the first run, so that an object that is put through again gives the same files."""
        stored = self.state.read(COLUMNS)
        if stored is None:
            self.found.prepare(keys=self.keys)
            is_free = self.options.table is None and self.options.schema is None
            columns = columns_in(self.state.store, self.found.keys) if is_free else None
            columns = self.found.items if columns is None else columns
            values: dict[str, Any] = {"schema": schema_to_json(columns), "keys": list(self.found.keys)}
            self.state.put_once(COLUMNS, {**values, "table": self.table.name})
            stored = self.state.read(COLUMNS) or values
        self.found.prepare(schema_from_json(stored["schema"]), tuple(stored["keys"]))

    def to_log(self) -> None:
        """Write the files of each object, and then note it as done."""
        for entry in self.left:
            self._left("max_seconds", self._clock.seconds())
            rows = self.found.rows(entry)
            for stream, part in self._by_stream(rows) if rows is not None else ():
                for hour, found in part.of_hours():
                    path = f"{hour_folder(hour)}{self.state.job_id}-{object_name(entry)}{stream}.parquet"
                    table = pa.Table.from_batches([found.rows])
                    write_log_file(self.state.store, path, table, self.options.compression)
                    self.files += 1
            self.done.add(entry)

    def _by_stream(self, rows: LogRows) -> Iterator[tuple[str, LogRows]]:
        """Yield the rows of each stream of the log, with what the names of its files end in.

        Who reads the log knows the stream of a file by the time of its first change.
        """
        starts = [began_at(each) for each in self.lineages[1:]]
        places = np.searchsorted(starts, int64_values(rows.rows.column(EVENT_TIME)) / 1_000_000, side="right")
        for place in np.unique(places):
            yield f"-{place}" if place else "", rows.keep(places == place)

    def to_table(self) -> None:
        """Apply the changes of some objects at a time, in their order, and then note the objects as done."""
        gathered, entries = list[LogRows](), list[StoredObject]()
        for entry in self.left:
            rows = self.found.rows(entry)
            entries.append(entry)
            if rows is not None:
                gathered.append(rows)
            if sum(each.rows.num_rows for each in gathered) >= _CHUNK_ROWS:
                self._apply(gathered, entries)
                gathered, entries = [], []
        self._apply(gathered, entries)

    def _apply(self, gathered: list[LogRows], entries: list[StoredObject]) -> None:
        if gathered:
            rows = in_order(pa.Table.from_batches([each.rows for each in gathered]))
            rows = last_of_each(rows, self.found.keys)
            if self.options.newer_by is not None:
                rows = _compared(rows, self.options.newer_by)
            operations = ["delete" if each == "REMOVE" else "put" for each in rows.column(OPERATION).to_pylist()]
            rows = rows.set_column(rows.column_names.index(OPERATION), OPERATION, pa.array(operations, pa.string()))
            chosen = {name: getattr(self.options, name) for name in ("table", "newer_by", "wcu_per_second")}
            chosen |= {"operation_by": OPERATION, "prices": self.options.prices, "compute": self.options.compute}
            chosen |= {
                "max_units": self._left("max_units", self.units),
                "max_seconds": self._left("max_seconds", self._clock.seconds()),
                "max_usd": self._left("max_usd", self.usd),
            }
            kept = rows.drop_columns([name for name in _OWN if name in rows.column_names])
            report = write_table(kept, parse_options(WriteOptions, {**connection_of(self.options), **chosen}))
            self.units += report.wcu_consumed
            self.usd += (report.actual and report.actual.usd) or 0.0
        for entry in entries:
            self.done.add(entry)

    def _left(self, name: str, used: float) -> float | None:
        """Return what is left of a limit for the next objects; what is noted already stays."""
        most: float | None = getattr(self.options, name)
        if most is None:
            return None
        if used >= most:
            raise LimitError(f"the replay was stopped: {name} {most:g} is used up; run it again to go on with the rest")
        return most - used


def plan_replay(options: ReplayOptions) -> ReplayPlan:
    """Return what :func:`replay` would read; nothing is written.

    Raises
    ------
    NotFoundError
        If there are no objects.
    """
    return _Replay(options).plan()


def replay(options: ReplayOptions) -> ReplayReport:
    """Put changes through again that Firehose has delivered, or put under its error prefix; each object once.

    Raises
    ------
    NotFoundError
        If there are no objects, or no such table.
    DecodeError
        If something is no change, and there is no ``reject_to``.
    OptionError
        If the job was begun for other places, or another table; if there are changes of several tables.
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
        source=job.found.store.uri,
        target=job.target,
        job_id=job.state.job_id,
        objects=len(job.left),
        done=len(job.found.objects) - len(job.left),
        records=job.found.changes,
        rejected=job.found.failures,
        duplicates=job.found.duplicates,
        foreign=job.found.foreign,
        files=job.files,
        **clock.times(),
        wcu_consumed=job.units,
    )


def _compared(rows: pa.Table, name: str) -> pa.Table:
    """Return rows in which a delete has the value to compare of the item that it deleted."""
    (column,) = columns_of(rows.schema, [name])
    if column not in rows.column_names:
        raise OptionError(f"no change has the attribute {name!r} of newer_by")
    deleted = pc.struct_field(rows.column(OLD_IMAGE), column)
    place = rows.column_names.index(column)
    return rows.set_column(place, rows.schema.field(place), pc.coalesce(rows.column(column), deleted))
