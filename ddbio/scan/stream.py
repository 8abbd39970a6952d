"""Reads of the segments of one task, on several lanes or in rotation, as a stream of decoded blocks.

Each page is yielded exactly once. A failed request is repeated with the same start key (see ``aws/retry.py``).
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
from ddbio.scan.pages import Reading, ReadRequest, remainder_after, scan_pages, settle_failed, settle_page

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget
    from ddbio.items.page import Page
    from ddbio.items.rescue import OnMisfit
    from ddbio.scan.options import AcceptEncoding
    from ddbio.scan.pages import Remainder
    from ddbio.scan.progress import PageJournal

QUEUED_BYTES = 8 * 1024 * 1024
"""Maximum decoded bytes that wait for the consumer."""

MAX_MISSING_EXAMPLES = 10
"""The number of keys without an item that are reported by name; all are counted."""


@dataclass(frozen=True)
class ScanTask:
    """Picklable description of the reads of a worker: segments, columns and lanes."""

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
    yields_pages: bool = False
    """Whether a page is yielded as one object that includes its end, so that the scan can resume after it."""


@dataclass
class ScanCounts:
    """Counts of the items and bytes that a task read."""

    items: int = 0
    wire_bytes: int = 0
    misfits: MisfitLog = field(default_factory=MisfitLog)
    digest: Digest = field(default_factory=Digest)
    scanned_items: int = 0
    """Items that were read; with a condition, more than match it."""
    missing_keys: int = 0
    """Requested keys without an item."""
    missing: list[bytes] = field(default_factory=list)
    """Some of these keys, as DynamoDB JSON."""

    def add(self, page: Page) -> None:
        """Add the counts of a page."""
        self.items += page.count
        self.scanned_items += page.scanned_count
        self.wire_bytes += page.wire_bytes
        if page.missing:
            self.missing_keys += page.missing
            self.missing += page.missing_keys[: MAX_MISSING_EXAMPLES - len(self.missing)]


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


BlockT = TypeVar("BlockT", bound=_Sized)
DecodedT_co = TypeVar("DecodedT_co", bound=_Sized, covariant=True)


@dataclass(frozen=True)
class ReadPage(Generic[BlockT]):
    """Decoded page of a segment, and the unread part of the segment; None at its end.

    Attributes
    ----------
    digest
        The digest of its items, if requested.
    """

    segment: int
    blocks: tuple[BlockT, ...]
    remainder: Remainder | None
    counts: Mapping[str, int]
    digest: Digest

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return sum(block.nbytes for block in self.blocks)


class PageDecoder(Protocol[DecodedT_co]):
    """Decoder of pages into blocks; it is used by one lane at a time."""

    @property
    def log(self) -> MisfitLog:
        """Return the misfits so far."""
        ...

    def decode_batches(self, data: bytes, framing: Literal["page"], /) -> Sequence[DecodedT_co]:
        """Return the blocks of a page's items."""
        ...


class PageStream(Generic[BlockT]):
    """Iterable over the blocks of a task's pages; ``counts`` is complete at the end of the iteration.

    Each lane is a thread that takes the next segment when it has finished one, so that a long segment does not delay
    others. The first error of any lane ends the stream. Closing the iterator early stops the lanes.

    Parameters
    ----------
    open_decoder
        Returns a new decoder; a decoder is never used by two lanes at the same time.
    pages, policy
        The source of pages and the retry policy; the default is that of the task.
    journal
        The store of pages whose rows are not in complete files yet, including those of earlier attempts.
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
        # A decoder needs scratch memory of several pages, so there are no more decoders than cores.
        self._decoders: SimpleQueue[PageDecoder[BlockT]] = SimpleQueue()
        # Contains blocks, or pages if the task yields pages.
        self._queue: deque[Any] = deque()
        self._queued_bytes = 0
        self._running = 0
        self._error: BaseException | None = None
        # Lanes and consumer wait on separate conditions, so that no thread is woken needlessly.
        self._lock = threading.Lock()
        self._delivered, self._has_space = (threading.Condition(self._lock) for _ in range(2))
        self._stop = self._retry_policy.stop
        self.counts = ScanCounts()

    def __iter__(self) -> Generator[BlockT]:
        """Yield the blocks as the lanes deliver them, in no defined order."""
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
        """Return all queued blocks, at least one, so that lanes are woken once for all; empty at the end."""
        with self._lock:
            self._delivered.wait_for(lambda: self._queue or self._error is not None or not self._running)
            if self._error is not None and not (self._task.yields_pages and self._queue):
                raise self._error
            taken, self._queue = self._queue, deque()
            if taken:
                self._queued_bytes = 0
                self._has_space.notify_all()
            return taken

    def _wake_all(self) -> None:
        for condition in (self._delivered, self._has_space):
            condition.notify_all()

    def _deliver(self, block: BlockT | ReadPage[BlockT]) -> None:
        n_bytes = block.nbytes
        with self._lock:
            self._has_space.wait_for(
                lambda: not self._queue or self._queued_bytes + n_bytes <= QUEUED_BYTES or self._stop.is_set()
            )
            self._queue.append(block)
            self._queued_bytes += n_bytes
            self._delivered.notify()
            # There may be space for the block of another lane.
            self._has_space.notify()

    def _lane(self) -> None:
        digest = JsonDigest()
        error: BaseException | None = None
        try:
            while (request := self._next()) is not None:
                self._read(request, digest)
        except BaseException as raised:  # noqa: BLE001 - every error of a lane must reach the consumer
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
            if self._task.yields_pages:
                self._deliver(self._read_page(request.segment, page, digest))
            else:
                for block in self._decode(page, digest) if page.count else ():
                    self._deliver(block)
            if self._is_ending:
                return

    def _read_page(self, segment: int, page: Page, digest: JsonDigest) -> ReadPage[BlockT]:
        blocks = tuple(self._decode(page, digest)) if page.count else ()
        # Each page has its own digest, so that a run that resumes after it can add up the earlier ones.
        own, digest.digest = digest.digest, Digest()
        counts = {
            "items": page.count,
            "scanned_items": page.scanned_count,
            "wire_bytes": page.wire_bytes,
            "missing_keys": page.missing,
            "resumed_items": page.count if page.is_resumed else 0,
        }
        return ReadPage(segment, blocks, remainder_after(page), counts, own)

    def _decode(self, page: Page, digest: JsonDigest) -> Sequence[BlockT]:
        decoder = self._decoders.get()
        try:
            if self._task.digest:
                digest.add(page.items, "page")
            # In several batches, because one batch of a wide table would be copied once more.
            return decoder.decode_batches(page.items, "page")
        finally:
            self._decoders.put(decoder)


class SegmentStream(PageStream[pa.RecordBatch]):
    """Iterable over the record batches of a task's segments."""

    def __init__(self, task: ScanTask, budget: Budget, journal: PageJournal | None = None) -> None:
        decoder = partial(Decoder, task.schema, on_misfit=task.on_misfit, nulls=task.nulls, drop=task.drop)
        super().__init__(task, budget, decoder, journal=journal)


