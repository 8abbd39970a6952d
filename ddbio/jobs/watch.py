"""Progress of a running job: shown, or reported to a function of the caller."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.budget import LocalBudget
    from ddbio.export.read import ExportReadPlan
    from ddbio.load.copy import CopyPlan
    from ddbio.load.plan import LoadPlan
    from ddbio.scan.count import CountPlan
    from ddbio.scan.plan import ScanPlan

PlanT_contra = TypeVar("PlanT_contra", contravariant=True)


class Watch(Protocol[PlanT_contra]):
    """Display of a running job's progress."""

    def running(self, plan: PlanT_contra, budget: LocalBudget) -> AbstractContextManager[None]:
        """Show the plan, then the counts of the budget while the context is open."""
        ...


class Unwatched:
    """Watch that shows nothing."""

    def running(self, plan: Any, budget: LocalBudget) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        del plan, budget
        return nullcontext()


@dataclass(frozen=True)
class JobOutline:
    """Known extent of a job before it runs.

    Attributes
    ----------
    name
        The command, such as ``scan orders``.
    unit
        ``RCU`` or ``WCU``; empty for a job that consumes no capacity.
    goal
        Number of items or rows at the end, including those of earlier runs; None if unknown.
    units_per_second
        Units per second of the budget, or None.
    done
        Rows of earlier runs.
    """

    name: str
    unit: str
    goal: int | None
    units_per_second: float | None
    done: int = 0


REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Progress(Result):
    """Progress of a job.

    Attributes
    ----------
    job
        The command, such as ``scan orders``.
    items
        Finished items or rows, including those of earlier runs of a load.
    goal
        Expected number of items or rows; None if unknown.
    consumed_units
        Read or write units charged by the service.
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
    """Progress reporter: calls a function about once a second from a separate thread, and once when the job ends."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report

    def verifying(self, table: str) -> None:
        """Report nothing: a copy that verifies has written everything."""

    @contextmanager
    def running(
        self, plan: ScanPlan | CountPlan | LoadPlan | ExportReadPlan | CopyPlan, budget: LocalBudget
    ) -> Iterator[None]:
        """Report a job while the context is open."""
        outline = plan.outline
        ended = threading.Event()
        budget.is_followed = True
        # Earlier reads, such as a sample, are not part of the job.
        before = budget.usage().items - outline.done

        def report(*, is_done: bool) -> None:
            usage = budget.usage()
            done = (usage.items - before, outline.goal, usage.consumed_units, usage.elapsed_seconds)
            self._report(Progress(outline.name, *done, is_done))

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
