"""Make the page of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.charts.drawing import Bars, Lines
from ddbio.charts.page import Page, Table

if TYPE_CHECKING:
    from ddbio.advice.simulation import SimulationReport


def simulation_page(report: SimulationReport, verb: str, rate: float) -> Page:
    """Return the page of a simulation: what was consumed and what ran over its course, and when each tenth was done."""
    hours = report.seconds / 3600
    places = tuple((number + 0.5) * hours / len(report.rates) for number in range(len(report.rates)))
    facts = [
        ("time", f"{report.seconds:,.0f} s, {report.ratio:.3f} of the ideal {report.ideal_seconds:,.0f} s"),
        ("units", f"{report.units:,.0f} in {report.requests:,} requests"),
        ("idle", f"{report.idle_ratio:.1%} of {rate:,.0f} units a second"),
        ("throttled", f"{report.throttles:,}"),
        ("lost", f"{report.lost_tasks:,} tasks, {report.repeated_units:,.0f} units repeated"),
    ]
    tenths = tuple(f"{number}0 %" for number in range(1, len(report.progress) + 1))
    return Page(
        f"A simulated {verb}",
        tuple(facts),
        (
            Lines(
                "Units a second", "hours", "units a second", places,
                (("consumed", report.rates), ("budget", (rate,) * len(places))),
            ),
            Lines("Tasks that run", "hours", "tasks", places, (("tasks", tuple(map(float, report.running))),)),
            Bars("When each tenth is done", "hours", tenths, tuple(round(at / 3600, 4) for at in report.progress)),
            Table("Throttled requests", ("limit", "requests"), tuple(
                (limit, f"{times:,}") for limit, times in report.throttled_by.items()
            )),
        ),
    )  # fmt: skip
