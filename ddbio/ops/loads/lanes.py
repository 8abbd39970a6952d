"""Spread encoded rows over lanes that write at the same time; rows of one key always meet in one lane."""

from __future__ import annotations

import re
import threading
from collections import deque
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import Queue
from typing import TYPE_CHECKING, TypeAlias

from ddbio.aws.scan import Patience
from ddbio.aws.wire import open_bodies
from ddbio.aws.write import Lane
from ddbio.core.batch_size import batch_bytes
from ddbio.core.loads.hot_keys import HotKeys
from ddbio.core.loads.packing import MOST_WRITES
from ddbio.core.loads.rejected import RejectedRow, item_text
from ddbio.core.loads.write_rows import RowWriter
from ddbio.errors import PartialWriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.write import LaneTally
    from ddbio.budget import Budget
    from ddbio.core.encode import Refusal
    from ddbio.core.loads.packing import Writes
    from ddbio.core.loads.write_plan import WritePlan

# Rows that are encoded at once: what the processor's caches hold, but enough to fill a lane's write batches, and never
# many megabytes.
CHUNK_ROWS = 8192
CACHED_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
LANE_ROWS = 16 * MOST_WRITES
_QUEUED_CHUNKS = 2
_BATCH_ROW = re.compile(r"^row \d+: ")


