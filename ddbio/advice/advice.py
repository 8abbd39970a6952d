"""Comparison of methods to keep a copy of a table, and the break-even points between them."""

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
"""Seconds of a month as AWS bills it."""

# Assumptions where AWS publishes no figure. Each advice lists them.
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
"""Assumptions of costs and times, in addition to prices."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport_Requesting.html: 15 min to 24 h, and
# https://aws.amazon.com/dynamodb/pricing/on-demand/: 10 MB at least.
_MIN_WINDOW_SECONDS, _MAX_WINDOW_SECONDS = 15 * 60.0, 24 * 3600.0
_MIN_EXPORTED_BYTES = 10 * 1024**2
# https://docs.aws.amazon.com/glue/latest/dg/zero-etl-configuring-integration.html: 15 min to 6 days
_MIN_REFRESH_SECONDS, _MAX_REFRESH_SECONDS = 15 * 60.0, 6 * 86_400.0
# https://aws.amazon.com/firehose/pricing/ and https://aws.amazon.com/kinesis/data-streams/pricing/
_FIREHOSE_STEP, _KINESIS_STEP = 5 * 1024, 1024
# Once a day: between two merges a reader combines the copy with the later changes.
_MERGES = MONTH_SECONDS / 86_400.0
_CORES_OF_DPU, _GB_OF_CORE = 4, 4
_MIN_DPUS = 2
# Of Glue and EMR Serverless: https://aws.amazon.com/glue/pricing/
_MIN_BILLED_SECONDS = 60.0


@dataclass(frozen=True)
class Workload(Result):
    """Facts about a table, and the requirements for its copy.

    Attributes
    ----------
    changes_per_second
        Items that are put, updated or deleted, on average.
    freshness_seconds
        Maximum age of the copy: it is updated this often, and each update takes no longer than this.
    rcu_per_second
        Read units per second that a job may use.
    table_rcu
        The table's provisioned read units, or its on-demand maximum; None if it has neither.
    recovery
        Whether point-in-time recovery is already paid for.
    point_in_time
        Whether the copy has to show the table at one point in time.
    shards
        Shards of the table's stream: one per partition.
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
        """Return the number of changes in a month."""
        return self.changes_per_second * MONTH_SECONDS

    @property
    def scan_units(self) -> float:
        """Return the read units of one scan of the table."""
        segments = max(1, math.ceil(self.size_bytes / SEGMENT_BYTES))
        return scan_units(self.size_bytes, self.item_bytes, segments=segments)


@dataclass(frozen=True)
class Road(Result):
    """Costs, times and limits of one method to keep a copy.

    Attributes
    ----------
    possible
        Whether the method fulfils the requirements; otherwise ``why_not`` gives the reason.
    usd
        Monthly cost of the lines that have a price; ``unpriced`` names the others.
    usd_once
        Cost of the first copy, if it is not part of the monthly cost.
    seconds
        Duration of one run; for a stream, the delay between a change and its file.
    least_freshness_seconds
        Shortest interval in which the method can update a copy.
    runs
        Runs per month; None for a stream.
    read_units, load
        Read units of the table per month, and the share of its read capacity that a run uses. The share is None if the
        table has no stated capacity.
    cannot
        Limitations of the method.
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
    """Duration of a run, and the shortest and longest interval between runs."""

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
_ONLY_NEW_CHANGES = "copy existing items: the first copy needs another method"
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
        _ONLY_NEW_CHANGES,
        "wait: what a consumer has not read within 24 hours is lost",
        _MERGE,
    ),
    "Kinesis Data Streams": (
        _ONLY_NEW_CHANGES,
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
METHOD_NAMES = tuple(_CANNOT)
"""The names of all methods."""
# Already paid for.
_PAID = {
    "own_cores": Price(0.0, 1.0, "core-hour", "", "", date.max),
    "provisioned_reads": Price(0.0, 1.0, "RCU", "", "", date.max),
    "recovery_that_is_on": Price(0.0, 1.0, "GB-month", "", "", date.max),
}


def all_methods(workload: Workload, book: PriceBook) -> tuple[Road, ...]:
    """Return all methods for a workload, in the order of ``METHOD_NAMES``."""
    return tuple(method_of(name, workload, book) for name in METHOD_NAMES)


def method_of(name: str, workload: Workload, book: PriceBook) -> Road:
    """Return one method for a workload."""
    method = _METHODS[name]
    timing = method.timing(workload)
    runs = timing.runs(workload.freshness_seconds)
    lines, once = _priced(method.rows(workload, runs), book), _priced(method.once(workload), book)
    why_not = _why_not(name, workload, timing)
    reads = sum(line.quantity for line in lines if line.what == "reads")
    rcu_per_second = workload.scan_units / timing.seconds if reads else 0.0
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
        load=rcu_per_second / workload.table_rcu if workload.table_rcu else None,
        lines=lines,
        lines_once=once,
        cannot=_CANNOT[name],
    )


def _priced(rows: Iterable[Part], book: PriceBook) -> tuple[CostLine, ...]:
    """Return the lines of a bill. Of several rows with the same purpose, the first one that has a price counts."""
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
    """Return the rows for writing a full copy as Parquet ``writes`` times a month."""
    stored = workload.size_bytes * STORED_RATIO
    return [("files written", "s3_writes", _objects(stored) * writes), ("copy in S3", "s3_storage", stored / GIB)]


def _own_hours(read_bytes: float) -> Part:
    """Return the row for the reads and writes of the user's machines."""
    return "hours of your cores", "own_cores", read_bytes / SCAN_SPEED / 3600


