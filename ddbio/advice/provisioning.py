"""Choice of mode, capacity and class of a table: its consumption is replayed against auto scaling."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddbio.advice.advice import price_notes
from ddbio.jobs.prices import unit_price
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    import numpy.typing as npt

    from ddbio.jobs.prices import CostLine, PriceBook

    Floats = npt.NDArray[np.float64]

What = Literal["reads", "writes"]
Mode = Literal["provisioned", "on-demand"]
TableClass = Literal["standard", "standard-ia"]

MONTH_HOURS = 730.0
YEAR_HOURS = 8760.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html
_BURST_SECONDS = 300.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/AutoScaling.html
_OUT_SECONDS, _IN_SECONDS, _IN_BELOW = 120.0, 900.0, 0.2
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html#decrease-provisioned-throughput
_FREE_DECREASES, _DECREASE_SECONDS = 4, 3600.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html#default-limits-throughput
_TABLE_QUOTA = 40_000.0
_DAY_SECONDS = 86_400.0
# The bounds of auto scaling are chosen so that at most this ratio of units would have been throttled.
MAX_THROTTLED_RATIO = 1e-4
# Provisioned capacity has to save at least this ratio, because it may throttle and needs maintenance.
_MIN_SAVED_RATIO = 0.1
_FULL, _NEARLY_FULL = 1.0, 0.9
_LOWEST_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_RESERVED_UNITS = 100
_WHATS: tuple[What, ...] = ("reads", "writes")
_MODES: tuple[Mode, ...] = ("provisioned", "on-demand")
_STORAGE: dict[TableClass, str] = {"standard": "storage", "standard-ia": "ia_storage"}


@dataclass(frozen=True)
class Consumption:
    """Consumption of a table or one of its indexes per period.

    Attributes
    ----------
    name
        ``table``, or the name of an index.
    what
        Reads or writes.
    consumed
        Units per second in each period.
    provisioned
        Provisioned units per second, or None for on demand.
    throttled
        Throttled requests over all periods; None if there is no metric.
    """

    name: str
    what: What
    consumed: Floats
    provisioned: Floats | None = None
    throttled: float | None = None


@dataclass(frozen=True)
class TableUse:
    """All consumptions of a table over the same periods.

    Attributes
    ----------
    table_gb
        Size of the table and its indexes.
    most
        Maximum units per second of an on-demand table, reads and writes; its quota if not stated.
    """

    table: str
    period_seconds: float
    parts: tuple[Consumption, ...]
    table_class: TableClass = "standard"
    table_gb: float | None = None
    most: dict[What, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CapacityNeed(Result):
    """Required read or write capacity of a table or index.

    Attributes
    ----------
    mean, p99, peak
        Consumed units per second: mean, 99th percentile and maximum of all periods.
    share
        Share of the total consumption of the table and its indexes.
    provisioned
        Currently provisioned units; None on demand.
    headroom
        Share of the available capacity that was unused in the busiest period.
    full_periods
        Periods that consumed at least 90 % of the provisioned capacity.
    throttled
        Throttled requests; None if there is no metric.
    least, most, target
        Bounds of auto scaling, and its target utilization.
    scaled
        Mean capacity within these bounds.
    throttled_ratio
        Ratio of units that would have been throttled within these bounds.
    risk
        ``none``, ``low`` or ``high``.
    on_demand_usd, provisioned_usd
        Monthly cost in each mode, in the table's class.
    """

    name: str
    what: What
    mean: float
    p99: float
    peak: float
    share: float
    provisioned: float | None
    headroom: float
    full_periods: int
    throttled: float | None
    least: int
    most: int
    target: float
    scaled: float
    throttled_ratio: float
    risk: Literal["none", "low", "high"]
    on_demand_usd: float
    provisioned_usd: float


@dataclass(frozen=True)
class CapacityChoice(Result):
    """Monthly cost of a mode and class, including storage."""

    mode: Mode
    table_class: TableClass
    usd: float
    lines: tuple[CostLine, ...]


@dataclass(frozen=True)
class Reservation(Result):
    """Number of provisioned units that are worth reserving.

    Attributes
    ----------
    break_even
        A unit is worth reserving if it is provisioned for a larger share of all hours than this.
    units
        A multiple of 100.
    usd_saved
        Monthly saving, compared with the same units unreserved.
    """

    what: What
    years: int
    break_even: float
    units: int
    usd_upfront: float
    usd_saved: float


@dataclass(frozen=True)
class CapacityPlan(Result):
    """Recommended mode, capacity and class of a table.

    Attributes
    ----------
    days, period_seconds
        Length of the analyzed consumption, and of its periods.
    mode, table_class
        The recommendation; ``mode_now`` and ``table_class_now`` are the current settings of the table.
    usd, usd_now
        Monthly costs including storage. The current provisioning is priced as it is.
    why
        Reasons, in sentences.
    choices
        Both modes in both classes, the cheapest first.
    mode_break_even
        Utilization of provisioned capacity above which it is cheaper than on demand, for reads and writes.
    class_break_even_gb
        Size from which Standard-IA is cheaper with this consumption and mode; None if it is cheaper at any size.
    """

    table: str
    days: float
    period_seconds: float
    mode: Mode
    mode_now: Mode
    table_class: TableClass
    table_class_now: TableClass
    usd: float
    usd_now: float
    why: tuple[str, ...]
    needs: tuple[CapacityNeed, ...]
    choices: tuple[CapacityChoice, ...]
    reserved: tuple[Reservation, ...]
    mode_break_even: dict[What, float]
    class_break_even_gb: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """Result of simulated auto scaling: the capacity of each period, and the ratio of throttled units."""

    capacity: Floats
    throttled_ratio: float


def replay(consumed: Floats, period_seconds: float, bounds: tuple[int, int], target: float) -> Replay:
    """Simulate auto scaling with a consumption.

    It scales out after two minutes above the target, and in after 15 minutes at 20 points below it. Five minutes of
    burst capacity serve consumption above the capacity. Capacity can be lowered four times a day, and once an hour.
    """
    least, most = bounds
    capacity = float(min(most, max(least, _wanted(float(consumed[0]), target))))
    capacities = np.empty(len(consumed))
    above = below = burst = throttled = 0.0
    lowered: list[float] = []
    for number, units in enumerate(consumed.tolist()):
        capacities[number] = capacity
        spare = (capacity - units) * period_seconds
        if spare >= 0:
            burst = min(_BURST_SECONDS * capacity, burst + spare)
        else:
            carried = min(burst, -spare)
            burst -= carried
            throttled += -spare - carried
        wanted = float(min(most, max(least, _wanted(units, target))))
        above = above + period_seconds if units > target * capacity else 0.0
        below = below + period_seconds if units < (target - _IN_BELOW) * capacity else 0.0
        now = number * period_seconds
        if above >= _OUT_SECONDS or (above and period_seconds >= _OUT_SECONDS):
            capacity, above = max(capacity, wanted), 0.0
        elif below >= _IN_SECONDS and wanted < capacity and _may_lower(lowered, now):
            capacity, below = wanted, 0.0
            lowered.append(now)
    total = float(consumed.sum()) * period_seconds
    return Replay(capacities, throttled / total if total else 0.0)


def _wanted(units: float, target: float) -> int:
    """Return the capacity whose target utilization is ``units``, ignoring rounding errors."""
    return max(1, math.ceil(units / target - 1e-9))


def _may_lower(lowered: Sequence[float], now: float) -> bool:
    today = [at for at in lowered[-30:] if at // _DAY_SECONDS == now // _DAY_SECONDS]
    return len(today) < _FREE_DECREASES or now - today[-1] >= _DECREASE_SECONDS


def plan_capacity(use: TableUse, book: PriceBook, target: float, region: str | None, today: date) -> CapacityPlan:
    """Return the recommendation for a table's consumption."""
    scaled = [_scale(part, use.period_seconds, target) for part in use.parts]
    needs = tuple(_need(part, use, book, replayed, target) for part, replayed in zip(use.parts, scaled, strict=True))
    choices = sorted(_choices(use, book, scaled), key=lambda choice: choice.usd)
    best = choices[0]
    if best.mode == "provisioned":
        other = next(choice for choice in choices if choice.mode == "on-demand")
        best = other if other.usd <= best.usd * (1 + _MIN_SAVED_RATIO) else best
    mode_now: Mode = "on-demand" if all(part.provisioned is None for part in use.parts) else "provisioned"
    reserved = _reserved(use, book, scaled) if best.mode == "provisioned" and best.table_class == "standard" else ()
    names = [_price_name(*combination) for combination in itertools.product(_MODES, _STORAGE, _WHATS)]
    return CapacityPlan(
        table=use.table,
        days=round(len(use.parts[0].consumed) * use.period_seconds / _DAY_SECONDS, 3),
        period_seconds=use.period_seconds,
        mode=best.mode,
        mode_now=mode_now,
        table_class=best.table_class,
        table_class_now=use.table_class,
        usd=best.usd,
        usd_now=_usd_now(use, book, mode_now),
        why=_why(best, choices, needs),
        needs=needs,
        choices=tuple(choices),
        reserved=reserved,
        mode_break_even={what: _mode_break_even(book, use.table_class, what) for what in _WHATS},
        class_break_even_gb=_class_break_even(choices, best.mode, book),
        notes=price_notes(book, [*names, *_STORAGE.values()], region, today),
    )


