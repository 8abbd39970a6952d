"""Capture the changes of a table: find its stream, go on where the last run stopped, write the log."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.aws.change_streams import StreamSource, stream_of
from ddbio.aws.control_plane import describe_table
from ddbio.aws.fan_out import FanOutSource
from ddbio.aws.kinesis_streams import KinesisSource, data_stream_of
from ddbio.budget import LocalBudget
from ddbio.core.items.decode import infer_schema_of_body
from ddbio.core.planning.estimate import Figures
from ddbio.core.scans.plan import budget_of
from ddbio.core.schema.arrow import RESCUE_NAME
from ddbio.core.schema.file import schema_from_json, schema_to_json
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.errors import LimitError, OptionError
from ddbio.files.claim import Claim
from ddbio.files.contents import require_target
from ddbio.files.job_state import JobState, require_same
from ddbio.ops.capture.batch_records import BatchRecords
from ddbio.ops.capture.batches import CAPTURE, COLUMNS, ChangeLog
from ddbio.ops.capture.leases import LEASES, LeasedSource, Leases, part_id, records_of
from ddbio.ops.capture.loop import CaptureLoop, Limits, Timing
from ddbio.ops.capture.processes import Parts
from ddbio.ops.capture.spending import BoundedStop, Spending
from ddbio.ops.job.clients import dynamodb_spec
from ddbio.ops.job.report import Clock, Report
from ddbio.ops.job.storage import open_store
from ddbio.ops.scans.plan import observe_table
from ddbio.options import ScanOptions, connection_of, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.core.capture.shards import ChangeSource
    from ddbio.core.table_description import TableDescription
    from ddbio.options import CaptureOptions

_LOG = logging.getLogger("ddbio.capture")
# A capture on another machine takes over after so long.
_LEASE_SECONDS = 30.0
# Of small records not more are gathered than of this size.
_RECORD_BYTES = 335


@dataclass(frozen=True)
class CaptureReport(Report):
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
        Places at which changes were gone, with ``on_gap=continue``.
    foreign
        Records of a data stream that are of other tables, or no changes at all: they are left out.
    seconds
        Wall time from the verb's start.
    cpu_seconds
        User + system seconds of this process.
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
    seconds: float
    cpu_seconds: float
    planned: Figures | None = None
    actual: Figures | None = None
    foreign: int = 0


def capture(options: CaptureOptions, stop: threading.Event | None = None) -> CaptureReport:
    """Write the changes of a table into a log until ``stop`` is set, or until all that are there are written.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream; if the job was begun for another one.
    GapError
        If changes were gone before they were read.
    TargetError
        If another process captures under this job id.
    LimitError
        If it costs more than a tenth above ``max_usd``; what it has captured is written.
    """
    clock, loops = Clock(), list[CaptureLoop]()
    spending = Spending.of(options, loops)
    planned = Figures(0.0, options.max_seconds)
    _LOG.info("capture of %s to %s: planned: %s", options.table, options.dest, planned)
    stop = BoundedStop(stop or threading.Event(), options.max_seconds, spending.exceeded)
    if options.leases > 1:
        table, job_id = _capture_parts(options, stop, loops)
    else:
        with open_capture(options, stop) as opened:
            loops.append(opened.loop)
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
        seconds=clock.seconds(),
        cpu_seconds=clock.cpu_seconds(),
        planned=planned,
        actual=actual,
        foreign=sum(each.log.foreign for each in loops),
    )


@dataclass(frozen=True)
class OpenCapture:
    """Hold a capture that goes on where the last run stopped."""

    table: str
    job_id: str
    loop: CaptureLoop


@contextlib.contextmanager
def open_capture(options: CaptureOptions, stop: threading.Event) -> Iterator[OpenCapture]:
    """Claim a capture and open its stream; errors are those of :func:`capture`."""
    found = _find(options)
    state, begun = _begin(options, found)
    claim = Claim(state.store, found.job_id, "append", lease_seconds=_LEASE_SECONDS)
    claim.take()
    try:
        with claim.renewed(), contextlib.closing(_source(found, options)) as source:
            loop = _loop(options, source, _log(options, found, state), stop)
            loop.started_at = float(begun["started_at"])
            loop.resume(options.start, _declared(options))
            yield OpenCapture(found.table.name, found.job_id, loop)
    finally:
        claim.release()


def _loop(options: CaptureOptions, source: ChangeSource, log: ChangeLog, stop: threading.Event) -> CaptureLoop:
    timing = Timing(time.time, stop.wait, stop.is_set)
    goes_on = options.on_gap == "continue"
    return CaptureLoop(source, log, _limits(options), timing, started_at=0.0, goes_on=goes_on)


def _declared(options: CaptureOptions) -> pa.Schema | None:
    return None if options.schema is None else arrow_schema_of(options.schema)


def _capture_parts(options: CaptureOptions, stop: threading.Event, loops: list[CaptureLoop]) -> tuple[str, str]:
    """Capture beside other processes, and add the captures of the leases held here; return the table and the job id."""
    found = _find(options)
    shared, begun = _begin(options, found, LEASES, {"leases": options.leases})
    store, started_at = shared.store, float(begun["started_at"])

    @contextlib.contextmanager
    def open_part(lease: int, stop: threading.Event) -> Iterator[CaptureLoop]:
        part = dataclasses.replace(found, job_id=part_id(found.job_id, lease))
        state, _ = _begin(options, part, CAPTURE, {"lease": lease, "leases": options.leases})
        log = _log(options, part, state, shared)
        claim = Claim(store, part.job_id, "append", lease_seconds=_LEASE_SECONDS)
        claim.write()
        with claim.renewed(), contextlib.closing(_source(found, options)) as source:
            records = functools.partial(records_of, store, found.job_id)
            leased = LeasedSource(source, lease, options.leases, records, time.time)
            loop = _loop(options, leased, log, stop)
            loop.share(leased)
            loop.started_at = started_at
            loop.resume(options.start, _declared(options))
            yield loop
        claim.release()

    parts = Parts(Leases(shared, options.leases), open_part, available_now=options.available_now, loops=loops)
    parts.run(stop)
    return found.table.name, found.job_id


def prepare_capture(options: CaptureOptions) -> str:
    """Begin a capture if it is new, decide its columns, and return its job id; errors are those of :func:`capture`."""
    found = _find(options)
    state, _ = _begin(options, found)
    log = _log(options, found, state)
    if (schema := _declared(options)) is not None:
        log.declare(schema)
    log.choose_columns(b"")
    return found.job_id


@dataclass(frozen=True)
class _Found:
    """Hold the stream of a table, and which capture reads it."""

    spec: ClientSpec
    table: TableDescription
    arn: str
    job_id: str
    is_kinesis: bool


def _find(options: CaptureOptions) -> _Found:
    spec = dynamodb_spec(options)
    table = describe_table(spec, options.table)
    if options.source == "kinesis":
        arn = data_stream_of(spec, table.name, options.stream)
        return _Found(spec, table, arn, options.job_id or _job_id(f"{arn} {table.name}"), is_kinesis=True)
    if options.stream is not None:
        raise OptionError("a table has one stream of its own: stream names a data stream, with source=kinesis")
    if options.fan_out is not None:
        raise OptionError("fan_out is a consumer of a data stream: give it with source=kinesis")
    arn, view = stream_of(spec, table.name)
    if view in {"KEYS_ONLY", "OLD_IMAGE"}:
        raise OptionError(
            f"the stream of {table.name!r} has the view {view}, without the items as they are after a change: turn on "
            "another one with NEW_IMAGE or NEW_AND_OLD_IMAGES"
        )
    if options.old_image and view == "NEW_IMAGE":
        raise OptionError(f"the stream of {table.name!r} has the view NEW_IMAGE: leave old_image out")
    return _Found(spec, table, arn, options.job_id or _job_id(arn), is_kinesis=False)


def _job_id(identity: str) -> str:
    return f"capture_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _source(found: _Found, options: CaptureOptions) -> ChangeSource:
    if options.fan_out is not None:
        return FanOutSource(found.spec, found.arn, options.fan_out)
    return KinesisSource(found.spec, found.arn) if found.is_kinesis else StreamSource(found.spec, found.arn)


def _begin(
    options: CaptureOptions, found: _Found, kind: str = CAPTURE, part: Mapping[str, int] | None = None
) -> tuple[JobState, Mapping[str, Any]]:
    """Return the state of the capture, and what it was begun with."""
    store = open_store(options.dest, options)
    require_target(store)
    state = JobState(store, found.job_id, kind)
    identity: dict[str, Any] = {"stream": found.arn, "start": options.start, "old_image": options.old_image}
    identity |= part or {}
    if found.is_kinesis:
        # A data stream may have the changes of several tables.
        identity["table"] = found.table.name
    begun = state.begin({**identity, "started_at": time.time()})
    require_same(found.job_id, begun, {**identity, "started_at": begun["started_at"]}, {})
    return state, begun


def _log(options: CaptureOptions, found: _Found, state: JobState, shared: JobState | None = None) -> ChangeLog:
    def infer(body: bytes) -> pa.Schema:
        stored = None if shared is None else shared.read(COLUMNS)
        if stored is not None:
            return schema_from_json(stored["schema"])
        schema = _columns(found.table, options, body)
        if shared is None or shared.put_once(COLUMNS, {"schema": schema_to_json(schema)}):
            return schema
        return schema_from_json((shared.read(COLUMNS) or {})["schema"])

    return ChangeLog(
        BatchRecords(state),
        tuple(name for name, _ in found.table.key_types),
        infer,
        old_image=options.old_image,
        compression=options.compression,
        kinesis_table=found.table.name if found.is_kinesis else None,
    )


def _limits(options: CaptureOptions) -> Limits:
    size_bytes = int(options.flush_bytes)
    return Limits(options.flush_seconds, max(1, size_bytes // _RECORD_BYTES), size_bytes)


def _columns(table: TableDescription, options: CaptureOptions, body: bytes) -> pa.Schema:
    """Return the columns that a sample of the table and the first changes show."""
    wanted = {name: getattr(options, name) for name in ("numbers", "types", "sample_items")}
    scan = parse_options(ScanOptions, {**connection_of(options), **wanted, "table": table.name})
    sampled = observe_table(table, scan, LocalBudget(budget_of(table, scan)))
    keys = {name for name, _ in table.key_types}
    if not body and not set(sampled.to_arrow().names) - keys - {RESCUE_NAME}:
        raise OptionError(f"table {table.name!r} has no items that show its columns yet: give schema")
    return (sampled.merge(infer_schema_of_body(body)) if body else sampled).to_arrow()
