"""Capture the changes of a table: find its stream, resume after the last run, write the log, price what was spent."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import logging
import math
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import call, parse_table_description
from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import STOP_RATIO
from ddbio.cdc.batches import ChangeLog
from ddbio.cdc.gaps import HEALS, last_change
from ddbio.cdc.leases import LEASES, LeasedShards, Leases, Parts, part_id, records_of
from ddbio.cdc.lineages import (
    LogLineage,
    TableStream,
    gap_between,
    gap_error,
    keep_left,
    keep_lineage,
    left_before,
    lineage_number,
    lineages_of,
    require_table,
)
from ddbio.cdc.log_jobs import (
    CAPTURE,
    HANDLER,
    BatchRecords,
    Columns,
    columns_in,
    has_old_images,
    jobs_in,
    keep_columns,
    read_columns,
    turn_on_old_images,
)
from ddbio.cdc.log_rows import item_schema
from ddbio.cdc.loop import CaptureLoop, Limits, Timing
from ddbio.cdc.stream_registry import STREAM_KINDS, kind_of_job, table_arn_of, table_of_job
from ddbio.commit.committer import Claim
from ddbio.commit.contents import require_target
from ddbio.errors import LimitError, NotFoundError, OptionError
from ddbio.items.decode import infer_schema_of_body
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import Figures, compute_parts, is_s3
from ddbio.jobs.report import Clock, PlannedReport
from ddbio.jobs.stores import open_store
from ddbio.options import connection_of, parse_options
from ddbio.options.parsing import fixed_options
from ddbio.scan.describe import observe_table
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import budget_of
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.table_description import TableDescription
    from ddbio.cdc.options import CaptureOptions
    from ddbio.cdc.stream_kind import StreamSource
    from ddbio.jobs.estimate import Part, Prices
    from ddbio.storage.object_store import ObjectStore


@dataclass(frozen=True)
class FoundStream:
    """Hold the stream of a table, and which capture reads it.

    Attributes
    ----------
    first
        The stream that the capture was begun with.
    other
        Another capture of the log that has read this stream; None if there is none.
    """

    spec: ClientSpec
    table: TableDescription
    stream: TableStream
    job_id: str
    first: str
    other: JobState | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key attributes of the table."""
        return tuple(name for name, _ in self.table.key_types)


def find_stream(options: CaptureOptions) -> FoundStream:
    """Return the stream that a table has now, and the capture of the log that reads it.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If it has no stream that a log can be made of, or the log belongs to another table.
    """
    spec = dynamodb_spec(options)
    described = call(spec, "DescribeTable", f"table {options.table!r}", {"TableName": options.table})["Table"]
    table, kind = parse_table_description(described), STREAM_KINDS[options.source]
    arn, created = kind.find(options, spec, described), described.get("CreationDateTime")
    stream = TableStream(
        table=table.name,
        table_id=described.get("TableId", ""),
        arn=arn,
        table_arn=described.get("TableArn", ""),
        created_at=created.timestamp() if isinstance(created, datetime) else None,
        regions=frozenset(each["RegionName"] for each in described.get("Replicas", [])),
    )
    identity = arn if kind.is_of_table else f"{arn} {table.name}"
    job_id = options.job_id or f"capture_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    return _of_log(options, FoundStream(spec, table, stream, job_id, arn), open_store(options.dest, options))


def _captures_of(found: FoundStream, store: ObjectStore, kind: str) -> list[tuple[JobState, list[LogLineage]]]:
    """Return the captures of a log, and the streams that each has read; refuse those of another table."""
    captures = list[tuple[JobState, list[LogLineage]]]()
    for state in (each for one in (CAPTURE, LEASES, HANDLER) for each in jobs_in(store, one)):
        head = state.head() or {}
        if HEALS in head or "lease" in head:
            continue
        lineages = lineages_of(state)
        require_table(store.uri, found.stream, lineages, table_of_job(head))
        if state.kind == HANDLER or kind_of_job(head) is not found.stream.kind:
            continue
        if state.kind == kind:
            captures.append((state, lineages))
        elif lineages[-1].stream != found.stream.arn:
            raise OptionError(
                f"capture {state.job_id!r} of {store.uri} has read {lineages[-1].stream}, and only it can go on with "
                f"{found.stream.arn}: give leases={head.get('leases', 1)}"
            )
    return captures


