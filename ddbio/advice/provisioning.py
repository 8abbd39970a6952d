"""Choose mode, capacity and class of a table by what it has consumed, replayed against auto scaling."""

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
# Bounds of auto scaling are chosen so that no more than this share would have been throttled.
MOST_THROTTLED = 1e-4
# Provisioned capacity has to save this much: it may throttle, and somebody has to look after it.
_WORTH = 0.1
_FULL, _NEARLY_FULL = 1.0, 0.9
_LOWEST_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_RESERVED_UNITS = 100
_WHATS: tuple[What, ...] = ("reads", "writes")
_MODES: tuple[Mode, ...] = ("provisioned", "on-demand")
_STORAGE: dict[TableClass, str] = {"standard": "storage", "standard-ia": "ia_storage"}


@dataclass(frozen=True)
class Consumption:
    """Hold what a table or one of its indexes consumed, period by period.

    Attributes
    ----------
    name
        ``table``, or the name of an index.
    what
        Reads or writes.
    consumed
        Units a second, of each period.
    provisioned
        Units a second that it had, or None for on demand.
    throttled
        Throttled requests over all periods; None if nobody counted.
    """

    name: str
    what: What
    consumed: Floats
    provisioned: Floats | None = None
    throttled: float | None = None


@dataclass(frozen=True)
class TableUse:
    """Hold all consumptions of a table, over the same periods.

    Attributes
    ----------
    table_gb
        Size of table and indexes.
    most
        What an on-demand table may consume a second, reads and writes; its quota if nothing is said.
    """

    table: str
    period_seconds: float
    parts: tuple[Consumption, ...]
    table_class: TableClass = "standard"
    table_gb: float | None = None
    most: dict[What, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CapacityNeed(Result):
    """Say what one table or index needs of reads or of writes.

    Attributes
    ----------
    mean, p99, peak
        Units consumed a second: of all periods, of all but a hundredth, of the busiest.
    share
        Of what table and indexes consume together.
    provisioned
        What it has now; None on demand.
    headroom
        The share of what it has, or may have, that the busiest period left.
    full_periods
        Periods in which it consumed nine tenths of what it had, or more.
    throttled
        Requests that were throttled; None if nobody counted.
    least, most, target
        Bounds of auto scaling, and the share that it keeps consumed.
    scaled
        Mean capacity with these bounds.
    throttled_ratio
        The share of units that would have been throttled with these bounds.
    risk
        ``none``, ``low`` or ``high``.
    on_demand_usd, provisioned_usd
        A month in each mode, in the table's class.
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
    """Price a month of one mode and class, with its storage."""

    mode: Mode
    table_class: TableClass
    usd: float
    lines: tuple[CostLine, ...]


@dataclass(frozen=True)
class Reservation(Result):
    """Say how many provisioned units are worth reserving.

    Attributes
    ----------
    break_even
        A unit is worth reserving if it is provisioned for a larger share of all hours than this.
    units
        In steps of 100.
    usd_saved
        In a month, compared with the same units unreserved.
    """

    what: What
    years: int
    break_even: float
    units: int
    usd_upfront: float
    usd_saved: float


@dataclass(frozen=True)
class CapacityPlan(Result):
    """Recommend mode, capacity and class of a table.

    Attributes
    ----------
    days, period_seconds
        How long the consumption was looked at, and in what steps.
    mode, table_class
        What is recommended; ``mode_now`` and ``table_class_now`` are what the table has.
    usd, usd_now
        A month of each, storage included; what is provisioned now is priced as it is.
    why
        Reasons, in sentences.
    choices
        Both modes in both classes, the cheapest first.
    mode_break_even
        The share of provisioned capacity that has to be consumed for it to be the cheaper mode, reads and writes.
    class_break_even_gb
        The size from which Standard-IA is cheaper, at this consumption and mode; None if it always is.
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
    """Hold what auto scaling would have done: the capacity of each period, and the share of units it throttled."""

    capacity: Floats
    throttled_ratio: float


def replay(consumed: Floats, period_seconds: float, bounds: tuple[int, int], target: float) -> Replay:
    """Return what auto scaling does with a consumption.

    It scales out after two minutes above the target, and in after fifteen below it by 20 points; burst capacity of five
    minutes carries what exceeds the capacity; capacity can be lowered four times a day, and once an hour.
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
    """Return the capacity of which so many units are the target; what is left of rounding is no unit."""
    return max(1, math.ceil(units / target - 1e-9))


def _may_lower(lowered: Sequence[float], now: float) -> bool:
    today = [at for at in lowered[-30:] if at // _DAY_SECONDS == now // _DAY_SECONDS]
    return len(today) < _FREE_DECREASES or now - today[-1] >= _DECREASE_SECONDS


def plan_capacity(use: TableUse, book: PriceBook, target: float, region: str | None, today: date) -> CapacityPlan:
    """Return what a table's consumption asks for."""
    scaled = [_scale(part, use.period_seconds, target) for part in use.parts]
    needs = tuple(_need(part, use, book, found, target) for part, found in zip(use.parts, scaled, strict=True))
    choices = sorted(_choices(use, book, scaled), key=lambda each: each.usd)
    best = choices[0]
    if best.mode == "provisioned":
        other = next(each for each in choices if each.mode == "on-demand")
        best = other if other.usd <= best.usd * (1 + _WORTH) else best
    mode_now: Mode = "on-demand" if all(part.provisioned is None for part in use.parts) else "provisioned"
    reserved = _reserved(use, book, scaled) if best.mode == "provisioned" and best.table_class == "standard" else ()
    names = [_price_name(*each) for each in itertools.product(_MODES, _STORAGE, _WHATS)]
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
    """Return the cheapest bounds of auto scaling with which hardly anything is throttled, and what it does by them."""
    most = _wanted(float(part.consumed.max()), target)
    lowest = sorted({
        _wanted(float(quantile), target) for quantile in np.quantile(part.consumed, _LOWEST_QUANTILES)
    })  # fmt: skip
    tried = [((least, most), replay(part.consumed, period_seconds, (least, most), target)) for least in lowest]
    quiet = [each for each in tried if each[1].throttled_ratio <= MOST_THROTTLED] or tried[-1:]
    return min(quiet, key=lambda each: float(each[1].capacity.mean()))


def _need(
    part: Consumption, use: TableUse, book: PriceBook, scaled: tuple[tuple[int, int], Replay], target: float
) -> CapacityNeed:
    (least, most), found = scaled
    whole = sum(float(each.consumed.sum()) for each in use.parts if each.what == part.what)
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
        share=round(float(part.consumed.sum()) / whole, 4) if whole else 0.0,
        provisioned=now,
        headroom=round(headroom, 4),
        full_periods=full,
        throttled=part.throttled,
        least=least,
        most=most,
        target=target,
        scaled=round(float(found.capacity.mean()), 2),
        throttled_ratio=found.throttled_ratio,
        risk=risk,
        on_demand_usd=_line(book, "on-demand", use.table_class, part.what, float(part.consumed.mean())).usd or 0.0,
        provisioned_usd=_line(book, "provisioned", use.table_class, part.what, float(found.capacity.mean())).usd or 0.0,
    )


