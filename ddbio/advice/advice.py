"""Choose among the ways to keep a copy of a table, and compute where one becomes cheaper than another."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ddbio.items.capacity import SEGMENT_BYTES, scan_units
from ddbio.jobs.estimate import SCAN_SPEED
from ddbio.jobs.prices import Price, PriceBook, unit_price
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddbio.jobs.estimate import Part
    from ddbio.jobs.prices import CostLine

GIB = 1024**3
MONTH_SECONDS = 730 * 3600.0
"""A month as AWS bills it."""

# What is assumed, where the service says nothing; an advice shows all of them.
FILE_BYTES = 256 * 1024**2
STORED_RATIO = 0.3
JSON_RATIO = 1.5
EXPORTED_RATIO = 0.3
START_SECONDS = 60.0
EXPORT_SECONDS = 12 * 60.0
BUFFER_SECONDS, BUFFER_BYTES = 60.0, 128 * 1024**2
BATCH_SECONDS, BATCH_BYTES = 300.0, 6 * 1024**2
FUNCTION_GB, FUNCTION_BYTES_PER_SECOND = 0.5, 10 * 1024**2
REFRESH_DPUS = 2
ASSUMPTIONS = {
    "bytes a second and core, of reading and writing": SCAN_SPEED,
    "bytes of a file in S3": float(FILE_BYTES),
    "stored bytes of Parquet for each byte of the table": STORED_RATIO,
    "bytes of DynamoDB JSON for each byte of an item": JSON_RATIO,
    "stored bytes of an export for each byte of the table": EXPORTED_RATIO,
    "seconds until workers of Glue and EMR Serverless have started": START_SECONDS,
    "seconds of an export, at least": EXPORT_SECONDS,
    "bytes a second of a Lambda function of half a GB": float(FUNCTION_BYTES_PER_SECOND),
    "merges of a stream's changes into the copy, a day": 1.0,
    "DPUs of a refresh of zero-ETL, billed for a minute at the least": float(REFRESH_DPUS),
}
"""What costs and times are worked out with, beside prices."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport_Requesting.html: 15 min to 24 h, and
# https://aws.amazon.com/dynamodb/pricing/on-demand/: 10 MB at least.
_LEAST_WINDOW_SECONDS, _LONGEST_WINDOW_SECONDS = 15 * 60.0, 24 * 3600.0
_LEAST_EXPORTED_BYTES = 10 * 1024**2
# https://docs.aws.amazon.com/glue/latest/dg/zero-etl-configuring-integration.html: 15 min to 6 days
_LEAST_REFRESH_SECONDS, _LONGEST_REFRESH_SECONDS = 15 * 60.0, 6 * 86_400.0
# https://aws.amazon.com/firehose/pricing/ and https://aws.amazon.com/kinesis/data-streams/pricing/
_FIREHOSE_STEP, _KINESIS_STEP = 5 * 1024, 1024
# Once a day: between two merges a reader takes the copy and the changes after it.
_MERGES = MONTH_SECONDS / 86_400.0
_CORES_OF_DPU, _GB_OF_CORE = 4, 4
_LEAST_DPUS = 2
# Of Glue and EMR Serverless: https://aws.amazon.com/glue/pricing/
_LEAST_BILLED_SECONDS = 60.0


