"""Capture the changes of a table: find its stream, go on where the last run stopped, write the log."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.aws.change_streams import StreamSource, stream_of
from ddbio.aws.control_plane import describe_table
from ddbio.aws.kinesis_streams import KinesisSource, data_stream_of
from ddbio.budget import LocalBudget
from ddbio.core.decode import infer_schema_of_body
from ddbio.core.scan_plan import budget_of
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.errors import OptionError
from ddbio.files.claim import Claim
from ddbio.files.job_state import JobState, require_same
from ddbio.ops.capture.batches import CAPTURE, ChangeLog
from ddbio.ops.capture.loop import CaptureLoop, Limits, Timing
from ddbio.ops.job.report import Clock, Report
from ddbio.ops.job.storage import dynamodb_spec, open_store
from ddbio.ops.scans.plan import observe_table
from ddbio.options import ScanOptions, connection_of, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.core.capture.shards import ChangeSource
    from ddbio.core.table_description import TableDescription
    from ddbio.options import CaptureOptions

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
    seconds
        Wall time from the verb's start.
    cpu_seconds
        User + system seconds of this process.
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
    """
    clock = Clock()
    with open_capture(options, stop or threading.Event()) as opened:
        loop, log = opened.loop, opened.loop.log
        loop.run(available_now=options.available_now)
    return CaptureReport(
        table=opened.table,
        dest=options.dest,
        job_id=opened.job_id,
        records=log.records,
        files=log.files,
        batches=log.number,
        lag_seconds=round(loop.lag_seconds, 3),
        gaps=tuple(loop.gaps),
        seconds=clock.seconds(),
        cpu_seconds=clock.cpu_seconds(),
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
        with claim.renewed(), contextlib.closing(_source(found)) as source:
            loop = CaptureLoop(
                source,
                _log(options, found, state),
                _limits(options),
                Timing(time.time, stop.wait, stop.is_set),
                started_at=float(begun["started_at"]),
                goes_on=options.on_gap == "continue",
            )
            loop.resume(options.start, None if options.schema is None else arrow_schema_of(options.schema))
            yield OpenCapture(found.table.name, found.job_id, loop)
    finally:
        claim.release()


def prepare_capture(options: CaptureOptions) -> str:
    """Begin a capture if it is new, decide its columns, and return its job id; errors are those of :func:`capture`."""
    found = _find(options)
    state, _ = _begin(options, found)
    log = _log(options, found, state)
    if options.schema is not None:
        log.declare(arrow_schema_of(options.schema))
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


def _source(found: _Found) -> ChangeSource:
    return KinesisSource(found.spec, found.arn) if found.is_kinesis else StreamSource(found.spec, found.arn)


def _begin(options: CaptureOptions, found: _Found) -> tuple[JobState, Mapping[str, Any]]:
    """Return the state of the capture, and what it was begun with."""
    state = JobState(open_store(options.dest, options), found.job_id, CAPTURE)
    identity = {"stream": found.arn, "start": options.start, "old_image": options.old_image}
    if found.is_kinesis:
        # A data stream may have the changes of several tables.
        identity["table"] = found.table.name
    begun = state.begin({**identity, "started_at": time.time()})
    require_same(found.job_id, begun, {**identity, "started_at": begun["started_at"]}, {})
    return state, begun


def _log(options: CaptureOptions, found: _Found, state: JobState) -> ChangeLog:
    return ChangeLog(
        state,
        tuple(name for name, _ in found.table.key_types),
        lambda body: _columns(found.table, options, body),
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
    if not body and len(sampled.to_arrow()) <= len(table.key_types):
        raise OptionError(f"table {table.name!r} has no items that show its columns yet: give schema")
    return (sampled.merge(infer_schema_of_body(body)) if body else sampled).to_arrow()
