"""Capture of the changes of a table: finding its stream, resuming after the last run, writing the log, and cost."""

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
    left_positions_before,
    lineage_number,
    lineages_of,
    require_table,
    store_left_positions,
    store_lineage,
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
class CaptureTarget:
    """The stream of a table, and the capture that reads it.

    Attributes
    ----------
    first
        The ARN of the stream that the capture started with.
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
        """Key attributes of the table."""
        return tuple(name for name, _ in self.table.key_types)


def find_stream(options: CaptureOptions) -> CaptureTarget:
    """Return the current stream of a table, and the capture of the log that reads it.

    Raises
    ------
    NotFoundError
        If the table does not exist.
    OptionError
        If the table has no stream with the images that a log needs, or the log belongs to another table.
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
        regions=frozenset(replica["RegionName"] for replica in described.get("Replicas", [])),
    )
    identity = arn if kind.is_of_table else f"{arn} {table.name}"
    job_id = options.job_id or f"capture_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    return _of_log(options, CaptureTarget(spec, table, stream, job_id, arn), open_store(options.dest, options))


def _captures_of(target: CaptureTarget, store: ObjectStore, kind: str) -> list[tuple[JobState, list[LogLineage]]]:
    """Return the captures of a log with the streams that each has read. Raises if the log belongs to another table."""
    captures = list[tuple[JobState, list[LogLineage]]]()
    for state in (state for one in (CAPTURE, LEASES, HANDLER) for state in jobs_in(store, one)):
        head = state.head() or {}
        if HEALS in head or "lease" in head:
            continue
        lineages = lineages_of(state)
        require_table(store.uri, target.stream, lineages, table_of_job(head))
        if state.kind == HANDLER or kind_of_job(head) is not target.stream.kind:
            continue
        if state.kind == kind:
            captures.append((state, lineages))
        elif lineages[-1].stream != target.stream.arn:
            raise OptionError(
                f"capture {state.job_id!r} of {store.uri} has read {lineages[-1].stream}, and only it can resume "
                f"{target.stream.arn}: give leases={head.get('leases', 1)}"
            )
    return captures


def _of_log(options: CaptureOptions, target: CaptureTarget, store: ObjectStore) -> CaptureTarget:
    """Return the target with the capture of the log to resume. Raises if the log belongs to another table."""
    captures = _captures_of(target, store, LEASES if options.leases > 1 else CAPTURE)
    if not captures:
        return target
    arn = target.stream.arn
    state, newest = max(captures, key=lambda state_and_lineages: state_and_lineages[1][-1].started_at)
    before = max(
        (lineage.started_at for _, lineages in captures for lineage in lineages if lineage.stream != arn), default=0.0
    )

    def is_resumable(lineages: Sequence[LogLineage]) -> bool:
        return lineages[-1].stream == arn and lineages[-1].started_at >= before

    own = next((lineages for state, lineages in captures if state.job_id == target.job_id), None)
    if options.job_id is None and (own is None or not is_resumable(own)):
        target, own = dataclasses.replace(target, job_id=state.job_id), newest
    if state.job_id != target.job_id and not is_resumable(newest if own is None else own):
        raise OptionError(
            f"capture {state.job_id!r} of {store.uri} has read {newest[-1].stream}, another stream of table "
            f"{target.table.name!r}, and resumes with {arn}. Leave job_id out, or use that one"
        )
    if own is None:
        return target
    # Older versions used a separate capture for each stream.
    others = (state for state, lineages in captures if state.job_id != target.job_id and lineages[-1].stream == arn)
    is_read = any(lineage.stream == arn for lineage in own)
    return dataclasses.replace(target, first=own[0].stream, other=None if is_read else next(others, None))