_NO_GRANT = Grant(0.0, 0.0)


def rotated_pages(
    source: PageSource, requests: Iterable[ReadRequest], budget: Budget, policy: RetryPolicy, in_flight: int
) -> Iterator[Page]:
    """Yield the pages of several segments in rotation, one page of each in turn, each exactly once.

    The iterating thread does all the work: it sends requests before it yields a page, and answers arrive meanwhile.
    A segment whose request fails pauses, while the others continue.

    Parameters
    ----------
    requests
        One request for each segment.
    in_flight
        Maximum number of requests in flight.

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
class _RotatedSegment:
    """Segment that is read in rotation: its grant, and the start time and number of its failed attempts."""

    reading: Reading
    table: str
    estimate: float = 0.0
    grant: Grant = _NO_GRANT
    began: float = 0.0
    attempt: int = 0


class _Rotation:
    """Requests of several segments, which are sent in turn."""

    def __init__(
        self,
        source: PageSource,
        requests: Iterable[ReadRequest],
        budget: Budget,
        policy: RetryPolicy,
        poller: ResponsePoller,
    ) -> None:
        self._source, self._budget, self._policy, self._poller = source, budget, policy, poller
        self._waiting = deque(_RotatedSegment(Reading(request), request.table) for request in requests)
        self._sent: dict[PendingResponse, _RotatedSegment] = {}
        # Ordered by the end of the pause, then by the number of the failure.
        self._pausing: list[tuple[float, int, _RotatedSegment]] = []
        self._failures = itertools.count()

    @property
    def is_done(self) -> bool:
        """Return whether every segment was read to its end."""
        return not (self._waiting or self._sent or self._pausing)

    def send(self, in_flight: int) -> None:
        """Send the requests of the next segments, until ``in_flight`` requests are in flight."""
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
        """Return the answers that have arrived; wait for the first one or for the end of a pause."""
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
        """Return the page of an answer; None if its request has failed."""
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
        """Wait for the answers of all sent requests, so that they are charged and their connections are free."""
        for pending, turn in self._sent.items():
            # The rotation already ends with another error, or its consumer has stopped.
            with suppress(ClientError, BotoCoreError, DdbioError):
                settle_page(self._budget, turn.grant, turn.estimate, split_page(pending.result()))

    def _failed(self, turn: _RotatedSegment, error: ClientError | BotoCoreError) -> None:
        settle_failed(self._budget, turn.grant, turn.estimate, error)
        now = self._policy.clock()
        self._policy.check_read(error, turn.reading.operation, turn.table, now - turn.began)
        heapq.heappush(self._pausing, (now + backoff_seconds(turn.attempt), next(self._failures), turn))
        turn.attempt += 1


class RotatedStream(Generic[BlockT]):
    """Iterable over the blocks of pages, a page of each segment in turn; ``counts`` is complete at the end.

    The iterating thread reads and decodes, with as many requests in flight as the task has lanes. More threads would
    only compete with the sending thread for the interpreter.
    """

    def __init__(self, task: ScanTask, budget: Budget, decoder: PageDecoder[BlockT]) -> None:
        self._task, self._budget, self._decoder = task, budget, decoder
        self.counts = ScanCounts()

    def __iter__(self) -> Generator[BlockT]:
        """Yield the blocks in no defined order."""
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