def _merge(workload: Workload, changed_bytes: float, merges: float) -> list[Part]:
    """Return the rows for merging changes into the copy ``merges`` times a month, each time by rewriting it."""
    return [_own_hours(changed_bytes + workload.size_bytes * merges), *_copy(workload, merges)]


def _first_scan(workload: Workload) -> list[Part]:
    return [_reads(workload, 1), _copy(workload, 1)[0]]


def _first_export(workload: Workload) -> list[Part]:
    return [("first export", "export", workload.size_gb)]


def _increments(workload: Workload, runs: float) -> Part:
    """Return the row of incremental exports. Each export is billed for at least its minimum size."""
    exported_gb = max(workload.changed_gb, runs * _MIN_EXPORTED_BYTES / GIB)
    return "incremental exports", "incremental_export", exported_gb


def _delivered(workload: Workload, changed_bytes: float) -> list[Part]:
    """Return the rows of files that Firehose writes when its buffer is full or old, merged daily."""
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
    """Return the timing of scans on machines that are started for each scan."""
    return _scan_timing(workload, START_SECONDS)


def _cores(workload: Workload) -> int:
    """Return the number of cores that keep up with the read budget."""
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
    # There are no more calls than changes: an empty shard causes no call.
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
    # A record contains the old and the new item.
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
    hours = REFRESH_DPUS * max(_MIN_BILLED_SECONDS * runs, seconds) / 3600
    return [
        _increments(workload, runs),
        _recovery(workload),
        _copy(workload, 0)[1],
        # AWS bills the resources of the target and publishes no size. Assume the price of a Glue ETL job with the same
        # work.
        ("compute that applies the changes", "zero_etl", workload.changed_gb),
        ("compute that applies the changes", "glue_dpu_hours", hours),
    ]


def _glue(workload: Workload, runs: float) -> list[Part]:
    # The additional worker is the driver.
    dpus = max(_MIN_DPUS, math.ceil(_cores(workload) / _CORES_OF_DPU) + 1)
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
    return max(_MIN_BILLED_SECONDS, _cluster_timing(workload).seconds)


class _Method(NamedTuple):
    """Timing of the method's runs, rows of a month with n runs, and rows of the first copy."""

    timing: Callable[[Workload], _Timing]
    rows: Callable[[Workload, float], list[Part]]
    once: Callable[[Workload], list[Part]] = lambda _: []


_STREAM = _Timing(BUFFER_SECONDS, BUFFER_SECONDS, is_stream=True)
_EXPORT = _Timing(EXPORT_SECONDS, EXPORT_SECONDS)
_WINDOW = _Timing(EXPORT_SECONDS, _MIN_WINDOW_SECONDS + EXPORT_SECONDS, _MAX_WINDOW_SECONDS)
_REFRESH = _Timing(_MIN_REFRESH_SECONDS, _MIN_REFRESH_SECONDS, _MAX_REFRESH_SECONDS)
_METHODS = {
    "scan": _Method(_scan_timing, _scan),
    "full exports": _Method(lambda _: _EXPORT, _full_exports),
    "incremental exports": _Method(lambda _: _WINDOW, _incremental_exports, _first_export),
    "streams + Firehose": _Method(lambda _: _STREAM, _streams, _first_scan),
    "Kinesis Data Streams": _Method(lambda _: _STREAM, _kinesis, _first_scan),
    "zero-ETL": _Method(lambda _: _REFRESH, _zero_etl, _first_export),
    "Glue": _Method(_cluster_timing, _glue),
    "EMR Serverless": _Method(_cluster_timing, _emr_serverless),
}


Variable = Literal["size_bytes", "changes_per_second"]

# Search ranges of break-even points.
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
# Smaller differences count as the same cost.
_SAME_USD = 1e-9


@dataclass(frozen=True)
class BreakEven(Result):
    """Size or rate of changes at which one method becomes cheaper than another, all else being equal.

    Attributes
    ----------
    by
        ``size_bytes`` or ``changes_per_second``.
    at
        The value at which both methods cost the same. None if one is cheaper from 1 MiB to 1 PiB, or from one change in
        1,000 s to a million changes per second.
    below, above
        The cheaper method below and above this value; the same method if there is no such value.
    """

    by: Variable
    at: float | None
    below: str
    above: str
    compared: tuple[str, str]


