"""Count of the items of a table by segment, with Scan or Query and Select=COUNT. No item is transferred."""

from __future__ import annotations

import dataclasses
import logging
import math
import secrets
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_limits
from ddbio.errors import OptionError
from ddbio.jobs.costs import cost_of, job_cost
from ddbio.jobs.engine import available_cores
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.prices import Cost
from ddbio.jobs.report import Clock, PlannedReport
from ddbio.jobs.table_limits import read_statistics
from ddbio.jobs.watch import JobOutline, Unwatched
from ddbio.scan.describe import describe_scan, scan_tasks, unsampled
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import MAX_SEGMENTS, Resources, Sample, budget_of, check_scan, plan_scan
from ddbio.scan.read import NullDecoder
from ddbio.scan.segment_counts import (
    MIN_SAMPLED_SEGMENTS,
    SegmentCount,
    SegmentSkew,
    estimate_items,
    sampled_segments,
    skew_of,
)
from ddbio.scan.selection import selection_of
from ddbio.scan.stream import PageStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget.job_limits import JobLimits
    from ddbio.jobs.watch import Watch
    from ddbio.scan.options import CountOptions
    from ddbio.scan.plan import ScanPlan
    from ddbio.scan.stream import ReadPage, ScanTask

_LOG = logging.getLogger("ddbio.scan")

# Approximate size of an answer without items: the counts, the units and the LastEvaluatedKey.
_ANSWER_BYTES = 200


@dataclass(frozen=True)
class CountPlan(EstimatedPlan):
    """Plan of a count.

    Attributes
    ----------
    item_count, size_bytes
        According to DescribeTable, which DynamoDB updates about every six hours.
    segments, counted_segments
        TotalSegments, and the number of segments that are read: fewer with ``sample``. For Queries, the number of item
        collections.
    queries
        Number of item collections that are read by Query; 0 for a Scan.
    page_limit
        Maximum number of items in a page, so that a page fits the budget; None without a limit.
    """

    table: str
    index: str | None
    where: str | None
    consistent: bool
    item_count: int
    size_bytes: int
    segments: int
    counted_segments: int
    queries: int
    lanes: int
    rcu_per_second: float | None
    page_limit: int | None
    on_demand: bool
    table_rcu: float | None
    warnings: tuple[str, ...] = ()
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def outline(self) -> JobOutline:
        """Return the extent of the count for a progress display."""
        goal = None if self.queries else round(self.item_count * self.counted_segments / self.segments)
        return JobOutline(f"count {self.table}", "RCU", goal or None, self.rcu_per_second)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values. The cost of Queries is null, because it is unknown."""
        values = super().to_dict()
        return {**values, "usd": None} if self.queries else values


@dataclass(frozen=True, kw_only=True)
class CountReport(PlannedReport):
    """Number of items of a table.

    Attributes
    ----------
    table, index, where
        As in the options.
    items
        Items that match the condition; all items without a condition. With ``sample``, an estimate.
    items_low, items_high
        Limits of the 95 % confidence interval of an estimate; equal to ``items`` if all segments were counted.
    counted_items
        Matching items of the counted segments.
    scanned_items
        Items that the service read and charged.
    rcu_asked_per_second
        The budget, or null.
    rcu_consumed
        Read units charged by the service.
    wire_bytes
        Bytes of the response bodies.
    throttles
        Throttled requests by reason.
    lanes
        Segments read at the same time.
    total_segments, counted_segments
        TotalSegments, and the number of counted segments. For Queries, the number of item collections.
    skew
        Distribution of the items over the counted segments.
    segments
        Counts of the counted segments, in order.
    """

    table: str
    index: str | None
    where: str | None
    items: int
    items_low: int
    items_high: int
    counted_items: int
    scanned_items: int
    rcu_asked_per_second: float | None
    rcu_consumed: float
    wire_bytes: int
    throttles: dict[str, int]
    lanes: int
    total_segments: int
    counted_segments: int
    skew: SegmentSkew
    segments: tuple[SegmentCount, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the report from the plain values of ``to_dict`` or ``to_json``."""
        skew = dict(values["skew"])
        largest = tuple(SegmentCount(**count) for count in skew.pop("largest"))
        segments = [SegmentCount(**count) for count in values["segments"]]
        return super().from_dict({**values, "skew": SegmentSkew(**skew, largest=largest), "segments": segments})