# Assumption: one request writes the file, and one records its batch.
_WRITES_A_FILE = 2
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Spending:
    """Cost of what captures have read and written. Sampling the table for its columns is not included."""

    options: CaptureOptions
    loops: Sequence[CaptureLoop]
    prices: Prices

    def figures(self, seconds: float) -> Figures:
        """Return the consumption so far."""
        options, loops = self.options, self.loops
        size = sum(loop.read_bytes for loop in loops)
        parts: list[Part] = [
            STREAM_KINDS[options.source].read_cost(sum(loop.reads for loop in loops), size),
            *compute_parts(options.compute, seconds),
        ]
        if is_s3(options.dest):
            parts.append(("S3 writes", "s3_writes", _WRITES_A_FILE * sum(loop.log.files for loop in loops)))
        return Figures(0.0, seconds, size, self.prices.cost(parts).usd)

    def exceeded(self, seconds: float) -> bool:
        """Return whether the cost exceeds the limit by more than 10 %."""
        if self.options.max_usd is None:
            return False
        return (self.figures(seconds).usd or 0.0) > STOP_RATIO * self.options.max_usd


class BoundedStop(threading.Event):
    """Event that is also set when another event is set, after a number of seconds, or when a limit is exceeded.

    These conditions are checked about once per second.

    Parameters
    ----------
    stop
        The other event.
    seconds
        The seconds until the event is set; None for no limit of time.
    exceeded
        Returns whether a limit is exceeded. Its argument is the number of seconds since this event was created.
    """

    def __init__(self, stop: threading.Event, seconds: float | None, exceeded: Callable[[float], bool]) -> None:
        super().__init__()
        self._stop, self._seconds, self._exceeded = stop, math.inf if seconds is None else seconds, exceeded
        self._began_at = self._looked_at = time.monotonic()

    def is_set(self) -> bool:
        """Return whether to stop."""
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
        """Wait until the timeout has passed, or until the event is set."""
        remaining_seconds = self._seconds - (time.monotonic() - self._began_at)
        self._stop.wait(max(0.0, min(_LOOK_SECONDS if timeout is None else timeout, remaining_seconds)))
        return self.is_set()


_LOG = logging.getLogger("ddbio.capture")
# A capture on another machine takes over after this time.
_LEASE_SECONDS = 30.0
# Assumed size of a record, to limit the number of records in a batch.
_RECORD_BYTES = 335


@dataclass(frozen=True, kw_only=True)
class CaptureReport(PlannedReport):
    """Result of a capture.

    Attributes
    ----------
    table
        The table whose changes were captured.
    dest
        The folder of the log.
    job_id
        The id of the capture. A capture with the same id resumes where this one stopped.
    records
        Changes that this run wrote.
    files
        Files that this run wrote.
    batches
        Batches that this run and all earlier runs wrote.
    lag_seconds
        The maximum age of unwritten changes when the last batch was written.
    gaps
        Positions at which changes were lost, or where another stream of the table followed, with ``on_gap=continue``.
    foreign
        Records of a data stream that belong to other tables, or are not changes. They are left out.
    planned
        The time after which the capture ends, if one was given. The number of changes is not known in advance.
    actual
        Seconds, bytes of records, and USD for reading the stream and writing files.
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
    """Write every change of a table once into a log of Parquet files.

    A later run resumes where the last one stopped.

    Parameters
    ----------
    stop
        Set it from another thread to end the capture after its current batch.

    Raises
    ------
    NotFoundError, OptionError
        If the table does not exist, or it has no stream; if the log belongs to another table, or to a deleted table
        with the same name.
    GapError
        If changes were trimmed before they were read, or the table has another stream than in the last run. The changes
        between two streams are in neither of them.
    TargetError
        If another process captures under this job id.
    LimitError
        If the cost exceeds ``max_usd`` by more than 10 %. The captured changes are written.
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
            f"capture {job_id} was stopped: it costs ${actual.usd:,.4g}, more than 10 % above max_usd "
            f"{options.max_usd:g}. The captured changes are written, and the next run resumes here"
        )
    return CaptureReport(
        table=table,
        dest=options.dest,
        job_id=job_id,
        records=sum(loop.log.records for loop in loops),
        files=sum(loop.log.files for loop in loops),
        batches=sum({loop.log.job_id: loop.log.number for loop in loops}.values()),
        lag_seconds=round(max((loop.lag_seconds for loop in loops), default=0.0), 3),
        gaps=tuple(itertools.chain.from_iterable(loop.gaps for loop in loops)),
        **clock.times(),
        planned=planned,
        actual=actual,
        foreign=sum(loop.log.foreign for loop in loops),
    )