def _of_log(options: CaptureOptions, found: FoundStream, store: ObjectStore) -> FoundStream:
    """Return which capture of the log goes on; refuse the log of another table."""
    captures = _captures_of(found, store, LEASES if options.leases > 1 else CAPTURE)
    if not captures:
        return found
    arn = found.stream.arn
    state, newest = max(captures, key=lambda each: each[1][-1].started_at)
    before = max((each.started_at for _, lineages in captures for each in lineages if each.stream != arn), default=0.0)

    def goes_on(lineages: Sequence[LogLineage]) -> bool:
        return lineages[-1].stream == arn and lineages[-1].started_at >= before

    own = next((lineages for each, lineages in captures if each.job_id == found.job_id), None)
    if options.job_id is None and (own is None or not goes_on(own)):
        found, own = dataclasses.replace(found, job_id=state.job_id), newest
    if state.job_id != found.job_id and not goes_on(newest if own is None else own):
        raise OptionError(
            f"capture {state.job_id!r} of {store.uri} has read {newest[-1].stream}, another stream of table "
            f"{found.table.name!r}, and goes on with {arn}. Leave job_id out, or give that one"
        )
    if own is None:
        return found
    # Older versions made a capture of its own for each stream.
    others = (each for each, lineages in captures if each.job_id != found.job_id and lineages[-1].stream == arn)
    is_read = any(each.stream == arn for each in own)
    return dataclasses.replace(found, first=own[0].stream, other=None if is_read else next(others, None))


# Assumed: a file is put, and its batch is recorded.
_WRITES_A_FILE = 2
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Spending:
    """Price what captures have read and written; sampling the table for its columns is not counted."""

    options: CaptureOptions
    loops: Sequence[CaptureLoop]
    prices: Prices

    def figures(self, seconds: float) -> Figures:
        """Return what was taken so far."""
        options, loops = self.options, self.loops
        size = sum(each.read_bytes for each in loops)
        parts: list[Part] = [
            STREAM_KINDS[options.source].read_cost(sum(each.reads for each in loops), size),
            *compute_parts(options.compute, seconds),
        ]
        if is_s3(options.dest):
            parts.append(("S3 writes", "s3_writes", _WRITES_A_FILE * sum(each.log.files for each in loops)))
        return Figures(0.0, seconds, size, self.prices.cost(parts).usd)

    def exceeded(self, seconds: float) -> bool:
        """Return whether more than a tenth above the limit is spent."""
        if self.options.max_usd is None:
            return False
        return (self.figures(seconds).usd or 0.0) > STOP_RATIO * self.options.max_usd


