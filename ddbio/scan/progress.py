"""Progress of a scan, stored next to its staged files, with which a scan of the same job id resumes.

The file ``_ddbio/<job_id>.scan.json`` identifies the job. The folder ``_ddbio/<job_id>.scan/`` contains its plan, and a
record of the steps of each attempt of a task. A step lists staged files, and the start and end of their rows in each
segment. All files are closed at a step, so that none has rows of pages outside the step. Steps are applied in any order
in which the end of one is the start of another; a step that repeats the reads of another attempt is skipped. With a
page journal, the pages read since the last step are also stored.
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
from ddbio.scan.pages import Remainder, remainder_after
from ddbio.scan.selection import selection_of
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

MAX_JOURNAL_BYTES = 1024**3
"""Bytes in the journal of a task above which a step closes its files and deletes the journaled pages."""


class PageJournal:
    """The pages of one attempt of a task; its lanes and its writer use it at the same time.

    Parameters
    ----------
    store
        The store of the pages of one job.
    run
        The id of the current run of the job.
    """

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store, self._run = store, run
        # In the order in which the pages of a segment were yielded.
        self._kept: defaultdict[int, deque[tuple[str, int]]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.size_bytes = 0

    def pages(self, request: ReadRequest, scan: Callable[[ReadRequest], Iterator[Page]]) -> Iterator[Page]:
        """Yield the pages of a request: first the stored ones, then those that ``scan`` reads.

        Pages of items by key are not stored, because each page would contain the list of the remaining keys.

        Raises
        ------
        DdbioError
            As ``scan``, or if the store rejects a page.
        """
        if request.keys:
            yield from scan(request)
            return
        remaining: ReadRequest | None = request
        while remaining is not None and (page := self._take(remaining)) is not None:
            remaining = _remaining_request(remaining, page)
            yield page
        if remaining is None:
            return
        for page in scan(remaining):
            self._keep(remaining, page)
            following = _remaining_request(remaining, page)
            yield page
            if following is None:
                return
            remaining = following

    def drop(self, taken: Mapping[int, int]) -> None:
        """Delete the first pages of each segment, the given number of them: their rows are in complete files."""
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
        """Clean up after an attempt that succeeded, and so has deleted all of its pages."""
        self._store.abort(job_id)

    def _take(self, request: ReadRequest) -> Page | None:
        name = _page_name(request)
        try:
            data = self._store.read(name)
        except NotFoundError:
            return None
        try:
            page = _parse_journal(data, self._run)
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            # The page is damaged: it is read from the table again.
            return None
        self._add(request, name, len(data))
        return page

    def _keep(self, request: ReadRequest, page: Page) -> None:
        name, data = _page_name(request), _format_journal(page, self._run)
        self._store.put(name, data)
        self._add(request, name, len(data))

    def _add(self, request: ReadRequest, name: str, size_bytes: int) -> None:
        with self._lock:
            self._kept[request.segment].append((name, size_bytes))
            self.size_bytes += size_bytes


def forget_pages(store: ObjectStore) -> None:
    """Delete all pages of a finished job that this process can access."""
    if isinstance(store, LocalStore):
        # This also removes unfinished files of a killed process.
        store.remove()
    else:
        store.delete([entry.path for entry in store.list()])


def _remaining_request(request: ReadRequest, page: Page) -> ReadRequest | None:
    remainder = remainder_after(page)
    remaining = None if remainder is None else request.after(remainder, page.count)
    return None if remaining is None or (remaining.max_items is not None and remaining.max_items <= 0) else remaining


def _page_name(request: ReadRequest) -> str:
    """Return the name of the first page of a request; within a job, the selection never changes."""
    request_json = json.dumps([request.start_key, len(request.queries), request.max_items], sort_keys=True)
    return f"{request.segment:06}-{hashlib.blake2b(request_json.encode(), digest_size=12).hexdigest()}"


# The fields of a page that a journal stores as JSON.
_HEAD = ("count", "scanned_count", "last_evaluated_key", "consumed_units", "wire_bytes", "missing", "queries_left")


def _format_journal(page: Page, run: str) -> bytes:
    """Return a page as a line of JSON and the compressed items."""
    head: dict[str, Any] = {"run": run, "bytes": len(page.items), **{name: getattr(page, name) for name in _HEAD}}
    head["missing_keys"] = [key.decode() for key in page.missing_keys]
    return b"\n".join((json.dumps(head).encode(), pa.compress(page.items, codec="lz4", asbytes=True)))


def _parse_journal(data: bytes, run: str) -> Page:
    line, _, items = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    is_resumed, size_bytes = head.pop("run") != run, head.pop("bytes")
    check_expansion(len(items), size_bytes)
    head["missing_keys"] = tuple(key.encode() for key in head["missing_keys"])
    return Page(items=pa.decompress(items, size_bytes, codec="lz4", asbytes=True), is_resumed=is_resumed, **head)


STEP_SECONDS = 30.0
"""Seconds between steps. A killed job reads at most this time again; a job that stops by an error loses nothing."""

PARTITIONED_STEP_SECONDS = 300.0
"""The same for partitioned output, where each step closes a small file in every partition."""


@dataclass(frozen=True)
class Position:
    """The number of items read from a segment, and its unread part; None at its end."""

    items: int = 0
    remainder: Remainder | None = field(default_factory=Remainder)

    def mark(self) -> str:
        """Return a hash of the position, since two attempts may split the segment into different pages."""
        return hashlib.blake2b(json.dumps(_format_position(self), sort_keys=True).encode(), digest_size=12).hexdigest()


_START = Position()
_PAGES_ID = "begun"


@dataclass(frozen=True)
class ScanProgress:
    """Results of earlier runs of a scan, or of earlier attempts of a task.

    Attributes
    ----------
    run
        The id of this run in its records.
    files
        Their staged files.
    segments
        Their position in each started segment.
    digest
        Digest of the items that they read, if requested.
    pages
        The store of pages whose rows are not in complete files yet; None without a page journal.
    """

    state: JobState
    run: str
    files: tuple[StagedFile, ...] = ()
    segments: Mapping[int, Position] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=Counter)
    digest: Digest = field(default_factory=Digest)
    pages: ObjectStore | None = None

    def planned(self, plan: ScanPlan) -> ScanPlan:
        """Return the plan with the columns and segments of the first run; if this is the first run, store its plan."""
        stored = self.state.read("plan")
        if stored is None:
            self.state.put_once("plan", {"segments": plan.segments, "schema": schema_to_json(plan.schema)})
            return plan
        return replace(plan, segments=stored["segments"], schema=arrow_schema_of(stored["schema"]))

    def of_task(self, task: ScanTask) -> ScanProgress:
        """Return the progress of earlier runs in the segments of a task."""
        own = {
            request.segment: self.segments[request.segment]
            for request in task.requests
            if request.segment in self.segments
        }
        return ScanProgress(self.state, self.run, segments=own, pages=self.pages)

    def of_attempt(self, task: int) -> ScanProgress:
        """Return the progress with the steps of earlier attempts of a task in this run."""
        names = sorted(self.state.listed(f"{self.run}-{task:05}-"))
        return replace(self, **_replay([self.state.read(name) or {} for name in names], self.segments))

    def open_journal(self) -> PageJournal | None:
        """Return the page journal of an attempt; None for a job without page journal."""
        return None if self.pages is None else PageJournal(self.pages, self.run)

    def remaining_task(self, task: ScanTask) -> ScanTask:
        """Return a task for the unread part of its segments."""
        requests = []
        for request in task.requests:
            position = self.segments.get(request.segment)
            if position is None:
                requests.append(request)
            elif position.remainder is not None:
                remaining = request.after(position.remainder, position.items)
                requests += [remaining] if remaining.max_items is None or remaining.max_items > 0 else []
        return replace(task, requests=tuple(requests), yields_pages=True)


def is_resumable(options: ScanToFilesOptions) -> bool:
    """Return whether a scan can resume: it has a job id, and writes plain files."""
    return options.job_id is not None and options.format not in {"dynamodb-export", *LAKE_FORMATS}


def open_progress(options: ScanToFilesOptions, staging: Staging, table: TableDescription) -> ScanProgress:
    """Return the results of earlier runs of a scan, and create the state of a new job.

    Raises
    ------
    OptionError
        If the job was started with another table or other columns.
    """
    identity = {
        "table": f"{table.arn} {table.table_id}",
        "schema": None if options.schema is None else schema_to_json(arrow_schema_of(options.schema)),
        "keys": _keys(options, table),
        **fixed_options(options, without=("table", "dest", "schema", "keys")),
    }
    state = _state(staging)
    # A job that restarts with the same id uses another folder of pages.
    stored = dict(state.begin({**identity, _PAGES_ID: secrets.token_hex(4)}))
    pages = _pages(options, staging, stored.pop(_PAGES_ID, ""))
    require_same(staging.job_id, stored, identity, {})
    return ScanProgress(state, secrets.token_hex(4), pages=pages, **_replay(state.records(), {}))


def forget_progress(options: ScanToFilesOptions, staging: Staging) -> None:
    """Delete the stored progress of a scan that is committed, or whose staged files are gone."""
    state = _state(staging)
    pages = None if options.page_journal is None else _pages(options, staging, (state.head() or {}).get(_PAGES_ID, ""))
    if pages is not None:
        forget_pages(pages)
    state.forget()


def _pages(options: ScanToFilesOptions, staging: Staging, pages_id: str) -> ObjectStore | None:
    if options.page_journal is None:
        return None
    folder = f"{options.page_journal.rstrip('/')}/{META}{staging.job_id}.pages-{pages_id}"
    return open_store(folder, options, is_temporary=True)


def _state(staging: Staging) -> JobState:
    return JobState(staging.store, staging.job_id, "scan")


def _keys(options: ScanToFilesOptions, table: TableDescription) -> str | None:
    """Return a hash of the keys of a job."""
    if options.keys is None:
        return None
    selection = selection_of(table, options)
    return hashlib.blake2b(repr((selection.queries, selection.keys)).encode(), digest_size=16).hexdigest()


def _replay(records: Iterable[Mapping[str, Any]], starts: Mapping[int, Position]) -> dict[str, Any]:
    """Apply recorded steps from the start positions, in an order in which each continues another; return the result."""
    files, segments, counts, digest = list[StagedFile](), dict(starts), Counter[str](), Digest()
    marks = {segment: position.mark() for segment, position in starts.items()}
    waiting = [step for record in records for step in record.get("steps", ())]
    is_progressing, start_mark = True, _START.mark()
    while is_progressing:
        is_progressing, others = False, []
        for step in waiting:
            if any(marks.get(segment, start_mark) != start for segment, start, *_ in step["segments"]):
                others.append(step)
                continue
            is_progressing = True
            files += [StagedFile.from_dict(file) for file in step["files"]]
            ends = {segment: _parse_position(*end) for segment, _, *end in step["segments"]}
            segments |= ends
            marks |= {segment: position.mark() for segment, position in ends.items()}
            counts.update(step["counts"])
            digest.merge(Digest.from_hex(*step["digest"]))
        waiting = others
    return {"files": tuple(files), "segments": segments, "counts": counts, "digest": digest}


def _parse_position(items: int, remainder: dict[str, Any] | None) -> Position:
    if remainder is None:
        return Position(items, None)
    return Position(
        items, Remainder(remainder["key"], remainder["queries"], tuple(key.encode() for key in remainder["keys"]))
    )


def _format_position(position: Position) -> list[Any]:
    remainder = position.remainder
    if remainder is None:
        return [position.items, None]
    remaining = {
        "key": remainder.start_key,
        "queries": remainder.queries,
        "keys": [key.decode() for key in remainder.keys],
    }
    return [position.items, remaining]


class PageWriter:
    """Writer of the pages of an attempt of a task, which records at each step the position that its files have reached.

    Parameters
    ----------
    progress
        The results of earlier attempts, which ``files``, ``counts`` and ``digest`` include.
    step_seconds
        Time between two steps.
    journal
        The store of the pages until a step includes their rows.
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
        # The name is unique to this attempt.
        self._name, self._steps = f"{progress.run}-{task:05}-{secrets.token_hex(4)}", list[dict[str, Any]]()
        self._staged, self._stepped_at = set[str](), time.monotonic()
        self._begin_step()

    def write(self, pages: Iterable[ReadPage[pa.RecordBatch]]) -> None:
        """Write all pages; if reading fails, a new run of the job resumes after the pages read so far."""
        reading = iter(pages)
        while True:
            try:
                page = next(reading, None)
            except BaseException:
                # Pages that were already taken are written before the error is raised.
                with contextlib.suppress(DdbioError):
                    self.take_step()
                raise
            if page is None:
                self.take_step()
                return
            self.add(page)
            is_full = self._journal is not None and self._journal.size_bytes >= MAX_JOURNAL_BYTES
            if is_full or time.monotonic() - self._stepped_at >= self._step_seconds:
                self.take_step()

    def add(self, page: ReadPage[pa.RecordBatch]) -> None:
        """Write one page."""
        for batch in page.blocks:
            self._counts["rescued"] += batch.num_rows - batch.column(batch.num_columns - 1).null_count
            self._writer.write(batch)
        position = self._segments.get(page.segment, _START)
        if page.segment not in self._starts:
            self._starts[page.segment] = position.mark()
        self._segments[page.segment] = Position(position.items + page.counts["items"], page.remainder)
        self._counts.update(page.counts)
        self._digest.merge(page.digest)
        self._pages[page.segment] += 1

    def take_step(self) -> None:
        """Close the open files, and record the position that the staged rows have reached."""
        files = [file for file in self._writer.close_files() if file.path not in self._staged]
        if self._starts:
            step = {
                "files": [asdict(file) for file in files],
                "segments": [
                    [segment, start, *_format_position(self._segments[segment])]
                    for segment, start in self._starts.items()
                ],
                "counts": dict(self._counts),
                "digest": [self._digest.count, self._digest.hexdigest()],
            }
            self._steps.append(step)
            self._state.put(self._name, {"steps": self._steps})
            if self._journal is not None:
                self._journal.drop(self._pages)
        self.files += files
        self._staged.update(file.path for file in files)
        self.counts.update(self._counts)
        self.digest.merge(self._digest)
        self._stepped_at = time.monotonic()
        self._begin_step()

    def _begin_step(self) -> None:
        self._starts, self._counts, self._digest = dict[int, str](), Counter[str](), Digest()
        self._pages = Counter[int]()
