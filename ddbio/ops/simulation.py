"""Simulate a scan in virtual time: the planner, the budget and its pacer are those of real scans; only AWS is a model.

A table of very many pages is simulated by fewer: each stands for ``scale`` pages, and all times are multiplied by
``scale`` at the end. What takes a fixed time, like a pause after throttling, then counts ``scale`` times: the answer
errs on the long side.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.budget.reservation import Grant
from ddbio.core.capacity import scan_units
from ddbio.core.pacing import ThrottleScope, full_jitter_seconds
from ddbio.core.scan_plan import Resources, Sample, ScanPlan, plan_scan
from ddbio.core.simulation import PARTITION_RCU, SimulationReport, partition_count, segment_pages
from ddbio.core.table_description import TableDescription
from ddbio.options import ScanToFilesOptions

if TYPE_CHECKING:
    from ddbio.options import SimulateScanOptions

# Pages that are simulated at most, but for one a segment.
MOST_PAGES = 250_000
# Times of pages vary as the service's do: the slowest of a hundred takes twice the median.
_SPREAD = 0.3
_STEPS = 10


def simulate_scan(options: SimulateScanOptions) -> SimulationReport:
    """Return what a scan of a table that need not exist would do; no service is called.

    The same options give the same report.
    """
    rng = np.random.default_rng(options.seed)
    plan = _plan(options)
    units = scan_units(
        options.table_bytes, options.item_bytes, consistent=options.consistent, segments=plan.segments,
        page_items=plan.page_limit,
    )  # fmt: skip
    scale = max(1, plan.requests // max(MOST_PAGES, plan.segments))
    sizes = segment_pages(plan.requests // scale, plan.segments, options.skew, rng)
    groups = plan.groups()
    world = _World(options, plan, units / plan.requests, sizes, rng)
    world.run(groups)
    pages_of_tasks = [float(sizes[list(group)].sum()) for group in groups]
    ideal_seconds = units / options.rcu_per_second
    seconds = world.finished_at * scale
    return SimulationReport(
        seconds=round(seconds, 1),
        ideal_seconds=round(ideal_seconds, 1),
        ratio=round(seconds / ideal_seconds, 4),
        units=round(units, 1),
        requests=plan.requests,
        throttles=world.throttles * scale,
        peak_ratio=world.peak_ratio(),
        idle_ratio=round(max(0.0, 1 - ideal_seconds / seconds), 4),
        segments=plan.segments,
        lanes=plan.lanes,
        tasks=len(groups),
        partitions=world.n_partitions,
        largest_task_ratio=round(max(pages_of_tasks) * len(groups) / sum(pages_of_tasks), 3),
        progress=tuple(round(at * scale, 1) for at in world.progress()),
        scale=scale,
    )


def _plan(options: SimulateScanOptions) -> ScanPlan:
    """Return the plan that ddbio's planner makes for that table and cluster."""
    table = TableDescription(
        name="simulated",
        arn="simulated",
        table_id="",
        status="ACTIVE",
        key_types=(("pk", "S"),),
        item_count=math.ceil(options.table_bytes / options.item_bytes),
        size_bytes=int(options.table_bytes),
        on_demand=True,
    )
    scan = ScanToFilesOptions(
        table="simulated",
        dest="simulated",
        engine="spark",
        tasks=options.tasks,
        lanes=options.tasks if options.static_shares else options.lanes,
        segments=options.segments or (options.tasks if options.static_shares else None),
        # A task with a share of its own asks for pages that are short enough for that share.
        rcu_per_second=options.rcu_per_second / (options.tasks if options.static_shares else 1),
        consistent=options.consistent,
    )
    sample = Sample(pa.schema([]), 0, options.item_bytes, 0.0, complete=False)
    return plan_scan(table, sample, scan, Resources(options.tasks, options.tasks))


@dataclass(slots=True)
class _Lane:
    """One segment is read at a time, page by page."""

    task: int
    segments: list[int]
    left: float = 0.0
    segment: int = 0
    position: float = 0.0
    attempt: int = 0
    units: float = 0.0


@dataclass(slots=True)
class _Partitions:
    """Each partition serves its own rate, and saves up a second of it."""

    levels: list[float]
    at: list[float]

    def admits(self, partition: int, units: float, now: float) -> bool:
        level = min(PARTITION_RCU, self.levels[partition] + (now - self.at[partition]) * PARTITION_RCU)
        self.levels[partition], self.at[partition] = level, now
        if level < 0:
            return False
        self.levels[partition] = level - units
        return True