class BoundedStop(threading.Event):
    """Be set when another event is, after so many seconds, or when something is exceeded: looked at now and then.

    Parameters
    ----------
    exceeded
        Takes the seconds since this was made.
    """

    def __init__(self, stop: threading.Event, seconds: float | None, exceeded: Callable[[float], bool]) -> None:
        super().__init__()
        self._stop, self._seconds, self._exceeded = stop, math.inf if seconds is None else seconds, exceeded
        self._began_at = self._looked_at = time.monotonic()

    def is_set(self) -> bool:
        """Return whether it is time to stop."""
        if super().is_set() or self._stop.is_set():
            return True
        now = time.monotonic()
        is_over = now - self._began_at >= self._seconds
        if not is_over and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            is_over = self._exceeded(now - self._began_at)
        if is_over:
            self.set()
        return is_over

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for as long, or until it is set."""
        left = self._seconds - (time.monotonic() - self._began_at)
        self._stop.wait(max(0.0, min(_LOOK_SECONDS if timeout is None else timeout, left)))
        return self.is_set()


_LOG = logging.getLogger("ddbio.capture")
# A capture on another machine takes over after so long.
_LEASE_SECONDS = 30.0
# Of small records not more are gathered than of this size.
_RECORD_BYTES = 335


@dataclass(frozen=True, kw_only=True)
class CaptureReport(PlannedReport):
    """What a capture wrote.

    Attributes
    ----------
    table
        The table whose changes were captured.
    dest
        The folder of the log.
    job_id
        The capture; under the same one it goes on where it stopped.
    records
        Changes that this run wrote.
    files
        Files that this run wrote.
    batches
        Batches that this and all earlier runs wrote.
    lag_seconds
        How old what was not written yet could be when the last batch was written.
    gaps
        Places at which changes were gone, or where another stream of the table followed, with ``on_gap=continue``.
    foreign
        Records of a data stream that are of other tables, or no changes at all: they are left out.
    planned
        The time after which it ends, if one was given; what changes there will be is not known before.
    actual
        Seconds, bytes of records and USD of reading the stream and writing files.
    """

    table: str
    dest: str
    job_id: str
    records: int
    files: int
    batches: int
    lag_seconds: float
    gaps: tuple[str, ...]
    foreign: int = 0


def capture(options: CaptureOptions, stop: threading.Event | None = None) -> CaptureReport:
    """Write every change of a table once into a log of Parquet files; go on where the last run stopped.

    Parameters
    ----------
    stop
        Set it, from another thread, to end the capture when its batch is written.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream; if the log belongs to another table, also to one of the same
        name that was deleted.
    GapError
        If changes were gone before they were read, or the table has another stream than in the last run: what was
        changed between the two streams is in neither.
    TargetError
        If another process captures under this job id.
    LimitError
        If it costs more than a tenth above ``max_usd``; what it has captured is written.
    """
    clock, loops = Clock(), list[CaptureLoop]()
    spending = Spending(options, loops, prices_of(options.region, options.prices))
    planned = Figures(0.0, options.max_seconds)
    _LOG.info("capture of %s to %s: planned: %s", options.table, options.dest, planned)
    stop = BoundedStop(stop or threading.Event(), options.max_seconds, spending.exceeded)
    if options.leases > 1:
        table, job_id = _capture_parts(options, stop, loops)
    else:
        with open_capture(options, stop) as opened:
            loops += [*opened.drained, opened.loop]
            opened.loop.run(available_now=options.available_now)
        table, job_id = opened.table, opened.job_id
    actual = spending.figures(round(clock.seconds(), 3))
    if spending.exceeded(clock.seconds()):
        raise LimitError(
            f"capture {job_id} was stopped: it costs ${actual.usd:,.4g}, more than a tenth above max_usd "
            f"{options.max_usd:g}; what it has captured is written, and it goes on when it is run again"
        )
    return CaptureReport(
        table=table,
        dest=options.dest,
        job_id=job_id,
        records=sum(each.log.records for each in loops),
        files=sum(each.log.files for each in loops),
        batches=sum({each.log.job_id: each.log.number for each in loops}.values()),
        lag_seconds=round(max((each.lag_seconds for each in loops), default=0.0), 3),
        gaps=tuple(itertools.chain.from_iterable(each.gaps for each in loops)),
        **clock.times(),
        planned=planned,
        actual=actual,
        foreign=sum(each.log.foreign for each in loops),
    )


@dataclass(frozen=True)
class OpenCapture:
    """Hold a capture that goes on where the last run stopped.

    Attributes
    ----------
    drained
        The loops that have read older streams of the table to their end before.
    """

    table: str
    job_id: str
    loop: CaptureLoop
    drained: tuple[CaptureLoop, ...] = ()


@contextlib.contextmanager
def open_capture(options: CaptureOptions, stop: threading.Event) -> Iterator[OpenCapture]:
    """Claim a capture and open its stream; errors are those of :func:`capture`."""
    found = find_stream(options)
    state, begun = _begin(options, found)
    claim = Claim(state.store, found.job_id, "append", lease_seconds=_LEASE_SECONDS)
    with claim.held(), _Opening(options, found, state, state, begun, stop).opened() as opened:
        yield opened


@dataclass
class _Opening:
    """Open the stream that a table has now; read those that it had before to their end first.

    Attributes
    ----------
    state, shared
        The state of what is captured here, and that of the whole capture.
    lease
        The part of the shards that is captured here; None for all.
    """

    options: CaptureOptions
    found: FoundStream
    state: JobState
    shared: JobState
    begun: Mapping[str, Any]
    stop: threading.Event
    lease: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenCapture]:
        lineages, drained = lineages_of(self.shared), list[CaptureLoop]()
        for each in lineages if self.lease is not None else ():
            keep_lineage(self.state, each)
        for place in range(max(1, lineage_number(BatchRecords(self.state).last())) - 1, len(lineages)):
            if place == len(lineages) - 1 and lineages[-1].stream == self.found.stream.arn:
                break
            drained += self._drained(lineages[place])
            if self.stop.is_set() and drained:
                yield OpenCapture(self.found.table.name, self.found.job_id, drained.pop(), tuple(drained))
                return
        if lineages[-1].stream != self.found.stream.arn:
            keep_lineage(self.shared, self._next(lineages))
            lineages = lineages_of(self.shared)
            keep_lineage(self.state, lineages[-1])
        stream = self.found.stream
        with contextlib.closing(stream.kind.open(self.found.spec, stream.arn, self.options.fan_out)) as source:
            loop = self._loop(source, lineages[-1])
            self._resume(loop, lineages[-1])
            yield OpenCapture(self.found.table.name, self.found.job_id, loop, tuple(drained))

    def _drained(self, lineage: LogLineage) -> list[CaptureLoop]:
        """Read a stream that the table had before to its end, if it is there: DynamoDB keeps it for a day."""
        stream, kind = self.found.stream, self.found.stream.kind
        if kind.is_of_table and lineage.table_arn != stream.table_arn:
            # Another endpoint has the stream of a replica.
            return []
        try:
            with contextlib.closing(kind.open(self.found.spec, lineage.stream)) as source:
                loop = self._loop(source, lineage)
                loop.is_last = kind.is_of_table
                self._resume(loop, lineage)
                loop.run(available_now=True)
        except NotFoundError:
            _LOG.warning("%s cannot be read any more, or not by this endpoint", lineage.stream)
            return []
        return [loop]

    def _next(self, lineages: Sequence[LogLineage]) -> LogLineage:
        """Return the lineage of a stream that follows another one; refuse changes that are lost between the two."""
        stream, last, now = self.found.stream, lineages[-1], time.time()
        is_known = any(each.stream == stream.arn for each in lineages) or self.found.other is not None
        gap = gap_between(last, stream, last_change(self.state), now, is_known=is_known)
        if gap is not None and self.options.on_gap != "continue":
            raise gap_error(self.shared.store.uri, last, stream)
        _LOG.warning("%s: %s follows %s", self.shared.store.uri, stream.arn, last.stream)
        number = last.number + 1
        name = f"{stream.arn}#{number}" if is_known else stream.arn
        ids = stream.arn, stream.table_arn, stream.table_id
        return LogLineage(last.job_id, number, *ids, max(now, stream.began_at or 0.0), name, gap)

    def _loop(self, source: StreamSource, lineage: LogLineage) -> CaptureLoop:
        log = _log(self.options, self.found, self.state, self.shared, lineage.number)
        sharing = None
        if self.lease is not None:
            records = functools.partial(records_of, self.state.store, self.found.job_id)
            sharing = LeasedShards(source, self.lease, self.options.leases, records, time.time, lineage.number)
        size_bytes = int(self.options.flush_bytes)
        return CaptureLoop(
            source,
            log,
            Limits(self.options.flush_seconds, max(1, size_bytes // _RECORD_BYTES), size_bytes),
            Timing(time.time, self.stop.wait, self.stop.is_set),
            started_at=float(self.begun["started_at"]),
            goes_on=self.options.on_gap == "continue",
            sharing=sharing,
        )

    def _resume(self, loop: CaptureLoop, lineage: LogLineage) -> None:
        last, start = BatchRecords(self.state).last(), self.options.start
        left = dict[str, Any]()
        if lineage.number > 1:
            start, left = "trim-horizon", left_before(self.state, lineage.number)
        if lineage.number > 1 and lineage_number(last) < lineage.number:
            left = self._left(last)
            keep_left(self.state, lineage, left)
        known = left.get(lineage.stream)
        if known is not None and time.time() - known["at"] >= loop.source.keeps_seconds:
            known = None
        # Of processes that share a stream, one notes what is missing.
        gaps = [lineage.gap] if lineage.gap is not None and not self.lease else []
        positions = None if known is None else known["positions"]
        at = 0.0 if lineage.number == 1 else lineage.started_at
        loop.resume(start, _declared(self.options, self.found), left=positions, gaps=gaps, not_before=at)

    def _left(self, last: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return where each stream was left that was read before."""
        found = dict[str, Any]()
        if self.found.other is not None:
            other = BatchRecords(self.found.other).last() or {}
            found[self.found.stream.arn] = {"positions": other.get("positions", {}), "at": 0.0}
        if last is not None:
            before = lineages_of(self.state)[lineage_number(last) - 1]
            found |= left_before(self.state, before.number)
            found[before.stream] = {"positions": last["positions"], "at": last.get("at", 0.0)}
        return found


