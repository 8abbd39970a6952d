"""Progress of a running job on stderr: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.cli.plans import format_plan_of_run
from ddbio.cli.reports import text_of
from ddbio.cli.show import format_duration
from ddbio.cli.terminal import escaped, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.budget import LocalBudget, Usage
    from ddbio.export.read import ExportReadPlan
    from ddbio.jobs.waiting import Job
    from ddbio.jobs.watch import JobOutline
    from ddbio.load.copy import CopyPlan
    from ddbio.load.plan import LoadPlan
    from ddbio.scan.count import CountPlan
    from ddbio.scan.plan import ScanPlan

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0
WINDOW_SECONDS = 5.0
JOB_LINE_SECONDS = 30.0


class JobProgress:
    """Display of a job's plan, then of its progress: items, MB/s, units/s compared with the budget, and the time left.

    Parameters
    ----------
    note
        Additional line after the plan.

    Attributes
    ----------
    written
        Items that the job has counted at its end.
    """

    def __init__(self, *, show_plan: bool, quiet: bool, note: str = "") -> None:
        self._show_plan, self._quiet, self._note = show_plan, quiet, note
        self.written = 0

    @contextmanager
    def running(
        self, plan: ScanPlan | CountPlan | LoadPlan | ExportReadPlan | CopyPlan, budget: LocalBudget
    ) -> Iterator[None]:
        """Show the job while the context is open."""
        if self._show_plan:
            sys.stderr.write(f"{_plan_text(plan)}\n{self._note}\n")
        try:
            with nullcontext() if self._quiet else shown(plan.outline, budget):
                yield
        finally:
            self.written = budget.usage().items


class CopyProgress(JobProgress):
    """Display of a copy's plan, then of written items, WCU/s and the time left, then of the verification."""

    def verifying(self, table: str) -> None:
        """Report that the target is being read."""
        if not self._quiet:
            sys.stderr.write(f"verify: reading all of {table} to compare its digest\n")
            sys.stderr.flush()


def _plan_text(plan: Any) -> str:
    kind = type(plan).__name__
    if kind == "CopyPlan":
        return format_plan_of_run(plan.scan)
    return format_plan_of_run(plan) if kind == "ScanPlan" else text_of(plan)


@contextmanager
def shown(outline: JobOutline, budget: LocalBudget) -> Iterator[None]:
    """Show the counts of a budget on stderr while the context is open."""
    end = _End()
    budget.is_followed = True
    # Outside the thread: items that arrive while it starts are part of the job.
    pace = Pace(outline, budget.usage())
    # The same decision as rich, which is only imported if a bar is drawn.
    show = _bar if sys.stderr.isatty() or os.environ.get("FORCE_COLOR") else _lines
    thread = threading.Thread(target=show, args=(outline, budget, pace, end), name="ddbio-progress", daemon=True)
    thread.start()
    try:
        yield
        end.is_whole = True
    finally:
        end.came.set()
        thread.join()


@dataclass
class _End:
    came: threading.Event = field(default_factory=threading.Event)
    is_whole: bool = False
    """Whether the job ended normally, and was not interrupted."""


def _bar(outline: JobOutline, budget: LocalBudget, pace: Pace, end: _End) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
        TextColumn("{task.fields[detail]}", markup=False), TimeElapsedColumn(),
    )  # fmt: skip
    # The bar consists of escape sequences. Other output is not redirected through it, but escaped as usual.
    console = Console(file=plain(sys.stderr))
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as progress:
        bar = progress.add_task(escaped(outline.name), total=outline.goal, detail="starting")
        while not end.came.wait(REFRESH_SECONDS):
            usage = budget.usage()
            progress.update(bar, completed=pace.items(usage), detail=pace.describe(usage))
        items = pace.items(budget.usage())
        progress.update(bar, total=items if end.is_whole else None, completed=items, detail=f"{items:,} items")


def _lines(outline: JobOutline, budget: LocalBudget, pace: Pace, end: _End) -> None:
    while not end.came.wait(LINE_SECONDS):
        sys.stderr.write(f"{outline.name}: {pace.describe(budget.usage())}\n")
        sys.stderr.flush()


class Pace:
    """Speed of a job, by the items of the last ``WINDOW_SECONDS``."""

    def __init__(self, outline: JobOutline, start: Usage) -> None:
        self._outline, self._begun = outline, start
        self._seen = deque([start])
        # Earlier reads, such as a sample, are not part of the job.
        self._before = start.items - outline.done

    def items(self, usage: Usage) -> int:
        """Return the number of items or rows so far."""
        return usage.items - self._before

    def describe(self, usage: Usage) -> str:
        """Return a line of progress: items, MB/s, units/s compared with the budget, time left.

        Rates start with the first request.
        """
        if usage.requests == self._begun.requests:
            self._seen = deque([usage])
            return f"{self.items(usage):,} items  starting"
        while len(self._seen) > 1 and usage.elapsed_seconds - self._seen[1].elapsed_seconds >= WINDOW_SECONDS:
            self._seen.popleft()
        before = self._seen[0]
        self._seen.append(usage)
        seconds = max(usage.elapsed_seconds - before.elapsed_seconds, 1e-9)
        rate = (usage.items - before.items) / seconds
        outline = self._outline
        asked = "" if outline.units_per_second is None else f" of {outline.units_per_second:g}"
        words = [f"{self.items(usage):,} items"]
        if usage.wire_bytes:
            words.append(f"{(usage.wire_bytes - before.wire_bytes) / 1e6 / seconds:.1f} MB/s")
        if outline.unit:
            words.append(f"{(usage.consumed_units - before.consumed_units) / seconds:.0f}{asked} {outline.unit}/s")
        left = (outline.goal or 0) - self.items(usage)
        if rate > 0 and left > 0:
            words.append(f"{format_duration(left / rate)} left")
        return "  ".join(words)


class JobWatch:
    """Display of a job's status: a line at each change, and every 30 s otherwise.

    Exports, imports and backups have no counts before they end. Bulk puts have, so that the time left is known.
    """

    def __init__(self, kind: str, *, quiet: bool = False) -> None:
        self._kind, self._quiet = kind, quiet
        self._status = ""
        self._reported_at = 0.0

    def look(self, job: Job, waited: float) -> None:
        """Process the status of a job and the elapsed seconds."""
        if self._quiet:
            return
        if job.status == self._status and waited - self._reported_at < JOB_LINE_SECONDS:
            return
        self._status, self._reported_at = job.status, waited
        name = job.arn.rpartition("/")[2]
        sys.stderr.write(f"{self._kind} {name}: {job.status}, waited {format_duration(waited)}{_left(job, waited)}\n")
        sys.stderr.flush()


def _left(job: Job, waited: float) -> str:
    from ddbio.export.bulk_puts import BulkJob

    if not isinstance(job, BulkJob) or not job.total_bytes or not job.processed_bytes:
        return ""
    done = job.processed_bytes / job.total_bytes
    return f", {done:.0%} done, about {format_duration(waited * (1 - done) / done)} left"