@dataclass(frozen=True)
class Workload(Result):
    """Say what is known of a table, and what is asked of its copy.

    Attributes
    ----------
    changes_per_second
        Items that are put, updated or deleted, on average.
    freshness_seconds
        The copy is brought up to date this often, and each time within this time.
    rcu_per_second
        Read units a second that a job may use.
    table_rcu
        The table's provisioned read units, or its on-demand maximum; None if it has neither.
    recovery
        Whether point-in-time recovery is paid for already.
    point_in_time
        Whether the copy has to show the table as it was at one time.
    shards
        Shards of its stream: one for each partition.
    """

    table: str
    size_bytes: float
    item_bytes: float
    changes_per_second: float
    freshness_seconds: float
    rcu_per_second: float
    on_demand: bool = True
    table_rcu: float | None = None
    infrequent_access: bool = False
    recovery: bool = False
    point_in_time: bool = False
    shards: int = 1

    @property
    def size_gb(self) -> float:
        """Return the size in the GB that DynamoDB bills."""
        return self.size_bytes / GIB

    @property
    def changed_gb(self) -> float:
        """Return the GB of items that change in a month, each change counted."""
        return self.changes_per_month * self.item_bytes / GIB

    @property
    def changes_per_month(self) -> float:
        """Return how many changes a month has."""
        return self.changes_per_second * MONTH_SECONDS

    @property
    def scan_units(self) -> float:
        """Return the read units of one whole scan."""
        segments = max(1, math.ceil(self.size_bytes / SEGMENT_BYTES))
        return scan_units(self.size_bytes, self.item_bytes, segments=segments)


@dataclass(frozen=True)
class Road(Result):
    """Describe one way to keep a copy.

    Attributes
    ----------
    possible
        Whether it gives what is asked; else ``why_not`` says what it does not.
    usd
        A month's lines that have a price, together; ``unpriced`` names the lines that have none.
    usd_once
        The first copy, where the month does not hold it.
    seconds
        Of one run; of a stream, from a change to its file.
    least_freshness_seconds
        The shortest interval in which it can bring a copy up to date.
    runs
        In a month; None for a stream.
    read_units, load
        Read units of the table in a month, and the share of its read capacity that a run uses while it lasts: None if
        the table states no capacity.
    cannot
        What it cannot do.
    """

    name: str
    possible: bool
    why_not: str
    usd: float
    usd_once: float
    unpriced: tuple[str, ...]
    seconds: float
    least_freshness_seconds: float
    runs: float | None
    read_units: float
    load: float | None
    lines: tuple[CostLine, ...]
    lines_once: tuple[CostLine, ...]
    cannot: tuple[str, ...]


@dataclass(frozen=True)
class _Timing:
    """How long a run takes, how often one can be, and how often one is."""

    seconds: float
    least: float
    longest: float = math.inf
    is_stream: bool = False

    def runs(self, freshness_seconds: float) -> float:
        return MONTH_SECONDS / min(max(freshness_seconds, self.least), self.longest)


_NOT_ONE_TIME = "show the table as it was at one time: items are read at different times"
_SCANS_CANNOT = (
    _NOT_ONE_TIME,
    "bring only what changed: every run reads the whole table",
    "show deleted items",
    "leave the table's read capacity alone",
)
_FROM_NOW_ON = "bring what is there already: the first copy comes by another road"
_MERGE = "apply its changes to the copy by itself: it brings files of changes, which a job has to merge"
_CANNOT = {
    "scan": _SCANS_CANNOT,
    "full exports": (
        "be faster than some 12 minutes, however small the table is",
        "bring only what changed: every run exports the whole table",
        "work without point-in-time recovery",
        "choose items or attributes, or write Parquet: DynamoDB JSON or Ion has to be read once more",
    ),
    "incremental exports": (
        "be fresher than its shortest window of 15 minutes and the minutes of an export",
        "show each of several changes of an item within a window: only the last",
        "work without point-in-time recovery, or reach back more than 35 days",
    ),
    "streams + Firehose": (
        _FROM_NOW_ON,
        "wait: what a consumer has not read within 24 hours is lost",
        _MERGE,
    ),
    "Kinesis Data Streams": (
        _FROM_NOW_ON,
        "promise order, or that a change comes only once",
        "pack changes: Firehose bills each record as a multiple of 5 KB",
        _MERGE,
    ),
    "zero-ETL": (
        "be fresher than 15 minutes",
        "keep numbers of more than 17 digits or sets apart from lists: numbers become doubles, NULL is left out",
        "work without point-in-time recovery",
    ),
    "Glue": _SCANS_CANNOT,
    "EMR Serverless": _SCANS_CANNOT,
}
ROADS = tuple(_CANNOT)
"""The names of all roads."""
# What is paid already.
_PAID = {
    "own_cores": Price(0.0, 1.0, "core-hour", "", "", date.max),
    "provisioned_reads": Price(0.0, 1.0, "RCU", "", "", date.max),
    "recovery_that_is_on": Price(0.0, 1.0, "GB-month", "", "", date.max),
}


