"""Resource limits of a job: checked by its plan before it starts, and by its budget while it runs."""

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
"""A running job is stopped at this ratio of a limit, because plans are estimates."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Units and seconds at which a running job is stopped."""

    units: float = math.inf
    seconds: float = math.inf

    def exceeded(self, units: float, seconds: float) -> str | None:
        """Return the exceeded limit as text, or None."""
        if units > self.units:
            return f"{units:,.0f} units are consumed, more than {self.units:,.0f}"
        if seconds > self.seconds:
            return f"it has run for {seconds:,.1f} s, longer than {self.seconds:,.1f} s"
        return None

    def require_time(self, seconds: float) -> None:
        """Raise if the run time of a job exceeds the limit.

        Raises
        ------
        LimitError
            With the seconds and the limit.
        """
        if exceeded := self.exceeded(0.0, seconds):
            raise LimitError(f"the job was stopped: {exceeded}")


def check_estimate(options: PriceOptions, estimate: Estimate) -> None:
    """Raise if a plan is above a limit, for a job that is billed as a whole or does not count its units.

    Raises
    ------
    LimitError
        With the plan's figure, the limit and its option.
    """
    from ddbio.options import LimitOptions, TimeLimitOptions  # noqa: PLC0415 - workers load budgets, and need no options

    if isinstance(options, LimitOptions):
        _check(estimate.units, options.max_units, "max_units", "{:,.0f} capacity units")
    if isinstance(options, TimeLimitOptions):
        _check(estimate.seconds, options.max_seconds, "max_seconds", "{:,.1f} s")
    _check(estimate.cost.usd, options.max_usd, "max_usd", "${:,.4g}")


def check_actual(options: PriceOptions, actual: Figures) -> None:
    """Raise, before a job publishes its files, if it costs more than 10 % above its limit.

    Raises
    ------
    LimitError
        With the cost and the limit.
    """
    if options.max_usd is not None and actual.usd is not None and actual.usd > STOP_RATIO * options.max_usd:
        raise LimitError(
            f"the job was stopped: it costs ${actual.usd:,.4g}, more than a tenth above max_usd {options.max_usd:g}; "
            "nothing was published"
        )


def _check(planned: float | None, most: float | None, name: str, template: str) -> None:
    if planned is not None and most is not None and planned > most:
        raise LimitError(
            f"the plan has {template.format(planned)}, more than {name} {most:g}: nothing was done; give a higher "
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
    """Raise if a plan is above a limit. Return the limits at which its run is stopped.

    Parameters
    ----------
    units, seconds, cost
        Planned figures; None if unknown before the run.
    unit_usd
        Price of a unit, for a run whose cost is unknown before.

    Raises
    ------
    LimitError
        With the plan's figure, the limit and its option.
    """
    usd = None if cost is None else cost.usd
    _check(units, options.max_units, "max_units", "{:,.0f} capacity units")
    _check(seconds, options.max_seconds, "max_seconds", "{:,.1f} s")
    _check(usd, options.max_usd, "max_usd", "${:,.4g}")
    most_units = options.max_units or math.inf
    if options.max_usd is not None and (a_unit := usd / units if usd and units else unit_usd):
        most_units = min(most_units, options.max_usd / a_unit)
    return JobLimits(STOP_RATIO * most_units, STOP_RATIO * (options.max_seconds or math.inf))
