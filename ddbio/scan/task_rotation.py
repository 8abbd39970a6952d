"""Read the segments of one task in rotation, so that what comes at any time is from all over the table."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Generic

from ddbio.aws.retry import RetryPolicy
from ddbio.aws.transport import open_page_source
from ddbio.items.digest import Digest
from ddbio.items.digest_json import JsonDigest
from ddbio.items.rescue import MisfitLog
from ddbio.scan.rotation import rotated_pages
from ddbio.scan.stream import BlockT, ScanCounts

if TYPE_CHECKING:
    from collections.abc import Generator

    from ddbio.budget import Budget
    from ddbio.scan.stream import PageDecoder, ScanTask


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
