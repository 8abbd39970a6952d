"""Tell a caller's function how far a running job is."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.budget import LocalBudget
    from ddbio.core.loads.plan import LoadPlan, WritePlan
    from ddbio.core.scan_plan import ScanPlan
    from ddbio.ops.exports.read import ExportReadPlan

REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Progress(Result):
    """How far a job is.

    Attributes
    ----------
    job
        What runs, like ``scan orders``.
    items
        Items or rows that are done.
    goal
        How many they will be, as the plan expects; None if unknown.
    consumed_units
        Read or write units that the service has charged.
    elapsed_seconds
        Time since the job's budget was opened.
    is_done
        Whether this is the last report.
    """

    job: str
    items: int
    goal: int | None
    consumed_units: float
    elapsed_seconds: float
    is_done: bool = False


class ProgressReporter:
    """Call a function about once a second, from a thread of its own, while a job runs, and once when it ends."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report

    @contextmanager
    def running(
        self, plan: ScanPlan | LoadPlan | ExportReadPlan, budget: LocalBudget, done_rows: int = 0
    ) -> Iterator[None]:
        """Report a scan, a load or the reading of an export while the context is open."""
        names = {"ScanPlan": "scan", "LoadPlan": "load"}
        job = f"{names.get(type(plan).__name__, 'read')} {getattr(plan, 'table', getattr(plan, 'source', ''))}"
        goals = [getattr(plan, name, None) for name in ("limit", "rows", "item_count", "items")]
        with self._reporting(job, next((goal for goal in goals if goal), None), budget, done_rows):
            yield

    @contextmanager
    def writing(self, scan: ScanPlan, write: WritePlan, budget: LocalBudget) -> Iterator[None]:
        """Report a copy while the context is open."""
        with self._reporting(f"copy {scan.table} to {write.table}", scan.item_count or None, budget, 0):
            yield

    def verifying(self, table: str) -> None:
        """Report nothing: a copy that verifies has written everything."""

    @contextmanager
    def _reporting(self, job: str, goal: int | None, budget: LocalBudget, done_rows: int) -> Iterator[None]:
        ended = threading.Event()
        # What was read before, as a sample, is no part of the job.
        before = budget.usage().items - done_rows

        def report(*, is_done: bool) -> None:
            usage = budget.usage()
            items = usage.items - before
            self._report(Progress(job, items, goal, usage.consumed_units, usage.elapsed_seconds, is_done))

        def repeat() -> None:
            while not ended.wait(REPORT_SECONDS):
                report(is_done=False)

        thread = threading.Thread(target=repeat, name="ddbio-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        report(is_done=True)