def roads(workload: Workload, book: PriceBook) -> tuple[Road, ...]:
    """Return all roads for a workload, in the order of ``ROADS``."""
    return tuple(road(name, workload, book) for name in ROADS)


def road(name: str, workload: Workload, book: PriceBook) -> Road:
    """Return one road for a workload."""
    way = _WAYS[name]
    timing = way.timing(workload)
    runs = timing.runs(workload.freshness_seconds)
    lines, once = _priced(way.rows(workload, runs), book), _priced(way.once(workload), book)
    why_not = _why_not(name, workload, timing)
    reads = sum(line.quantity for line in lines if line.what == "reads")
    while_it_lasts = workload.scan_units / timing.seconds if reads else 0.0
    return Road(
        name=name,
        possible=not why_not,
        why_not=why_not,
        usd=_sum(lines),
        usd_once=_sum(once),
        unpriced=tuple(line.what for line in (*lines, *once) if line.usd is None),
        seconds=timing.seconds,
        least_freshness_seconds=timing.least,
        runs=None if timing.is_stream else runs,
        read_units=reads,
        load=while_it_lasts / workload.table_rcu if workload.table_rcu else None,
        lines=lines,
        lines_once=once,
        cannot=_CANNOT[name],
    )


def _priced(rows: Iterable[Part], book: PriceBook) -> tuple[CostLine, ...]:
    """Return the lines of a bill; of rows with one purpose, the first that has a price counts."""
    prices = PriceBook(book.region, {**book.prices, **_PAID})
    lines: dict[str, CostLine] = {}
    for row in rows:
        line = prices.line(*row)
        if line.what not in lines or lines[line.what].usd is None:
            lines[line.what] = line
    return tuple(lines.values())


def _why_not(name: str, workload: Workload, timing: _Timing) -> str:
    if workload.point_in_time and _NOT_ONE_TIME in _CANNOT[name]:
        return "it does not show the table as it was at one time"
    if timing.least > workload.freshness_seconds:
        return f"it brings a copy up to date every {timing.least:,.0f} s at best"
    return ""


def _sum(lines: Iterable[CostLine]) -> float:
    return sum(line.usd for line in lines if line.usd is not None)


def _reads(workload: Workload, scans: float) -> Part:
    name = unit_price("reads", infrequent_access=workload.infrequent_access)
    return "reads", name if workload.on_demand else "provisioned_reads", workload.scan_units * scans


def _recovery(workload: Workload) -> Part:
    name = "recovery_that_is_on" if workload.recovery else "recovery_storage"
    return "point-in-time recovery", name, workload.size_gb


def _objects(size_bytes: float) -> int:
    return max(1, math.ceil(size_bytes / FILE_BYTES))


def _copy(workload: Workload, writes: float) -> list[Part]:
    """Return the rows of a whole copy as Parquet that is written so often."""
    stored = workload.size_bytes * STORED_RATIO
    return [("files written", "s3_writes", _objects(stored) * writes), ("copy in S3", "s3_storage", stored / GIB)]


def _own_hours(read_bytes: float) -> Part:
    """Return the row of what machines of your own read and write."""
    return "hours of your own cores", "own_cores", read_bytes / SCAN_SPEED / 3600


