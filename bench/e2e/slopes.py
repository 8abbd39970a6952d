"""Run verbs as processes with two sizes: the additional rows, or files, of the larger one determine the rate.

The remaining time of the smaller one is the start. Steps are the minimal work, each done alone for the smaller size by
this process, which is warm. docs/adr/0028 has the reasons.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bench import data, pairs
from bench.e2e import processes, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.figures import Row

_PlaceT = TypeVar("_PlaceT")

PART = 3
"""The smaller size is this share of the larger."""
LITTLE_SECONDS = 0.05
"""Shorter steps are no floor for a process."""


@dataclass(frozen=True)
class Job:
    """Job of a verb with data of one size.

    Attributes
    ----------
    count
        Rows or files of a run.
    command
        Returns the arguments of a run, for a separate empty folder.
    prepare
        Fills that folder before the run, without being measured.
    steps
        The minimal work of the verb.
    """

    count: int
    command: Callable[[Path], list[str]]
    prepare: Callable[[Path], object] = lambda _: None
    steps: Mapping[str, Callable[[], object]] = field(default_factory=dict)


class Sizes(NamedTuple):
    """Jobs of one verb."""

    large: Job
    part: Job


class Taken(NamedTuple):
    """Seconds of a verb's runs per round."""

    large: list[float]
    part: list[float]


def main(
    case: str,
    count: int,
    serving: Callable[[Path, tuple[int, int]], AbstractContextManager[list[_PlaceT]]],
    verbs: Callable[[_PlaceT], dict[str, Job]],
) -> None:
    """Append a row with every verb of a case.

    Parameters
    ----------
    count
        Rows or files of the larger size, at scale 1.
    serving
        Creates data of both sizes, and serves them while its context is open.
    verbs
        Returns the jobs on one of them.
    """
    arguments = record.parser(case)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", default="", help="verbs whose name holds this; prints them, and keeps no row")
    asked = arguments.parse_args()
    large = data.scaled(count)
    with tempfile.TemporaryDirectory() as home, serving(Path(home), (large, large // PART)) as data_sets:
        chosen = paired([verbs(data_set) for data_set in data_sets], asked.only)
        figures = measure(chosen, Path(home), asked.rounds)
    record.append(case, asked, figures)


def paired(sizes: Sequence[Mapping[str, Job]], only: str = "") -> dict[str, Sizes]:
    """Return the jobs of each verb whose name contains a text, from those on the larger data and on the smaller."""
    large, part = sizes
    return {verb: Sizes(job, part[verb]) for verb, job in large.items() if only in verb}


def measure(verbs: Mapping[str, Sizes], home: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of each verb: verbs and steps take turns, without the first round."""
    steps = {f"{verb}: {step}": way for verb, jobs in verbs.items() for step, way in jobs.part.steps.items()}
    alone: pairs.Seconds = {step: [] for step in steps}
    taken = {verb: Taken([], []) for verb in verbs}
    for number in range(rounds + 1):
        for verb in pairs.turned(list(verbs), number):
            for size, job, times in zip(Sizes._fields, verbs[verb], taken[verb], strict=True):
                seconds = run(job, home / f"{verb}-{size}-{number}".replace(" ", "-"))
                times.extend([seconds] * bool(number))
        for step, step_times in pairs.interleave(steps, 1, collecting=True).items():
            alone[step] += step_times * bool(number)
    return {
        verb: figures_of(jobs, taken[verb], {step: alone[f"{verb}: {step}"] for step in jobs.part.steps})
        for verb, jobs in verbs.items()
    }


def run(job: Job, folder: Path) -> float:
    """Return the seconds of a verb's process after its folder is prepared."""
    folder.mkdir()
    job.prepare(folder)
    seconds, _ = processes.run([sys.executable, "-m", "ddbio", *job.command(folder)])
    shutil.rmtree(folder)
    return seconds


def figures_of(jobs: Sizes, taken: Taken, alone: pairs.Seconds) -> dict[str, Any]:
    """Return rate, start and share of steps of one verb."""
    more = jobs.large.count - jobs.part.count
    rounds = seconds_beyond(taken.large, taken.part)
    seconds = statistics.median(rounds)
    steps = {step: [time * more / jobs.part.count for time in times] for step, times in alone.items()}
    figures = {
        "count": jobs.large.count,
        "cpu_seconds": [round(run_seconds, 3) for run_seconds in taken.large],
        "part_count": jobs.part.count,
        "part_cpu_seconds": [round(run_seconds, 3) for run_seconds in taken.part],
        "start_cpu_seconds": round(statistics.median(taken.part) - seconds * jobs.part.count / more, 3),
        "count_per_cpu_second": round(more / seconds),
    }
    if steps:
        figures |= {
            "steps_cpu_seconds": record.rounded({step: statistics.median(times) for step, times in steps.items()}, 4),
            "share_of_steps": round(
                pairs.median_ratio([sum(times) for times in zip(*steps.values(), strict=True)], rounds), 3
            ),
        }
    return figures


def seconds_beyond(large: list[float], part: list[float]) -> list[float]:
    """Return the seconds of the additional rows in each round, from consecutive runs."""
    # The difference of a tiny run may be less than the noise of two starts.
    return [max(a - b, 0.001) for a, b in zip(large, part, strict=True)]


def least_share(row: Row) -> tuple[str, float]:
    """Return the verb of a row with the least share of its steps, and that share."""
    shares = {
        verb: verb_figures["share_of_steps"]
        for verb, verb_figures in row["figures"].items()
        if sum(verb_figures.get("steps_cpu_seconds", {}).values()) > LITTLE_SECONDS
    }
    least = min(shares, key=lambda verb: shares[verb])
    return least, shares[least]
