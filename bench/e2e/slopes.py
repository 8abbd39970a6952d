"""Run verbs as processes over two sizes: what the additional rows, or files, of the larger take is the rate.

What is left of the smaller is the start. Steps are what cannot be left out, each done alone over the smaller by this
process, which is warm. docs/adr/0069 has why.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import pairs
from bench.e2e import processes, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.figures import Row

PART = 3
"""The smaller size is this share of the larger."""
LITTLE_SECONDS = 0.05
"""Steps that take less than this are no floor for a process."""


@dataclass(frozen=True)
class Job:
    """Say how a verb runs over data of one size.

    Attributes
    ----------
    count
        Rows or files that a run handles.
    command
        Returns the words of a run, from a folder that is its own and empty.
    prepare
        Fills that folder before, in no figure.
    steps
        What the verb cannot leave out.
    """

    count: int
    command: Callable[[Path], list[str]]
    prepare: Callable[[Path], object] = lambda _: None
    steps: Mapping[str, Callable[[], object]] = field(default_factory=dict)


class Sizes(NamedTuple):
    """Hold the jobs of one verb."""

    whole: Job
    part: Job


class Taken(NamedTuple):
    """Hold the seconds of the runs of a verb, round by round."""

    whole: list[float]
    part: list[float]


def paired(sizes: Sequence[Mapping[str, Job]], only: str = "") -> dict[str, Sizes]:
    """Return the jobs of each verb whose name holds a text, from those over the larger data and over the smaller."""
    whole, part = sizes
    return {verb: Sizes(job, part[verb]) for verb, job in whole.items() if only in verb}


def measure(verbs: Mapping[str, Sizes], home: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of each verb: verbs and steps take turns, and the first round is in no figure."""
    steps = {f"{verb}: {step}": way for verb, jobs in verbs.items() for step, way in jobs.part.steps.items()}
    alone: pairs.Seconds = {step: [] for step in steps}
    taken = {verb: Taken([], []) for verb in verbs}
    for number in range(rounds + 1):
        for verb in pairs.turned(list(verbs), number):
            for size, job, times in zip(Sizes._fields, verbs[verb], taken[verb], strict=True):
                seconds = run(job, home / f"{verb}-{size}-{number}".replace(" ", "-"))
                times.extend([seconds] * bool(number))
        for step, each in pairs.interleave(steps, 1, collecting=True).items():
            alone[step] += each * bool(number)
    return {
        verb: figures_of(jobs, taken[verb], {step: alone[f"{verb}: {step}"] for step in jobs.part.steps})
        for verb, jobs in verbs.items()
    }


def run(job: Job, folder: Path) -> float:
    """Return the seconds of a verb's process, once its folder is prepared."""
    folder.mkdir()
    job.prepare(folder)
    seconds, _ = processes.run([sys.executable, "-m", "ddbio", *job.command(folder)])
    shutil.rmtree(folder)
    return seconds


def figures_of(jobs: Sizes, taken: Taken, alone: pairs.Seconds) -> dict[str, Any]:
    """Return rate, start and share of steps of one verb."""
    more = jobs.whole.count - jobs.part.count
    # The rest of a tiny run may be less than the noise of two starts.
    seconds = max(statistics.median(a - b for a, b in zip(taken.whole, taken.part, strict=True)), 0.001)
    steps = {step: statistics.median(each) * more / jobs.part.count for step, each in alone.items()}
    figures = {
        "count": jobs.whole.count,
        "cpu_seconds": [round(each, 3) for each in taken.whole],
        "part_count": jobs.part.count,
        "part_cpu_seconds": [round(each, 3) for each in taken.part],
        "start_cpu_seconds": round(statistics.median(taken.part) - seconds * jobs.part.count / more, 3),
        "count_per_cpu_second": round(more / seconds),
    }
    if steps:
        figures |= {
            "steps_cpu_seconds": record.rounded(steps, 4),
            "share_of_steps": round(sum(steps.values()) / seconds, 3),
        }
    return figures


def least_share(row: Row) -> tuple[str, float]:
    """Return the verb of a row with the least share of its steps, and that share."""
    shares = {
        verb: each["share_of_steps"]
        for verb, each in row["figures"].items()
        if sum(each.get("steps_cpu_seconds", {}).values()) > LITTLE_SECONDS
    }
    least = min(shares, key=lambda verb: shares[verb])
    return least, shares[least]