def _merge(workload: Workload, changed_bytes: float, merges: float) -> list[Part]:
    """Return the rows of merging changes into the copy so often, by rewriting it."""
    return [_own_hours(changed_bytes + workload.size_bytes * merges), *_copy(workload, merges)]


def _first_scan(workload: Workload) -> list[Part]:
    return [_reads(workload, 1), _copy(workload, 1)[0]]


def _first_export(workload: Workload) -> list[Part]:
    return [("first export", "export", workload.size_gb)]


def _increments(workload: Workload, runs: float) -> Part:
    """Return the row of incremental exports, each billed by its least size or more."""
    exported_gb = max(workload.changed_gb, runs * _LEAST_EXPORTED_BYTES / GIB)
    return "incremental exports", "incremental_export", exported_gb


def _delivered(workload: Workload, changed_bytes: float) -> list[Part]:
    """Return the rows of files that Firehose writes when its buffer is full or old, merged into the copy each day."""
    buffer_seconds = min(max(workload.freshness_seconds, BUFFER_SECONDS), 900.0)
    files = max(min(workload.changes_per_month, MONTH_SECONDS / buffer_seconds), changed_bytes / BUFFER_BYTES)
    return [
        ("files of changes", "s3_writes", files),
        ("changes of a month in S3", "s3_storage", changed_bytes * EXPORTED_RATIO / JSON_RATIO / GIB),
        *_merge(workload, changed_bytes, _MERGES),
    ]


def _scan_timing(workload: Workload, start_seconds: float = 0.0) -> _Timing:
    by_budget = workload.scan_units / workload.rcu_per_second
    by_cores = workload.size_bytes / (SCAN_SPEED * _cores(workload))
    seconds = start_seconds + max(by_budget, by_cores)
    return _Timing(seconds, seconds)


def _cluster_timing(workload: Workload) -> _Timing:
    """Return the timing of scans by machines that are started for each."""
    return _scan_timing(workload, START_SECONDS)


def _cores(workload: Workload) -> int:
    """Return how many cores keep up with the budget."""
    by_budget = workload.scan_units / workload.rcu_per_second
    return max(_CORES_OF_DPU, math.ceil(workload.size_bytes / SCAN_SPEED / max(by_budget, 1.0)))


def _scan(workload: Workload, runs: float) -> list[Part]:
    return [_reads(workload, runs), *_merge(workload, 0.0, runs)]


def _full_exports(workload: Workload, runs: float) -> list[Part]:
    exported = workload.size_bytes * EXPORTED_RATIO
    return [
        ("exports", "export", workload.size_gb * runs),
        _recovery(workload),
        ("objects of exports", "s3_writes", _objects(exported) * runs),
        ("objects read", "s3_reads", _objects(exported) * runs),
        ("last export in S3", "s3_storage", exported / GIB),
        *_merge(workload, 0.0, runs),
    ]


def _incremental_exports(workload: Workload, runs: float) -> list[Part]:
    return [
        _increments(workload, runs),
        _recovery(workload),
        ("objects of exports", "s3_writes", 4 * runs),
        *_merge(workload, workload.changed_gb * GIB, runs),
    ]


def _streams(workload: Workload, _runs: float) -> list[Part]:
    changed = workload.changed_gb * GIB * JSON_RATIO
    batch_seconds = min(BATCH_SECONDS, max(1.0, workload.freshness_seconds / 2))
    # No more calls than changes: an empty shard calls nothing.
    calls = max(workload.shards * MONTH_SECONDS / batch_seconds, changed / BATCH_BYTES)
    calls = min(calls, workload.changes_per_month)
    return [
        # GetRecords of Lambda is free: https://aws.amazon.com/dynamodb/pricing/on-demand/
        ("Lambda calls", "lambda_requests", calls),
        ("Lambda time", "lambda_gb_seconds", FUNCTION_GB * (changed / FUNCTION_BYTES_PER_SECOND + 0.1 * calls)),
        ("Firehose, changes packed into large records", "firehose", changed / GIB),
        *_delivered(workload, changed),
    ]


