"""Writing of rows: encoding in chunks, and sending the requests of all lanes from one thread.

A lane sends one request after the other, and retries throttled or lost ones (``ddbio.load.write_retries``). While one
lane waits for its response, for units of the budget or for the end of a back-off, the scheduler serves the others.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.retry import backoff_seconds
from ddbio.aws.transport import open_body_sender
from ddbio.budget import Granted
from ddbio.errors import DdbioError, PartialWriteError
from ddbio.items.kernel.arrays import take_rows
from ddbio.items.raw_items import RawItems
from ddbio.jobs.rejected_rows import RejectedRow, refused_row, row_text
from ddbio.load.batches import DEFERRED_BYTES, DeferredRows, WriteCounts
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import Encoders, chunks
from ddbio.load.write_retries import Lane, Pause, Send, begin, take

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import BodySender
    from ddbio.budget import Budget, Reservation
    from ddbio.load.batches import Writes
    from ddbio.load.plan import WritePlan
    from ddbio.load.rejects import RejectWriter
    from ddbio.load.write_retries import Answer

    _Reject: TypeAlias = Callable[[list[RejectedRow]], None]

Rows: TypeAlias = "pa.RecordBatch | RawItems"
Steps: TypeAlias = "Generator[Send | Pause | None, Answer | None, None]"


class LaneWork:
    """Writes of one lane for a chunk of rows, and the chunk, possibly reduced to some of its rows."""

    def __init__(self, writes: Writes, chunk: Rows, first_row: int) -> None:
        self.writes: Writes | None = writes
        self._chunk, self._first_row = chunk, first_row
        self._index_of: dict[int, int] | None = None

    def keep(self, rows: list[int]) -> None:
        """Keep only the rows of these numbers, and release the memory of the others."""
        self.writes = None
        self._index_of = {row: index for index, row in enumerate(rows)}
        indices = np.asarray(rows) - self._first_row
        self._chunk = (
            self._chunk.take(indices) if isinstance(self._chunk, RawItems) else take_rows(self._chunk, indices)
        )

    def rejected(self, row: int, reason: str, *, nulls: bool) -> RejectedRow:
        """Return the row of that number with the service's reason."""
        code, _, message = reason.partition(": ")
        index = row - self._first_row if self._index_of is None else self._index_of[row]
        return RejectedRow(row, code, message, row_text(self._chunk, index, nulls=nulls))


class LaneQueue:
    """Lane, its work, and the generator of its steps."""

    def __init__(self, lane: Lane, steps: Callable[[LaneQueue], Steps]) -> None:
        self.lane = lane
        self.work: deque[LaneWork | Checkpoint] = deque()
        # Checkpoints that wait for deferred rows: the rows with a smaller number were deferred before.
        self.waiting: deque[tuple[int, Checkpoint]] = deque()
        # Chunks that it has not started.
        self.queued = 0
        self.is_idle = True
        self.steps = steps(self)


