"""Serve all lanes of a write in one thread: while one waits for its answer, the budget or its pause, others go on.

Refuses to encode and to judge answers.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ddbio.aws.scan import pause_seconds
from ddbio.aws.write import Answer, Pause, begin
from ddbio.core.loads.rejects import RejectedRow, row_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.aws.connection_pool import PendingResponse, ResponsePoller
    from ddbio.aws.transport import BodySender
    from ddbio.aws.write import Lane, Send, Sent
    from ddbio.budget import Budget, Grant, Reservation
    from ddbio.core.loads.batches import Writes
    from ddbio.core.raw_items import RawItems

    _Steps: TypeAlias = Generator[Send | Pause | None, Answer | None, None]


class Milestone:
    """Stand between batches: reached when every row before it is written, or skipped, or rejected and kept.

    Parameters
    ----------
    reached
        Called then, once, by whoever brings the batches; not at all where the write ends before.
    """

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached
        self.open_lanes = 0


@dataclass(frozen=True)
class _Share:
    """Hold what one lane writes of a chunk of rows, and the rows."""

    writes: Writes
    chunk: pa.RecordBatch | RawItems
    first_row: int

    def rejected(self, row: int, reason: str, *, nulls: bool) -> RejectedRow:
        """Return the row of that number with what the service said of it."""
        code, _, words = reason.partition(": ")
        return RejectedRow(row, code, words, row_text(self.chunk, row - self.first_row, nulls=nulls))


class _Post:
    """Hold a lane and what it is to write."""

    def __init__(self, lane: Lane, steps: Callable[[_Post], _Steps]) -> None:
        self.lane = lane
        self.queue: deque[_Share | Milestone] = deque()
        self.is_idle = True
        self.steps = steps(self)


class Crew:
    """Let lanes write at the same time.

    Parameters
    ----------
    nulls
        Whether rejected rows tell NULL from missing attributes.

    Attributes
    ----------
    lanes
        The lanes, which count what they did.
    rejects
        Rows that the service refused, to be taken by whoever keeps them.
    spare
        Buffers whose rows are written.
    first_at, last_at
        Monotonic seconds of the first request and of the last answer.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        source: BodySender,
        budget: Budget,
        arrivals: ResponsePoller,
        *,
        nulls: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rejects: deque[RejectedRow] = deque()
        self.spare: deque[NDArray[np.uint8]] = deque()
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.lanes = lanes
        self._posts = [_Post(lane, self._work) for lane in lanes]
        self._source, self._budget, self._nulls, self._clock = source, budget, nulls, clock
        self._milestones: deque[Milestone] = deque()
        self._queued = 0
        self._line: deque[tuple[_Post, Send]] = deque()
        self._reservation: Reservation | None = None
        self._sent: dict[PendingResponse, tuple[_Post, Sent]] = {}
        self._arrivals = arrivals
        self._pausing: list[tuple[float, int, _Post]] = []
        self._pauses = itertools.count()

    @property
    def is_busy(self) -> bool:
        """Return whether a lane has anything to do."""
        return bool(self._sent or self._line or self._pausing)

    @property
    def is_full(self) -> bool:
        """Return whether a lane has a share that it has not begun."""
        return self._queued > 0

    def hand(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Give each lane its share of a chunk of rows.

        Raises
        ------
        BudgetClosedError
            If the job is being stopped.
        DdbioError
            What ended a lane.
        """
        for post, share in zip(self._posts, writes, strict=True):
            if len(share):
                self._hand(post, _Share(share, chunk, first_row))

    def hand_milestone(self, milestone: Milestone) -> None:
        """Let it be passed when all lanes have done what they were given before."""
        milestone.open_lanes = len(self._posts)
        self._milestones.append(milestone)
        for post in self._posts:
            self._hand(post, milestone)

    def passed(self) -> list[Milestone]:
        """Return the milestones that every lane has passed, each once, in their order."""
        passed = []
        while self._milestones and not self._milestones[0].open_lanes:
            passed.append(self._milestones.popleft())
        return passed

    def abandon(self) -> None:
        """Send nothing any more; what was sent is still answered, and counted."""
        for post, sent in self._sent.values():
            # Something else ends the write already.
            with suppress(Exception):
                post.steps.send(self._take(sent))
        for post in self._posts:
            post.steps.close()

    def step(self) -> None:
        """Send what may be sent, wait until something comes, and do what follows from it; see ``hand``."""
        wait_seconds = self._send()
        for pending in self._arrivals.wait(wait_seconds):
            post, sent = self._sent.pop(pending)
            self._go_on(post, self._take(sent))
        while self._pausing and self._pausing[0][0] <= self._clock():
            self._go_on(heapq.heappop(self._pausing)[2])

    def _send(self) -> float | None:
        """Send what may be sent now; return after how long to look again, None where only answers are awaited."""
        wait_seconds = None
        while self._line:
            post, send = self._line[0]
            reservation = self._reservation or self._budget.reserve(send.units)
            if wait_seconds := reservation.wait_seconds():
                self._reservation = reservation
                break
            self._reservation = wait_seconds = None
            self._line.popleft()
            self._begin(post, send, reservation.grant())
        if self._pausing:
            again_seconds = max(0.0, self._pausing[0][0] - self._clock())
            return again_seconds if wait_seconds is None else min(again_seconds, wait_seconds)
        return wait_seconds

    def _begin(self, post: _Post, send: Send, grant: Grant) -> None:
        now = self._clock()
        if self.first_at is None:
            self.first_at = now
        begun = begin(self._source, post.lane.table, send, grant, now)
        if isinstance(begun, Answer):
            self._go_on(post, begun)
        else:
            self._sent[begun.pending] = post, begun
            self._arrivals.add(begun.pending)

    def _take(self, sent: Sent) -> Answer:
        answer = sent.take()
        self.last_at = self._clock()
        return answer

    def _hand(self, post: _Post, work: _Share | Milestone) -> None:
        post.queue.append(work)
        self._queued += 1
        if post.is_idle:
            self._go_on(post)

    def _go_on(self, post: _Post, answer: Answer | None = None) -> None:
        """Let a lane take its next step, told of what came of the last."""
        step = post.steps.send(answer)
        post.is_idle = step is None
        if isinstance(step, Pause):
            again_at = self._clock() + pause_seconds(step.attempt)
            heapq.heappush(self._pausing, (again_at, next(self._pauses), post))
        elif step is not None:
            self._line.append((post, step))

    def _work(self, post: _Post) -> _Steps:
        """Yield all steps of a lane, and None where it has nothing to do."""
        while True:
            while not post.queue:
                yield None
            work = post.queue.popleft()
            self._queued -= 1
            if isinstance(work, Milestone):
                work.open_lanes -= 1
                continue
            try:
                yield from post.lane.write(work.writes)
                self.spare.append(work.writes.texts)
            finally:
                rejects = post.lane.tally.rejects
                self.rejects += [work.rejected(each.row, each.reason, nulls=self._nulls) for each in rejects]
                rejects.clear()
