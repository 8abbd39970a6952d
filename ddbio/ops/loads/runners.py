"""Run a scheduler of writes in the thread that reads the rows, or in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from ddbio.aws.connection_pool import ResponsePoller
    from ddbio.core.loads.batches import Writes
    from ddbio.core.raw_items import RawItems
    from ddbio.ops.loads.checkpoint import Checkpoint
    from ddbio.ops.loads.scheduler import WriteScheduler


class InlineRunner:
    """Run a scheduler in the thread that reads the rows, so that no thread has to wait for another."""

    def __init__(self, scheduler: WriteScheduler) -> None:
        self.scheduler = scheduler

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Add a chunk of rows; return when the next may come, or a single lane has finished its writes."""
        self.scheduler.add(writes, chunk, first_row)
        # A single lane finishes, so that the next chunk is encoded into memory that the processor has in its cache.
        is_single = len(self.scheduler.lanes) == 1
        while self.scheduler.is_full or (is_single and self.scheduler.is_busy):
            self.scheduler.step()

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint."""
        self.scheduler.add_checkpoint(checkpoint)

    def finish(self) -> None:
        """Return when all is done."""
        while self.scheduler.is_busy:
            self.scheduler.step()

    def abandon(self) -> None:
        """Send nothing more; return when everything that was sent is answered."""
        self.scheduler.abandon()


class ThreadRunner:
    """Run a scheduler in a thread of its own, which sends while rows are read and encoded."""

    def __init__(self, scheduler: WriteScheduler, poller: ResponsePoller) -> None:
        self.scheduler, self._poller = scheduler, poller
        self._changed = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_full = self._is_last = self._is_stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ddbio-lanes", daemon=True)
        self._thread.start()

    def put(self, writes: Sequence[Writes], chunk: pa.RecordBatch | RawItems, first_row: int) -> None:
        """Add a chunk of rows as soon as the lanes have begun earlier ones; raise the error that ended a lane."""
        self._put(partial(self.scheduler.add, writes, chunk, first_row))

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; see ``put``."""
        self._put(partial(self.scheduler.add_checkpoint, checkpoint))

    def finish(self) -> None:
        """Return when all is done; see ``put``."""
        self._is_last = True
        self._end()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Send nothing more; return when everything that was sent is answered."""
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
        """Add what came in, and let the other thread know whether more is accepted."""
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
