"""Simulation of scans and loads in virtual time. Planner, budget and pacer are those of real jobs; only AWS is a model.

A job of many requests is simulated with fewer requests: each represents ``scale`` requests, and all times are
multiplied by ``scale`` at the end. A fixed duration, such as a pause after throttling, then counts ``scale`` times, so
the result is rather too long than too short.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.advice.simulation import RATES, SimulatedTable, SimulationReport, unequal_sizes
from ddbio.aws.table_description import TableDescription
from ddbio.budget import LocalBudget
from ddbio.budget.local import Grant
from ddbio.charts.page import Bars, Lines, report_page, write_page
from ddbio.errors import OptionError
from ddbio.items.capacity import scan_units, write_units
from ddbio.jobs.table_limits import PARTITION_RCU, PARTITION_WCU, TableLimits, partition_count
from ddbio.load.options import LoadOptions
from ddbio.load.plan import MOST_WRITES, SourceDescription, plan_load, plan_write, requests_of
from ddbio.retrying import full_jitter_seconds
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.plan import Resources, Sample, ScanPlan, plan_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.advice.options import SimulateLoadOptions, SimulateOptions, SimulateScanOptions
    from ddbio.budget.pacing import Ramp
    from ddbio.load.plan import LoadPlan, WritePlan

# Maximum number of simulated requests, unless there are more pieces.
MAX_SIMULATED_REQUESTS = 250_000
_FULL_PAGE_UNITS = 128.0
# A batch reaches more partitions; this number is enough to spread it.
_SPREAD = 4
_STEPS = 10
_GIB, _MB_128 = 1024**3, 128 * 1024**2


def simulate_scan(options: SimulateScanOptions) -> SimulationReport:
    """Simulate a scan of a table that need not exist: time, units, throttling. No service is called.

    The planner, the budget and its pacer are those of real scans, on a virtual clock. The table's partitions and the
    times of pages are a model. The same options return the same report.

    Raises
    ------
    OptionError
        If all executors are lost, or a chart needs matplotlib.
    TargetError
        If the chart cannot be written.
    """
    rng = np.random.default_rng(options.seed)
    plan = _scan_plan(options)
    units = scan_units(
        options.table_bytes, options.item_bytes, consistent=options.consistent, segments=plan.segments,
        page_items=plan.page_limit,
    )  # fmt: skip
    scale = max(1, plan.requests // max(MAX_SIMULATED_REQUESTS, plan.segments))
    sizes = unequal_sizes(plan.requests / scale * (1 - options.hot_key), plan.segments, options.skew, rng)
    limits = _limits(options, options.table_bytes, options.rcu_per_second, PARTITION_RCU)
    tasks = _scan_tasks(options, plan, units / plan.requests, sizes, limits.partitions)
    cluster = Cluster(
        slots=len(tasks),
        rate=options.rcu_per_second,
        static_shares=options.static_shares,
        request_seconds=options.page_seconds,
        full_units=_FULL_PAGE_UNITS * (2 if options.consistent else 1),
        spread=options.spread,
        changes=_changes(options),
    )
    outcome = SimulatedCluster(cluster, limits, scale, rng).run(tasks)
    job = _Job("scan", units, options.rcu_per_second, plan.requests, plan.segments, plan.lanes)
    return _with_chart(_report(job, outcome, scale, tasks, limits.partitions), options, job)


def _scan_plan(options: SimulateScanOptions) -> ScanPlan:
    """Return ddbio's plan for that table and cluster."""
    table = _table(math.ceil(options.table_bytes / options.item_bytes), int(options.table_bytes))
    policy = options.policy or ("task" if options.static_shares else "planner")
    segments = (
        options.segments
        or {
            "planner": None,
            "task": options.tasks,
            "gib": max(1, math.ceil(options.table_bytes / _GIB)),
            "128mb": min(1_000_000, max(1, math.ceil(options.table_bytes / _MB_128))),
        }[policy]
    )
    scan = ScanToFilesOptions(
        table="simulated",
        dest="simulated",
        engine="spark",
        tasks=options.tasks,
        lanes=options.lanes or (options.tasks if options.static_shares else None),
        segments=segments,
        # A task with a fixed share of the budget requests pages that are short enough for that share.
        rcu_per_second=options.rcu_per_second / (options.tasks if options.static_shares else 1),
        consistent=options.consistent,
    )
    sample = Sample(pa.schema([]), 0, options.item_bytes, 0.0, complete=False)
    return plan_scan(table, sample, scan, Resources(options.tasks, options.tasks))