@dataclass(frozen=True)
class OpenCapture:
    """A capture that resumes where the last run stopped.

    Attributes
    ----------
    drained
        The loops that have read older streams of the table to their end.
    """

    table: str
    job_id: str
    loop: CaptureLoop
    drained: tuple[CaptureLoop, ...] = ()


@contextlib.contextmanager
def open_capture(options: CaptureOptions, stop: threading.Event) -> Iterator[OpenCapture]:
    """Claim a capture and open its stream. Errors are those of :func:`capture`."""
    target = find_stream(options)
    state, begun = _begin(options, target)
    claim = Claim(state.store, target.job_id, "append", lease_seconds=_LEASE_SECONDS)
    with claim.held(), _Opening(options, target, state, state, begun, stop).opened() as opened:
        yield opened


@dataclass
class _Opening:
    """Opening of the current stream of a table, after the earlier streams were read to their end.

    Attributes
    ----------
    state, shared
        The state of the part that is captured here, and the state of the whole capture.
    lease
        The lease of the shards that are captured here; None for all shards.
    """

    options: CaptureOptions
    target: CaptureTarget
    state: JobState
    shared: JobState
    begun: Mapping[str, Any]
    stop: threading.Event
    lease: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenCapture]:
        lineages, drained = lineages_of(self.shared), list[CaptureLoop]()
        for lineage in lineages if self.lease is not None else ():
            store_lineage(self.state, lineage)
        for index in range(max(1, lineage_number(BatchRecords(self.state).last())) - 1, len(lineages)):
            if index == len(lineages) - 1 and lineages[-1].stream == self.target.stream.arn:
                break
            drained += self._drained(lineages[index])
            if self.stop.is_set() and drained:
                yield OpenCapture(self.target.table.name, self.target.job_id, drained.pop(), tuple(drained))
                return
        if lineages[-1].stream != self.target.stream.arn:
            store_lineage(self.shared, self._next(lineages))
            lineages = lineages_of(self.shared)
            store_lineage(self.state, lineages[-1])
        stream = self.target.stream
        with contextlib.closing(stream.kind.open(self.target.spec, stream.arn, self.options.fan_out)) as source:
            loop = self._loop(source, lineages[-1])
            self._resume(loop, lineages[-1])
            yield OpenCapture(self.target.table.name, self.target.job_id, loop, tuple(drained))

    def _drained(self, lineage: LogLineage) -> list[CaptureLoop]:
        """Read an earlier stream of the table to its end, if it still exists. DynamoDB keeps it for one day."""
        stream, kind = self.target.stream, self.target.stream.kind
        if kind.is_of_table and lineage.table_arn != stream.table_arn:
            # The stream of a replica is at another endpoint.
            return []
        try:
            with contextlib.closing(kind.open(self.target.spec, lineage.stream)) as source:
                loop = self._loop(source, lineage)
                loop.is_last = kind.is_of_table
                self._resume(loop, lineage)
                loop.run(available_now=True)
        except NotFoundError:
            _LOG.warning("%s cannot be read any more, or not at this endpoint", lineage.stream)
            return []
        return [loop]

    def _next(self, lineages: Sequence[LogLineage]) -> LogLineage:
        """Return the lineage of the stream that follows the last one. Raises if changes between the two are lost."""
        stream, last, now = self.target.stream, lineages[-1], time.time()
        is_known = any(lineage.stream == stream.arn for lineage in lineages) or self.target.other is not None
        gap = gap_between(last, stream, last_change(self.state), now, is_known=is_known)
        if gap is not None and self.options.on_gap != "continue":
            raise gap_error(self.shared.store.uri, last, stream)
        _LOG.warning("%s: %s follows %s", self.shared.store.uri, stream.arn, last.stream)
        number = last.number + 1
        name = f"{stream.arn}#{number}" if is_known else stream.arn
        ids = stream.arn, stream.table_arn, stream.table_id
        return LogLineage(last.job_id, number, *ids, max(now, stream.began_at or 0.0), name, gap)

    def _loop(self, source: StreamSource, lineage: LogLineage) -> CaptureLoop:
        log = _log(self.options, self.target, self.state, self.shared, lineage.number)
        sharing = None
        if self.lease is not None:
            records = functools.partial(records_of, self.state.store, self.target.job_id)
            sharing = LeasedShards(source, self.lease, self.options.leases, records, time.time, lineage.number)
        size_bytes = int(self.options.flush_bytes)
        return CaptureLoop(
            source,
            log,
            Limits(self.options.flush_seconds, max(1, size_bytes // _RECORD_BYTES), size_bytes),
            Timing(time.time, self.stop.wait, self.stop.is_set),
            started_at=float(self.begun["started_at"]),
            continues_after_gaps=self.options.on_gap == "continue",
            sharing=sharing,
        )

    def _resume(self, loop: CaptureLoop, lineage: LogLineage) -> None:
        last, start = BatchRecords(self.state).last(), self.options.start
        left_positions = dict[str, Any]()
        if lineage.number > 1:
            start, left_positions = "trim-horizon", left_positions_before(self.state, lineage.number)
        if lineage.number > 1 and lineage_number(last) < lineage.number:
            left_positions = self._left(last)
            store_left_positions(self.state, lineage, left_positions)
        left_here = left_positions.get(lineage.stream)
        if left_here is not None and time.time() - left_here["at"] >= loop.source.keeps_seconds:
            left_here = None
        # Only one of the processes that share a stream records the gap.
        gaps = [lineage.gap] if lineage.gap is not None and not self.lease else []
        positions = None if left_here is None else left_here["positions"]
        at = 0.0 if lineage.number == 1 else lineage.started_at
        loop.resume(start, _declared(self.options, self.target), positions=positions, gaps=gaps, not_before=at)

    def _left(self, last: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the last positions in each earlier stream."""
        positions = dict[str, Any]()
        if self.target.other is not None:
            other = BatchRecords(self.target.other).last() or {}
            positions[self.target.stream.arn] = {"positions": other.get("positions", {}), "at": 0.0}
        if last is not None:
            before = lineages_of(self.state)[lineage_number(last) - 1]
            positions |= left_positions_before(self.state, before.number)
            positions[before.stream] = {"positions": last["positions"], "at": last.get("at", 0.0)}
        return positions


def _declared(options: CaptureOptions, target: CaptureTarget) -> pa.Schema | None:
    return None if options.schema is None else item_schema(arrow_schema_of(options.schema), target.keys)


def _capture_parts(options: CaptureOptions, stop: threading.Event, loops: list[CaptureLoop]) -> tuple[str, str]:
    """Capture in parallel with other processes. Return the table and the job id.

    The captures of the leases that this process holds are added to ``loops``.
    """
    target = find_stream(options)
    shared, begun = _begin(options, target, LEASES, {"leases": options.leases})
    store = shared.store

    @contextlib.contextmanager
    def open_part(lease: int, stop: threading.Event) -> Iterator[CaptureLoop]:
        part = dataclasses.replace(target, job_id=part_id(target.job_id, lease))
        state, _ = _begin(options, part, CAPTURE, {"lease": lease, "leases": options.leases})
        claim = Claim(store, part.job_id, "append", lease_seconds=_LEASE_SECONDS)
        claim.write()
        with claim.renewed(), _Opening(options, target, state, shared, begun, stop, lease).opened() as opened:
            loops.extend(opened.drained)
            yield opened.loop
        claim.release()

    parts = Parts(Leases(shared, options.leases), open_part, available_now=options.available_now, loops=loops)
    parts.run(stop)
    return target.table.name, target.job_id


def prepare_capture(options: CaptureOptions) -> str:
    """Start a capture if it is new, store its columns, and return its job id. Errors are those of :func:`capture`."""
    target = find_stream(options)
    state, _ = _begin(options, target)
    log = _log(options, target, state)
    if (schema := _declared(options, target)) is not None:
        log.declare(schema)
    log.choose_columns(b"")
    return target.job_id


def options_of_capture(store: ObjectStore) -> dict[str, str]:
    """Return the options with which a capture of a log was started, for callers without these options."""
    heads = [head for job in jobs_in(store, CAPTURE) if "start" in (head := job.head() or {})]
    if not heads:
        return {}
    head = max(heads, key=lambda candidate: float(candidate["started_at"]))
    kind = kind_of_job(head)
    return {"start": head["start"], "source": kind.name} | ({} if kind.is_of_table else {"stream": head["stream"]})


def _begin(
    options: CaptureOptions, target: CaptureTarget, kind: str = CAPTURE, part: Mapping[str, int] | None = None
) -> tuple[JobState, Mapping[str, Any]]:
    """Return the state of the capture, and the head that was stored when it started."""
    store, stream = open_store(options.dest, options), target.stream
    require_target(store)
    state = JobState(store, target.job_id, kind)
    fixed = fixed_options(options, without=("table", "dest", "source", "stream"))
    identity: dict[str, Any] = {"stream": target.first, **fixed}
    identity |= part or {}
    if not stream.kind.is_of_table:
        identity["table"] = target.table.name
    begun = state.start_as(identity, {"old_image": options.old_image, "started_at": time.time()})
    if options.old_image:
        turn_on_old_images(state)
    if part is None or kind == LEASES:
        # Older versions did not store the id of the table.
        is_first = stream.arn == target.first or not stream.kind.is_of_table
        ids = (stream.table_arn, stream.table_id) if is_first else (table_arn_of(target.first), "")
        first = LogLineage(target.job_id, 1, target.first, *ids, float(begun["started_at"]), target.first)
        store_lineage(state, first)
    return state, begun


def _log(
    options: CaptureOptions, target: CaptureTarget, state: JobState, shared: JobState | None = None, lineage: int = 1
) -> ChangeLog:
    shared = None if shared is state else shared

    def infer(body: bytes) -> pa.Schema:
        stored = None if shared is None else read_columns(shared)
        if stored is not None:
            return stored.schema
        is_free = options.types is None and options.numbers == "exact"
        columns = columns_in(state.store, target.keys) if is_free else None
        schema = _columns(target.table, options, body) if columns is None else columns
        return schema if shared is None else keep_columns(shared, Columns(schema, ())).schema

    log = ChangeLog(
        BatchRecords(state),
        target.stream,
        target.keys,
        infer,
        old_image=any(map(has_old_images, filter(None, (state, shared)))),
        compression=options.compression,
    )
    log.lineage = lineage
    return log


def _columns(table: TableDescription, options: CaptureOptions, body: bytes) -> pa.Schema:
    """Return the columns inferred from a sample of the table and the first changes."""
    scan_fields = {name: getattr(options, name) for name in ("numbers", "types", "sample_items")}
    scan = parse_options(ScanOptions, {**connection_of(options), **scan_fields, "table": table.name})
    sampled = observe_table(table, scan, LocalBudget(budget_of(table, scan)))
    keys = {name for name, _ in table.key_types}
    if not body and not set(sampled.to_arrow().names) - keys - {RESCUE_NAME}:
        raise OptionError(f"table {table.name!r} has no items that show its columns yet: give schema")
    schema = (sampled.merge(infer_schema_of_body(body)) if body else sampled).to_arrow()
    return item_schema(schema, [name for name, _ in table.key_types])
