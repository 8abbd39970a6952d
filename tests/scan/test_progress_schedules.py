"""Attempts of a scan in any order, alone or side by side, ended anywhere: each row comes once, and few pages twice."""

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
    """Answer with pages that end anywhere, and count how often each was asked for."""

    def __init__(self, seed):
        self._random, self.asked, self.is_lost = random.Random(seed), Counter(), False

    def scan(self, request):
        """Yield the pages of a request; one that is lost ends the worker that asked."""
        start, rows = int((request.start_key or {"n": {"N": "0"}})["n"]["N"]), SEGMENTS[request.segment]
        while True:
            self.asked[request.segment, start] += 1
            if self.is_lost:
                raise WorkerKilledError
            found = rows[start : start + self._random.randint(1, 3)]
            stop = start + len(found)
            yield Page(
                items=json.dumps({"Items": found}).encode(),
                count=len(found),
                scanned_count=len(found),
                last_evaluated_key={"n": {"N": str(stop)}} if stop < len(rows) else None,
                consumed_units=1.0,
                wire_bytes=10,
            )
            if stop >= len(rows):
                return
            start = stop


class Writer:
    """Stage files that say which rows they have."""

    def __init__(self):
        self._name, self._rows, self._staged = f"file-{random.getrandbits(64):x}", [], []

    def write(self, batch):
        """Take rows."""
        self._rows += batch.column(0).to_pylist()

    def close_files(self):
        """Return all files so far."""
        if self._rows:
            name = f"{self._name}-{len(self._staged)}"
            self._staged.append(StagedFile(name, 0, len(self._rows), {"rows": self._rows}))
            self._rows = []
        return list(self._staged)


class Job:
    """Hold what outlives attempts: the stores of the state and of the pages, and the table."""

    def __init__(self, seed, *, keeps_pages):
        self.table = Table(seed)
        self._staging = SimpleNamespace(store=Store(World(), Faults(0, {})), job_id="job")
        self._pages = Store(World(), Faults(0, {})) if keeps_pages else None

    def run(self):
        """Begin a run."""
        table = SimpleNamespace(arn="arn", table_id="id")
        found = open_progress(parse_options(ScanToFilesOptions, OPTIONS), self._staging, table)
        return replace(found, pages=self._pages)


class Attempt:
    """Read some pages of some segments, in any order, into files."""

    def __init__(self, job, run):
        self._run, progress = run, run.of_task(TASK).of_attempt(0)
        journal = progress.open_journal()
        requests = progress.remaining_task(TASK).requests
        scan = job.table.scan
        self._reading = {
            each.segment: scan(each) if journal is None else journal.pages(each, scan) for each in requests
        }
        self.writer = PageWriter(progress, 0, Writer(), math.inf, journal)

    @property
    def open_segments(self):
        """Return the segments that are not at their end."""
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
        """Read all that is left; return the files of this run and of those before."""
        for segment in self.open_segments:
            while segment in self._reading:
                self.read(segment)
        self.writer.take_step()
        return [*self._run.files, *self.writer.files]


def rows_of(files):
    """Return the rows of files, sorted."""
    return sorted(row for each in files for row in asdict(each)["token"]["rows"])


ALL_ROWS = sorted(row for rows in SEGMENTS for row in rows)
# Most attempts read the same segment: there they meet.
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
    """Attempts that know nothing of each other, of one run or several, may store steps: every row is there once."""
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
    """With a page journal an attempt that is killed anywhere costs the page that was on its way, and no other."""
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
    # Nothing of the pages is left when all of them are in files.
    assert [*run.pages.list()] == []