def _scan_tasks(
    options: SimulateScanOptions, plan: ScanPlan, page_units: float, sizes: npt.NDArray[np.float64], partitions: int
) -> list[SimulatedTask]:
    """Return the segments of each task. A segment covers its share of the table's partitions."""
    step, hot = partitions / plan.segments, plan.segments // 2
    total = float(sizes.sum()) / (1 - options.hot_key)
    pieces = [Piece(float(size), page_units, number * step, (number + 1) * step) for number, size in enumerate(sizes)]
    if options.hot_key:
        # All items of a key are read sequentially, from one partition.
        position = hot * step
        pieces[hot] = Piece(float(sizes[hot]) + total * options.hot_key, page_units, position, position)
    return [SimulatedTask(tuple(pieces[number] for number in group), plan.lanes_per_task) for group in plan.groups()]


def simulate_load(options: SimulateLoadOptions) -> SimulationReport:
    """Simulate a load into a table that need not exist: time, units, throttling. No service is called.

    The planner, the budget and its pacer are those of real loads, on a virtual clock. The table's partitions and the
    times of requests are a model. The same options return the same report.

    Raises
    ------
    OptionError
        If all executors are lost, or a chart needs matplotlib.
    TargetError
        If the chart cannot be written.
    """
    rng = np.random.default_rng(options.seed)
    plan, write = _load_plan(options)
    assert plan.estimated_units is not None  # noqa: S101 - the rows are counted
    assert plan.rows is not None  # noqa: S101 - the rows are counted
    units = plan.rows * _row_units(options)
    requests = requests_of(plan.rows, write)
    scale = max(1, requests // MAX_SIMULATED_REQUESTS)
    limits = _limits(options, options.source_bytes, options.wcu_per_second, PARTITION_WCU * (1 + options.indexes))
    tasks = _load_tasks(options, plan, write, requests / scale, limits.partitions, rng)
    cluster = Cluster(
        slots=options.tasks,
        rate=options.wcu_per_second,
        static_shares=options.static_shares,
        request_seconds=options.request_seconds,
        full_units=1.0,
        spread=options.spread,
        changes=_changes(options),
        resumes=True,
        ramp=write.ramp,
    )
    outcome = SimulatedCluster(cluster, limits, scale, rng).run(tasks)
    lanes = min(options.tasks, len(tasks)) * (tasks[0].lanes if tasks else 0)
    job = _Job("load", units, options.wcu_per_second, requests, 0, lanes)
    return _with_chart(_report(job, outcome, scale, tasks, limits.partitions), options, job)


def _load_plan(options: SimulateLoadOptions) -> tuple[LoadPlan, WritePlan]:
    """Return ddbio's plans for those rows and that table."""
    rows = max(1, math.ceil(options.source_bytes / options.item_bytes))
    load = LoadOptions(
        source="simulated",
        table="simulated",
        engine="spark",
        mode=options.mode,
        wcu_per_second=options.wcu_per_second,
        lanes=options.lanes or (1 if options.static_shares else None),
        tasks=options.tasks if options.static_shares else None,
        warm_up=options.warm_up,
    )
    table = _table(0, 0)
    write = plan_write(table, load)
    units = max(1, math.ceil(options.source_bytes / _MB_128))
    source = SourceDescription(
        files=units, units=units, size_bytes=int(options.source_bytes), rows=rows, exact=True,
        row_units=write_units(math.ceil(options.item_bytes)), columns=("pk",),
    )  # fmt: skip
    return plan_load(load, write, table, source, Resources(options.tasks, options.tasks)), write


def _row_units(options: SimulateLoadOptions) -> float:
    return write_units(math.ceil(options.item_bytes)) * (1 + options.indexes)


def _load_tasks(
    options: SimulateLoadOptions, plan: LoadPlan, write: WritePlan, requests: float, partitions: int,
    rng: np.random.Generator,
) -> list[SimulatedTask]:  # fmt: skip
    """Return the tasks of a load. Each assigns its rows to lanes by the hash of their keys, so to all partitions."""
    rows, row_units = 1 if write.sends_single_items else MOST_WRITES, _row_units(options)
    sizes = unequal_sizes(requests * (1 - options.hot_key), plan.tasks, options.skew, rng)
    spread = min(rows, partitions, _SPREAD)
    tasks = []
    for number, size in enumerate(sizes):
        piece = Piece(float(size) / write.lanes, rows * row_units, spread=spread, row_units=row_units)
        pieces = [piece] * write.lanes
        if number == 0 and options.hot_key:
            # A batch contains a key at most once: rows of one key are sent one by one, in order, on one lane.
            pieces.insert(0, Piece(requests * options.hot_key * rows, row_units, 0.0, 0.0))
        tasks.append(SimulatedTask(tuple(pieces), len(pieces)))
    return tasks


def _table(items: int, size_bytes: int) -> TableDescription:
    return TableDescription(
        name="simulated",
        arn="simulated",
        table_id="",
        status="ACTIVE",
        key_types=(("pk", "S"),),
        item_count=items,
        size_bytes=size_bytes,
        on_demand=True,
    )


def _limits(options: SimulateOptions, size_bytes: float, rate: float, partition_rate: float) -> TableLimits:
    return TableLimits(
        partitions=options.partitions or partition_count(size_bytes, options.table_rate or rate, partition_rate),
        partition_rate=partition_rate,
        table_rate=options.table_rate,
        account_rate=options.account_rate,
        other_rate=options.other_rate,
        burst_seconds=options.burst_seconds,
        adaptive=not options.fixed_partitions,
        split_seconds=options.split_seconds,
    )


def _changes(options: SimulateOptions) -> tuple[tuple[float, int], ...]:
    """Return the times at which slots are added and lost."""
    lost = [(at, -count * options.executor_tasks) for count, at in options.lose]
    joining = [(at, count * options.executor_tasks) for count, at in options.join]
    return tuple(sorted(lost + joining))


class _Job(NamedTuple):
    """Planned work of a job."""

    verb: str
    units: float
    rate: float
    requests: int
    segments: int
    lanes: int


def _report(
    job: _Job, outcome: Outcome, scale: int, tasks: Sequence[SimulatedTask], partitions: int
) -> SimulationReport:
    ideal_seconds, seconds = job.units / job.rate, outcome.finished_at * scale
    sizes = [sum(piece.requests * piece.units for piece in task.pieces) for task in tasks]
    throttled = {limit: times * scale for limit, times in sorted(outcome.throttled.items())}
    return SimulationReport(
        seconds=round(seconds, 1),
        ideal_seconds=round(ideal_seconds, 1),
        ratio=round(seconds / ideal_seconds, 4),
        units=round(job.units, 1),
        requests=job.requests,
        throttles=sum(throttled.values()),
        peak_ratio=outcome.peak_ratio,
        idle_ratio=round(max(0.0, 1 - ideal_seconds / seconds), 4),
        segments=job.segments,
        lanes=job.lanes,
        tasks=len(tasks),
        partitions=partitions,
        largest_task_ratio=round(max(sizes) * len(sizes) / sum(sizes), 3),
        progress=tuple(round(at * scale, 1) for at in _progress(outcome)),
        scale=scale,
        throttled_by=throttled,
        splits=outcome.splits,
        lost_tasks=outcome.lost_tasks,
        repeated_units=round(outcome.repeated_units * scale, 1),
        rates=_rates(outcome),
        running=_running(outcome),
    )


def _progress(outcome: Outcome) -> list[float]:
    """Return the times at which each tenth of all units was consumed."""
    times = np.array([at for at, _ in outcome.consumed])
    sums = np.cumsum([units for _, units in outcome.consumed])
    return [
        float(times[min(len(times) - 1, np.searchsorted(sums, sums[-1] * step / _STEPS))])
        for step in range(1, _STEPS + 1)
    ]


def _rates(outcome: Outcome) -> tuple[float, ...]:
    times, units = zip(*outcome.consumed, strict=True)
    length = max(outcome.finished_at, 1e-9)
    sums, _ = np.histogram(times, bins=RATES, range=(0.0, length), weights=units)
    return tuple(round(float(rate), 1) for rate in sums / (length / RATES))


def _running(outcome: Outcome) -> tuple[int, ...]:
    times, counts = (np.array(column) for column in zip(*outcome.running, strict=True))
    at_times = (np.arange(RATES) + 0.5) * outcome.finished_at / RATES
    return tuple(int(count) for count in counts[np.clip(np.searchsorted(times, at_times, side="right") - 1, 0, None)])


def _with_chart(report: SimulationReport, options: SimulateOptions, job: _Job) -> SimulationReport:
    """Return a report, and write its chart if the options name a file."""
    if options.chart is not None:
        is_page = options.chart.endswith(".html")
        page = report_page(f"A simulated {job.verb}", report, _charts(report, job.rate))
        write_page(page, options.chart if is_page else None, None if is_page else options.chart)
    return report


def _charts(report: SimulationReport, rate: float) -> list[Bars | Lines]:
    """Return the charts of consumption, running tasks and progress."""
    hours = report.seconds / 3600
    hours_since_start = [(number + 0.5) * hours / len(report.rates) for number in range(len(report.rates))]
    tenths = [f"{number}0 %" for number in range(1, len(report.progress) + 1)]
    rates = {"consumed": report.rates, "budget": (rate,) * len(hours_since_start)}
    return [
        Lines("Units a second", "hours", "units a second", hours_since_start, rates),
        Lines("Tasks that run", "hours", "tasks", hours_since_start, {"tasks": report.running}),
        Bars("When each tenth is done", "hours", tenths, [round(at / 3600, 4) for at in report.progress]),
    ]


# Time always advances, even by a rounding error.
_MIN_SECONDS = 1e-6
_MAX_ADMITTED_RATIO = 0.5
# A rounding error is not a request.
_ROUNDING_ERROR = 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """Sequential work of a lane: a segment of a scan, or its share of a task's rows.

    Attributes
    ----------
    requests
        Number of requests of ``units``; the last one may be smaller.
    first, last
        Positions between 0 and the number of partitions: the lane advances from the first to the last. Both are None if
        each request uses random partitions.
    spread
        Number of random partitions of a request; each part is admitted separately.
    row_units
        Units that are admitted atomically; the default is a part.
    """

    requests: float
    units: float
    first: float | None = None
    last: float | None = None
    spread: int = 1
    row_units: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """Pieces of a task, and the number of pieces that run at the same time."""

    pieces: tuple[Piece, ...]
    lanes: int


@dataclass(frozen=True)
class Cluster:
    """Cluster of a job, and the pacing of its requests.

    Attributes
    ----------
    slots
        Tasks that run at the same time.
    rate
        Units a second of the job.
    static_shares
        Whether each slot has a fixed share of the rate, instead of leases.
    request_seconds, spread
        Median duration of a request of ``full_units``, and the spread of durations; smaller requests take less time.
    changes
        Times at which slots are added (more than 0) or lost.
    resumes
        Whether a lost task resumes; otherwise it restarts.
    """

    slots: int
    rate: float
    static_shares: bool
    request_seconds: float
    full_units: float
    spread: float
    changes: tuple[tuple[float, int], ...] = ()
    resumes: bool = False
    ramp: Ramp | None = None


@dataclass(slots=True, eq=False)
class _Run:
    """Execution of a task on a slot."""

    task: int
    budget: LocalBudget
    pieces: list[tuple[Piece, float]]
    lanes: list[_Lane] = field(default_factory=list)
    done_units: float = 0.0
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class _Lane:
    run: _Run
    piece: Piece | None = None
    left: float = 0.0
    units: float = 0.0
    position: float = 0.0
    attempt: int = 0
    admitted: float = 0.0


class _Event(NamedTuple):
    at: float
    order: int
    lane: _Lane | None
    is_answer: bool


@dataclass
class Outcome:
    """Result of a simulated job, in the clock of its cluster.

    Attributes
    ----------
    consumed
        Times and units of all requests.
    running
        Times, and the number of running tasks from each time.
    throttled
        Throttled requests by limit.
    repeated_units
        Units of tasks that restarted.
    """

    finished_at: float = 0.0
    consumed: list[tuple[float, float]] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)
    throttled: Counter[str] = field(default_factory=Counter)
    repeated_units: float = 0.0
    lost_tasks: int = 0
    peak_ratio: float | None = None
    splits: int = 0


