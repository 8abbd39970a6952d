"""Store how far a scan has come beside its staged files, so that a scan of the same job id goes on where it stopped.

The file ``_ddbio/<job_id>.scan.json`` says what the job is, and how it was planned. Beside it, in
``_ddbio/<job_id>.scan/``, are records: each lists files that were staged, and up to which page of each segment their
rows come. A file is closed for a record, so that a record never has rows of pages that it does not name.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddbio.core.schema.file import schema_to_json
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.core.staged import StagedFile
from ddbio.errors import DdbioError
from ddbio.files.job_state import JobState, require_same
from ddbio.options.files import LAKE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ddbio.core.attribute import Item
    from ddbio.core.scan_plan import ScanPlan
    from ddbio.core.table_description import TableDescription
    from ddbio.files.rolling_writer import RollingWriter
    from ddbio.ops.job.storage import Staging
    from ddbio.ops.scans.stream import ReadPage, ScanTask
    from ddbio.options import ScanToFilesOptions

RECORD_SECONDS = 30.0
"""A job that is killed reads again what it had read in at most so long; one that ends by itself stores all it has."""

# What must stay the same; the rate may change.
_IDENTITY = (
    *("index", "columns", "consistent", "format", "compression", "on_misfit", "nulls", "drop"),
    *("timestamps", "types", "numbers", "mode"),
)


@dataclass(frozen=True)
class ScanProgress:
    """Hold what earlier runs of a scan have done.

    Attributes
    ----------
    files
        What they staged.
    segments
        Of each segment that was begun, how many pages of it those files have, and where it goes on: None at its end.
    """

    state: JobState
    files: tuple[StagedFile, ...] = ()
    segments: dict[int, tuple[int, Item | None]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def planned(self, plan: ScanPlan) -> ScanPlan:
        """Return the plan with the columns and the segments of the first run, whose plan is stored if this is it."""
        stored = self.state.read("plan")
        if stored is None:
            self.state.put_once("plan", {"segments": plan.segments, "schema": schema_to_json(plan.schema)})
            return plan
        return replace(plan, segments=stored["segments"], schema=arrow_schema_of(stored["schema"]))

    def rest_of(self, task: ScanTask) -> ScanTask:
        """Return a task without the segments that are read, and with the others from where they stopped."""
        requests = []
        for request in task.requests:
            pages, key = self.segments.get(request.segment, (0, None))
            if not pages:
                requests.append(request)
            elif key is not None:
                requests.append(replace(request, start_key=key))
        return replace(task, requests=tuple(requests), whole_pages=True)


def goes_on(options: ScanToFilesOptions) -> bool:
    """Return whether a scan goes on where it stopped, rather than begin anew.

    It does if it has a job id and writes plain files of a whole table or index on threads, and if nothing counts its
    items one by one: a digest or a limit.
    """
    is_whole = (options.where, options.keys, options.limit, options.partition_by) == (None, None, None, None)
    is_plain = options.format not in {"dynamodb-export", *LAKE_FORMATS} and not options.digest
    return options.job_id is not None and is_whole and is_plain and options.engine != "spark"


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
        **{name: _plain(getattr(options, name)) for name in _IDENTITY},
    }
    state = _state(staging)
    begun = state.begin(identity)
    require_same(staging.job_id, begun, identity, {})
    return _read(state)


def forget_progress(staging: Staging) -> None:
    """Delete what is stored of a scan: it is committed, or what it had staged is gone."""
    _state(staging).forget()


def _state(staging: Staging) -> JobState:
    return JobState(staging.store, staging.job_id, "scan")


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _read(state: JobState) -> ScanProgress:
    files, segments, counts = list[StagedFile](), dict[int, tuple[int, Any]](), Counter[str]()
    for record in state.records():
        if "files" not in record:
            continue
        files += [StagedFile(**each) for each in record["files"]]
        for segment, pages, key in record["segments"]:
            if pages > segments.get(segment, (0, None))[0]:
                segments[segment] = (pages, key)
        counts.update(record["counts"])
    return ScanProgress(state, tuple(files), segments, counts)


class PageWriter:
    """Write the pages of a task into files, and store with each record up to where their rows come."""

    def __init__(self, progress: ScanProgress, writer: RollingWriter) -> None:
        self._state, self._writer = progress.state, writer
        self._segments = dict(progress.segments)
        self._changed, self._counts = set[int](), Counter[str]()
        self._stored, self._number, self._recorded_at = 0, 0, time.monotonic()
        # No other run, and no other task, writes records of this name.
        self._name = secrets.token_hex(4)
        self.rescued = 0

    def write(self, pages: Iterable[ReadPage[pa.RecordBatch]]) -> tuple[StagedFile, ...]:
        """Return the files of all pages; if reading ends early, a run of the same job goes on behind what was read."""
        reading = iter(pages)
        while True:
            try:
                page = next(reading, None)
            except BaseException:
                # Whatever was taken is written as a whole.
                with contextlib.suppress(DdbioError):
                    self._record()
                raise
            if page is None:
                return self._record()
            self._write(page)
            if time.monotonic() - self._recorded_at >= RECORD_SECONDS:
                self._record()

    def _write(self, page: ReadPage[pa.RecordBatch]) -> None:
        for batch in page.blocks:
            rescued = batch.num_rows - batch.column(batch.num_columns - 1).null_count
            self.rescued += rescued
            self._counts["rescued"] += rescued
            self._writer.write(batch)
        pages, _ = self._segments.get(page.segment, (0, None))
        self._segments[page.segment] = (pages + 1, page.next_key)
        self._changed.add(page.segment)
        self._counts.update(items=page.items, scanned_items=page.scanned_items, wire_bytes=page.wire_bytes)

    def _record(self) -> tuple[StagedFile, ...]:
        """Close the open file, store how far the rows come that are staged now, and return all files of this run."""
        files = self._writer.close_file()
        if self._changed:
            record = {
                "files": [asdict(each) for each in files[self._stored :]],
                "segments": [[segment, *self._segments[segment]] for segment in sorted(self._changed)],
                "counts": dict(self._counts),
            }
            self._state.put(f"{self._name}-{self._number:06}", record)
        self._stored, self._number, self._recorded_at = len(files), self._number + 1, time.monotonic()
        self._changed, self._counts = set(), Counter()
        return tuple(files)