def _scale(part: Consumption, period_seconds: float, target: float) -> tuple[tuple[int, int], Replay]:
    """Return the cheapest bounds of auto scaling that throttle hardly anything, and their simulation."""
    most = _wanted(float(part.consumed.max()), target)
    lowest = sorted({
        _wanted(float(quantile), target) for quantile in np.quantile(part.consumed, _LOWEST_QUANTILES)
    })  # fmt: skip
    tried = [((least, most), replay(part.consumed, period_seconds, (least, most), target)) for least in lowest]
    quiet = [trial for trial in tried if trial[1].throttled_ratio <= MAX_THROTTLED_RATIO] or tried[-1:]
    return min(quiet, key=lambda trial: float(trial[1].capacity.mean()))


def _need(
    part: Consumption, use: TableUse, book: PriceBook, scaled: tuple[tuple[int, int], Replay], target: float
) -> CapacityNeed:
    (least, most), replayed = scaled
    total = sum(float(other.consumed.sum()) for other in use.parts if other.what == part.what)
    peak, full = float(part.consumed.max()), 0
    if part.provisioned is None:
        now = None
        headroom = 1 - peak / use.most.get(part.what, _TABLE_QUOTA)
    else:
        now = float(part.provisioned[-1])
        ratio = part.consumed / np.maximum(part.provisioned, 1e-9)
        headroom, full = 1 - float(ratio.max()), int((ratio >= _NEARLY_FULL).sum())
    risk: Literal["none", "low", "high"] = "none"
    if part.throttled or headroom <= 1 - _FULL:
        risk = "high"
    elif full or headroom < 1 - _NEARLY_FULL:
        risk = "low"
    return CapacityNeed(
        name=part.name,
        what=part.what,
        mean=round(float(part.consumed.mean()), 3),
        p99=round(float(np.quantile(part.consumed, 0.99)), 3),
        peak=round(peak, 3),
        share=round(float(part.consumed.sum()) / total, 4) if total else 0.0,
        provisioned=now,
        headroom=round(headroom, 4),
        full_periods=full,
        throttled=part.throttled,
        least=least,
        most=most,
        target=target,
        scaled=round(float(replayed.capacity.mean()), 2),
        throttled_ratio=replayed.throttled_ratio,
        risk=risk,
        on_demand_usd=_line(book, "on-demand", use.table_class, part.what, float(part.consumed.mean())).usd or 0.0,
        provisioned_usd=_line(book, "provisioned", use.table_class, part.what, float(replayed.capacity.mean())).usd
        or 0.0,
    )