class SimulatedCluster:
    """Executor of tasks in virtual time.

    Parameters
    ----------
    scale
        Number of requests that each simulated request represents.
    """

    def __init__(self, cluster: Cluster, limits: TableLimits, scale: int, rng: np.random.Generator) -> None:
        self._cluster, self._rng = cluster, rng
        self._table, self._partitions = SimulatedTable(limits, scale), limits.partitions
        self._now, self._order, self._scale = 0.0, 0, scale
        self._events: list[_Event] = []
        self._times: list[float] = []
        self._draws: list[float] = []
        self._shared = None if cluster.static_shares else self._budget(cluster.rate)
        self._slots: list[LocalBudget] = []
        self._tasks: list[SimulatedTask] = []
        self._waiting: list[tuple[int, list[tuple[Piece, float]]]] = []
        self._running: list[_Run] = []
        self.outcome = Outcome()

    def run(self, tasks: Sequence[SimulatedTask]) -> Outcome:
        """Run all tasks in order, as slots become free.

        Raises
        ------
        OptionError
            If all executors are lost before the end.
        """
        self._tasks = list(tasks)
        self._waiting = [
            (number, [(piece, piece.requests) for piece in task.pieces]) for number, task in enumerate(tasks)
        ]
        self._waiting.reverse()
        for at, _ in self._cluster.changes:
            self._at(at / self._scale, None)
        changes = list(self._cluster.changes)
        self._add_slots(self._cluster.slots)
        while self._events:
            self._now, _, lane, is_answer = heapq.heappop(self._events)
            if lane is None:
                _, change = changes.pop(0)
                if self._running or self._waiting:
                    self._change_slots(change)
            elif not lane.run.is_dead:
                if is_answer:
                    self._receive(lane)
                else:
                    self._try_to_send(lane)
        if self._waiting:
            raise OptionError(f"all executors are lost after {self._now * self._scale:,.0f} s: add executors")
        self.outcome.splits = self._table.splits
        if self._shared is not None:
            self.outcome.peak_ratio = self._shared.usage().peak_10s_ratio
        return self.outcome

    def _budget(self, rate: float) -> LocalBudget:
        return LocalBudget(rate, ramp=self._cluster.ramp, clock=lambda: self._now)

    def _change_slots(self, change: int) -> None:
        if change > 0:
            self._add_slots(change)
            return
        for _ in range(min(-change, len(self._running) + len(self._slots))):
            index = int(self._rng.integers(len(self._running) + len(self._slots)))
            if index < len(self._running):
                self._lose(self._running[index])
            else:
                self._slots.pop()
        self._start_tasks()

    def _add_slots(self, count: int) -> None:
        for _ in range(count):
            share = self._cluster.rate / self._cluster.slots
            self._slots.append(self._shared if self._shared is not None else self._budget(share))
        self._slots.reverse()
        self._start_tasks()

    def _lose(self, run: _Run) -> None:
        """End a task with its slot. Another slot repeats or resumes it."""
        run.is_dead = True
        self._running.remove(run)
        self.outcome.lost_tasks += 1
        if self._cluster.resumes:
            begun = [(lane.piece, lane.left) for lane in run.lanes if lane.piece is not None]
            self._waiting.append((run.task, [*begun, *reversed(run.pieces)]))
        else:
            self.outcome.repeated_units += run.done_units
            self._waiting.append((run.task, [(piece, piece.requests) for piece in self._tasks[run.task].pieces]))

    def _start_tasks(self) -> None:
        while self._slots and self._waiting:
            number, pieces = self._waiting.pop()
            # The lanes of a task take its pieces in order, as they become free.
            run = _Run(number, self._slots.pop(), list(reversed(pieces)))
            self._running.append(run)
            run.lanes = [_Lane(run) for _ in range(min(self._tasks[number].lanes, len(pieces)))]
            for lane in list(run.lanes):
                self._start_piece(lane)
        self.outcome.running.append((self._now, len(self._running)))

    def _start_piece(self, lane: _Lane) -> None:
        """Start the next piece of a lane's task. The last lane without a piece ends the task."""
        run = lane.run
        while run.pieces:
            lane.piece, lane.left = run.pieces.pop()
            if lane.left > _ROUNDING_ERROR:
                self._reserve(lane)
                return
        run.lanes.remove(lane)
        if not run.lanes:
            self._running.remove(run)
            self._slots.append(run.budget)
            self._start_tasks()

    def _reserve(self, lane: _Lane) -> None:
        self._enqueue(lane)
        self._try_to_send(lane)

    def _enqueue(self, lane: _Lane) -> None:
        piece = lane.piece
        assert piece is not None  # noqa: S101 - a lane reserves for its piece
        # The last request may be smaller.
        lane.units = piece.units * min(1.0, max(lane.left, 0.5 / piece.units))
        lane.position = lane.run.budget.enqueue(lane.units)

    def _try_to_send(self, lane: _Lane) -> None:
        budget = lane.run.budget
        wait_seconds, _ = budget.check(lane.position)
        if wait_seconds > 0:
            # Real lanes retry every 250 ms. Settlements hardly change the queue, so one reservation is enough here.
            self._at(self._now + max(wait_seconds, _MIN_SECONDS), lane)
            return
        lane.admitted = self._admit(lane)
        if lane.admitted:
            seconds = self._request_time() * max(0.1, min(1.0, lane.units / self._cluster.full_units))
            self._at(self._now + seconds, lane, is_answer=True)
            return
        budget.settle(Grant(lane.units, self._now), 0.0)
        self._pause(lane)

    def _admit(self, lane: _Lane) -> float:
        """Return the ratio of a request that the table admits."""
        piece = lane.piece
        assert piece is not None  # noqa: S101 - a lane sends requests of its piece
        admitted, part = 0.0, lane.units / piece.spread
        throttled = None
        for number in range(piece.spread):
            position = self._position(lane, piece, number)
            taken, scope = self._table.admits(position, part, min(part, piece.row_units or part), self._now)
            admitted += taken
            throttled = scope or throttled
        if throttled is not None:
            self.outcome.throttled[throttled.value] += 1
            if not admitted:
                lane.run.budget.throttled(throttled, "simulated")
        return 1.0 if throttled is None else admitted / lane.units

    def _position(self, lane: _Lane, piece: Piece, number: int) -> float:
        """Return the partition of a part of a request: random, each part in a separate range of the partitions."""
        if piece.first is None or piece.last is None:
            if not self._draws:
                self._draws = self._rng.random(10_000).tolist()
            return (number + self._draws.pop()) / piece.spread * self._partitions
        done = 1 - lane.left / piece.requests
        return min(piece.first + done * (piece.last - piece.first), self._partitions - 1e-9)

    def _receive(self, lane: _Lane) -> None:
        consumed = lane.units * lane.admitted
        lane.run.budget.settle(Grant(lane.units, self._now), consumed)
        lane.run.done_units += consumed
        self.outcome.consumed.append((self._now, consumed))
        self.outcome.finished_at = self._now
        lane.left -= lane.admitted * min(1.0, lane.left)
        if lane.left <= _ROUNDING_ERROR:
            lane.attempt = 0
            self._start_piece(lane)
        elif lane.admitted < 1:
            # As in real lanes: unprocessed rows are sent with others immediately, or after a short pause if they were
            # the majority.
            lane.attempt = 0
            if lane.admitted >= _MAX_ADMITTED_RATIO:
                self._reserve(lane)
            else:
                self._pause(lane)
        else:
            lane.attempt = 0
            self._reserve(lane)

    def _pause(self, lane: _Lane) -> None:
        self._enqueue(lane)
        pause = full_jitter_seconds(lane.attempt, float(self._rng.random()))
        lane.attempt += 1
        self._at(self._now + pause, lane)

    def _request_time(self) -> float:
        if not self._times:
            drawn = np.exp(self._rng.normal(0.0, self._cluster.spread, 10_000))
            self._times = (self._cluster.request_seconds * drawn).tolist()
        return self._times.pop()

    def _at(self, time: float, lane: _Lane | None, *, is_answer: bool = False) -> None:
        # The order breaks ties between events at the same time: lanes cannot be compared.
        self._order += 1
        heapq.heappush(self._events, _Event(time, self._order, lane, is_answer))