def _line(book: PriceBook, mode: Mode, table_class: TableClass, what: What, per_second: float) -> CostLine:
    """Return the line of a month of so many units a second, consumed or provisioned."""
    quantity = per_second * MONTH_HOURS * (3600 if mode == "on-demand" else 1)
    return book.line(what, _price_name(mode, table_class, what), quantity)


def _price_name(mode: Mode, table_class: TableClass, what: What) -> str:
    return unit_price(what, infrequent_access=table_class == "standard-ia", on_demand=mode == "on-demand")


def _choices(use: TableUse, book: PriceBook, scaled: Sequence[tuple[tuple[int, int], Replay]]) -> list[CapacityChoice]:
    choices = []
    for mode in _MODES:
        means = {"reads": 0.0, "writes": 0.0}
        for part, (_, found) in zip(use.parts, scaled, strict=True):
            means[part.what] += float((found.capacity if mode == "provisioned" else part.consumed).mean())
        for table_class, storage in _STORAGE.items():
            lines = [_line(book, mode, table_class, what, means[what]) for what in _WHATS]
            if use.table_gb is not None:
                lines.append(book.line("storage", storage, use.table_gb))
            choices.append(CapacityChoice(mode, table_class, sum(line.usd or 0.0 for line in lines), tuple(lines)))
    if use.table_gb is None:
        # Without its storage, the class is not in question.
        choices = [each for each in choices if each.table_class == use.table_class]
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
    """Return the size at which storage saves what the dearer units of Standard-IA cost more."""
    units = {
        each.table_class: sum(line.usd or 0.0 for line in each.lines if line.what != "storage")
        for each in choices
        if each.mode == mode
    }
    saved = (book.usd("storage", 1) or 0.0) - (book.usd("ia_storage", 1) or 0.0)
    if len(units) < len(_STORAGE) or saved <= 0:
        return None
    return max(0.0, round((units["standard-ia"] - units["standard"]) / saved, 2))