def _line(book: PriceBook, mode: Mode, table_class: TableClass, what: What, per_second: float) -> CostLine:
    """Return the monthly cost of ``per_second`` consumed or provisioned units per second."""
    quantity = per_second * MONTH_HOURS * (3600 if mode == "on-demand" else 1)
    return book.line(what, _price_name(mode, table_class, what), quantity)


def _price_name(mode: Mode, table_class: TableClass, what: What) -> str:
    return unit_price(what, infrequent_access=table_class == "standard-ia", on_demand=mode == "on-demand")


def _choices(use: TableUse, book: PriceBook, scaled: Sequence[tuple[tuple[int, int], Replay]]) -> list[CapacityChoice]:
    choices = []
    for mode in _MODES:
        means = {"reads": 0.0, "writes": 0.0}
        for part, (_, replayed) in zip(use.parts, scaled, strict=True):
            means[part.what] += float((replayed.capacity if mode == "provisioned" else part.consumed).mean())
        for table_class, storage in _STORAGE.items():
            lines = [_line(book, mode, table_class, what, means[what]) for what in _WHATS]
            if use.table_gb is not None:
                lines.append(book.line("storage", storage, use.table_gb))
            choices.append(CapacityChoice(mode, table_class, sum(line.usd or 0.0 for line in lines), tuple(lines)))
    if use.table_gb is None:
        # If the storage size is unknown, the class is not compared.
        choices = [choice for choice in choices if choice.table_class == use.table_class]
    return choices


def _usd_now(use: TableUse, book: PriceBook, mode: Mode) -> float:
    usd = 0.0 if use.table_gb is None else book.usd(_STORAGE[use.table_class], use.table_gb) or 0.0
    for part in use.parts:
        series = part.consumed if part.provisioned is None else part.provisioned
        usd += _line(book, mode, use.table_class, part.what, float(series.mean())).usd or 0.0
    return usd


