"""Page of asv's results per benchmark and commit, which opens from the file system.

asv's own pages load scripts from other hosts and need a server: ``./task bench preview`` starts one.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.charts.page import Chart, Lines, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

HIDDEN = ("machine.json", "benchmarks.json")


@dataclass(frozen=True)
class Value:
    """Result of one benchmark with one combination of parameters at one commit."""

    benchmark: str
    parameters: str
    environment: str
    commit: str
    at: int
    value: float

    @property
    def line(self) -> str:
        """Label of the line in the chart of the benchmark."""
        return ", ".join(filter(None, [self.parameters, self.environment]))


def page(results: Path) -> Page:
    """Return the page of all results in a folder of asv."""
    all_values = list(values(results))
    described = benchmarks(results)
    commits = sorted({(value.at, value.commit) for value in all_values})
    positions = {commit: float(number) for number, (_, commit) in enumerate(commits, 1)}
    parts: list[Chart | Table] = [
        Table("Commits", ("number", "commit", "date"), tuple(commit_cells(commits))),
        *(
            chart
            for name, some in itertools.groupby(
                sorted(all_values, key=lambda value: value.benchmark), lambda value: value.benchmark
            )
            for chart in charts(name, list(some), positions, described.get(name, ""))
        ),
        Table(
            "Newest values",
            ("benchmark", "parameters", "value", "unit", "commit"),
            tuple(newest_cells(all_values, described)),
        ),
    ]
    facts = (("drawn", "benchmarks with values at two commits or more"), ("commits", str(len(commits))))
    return Page("Every benchmark of asv, from commit to commit", facts, tuple(parts))


def values(results: Path) -> Iterator[Value]:
    """Yield the values in the files of ``asv run``. Failed benchmarks have none."""
    for path in sorted(results.glob("*/*.json")):
        if path.name in HIDDEN:
            continue
        stored = json.loads(path.read_text("utf-8"))
        columns = stored["result_columns"]
        # The name of an existing environment contains the path of its interpreter.
        environment = stored["env_name"].partition("-py_")[0]
        for name, row in stored["results"].items():
            held = dict(zip(columns, row, strict=False))
            choices = itertools.product(*held["params"])
            for choice, value in zip(choices, held["result"] or (), strict=False):
                if isinstance(value, (int, float)) and value == value:  # noqa: PLR0124 - NaN differs from itself
                    yield Value(name, ", ".join(choice), environment, stored["commit_hash"], stored["date"], value)


def benchmarks(results: Path) -> dict[str, str]:
    """Return the unit of each benchmark."""
    path = results / "benchmarks.json"
    described: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {name: description["unit"] for name, description in described.items() if isinstance(description, dict)}


def charts(name: str, some: list[Value], positions: dict[str, float], unit: str) -> Iterable[Lines]:
    """Yield the chart of a benchmark: a line for each combination of parameters with a value at each of its commits."""
    commits = sorted({value.commit for value in some}, key=lambda commit: positions[commit])
    if len(commits) < 2:
        return
    lines = {}
    for line, of_line in itertools.groupby(sorted(some, key=lambda value: value.line), lambda value: value.line):
        by_commit = {value.commit: value.value for value in of_line}
        if len(by_commit) == len(commits):
            lines[line] = tuple(by_commit[commit] for commit in commits)
    if lines:
        yield Lines(name, "commit", unit, tuple(positions[commit] for commit in commits), lines)


def commit_cells(commits: list[tuple[int, str]]) -> Iterable[tuple[str, ...]]:
    """Yield the line of each commit."""
    for number, (at, commit) in enumerate(commits, 1):
        yield str(number), commit[:8], f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}"


def newest_cells(all_values: list[Value], units: dict[str, str]) -> Iterable[tuple[str, ...]]:
    """Yield the latest value of each benchmark and combination of parameters."""
    newest = {(value.benchmark, value.line): value for value in sorted(all_values, key=lambda value: value.at)}
    for (name, line), value in sorted(newest.items()):
        yield name, line, f"{value.value:.4g}", units.get(name, ""), value.commit[:8]