def _kinesis(workload: Workload, _runs: float) -> list[Part]:
    # A record has the item before and after.
    record = 2 * JSON_RATIO * workload.item_bytes
    changes = workload.changes_per_month
    return [
        ("changes captured", "kinesis_changes", changes * max(1, math.ceil(workload.item_bytes / 1024))),
        ("stream", "kinesis_stream_hours", MONTH_SECONDS / 3600),
        ("into the stream", "kinesis_in", changes * _stepped(record, _KINESIS_STEP) / GIB),
        ("out of the stream", "kinesis_out", changes * record / GIB),
        ("Firehose, in steps of 5 KB", "firehose", changes * _stepped(record, _FIREHOSE_STEP) / GIB),
        *_delivered(workload, changes * record),
    ]


def _stepped(record_bytes: float, step: int) -> float:
    return step * max(1, math.ceil(record_bytes / step))


def _zero_etl(workload: Workload, runs: float) -> list[Part]:
    seconds = workload.changed_gb * GIB / (REFRESH_DPUS * _CORES_OF_DPU * SCAN_SPEED)
    hours = REFRESH_DPUS * max(_LEAST_BILLED_SECONDS * runs, seconds) / 3600
    return [
        _increments(workload, runs),
        _recovery(workload),
        _copy(workload, 0)[1],
        # AWS bills what the target uses, and says of no size what that is: as an ETL job in Glue that does the same.
        ("compute that applies the changes", "zero_etl", workload.changed_gb),
        ("compute that applies the changes", "glue_dpu_hours", hours),
    ]


def _glue(workload: Workload, runs: float) -> list[Part]:
    # One more worker is the driver.
    dpus = max(_LEAST_DPUS, math.ceil(_cores(workload) / _CORES_OF_DPU) + 1)
    hours = dpus * _billed_seconds(workload) / 3600 * runs
    return [_reads(workload, runs), ("Glue", "glue_dpu_hours", hours), *_copy(workload, runs)]


def _emr_serverless(workload: Workload, runs: float) -> list[Part]:
    hours = (_cores(workload) + _CORES_OF_DPU) * _billed_seconds(workload) / 3600 * runs
    return [
        _reads(workload, runs),
        ("EMR Serverless, processors", "emr_serverless_vcpu_hours", hours),
        ("EMR Serverless, memory", "emr_serverless_gb_hours", hours * _GB_OF_CORE),
        *_copy(workload, runs),
    ]


def _billed_seconds(workload: Workload) -> float:
    return max(_LEAST_BILLED_SECONDS, _cluster_timing(workload).seconds)


class _Way(NamedTuple):
    """How a road's runs are timed, the rows of a month with so many runs, and those of the first copy."""

    timing: Callable[[Workload], _Timing]
    rows: Callable[[Workload, float], list[Part]]
    once: Callable[[Workload], list[Part]] = lambda _: []


_STREAM = _Timing(BUFFER_SECONDS, BUFFER_SECONDS, is_stream=True)
_EXPORT = _Timing(EXPORT_SECONDS, EXPORT_SECONDS)
_WINDOW = _Timing(EXPORT_SECONDS, _LEAST_WINDOW_SECONDS + EXPORT_SECONDS, _LONGEST_WINDOW_SECONDS)
_REFRESH = _Timing(_LEAST_REFRESH_SECONDS, _LEAST_REFRESH_SECONDS, _LONGEST_REFRESH_SECONDS)
_WAYS = {
    "scan": _Way(_scan_timing, _scan),
    "full exports": _Way(lambda _: _EXPORT, _full_exports),
    "incremental exports": _Way(lambda _: _WINDOW, _incremental_exports, _first_export),
    "streams + Firehose": _Way(lambda _: _STREAM, _streams, _first_scan),
    "Kinesis Data Streams": _Way(lambda _: _STREAM, _kinesis, _first_scan),
    "zero-ETL": _Way(lambda _: _REFRESH, _zero_etl, _first_export),
    "Glue": _Way(_cluster_timing, _glue),
    "EMR Serverless": _Way(_cluster_timing, _emr_serverless),
}


