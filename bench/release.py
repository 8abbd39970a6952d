"""Rows of a release with one command: ``./task bench rows``, on a quiet machine and a tree without changes.

The steps run in the order of ``STEPS``: the gate's baseline, the figures of the package, the matrix, then complete
jobs. A step that has a row of this commit is skipped, so that an interrupted run can be resumed. A step that would not
end within ``--minutes`` is left for the next run; ``--list`` shows it.

``--quick`` runs every step once on a fiftieth of its data instead, to check that all of them work. It stores no row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import report
from bench.e2e import matrix, record
from bench.gate.__main__ import BASELINE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Step:
    """Step: its name, the module and arguments of its row, and the minutes on two idle cores."""

    name: str
    minutes: float
    words: tuple[str, ...] = ()
    module: str = ""

    @property
    def command(self) -> list[str]:
        """The command of the step."""
        return [sys.executable, "-m", self.module or f"bench.e2e.{self.name}", *self.words]

    @property
    def quick_command(self) -> list[str]:
        """The command to run it once on little data, without storing a row."""
        dry = () if self.module else ("--dry-run",)
        return [*self.command[:3], *QUICK_WORDS.get(self.name, ("--rounds=1",)), *dry]


STEPS = (
    Step("gate", 2.5, ("--baseline", "--repeat", "3"), "bench.gate"),
    Step("matrix", 9.6, ("--quick",)),
    Step("scaling", 6),
    Step("series", 5.5),
    Step("write", 0.7),
    Step("compact", 0.8),
    Step("import_files", 0.4),
    Step("plan", 0.5),
    Step("simulate", 0.6),
    Step("layout", 1),
    Step("update", 1),
    Step("files", 4),
    Step("first_use", 1),
    Step("capture", 3.5),
    Step("lambda_start", 0.7),
)
"""The steps of every release, less than 40 minutes."""

LONG = (
    Step("public", 4),
    Step("verbs", 6),
    Step("log_verbs", 6),
    Step("folder_verbs", 4),
    Step("service_verbs", 3),
    Step("delivered", 0.5),
    Step("validate", 4),
    Step("spread", 2),
    Step("memory", 1.5),
    Step("latency", 2),
    Step("spark_files", 3),
    Step("spark_source", 1),
    Step("emr_scan", 5),
    Step("emr_write", 3),
    Step("encode", 2),
    Step("digest", 2.5),
    Step("functions", 1.5),
    Step("decode", 4),
    Step("export", 4),
    Step("scan", 6),
    Step("demo", 2),
    Step("budget", 9),
    Step("export_memory", 1),
    Step("real", 2),
    Step("lookup", 1.5),
    Step("spark_start", 7),
    Step("apply", 4),
    Step("base_load", 2),
    Step("apply_memory", 10),
    Step("versions", 3),
)
"""The additional steps of ``--all``."""


QUICK_SCALE, QUICK_MINUTES = "0.02", 10
QUICK_AT_ONCE = 2
"""Many steps wait for delayed answers, and a quick run stores no figure."""
QUICK_WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("export_memory", "first_use", "gate", "memory", "plan", "simulate", "spread"), ()),
    "apply": ("--rounds=1", "--rows=20000"),
    "apply_memory": ("--rows=200000", "--changes=2000"),
    "budget": ("--seconds=2", "--engines=local"),
    "capture": ("--rounds=1", "--items=2000", "--seconds=5"),
    "demo": ("--limit=2000",),
    "delivered": ("--rounds=1", "--records=2000"),
    "emr_scan": ("--rounds=1", "--warm-ups=0"),
    "emr_write": ("--rounds=1", "--warm-ups=0"),
    "export": ("--rounds=1", "--spark-rounds=1"),
    # A batch for each task, also with little data.
    "files": ("--rounds=1", "--repeats=4"),
    "functions": ("--rounds=1", "--query-rounds=1"),
    # Scaling runs every verb on Spark.
    "matrix": ("--quick", "--items=800", "--no-peers", "--only=threads"),
    "series": ("--seconds=1",),
    "spark_files": ("--rounds=1", "--warm-ups=0"),
    "spark_source": ("--rounds=1", "--warm-ups=0"),
    "spark_start": ("--rounds=1",),
    "update": ("--rounds=1", "--items=400"),
    "versions": ("--items=2000",),
    "write": ("--rounds=1", "--items=4000"),
}
"""Additional arguments of quick runs, where the scale of the data and one round are not enough."""


def main(words: list[str] | None = None) -> int:
    """Run the steps that have no row of this commit. Return the number of failed steps."""
    made = argparse.ArgumentParser(prog="./task bench rows", description=__doc__)
    made.add_argument("--all", action="store_true", help="the long cases too, some hour more")
    made.add_argument("--minutes", type=float, default=None, help="leave what would not end within so many")
    made.add_argument(
        "--quick", action="store_true", help="every step on little data, within ten minutes; keeps no row"
    )
    made.add_argument("--list", action="store_true", help="show the steps, their commands and what is done; run none")
    asked = made.parse_args(words)
    steps = every_step() if asked.all else STEPS
    if asked.list:
        sys.stdout.write("".join(f"{line}\n" for line in map(line_of, steps)))
        return 0
    if asked.quick:
        return len(run_quickly(every_step()))
    if record.is_dirty():
        made.error("the tree has changes, of which no row is kept: commit them")
    failed = run(steps, asked.minutes)
    report.main([])
    report_progress("commit results/ and what was renewed of it; the commit that the rows name must stay as it is")
    return len(failed)


def every_step() -> tuple[Step, ...]:
    """Return all steps. Cases that none of them names come last."""
    named = {step.name for step in STEPS + LONG}
    modules = sorted((record.ROOT / "bench/e2e").glob("*.py"))
    cases = [module.stem for module in modules if f'record.parser("{module.stem}")' in module.read_text("utf-8")]
    return (*STEPS, *LONG, *(Step(case, 2) for case in cases if case not in named))


def run(steps: tuple[Step, ...], minutes: float | None, started: Callable[[], float] = time.monotonic) -> list[str]:
    """Run the pending steps that fit into the time. Return the names of the failed ones."""
    began, failed = started(), []
    for step in steps:
        spent = (started() - began) / 60
        if is_done(step):
            report_progress(f"{step.name}: has a row of this commit")
        elif minutes is not None and spent + step.minutes > minutes:
            report_progress(
                f"{step.name}: left for the next run, it takes some {step.minutes:g} of {minutes - spent:.1f} minutes"
            )
        else:
            code = subprocess.run(step.command, cwd=record.ROOT, stdout=subprocess.DEVNULL, check=False).returncode
            took = (started() - began) / 60 - spent
            outcome = f"failed with {code}" if code else "done"
            report_progress(f"{step.name}: {outcome} after {took:.1f} minutes, some {step.minutes:g} were planned")
            failed += [step.name] if code else []
    return failed


def run_quickly(steps: tuple[Step, ...]) -> list[str]:
    """Run each step on little data, two at a time. Return the names of the failed ones."""
    began, used = time.monotonic(), cpu_seconds()
    with ThreadPoolExecutor(QUICK_AT_ONCE) as pool:
        failed = [step.name for step, works in zip(steps, pool.map(works_quickly, steps), strict=True) if not works]
    minutes, used = (time.monotonic() - began) / 60, (cpu_seconds() - used) / 60
    took = f"{minutes:.1f} minutes, {used:.1f} of processors"
    report_progress(f"{len(steps)} steps after {took}, of {QUICK_MINUTES} on two idle cores; {len(failed)} failed")
    return failed


def works_quickly(step: Step) -> bool:
    """Run a step on little data, report its duration, and return whether it succeeded."""
    began, environment = time.monotonic(), {**os.environ, "BENCH_SCALE": QUICK_SCALE}
    done = subprocess.run(
        step.quick_command, cwd=record.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    outcome = f"failed with {done.returncode}: {done.stderr[-2000:]}\n" if done.returncode else "done"
    report_progress(f"{step.name}: {outcome} after {time.monotonic() - began:.0f} s")
    return not done.returncode


def cpu_seconds() -> float:
    """Return the CPU seconds of all steps so far, including their child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_done(step: Step) -> bool:
    """Return whether a step has a row of this commit; for the matrix, whether each of its cases has."""
    commit = record.provenance()["commit"]
    if step.name == "matrix":
        return set(matrix.chosen(full=False)) <= matrix.done_before(matrix.QUICK_ITEMS)
    path = BASELINE if step.name == "gate" else record.RESULTS / f"{step.name}.jsonl"
    return any(row["commit"] == commit and row["scale"] == 1.0 for row in rows_of(path))


def rows_of(path: Path) -> list[dict[str, object]]:
    """Return the rows of a file, or none if it does not exist."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def line_of(step: Step) -> str:
    """Return a step as ``--list`` shows it."""
    state = "done" if is_done(step) else f"{step.minutes:g} min"
    return f"{step.name:14} {state:>8}  python {' '.join(step.command[1:])}"


def report_progress(text: str) -> None:
    """Report the progress to the user."""
    sys.stderr.write(f"rows: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
