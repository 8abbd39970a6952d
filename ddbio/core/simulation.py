"""What a simulation of a scan is made of and what it finds: segments of unequal size, partitions, and the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.result import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.Partitions.html
PARTITION_BYTES = 10 * 10**9
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
PARTITION_RCU = 3_000.0


@dataclass(frozen=True)
class SimulationReport(Result):
    """Report what a simulated scan would do.

    Attributes
    ----------
    seconds
        From the first request to the last answer.
    ideal_seconds
        The units divided by the budget.
    ratio
        ``seconds / ideal_seconds``.
    units, requests
        What the whole scan consumes and sends.
    throttles
        Requests that the table's partitions throttled.
    peak_ratio
        The most that was consumed within any ``10 × scale`` s, over what the budget allows in them; None for a
        shorter run.
    idle_ratio
        The share of the budget that nobody used before the end.
    segments, lanes, tasks, partitions
        As planned, and the physical partitions of the table.
    largest_task_ratio
        Bytes of the largest task over those of the mean task.
    progress
        Seconds after which 10 %, 20 %, … 100 % of the units were consumed.
    scale
        How many pages of the real table each simulated one stands for.
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


def segment_pages(pages: int, segments: int, skew: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the pages of each segment; they add up to ``pages``.

    Sizes follow a Pareto distribution of index ``1 / skew``: most are alike, a few are far larger. Each is drawn for
    itself, however many segments there are. In a real table one large collection of items stays in one segment.
    """
    sizes: npt.NDArray[np.float64] = (1.0 - rng.random(segments)) ** -skew
    sizes *= pages / sizes.sum()
    return sizes


def partition_count(table_bytes: float, rcu_per_second: float) -> int:
    """Return how many physical partitions a table of that size has that bears that rate."""
    return max(1, math.ceil(table_bytes / PARTITION_BYTES), math.ceil(rcu_per_second / PARTITION_RCU))