Variable = Literal["size_bytes", "changes_per_second"]

# Where break-even points are looked for.
_RANGES: dict[Variable, tuple[float, float]] = {
    "size_bytes": (1024.0**2, 1024.0**5),
    "changes_per_second": (1e-3, 1e6),
}
_STEPS, _HALVINGS = 120, 60
_COMPARED: tuple[tuple[Variable, str, str], ...] = (
    ("size_bytes", "scan", "full exports"),
    ("size_bytes", "scan", "incremental exports"),
    ("size_bytes", "EMR Serverless", "full exports"),
    ("size_bytes", "EMR Serverless", "Glue"),
    ("changes_per_second", "incremental exports", "full exports"),
    ("changes_per_second", "incremental exports", "scan"),
    ("changes_per_second", "streams + Firehose", "incremental exports"),
    ("changes_per_second", "Kinesis Data Streams", "streams + Firehose"),
)
# Sums that differ by less cost the same.
_SAME_USD = 1e-9


@dataclass(frozen=True)
class BreakEven(Result):
    """Say where one road becomes cheaper than another, as size or changes grow and all else stays.

    Attributes
    ----------
    by
        ``size_bytes`` or ``changes_per_second``.
    at
        Where both cost the same; None if one is cheaper all the way from 1 MiB to 1 PiB, or from one change in 1,000 s
        to a million a second.
    below, above
        The cheaper road below and above; the same if there is no such point.
    """

    by: Variable
    at: float | None
    below: str
    above: str
    compared: tuple[str, str]


@dataclass(frozen=True)
class Advice(Result):
    """Compare all roads for a table, and recommend one.

    Attributes
    ----------
    recommended
        The cheapest road that is possible and has a price for each line; None if there is none.
    why
        Reasons, in sentences.
    roads
        The possible ones first, by what they cost a month.
    largest_scan_bytes
        The size up to which a scan at this rate ends within the asked freshness.
    assumptions
        What costs and times are worked out with, beside prices.
    """

    workload: Workload
    recommended: str | None
    why: tuple[str, ...]
    roads: tuple[Road, ...]
    break_evens: tuple[BreakEven, ...]
    largest_scan_bytes: float
    assumptions: dict[str, float]
    notes: tuple[str, ...] = ()

    def road(self, name: str) -> Road:
        """Return the road of a name."""
        return next(each for each in self.roads if each.name == name)


def advise(workload: Workload, book: PriceBook, region: str | None, today: date) -> Advice:
    """Return the advice for a workload."""
    found = sorted(roads(workload, book), key=lambda each: (not each.possible, bool(each.unpriced), each.usd))
    best = next((each for each in found if each.possible and not each.unpriced), None)
    return Advice(
        workload=workload,
        recommended=None if best is None else best.name,
        why=_why(workload, best, found),
        roads=tuple(found),
        break_evens=tuple(_break_even(workload, book, *each) for each in _COMPARED),
        largest_scan_bytes=_largest_scan(workload, book),
        assumptions=ASSUMPTIONS,
        notes=price_notes(book, book.prices, region, today),
    )


def usd_by_changes(
    workload: Workload, book: PriceBook, names: Sequence[str]
) -> tuple[list[float], dict[str, list[float]]]:
    """Return rates of change around the workload's, and what roads cost a month at each."""
    middle = math.log10(max(workload.changes_per_second, 1.0))
    rates = [10 ** (middle + step / 8) for step in range(-16, 17)]
    return rates, {
        name: [road(name, replace(workload, changes_per_second=rate), book).usd for rate in rates] for name in names
    }