class _Job(NamedTuple):
    """Plan of a count, the scan that it is derived from, and its limits."""

    plan: CountPlan
    scan_plan: ScanPlan
    scan: ScanOptions
    limits: JobLimits


def plan_count(options: CountOptions, from_file: str | None = None) -> CountPlan:
    """Return the plan of a count after describing the table. No item is read.

    Raises
    ------
    DdbioError
        If the count would be refused.
    """
    if from_file is None:
        return _job_of(describe_scan(_scan_options(options)), options, None).plan
    statistics = read_statistics(from_file)
    check_scan(statistics.table, _scan_options(options))
    return _job_of(statistics.table, options, statistics.item_bytes).plan


def count_table(options: CountOptions, watch: Watch[CountPlan] | None = None) -> CountReport:
    """Count the items of a table or an index, in all segments or in a random sample of them.

    The service reads and charges the same items as a scan, but transfers only their number.

    Raises
    ------
    OptionError
        If the condition or the index is invalid, or ``sample`` is combined with a condition of the partition key.
    LimitError
        If the plan or the run exceeds a limit of the options.
    DdbioError
        The error that ended the count.
    """
    clock = Clock()
    table = describe_scan(_scan_options(options))
    budget = LocalBudget(budget_of(table, _scan_options(options)), job=f"count of {table.name}")
    plan, scan_plan, scan, limits = _job_of(table, options, None)
    budget.bound(limits)
    _LOG.info("count %s: about %d items, planned: %s", table.name, plan.item_count, plan.figures)
    task = _task_of(plan, scan_plan, scan, table)
    stream = PageStream(task, budget, NullDecoder)
    counts = {request.segment: [0, 0] for request in task.requests}
    # The budget closes before the stream, so that lanes that wait for it end immediately.
    with closing(iter(stream)) as read, budget.within_limits(), (watch or Unwatched()).running(plan, budget):
        for page in cast("Iterator[ReadPage[pa.RecordBatch]]", read):
            counts[page.segment][0] += page.counts["items"]
            counts[page.segment][1] += page.counts["scanned_items"]
    keys = {request.segment: request.queries[0].key() for request in task.requests if request.queries}
    segments = tuple(
        SegmentCount(segment, items, scanned, keys.get(segment)) for segment, (items, scanned) in sorted(counts.items())
    )
    estimate = estimate_items([segment.items for segment in segments], plan.segments)
    usage, times = budget.usage(), clock.times()
    cost = job_cost(options, [("reads", usage.consumed_units, table)], [], times["seconds"])
    return CountReport(
        table=table.name,
        index=options.index,
        where=options.where,
        items=estimate.items,
        items_low=estimate.low,
        items_high=estimate.high,
        counted_items=stream.counts.items,
        scanned_items=stream.counts.scanned_items,
        rcu_asked_per_second=plan.rcu_per_second,
        rcu_consumed=usage.consumed_units,
        wire_bytes=stream.counts.wire_bytes,
        throttles=usage.throttles,
        lanes=plan.lanes,
        total_segments=plan.segments,
        counted_segments=len(segments),
        skew=skew_of(segments),
        segments=segments,
        planned=None if plan.queries else plan.figures,
        actual=Figures(usage.consumed_units, times["seconds"], stream.counts.wire_bytes, cost.usd),
        **times,
    )


def _scan_options(options: CountOptions) -> ScanOptions:
    """Return the options of the scan that reads the same items."""
    names = {option.name for option in fields(ScanOptions)}
    return ScanOptions(
        **{option.name: getattr(options, option.name) for option in fields(options) if option.name in names}
    )


