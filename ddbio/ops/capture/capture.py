"""Capture the changes of a table: find its stream, go on where the last run stopped, write the log."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.aws.change_streams import StreamSource, stream_of
from ddbio.aws.control_plane import describe_table
from ddbio.budget import LocalBudget
from ddbio.core.decode import infer_schema_of_body
from ddbio.core.scan_plan import budget_of
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.errors import OptionError
from ddbio.files.claim import Claim
from ddbio.files.job_state import JobState, require_same
from ddbio.ops.capture.batches import ChangeLog
from ddbio.ops.capture.loop import CaptureLoop, Limits, Timing
from ddbio.ops.job.report import Clock, Report
from ddbio.ops.job.storage import dynamodb_spec, open_store
from ddbio.ops.scans.plan import observe_table
from ddbio.options import ScanOptions, connection_of, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from ddbio.core.table_description import TableDescription
    from ddbio.options import CaptureOptions

_KIND = "capture"
# A capture on another machine takes over after so long.
_LEASE_SECONDS = 30.0


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
    clock, stop = Clock(), stop or threading.Event()
    spec = dynamodb_spec(options)
    table = describe_table(spec, options.table)
    arn, view = stream_of(spec, table.name)
    if view in {"KEYS_ONLY", "OLD_IMAGE"}:
        raise OptionError(
            f"the stream of {table.name!r} has the view {view}, without the items as they are after a change: turn on "
            "another one with NEW_IMAGE or NEW_AND_OLD_IMAGES"
        )
    if options.old_image and view == "NEW_IMAGE":
        raise OptionError(f"the stream of {table.name!r} has the view NEW_IMAGE: leave old_image out")
    job_id = options.job_id or f"capture_{hashlib.sha256(arn.encode()).hexdigest()[:12]}"
    state = JobState(open_store(options.dest, options), job_id, _KIND)
    identity = {"stream": arn, "start": options.start, "old_image": options.old_image}
    begun = state.begin({**identity, "started_at": time.time()})
    require_same(job_id, begun, {**identity, "started_at": begun["started_at"]}, {})
    claim = Claim(state.store, job_id, "append", lease_seconds=_LEASE_SECONDS)
    claim.take()
    try:
        with claim.renewed(), contextlib.closing(StreamSource(spec, arn)) as source:
            log = ChangeLog(
                state,
                tuple(name for name, _ in table.key_types),
                lambda body: _columns(table, options, body),
                old_image=options.old_image,
                compression=options.compression,
            )
            loop = CaptureLoop(
                source,
                log,
                Limits(options.flush_seconds),
                Timing(time.time, stop.wait, stop.is_set),
                started_at=float(begun["started_at"]),
                goes_on=options.on_gap == "continue",
            )
            loop.resume(options.start, None if options.schema is None else arrow_schema_of(options.schema))
            loop.run(available_now=options.available_now)
    finally:
        claim.release()
    return CaptureReport(
        table=table.name,
        dest=options.dest,
        job_id=job_id,
        records=log.records,
        files=log.files,
        batches=log.number,
        lag_seconds=round(loop.lag_seconds, 3),
        gaps=tuple(loop.gaps),
        seconds=clock.seconds(),
        cpu_seconds=clock.cpu_seconds(),
    )


def _columns(table: TableDescription, options: CaptureOptions, body: bytes) -> pa.Schema:
    """Return the columns that a sample of the table and the first changes show."""
    wanted = {name: getattr(options, name) for name in ("numbers", "types", "sample_items")}
    scan = parse_options(ScanOptions, {**connection_of(options), **wanted, "table": table.name})
    sampled = observe_table(table, scan, LocalBudget(budget_of(table, scan)))
    return sampled.merge(infer_schema_of_body(body)).to_arrow()