def _mode_break_even(book: PriceBook, table_class: TableClass, what: What) -> float:
    hour = book.usd(_price_name("provisioned", table_class, what), 1) or 0.0
    units = book.usd(_price_name("on-demand", table_class, what), 3600) or 0.0
    return round(hour / units, 4) if units else 1.0


def _class_break_even(choices: Sequence[CapacityChoice], mode: Mode, book: PriceBook) -> float | None:
    """Return the size at which lower storage costs of Standard-IA offset its higher unit prices."""
    units = {
        choice.table_class: sum(line.usd or 0.0 for line in choice.lines if line.what != "storage")
        for choice in choices
        if choice.mode == mode
    }
    saved = (book.usd("storage", 1) or 0.0) - (book.usd("ia_storage", 1) or 0.0)
    if len(units) < len(_STORAGE) or saved <= 0:
        return None
    return max(0.0, round((units["standard-ia"] - units["standard"]) / saved, 2))


def _reserved(
    use: TableUse, book: PriceBook, scaled: Sequence[tuple[tuple[int, int], Replay]]
) -> tuple[Reservation, ...]:
    """Return the capacity that is provisioned for a larger share of hours than the break-even of a reservation."""
    reservations = []
    for what in _WHATS:
        series = [replayed.capacity for part, (_, replayed) in zip(use.parts, scaled, strict=True) if part.what == what]
        if not series:
            continue
        capacity = np.sum(series, axis=0)
        hour = book.usd(_price_name("provisioned", "standard", what), 1)
        for years in (1, 3):
            upfront, hourly = (
                book.usd(f"reserved_{what.removesuffix('s')}_{kind}_{years}y", 1) for kind in ("upfront", "hours")
            )
            if hour is None or upfront is None or hourly is None:
                continue
            reserved_hour = upfront / (years * YEAR_HOURS) + hourly
            break_even = reserved_hour / hour
            level = float(np.quantile(capacity, max(0.0, 1 - break_even), method="lower"))
            units = int(level // _RESERVED_UNITS) * _RESERVED_UNITS
            covered = float(np.minimum(capacity, units).mean())
            reservations.append(
                Reservation(
                    what=what,
                    years=years,
                    break_even=round(break_even, 4),
                    units=units,
                    usd_upfront=units * upfront,
                    usd_saved=(covered * hour - units * reserved_hour) * MONTH_HOURS,
                )
            )
    return tuple(reservations)


def _why(best: CapacityChoice, choices: Sequence[CapacityChoice], needs: Sequence[CapacityNeed]) -> tuple[str, ...]:
    others = [choice for choice in choices if choice.mode != best.mode]
    cheapest = min(others, key=lambda choice: choice.usd)
    reasons = [f"{best.mode} costs {best.usd:,.2f} USD a month, {cheapest.mode} {cheapest.usd:,.2f}"]
    if best.usd > cheapest.usd:
        reasons.append(f"less than {_MIN_SAVED_RATIO:.0%} saved is not worth capacity that may throttle")
    classes = [choice for choice in choices if choice.mode == best.mode and choice.table_class != best.table_class]
    reasons += [f"in the class {best.table_class}; in {choice.table_class} {choice.usd:,.2f}" for choice in classes]
    for need in needs:
        of = need.name if need.name == "table" else f"index {need.name}"
        if need.throttled:
            reasons.append(f"{need.throttled:,.0f} {need.what} of the {of} were throttled")
        elif need.risk != "none":
            reasons.append(f"{need.what} of the {of} left {need.headroom:.0%} of the capacity in the busiest period")
    return tuple(reasons)


def need_names() -> tuple[str, ...]:
    """Return the names of the columns of ``need_rows``."""
    return "of", "what", "share", "mean", "99 %", "peak", "now", "headroom", "throttled", "least", "most", "risk"


def need_rows(plan: CapacityPlan) -> list[tuple[str, ...]]:
    """Return the needs of a table and its indexes as text."""
    return [
        (
            need.name, need.what, f"{need.share:.0%}", f"{need.mean:,.4g}", f"{need.p99:,.4g}", f"{need.peak:,.4g}",
            "" if need.provisioned is None else f"{need.provisioned:,.4g}", f"{need.headroom:.0%}",
            "" if need.throttled is None else f"{need.throttled:,.0f}", f"{need.least:,}", f"{need.most:,}", need.risk,
        )
        for need in plan.needs
    ]  # fmt: skip
