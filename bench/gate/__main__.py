"""Count the instructions of the pure kernels, and fail if they exceed those of a baseline by more than 1.5 %.

The baseline is the latest row of ``results/gate.jsonl`` with the same Python, numba, LLVM, numpy and pyarrow. The
kernels are compiled for processors with AVX2, and callgrind simulates the same one everywhere, so that the machine does
not matter. Without such a row, the commit where this tree branched off is also counted here. ``--baseline`` appends a
row; ``--against REV`` compares with any commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.e2e import record
from bench.gate import callgrind
from bench.gate.kernels import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASELINE = record.ROOT / "results" / "gate.jsonl"
THRESHOLD = 0.015
LEVEL = "v3"
"""The highest level of x86-64 that callgrind supports."""

Counts = dict[str, int]


def main(words: list[str] | None = None) -> int:
    """Return 1 if a kernel exceeds its limit of instructions."""
    asked = parser().parse_args(words)
    missing = callgrind.why_not()
    if missing:
        report_progress(f"nothing is counted: {missing}")
        return 0
    if asked.baseline and record.is_dirty():
        report_progress("the tree has changes, of which no baseline is kept: commit them")
        return 2
    runs = [count(record.ROOT) for _ in range(asked.repeat)]
    counts = {name: round(statistics.median(run[name] for run in runs)) for name in runs[0]}
    if asked.repeat > 1:
        report_progress(f"largest coefficient of variation of {asked.repeat} runs: {100 * variation(runs):.3f} %")
    if asked.baseline:
        figures: dict[str, Any] = {"instructions": counts, "runs": asked.repeat}
        if asked.repeat > 1:
            figures["variation_percent"] = round(100 * variation(runs), 4)
        row = {"case": "gate", "figures": figures, "compiled_with": versions(), **record.provenance()}
        with BASELINE.open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")
        report_progress(f"stored in {BASELINE.relative_to(record.ROOT)}")
        return 0
    named, before = base(asked.against)
    if not before:
        report_progress(f"nothing to compare with: {named}")
    sys.stdout.write("\n".join(table(counts, before, named)) + "\n")
    slower = exceeding(counts, before)
    for name in slower:
        report_progress(f"{name} takes {100 * (counts[name] / before[name] - 1):.1f} % more instructions than {named}")
    if slower:
        report_progress("fix it, or give the reason in a commit that renews the baseline: ./task bench gate --baseline")
    return 1 if slower else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the gate's flags."""
    made = argparse.ArgumentParser(prog="./task bench gate", description="Count the instructions of the pure kernels.")
    made.add_argument("--against", metavar="REV", help="compare with a commit, counted here, and not with the baseline")
    made.add_argument("--baseline", action="store_true", help="store the counts as a baseline, compare nothing")
    made.add_argument("--repeat", type=int, default=1, metavar="N", help="count N times, and report their variation")
    return made


def count(folder: Path) -> Counts:
    """Compile the kernels of the tree in a folder, and return the instructions of each."""
    # The caller's environment must not change a count.
    library = folder / "build" / "kernel" / "_loops_gate.so"
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(Path.home()),
        "PYTHONPATH": os.pathsep.join(map(str, dict.fromkeys([folder, record.ROOT]))),
        "PYTHONHASHSEED": "0",
    }
    # Python first looks for a module in the current folder.
    build = [sys.executable, "-m", "ddbio.items.kernel.compiler", "--level", LEVEL, "--if-changed", "--output", library]
    subprocess.run(build, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    environment["DDBIO_KERNEL"] = str(library)
    command = [sys.executable, "-m", "bench.gate.kernels"]
    counts = callgrind.instructions(command, environment, folder)
    return {name: counts[name] for name in NAMES}


def base(against: str | None) -> tuple[str, Counts]:
    """Return the base of the comparison, and its counts; none if there is nothing."""
    if against is None:
        row = newest_baseline(versions())
        if row is not None:
            return f"the baseline of {row['commit'][:7]}", row["figures"]["instructions"]
        report_progress(f"no row of {BASELINE.relative_to(record.ROOT)} is of these versions: {versions()}")
    rev = against or branch_point()
    if rev is None:
        return "this clone has no earlier commit", {}
    with checked_out(rev) as folder:
        return f"{rev[:12]}, counted here", count(folder)


def newest_baseline(wanted: Mapping[str, str], path: Path = BASELINE) -> dict[str, Any] | None:
    """Return the last row that was compiled with the current versions."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return next((row for row in map(json.loads, reversed(lines)) if row["compiled_with"] == wanted), None)


def versions() -> dict[str, str]:
    """Return the versions on which the counts depend, in addition to the tree."""
    libraries = ("llvmlite", "numba", "numpy", "pyarrow")
    found_versions = {"python": platform.python_version(), **{name: version(name) for name in libraries}}
    return {**found_versions, "libc": " ".join(platform.libc_ver()), "valgrind": callgrind.version()}


def branch_point() -> str | None:
    """Return the commit where this tree left the main branch, or the last but one; None if neither exists."""
    head = git("rev-parse", "HEAD")
    for words in (["merge-base", "HEAD", "origin/HEAD"], ["merge-base", "HEAD", "main"], ["rev-parse", "HEAD~1"]):
        commit = git(*words)
        if commit and commit != head:
            return commit
    return None


def exceeding(counts: Counts, before: Counts) -> list[str]:
    """Return the kernels that exceed the threshold of instructions. New ones have no threshold."""
    return [name for name in counts if name in before and counts[name] > before[name] * (1 + THRESHOLD)]


def table(counts: Counts, before: Counts, named: str) -> Iterator[str]:
    """Yield the lines of the counts and their comparison."""
    yield f"{'instructions':24}{'this tree':>14}{'before':>14}{'change':>10}   before: {named}"
    for name, number in counts.items():
        old = before.get(name)
        beside = f"{old:14,}{100 * (number / old - 1):+9.2f} %" if old else ""
        yield f"{name:24}{number:14,}{beside}"


def variation(runs: list[Counts]) -> float:
    """Return the largest coefficient of variation of any kernel."""
    return max(
        statistics.stdev(numbers) / statistics.mean(numbers)
        for numbers in ([run[name] for run in runs] for name in runs[0])
    )


@contextlib.contextmanager
def checked_out(rev: str) -> Iterator[Path]:
    """Check out the package of a commit in a folder while the context is open. The gate's code is that of this tree."""
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(
            ["git", "archive", rev, "ddbio"], cwd=record.ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=files, check=True)
        yield Path(folder)


def git(*words: str) -> str:
    """Return the output of git, empty if it fails."""
    done = subprocess.run(["git", *words], cwd=record.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def report_progress(text: str) -> None:
    """Report to the user, separate from the gate's output."""
    sys.stderr.write(f"gate: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
