"""Attempts of a scan in any order, in sequence or concurrent, ended anywhere: each row is written once."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import asdict, replace
from types import SimpleNamespace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.items.digest import Digest
from ddbio.items.page import Page
from ddbio.options import parse_options
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.pages import ReadRequest, remainder_after
from ddbio.scan.progress import PageWriter, open_progress
from ddbio.scan.stream import ReadPage, ScanTask
from ddbio.storage.staged import StagedFile
from tests.jobs.virtual_job import Faults, Store, WorkerKilledError, World

SEGMENTS = [list(range(start, start + rows)) for start, rows in ((0, 17), (100, 9), (200, 0), (300, 1))]
OPTIONS = {"table": "t", "dest": "there", "job_id": "job"}
TASK = ScanTask(
    number=0,
    spec=None,
    requests=tuple(ReadRequest("t", segment, len(SEGMENTS)) for segment in range(len(SEGMENTS))),
    lanes=1,
    schema=pa.schema([]),
)


class Table:
    """Table whose pages end anywhere, and which counts the requests for each page."""

    def __init__(self, seed):
        self._random, self.asked, self.is_lost = random.Random(seed), Counter(), False

    def scan(self, request):
        """Yield the pages of a request; a lost response ends the worker."""
        start, rows = int((request.start_key or {"n": {"N": "0"}})["n"]["N"]), SEGMENTS[request.segment]
        while True:
            self.asked[request.segment, start] += 1
            if self.is_lost:
                raise WorkerKilledError
            items = rows[start : start + self._random.randint(1, 3)]
            stop = start + len(items)
            yield Page(
                items=json.dumps({"Items": items}).encode(),
                count=len(items),
                scanned_count=len(items),
                last_evaluated_key={"n": {"N": str(stop)}} if stop < len(rows) else None,
                consumed_units=1.0,
                wire_bytes=10,
            )
            if stop >= len(rows):
                return
            start = stop


class Writer:
    """Writer of files that list their rows."""

    def __init__(self):
        self._name, self._rows, self._staged = f"file-{random.getrandbits(64):x}", [], []

    def write(self, batch):
        """Add rows."""
        self._rows += batch.column(0).to_pylist()

    def close_files(self):
        """Return all files so far."""
        if self._rows:
            name = f"{self._name}-{len(self._staged)}"
            self._staged.append(StagedFile(name, 0, len(self._rows), {"rows": self._rows}))
            self._rows = []
        return list(self._staged)


class Job:
    """State that outlives attempts: the stores of the progress and of the pages, and the table."""

    def __init__(self, seed, *, keeps_pages):
        self.table = Table(seed)
        self._staging = SimpleNamespace(store=Store(World(), Faults(0, {})), job_id="job")
        self._pages = Store(World(), Faults(0, {})) if keeps_pages else None

    def run(self):
        """Start a run."""
        table = SimpleNamespace(arn="arn", table_id="id")
        progress = open_progress(parse_options(ScanToFilesOptions, OPTIONS), self._staging, table)
        return replace(progress, pages=self._pages)


class Attempt:
    """Attempt that reads pages of segments, in any order, into files."""

    def __init__(self, job, run):
        self._run, progress = run, run.of_task(TASK).of_attempt(0)
        journal = progress.open_journal()
        requests = progress.remaining_task(TASK).requests
        scan = job.table.scan
        self._reading = {
            request.segment: scan(request) if journal is None else journal.pages(request, scan) for request in requests
        }
        self.writer = PageWriter(progress, 0, Writer(), math.inf, journal)

    @property
    def open_segments(self):
        """Return the segments with unread pages."""
        return list(self._reading)

    def read(self, segment):
        """Read and write a page of a segment."""
        page = next(self._reading[segment], None)
        if page is None:
            del self._reading[segment]
            return
        rows = json.loads(page.items)["Items"]
        batch = pa.record_batch({"n": pa.array(rows, pa.int64()), "_rescue": pa.nulls(len(rows), pa.string())})
        counts = {"items": page.count, "resumed_items": page.count if page.is_resumed else 0}
        self.writer.add(ReadPage(segment, (batch,), remainder_after(page), counts, Digest()))

    def finish(self):
        """Read all unread pages; return the files of this run and of earlier ones."""
        for segment in self.open_segments:
            while segment in self._reading:
                self.read(segment)
        self.writer.take_step()
        return [*self._run.files, *self.writer.files]


def rows_of(files):
    """Return the rows of files, sorted."""
    return sorted(row for file in files for row in asdict(file)["token"]["rows"])


ALL_ROWS = sorted(row for rows in SEGMENTS for row in rows)
# Most attempts read the same segment, so that they conflict.
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "step", "retry", "run"]),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 1, 2, 3]),
    ),
    max_size=40,
)


@given(st.integers(0, 2**32), ACTIONS, st.booleans())
@settings(max_examples=500, deadline=None)
def test_side_by_side(seed, actions, keeps_pages):
    """Concurrent attempts of one run or several may store steps independently: every row is written once."""
    job = Job(seed, keeps_pages=keeps_pages)
    run = job.run()
    attempts = [Attempt(job, run), Attempt(job, run)]
    for kind, chosen, segment in actions:
        attempt = attempts[chosen % len(attempts)]
        if kind == "read" and segment in attempt.open_segments:
            attempt.read(segment)
        elif kind == "step":
            attempt.writer.take_step()
        elif kind in {"retry", "run"}:
            run = job.run() if kind == "run" else run
            attempts.append(Attempt(job, run))
    assert rows_of(Attempt(job, job.run()).finish()) == ALL_ROWS


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["read", "step", "lose", "kill", "run"]), max_size=60))
@settings(max_examples=300, deadline=None)
def test_one_after_the_other(seed, actions):
    """With a page journal, a killed attempt loses only the page that it was reading."""
    job, chosen, lost = Job(seed, keeps_pages=True), random.Random(seed), 0
    run = job.run()
    attempt = Attempt(job, run)
    for kind in actions:
        segments = attempt.open_segments
        if kind == "step":
            attempt.writer.take_step()
        elif kind in {"read", "lose"} and segments:
            asked, job.table.is_lost = job.table.asked.total(), kind == "lose"
            try:
                attempt.read(chosen.choice(segments))
            except WorkerKilledError:
                lost += 1
                attempt = Attempt(job, run)
            assert job.table.asked.total() <= asked + 1
            job.table.is_lost = False
        elif kind in {"kill", "run"}:
            run = job.run() if kind == "run" else run
            attempt = Attempt(job, run)
    run = job.run()
    attempt = Attempt(job, run)
    assert rows_of(attempt.finish()) == ALL_ROWS
    assert job.table.asked.total() - len(job.table.asked) == lost
    assert run.counts["items"] + attempt.writer.counts["resumed_items"] <= len(ALL_ROWS)
    # No page is left when the rows of all pages are in files.
    assert [*run.pages.list()] == []
