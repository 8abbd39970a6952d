"""Let a crew of lanes work: between the rows' reading in the same thread, or in a thread of its own, meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from ddbio.aws.connection_pool import ResponsePoller
    from ddbio.core.loads.batches import Writes
    from ddbio.core.raw_items import RawItems
    from ddbio.ops.loads.crew import Crew, Milestone


class Shift(Protocol):
    """Take the work of a crew."""

    @property
    def crew(self) -> Crew:
        """Return the crew that works."""

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Hand over a chunk of rows, when the crew has not much left to begin; raise what has ended a lane."""

    def put_milestone(self, milestone: Milestone) -> None:
        """Hand over a milestone; see ``put``."""

    def finish(self) -> None:
        """Return when all is done; see ``put``."""

    def abandon(self) -> None:
        """Return when all that was sent is answered; send nothing any more."""


class InlineShift:
    """Let the crew work while its work is handed over: no thread has to wait for another."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Hand over a chunk of rows; return when each lane has begun its share, or a lone one has written it."""
        self.crew.hand(writes, chunk, first_row)
        # The next chunk is then encoded into the memory of this one, which the processor still has at hand.
        is_alone = len(self.crew.lanes) == 1
        while self.crew.is_full or (is_alone and self.crew.is_busy):
            self.crew.step()

    def put_milestone(self, milestone: Milestone) -> None:
        """Hand over a milestone."""
        self.crew.hand_milestone(milestone)

    def finish(self) -> None:
        """Return when all is done."""
        while self.crew.is_busy:
            self.crew.step()

    def abandon(self) -> None:
        """Return when all that was sent is answered."""
        self.crew.abandon()


class ThreadShift:
    """Let the crew work in a thread: it goes on while rows are read and encoded."""

    def __init__(self, crew: Crew, arrivals: ResponsePoller) -> None:
        self.crew, self._arrivals = crew, arrivals
        self._changed = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_full = self._is_last = self._is_stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="ddbio-lanes", daemon=True)
        self._thread.start()

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Hand over a chunk of rows, when there is room."""
        self._put(partial(self.crew.hand, writes, chunk, first_row))

    def put_milestone(self, milestone: Milestone) -> None:
        """Hand over a milestone, when there is room."""
        self._put(partial(self.crew.hand_milestone, milestone))

    def finish(self) -> None:
        """Return when all is done."""
        self._is_last = True
        self._end()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Return when all that was sent is answered."""
        self._is_stopped = True
        self._end()

    def _put(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not (self._is_full or self._inbox))
            if self._failure is not None:
                raise self._failure
            self._inbox.append(work)
        self._arrivals.wake()

    def _end(self) -> None:
        self._arrivals.wake()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._is_stopped:
                is_last = self._is_last
                self._take()
                if is_last and not self.crew.is_busy:
                    return
                self.crew.step()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that hands over
            self._fail(error)
        finally:
            self.crew.abandon()

    def _take(self) -> None:
        """Begin what was handed over, and tell whether there is room for more."""
        taken = bool(self._inbox)
        if taken:
            self._inbox[0]()
        is_full = self.crew.is_full
        if taken or is_full != self._is_full:
            with self._changed:
                if taken:
                    self._inbox.popleft()
                self._is_full = is_full
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
