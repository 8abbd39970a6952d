"""Render the newest rows of ``results/e2e`` as README's table; with ``--check`` only say whether that is there.

Rows taken at another scale than 1 are kept, and not shown.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bench.e2e import record
from bench.figures import CASES, GROUPS

if TYPE_CHECKING:
    from pathlib import Path

README = record.ROOT / "README.md"
BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


def render(folder: Path = record.RESULTS) -> str:
    """Return what stands between README's marks, the end of the last line included."""
    rows = {case: row for case in CASES if (row := newest(folder / f"{case}.jsonl"))}
    if not rows:
        return ""
    lines = []
    for title, cases in GROUPS.items():
        shown = [
            f"| {line.what} | {line.cells()} | {_taken(rows[case])} |"
            for case, lines_of in cases.items()
            if case in rows
            for line in lines_of(rows[case])
        ]
        lines += [f"| **{title}** | | | |", *shown] if shown else []
    head = ["| client CPU, but where it says wall clock | figure | goal | taken |", "|---|---:|---:|---|"]
    machines = sorted({_machine(row) for row in rows.values()})
    tail = [
        "",
        f"{'; '.join(machines)}. `~`: its load was above its cores.",
        "[docs/benchmarks.md](docs/benchmarks.md) says what each figure means and how to take it again.",
    ]
    return "\n".join([*head, *lines, *tail]) + "\n"


def newest(path: Path) -> dict[str, Any] | None:
    """Return the last row that was taken at full scale."""
    if not path.exists():
        return None
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return next((row for row in reversed(rows) if row["scale"] == 1.0), None)


def replace(text: str, table: str) -> str:
    """Return README with another table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


def main(words: list[str]) -> int:
    """Renew README, or check it; return the exit code."""
    text = README.read_text("utf-8")
    renewed = replace(text, render())
    if renewed == text:
        return 0
    if "--check" in words:
        sys.stderr.write("README's figures are not those of results/e2e: run ./task docs\n")
        return 1
    README.write_text(renewed, "utf-8")
    return 0


def _taken(row: dict[str, Any]) -> str:
    # Somebody else was computing as well, or the case itself on all cores.
    return f"{row['at'][:10]} {row['commit'][:7]}{'~' if row['load_1m'] > row['cores'] else ''}"


def _machine(row: dict[str, Any]) -> str:
    versions = f"Python {row['python']}, pyarrow {row['pyarrow']}, PySpark {row['pyspark']}, Java {row['java']}"
    return f"{row['cores']} × {row['cpu']}, {row['machine']}, {versions}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
