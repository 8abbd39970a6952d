"""The report of ``ddbio bench``, and how it is compared with the figures that come with the package."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.core.result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class BenchFigure(Result):
    """What was measured of one function or verb.

    Attributes
    ----------
    name
        What was done.
    value, unit
        How much of it a second of CPU did, or what ``unit`` says.
    spread
        The difference of the fastest and the slowest round, over the median.
    shipped, ratio
        The figure that comes with the package, or that of ``compare_with``, and how many times that is reached here;
        null if there is none.
    """

    name: str
    value: float
    unit: str
    spread: float
    shipped: float | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class BenchReport(Result):
    """How fast ddbio is on this machine, and against this endpoint.

    Attributes
    ----------
    version, at
        The version of ddbio, and when it was measured.
    machine
        Processor, cores, load, Python and libraries.
    figures
        What was measured.
    rcu_consumed, wcu_consumed
        Units that the service charged.
    shipped_machine
        What the figures that are compared with were measured on; null if there are none.
    seconds
        Wall time.
    engine, tasks
        What measured the functions: this process, or so many Spark tasks at the same time.
    workers
        The machines of those tasks, and how many ran on each.
    compare_with
        The file of figures that these are compared with; null if they are those of the package.
    """

    version: str
    at: str
    machine: dict[str, Any]
    figures: tuple[BenchFigure, ...]
    rcu_consumed: float
    wcu_consumed: float
    shipped_machine: dict[str, Any] | None
    seconds: float
    engine: str = "local"
    tasks: int = 1
    workers: tuple[dict[str, Any], ...] = ()
    compare_with: str | None = None


def middle_figures(measured: Sequence[Sequence[BenchFigure]]) -> list[BenchFigure]:
    """Return the medians of what several tasks measured at the same time, with how far they lie apart."""
    return [_middle(each) for each in zip(*measured, strict=True)]


def _middle(figures: Sequence[BenchFigure]) -> BenchFigure:
    values = [each.value for each in figures]
    middle = statistics.median(values)
    spread = max((max(values) - min(values)) / middle, *(each.spread for each in figures))
    return BenchFigure(figures[0].name, round(middle, 1), figures[0].unit, round(spread, 3))


def beside_shipped(figure: BenchFigure, shipped: Mapping[str, Any]) -> BenchFigure:
    """Return a figure with that of the same name and unit from a stored report beside it."""
    for each in shipped.get("figures", ()):
        if (each["name"], each["unit"]) == (figure.name, figure.unit):
            there = float(each["value"])
            ratio = round(figure.value / there, 3) if there else None
            return BenchFigure(figure.name, figure.value, figure.unit, figure.spread, there, ratio)
    return figure