def _declared(options: CaptureOptions, found: FoundStream) -> pa.Schema | None:
    return None if options.schema is None else item_schema(arrow_schema_of(options.schema), found.keys)


def _capture_parts(options: CaptureOptions, stop: threading.Event, loops: list[CaptureLoop]) -> tuple[str, str]:
    """Capture beside other processes, and add the captures of the leases held here; return the table and the job id."""
    found = find_stream(options)
    shared, begun = _begin(options, found, LEASES, {"leases": options.leases})
    store = shared.store

    @contextlib.contextmanager
    def open_part(lease: int, stop: threading.Event) -> Iterator[CaptureLoop]:
        part = dataclasses.replace(found, job_id=part_id(found.job_id, lease))
        state, _ = _begin(options, part, CAPTURE, {"lease": lease, "leases": options.leases})
        claim = Claim(store, part.job_id, "append", lease_seconds=_LEASE_SECONDS)
        claim.write()
        with claim.renewed(), _Opening(options, found, state, shared, begun, stop, lease).opened() as opened:
            loops.extend(opened.drained)
            yield opened.loop
        claim.release()

    parts = Parts(Leases(shared, options.leases), open_part, available_now=options.available_now, loops=loops)
    parts.run(stop)
    return found.table.name, found.job_id


def prepare_capture(options: CaptureOptions) -> str:
    """Begin a capture if it is new, decide its columns, and return its job id; errors are those of :func:`capture`."""
    found = find_stream(options)
    state, _ = _begin(options, found)
    log = _log(options, found, state)
    if (schema := _declared(options, found)) is not None:
        log.declare(schema)
    log.choose_columns(b"")
    return found.job_id


