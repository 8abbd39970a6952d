"""Show a running job on stderr: a bar where there is a terminal, else a line now and then."""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ddbio.cli.show import format_duration, format_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.budget import LocalBudget, Usage
    from ddbio.core.plan import ScanPlan

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0
WINDOW_SECONDS = 5.0


class ProgressWatch:
    """Print the plan, then items, MB/s, RCU/s against the budget and the time left."""

    def __init__(self, *, show_plan: bool) -> None:
        self._show_plan = show_plan
        self._console = Console(stderr=True)

    @contextmanager
    def running(self, plan: ScanPlan, budget: LocalBudget) -> Iterator[None]:
        """Show the job while the context is open."""
        if self._show_plan:
            sys.stderr.write(format_plan(plan) + "\n\n")
        ended = threading.Event()
        show = self._bar if self._console.is_terminal else self._lines
        thread = threading.Thread(target=show, args=(plan, budget, ended), name="ddbio-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _bar(self, plan: ScanPlan, budget: LocalBudget, ended: threading.Event) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"), TimeElapsedColumn(),
        )  # fmt: skip
        with Progress(*columns, console=self._console) as progress:
            bar = progress.add_task(f"scan {plan.table}", total=_goal(plan), detail="starting")
            pace = Pace(plan, budget.usage())
            while not ended.wait(REFRESH_SECONDS):
                usage = budget.usage()
                progress.update(bar, completed=usage.items, detail=pace.describe(usage))
            items = budget.usage().items
            progress.update(bar, total=items, completed=items, detail=f"{items:,} items")

    def _lines(self, plan: ScanPlan, budget: LocalBudget, ended: threading.Event) -> None:
        pace = Pace(plan, budget.usage())
        while not ended.wait(LINE_SECONDS):
            sys.stderr.write(f"scan {plan.table}: {pace.describe(budget.usage())}\n")
            sys.stderr.flush()


class Pace:
    """Tell how fast a job goes, by what the last ``WINDOW_SECONDS`` brought."""

    def __init__(self, plan: ScanPlan, begun: Usage) -> None:
        self._plan = plan
        self._seen = deque([begun])

    def describe(self, usage: Usage) -> str:
        """Return one line on how far the job is: items, MB/s, RCU/s against the budget, time left."""
        while len(self._seen) > 1 and usage.elapsed_seconds - self._seen[1].elapsed_seconds >= WINDOW_SECONDS:
            self._seen.popleft()
        before = self._seen[0]
        self._seen.append(usage)
        seconds = max(usage.elapsed_seconds - before.elapsed_seconds, 1e-9)
        rate = (usage.items - before.items) / seconds
        asked = "" if self._plan.rcu_per_second is None else f" of {self._plan.rcu_per_second:g}"
        line = (
            f"{usage.items:,} items  {(usage.wire_bytes - before.wire_bytes) / 1e6 / seconds:.1f} MB/s  "
            f"{(usage.consumed_units - before.consumed_units) / seconds:.0f}{asked} RCU/s"
        )
        left = (_goal(self._plan) or 0) - usage.items
        return f"{line}  {format_duration(left / rate)} left" if rate > 0 and left > 0 else line


def _goal(plan: ScanPlan) -> int | None:
    goals = [count for count in (plan.item_count, plan.limit) if count]
    return min(goals) if goals else None
