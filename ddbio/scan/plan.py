"""Plan of a scan from the description and a sample of its table: segments, lanes, tasks, engine, budget, estimates."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from ddbio.budget.pacing import DEFAULT_RATIO
from ddbio.errors import OptionError
from ddbio.items.capacity import BATCH_KEYS, PAGE_BYTES, SEGMENT_BYTES, page_limit, read_units, scan_pages, scan_units
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.estimate import PROCESSORS, SCAN_SPEED, SENT_RATIO, START_SECONDS, Estimate, EstimatedPlan
from ddbio.jobs.file_estimates import estimate_files
from ddbio.jobs.prices import Cost
from ddbio.jobs.table_limits import limits_of
from ddbio.jobs.watch import JobOutline
from ddbio.scan.selection import selection_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.items.index_units import SampledWrites
    from ddbio.jobs.file_estimates import PartitionSample
    from ddbio.jobs.table_limits import Served
    from ddbio.options import Engine
    from ddbio.scan.options import ScanOptions

MIB = 1024 * 1024

SMALL_TABLE_BYTES = 256 * MIB
"""A smaller table is read with at most four segments, and without Spark unless a session is running."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html#Scan.ParallelScan
MAX_SEGMENTS = 1_000_000

PAGE_LATENCY_SECONDS = 0.1
"""Assumed time of one full page, for the number of lanes; real tables answer in 50–100 ms."""

REQUEST_SECONDS = 0.01
"""Assumed time of an almost empty page."""

LANES_PER_CORE = 4
COLLECTION_GROUPS_PER_LANE = 16
"""Groups of item collections per lane: with several groups, one with large collections delays few others."""
SMALL_SEGMENT_BYTES = 64 * MIB
SEGMENT_UNITS_PER_SECOND = 250
ROTATED_SEGMENTS = 256
ROTATED_SEGMENTS_UNKNOWN = 64
ROTATED_PAGE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Sample:
    """Result of a sample of a table: columns, mean item, cost, and whether it was the whole table."""

    schema: pa.Schema
    items: int
    item_bytes: float
    consumed_units: float
    complete: bool
    partitions: PartitionSample | None = None
    sent_bytes: float = 0.0
    """Mean bytes of an item in the answers; 0 if nothing was sampled."""
    writes: SampledWrites | None = None
    """Cost of writing an item to another table, if there is one."""
    collections: int = 0
    """The number of sampled item collections, if the scan reads only item collections."""