def _reserved(
    use: TableUse, book: PriceBook, scaled: Sequence[tuple[tuple[int, int], Replay]]
) -> tuple[Reservation, ...]:
    """Return what is worth reserving: the capacity that is provisioned for a larger share of hours than breaks even."""
    found = []
    for what in _WHATS:
        series = [each.capacity for part, (_, each) in zip(use.parts, scaled, strict=True) if part.what == what]
        if not series:
            continue
        capacity = np.sum(series, axis=0)
        hour = book.usd(_price_name("provisioned", "standard", what), 1)
        for years in (1, 3):
            upfront, hourly = (
                book.usd(f"reserved_{what.removesuffix('s')}_{each}_{years}y", 1) for each in ("upfront", "hours")
            )
            if hour is None or upfront is None or hourly is None:
                continue
            reserved_hour = upfront / (years * YEAR_HOURS) + hourly
            break_even = reserved_hour / hour
            level = float(np.quantile(capacity, max(0.0, 1 - break_even), method="lower"))
            units = int(level // _RESERVED_UNITS) * _RESERVED_UNITS
            covered = float(np.minimum(capacity, units).mean())
            found.append(
                Reservation(
                    what=what,
                    years=years,
                    break_even=round(break_even, 4),
                    units=units,
                    usd_upfront=units * upfront,
                    usd_saved=(covered * hour - units * reserved_hour) * MONTH_HOURS,
                )
            )
    return tuple(found)


def _why(best: CapacityChoice, choices: Sequence[CapacityChoice], needs: Sequence[CapacityNeed]) -> tuple[str, ...]:
    others = [each for each in choices if each.mode != best.mode]
    cheapest = min(others, key=lambda each: each.usd)
    reasons = [f"{best.mode} costs {best.usd:,.2f} USD a month, {cheapest.mode} {cheapest.usd:,.2f}"]
    if best.usd > cheapest.usd:
        reasons.append(f"less than {_WORTH:.0%} saved is not worth capacity that may throttle")
    classes = [each for each in choices if each.mode == best.mode and each.table_class != best.table_class]
    reasons += [f"in the class {best.table_class}; in {each.table_class} {each.usd:,.2f}" for each in classes]
    for each in needs:
        of = each.name if each.name == "table" else f"index {each.name}"
        if each.throttled:
            reasons.append(f"{each.throttled:,.0f} {each.what} of the {of} were throttled")
        elif each.risk != "none":
            reasons.append(f"{each.what} of the {of} left {each.headroom:.0%} of the capacity in the busiest period")
    return tuple(reasons)


def need_names() -> tuple[str, ...]:
    """Return the names of the columns of ``need_rows``."""
    return "of", "what", "share", "mean", "99 %", "peak", "now", "headroom", "throttled", "least", "most", "risk"


def need_rows(plan: CapacityPlan) -> list[tuple[str, ...]]:
    """Return what each of a table and its indexes needs, as text."""
    return [
        (
            each.name, each.what, f"{each.share:.0%}", f"{each.mean:,.4g}", f"{each.p99:,.4g}", f"{each.peak:,.4g}",
            "" if each.provisioned is None else f"{each.provisioned:,.4g}", f"{each.headroom:.0%}",
            "" if each.throttled is None else f"{each.throttled:,.0f}", f"{each.least:,}", f"{each.most:,}", each.risk,
        )
        for each in plan.needs
    ]  # fmt: skip
