"""Read the segments of one task, on several lanes or in rotation, and yield the blocks that the pages become.

Each page is yielded exactly once. A request that fails is repeated with the same start key, as ``retry`` says.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.error_codes import BotoCoreError, ClientError
from ddbio.aws.retry import RetryPolicy, backoff_seconds
from ddbio.aws.transport import open_page_source, read_body
from ddbio.budget import BudgetClosedError, Grant
from ddbio.errors import DdbioError
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_json import JsonDigest
from ddbio.items.page import split_page
from ddbio.items.rescue import MisfitLog
from ddbio.jobs.engine import available_cores
from ddbio.scan.pages import Reading, ReadRequest, rest_after, scan_pages, settle_failed, settle_page

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget
    from ddbio.items.page import Page
    from ddbio.items.rescue import OnMisfit
    from ddbio.scan.options import AcceptEncoding
    from ddbio.scan.pages import Rest
    from ddbio.scan.progress import PageJournal

QUEUED_BYTES = 8 * 1024 * 1024
"""Decoded bytes that lanes may be ahead of their consumer."""

MOST_MISSING = 10
"""Keys without an item that are named; all are counted."""


@dataclass(frozen=True)
class ScanTask:
    """Everything that a worker needs, picklable: what to read, into which columns, on how many lanes."""

    number: int
    spec: ClientSpec
    requests: tuple[ReadRequest, ...]
    lanes: int
    schema: pa.Schema
    on_misfit: OnMisfit = "rescue"
    nulls: Literal["merge", "keep"] = "merge"
    drop: tuple[str, ...] = ()
    digest: bool = False
    deadline_seconds: float = 600.0
    accept_encoding: AcceptEncoding = "identity"
    whole_pages: bool = False
    """Whether what a page becomes is yielded as one, with the page's end, so that the scan can go on there."""


@dataclass
class ScanCounts:
    """Count what a task read."""

    items: int = 0
    wire_bytes: int = 0
    misfits: MisfitLog = field(default_factory=MisfitLog)
    digest: Digest = field(default_factory=Digest)
    scanned_items: int = 0
    """Items that were read for them: more, if they had to meet a condition."""
    missing_keys: int = 0
    """Keys that were looked up, and for which there is no item."""
    missing: list[bytes] = field(default_factory=list)
    """Some of those, as DynamoDB JSON."""

    def add(self, page: Page) -> None:
        """Count a page."""
        self.items += page.count
        self.scanned_items += page.scanned_count
        self.wire_bytes += page.wire_bytes
        if page.missing:
            self.missing_keys += page.missing
            self.missing += page.missing_keys[: MOST_MISSING - len(self.missing)]


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


BlockT = TypeVar("BlockT", bound=_Sized)
MadeT_co = TypeVar("MadeT_co", bound=_Sized, covariant=True)


@dataclass(frozen=True)
class ReadPage(Generic[BlockT]):
    """Hold what a page of a segment became, and what the segment leaves; None at its end.

    Attributes
    ----------
    digest
        That of its items, if one is asked for.
    """

    segment: int
    blocks: tuple[BlockT, ...]
    rest: Rest | None
    counts: Mapping[str, int]
    digest: Digest

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return sum(block.nbytes for block in self.blocks)


class PageDecoder(Protocol[MadeT_co]):
    """Make blocks of the items of pages; one lane uses it at a time."""

    @property
    def log(self) -> MisfitLog:
        """Return the misfits so far."""
        ...

    def decode_batches(self, data: bytes, framing: Literal["page"], /) -> Sequence[MadeT_co]:
        """Return the blocks that a page's items become."""
        ...


