"""Read many segments of a table in rotation, page by page, in one thread that has several requests in flight.

Each page is yielded exactly once. A request that fails is repeated with the same start key, as ``retry`` says.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.error_codes import BotoCoreError, ClientError
from ddbio.aws.retry import RetryPolicy, backoff_seconds
from ddbio.aws.transport import open_page_source, read_body
from ddbio.budget import BudgetClosedError, Grant
from ddbio.errors import DdbioError
from ddbio.items.digest import Digest
from ddbio.items.digest_json import JsonDigest
from ddbio.items.page import split_page
from ddbio.items.rescue import MisfitLog
from ddbio.scan.pages import Reading, settle_failed, settle_page
from ddbio.scan.stream import BlockT, ScanCounts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget
    from ddbio.items.page import Page
    from ddbio.scan.pages import ReadRequest
    from ddbio.scan.stream import PageDecoder, ScanTask

_NO_GRANT = Grant(0.0, 0.0)


def rotated_pages(
    source: PageSource, requests: Iterable[ReadRequest], budget: Budget, policy: RetryPolicy, in_flight: int
) -> Iterator[Page]:
    """Yield the pages of segments that are read in rotation, one of each in turn, each exactly once.

    All is done by the thread that iterates: requests are sent before a page is yielded, and answers come meanwhile.
    A segment whose request fails pauses, and the others go on.

    Parameters
    ----------
    requests
        One for each segment.
    in_flight
        How many requests may be in flight at once.

    Raises
    ------
    ThrottledError, EndpointError, BudgetClosedError
        As ``scan_pages``, for any of the segments.
    """
    with closing(ResponsePoller()) as poller:
        rotation = _Rotation(source, requests, budget, policy, poller)
        ready: deque[PendingResponse] = deque()
        try:
            while not rotation.is_done:
                rotation.send(in_flight)
                ready.extend(() if ready else rotation.wait())
                page = rotation.take(ready.popleft()) if ready else None
                if page is not None:
                    rotation.send(in_flight)
                    yield page
        finally:
            rotation.abandon()


@dataclass(eq=False, slots=True)
class _Turn:
    """Hold a segment that is read in rotation, its grant, and since when and how often its request has failed."""

    reading: Reading
    table: str
    estimate: float = 0.0
    grant: Grant = _NO_GRANT
    began: float = 0.0
    attempt: int = 0


class _Rotation:
    """Send the requests of segments in turn, and take the answers as they come."""

    def __init__(
        self,
        source: PageSource,
        requests: Iterable[ReadRequest],
        budget: Budget,
        policy: RetryPolicy,
        poller: ResponsePoller,
    ) -> None:
        self._source, self._budget, self._policy, self._poller = source, budget, policy, poller
        self._waiting = deque(_Turn(Reading(request), request.table) for request in requests)
        self._sent: dict[PendingResponse, _Turn] = {}
        # By the end of the pause, then by the number of the failure.
        self._pausing: list[tuple[float, int, _Turn]] = []
        self._failures = itertools.count()

    @property
    def is_done(self) -> bool:
        """Return whether every segment was read to its end."""
        return not (self._waiting or self._sent or self._pausing)

    def send(self, in_flight: int) -> None:
        """Send the requests of the next segments, as many as may be in flight."""
        while self._waiting and len(self._sent) < in_flight:
            turn = self._waiting.popleft()
            turn.estimate = turn.reading.ask()
            turn.grant = self._budget.acquire(turn.estimate)
            # Time spent waiting for the budget does not count as lack of progress.
            if not turn.attempt:
                turn.began = self._policy.clock()
            try:
                pending = self._source.begin(turn.reading.operation, turn.table, read_body(turn.reading.parameters))
            except (ClientError, BotoCoreError) as error:
                self._failed(turn, error)
            else:
                self._sent[pending] = turn
                self._poller.add(pending)

    def wait(self) -> list[PendingResponse]:
        """Return answers that have come, as soon as there are any, or none when a pause ends."""
        seconds = max(0.0, self._pausing[0][0] - self._policy.clock()) if self._pausing else None
        if self._sent:
            ready = self._poller.wait(seconds)
        elif self._policy.stop.wait(seconds):
            raise BudgetClosedError
        else:
            ready = []
        while self._pausing and self._pausing[0][0] <= self._policy.clock():
            self._waiting.appendleft(heapq.heappop(self._pausing)[2])
        return ready

    def take(self, pending: PendingResponse) -> Page | None:
        """Return a page; None if its request has failed."""
        turn = self._sent.pop(pending)
        try:
            page = split_page(pending.result())
        except (ClientError, BotoCoreError) as error:
            self._failed(turn, error)
            return None
        settle_page(self._budget, turn.grant, turn.estimate, page)
        turn.attempt = 0
        page = turn.reading.take(page)
        if not turn.reading.is_done:
            self._waiting.append(turn)
        return page

    def abandon(self) -> None:
        """Take the answers to what was sent, so that they are counted, and their connections are free."""
        for pending, turn in self._sent.items():
            # Another error ends the rotation already, or nobody asks any more.
            with suppress(ClientError, BotoCoreError, DdbioError):
                settle_page(self._budget, turn.grant, turn.estimate, split_page(pending.result()))

    def _failed(self, turn: _Turn, error: ClientError | BotoCoreError) -> None:
        settle_failed(self._budget, turn.grant, turn.estimate, error)
        now = self._policy.clock()
        self._policy.check_read(error, turn.reading.operation, turn.table, now - turn.began)
        heapq.heappush(self._pausing, (now + backoff_seconds(turn.attempt), next(self._failures), turn))
        turn.attempt += 1


class RotatedStream(Generic[BlockT]):
    """Iterate over the blocks that pages become, a page of each segment in turn; ``counts`` is complete at the end.

    The thread that iterates reads and decodes, with as many requests in flight as the task has lanes. Threads would
    take turns with the one that sends what was read: both are Python.
    """

    def __init__(self, task: ScanTask, budget: Budget, decoder: PageDecoder[BlockT]) -> None:
        self._task, self._budget, self._decoder = task, budget, decoder
        self.counts = ScanCounts(0, 0, MisfitLog(), Digest())

    def __iter__(self) -> Generator[BlockT]:
        """Yield the blocks; order is not defined."""
        task, digest = self._task, JsonDigest()
        digest.digest = self.counts.digest
        policy = RetryPolicy(task.deadline_seconds, threading.Event())
        with closing(open_page_source(task.spec, task.lanes, accept_encoding=task.accept_encoding)) as source:
            for page in rotated_pages(source, task.requests, self._budget, policy, task.lanes):
                self.counts.add(page)
                if task.digest:
                    digest.add(page.items, "page")
                if page.count:
                    yield from self._decoder.decode_batches(page.items, "page")
