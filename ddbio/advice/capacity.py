"""Recommended capacity of a table, from CloudWatch metrics or from a file."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.advice import provisioning
from ddbio.advice.advice import GIB
from ddbio.advice.provisioning import Consumption, TableUse
from ddbio.aws.cloudwatch import METRICS, read_metrics
from ddbio.aws.control_plane import describe_table
from ddbio.charts.page import Bars, Lines, report_page, write_page
from ddbio.errors import NotFoundError, OptionError
from ddbio.jobs.clients import dynamodb_spec, metrics_spec
from ddbio.jobs.costs import book_of
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.advice.options import PlanCapacityOptions
    from ddbio.advice.provisioning import CapacityPlan, What
    from ddbio.aws.table_description import TableDescription

# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#metrics-retention
_RETAINED_DAYS = ((15.0, 60), (63.0, 300), (455.0, 3600))
_SIDES: tuple[tuple[What, str], ...] = (("reads", "Read"), ("writes", "Write"))
# Maximum number of points on the axis of a chart.
_MAX_POINTS = 400
_SERIES = ("read", "write", "provisioned_read", "provisioned_write", "throttled_reads", "throttled_writes")


def plan_capacity(options: PlanCapacityOptions) -> CapacityPlan:
    """Recommend mode, capacity and class of a table from the consumption of the table and its indexes.

    The consumption comes from CloudWatch or from a file, and is replayed against auto scaling. Nothing is changed, and
    no item is read.

    Raises
    ------
    NotFoundError
        If the table does not exist, or CloudWatch has no metrics of its consumption.
    OptionError
        If the file or the prices cannot be used.
    DdbioError
        If the table cannot be described, or a page cannot be written.
    """
    if options.csv is not None:
        use, region = _use_from_csv(options.csv, options), options.region
    else:
        table = describe_table(dynamodb_spec(options), options.table)
        use, region = _use_from_metrics(table, options), table.region
    plan = provisioning.plan_capacity(
        use, book_of(region, options.prices), options.target, region, datetime.now(UTC).date()
    )
    if options.html is not None or options.png is not None:
        charts = [_lines(part, use.period_seconds) for part in use.parts if part.consumed.any()]
        labels = [f"{choice.mode}, {choice.table_class}" for choice in plan.choices]
        bars = Bars("USD a month", "USD", labels, [choice.usd for choice in plan.choices])
        page = report_page(f"Capacity of {plan.table}", plan, [*charts, bars])
        write_page(page, options.html, options.png)
    return plan


def _lines(part: Consumption, period_seconds: float) -> Lines:
    """Return the chart of consumed and provisioned units. Many periods are reduced to the maximum of neighbours."""
    step = -(-len(part.consumed) // _MAX_POINTS)
    series = [("consumed", part.consumed)] + ([] if part.provisioned is None else [("provisioned", part.provisioned)])
    starts = np.arange(0, len(part.consumed), step)
    of = "" if part.name == "table" else f" of index {part.name}"
    return Lines(
        title=f"{part.what.capitalize()}{of}, consumed{' and provisioned' if part.provisioned is not None else ''}",
        over="days",
        unit="units a second",
        positions=(starts * period_seconds / 86_400).tolist(),
        lines={name: np.maximum.reduceat(values, starts).tolist() for name, values in series},
    )


def _use_from_metrics(table: TableDescription, options: PlanCapacityOptions) -> TableUse:
    """Return the consumption of a table and its global indexes from CloudWatch."""
    period = next(seconds for days, seconds in _RETAINED_DAYS if options.days <= days)
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    end -= timedelta(seconds=end.timestamp() % period)
    window = (end - timedelta(days=options.days), end)
    indexes = [index for index in table.indexes if index.is_global]
    spec, parts = metrics_spec(options), []
    for index in (None, *indexes):
        name = None if index is None else index.name
        counts = read_metrics(spec, table.name, name, METRICS, window, period)
        now = (table.rcu, table.wcu) if index is None else (index.rcu, index.wcu)
        for (what, side), stated in zip(_SIDES, now, strict=True):
            consumed = counts[f"Consumed{side}CapacityUnits"]
            parts.append(
                Consumption(
                    name="table" if name is None else name,
                    what=what,
                    consumed=_sums_by_period(consumed, window, period) / period,
                    provisioned=None if table.on_demand else _provisioned_by_period(
                        counts[f"Provisioned{side}CapacityUnits"], window, period, stated or 0.0
                    ),
                    throttled=sum(counts[f"{side}ThrottleEvents"].values()),
                )
            )  # fmt: skip
    if not any(part.consumed.any() for part in parts):
        raise NotFoundError(
            f"CloudWatch counted nothing that table {table.name!r} consumed in {options.days:g} days: give more days, "
            "or a file (csv)"
        )
    most = {} if not table.on_demand else {"reads": table.rcu, "writes": table.wcu}
    return TableUse(
        table=table.name,
        period_seconds=period,
        parts=tuple(parts),
        table_class="standard-ia" if table.infrequent_access else "standard",
        table_gb=(table.size_bytes + sum(index.size_bytes for index in table.indexes)) / GIB,
        most={what: rate for what, rate in most.items() if rate is not None},  # type: ignore[misc]
    )


def _sums_by_period(counts: Mapping[datetime, float], window: tuple[datetime, datetime], period: int) -> Any:
    """Return the sums of all periods, 0 for periods without a value."""
    values = np.zeros(max(1, math.ceil((window[1] - window[0]).total_seconds() / period)))
    for at, value in counts.items():
        index = int((at - window[0]).total_seconds() // period)
        if 0 <= index < len(values):
            values[index] += value
    return values


def _provisioned_by_period(
    counts: Mapping[datetime, float], window: tuple[datetime, datetime], period: int, now: float
) -> Any:
    """Return the provisioned units of each period. CloudWatch has a value every 5 min."""
    values = _sums_by_period(counts, window, period)
    measured = np.flatnonzero(values)
    if not len(measured):
        return np.full(len(values), now)
    indices = np.clip(np.searchsorted(measured, np.arange(len(values)), side="right") - 1, 0, None)
    return values[measured[indices]]


def _use_from_csv(path: str, options: PlanCapacityOptions) -> TableUse:
    """Return the consumption from a CSV file: one row per period, and per index if there are any."""
    try:
        with local_path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        return _use_of(rows, options)
    except OSError as error:
        raise OptionError(f"consumption {path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"consumption {path} is not as expected ({type(error).__name__}: {error}): give CSV with the columns time, "
            f"read and write, in units a second, and possibly index, {', '.join(_SERIES[2:])}"
        ) from None


def _use_of(rows: Iterable[Mapping[str, str]], options: PlanCapacityOptions) -> TableUse:
    by_name: defaultdict[str, dict[float, Mapping[str, str]]] = defaultdict(dict)
    for row in rows:
        by_name[row.get("index") or "table"][_seconds_of(row["time"])] = row
    if "table" not in by_name:
        raise ValueError("no rows of the table itself")
    times = sorted(by_name["table"])
    steps = [after - before for before, after in pairwise(times)]
    if not steps:
        raise ValueError("one row does not define a period")
    period = float(np.median(steps))
    count = round((times[-1] - times[0]) / period) + 1
    parts = []
    for name in sorted(by_name, key=lambda name: (name != "table", name)):
        series = {column: np.zeros(count) for column in _SERIES}
        stated = {column for row in by_name[name].values() for column in _SERIES if row.get(column)}
        for at, row in by_name[name].items():
            index = round((at - times[0]) / period)
            if 0 <= index < count:
                for column in stated:
                    series[column][index] = float(row[column] or 0)
        if not {"read", "write"} & stated:
            raise KeyError("read")
        for what, side in (("reads", "read"), ("writes", "write")):
            provisioned = f"provisioned_{side}"
            throttled = f"throttled_{what}"
            parts.append(
                Consumption(
                    name=name,
                    what=what,  # type: ignore[arg-type]
                    consumed=series[side],
                    provisioned=series[provisioned] if provisioned in stated else None,
                    throttled=float(series[throttled].sum()) if throttled in stated else None,
                )
            )
    return TableUse(options.table, period, tuple(parts), options.table_class or "standard", options.table_gb)


def _seconds_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
