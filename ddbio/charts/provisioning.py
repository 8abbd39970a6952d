"""Make the page of a plan of capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddbio.charts.drawing import Bars, Lines
from ddbio.charts.page import Page, Table

if TYPE_CHECKING:
    from ddbio.advice.provisioning import CapacityPlan, Consumption, TableUse

_MOST_PLACES = 400


def capacity_page(plan: CapacityPlan, use: TableUse) -> Page:
    """Return the page of a plan of capacity: consumed against provisioned, and what each mode and class costs."""
    facts = [
        ("recommended", f"{plan.mode}, class {plan.table_class}: {plan.usd:,.2f} USD a month"),
        ("now", f"{plan.mode_now}, class {plan.table_class_now}: {plan.usd_now:,.2f} USD a month"),
        *(("why", reason) for reason in plan.why),
        ("looked at", f"{plan.days:g} days in steps of {plan.period_seconds:g} s"),
        *(("note", note) for note in plan.notes),
    ]
    labels = tuple(f"{each.mode}, {each.table_class}" for each in plan.choices)
    lines = [_lines(part, use.period_seconds) for part in use.parts if part.consumed.any()]
    return Page(
        f"Capacity of {plan.table}",
        tuple(facts),
        (
            *lines,
            Bars("USD a month", "USD", labels, tuple(round(each.usd, 2) for each in plan.choices)),
            Table("What is needed", need_names(), tuple(need_rows(plan))),
            Table("Reserved", ("what", "years", "breaks even at", "units", "upfront", "saved a month"), tuple(
                (each.what, str(each.years), f"{each.break_even:.1%}", f"{each.units:,}", f"{each.usd_upfront:,.2f}",
                 f"{each.usd_saved:,.2f}")
                for each in plan.reserved
            )),
        ),
    )  # fmt: skip


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


def _lines(part: Consumption, period_seconds: float) -> Lines:
    """Return what was consumed, and what was provisioned; of many periods the highest of some neighbours."""
    step = -(-len(part.consumed) // _MOST_PLACES)
    series = [("consumed", part.consumed)] + ([] if part.provisioned is None else [("provisioned", part.provisioned)])
    starts = np.arange(0, len(part.consumed), step)
    of = "" if part.name == "table" else f" of index {part.name}"
    return Lines(
        title=f"{part.what.capitalize()}{of}, consumed{' and provisioned' if part.provisioned is not None else ''}",
        over="days",
        unit="units a second",
        places=tuple((starts * period_seconds / 86_400).tolist()),
        lines=tuple((name, tuple(np.maximum.reduceat(values, starts).tolist())) for name, values in series),
    )
