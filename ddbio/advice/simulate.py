"""Simulate scans and loads in virtual time: planner, budget and pacer are those of real jobs; only AWS is a model.

A job of very many requests is simulated by fewer: each stands for ``scale`` requests, and all times are multiplied by
``scale`` at the end. What takes a fixed time, like a pause after throttling, then counts ``scale`` times: the answer
errs on the long side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.advice.simulated_cluster import Cluster, Outcome, Piece, SimulatedCluster, SimulatedTask
from ddbio.advice.simulation import RATES, SimulationReport, unequal_sizes
from ddbio.aws.table_description import TableDescription
from ddbio.charts.page import Bars, Lines, report_page, write_page
from ddbio.items.capacity import scan_units, write_units
from ddbio.jobs.table_limits import PARTITION_RCU, PARTITION_WCU, TableLimits, partition_count
from ddbio.load.plan import MOST_WRITES, SourceDescription, plan_load, plan_write, requests_of
from ddbio.options import LoadOptions, ScanToFilesOptions
from ddbio.scan.plan import Resources, Sample, ScanPlan, plan_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.load.plan import LoadPlan, WritePlan
    from ddbio.options import SimulateLoadOptions, SimulateScanOptions
    from ddbio.options.simulation import SimulateOptions

# Requests that are simulated at most, but for one of each piece.
MOST_REQUESTS = 250_000
_FULL_PAGE_UNITS = 128.0
# A batch reaches more partitions, but no more are needed to spread it.
_SPREAD = 4
_STEPS = 10
_GIB, _MB_128 = 1024**3, 128 * 1024**2


def simulate_scan(options: SimulateScanOptions) -> SimulationReport:
    """Return what a scan of a table that need not exist would do: time, units, throttling; no service is called.

    The planner, the budget and its pacer are those of real scans, on a virtual clock; the table's partitions and the
    times of pages are a model. The same options give the same report.

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
    scale = max(1, plan.requests // max(MOST_REQUESTS, plan.segments))
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
    return _shown(_report(job, outcome, scale, tasks, limits.partitions), options, job)


def _scan_plan(options: SimulateScanOptions) -> ScanPlan:
    """Return the plan that ddbio's planner makes for that table and cluster."""
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
        # A task with a share of its own asks for pages that are short enough for that share.
        rcu_per_second=options.rcu_per_second / (options.tasks if options.static_shares else 1),
        consistent=options.consistent,
    )
    sample = Sample(pa.schema([]), 0, options.item_bytes, 0.0, complete=False)
    return plan_scan(table, sample, scan, Resources(options.tasks, options.tasks))


def _scan_tasks(
    options: SimulateScanOptions, plan: ScanPlan, page_units: float, sizes: npt.NDArray[np.float64], partitions: int
) -> list[SimulatedTask]:
    """Return the segments of each task; a segment lies in its part of the table's partitions."""
    step, hot = partitions / plan.segments, plan.segments // 2
    total = float(sizes.sum()) / (1 - options.hot_key)
    pieces = [Piece(float(size), page_units, number * step, (number + 1) * step) for number, size in enumerate(sizes)]
    if options.hot_key:
        # All items of a key are read one after the other, from one partition.
        place = hot * step
        pieces[hot] = Piece(float(sizes[hot]) + total * options.hot_key, page_units, place, place)
    return [SimulatedTask(tuple(pieces[each] for each in group), plan.lanes_per_task) for group in plan.groups()]


def simulate_load(options: SimulateLoadOptions) -> SimulationReport:
    """Return what a load into a table that need not exist would do: time, units, throttling; no service is called.

    The planner, the budget and its pacer are those of real loads, on a virtual clock; the table's partitions and the
    times of requests are a model. The same options give the same report.

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
    assert plan.rows is not None  # noqa: S101 - likewise
    units = plan.rows * _row_units(options)
    requests = requests_of(plan.rows, write)
    scale = max(1, requests // MOST_REQUESTS)
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
    return _shown(_report(job, outcome, scale, tasks, limits.partitions), options, job)


def _load_plan(options: SimulateLoadOptions) -> tuple[LoadPlan, WritePlan]:
    """Return the plans that ddbio's planner makes for those rows and that table."""
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
    found = SourceDescription(
        files=units, units=units, size_bytes=int(options.source_bytes), rows=rows, exact=True,
        row_units=write_units(math.ceil(options.item_bytes)), columns=("pk",),
    )  # fmt: skip
    return plan_load(load, write, table, found, Resources(options.tasks, options.tasks)), write


def _row_units(options: SimulateLoadOptions) -> float:
    return write_units(math.ceil(options.item_bytes)) * (1 + options.indexes)


def _load_tasks(
    options: SimulateLoadOptions, plan: LoadPlan, write: WritePlan, requests: float, partitions: int,
    rng: np.random.Generator,
) -> list[SimulatedTask]:  # fmt: skip
    """Return the tasks of a load: each deals its rows to lanes by the hash of their keys, so to all partitions."""
    rows, row_units = 1 if write.sends_single_items else MOST_WRITES, _row_units(options)
    sizes = unequal_sizes(requests * (1 - options.hot_key), plan.tasks, options.skew, rng)
    spread = min(rows, partitions, _SPREAD)
    tasks = []
    for number, size in enumerate(sizes):
        piece = Piece(float(size) / write.lanes, rows * row_units, spread=spread, row_units=row_units)
        pieces = [piece] * write.lanes
        if number == 0 and options.hot_key:
            # A batch holds no key twice: rows of one key go out one by one, in their order, over one lane.
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
    """Return when slots come and are lost."""
    lost = [(at, -count * options.executor_tasks) for count, at in options.lose]
    joining = [(at, count * options.executor_tasks) for count, at in options.join]
    return tuple(sorted(lost + joining))


class _Job(NamedTuple):
    """What a job does, as planned."""

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
    """Return when each tenth of all units was consumed."""
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
    return tuple(round(float(each), 1) for each in sums / (length / RATES))


def _running(outcome: Outcome) -> tuple[int, ...]:
    times, counts = (np.array(each) for each in zip(*outcome.running, strict=True))
    places = (np.arange(RATES) + 0.5) * outcome.finished_at / RATES
    return tuple(int(each) for each in counts[np.clip(np.searchsorted(times, places, side="right") - 1, 0, None)])


def _shown(report: SimulationReport, options: SimulateOptions, job: _Job) -> SimulationReport:
    """Return a report, drawn where the options say."""
    if options.chart is not None:
        is_page = options.chart.endswith(".html")
        page = report_page(f"A simulated {job.verb}", report, _charts(report, job.rate))
        write_page(page, options.chart if is_page else None, None if is_page else options.chart)
    return report


def _charts(report: SimulationReport, rate: float) -> list[Bars | Lines]:
    """Return what was consumed and what ran over the run's course, and when each tenth was done."""
    hours = report.seconds / 3600
    places = [(number + 0.5) * hours / len(report.rates) for number in range(len(report.rates))]
    tenths = [f"{number}0 %" for number in range(1, len(report.progress) + 1)]
    rates = {"consumed": report.rates, "budget": (rate,) * len(places)}
    return [
        Lines("Units a second", "hours", "units a second", places, rates),
        Lines("Tasks that run", "hours", "tasks", places, {"tasks": report.running}),
        Bars("When each tenth is done", "hours", tenths, [round(at / 3600, 4) for at in report.progress]),
    ]