class _World:
    """The lanes of all tasks, their budget or budgets, and the table's partitions, at one virtual time."""

    def __init__(
        self,
        options: SimulateScanOptions,
        plan: ScanPlan,
        page_units: float,
        sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
        rng: np.random.Generator,
    ) -> None:
        self._plan, self._page_units, self._sizes, self._rng = plan, page_units, sizes, rng
        self._now = 0.0
        rate = options.rcu_per_second
        n_budgets = plan.tasks if options.static_shares else 1
        self._budgets = [LocalBudget(rate / n_budgets, clock=lambda: self._now) for _ in range(n_budgets)]
        self.n_partitions = options.partitions or partition_count(options.table_bytes, rate)
        self._partitions = _Partitions([PARTITION_RCU] * self.n_partitions, [0.0] * self.n_partitions)
        # A page that ``Limit`` makes short takes less time, but never less than a tenth.
        full_units = 128.0 * (2 if options.consistent else 1)
        self._page_seconds = options.page_seconds * max(0.1, min(1.0, page_units / full_units))
        self._times: list[float] = []
        self._events: list[tuple[float, int, int, _Lane]] = []
        self._count = 0
        self._consumed: list[tuple[float, float]] = []
        self.throttles = 0
        self.finished_at = 0.0

    def run(self, groups: list[tuple[int, ...]]) -> None:
        """Read all segments; return when the last page is there."""
        for task, group in enumerate(groups):
            # The lanes of a task take its segments in their order, as they become free.
            queue = list(reversed(group))
            for _ in range(min(self._plan.lanes_per_task, len(queue))):
                self._begin(_Lane(task, queue))
        while self._events:
            self._now, _, is_answer, lane = heapq.heappop(self._events)
            if is_answer:
                self._receive(lane)
            else:
                self._try_to_send(lane)

    def _begin(self, lane: _Lane) -> None:
        """Let a lane read its next segment, if there is one."""
        if lane.segments:
            lane.segment = lane.segments.pop()
            lane.left = float(self._sizes[lane.segment])
            self._reserve(lane)

    def _reserve(self, lane: _Lane) -> None:
        # A segment's last page is not full.
        lane.units = self._page_units * min(1.0, max(lane.left, 1 / self._page_units / 2))
        lane.position = self._budget_of(lane).enqueue(lane.units)
        self._try_to_send(lane)

    def _try_to_send(self, lane: _Lane) -> None:
        wait_seconds, _ = self._budget_of(lane).check(lane.position)
        if wait_seconds > 0:
            # Real lanes ask again each quarter of a second; settlements hardly move the queue, so once is enough here.
            self._at(self._now + wait_seconds, lane, is_answer=False)
            return
        done = 1 - lane.left / float(self._sizes[lane.segment])
        partition = int((lane.segment + done) * self.n_partitions / self._plan.segments)
        if self._partitions.admits(min(partition, self.n_partitions - 1), lane.units, self._now):
            lane.attempt = 0
            self._at(self._now + self._page_time() * max(0.1, min(1.0, lane.left)), lane, is_answer=True)
            return
        self.throttles += 1
        budget = self._budget_of(lane)
        budget.settle(Grant(lane.units, self._now), 0.0)
        budget.throttled(ThrottleScope.KEY_RANGE, "simulated")
        pause = full_jitter_seconds(lane.attempt, float(self._rng.random()))
        lane.attempt += 1
        lane.position = budget.enqueue(lane.units)
        self._at(self._now + pause, lane, is_answer=False)

    def _receive(self, lane: _Lane) -> None:
        self._budget_of(lane).settle(Grant(lane.units, self._now), lane.units)
        self._consumed.append((self._now, lane.units))
        self.finished_at = self._now
        lane.left -= 1.0
        # What is left of rounding is no page.
        if lane.left > 1e-9:  # noqa: PLR2004 - see above
            self._reserve(lane)
        else:
            self._begin(lane)

    def _budget_of(self, lane: _Lane) -> LocalBudget:
        return self._budgets[lane.task if len(self._budgets) > 1 else 0]

    def _page_time(self) -> float:
        if not self._times:
            self._times = (self._page_seconds * np.exp(self._rng.normal(0.0, _SPREAD, 10_000))).tolist()
        return self._times.pop()

    def _at(self, time: float, lane: _Lane, *, is_answer: bool) -> None:
        # The count decides between events of one time: lanes are never compared.
        self._count += 1
        heapq.heappush(self._events, (time, self._count, is_answer, lane))

    def peak_ratio(self) -> float | None:
        """Return the most that was consumed within any 10 s, over 10 s of the budget."""
        return self._budgets[0].usage().peak_10s_ratio if len(self._budgets) == 1 else None

    def progress(self) -> list[float]:
        """Return when each tenth of all units was consumed."""
        times = np.array([at for at, _ in self._consumed])
        sums = np.cumsum([units for _, units in self._consumed])
        return [
            float(times[min(len(times) - 1, np.searchsorted(sums, sums[-1] * step / _STEPS))])
            for step in range(1, _STEPS + 1)
        ]