class PageStream(Generic[BlockT]):
    """Iterate over the blocks that a task's pages become; ``counts`` is complete when the iteration has ended.

    Each lane is a thread that takes the next segment when it has finished one, so that a long segment holds up no
    other. The first error of any lane ends the stream. Closing the iterator early stops the lanes.

    Parameters
    ----------
    open_decoder
        Returns a new decoder: no two lanes use one at the same time.
    pages, policy
        Where pages come from, and how failed requests are repeated; default is what the task says.
    journal
        Where pages are kept until their rows are in complete files, and where those of earlier attempts are found.
    """

    def __init__(
        self,
        task: ScanTask,
        budget: Budget,
        open_decoder: Callable[[], PageDecoder[BlockT]],
        *,
        pages: PageSource | None = None,
        policy: RetryPolicy | None = None,
        journal: PageJournal | None = None,
    ) -> None:
        self._task = task
        self._budget = budget
        self._open_decoder = open_decoder
        self._pages = pages or open_page_source(task.spec, task.lanes, accept_encoding=task.accept_encoding)
        self._journal = journal
        self._retry_policy = policy or RetryPolicy(task.deadline_seconds, threading.Event())
        self._waiting = deque(task.requests)
        # A decoder holds several pages' worth of scratch: there are no more of them than cores.
        self._decoders: SimpleQueue[PageDecoder[BlockT]] = SimpleQueue()
        # Of blocks, or of whole pages.
        self._queue: deque[Any] = deque()
        self._queued_bytes = 0
        self._running = 0
        self._error: BaseException | None = None
        # What lanes and consumer wait for, each by itself, so that nobody is woken for nothing.
        self._lock = threading.Lock()
        self._delivered, self._has_room = (threading.Condition(self._lock) for _ in range(2))
        self._stop = self._retry_policy.stop
        self.counts = ScanCounts()

    def __iter__(self) -> Generator[BlockT]:
        """Yield the blocks as the lanes deliver them; order is not defined."""
        lanes = min(self._task.lanes, len(self._waiting))
        self._running = lanes
        for _ in range(min(lanes, available_cores())):
            self._decoders.put(self._open_decoder())
        threads = [threading.Thread(target=self._lane, name=f"ddbio-lane-{n}", daemon=True) for n in range(lanes)]
        for thread in threads:
            thread.start()
        try:
            while blocks := self._take():
                while blocks:
                    yield blocks.popleft()
        finally:
            self._stop.set()
            with self._lock:
                self._wake_all()
            for thread in threads:
                thread.join()
            while not self._decoders.empty():
                self.counts.misfits.merge(self._decoders.get().log)
            self._pages.close()

    def _take(self) -> deque[Any]:
        """Return all blocks that are there, at least one, so that lanes are woken once for all; none at the end."""
        with self._lock:
            self._delivered.wait_for(lambda: self._queue or self._error is not None or not self._running)
            if self._error is not None and not (self._task.whole_pages and self._queue):
                raise self._error
            taken, self._queue = self._queue, deque()
            if taken:
                self._queued_bytes = 0
                self._has_room.notify_all()
            return taken

    def _wake_all(self) -> None:
        for condition in (self._delivered, self._has_room):
            condition.notify_all()

    def _deliver(self, block: BlockT | ReadPage[BlockT]) -> None:
        n_bytes = block.nbytes
        with self._lock:
            self._has_room.wait_for(
                lambda: not self._queue or self._queued_bytes + n_bytes <= QUEUED_BYTES or self._stop.is_set()
            )
            self._queue.append(block)
            self._queued_bytes += n_bytes
            self._delivered.notify()
            # There may be room for the next lane's block too.
            self._has_room.notify()

    def _lane(self) -> None:
        digest = JsonDigest()
        error: BaseException | None = None
        try:
            while (request := self._next()) is not None:
                self._read(request, digest)
        except BaseException as raised:  # noqa: BLE001 - whatever ends a lane must reach the consumer
            error = raised
        with self._lock:
            self._running -= 1
            self._error = self._error or error
            self.counts.digest.merge(digest.digest)
            self._wake_all()

    def _next(self) -> ReadRequest | None:
        """Return the next segment; None if there are no more."""
        with self._lock:
            return self._waiting.popleft() if self._waiting and not self._is_ending else None

    def _scan(self, request: ReadRequest) -> Iterator[Page]:
        return scan_pages(self._pages, request, self._budget, self._retry_policy)

    @property
    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._error is not None

    def _read(self, request: ReadRequest, digest: JsonDigest) -> None:
        """Deliver one segment's pages."""
        for page in self._scan(request) if self._journal is None else self._journal.pages(request, self._scan):
            with self._lock:
                self.counts.add(page)
            if self._task.whole_pages:
                self._deliver(self._whole(request.segment, page, digest))
            else:
                for block in self._decode(page, digest) if page.count else ():
                    self._deliver(block)
            if self._is_ending:
                return

    def _whole(self, segment: int, page: Page, digest: JsonDigest) -> ReadPage[BlockT]:
        blocks = tuple(self._decode(page, digest)) if page.count else ()
        # Its own sum, so that a run that goes on behind this page knows that of all before.
        own, digest.digest = digest.digest, Digest()
        counts = {
            "items": page.count,
            "scanned_items": page.scanned_count,
            "wire_bytes": page.wire_bytes,
            "missing_keys": page.missing,
            "resumed_items": page.count if page.is_resumed else 0,
        }
        return ReadPage(segment, blocks, rest_after(page), counts, own)

    def _decode(self, page: Page, digest: JsonDigest) -> Sequence[BlockT]:
        decoder = self._decoders.get()
        try:
            if self._task.digest:
                digest.add(page.items, "page")
            # As several batches: one batch of a wide table would be copied once more.
            return decoder.decode_batches(page.items, "page")
        finally:
            self._decoders.put(decoder)


class SegmentStream(PageStream[pa.RecordBatch]):
    """Iterate over the batches of a task's segments."""

    def __init__(self, task: ScanTask, budget: Budget, journal: PageJournal | None = None) -> None:
        decoder = partial(Decoder, task.schema, on_misfit=task.on_misfit, nulls=task.nulls, drop=task.drop)
        super().__init__(task, budget, decoder, journal=journal)


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
        self.counts = ScanCounts()

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