@dataclass
class WriteTally:
    """Count what a task wrote.

    Attributes
    ----------
    write_seconds
        From the first to the last request of any lane.
    """

    rows: int = 0
    written: int = 0
    skipped: int = 0
    rejected: int = 0
    retries: int = 0
    unprocessed: int = 0
    write_seconds: float = 0.0
    hot: HotKeys = field(default_factory=HotKeys)

    def merge(self, other: WriteTally) -> None:
        """Add what another task counted; of times the longer one is kept."""
        for name in ("rows", "written", "skipped", "rejected", "retries", "unprocessed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.write_seconds = max(self.write_seconds, other.write_seconds)
        self.hot.merge(other.hot)

    def collect(self, lanes: Sequence[LaneTally]) -> None:
        """Add what the lanes did."""
        self.written += sum(lane.written for lane in lanes)
        self.skipped += sum(lane.skipped for lane in lanes)
        self.retries += sum(lane.retries for lane in lanes)
        self.unprocessed += sum(lane.unprocessed for lane in lanes)
        for lane in lanes:
            self.hot.merge(lane.hot)
        begins = [lane.first_at for lane in lanes if lane.first_at is not None]
        ends = [lane.last_at for lane in lanes if lane.last_at is not None]
        if begins and ends:
            self.write_seconds = max(ends) - min(begins)


class Milestone:
    """Stand between batches: reached when every row before it is written, or skipped, or rejected and kept.

    Parameters
    ----------
    reached
        Called then, once, by the thread that brings the batches; not at all where the write ends before.
    """

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached
        self.open_lanes = 0


Feed: TypeAlias = "pa.RecordBatch | RejectedRow | Milestone"
"""What a write is made of, in its order."""


@dataclass(frozen=True)
class _Share:
    """Hold what one lane writes of a chunk of rows, and the rows."""

    writes: Writes
    chunk: pa.RecordBatch
    first_row: int

    def rejected(self, row: int, reason: str, *, nulls: bool) -> RejectedRow:
        """Return the row of that number with what the service said of it."""
        code, _, words = reason.partition(": ")
        return RejectedRow(row, code, words, item_text(self.chunk.slice(row - self.first_row, 1), nulls=nulls))


@dataclass(frozen=True)
class WriteTask:
    """Give a worker everything it needs to write, picklable."""

    spec: ClientSpec
    plan: WritePlan
    deadline_seconds: float


class _Crew:
    """Run the lanes' threads, each behind a queue of its own, and keep the first error of any.

    A lane that is alone writes in the caller's thread: another would only take turns with it.
    """

    def __init__(self, lanes: list[Lane], plan: WritePlan, stop: threading.Event, budget: Budget) -> None:
        self.error: BaseException | None = None
        self.rejects: deque[RejectedRow] = deque()
        self.spare: deque[NDArray[np.uint8]] = deque()
        self._nulls = plan.nulls_matter
        self._stop, self._budget = stop, budget
        self._milestones: deque[Milestone] = deque()
        self._lock = threading.Lock()
        self._lanes = lanes
        self._queues: list[Queue[_Share | Milestone | None]] = [Queue(_QUEUED_CHUNKS) for _ in lanes]
        self._threads = [
            threading.Thread(target=self._work, args=pair, name=f"ddbio-lane-{number}", daemon=True)
            for number, pair in enumerate(zip(lanes, self._queues, strict=True))
            if len(lanes) > 1
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch, first_row: int) -> None:
        for place, share in enumerate(writes):
            if len(share):
                self._hand(place, _Share(share, chunk, first_row))

    def put_milestone(self, milestone: Milestone) -> None:
        milestone.open_lanes = len(self._queues)
        self._milestones.append(milestone)
        for place in range(len(self._lanes)):
            self._hand(place, milestone)

    def passed(self) -> list[Milestone]:
        """Return the milestones that every lane has passed, each once, in their order."""
        passed = []
        while self._milestones and not self._milestones[0].open_lanes:
            passed.append(self._milestones.popleft())
        return passed

    def fail(self, error: BaseException) -> None:
        """Remember the first error and stop every lane at its next request."""
        self.error = self.error or error
        self._stop.set()
        self._budget.close()

    def finish(self) -> None:
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _hand(self, place: int, work: _Share | Milestone) -> None:
        if self._threads:
            self._queues[place].put(work)
        else:
            self._do(self._lanes[place], work)

    def _work(self, lane: Lane, queue: Queue[_Share | Milestone | None]) -> None:
        # A lane that has failed still empties its queue, so that nobody waits to fill it.
        while (work := queue.get()) is not None:
            self._do(lane, work)

    def _do(self, lane: Lane, work: _Share | Milestone) -> None:
        try:
            if self.stopped:
                return
            if isinstance(work, Milestone):
                with self._lock:
                    work.open_lanes -= 1
            else:
                self._write(lane, work)
        except BaseException as error:  # noqa: BLE001 - whatever ends a lane must reach the caller
            self.fail(error)

    def _write(self, lane: Lane, share: _Share) -> None:
        try:
            lane.write(share.writes)
            self.spare.append(share.writes.texts)
        finally:
            while lane.tally.rejects:
                refused = lane.tally.rejects.popleft()
                self.rejects.append(share.rejected(refused.row, refused.reason, nulls=self._nulls))


def write_batches(
    task: WriteTask,
    batches: Iterable[Feed],
    budget: Budget,
    reject: Callable[[list[RejectedRow]], None],
) -> WriteTally:
    """Write every row of some batches; return when each is written, skipped or rejected.

    Parameters
    ----------
    batches
        Rows to write, rows that were found to be none, and milestones between them.
    reject
        Takes rows that cannot be written, in this thread; what it raises ends the task.

    Raises
    ------
    PartialWriteError
        If ``reject`` raises it; what was accepted until then is counted in.
    DdbioError
        What ended the first lane that failed, after all have ended.
    """
    tally, stop = WriteTally(), threading.Event()
    patience = Patience(task.deadline_seconds, stop)
    plan = task.plan
    with closing(open_bodies(task.spec, plan.lanes, compresses=plan.compress_requests)) as source:
        lanes = [Lane(source, plan.table, list(dict(plan.key_types)), budget, patience) for _ in range(plan.lanes)]
        crew = _Crew(lanes, plan, stop, budget)
        try:
            _feed(plan, batches, crew, tally, reject)
        except BaseException as error:  # noqa: BLE001 - raised below, when no lane writes any more
            crew.fail(error)
        finally:
            crew.finish()
    try:
        _settle(crew, tally, reject)
    except BaseException as error:  # noqa: BLE001 - the first error is raised below
        crew.error = crew.error or error
    tally.collect([lane.tally for lane in lanes])
    if isinstance(crew.error, PartialWriteError):
        accepted = tally.written + tally.skipped
        told = f"{crew.error} ({accepted:,} rows were accepted until then, {tally.rejected:,} rejected)"
        raise PartialWriteError(told, accepted, tally.rejected, crew.error.rejects_uri) from crew.error
    if crew.error is not None:
        raise crew.error
    return tally


def _feed(
    plan: WritePlan,
    batches: Iterable[Feed],
    crew: _Crew,
    tally: WriteTally,
    reject: Callable[[list[RejectedRow]], None],
) -> None:
    writers: dict[bytes, RowWriter] = {}
    for batch in batches:
        if isinstance(batch, Milestone):
            crew.put_milestone(batch)
            _settle(crew, tally, reject)
            continue
        if isinstance(batch, RejectedRow):
            _keep([replace(batch, row=tally.rows)], tally, reject)
            tally.rows += 1
            continue
        # Schemas that differ in metadata alone are equal, and yet a list is a set in only one of them.
        key = batch.schema.serialize().to_pybytes()
        writer = writers.get(key)
        if writer is None:
            writer = writers[key] = RowWriter(batch.schema, plan, crew.spare)
        for chunk in _chunks(batch, plan.lanes):
            if crew.stopped:
                return
            encoded = writer.writes(chunk, tally.rows)
            if encoded.refusals:
                rows = [_refused(chunk, refusal, tally.rows, nulls=plan.nulls_matter) for refusal in encoded.refusals]
                _keep(rows, tally, reject)
            crew.put(encoded.lanes, chunk, tally.rows)
            tally.rows += chunk.num_rows
            _settle(crew, tally, reject)


def _chunks(batch: pa.RecordBatch, lanes: int) -> Iterator[pa.RecordBatch]:
    row_bytes = max(1, batch_bytes(batch) // max(1, batch.num_rows))
    filling = max(CACHED_BYTES // row_bytes, lanes * LANE_ROWS)
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes, filling))
    yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


def _settle(crew: _Crew, tally: WriteTally, reject: Callable[[list[RejectedRow]], None]) -> None:
    """Keep what the lanes have rejected; then tell the milestones that were reached before that."""
    passed = crew.passed()
    if crew.rejects:
        _keep([crew.rejects.popleft() for _ in range(len(crew.rejects))], tally, reject)
    for milestone in passed:
        milestone.reached()


def _keep(rows: list[RejectedRow], tally: WriteTally, reject: Callable[[list[RejectedRow]], None]) -> None:
    tally.rejected += len(rows)
    reject(rows)


def _refused(chunk: pa.RecordBatch, refusal: Refusal, first_row: int, *, nulls: bool) -> RejectedRow:
    # The message begins with the row within its batch; what is reported counts all rows.
    told = _BATCH_ROW.sub("", refusal.message)
    item = item_text(chunk.slice(refusal.row, 1), nulls=nulls)
    return RejectedRow(first_row + refusal.row, refusal.rule, told, item)