def _why(workload: Workload, best: Road | None, found: Sequence[Road]) -> tuple[str, ...]:
    refused = [f"{each.name}: {each.why_not}" for each in found if not each.possible]
    unpriced = [f"{each.name} has no price for {', '.join(each.unpriced)}" for each in found if each.possible and each.unpriced]  # fmt: skip # noqa: E501
    if best is None:
        return ("no road gives what is asked", *refused, *unpriced)
    reasons = [f"{best.name} costs the least, {best.usd:,.2f} USD a month"]
    others = [each for each in found if each.possible and not each.unpriced and each is not best]
    if others:
        reasons[0] += f"; the next, {others[0].name}, costs {others[0].usd:,.2f}"
    if best.read_units and best.load is not None:
        hours = best.seconds * (best.runs or 0.0) / 3600
        reasons.append(f"it uses {best.load:.0%} of the table's read capacity for {hours:,.1f} hours a month")
        if not workload.on_demand:
            reasons.append("its reads cost nothing more only as long as that capacity is spare")
    elif not best.read_units:
        reasons.append("it uses none of the table's read capacity")
    hours = sum(line.quantity for line in best.lines if line.unit == "core-hour")
    if hours:
        reasons.append(f"{hours:,.1f} hours of your own cores are not in the price")
    return (*reasons, *refused, *unpriced)


def _break_even(workload: Workload, book: PriceBook, by: Variable, first: str, second: str) -> BreakEven:
    def more(value: float) -> float:
        varied: dict[str, Any] = {by: value}
        changed = replace(workload, **varied)
        return road(first, changed, book).usd - road(second, changed, book).usd

    low, high = _RANGES[by]
    places = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
    differences = [more(place) for place in places]
    for (start, before), (end, after) in itertools.pairwise(zip(places, differences, strict=True)):
        if before * after < 0 and min(abs(before), abs(after)) > _SAME_USD:
            below, above = (first, second) if before < 0 else (second, first)
            return BreakEven(by, _crossing(more, start, end), below, above, (first, second))
    cheaper = first if sum(differences) <= 0 else second
    return BreakEven(by, None, cheaper, cheaper, (first, second))


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function changes its sign, by halving on a scale of ratios."""
    sign = math.copysign(1, function(low))
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if math.copysign(1, function(middle)) == sign:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _largest_scan(workload: Workload, book: PriceBook) -> float:
    low, high = _RANGES["size_bytes"]

    def late(size: float) -> float:
        return road("scan", replace(workload, size_bytes=size), book).seconds - workload.freshness_seconds

    return low if late(low) > 0 else high if late(high) < 0 else _crossing(late, low, high)


def price_notes(book: PriceBook, names: Iterable[str], region: str | None, today: date) -> tuple[str, ...]:
    """Return what is to be said of several prices, with one note about all old ones."""
    notes = dict.fromkeys(note for name in sorted(names) for note in book.notes(name, region, today))
    old = [note for note in notes if note.startswith("the price of")]
    others = tuple(note for note in notes if note not in old)
    dates = sorted({note.split()[3] for note in old})
    if not dates:
        return others
    return (*others, f"prices of {', '.join(dates)} are older than 180 days: compare them with their pages")


def break_even_cells(found: BreakEven) -> tuple[str, str, str, str]:
    """Return what a table says of a break-even point."""
    of = " and ".join(found.compared)
    if found.at is None:
        return of, "nowhere", found.below, found.above
    at = f"{found.at / GIB:,.3g} GiB" if found.by == "size_bytes" else f"{found.at:,.3g} changes/s"
    return of, at, found.below, found.above


def usd_text(usd: float | None) -> str:
    """Return a sum, or that it is not known."""
    return "no price" if usd is None else f"{usd:,.2f}"


def time_text(seconds: float) -> str:
    """Return a time in the unit that reads best."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.4g} {unit}"
    return f"{seconds:,.3g} s"