@dataclass(frozen=True)
class ScanPlan(EstimatedPlan):
    """The plan of a scan: everything that its run will do."""

    table: str
    index: str | None
    consistent: bool
    item_count: int
    size_bytes: int
    item_bytes: float
    segments: int
    lanes: int
    tasks: int
    engine: Literal["local", "spark"]
    engine_reason: str
    rcu_per_second: float | None
    page_limit: int | None
    estimated_units: float
    estimated_seconds: float
    schema: pa.Schema
    columns: tuple[str, ...] | None
    limit: int | None
    on_demand: bool = True
    table_rcu: float | None = None
    """The provisioned read units of the table or index, or its on-demand maximum; None if it has neither."""
    requests: int = 0
    """Expected number of pages."""
    limited_by: str = ""
    """The bottleneck that determines the estimated seconds."""
    bytes: int = 0
    """Expected bytes of the answers, as sent."""
    sample_units: float = 0.0
    """Read units of the sample, which a run also takes and pays."""
    cost: Cost | None = None
    partitions: int | None = None
    """Expected number of partitions of the files; None without partitions or without a sample."""
    estimated_files: int | None = None
    estimated_file_bytes: int | None = None
    warnings: tuple[str, ...] = ()
    writes: SampledWrites | None = None
    """Cost of writing an item of the sample to the target of a copy."""
    where: str | None = None
    """The condition of the items; units include those of items that do not match."""
    queries: int = 0
    """The number of item collections, read by separate Queries in ``segments`` groups; 0 for a Scan."""
    keys: int = 0
    """The number of items read by key, by BatchGetItem, in ``segments`` groups; 0 for a Scan."""
    burst_saves_seconds: float = 0.0
    """Seconds by which the burst capacity of the table shortens the estimate."""
    sample_seconds: float = 0.0
    """Seconds that the sample adds: it is read before the scan, with the same budget and capacity."""

    @property
    def lanes_per_task(self) -> int:
        """Return the number of segments that one task reads at the same time."""
        return math.ceil(self.lanes / self.tasks)

    @property
    def outline(self) -> JobOutline:
        """Return the outline of the scan, for progress output."""
        # A limit counts matching items, but progress counts all items that are read.
        limit = self.limit if self.where is None else None
        goals = [count for count in (self.item_count, limit) if count]
        return JobOutline(f"scan {self.table}", "RCU", min(goals, default=None), self.rcu_per_second)

    @property
    def units(self) -> float:
        """Return the billed read units of a run, including its sample."""
        return self.estimated_units + self.sample_units

    @property
    def bytes_of_items(self) -> int:
        """Return the size of all items to read, as the service counts it."""
        return max(self.size_bytes, math.ceil(self.item_bytes * self.item_count))

    @property
    def seconds(self) -> float:
        """Return the expected duration of a run with its start and sample, less the time saved by burst."""
        return self.estimated_seconds - self.burst_saves_seconds + START_SECONDS + self.sample_seconds

    @property
    def estimate(self) -> Estimate:
        """Return the expected requests, units, bytes, time and cost."""
        cost = self.cost or Cost(())
        return Estimate(self.units, self.requests, self.bytes, self.seconds, self.limited_by, cost)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values; its schema has the format of ``schema`` and ``--schema``."""
        own = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in {"schema", "cost", "writes"}
        }
        return {
            **own,
            "lanes_per_task": self.lanes_per_task,
            "schema": json.loads(schema_to_json(self.schema)),
            **self.estimate.to_dict(),
            "usd": None if self.cost is None else self.cost.usd,
        }

    def groups(self) -> list[tuple[int, ...]]:
        """Return the segments of each task, ordered so that neighbours in hash order are read at different times."""
        order = spread_order(self.segments)
        return [tuple(order[first :: self.tasks]) for first in range(self.tasks)]


def spread_order(count: int) -> list[int]:
    """Return 0 … count-1 in an order that separates neighbours; the order is the same at every call.

    Neighbouring segments are in the same partition, which would be hot if they were read one after another.
    """
    golden = (math.sqrt(5) - 1) / 2
    step = max(1, round(count * golden))
    while math.gcd(step, count) != 1:
        step += 1
    return [index * step % count for index in range(count)]


def rotated_segments(size_bytes: int) -> int:
    """Return the number of segments to read in rotation, so that reads are always spread over the whole table.

    A table of unknown size (a new one, for hours) gets a moderate number: each segment costs at least 0.5 units.
    """
    if not size_bytes:
        return ROTATED_SEGMENTS_UNKNOWN
    return min(ROTATED_SEGMENTS, math.ceil(2 * size_bytes / ROTATED_PAGE_BYTES))


def budget_of(table: TableDescription, options: ScanOptions) -> float | None:
    """Return the read units per second that the job may use; the default is half of a provisioned table's.

    None means no limit; it is the default for an on-demand table.

    Raises
    ------
    OptionError
        If a ratio is given and the table has no maximum rate.
    """
    if options.rcu_per_second is not None:
        return options.rcu_per_second
    index = table.index(options.index) if options.index else None
    rate = index.rcu if index is not None and index.is_global else table.rcu
    if options.read_ratio is None:
        return None if table.on_demand or rate is None else rate * DEFAULT_RATIO
    if rate is None:
        raise OptionError(
            f"read_ratio needs a rate to take a share of, and on-demand table {table.name!r} has no maximum: "
            "give rcu_per_second instead"
        )
    return rate * options.read_ratio


def check_scan(table: TableDescription, options: ScanOptions) -> None:
    """Raise if the service would refuse the scan; nothing is read.

    Raises
    ------
    OptionError
        If the index does not exist, the read is consistent and the index global, or the condition is invalid.
    """
    if options.index is not None:
        index = table.index(options.index)
        if index is None:
            names = ", ".join(secondary.name for secondary in table.indexes) or "none"
            raise OptionError(f"table {table.name!r} has no index {options.index!r}; it has: {names}")
        # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
        if index.is_global and options.consistent:
            raise OptionError(f"global index {index.name!r} cannot be read strongly consistent: leave consistent out")
    selection_of(table, options)


@dataclass(frozen=True)
class Resources:
    """The cores and Spark parallelism that a plan can use.

    ``cores`` are those of this process. ``spark_parallelism`` is that of a running session, or None.
    ``can_start_spark`` is true if pyspark is installed. ``bytes_per_second`` is the speed of a core.
    """

    cores: int
    spark_parallelism: int | None = None
    can_start_spark: bool = True
    bytes_per_second: float = SCAN_SPEED


def plan_scan(table: TableDescription, sample: Sample, options: ScanOptions, resources: Resources) -> ScanPlan:
    """Return the plan of a scan: segments from size, budget and lanes; an explicit option takes precedence.

    The number of segments is ``clamp(max(size / 512 MiB, 4 × lanes, budget / 250), 1, 1,000,000)``. A table below
    256 MiB, or of unknown size, gets one to four; a table that was sampled completely gets one.
    """
    index = table.index(options.index) if options.index else None
    count, size = (index.item_count, index.size_bytes) if index else (table.item_count, table.size_bytes)
    selection = selection_of(table, options)
    if selection.keys:
        count = len(selection.keys)
        size = math.ceil(count * sample.item_bytes)
    elif selection.queries:
        per_query = sample.items / sample.collections if sample.collections else 1.0
        count = math.ceil(per_query * len(selection.queries))
        size = math.ceil(count * sample.item_bytes)
    elif sample.complete:
        count, size = sample.items, math.ceil(sample.items * sample.item_bytes)
    budget = budget_of(table, options)
    engine, reason = _choose_engine(size, options, resources)
    parallelism = (resources.spark_parallelism or resources.cores) if engine == "spark" else resources.cores
    lanes = options.lanes or _lanes(budget, parallelism, sample, options)
    segments = options.segments or _segments(size, budget, lanes, sample)
    if selection.queries:
        segments = min(len(selection.queries), COLLECTION_GROUPS_PER_LANE * lanes)
    elif selection.keys:
        segments = min(math.ceil(count / BATCH_KEYS), COLLECTION_GROUPS_PER_LANE * lanes)
    if options.limit is not None:
        segments = 1
    lanes = min(lanes, segments)
    asked_tasks: int | None = getattr(options, "tasks", None)
    tasks = min(asked_tasks or parallelism, segments) if engine == "spark" else 1
    limit = None if budget is None else page_limit(budget, sample.item_bytes, options.consistent)
    # The service updates the count about every six hours: the table has at least the sampled items.
    read_bytes = max(size, math.ceil(sample.items * sample.item_bytes))
    if options.limit is not None and options.where is None:
        read_bytes = min(read_bytes, math.ceil(options.limit * sample.item_bytes))
    units = scan_units(
        read_bytes, sample.item_bytes, consistent=options.consistent, segments=segments, page_items=limit
    )
    rate = index.rcu if index is not None and index.is_global else table.rcu
    requests = scan_pages(read_bytes, sample.item_bytes, segments=segments, page_items=limit)
    if selection.keys:
        # The size of each item is rounded up separately; a missing item costs the minimum.
        units = min(count, options.limit or count) * read_units(math.ceil(sample.item_bytes), options.consistent)
        requests = segments * math.ceil(count / segments / min(BATCH_KEYS, limit or BATCH_KEYS))
    in_flight = max(lanes, tasks)
    served, server = _served(table, options, units, in_flight)
    times = {
        "the budget": units / budget if budget else 0.0,
        server: served.lasting_seconds,
        "requests in flight": requests * _latency_seconds(read_bytes / requests) / in_flight,
        PROCESSORS: read_bytes / (resources.bytes_per_second * parallelism),
    }
    limited_by = max(times, key=lambda name: times[name])
    seconds = times[limited_by]
    with_burst = max({**times, server: served.burst_seconds}.values())
    sampled = _served(table, options, units + sample.consumed_units, in_flight)[0].burst_seconds
    sample_seconds = max(sample.consumed_units / budget if budget else 0.0, sampled - with_burst)
    # An answer may not report its units.
    sent_is_known = sample.sent_bytes > 0 and sample.item_bytes > 0
    files = None
    if sample.partitions is not None:
        rows = count if options.limit is None else min(count, options.limit)
        files = estimate_files(sample.partitions, rows, tasks, getattr(options, "target_file_bytes", SMALL_TABLE_BYTES))
    return ScanPlan(
        table=table.name,
        index=options.index,
        consistent=options.consistent,
        item_count=count,
        size_bytes=size,
        item_bytes=sample.item_bytes,
        segments=segments,
        lanes=max(lanes, tasks),
        tasks=tasks,
        engine=engine,
        engine_reason=reason,
        rcu_per_second=budget,
        page_limit=limit,
        estimated_units=units,
        sample_units=sample.consumed_units,
        estimated_seconds=seconds,
        schema=sample.schema,
        columns=options.columns,
        limit=options.limit,
        on_demand=table.on_demand,
        table_rcu=rate,
        requests=requests,
        limited_by=limited_by,
        bytes=round(read_bytes * (sample.sent_bytes / sample.item_bytes if sent_is_known else SENT_RATIO)),
        partitions=None if files is None else files.partitions,
        estimated_files=None if files is None else files.files,
        estimated_file_bytes=None if files is None else files.file_bytes,
        warnings=selection.warnings + (() if files is None else files.warnings),
        where=options.where,
        queries=len(selection.queries),
        keys=len(selection.keys),
        writes=sample.writes,
        burst_saves_seconds=seconds - with_burst,
        sample_seconds=sample_seconds,
    )


def _latency_seconds(page_bytes: float) -> float:
    """Return the assumed time of a page of this size, which is at least the time of one request."""
    return max(REQUEST_SECONDS, PAGE_LATENCY_SECONDS * page_bytes / PAGE_BYTES)


def _served(table: TableDescription, options: ScanOptions, units: float, lanes: int) -> tuple[Served, str]:
    """Return the time that the service needs for these units, and its bottleneck: capacity or partitions."""
    limits = limits_of(table, "reads", options.index)
    # A lane reads one partition at a time.
    served = limits.serves(units, largest_share=1 / lanes if lanes < limits.partitions else 0.0)
    if served.by_partitions and limits.table_rate is None and table.on_demand:
        return served, "an on-demand table"
    if served.by_partitions:
        return served, "the partitions of the table"
    return served, "the provisioned capacity" if not table.on_demand else "the on-demand maximum"


def _choose_engine(size: int, options: ScanOptions, resources: Resources) -> tuple[Literal["local", "spark"], str]:
    engine: Engine = getattr(options, "engine", "local")
    if engine != "auto":
        return engine, "asked for"
    if resources.spark_parallelism is not None:
        return "spark", "a Spark session is running"
    if size < SMALL_TABLE_BYTES:
        return "local", "below 256 MiB, where starting Spark takes longer than the scan"
    if not resources.can_start_spark:
        return "local", "pyspark is not installed; pip install 'ddbio[spark]' to spread 256 MiB or more over a cluster"
    return "spark", "256 MiB or more"


def _lanes(budget: float | None, parallelism: int, sample: Sample, options: ScanOptions) -> int:
    max_lanes = LANES_PER_CORE * parallelism
    if budget is None:
        return max_lanes
    page_units = read_units(PAGE_BYTES, options.consistent)
    limit = page_limit(budget, sample.item_bytes, options.consistent)
    if limit is not None:
        page_units = min(page_units, max(0.5, read_units(math.ceil(limit * sample.item_bytes), options.consistent)))
    # One lane more than is needed to use the budget, so that a slow answer leaves nothing idle.
    return max(2, min(max_lanes, math.ceil(budget * PAGE_LATENCY_SECONDS / page_units) + 1))


def _segments(size: int, budget: float | None, lanes: int, sample: Sample) -> int:
    if sample.complete:
        return 1
    if size < SMALL_TABLE_BYTES:
        return min(4, math.ceil(size / SMALL_SEGMENT_BYTES)) if size else 4
    count = max(size / SEGMENT_BYTES, 4 * lanes, (budget or 0) / SEGMENT_UNITS_PER_SECOND)
    return min(MAX_SEGMENTS, math.ceil(count))
