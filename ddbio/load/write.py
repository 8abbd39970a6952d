"""Write rows: encode them in chunks, and give these to the scheduler of the lanes, until each row has its fate."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.transport import open_body_sender
from ddbio.errors import DdbioError, PartialWriteError
from ddbio.jobs.rejected_rows import RejectedRow, refused_row
from ddbio.load.batches import WriteCounts
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import Encoders, chunks
from ddbio.load.scheduler import InlineRunner, ThreadRunner, WriteScheduler
from ddbio.load.write_retries import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.budget import Budget
    from ddbio.items.raw_items import RawItems
    from ddbio.load.plan import WritePlan
    from ddbio.load.rejects import RejectWriter

    _Reject: TypeAlias = Callable[[list[RejectedRow]], None]


_CHUNKS_AHEAD = 2

WriteInput: TypeAlias = "pa.RecordBatch | RawItems | RejectedRow | Checkpoint | None"
"""What a write takes, in its order: rows, rows that are rejected already, and checkpoints between them.

None comes at times while more rows are read, so that the requests in flight are not left alone.
"""


@dataclass(frozen=True)
class WriteTask:
    """Hold what a worker needs to write; picklable."""

    spec: ClientSpec
    plan: WritePlan
    deadline_seconds: float
    rows_are_here: bool = False
    """Whether the next rows are there at once, so that the requests need no thread of their own."""


def write_batches(
    task: WriteTask,
    batches: Iterable[WriteInput],
    rejects: RejectWriter,
    budget: Budget,
    locate: Callable[[RejectedRow], RejectedRow] | None = None,
) -> WriteCounts:
    """Write all rows; return when each is written, skipped or rejected.

    Whatever ends this, rejected rows are stored first, and the message of an error counts them.

    Parameters
    ----------
    locate
        Adds the place in the source to a rejected row, which has its number among ``batches``.

    Raises
    ------
    PartialWriteError
        If rejected rows have no place, or are too many; the message counts what was accepted until then.
    DdbioError
        The error of the first lane that failed, after all lanes have ended.
    """

    def reject(rows: list[RejectedRow]) -> None:
        rejects.add(rows if locate is None else [locate(row) for row in rows])

    try:
        return _write(task, batches, budget, reject)
    except DdbioError as error:
        if rejects.count:
            error.args = (f"{error} ({rejects.count} rejected rows lie in {rejects.uri})", *error.args[1:])
        raise
    finally:
        rejects.flush()


def _write(task: WriteTask, batches: Iterable[WriteInput], budget: Budget, reject: _Reject) -> WriteCounts:
    counts, plan = WriteCounts(), task.plan
    failure: BaseException | None = None
    source = open_body_sender(task.spec, plan.lanes, compresses=plan.compress_requests)
    # With a single lane a second thread would only take turns with this one.
    is_inline = task.rows_are_here or plan.lanes == 1
    poller = ResponsePoller(can_wake=not is_inline)
    with closing(source), closing(poller):
        key_names = list(dict(plan.key_types))
        url, deadline_seconds = source.endpoint_url, task.deadline_seconds
        lanes = [Lane(plan.table, key_names, budget, deadline_seconds, endpoint_url=url) for _ in range(plan.lanes)]
        scheduler = WriteScheduler(lanes, source, budget, poller, nulls=plan.nulls_matter)
        if not plan.sends_single_items:
            scheduler.chunks_ahead = _CHUNKS_AHEAD
        runner = InlineRunner(scheduler) if is_inline else ThreadRunner(scheduler, poller)
        try:
            _feed(plan, batches, runner, counts, reject)
            runner.finish()
        except BaseException as error:  # noqa: BLE001 - raised below, when every answer was taken
            failure = error
            runner.abandon()
    try:
        _settle(scheduler, counts, reject)
    except BaseException as error:  # noqa: BLE001 - the first error is raised below
        failure = failure or error
    for lane in lanes:
        counts.merge(lane.counts)
    counts.write_seconds = scheduler.seconds
    if isinstance(failure, PartialWriteError):
        accepted = counts.written + counts.skipped
        message = f"{failure} ({accepted:,} rows were accepted until then, {counts.rejected:,} rejected)"
        raise PartialWriteError(message, accepted, counts.rejected, failure.rejects_uri) from failure
    if failure is not None:
        raise failure
    return counts


def _feed(
    plan: WritePlan,
    batches: Iterable[WriteInput],
    runner: InlineRunner | ThreadRunner,
    counts: WriteCounts,
    reject: _Reject,
) -> None:
    """Encode all rows and give them to the scheduler."""
    scheduler = runner.scheduler
    encoders = Encoders(plan, scheduler.free_buffers)
    for batch in batches:
        if batch is None:
            runner.attend()
            continue
        if isinstance(batch, Checkpoint):
            runner.put_checkpoint(batch)
            _settle(scheduler, counts, reject)
            continue
        if isinstance(batch, RejectedRow):
            _reject_rows([replace(batch, row=counts.rows)], counts, reject)
            counts.rows += 1
            continue
        encoder = encoders.of(batch)
        for chunk in chunks(batch, plan):
            # Rows were read and joined meanwhile.
            runner.attend()
            encoded = encoder.encode(chunk, counts.rows)  # type: ignore[arg-type] # it is the encoder of such rows
            if encoded.refusals:
                rows = [refused_row(chunk, each, counts.rows, nulls=plan.nulls_matter) for each in encoded.refusals]
                _reject_rows(rows, counts, reject)
            runner.put(encoded.lanes, chunk, counts.rows)
            counts.rows += chunk.num_rows
            _settle(scheduler, counts, reject)


def _settle(scheduler: WriteScheduler, counts: WriteCounts, reject: _Reject) -> None:
    """Store the rows that the service rejected, then report the checkpoints that were reached before."""
    reached = scheduler.take_reached()
    if scheduler.rejects:
        _reject_rows([scheduler.rejects.popleft() for _ in range(len(scheduler.rejects))], counts, reject)
    for checkpoint in reached:
        checkpoint.reached()


def _reject_rows(rows: list[RejectedRow], counts: WriteCounts, reject: _Reject) -> None:
    counts.rejected += len(rows)
    reject(rows)
