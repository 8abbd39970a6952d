"""Comparison of this tree with a commit: both are timed in turns, in separate processes, and the ratio is reported.

``./task bench compare REV`` runs the ``time_`` methods of the asv classes. Both sides use ``bench/`` of this tree and
their own ``ddbio/``. Seconds of a shared machine mean little; the ratio of consecutive runs means much, and its
confidence interval shows how much.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bench import discovery, serving
from bench.e2e.record import ROOT
from bench.gate.__main__ import checked_out
from bench.pairs import turned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROUNDS = 15
LEAST_SECONDS = 0.05
"""Shorter benchmarks are repeated within a turn."""

DEFAULT = (
    r"^(decode-Decode|encode-Encode|digest-DigestColumns|item_sizes-ItemSizes)-time_(ddbio|digest|wire|rows|json)\b"
)
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
HERE, THERE = "this tree", "before"


def main(words: list[str] | None = None) -> int:
    """Return 1 if a benchmark is significantly slower than at the commit."""
    made = argparse.ArgumentParser(prog="./task bench compare", description=__doc__)
    made.add_argument("rev", metavar="REV", help="the commit to compare with")
    made.add_argument("--bench", default=DEFAULT, metavar="REGEX", help="which benchmarks; the pure kernels by default")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each side")
    made.add_argument("--clock", choices=list(CLOCKS), default="cpu", help="CPU time of the process, or wall time")
    asked = made.parse_args(words)
    wanted = re.compile(asked.bench)
    names = [benchmark.name for benchmark in discovery.benchmarks(("time_",)) if wanted.search(benchmark.name)]
    if not names:
        made.error(f"no benchmark matches {asked.bench}")
    slower = 0
    with checked_out(asked.rev) as folder, ExitStack() as stack:
        build_library(folder)
        sides = {HERE: Side(ROOT), THERE: Side(folder)}
        for side in sides.values():
            stack.callback(side.close)
        sys.stdout.write(
            f"{'times as long as ' + asked.rev[:12]:60} ratio   95 % of its median   {asked.clock} seconds\n"
        )
        for name in names:
            line, is_slower = compare(name, sides, asked.rounds, asked.clock)
            slower += is_slower
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 1 if slower else 0


def build_library(folder: Path) -> None:
    """Compile the loops of a tree for this processor, unless numba compiles them in the process as in older trees."""
    if (folder / "ddbio/items/kernel/compiler").is_dir():
        command = [sys.executable, "-m", "ddbio.items.kernel.compiler"]
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)


def compare(name: str, sides: dict[str, Side], rounds: int, clock: str) -> tuple[str, bool]:
    """Return the line of a benchmark, and whether it is slower now."""
    for side in sides.values():
        failed = side.ask({"prepare": name, "clock": clock})
        if isinstance(failed, str):
            return f"{name:60} {failed}", False
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in turned(list(sides), number):
            seconds[side].append(sides[side].ask({"run": True}))
    ratios = sorted(now / before for now, before in zip(seconds[HERE], seconds[THERE], strict=True))
    low, high = interval(ratios)
    verdict = "slower" if low > 1 else "faster" if high < 1 else ""
    shown = f"{statistics.median(ratios):6.3f}   {low:.3f} to {high:.3f} {verdict:8}"
    return f"{name:60} {shown}   {statistics.median(seconds[HERE]):.4f}", low > 1


def interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median for any distribution; the extremes of few values."""
    # The number of values below the median is binomial: https://en.wikipedia.org/wiki/Order_statistic
    count = len(ordered)
    outside, rank = 0.0, 0
    while rank < count // 2:
        outside += math.comb(count, rank) / 2**count
        if 2 * outside > 0.05:
            break
        rank += 1
    rank = max(0, rank - 1)
    return ordered[rank], ordered[count - 1 - rank]


class Side:
    """Process that runs benchmarks with the package of one tree."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join(map(str, dict.fromkeys([folder, ROOT])))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.compare", "--side"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """Return the response of the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that runs the benchmarks ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Runner:
    """Executor of the benchmarks requested on stdin."""

    def __init__(self) -> None:
        self._known = {benchmark.name: benchmark for benchmark in discovery.benchmarks(("time_",))}

    def prepare(self, name: str, clock: str) -> str | None:
        """Set a benchmark up and determine its repetitions per turn. Return the error if that failed."""
        chosen = self._known[name]
        self._clock, self._parameters = CLOCKS[clock], chosen.parameters
        try:
            self._subject = chosen.subject()
            self._subject.setup(*chosen.parameters)
            self._method = getattr(self._subject, chosen.method)
            self._method(*chosen.parameters)
            self._times = 1
            took = self.run()
        except Exception as error:  # noqa: BLE001 - the other side may have it
            return f"does not run: {type(error).__name__}: {error}".partition("\n")[0]
        self._times = max(1, math.ceil(LEAST_SECONDS / max(took, 1e-6)))
        return None

    def run(self) -> float:
        """Return the seconds of one run, or the mean of several short ones."""
        gc.collect()
        gc.disable()
        began = self._clock()
        for _ in range(self._times):
            self._method(*self._parameters)
        took = self._clock() - began
        gc.enable()
        return took / self._times


def serve() -> int:
    """Answer requests, one line each, until the input ends."""
    runner = Runner()
    # Output of benchmarks must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        answer = runner.prepare(asked["prepare"], asked["clock"]) if "prepare" in asked else runner.run()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    serving.stop()
    return 0


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--side"] else main())