class WriteScheduler:
    """Scheduler that lets many lanes write at the same time, in one thread.

    Parameters
    ----------
    nulls
        Whether rejected rows distinguish NULL from missing attributes.

    Attributes
    ----------
    chunks_ahead
        The maximum number of chunks that a lane has not started. With several, a lane whose rows are unprocessed
        repeatedly does not block the others.
    lanes
        The lanes, with their counts.
    rejects
        Rows that the service rejected. The caller removes them.
    free_buffers
        Buffers whose rows are written.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        source: BodySender,
        budget: Budget,
        poller: ResponsePoller,
        *,
        nulls: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rejects: deque[RejectedRow] = deque()
        self.free_buffers: deque[NDArray[np.uint8]] = deque()
        self.lanes = lanes
        for lane in lanes:
            lane.deferred = DeferredRows(DEFERRED_BYTES // len(lanes))
        self._queues = [LaneQueue(lane, self._steps_of) for lane in lanes]
        self._source, self._budget, self._nulls, self._clock = source, budget, nulls, clock
        self.chunks_ahead = 1
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._checkpoints: deque[Checkpoint] = deque()
        self._full: set[LaneQueue] = set()
        # Requests that wait for the budget, in order. The first may have its reservation.
        self._waiting: deque[tuple[LaneQueue, Send]] = deque()
        self._reservation: Reservation | None = None
        # The lane of each request in flight.
        self._sent: dict[PendingResponse, LaneQueue] = {}
        self._poller = poller
        # Lanes in a back-off, by its end.
        self._pausing: list[tuple[float, int, LaneQueue]] = []
        self._pauses = itertools.count()

    @property
    def is_busy(self) -> bool:
        """Return whether a lane has any work."""
        return bool(self._sent or self._waiting or self._pausing)

    @property
    def is_full(self) -> bool:
        """Return whether a lane has the maximum number of chunks that it has not started."""
        return bool(self._full)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first request to the last response."""
        return 0.0 if self._first_at is None or self._last_at is None else self._last_at - self._first_at

    def add(self, writes: Sequence[Writes], chunk: Rows, first_row: int) -> None:
        """Pass the writes of a chunk of rows to the lanes.

        Raises
        ------
        BudgetClosedError
            If the job is being stopped.
        DdbioError
            The error that ended a lane.
        """
        for queue, lane_writes in zip(self._queues, writes, strict=True):
            if len(lane_writes):
                self._add(queue, LaneWork(lane_writes, chunk, first_row))

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint after everything that was added before."""
        checkpoint.open_lanes = len(self._queues)
        self._checkpoints.append(checkpoint)
        for queue in self._queues:
            self._add(queue, checkpoint)

    def take_reached(self) -> list[Checkpoint]:
        """Return the checkpoints that all lanes have reached since the last call, in order."""
        reached = []
        while self._checkpoints and not self._checkpoints[0].open_lanes:
            reached.append(self._checkpoints.popleft())
        return reached

    def step(self) -> None:
        """Send requests, wait for a response or the end of a pause, and continue those lanes; see ``add``."""
        self._take_answers(self._send())

    def attend(self) -> None:
        """Continue the lanes whose response has arrived or whose pause has ended, and send requests. Does not wait."""
        self._take_answers(0.0)
        self._send()

    def _take_answers(self, wait_seconds: float | None) -> None:
        come = self._poller.wait(wait_seconds)
        try:
            for pending in come:
                self._continue(self._sent.pop(pending), take(pending))
        finally:
            if come:
                self._last_at = self._clock()
        while self._pausing and self._pausing[0][0] <= self._clock():
            self._continue(heapq.heappop(self._pausing)[2])

    def abandon(self) -> None:
        """Send no more requests. Receive and count the responses to sent requests."""
        for pending, queue in self._sent.items():
            # Another error already ends the write.
            with suppress(Exception):
                queue.steps.send(take(pending))
        if self._sent:
            self._last_at = self._clock()
        for queue in self._queues:
            queue.steps.close()

    def _send(self) -> float | None:
        """Send the requests that the budget allows.

        Return the maximum time to wait, or None to wait only for responses.
        """
        wait_seconds = None
        now = self._clock() if self._waiting else 0.0
        while self._waiting:
            queue, send = self._waiting[0]
            reservation = self._reservation or self._budget.reserve(send.units)
            if type(reservation) is Granted:
                send.grant = reservation
            elif wait_seconds := reservation.wait_seconds():
                self._reservation = reservation
                break
            else:
                self._reservation = wait_seconds = None
                send.grant = reservation.grant()
            self._waiting.popleft()
            send.sent_at = now
            self._begin(queue, send)
        if self._pausing:
            pause_ends_in = max(0.0, self._pausing[0][0] - self._clock())
            return pause_ends_in if wait_seconds is None else min(pause_ends_in, wait_seconds)
        return wait_seconds

    def _begin(self, queue: LaneQueue, send: Send) -> None:
        if self._first_at is None:
            self._first_at = send.sent_at
        pending = begin(self._source, queue.lane.table, send)
        if isinstance(pending, Exception):
            self._continue(queue, pending)
        else:
            self._sent[pending] = queue
            self._poller.add(pending)

    def _add(self, queue: LaneQueue, work: LaneWork | Checkpoint) -> None:
        queue.work.append(work)
        if isinstance(work, LaneWork):
            queue.queued += 1
            if queue.queued >= self.chunks_ahead:
                self._full.add(queue)
        if queue.is_idle:
            self._continue(queue)

    def _continue(self, queue: LaneQueue, answer: Answer | None = None) -> None:
        """Continue a lane with its next step, after the response to its last one."""
        step = queue.steps.send(answer)
        if type(step) is Send:
            queue.is_idle = False
            self._waiting.append((queue, step))
        elif isinstance(step, Pause):
            queue.is_idle = False
            end_at = self._clock() + backoff_seconds(step.attempt)
            heapq.heappush(self._pausing, (end_at, next(self._pauses), queue))
        else:
            queue.is_idle = True

    def _steps_of(self, queue: LaneQueue) -> Steps:
        """Yield all steps of a lane, and None when it has no work."""
        lane = queue.lane
        while True:
            work = queue.work.popleft() if queue.work else None
            try:
                if isinstance(work, LaneWork):
                    queue.queued -= 1
                    self._full.discard(queue)
                    yield from lane.write(cast("Writes", work.writes), work)
                elif work is None:
                    yield from lane.retry() if lane.deferred else (None,)
            finally:
                for reject in lane.rejects:
                    origin = cast("LaneWork", reject.origin)
                    self.rejects.append(origin.rejected(reject.row, reject.reason, nulls=self._nulls))
                lane.rejects.clear()
            self._finish(queue, work)

    def _finish(self, queue: LaneQueue, work: LaneWork | Checkpoint | None) -> None:
        """Release work that is done except for deferred rows, and checkpoints that wait for none of these."""
        deferred = queue.lane.deferred
        if isinstance(work, LaneWork):
            self.free_buffers.append(cast("Writes", work.writes).texts)
            if rows := deferred.rows_of(work):
                work.keep(rows)
        elif work is not None:
            queue.waiting.append((deferred.next_number, work))
        while queue.waiting and queue.waiting[0][0] <= deferred.oldest:
            queue.waiting.popleft()[1].open_lanes -= 1


class InlineRunner:
    """Runner of a scheduler in the thread that reads the rows, so that no thread has to wait for another."""

    def __init__(self, scheduler: WriteScheduler) -> None:
        self.scheduler = scheduler

    def put(self, writes: Sequence[Writes], chunk: Rows, first_row: int) -> None:
        """Add a chunk of rows. Returns when the next one may be added, or a single lane has finished its writes."""
        self.scheduler.add(writes, chunk, first_row)
        # A single lane finishes first, so that the next chunk is encoded into memory that is in the processor's cache.
        is_single = len(self.scheduler.lanes) == 1
        while self.scheduler.is_full or (is_single and self.scheduler.is_busy):
            self.scheduler.step()
        # The requests that the last responses made possible are in flight while the next rows are read and encoded.
        self.scheduler.attend()

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint."""
        self.scheduler.add_checkpoint(checkpoint)

    def attend(self) -> None:
        """Continue the lanes that can continue, while rows are read."""
        self.scheduler.attend()

    def finish(self) -> None:
        """Return when all work is done."""
        while self.scheduler.is_busy:
            self.scheduler.step()

    def abandon(self) -> None:
        """Send no more requests. Returns when all sent requests have a response."""
        self.scheduler.abandon()


