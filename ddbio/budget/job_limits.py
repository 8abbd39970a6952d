"""What a job may consume at most: checked by its plan before it begins, and by its budget while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.errors import LimitError

if TYPE_CHECKING:
    from ddbio.jobs.estimate import Estimate, Figures
    from ddbio.jobs.prices import Cost
    from ddbio.options import LimitOptions, PriceOptions

STOP_RATIO = 1.1
"""A running job is stopped at this share of a limit: plans are estimates."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The units and seconds at which a running job is stopped."""

    units: float = math.inf
    seconds: float = math.inf

    def exceeded(self, units: float, seconds: float) -> str | None:
        """Return what a job exceeds, as text, or None."""
        if units > self.units:
            return f"{units:,.0f} units are consumed, more than {self.units:,.0f}"
        if seconds > self.seconds:
            return f"it has run for {seconds:,.1f} s, longer than {self.seconds:,.1f} s"
        return None

    def require_time(self, seconds: float) -> None:
        """Stop a job that has run for so long if that is too long.

        Raises
        ------
        LimitError
            Naming the seconds and the limit.
        """
        if exceeded := self.exceeded(0.0, seconds):
            raise LimitError(f"the job was stopped: {exceeded}")


def check_estimate(options: PriceOptions, estimate: Estimate) -> None:
    """Refuse a plan that is above a limit, of a job that is billed as a whole or does not count its units.

    Raises
    ------
    LimitError
        Naming the plan's figure, the limit and its option.
    """
    from ddbio.options import LimitOptions, TimeLimitOptions  # noqa: PLC0415 - budgets, which workers load, need none

    if isinstance(options, LimitOptions):
        _check(estimate.units, options.max_units, "max_units", "{:,.0f} capacity units")
    if isinstance(options, TimeLimitOptions):
        _check(estimate.seconds, options.max_seconds, "max_seconds", "{:,.1f} s")
    _check(estimate.cost.usd, options.max_usd, "max_usd", "${:,.4g}")


def check_actual(options: PriceOptions, actual: Figures) -> None:
    """Stop a job, before it publishes its files, that costs more than a tenth above its limit.

    Raises
    ------
    LimitError
        Naming what it costs and the limit.
    """
    if options.max_usd is not None and actual.usd is not None and actual.usd > STOP_RATIO * options.max_usd:
        raise LimitError(
            f"the job was stopped: it costs ${actual.usd:,.4g}, more than a tenth above max_usd {options.max_usd:g}; "
            "nothing was published"
        )


def _check(planned: float | None, most: float | None, name: str, form: str) -> None:
    if planned is not None and most is not None and planned > most:
        raise LimitError(
            f"the plan has {form.format(planned)}, more than {name} {most:g}: nothing was done; give a higher "
            "limit, or read or write less"
        )


def check_limits(
    options: LimitOptions,
    units: float | None,
    seconds: float | None,
    cost: Cost | None,
    *,
    unit_usd: float | None = None,
) -> JobLimits:
    """Refuse a plan that is above a limit; return when its run is stopped.

    Parameters
    ----------
    units, seconds, cost
        What is planned; None if that is unknown before the run.
    unit_usd
        What a unit costs, for a run whose cost is unknown before.

    Raises
    ------
    LimitError
        Naming the plan's figure, the limit and its option.
    """
    usd = None if cost is None else cost.usd
    _check(units, options.max_units, "max_units", "{:,.0f} capacity units")
    _check(seconds, options.max_seconds, "max_seconds", "{:,.1f} s")
    _check(usd, options.max_usd, "max_usd", "${:,.4g}")
    most_units = options.max_units or math.inf
    if options.max_usd is not None and (a_unit := usd / units if usd and units else unit_usd):
        most_units = min(most_units, options.max_usd / a_unit)
    return JobLimits(STOP_RATIO * most_units, STOP_RATIO * (options.max_seconds or math.inf))