def _job_of(table: TableDescription, options: CountOptions, item_bytes: float | None) -> _Job:
    """Return the plan of a count.

    Parameters
    ----------
    item_bytes
        Mean size of an item; None for that of DescribeTable.

    Raises
    ------
    OptionError
        If ``sample`` is combined with Queries.
    LimitError
        If the plan exceeds a limit of the options.
    """
    scan = _scan_options(options)
    sample = unsampled(table, scan)
    if item_bytes is not None:
        sample = dataclasses.replace(sample, item_bytes=item_bytes)
    queries = selection_of(table, scan).queries
    if queries and options.sample is not None:
        raise OptionError(
            "sample selects segments of a Scan, but the condition binds the partition key, which a Query reads: "
            "leave sample out"
        )
    scan_plan = _plan_scan(table, sample, scan)
    if queries:
        # Each item collection is counted separately.
        scan_plan = dataclasses.replace(scan_plan, segments=len(queries), lanes=min(len(queries), scan_plan.lanes))
    elif options.sample is not None and options.segments is None:
        total = max(scan_plan.segments, math.ceil(MIN_SAMPLED_SEGMENTS / options.sample))
        scan = dataclasses.replace(scan, segments=min(MAX_SEGMENTS, total))
        scan_plan = _plan_scan(table, sample, scan)
    described = (table.index(options.index) if options.index else None) or table
    total = scan_plan.segments
    counted = total if options.sample is None else sampled_segments(total, options.sample)
    estimate = _estimate_of(scan_plan, table, options, counted / total)
    unit_usd = cost_of("reads", 1.0, table, options.prices).usd
    limits = check_limits(options, estimate.units, estimate.seconds, estimate.cost, unit_usd=unit_usd)
    plan = CountPlan(
        table=table.name,
        index=options.index,
        where=options.where,
        consistent=options.consistent,
        item_count=described.item_count,
        size_bytes=described.size_bytes,
        segments=total,
        counted_segments=counted,
        queries=len(queries),
        lanes=min(scan_plan.lanes, counted),
        rcu_per_second=scan_plan.rcu_per_second,
        page_limit=scan_plan.page_limit,
        on_demand=table.on_demand,
        table_rcu=scan_plan.table_rcu,
        warnings=scan_plan.warnings,
        estimate=estimate,
    )
    return _Job(plan, scan_plan, scan, limits)


def _plan_scan(table: TableDescription, sample: Sample, scan: ScanOptions) -> ScanPlan:
    # Answers without items need almost no processor time.
    return plan_scan(table, sample, scan, Resources(available_cores(), bytes_per_second=math.inf))


def _estimate_of(plan: ScanPlan, table: TableDescription, options: CountOptions, share: float) -> Estimate:
    """Return the expected resources of counting a share of the segments; unknown for item collections."""
    if plan.queries:
        return Estimate(units=None, requests=None, bytes=None, cost=Cost(()))
    units, requests, seconds = plan.units * share, math.ceil(plan.requests * share), plan.seconds * share
    cost = job_cost(options, [("reads", units, table)], [], seconds)
    return Estimate(units, requests, requests * _ANSWER_BYTES, seconds, plan.limited_by, cost)


def _task_of(plan: CountPlan, scan_plan: ScanPlan, scan: ScanOptions, table: TableDescription) -> ScanTask:
    """Return the task that counts all segments, or randomly chosen ones."""
    (task,) = scan_tasks(scan_plan, scan, table)
    requests = list(task.requests)
    if plan.counted_segments < plan.segments:
        chosen = set(secrets.SystemRandom().sample(range(plan.segments), plan.counted_segments))
        requests = [request for request in requests if request.segment in chosen]
    return dataclasses.replace(
        task,
        requests=tuple(dataclasses.replace(request, counts_only=True) for request in requests),
        lanes=plan.lanes,
        yields_pages=True,
    )
