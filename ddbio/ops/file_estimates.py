"""Estimate jobs that read files and write others: they use no capacity, and are limited by the processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.core.estimate import Estimate, Figures, compute_parts, s3_requests
from ddbio.core.job_limits import check_estimate
from ddbio.core.speeds import PROCESSORS
from ddbio.engine import available_cores, running_spark_parallelism
from ddbio.ops.prices import prices_of
from ddbio.ops.user_files import machine_speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddbio.core.estimate import Part
    from ddbio.core.speeds import Speeds
    from ddbio.options import PriceOptions


def file_estimate(
    options: PriceOptions,
    parts: Iterable[Part],
    size_bytes: int,
    work_bytes: float,
    speed: Callable[[Speeds], float],
) -> Estimate:
    """Return what a job on files takes and costs.

    Parameters
    ----------
    size_bytes
        What is read, as stored.
    work_bytes, speed
        What goes through the processors, and how much of it a core does in a second.

    Raises
    ------
    LimitError
        If it is above a limit.
    """
    known = list(parts)
    seconds = work_bytes / (speed(machine_speeds()) * (running_spark_parallelism() or available_cores()))
    cost = prices_of(options.region, options.prices).cost([*known, *compute_parts(options.compute, seconds)])
    made = Estimate(0.0, s3_requests(known), size_bytes, seconds, PROCESSORS, cost)
    check_estimate(options, made)
    return made


def file_figures(options: PriceOptions, parts: Iterable[Part], size_bytes: int, seconds: float) -> Figures:
    """Return what a job on files took."""
    cost = prices_of(options.region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    return Figures(0.0, seconds, size_bytes, cost.usd)