class ThreadRunner:
    """Runner of a scheduler in a separate thread, which sends while rows are read and encoded."""

    def __init__(self, scheduler: WriteScheduler, poller: ResponsePoller) -> None:
        self.scheduler, self._poller = scheduler, poller
        self._changed = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_full = self._is_last = self._is_stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ddbio-lanes", daemon=True)
        self._thread.start()

    def put(self, writes: Sequence[Writes], chunk: Rows, first_row: int) -> None:
        """Add a chunk of rows when the lanes have started earlier ones. Raises the error that ended a lane."""
        self._put(partial(self.scheduler.add, writes, chunk, first_row))

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; see ``put``."""
        self._put(partial(self.scheduler.add_checkpoint, checkpoint))

    def attend(self) -> None:
        """Do nothing: the thread continues the lanes."""

    def finish(self) -> None:
        """Return when all work is done; see ``put``."""
        self._is_last = True
        self._end()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Send no more requests. Returns when all sent requests have a response."""
        self._is_stopped = True
        self._end()

    def _put(self, add: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not (self._is_full or self._inbox))
            if self._failure is not None:
                raise self._failure
            self._inbox.append(add)
        self._poller.wake()

    def _end(self) -> None:
        self._poller.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                is_last = self._is_last
                self._take()
                if is_last and not self.scheduler.is_busy:
                    return
                self.scheduler.step()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads the rows
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            self.scheduler.abandon()

    def _take(self) -> None:
        """Add the received work, and report to the other thread whether more is accepted."""
        taken = bool(self._inbox)
        if taken:
            self._inbox[0]()
        is_full = self.scheduler.is_full
        if taken or is_full != self._is_full:
            with self._changed:
                if taken:
                    self._inbox.popleft()
                self._is_full = is_full
                self._changed.notify_all()


