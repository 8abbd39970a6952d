"""What a simulation is made of and what it finds: unequal sizes, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.result import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RATES = 100
"""In how many equal parts of the run a report says what was consumed."""


@dataclass(frozen=True)
class SimulationReport(Result):
    """Report what a simulated scan or load would do.

    Attributes
    ----------
    seconds
        From the first request to the last answer.
    ideal_seconds
        The units divided by the budget.
    ratio
        ``seconds / ideal_seconds``.
    units, requests
        What the whole job consumes and sends, without what was repeated.
    throttles
        Requests that the table throttled; ``throttled_by`` counts them by the limit: ``key_range`` is a partition,
        ``table``, ``account``.
    peak_ratio
        The most that was consumed within any ``10 × scale`` s, over what the budget allows in them; None for a
        shorter run and for fixed shares.
    idle_ratio
        The share of the budget that nobody used before the end.
    segments, lanes, tasks, partitions
        As planned, and the physical partitions of the table; a load has no segments.
    largest_task_ratio
        Requests of the largest task over those of the mean task.
    progress
        Seconds after which 10 %, 20 %, … 100 % of the units were consumed.
    scale
        How many requests of the real table each simulated one stands for.
    splits
        How often partitions were split under load.
    lost_tasks, repeated_units
        Tasks that were lost with their executors, and what they had consumed and others consumed again.
    rates, running
        Units a second, and tasks that ran, in each hundredth of the run.
    """

    seconds: float
    ideal_seconds: float
    ratio: float
    units: float
    requests: int
    throttles: int
    peak_ratio: float | None
    idle_ratio: float
    segments: int
    lanes: int
    tasks: int
    partitions: int
    largest_task_ratio: float
    progress: tuple[float, ...]
    scale: int
    throttled_by: dict[str, int] = field(default_factory=dict)
    splits: int = 0
    lost_tasks: int = 0
    repeated_units: float = 0.0
    rates: tuple[float, ...] = ()
    running: tuple[int, ...] = ()


def unequal_sizes(total: float, count: int, skew: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return sizes that add up to a total.

    They follow a Pareto distribution of index ``1 / skew``: most are alike, a few are far larger. Each is drawn for
    itself, however many there are.
    """
    sizes: npt.NDArray[np.float64] = (1.0 - rng.random(count)) ** -skew
    sizes *= total / sizes.sum()
    return sizes