def begun_with(store: ObjectStore) -> dict[str, str]:
    """Return the options by which a capture goes on with a log as it was begun, for who has no such options."""
    heads = [head for each in jobs_in(store, CAPTURE) if "start" in (head := each.head() or {})]
    if not heads:
        return {}
    head = max(heads, key=lambda each: float(each["started_at"]))
    kind = kind_of_job(head)
    return {"start": head["start"], "source": kind.name} | ({} if kind.is_of_table else {"stream": head["stream"]})


def _begin(
    options: CaptureOptions, found: FoundStream, kind: str = CAPTURE, part: Mapping[str, int] | None = None
) -> tuple[JobState, Mapping[str, Any]]:
    """Return the state of the capture, and what it was begun with."""
    store, stream = open_store(options.dest, options), found.stream
    require_target(store)
    state = JobState(store, found.job_id, kind)
    fixed = fixed_options(options, without=("table", "dest", "source", "stream"))
    identity: dict[str, Any] = {"stream": found.first, **fixed}
    identity |= part or {}
    if not stream.kind.is_of_table:
        identity["table"] = found.table.name
    begun = state.begin_as(identity, {"old_image": options.old_image, "started_at": time.time()})
    if options.old_image:
        turn_on_old_images(state)
    if part is None or kind == LEASES:
        # Older versions did not store the id of the table.
        is_first = stream.arn == found.first or not stream.kind.is_of_table
        ids = (stream.table_arn, stream.table_id) if is_first else (table_arn_of(found.first), "")
        first = LogLineage(found.job_id, 1, found.first, *ids, float(begun["started_at"]), found.first)
        keep_lineage(state, first)
    return state, begun


def _log(
    options: CaptureOptions, found: FoundStream, state: JobState, shared: JobState | None = None, lineage: int = 1
) -> ChangeLog:
    shared = None if shared is state else shared

    def infer(body: bytes) -> pa.Schema:
        stored = None if shared is None else read_columns(shared)
        if stored is not None:
            return stored.schema
        is_free = options.types is None and options.numbers == "exact"
        known = columns_in(state.store, found.keys) if is_free else None
        schema = _columns(found.table, options, body) if known is None else known
        return schema if shared is None else keep_columns(shared, Columns(schema, ())).schema

    log = ChangeLog(
        BatchRecords(state),
        found.stream,
        found.keys,
        infer,
        old_image=any(map(has_old_images, filter(None, (state, shared)))),
        compression=options.compression,
    )
    log.lineage = lineage
    return log


def _columns(table: TableDescription, options: CaptureOptions, body: bytes) -> pa.Schema:
    """Return the columns that a sample of the table and the first changes show."""
    wanted = {name: getattr(options, name) for name in ("numbers", "types", "sample_items")}
    scan = parse_options(ScanOptions, {**connection_of(options), **wanted, "table": table.name})
    sampled = observe_table(table, scan, LocalBudget(budget_of(table, scan)))
    keys = {name for name, _ in table.key_types}
    if not body and not set(sampled.to_arrow().names) - keys - {RESCUE_NAME}:
        raise OptionError(f"table {table.name!r} has no items that show its columns yet: give schema")
    schema = (sampled.merge(infer_schema_of_body(body)) if body else sampled).to_arrow()
    return item_schema(schema, [name for name, _ in table.key_types])
