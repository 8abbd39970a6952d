"""Store how far a scan has come beside its staged files, so that a scan of the same job id goes on where it stopped.

The file ``_ddbio/<job_id>.scan.json`` says what the job is. Beside it, in ``_ddbio/<job_id>.scan/``, are how it was
planned, and a record of each attempt of a task: its steps. A step lists files that were staged, and from where in each
segment up to where their rows come. A file is closed for a step, so that none has rows of pages that it does not
name. Steps are taken in any order in which they fit on each other: what another attempt has read too is passed over.
With a page journal, what was read since the last step is there as it came.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DdbioError, NotFoundError
from ddbio.items.digest import Digest
from ddbio.items.expansion import check_expansion
from ddbio.items.page import Page
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.stores import open_store
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.options.parsing import fixed_options
from ddbio.scan.conditions import selection_of
from ddbio.scan.pages import Rest, rest_after
from ddbio.storage.job_state import JobState, require_same
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import META
from ddbio.storage.staged import StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ddbio.aws.table_description import TableDescription
    from ddbio.formats.partitioned_writer import PartitionedWriter
    from ddbio.formats.rolling_writer import RollingWriter
    from ddbio.jobs.staging import Staging
    from ddbio.scan.options import ScanToFilesOptions
    from ddbio.scan.pages import ReadRequest
    from ddbio.scan.plan import ScanPlan
    from ddbio.scan.stream import ReadPage, ScanTask
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
            page = _parse_journal(data, self._run)
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            # Damaged: it is asked for again.
            return None
        self._add(request, name, len(data))
        return page

    def _keep(self, request: ReadRequest, page: Page) -> None:
        name, data = _name(request), _format_journal(page, self._run)
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


# The members of a page that a journal has as JSON.
_HEAD = ("count", "scanned_count", "last_evaluated_key", "consumed_units", "wire_bytes", "missing", "queries_left")


def _format_journal(page: Page, run: str) -> bytes:
    """Return a page as a line of JSON and the compressed items."""
    head: dict[str, Any] = {"run": run, "bytes": len(page.items), **{name: getattr(page, name) for name in _HEAD}}
    head["missing_keys"] = [each.decode() for each in page.missing_keys]
    return b"\n".join((json.dumps(head).encode(), pa.compress(page.items, codec="lz4", asbytes=True)))


def _parse_journal(data: bytes, run: str) -> Page:
    line, _, items = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    is_resumed, size_bytes = head.pop("run") != run, head.pop("bytes")
    check_expansion(len(items), size_bytes)
    head["missing_keys"] = tuple(each.encode() for each in head["missing_keys"])
    return Page(items=pa.decompress(items, size_bytes, codec="lz4", asbytes=True), is_resumed=is_resumed, **head)


STEP_SECONDS = 30.0
"""A job that is killed reads again what it had read in at most so long; one that ends by itself stores all it has."""

PARTITIONED_STEP_SECONDS = 300.0
"""The same of a job that writes partitions: each step closes a file of every partition, which is small."""


@dataclass(frozen=True)
class Position:
    """Say how many items of a segment were read, and what is left of it; None at its end."""

    items: int = 0
    rest: Rest | None = field(default_factory=Rest)

    def mark(self) -> str:
        """Return a text that no other position of the segment has: two attempts may cut pages at other items."""
        return hashlib.blake2b(json.dumps(_formatted(self), sort_keys=True).encode(), digest_size=12).hexdigest()


_START = Position()
_BEGUN = "begun"


@dataclass(frozen=True)
class ScanProgress:
    """Hold what earlier runs of a scan, or earlier attempts of a task, have done.

    Attributes
    ----------
    run
        The name of this run in its records.
    files
        What they staged.
    segments
        How far they came in each segment that was begun.
    digest
        Digest of the items that they read, if one is asked for.
    pages
        Where pages are kept until their rows are in complete files; None if they are not.
    """

    state: JobState
    run: str
    files: tuple[StagedFile, ...] = ()
    segments: Mapping[int, Position] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=Counter)
    digest: Digest = field(default_factory=Digest)
    pages: ObjectStore | None = None

    def planned(self, plan: ScanPlan) -> ScanPlan:
        """Return the plan with the columns and the segments of the first run, whose plan is stored if this is it."""
        stored = self.state.read("plan")
        if stored is None:
            self.state.put_once("plan", {"segments": plan.segments, "schema": schema_to_json(plan.schema)})
            return plan
        return replace(plan, segments=stored["segments"], schema=arrow_schema_of(stored["schema"]))

    def of_task(self, task: ScanTask) -> ScanProgress:
        """Return what a task needs to know: how far earlier runs came in its segments."""
        own = {each.segment: self.segments[each.segment] for each in task.requests if each.segment in self.segments}
        return ScanProgress(self.state, self.run, segments=own, pages=self.pages)

    def of_attempt(self, task: int) -> ScanProgress:
        """Return what earlier attempts of a task have done in this run, and how far they came."""
        names = sorted(self.state.listed(f"{self.run}-{task:05}-"))
        return replace(self, **_fitting([self.state.read(name) or {} for name in names], self.segments))

    def open_journal(self) -> PageJournal | None:
        """Return the page journal of an attempt; None if pages are not kept."""
        return None if self.pages is None else PageJournal(self.pages, self.run)

    def rest_of(self, task: ScanTask) -> ScanTask:
        """Return a task without the segments that are read, and with the others from where they stopped."""
        requests = []
        for request in task.requests:
            position = self.segments.get(request.segment)
            if position is None:
                requests.append(request)
            elif position.rest is not None:
                left = request.after(position.rest, position.items)
                requests += [left] if left.max_items is None or left.max_items > 0 else []
        return replace(task, requests=tuple(requests), whole_pages=True)


def goes_on(options: ScanToFilesOptions) -> bool:
    """Return whether a scan goes on where it stopped, rather than begin anew: with a job id, into plain files."""
    return options.job_id is not None and options.format not in {"dynamodb-export", *LAKE_FORMATS}


def open_progress(options: ScanToFilesOptions, staging: Staging, table: TableDescription) -> ScanProgress:
    """Return what earlier runs of a scan have done.

    Raises
    ------
    OptionError
        If the job was begun with another table or other columns.
    """
    identity = {
        "table": f"{table.arn} {table.table_id}",
        "schema": None if options.schema is None else schema_to_json(arrow_schema_of(options.schema)),
        "keys": _keys(options, table),
        **fixed_options(options, without=("table", "dest", "schema", "keys")),
    }
    state = _state(staging)
    # A job of the same id that begins anew has other pages.
    begun = dict(state.begin({**identity, _BEGUN: secrets.token_hex(4)}))
    pages = _pages(options, staging, begun.pop(_BEGUN, ""))
    require_same(staging.job_id, begun, identity, {})
    return ScanProgress(state, secrets.token_hex(4), pages=pages, **_fitting(state.records(), {}))


def forget_progress(options: ScanToFilesOptions, staging: Staging) -> None:
    """Delete what is stored of a scan: it is committed, or what it had staged is gone."""
    state = _state(staging)
    pages = None if options.page_journal is None else _pages(options, staging, (state.head() or {}).get(_BEGUN, ""))
    if pages is not None:
        forget_pages(pages)
    state.forget()


def _pages(options: ScanToFilesOptions, staging: Staging, begun: str) -> ObjectStore | None:
    if options.page_journal is None:
        return None
    folder = f"{options.page_journal.rstrip('/')}/{META}{staging.job_id}.pages-{begun}"
    return open_store(folder, options, is_temporary=True)


def _state(staging: Staging) -> JobState:
    return JobState(staging.store, staging.job_id, "scan")


def _keys(options: ScanToFilesOptions, table: TableDescription) -> str | None:
    """Return what tells the keys of a job from others."""
    if options.keys is None:
        return None
    selection = selection_of(table, options)
    return hashlib.blake2b(repr((selection.queries, selection.keys)).encode(), digest_size=16).hexdigest()


def _fitting(records: Iterable[Mapping[str, Any]], begun: Mapping[int, Position]) -> dict[str, Any]:
    """Return what the steps of records have done that fit on each other, from where segments were begun."""
    files, segments, counts, digest = list[StagedFile](), dict(begun), Counter[str](), Digest()
    marks = {segment: position.mark() for segment, position in begun.items()}
    waiting = [step for record in records for step in record.get("steps", ())]
    is_fitting, start_mark = True, _START.mark()
    while is_fitting:
        is_fitting, others = False, []
        for step in waiting:
            if any(marks.get(segment, start_mark) != start for segment, start, *_ in step["segments"]):
                others.append(step)
                continue
            is_fitting = True
            files += [StagedFile.from_dict(each) for each in step["files"]]
            ends = {segment: _parsed(*found) for segment, _, *found in step["segments"]}
            segments |= ends
            marks |= {segment: position.mark() for segment, position in ends.items()}
            counts.update(step["counts"])
            digest.merge(Digest.from_hex(*step["digest"]))
        waiting = others
    return {"files": tuple(files), "segments": segments, "counts": counts, "digest": digest}


def _parsed(items: int, rest: dict[str, Any] | None) -> Position:
    if rest is None:
        return Position(items, None)
    return Position(items, Rest(rest["key"], rest["queries"], tuple(each.encode() for each in rest["keys"])))


def _formatted(position: Position) -> list[Any]:
    rest = position.rest
    if rest is None:
        return [position.items, None]
    left = {"key": rest.start_key, "queries": rest.queries, "keys": [each.decode() for each in rest.keys]}
    return [position.items, left]


class PageWriter:
    """Write the pages of an attempt of a task into files, and store with each step up to where their rows come.

    Parameters
    ----------
    progress
        What earlier attempts have done: ``files``, ``counts`` and ``digest`` have that too.
    step_seconds
        Time from one step to the next.
    journal
        Where the pages are kept until a step has their rows.
    """

    def __init__(
        self,
        progress: ScanProgress,
        task: int,
        writer: RollingWriter | PartitionedWriter,
        step_seconds: float = STEP_SECONDS,
        journal: PageJournal | None = None,
    ) -> None:
        self.files, self.counts, self.digest = list(progress.files), Counter(progress.counts), Digest()
        self.digest.merge(progress.digest)
        self._state, self._writer = progress.state, writer
        self._step_seconds, self._journal = step_seconds, journal
        self._segments = dict(progress.segments)
        # No other attempt writes a record of this name.
        self._name, self._steps = f"{progress.run}-{task:05}-{secrets.token_hex(4)}", list[dict[str, Any]]()
        self._staged, self._stepped_at = set[str](), time.monotonic()
        self._begin_step()

    def write(self, pages: Iterable[ReadPage[pa.RecordBatch]]) -> None:
        """Write all pages; if reading ends early, a run of the same job goes on behind what was read."""
        reading = iter(pages)
        while True:
            try:
                page = next(reading, None)
            except BaseException:
                # Whatever was taken is written as a whole.
                with contextlib.suppress(DdbioError):
                    self.take_step()
                raise
            if page is None:
                self.take_step()
                return
            self.add(page)
            is_full = self._journal is not None and self._journal.size_bytes >= MOST_BYTES
            if is_full or time.monotonic() - self._stepped_at >= self._step_seconds:
                self.take_step()

    def add(self, page: ReadPage[pa.RecordBatch]) -> None:
        """Write one page."""
        for batch in page.blocks:
            self._counts["rescued"] += batch.num_rows - batch.column(batch.num_columns - 1).null_count
            self._writer.write(batch)
        known = self._segments.get(page.segment, _START)
        if page.segment not in self._starts:
            self._starts[page.segment] = known.mark()
        self._segments[page.segment] = Position(known.items + page.counts["items"], page.rest)
        self._counts.update(page.counts)
        self._digest.merge(page.digest)
        self._pages[page.segment] += 1

    def take_step(self) -> None:
        """Close the open files, and store how far the rows come that are staged now."""
        files = [each for each in self._writer.close_files() if each.path not in self._staged]
        if self._starts:
            step = {
                "files": [asdict(each) for each in files],
                "segments": [[each, start, *_formatted(self._segments[each])] for each, start in self._starts.items()],
                "counts": dict(self._counts),
                "digest": [self._digest.count, self._digest.hexdigest()],
            }
            self._steps.append(step)
            self._state.put(self._name, {"steps": self._steps})
            if self._journal is not None:
                self._journal.drop(self._pages)
        self.files += files
        self._staged.update(each.path for each in files)
        self.counts.update(self._counts)
        self.digest.merge(self._digest)
        self._stepped_at = time.monotonic()
        self._begin_step()

    def _begin_step(self) -> None:
        self._starts, self._counts, self._digest = dict[int, str](), Counter[str](), Digest()
        self._pages = Counter[int]()
