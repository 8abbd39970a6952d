"""Spread encoded rows over lanes that write at the same time; rows of one key always meet in one lane."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.transport import open_body_sender
from ddbio.aws.write import Lane
from ddbio.core.batch_size import batch_bytes
from ddbio.core.loads.batches import MOST_WRITES
from ddbio.core.loads.counts import HotKeys
from ddbio.core.loads.encode import RawItemEncoder, RowEncoder
from ddbio.core.loads.rejects import RejectedRow, row_text
from ddbio.core.raw_items import RawItems
from ddbio.errors import PartialWriteError
from ddbio.ops.loads.crew import Crew, Milestone
from ddbio.ops.loads.shift import InlineShift, Shift, ThreadShift

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.aws.client import ClientSpec
    from ddbio.budget import Budget
    from ddbio.core.encode import Refusal
    from ddbio.core.loads.plan import WritePlan

# Rows that are encoded at once: what the processor's caches hold, but enough to fill a lane's write batches, and never
# many megabytes.
CHUNK_ROWS = 8192
CACHED_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
LANE_ROWS = 16 * MOST_WRITES
ALONE_LANE_ROWS = 64
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

    def collect(self, crew: Crew) -> None:
        """Add what the lanes did."""
        for lane in crew.lanes:
            self.written += lane.tally.written
            self.skipped += lane.tally.skipped
            self.retries += lane.tally.retries
            self.unprocessed += lane.tally.unprocessed
            self.hot.merge(lane.tally.hot)
        if crew.first_at is not None and crew.last_at is not None:
            self.write_seconds = crew.last_at - crew.first_at


Feed: TypeAlias = "pa.RecordBatch | RawItems | RejectedRow | Milestone"
"""What a write is made of, in its order."""


@dataclass(frozen=True)
class WriteTask:
    """Give a worker everything it needs to write, picklable."""

    spec: ClientSpec
    plan: WritePlan
    deadline_seconds: float
    rows_are_here: bool = False
    """Whether the next rows are there at once, so that no thread is needed to write meanwhile."""


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
    tally, plan = WriteTally(), task.plan
    failure: BaseException | None = None
    source = open_body_sender(task.spec, plan.lanes, compresses=plan.compress_requests)
    # A lane that is alone writes in this thread: another would only take turns with it.
    is_inline = task.rows_are_here or plan.lanes == 1
    arrivals = ResponsePoller(can_wake=not is_inline)
    with closing(source), closing(arrivals):
        key_names = list(dict(plan.key_types))
        url, most = source.endpoint_url, task.deadline_seconds
        lanes = [Lane(plan.table, key_names, budget, most, endpoint_url=url) for _ in range(plan.lanes)]
        crew = Crew(lanes, source, budget, arrivals, nulls=plan.nulls_matter)
        shift: Shift = InlineShift(crew) if is_inline else ThreadShift(crew, arrivals)
        try:
            _feed(plan, batches, shift, tally, reject)
            shift.finish()
        except BaseException as error:  # noqa: BLE001 - raised below, when every answer was taken
            failure = error
            shift.abandon()
    try:
        _settle(crew, tally, reject)
    except BaseException as error:  # noqa: BLE001 - the first error is raised below
        failure = failure or error
    tally.collect(crew)
    if isinstance(failure, PartialWriteError):
        accepted = tally.written + tally.skipped
        told = f"{failure} ({accepted:,} rows were accepted until then, {tally.rejected:,} rejected)"
        raise PartialWriteError(told, accepted, tally.rejected, failure.rejects_uri) from failure
    if failure is not None:
        raise failure
    return tally


def _feed(
    plan: WritePlan,
    batches: Iterable[Feed],
    shift: Shift,
    tally: WriteTally,
    reject: Callable[[list[RejectedRow]], None],
) -> None:
    crew = shift.crew
    writers: dict[bytes, RowEncoder | RawItemEncoder] = {}
    for batch in batches:
        if isinstance(batch, Milestone):
            shift.put_milestone(batch)
            _settle(crew, tally, reject)
            continue
        if isinstance(batch, RejectedRow):
            _keep([replace(batch, row=tally.rows)], tally, reject)
            tally.rows += 1
            continue
        writer = _writer_of(batch, plan, writers, crew.spare)
        for chunk in _chunks(batch, filling_rows(plan)):
            encoded = writer.encode(chunk, tally.rows)  # type: ignore[arg-type] # it is the writer of such rows
            if encoded.refusals:
                rows = [_refused(chunk, refusal, tally.rows, nulls=plan.nulls_matter) for refusal in encoded.refusals]
                _keep(rows, tally, reject)
            shift.put(encoded.lanes, chunk, tally.rows)
            tally.rows += chunk.num_rows
            _settle(crew, tally, reject)


def filling_rows(plan: WritePlan) -> int:
    """Return how many rows keep all lanes busy with requests that are full."""
    return plan.lanes * (ALONE_LANE_ROWS if plan.sends_single_items else LANE_ROWS)


def _writer_of(
    rows: pa.RecordBatch | RawItems,
    plan: WritePlan,
    writers: dict[bytes, RowEncoder | RawItemEncoder],
    spare: deque[NDArray[np.uint8]],
) -> RowEncoder | RawItemEncoder:
    # Schemas that differ in metadata alone are equal, and yet a list is a set in only one of them.
    key = b"" if isinstance(rows, RawItems) else rows.schema.serialize().to_pybytes()
    if key not in writers:
        writers[key] = (
            RawItemEncoder(plan, spare) if isinstance(rows, RawItems) else RowEncoder(rows.schema, plan, spare)
        )
    return writers[key]


def chunk_rows(row_bytes: int, filling: int) -> int:
    """Return how many rows of a size are encoded at once."""
    row_bytes = max(1, row_bytes)
    filling = max(CACHED_BYTES // row_bytes, filling)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes, filling))


def _chunks(batch: pa.RecordBatch | RawItems, filling: int) -> Iterator[pa.RecordBatch | RawItems]:
    if isinstance(batch, RawItems):
        # Whoever reads them reads a few megabytes at a time.
        yield batch
        return
    step = chunk_rows(batch_bytes(batch) // max(1, batch.num_rows), filling)
    yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


def _settle(crew: Crew, tally: WriteTally, reject: Callable[[list[RejectedRow]], None]) -> None:
    """Keep what the lanes have rejected; then tell the milestones that were reached before that."""
    passed = crew.passed()
    if crew.rejects:
        _keep([crew.rejects.popleft() for _ in range(len(crew.rejects))], tally, reject)
    for milestone in passed:
        milestone.reached()


def _keep(rows: list[RejectedRow], tally: WriteTally, reject: Callable[[list[RejectedRow]], None]) -> None:
    tally.rejected += len(rows)
    reject(rows)


def _refused(chunk: pa.RecordBatch | RawItems, refusal: Refusal, first_row: int, *, nulls: bool) -> RejectedRow:
    # The message begins with the row within its batch; what is reported counts all rows.
    told = _BATCH_ROW.sub("", refusal.message)
    item = row_text(chunk, refusal.row, nulls=nulls)
    return RejectedRow(first_row + refusal.row, refusal.rule, told, item)
