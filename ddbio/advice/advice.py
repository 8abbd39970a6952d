"""Choose among the ways to keep a copy of a table, and compute where one becomes cheaper than another."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ddbio.advice.roads import ASSUMPTIONS, GIB, Road, Workload, road, roads
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import date

    from ddbio.jobs.prices import PriceBook

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