@dataclass(frozen=True)
class Advice(Result):
    """Comparison of all methods for a table, and a recommendation.

    Attributes
    ----------
    recommended
        The cheapest possible method that has a price for each line; None if there is none.
    why
        Reasons, in sentences.
    roads
        Possible methods first, ordered by monthly cost.
    largest_scan_bytes
        The maximum size at which a scan at this rate takes no longer than the requested freshness.
    assumptions
        Assumptions of costs and times, in addition to prices.
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
        """Return the method of a name."""
        return next(method for method in self.roads if method.name == name)


def advise(workload: Workload, book: PriceBook, region: str | None, today: date) -> Advice:
    """Return the advice for a workload."""
    candidates = sorted(
        all_methods(workload, book),
        key=lambda candidate: (not candidate.possible, bool(candidate.unpriced), candidate.usd),
    )
    best = next((candidate for candidate in candidates if candidate.possible and not candidate.unpriced), None)
    return Advice(
        workload=workload,
        recommended=None if best is None else best.name,
        why=_why(workload, best, candidates),
        roads=tuple(candidates),
        break_evens=tuple(_break_even(workload, book, *comparison) for comparison in _COMPARED),
        largest_scan_bytes=_largest_scan(workload, book),
        assumptions=ASSUMPTIONS,
        notes=price_notes(book, book.prices, region, today),
    )


def usd_by_changes(
    workload: Workload, book: PriceBook, names: Sequence[str]
) -> tuple[list[float], dict[str, list[float]]]:
    """Return rates of change around the workload's rate, and the monthly cost of each method at each rate."""
    middle = math.log10(max(workload.changes_per_second, 1.0))
    rates = [10 ** (middle + step / 8) for step in range(-16, 17)]
    return rates, {
        name: [method_of(name, replace(workload, changes_per_second=rate), book).usd for rate in rates]
        for name in names
    }


def _why(workload: Workload, best: Road | None, candidates: Sequence[Road]) -> tuple[str, ...]:
    refused = [f"{candidate.name}: {candidate.why_not}" for candidate in candidates if not candidate.possible]
    unpriced = [f"{candidate.name} has no price for {', '.join(candidate.unpriced)}" for candidate in candidates if candidate.possible and candidate.unpriced]  # fmt: skip # noqa: E501
    if best is None:
        return ("no method fulfils the requirements", *refused, *unpriced)
    reasons = [f"{best.name} costs the least, {best.usd:,.2f} USD a month"]
    others = [
        candidate for candidate in candidates if candidate.possible and not candidate.unpriced and candidate is not best
    ]
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
        reasons.append(f"{hours:,.1f} hours of your cores are not in the price")
    return (*reasons, *refused, *unpriced)


def _break_even(workload: Workload, book: PriceBook, by: Variable, first: str, second: str) -> BreakEven:
    def more(value: float) -> float:
        varied: dict[str, Any] = {by: value}
        changed = replace(workload, **varied)
        return method_of(first, changed, book).usd - method_of(second, changed, book).usd

    low, high = _RANGES[by]
    values = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
    differences = [more(value) for value in values]
    for (start, before), (end, after) in itertools.pairwise(zip(values, differences, strict=True)):
        if before * after < 0 and min(abs(before), abs(after)) > _SAME_USD:
            below, above = (first, second) if before < 0 else (second, first)
            return BreakEven(by, _crossing(more, start, end), below, above, (first, second))
    cheaper = first if sum(differences) <= 0 else second
    return BreakEven(by, None, cheaper, cheaper, (first, second))


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a monotonic function by bisection on a logarithmic scale."""
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
        return method_of("scan", replace(workload, size_bytes=size), book).seconds - workload.freshness_seconds

    return low if late(low) > 0 else high if late(high) < 0 else _crossing(late, low, high)


def price_notes(book: PriceBook, names: Iterable[str], region: str | None, today: date) -> tuple[str, ...]:
    """Return the notes about several prices, with a single note about all outdated prices."""
    notes = dict.fromkeys(note for name in sorted(names) for note in book.notes(name, region, today))
    old = [note for note in notes if note.startswith("the price of")]
    others = tuple(note for note in notes if note not in old)
    dates = sorted({note.split()[3] for note in old})
    if not dates:
        return others
    return (*others, f"prices of {', '.join(dates)} are older than 180 days: compare them with their pages")


def break_even_cells(point: BreakEven) -> tuple[str, str, str, str]:
    """Return the cells of a break-even point in a table."""
    of = " and ".join(point.compared)
    if point.at is None:
        return of, "nowhere", point.below, point.above
    at = f"{point.at / GIB:,.3g} GiB" if point.by == "size_bytes" else f"{point.at:,.3g} changes/s"
    return of, at, point.below, point.above


def usd_text(usd: float | None) -> str:
    """Return a sum as text, or "no price"."""
    return "no price" if usd is None else f"{usd:,.2f}"


def time_text(seconds: float) -> str:
    """Return a duration in the most readable unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.4g} {unit}"
    return f"{seconds:,.3g} s"