_CHUNKS_AHEAD = 2

WriteInput: TypeAlias = "pa.RecordBatch | RawItems | RejectedRow | Checkpoint | None"
"""Input of a write, in order: rows, rows that are already rejected, and checkpoints between them.

None is yielded at times while more rows are read, so that requests in flight are attended.
"""


@dataclass(frozen=True)
class WriteTask:
    """State that a worker needs to write. Picklable."""

    spec: ClientSpec
    plan: WritePlan
    deadline_seconds: float
    rows_are_ready: bool = False
    """Whether the next rows are available immediately, so that the requests need no separate thread."""


def write_batches(
    task: WriteTask,
    batches: Iterable[WriteInput],
    rejects: RejectWriter,
    budget: Budget,
    locate: Callable[[RejectedRow], RejectedRow] | None = None,
) -> WriteCounts:
    """Write all rows. Returns when each is written, skipped or rejected.

    Even after an error, rejected rows are stored, and the message of an error has their number.

    Parameters
    ----------
    locate
        Adds the origin in the source to a rejected row, which has its number among ``batches``.

    Raises
    ------
    PartialWriteError
        If there are rejected rows without ``reject_to``, or too many. The message has the number of accepted rows.
    DdbioError
        The error of the first lane that failed, after all lanes have ended.
    """

    def reject(rows: list[RejectedRow]) -> None:
        rejects.add(rows if locate is None else [locate(row) for row in rows])

    try:
        return _write(task, batches, budget, reject)
    except DdbioError as error:
        if rejects.count:
            error.args = (f"{error} ({rejects.count} rejected rows are in {rejects.uri})", *error.args[1:])
        raise
    finally:
        rejects.flush()


def _write(task: WriteTask, batches: Iterable[WriteInput], budget: Budget, reject: _Reject) -> WriteCounts:
    counts, plan = WriteCounts(), task.plan
    failure: BaseException | None = None
    source = open_body_sender(task.spec, plan.lanes, compresses=plan.compress_requests)
    # With a single lane, a second thread would only alternate with this one.
    is_inline = task.rows_are_ready or plan.lanes == 1
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
    """Encode all rows and pass them to the scheduler."""
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
            # Rows were read and joined in the meantime.
            runner.attend()
            encoded = encoder.encode(chunk, counts.rows)  # type: ignore[arg-type] # it is the encoder of such rows
            if encoded.refusals:
                rows = [
                    refused_row(chunk, refusal, counts.rows, nulls=plan.nulls_matter) for refusal in encoded.refusals
                ]
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
