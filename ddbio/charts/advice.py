"""Make the page of an advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.advice.advice import usd_by_changes
from ddbio.charts.drawing import Bars, Lines
from ddbio.charts.page import Page, Table

if TYPE_CHECKING:
    from ddbio.advice.advice import Advice, BreakEven
    from ddbio.advice.roads import Road
    from ddbio.jobs.prices import PriceBook

_GIB = 1024**3
_DRAWN = 5


def advice_page(advice: Advice, book: PriceBook) -> Page:
    """Return the page of an advice: the roads by cost, how cost follows changes, lines, and what each cannot do."""
    asked = advice.workload
    facts = [
        ("recommended", advice.recommended or "none"),
        *(("why", reason) for reason in advice.why),
        ("table", f"{asked.size_bytes / _GIB:,.1f} GiB, {asked.changes_per_second:,g} changes a second"),
        ("brought up to date", f"every {time_text(asked.freshness_seconds)}"),
        *(("note", note) for note in advice.notes),
    ]
    names = [each.name for each in advice.roads]
    rates, usd = usd_by_changes(asked, book, names[:_DRAWN])
    return Page(
        f"Ways to keep a copy of {asked.table}",
        tuple(facts),
        (
            Bars("USD a month", "USD", tuple(names), tuple(round(each.usd, 2) for each in advice.roads)),
            Lines(
                "USD a month, by changes a second", "changes a second", "USD", tuple(rates),
                tuple((name, tuple(values)) for name, values in usd.items()), is_log=True,
            ),
            Table("Roads", ("road", "possible", "USD a month", "once", "a run takes", "reads a month", "load"), tuple(
                map(_cells, advice.roads)
            )),
            Table("Lines", ("road", "what", "quantity", "unit", "USD"), tuple(
                (each.name, line.what, f"{line.quantity:,.6g}", line.unit, usd_text(line.usd))
                for each in advice.roads
                for line in (*each.lines, *each.lines_once)
            )),
            Table("Break-even points", ("of", "at", "below", "above"), tuple(
                break_even_cells(each) for each in advice.break_evens
            )),
            Table("What each cannot do", ("road", "cannot"), tuple(
                (each.name, "; ".join(each.cannot)) for each in advice.roads
            )),
            Table("Assumed", ("what", "value"), tuple(
                (what, f"{value:,g}") for what, value in advice.assumptions.items()
            )),
        ),
    )  # fmt: skip


def break_even_cells(found: BreakEven) -> tuple[str, str, str, str]:
    """Return what a table says of a break-even point."""
    of = " and ".join(found.compared)
    if found.at is None:
        return of, "nowhere", found.below, found.above
    at = f"{found.at / _GIB:,.3g} GiB" if found.by == "size_bytes" else f"{found.at:,.3g} changes/s"
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


def _cells(road: Road) -> tuple[str, ...]:
    usd = f"{road.usd:,.2f}" + (f" and {', '.join(road.unpriced)}" if road.unpriced else "")
    load = "" if road.load is None else f"{road.load:.0%}"
    possible = "yes" if road.possible else f"no: {road.why_not}"
    return road.name, possible, usd, f"{road.usd_once:,.2f}", time_text(road.seconds), f"{road.read_units:,.0f}", load
