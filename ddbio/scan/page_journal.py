"""Keep the pages of a scan as they came until their rows are in complete files: a killed scan asks for few again.

A page is one object, named by what was asked for: the segment, the start key, how much of the selection was left. An
attempt first takes the pages that are there for what it is to ask, one after the other, and asks from behind them.
Each page that comes then is written before the next one of its segment is asked for.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import NotFoundError
from ddbio.items.expansion import check_expansion
from ddbio.items.page import Page
from ddbio.scan.pages import rest_after
from ddbio.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.scan.pages import ReadRequest
    from ddbio.storage.object_store import ObjectStore

MOST_BYTES = 1024**3
"""Bytes in the journal of a task above which its files are closed, and so its pages dropped."""


class PageJournal:
    """Hold the pages of one attempt of a task; its lanes and its writer use it at the same time.

    Parameters
    ----------
    store
        Where the pages of one job are.
    run
        The run of the job that reads now.
    """

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store, self._run = store, run
        # In the order in which a segment's pages were yielded.
        self._kept: defaultdict[int, deque[tuple[str, int]]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.size_bytes = 0

    def pages(self, request: ReadRequest, scan: Callable[[ReadRequest], Iterator[Page]]) -> Iterator[Page]:
        """Yield the pages of a request: those that are kept, and then those that ``scan`` reads.

        Looked-up items are not kept: what is left of the keys would be written with each page.

        Raises
        ------
        DdbioError
            As ``scan``, or if the store refuses a page.
        """
        if request.keys:
            yield from scan(request)
            return
        left: ReadRequest | None = request
        while left is not None and (page := self._take(left)) is not None:
            left = _left(left, page)
            yield page
        if left is None:
            return
        for page in scan(left):
            self._keep(left, page)
            following = _left(left, page)
            yield page
            if following is None:
                return
            left = following

    def drop(self, taken: Mapping[int, int]) -> None:
        """Delete the first so many pages of each segment: their rows are in complete files."""
        names = []
        with self._lock:
            for segment, count in taken.items():
                kept = self._kept[segment]
                for _ in range(min(count, len(kept))):
                    name, size_bytes = kept.popleft()
                    names.append(name)
                    self.size_bytes -= size_bytes
        self._store.delete(names)

    def finish(self, job_id: str) -> None:
        """Tidy up where an attempt has ended well, and so has dropped all of its pages."""
        self._store.abort(job_id)

    def _take(self, request: ReadRequest) -> Page | None:
        name = _name(request)
        try:
            data = self._store.read(name)
        except NotFoundError:
            return None
        try:
            page = _parsed(data, self._run)
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            # Damaged: it is asked for again.
            return None
        self._add(request, name, len(data))
        return page

    def _keep(self, request: ReadRequest, page: Page) -> None:
        name, data = _name(request), _formatted(page, self._run)
        self._store.put(name, data)
        self._add(request, name, len(data))

    def _add(self, request: ReadRequest, name: str, size_bytes: int) -> None:
        with self._lock:
            self._kept[request.segment].append((name, size_bytes))
            self.size_bytes += size_bytes


def forget_pages(store: ObjectStore) -> None:
    """Delete all pages of a job that has ended, where this process reaches them."""
    if isinstance(store, LocalStore):
        # Also what a killed process was writing.
        store.remove()
    else:
        store.delete([each.path for each in store.list()])


def _left(request: ReadRequest, page: Page) -> ReadRequest | None:
    rest = rest_after(page)
    left = None if rest is None else request.after(rest, page.count)
    return None if left is None or (left.max_items is not None and left.max_items <= 0) else left


def _name(request: ReadRequest) -> str:
    """Return the name of the page that a request begins with, in a job whose selection never changes."""
    asked = json.dumps([request.start_key, len(request.queries), request.max_items], sort_keys=True)
    return f"{request.segment:06}-{hashlib.blake2b(asked.encode(), digest_size=12).hexdigest()}"


def _formatted(page: Page, run: str) -> bytes:
    """Return a page as a line of JSON and the compressed items."""
    head = {
        "run": run,
        "bytes": len(page.items),
        "count": page.count,
        "scanned_count": page.scanned_count,
        "last_evaluated_key": page.last_evaluated_key,
        "consumed_units": page.consumed_units,
        "wire_bytes": page.wire_bytes,
        "missing": page.missing,
        "missing_keys": [each.decode() for each in page.missing_keys],
        "queries_left": page.queries_left,
    }
    return b"\n".join((json.dumps(head).encode(), pa.compress(page.items, codec="lz4", asbytes=True)))


def _parsed(data: bytes, run: str) -> Page:
    line, _, items = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    is_resumed, size_bytes = head.pop("run") != run, head.pop("bytes")
    check_expansion(len(items), size_bytes)
    head["missing_keys"] = tuple(each.encode() for each in head["missing_keys"])
    return Page(items=pa.decompress(items, size_bytes, codec="lz4", asbytes=True), is_resumed=is_resumed, **head)
