"""Render the newest rows of ``results/e2e``: the page's table, README's picture, the package's own figures.

With ``--check`` nothing is written, and the exit code says whether both are in step. Only rows of scale 1 are shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench import picture
from bench.e2e import record, simulate
from bench.figures import CASES, GROUPS, Line
from bench.rows import newest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = record.ROOT / "docs/benchmarks.md"
SIMULATIONS = record.ROOT / "docs/simulate.md"
BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


def render(folder: Path = record.RESULTS) -> str:
    """Return what stands between the marks of the page, the end of the last line included."""
    rows = {case: row for case in CASES if (row := newest(folder / f"{case}.jsonl"))}
    gate = newest(folder.parent / "gate.jsonl")
    if gate is not None and "variation_percent" in gate["figures"]:
        rows["gate"] = gate
    if not rows:
        return ""
    lines = []
    for title, cases in {**GROUPS, "The gate": {"gate": gate_lines}}.items():
        shown = [
            f"| {line.what} | {line.cells()} | {_taken(rows[case])} |"
            for case, lines_of in cases.items()
            if case in rows
            for line in lines_of(rows[case])
        ]
        lines += [f"| **{title}** | | | |", *shown] if shown else []
    head = ["| client CPU, unless it says wall clock | figure | goal | taken |", "|---|---:|---:|---|"]
    machines = sorted({_machine(row) for row in rows.values()})
    tail = [
        "",
        f"{'; '.join(machines)}. `~`: the machine's load was above its cores.",
    ]
    return "\n".join([*head, *lines, *tail]) + "\n"


def replace(text: str, table: str) -> str:
    """Return the page with another table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


def gate_lines(row: dict[str, Any]) -> Iterator[Line]:
    """Yield how far the counts of one tree lie apart."""
    what = f"instructions of the pure kernels, largest coefficient of variation of {row['figures']['runs']} counts"
    yield Line(what, row["figures"]["variation_percent"], " %", ("≤", 1), 3)


def simulations(text: str, folder: Path = record.RESULTS) -> str:
    """Return the page of simulations with the table of the newest row; as it is while no row has one."""
    row = newest(folder / "simulate.jsonl")
    if row is None or "progress" not in row["figures"]:
        return text
    lines = ["| | 80 % read | 90 % read | all read | of the ideal time |", "|---|---|---|---|---|"]
    for way, what in simulate.SHOWN.items():
        times = " | ".join(map(hours, row["figures"]["progress"][way]))
        lines.append(f"| {what} | {times} | {row['figures']['ratios'][way]:.3g} × |")
    begin, end = "<!-- simulate:begin -->\n", "<!-- simulate:end -->"
    before, _, rest = text.partition(begin)
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, rest.partition(end)[2]))


def layouts(text: str, folder: Path = record.RESULTS) -> str:
    """Return the page with the layouts of the newest row of files; as it is while there is none."""
    row, begin, end = newest(folder / "files.jsonl"), "<!-- layouts:begin -->\n", "<!-- layouts:end -->"
    if row is None or begin not in text:
        return text
    found = row["figures"]["layout"]
    counts = [f"{count} task{'s' * (count > 1)}" for count in map(int, next(iter(found.values())))]
    lines = [f"| | {' | '.join(counts)} |", f"|---|{'---|' * len(counts)}"]
    for name, by_tasks in found.items():
        lines.append(f"| {name} | {' | '.join(map(_layout, by_tasks.values()))} |")
    before, _, rest = text.partition(begin)
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, rest.partition(end)[2]))


def _layout(found: dict[str, Any]) -> str:
    small, near = (100 * found[name] for name in ("small_file_ratio", "bytes_near_target_ratio"))
    return f"{found['files']:,} of {found['median_bytes'] / 2**20:.2f} MiB, {small:.0f} % small, {near:.0f} % near"


def hours(seconds: float) -> str:
    """Return a time in hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def main(words: list[str]) -> int:
    """Renew the page and the picture, or check them; return the exit code."""
    renewed = {
        PAGE: layouts(replace(PAGE.read_text("utf-8"), render())),
        picture.PICTURE: picture.render(),
        SIMULATIONS: simulations(SIMULATIONS.read_text("utf-8")),
    }
    old = {path: path.read_text("utf-8") if path.exists() else None for path in renewed}
    if old == renewed:
        return 0
    if "--check" in words:
        sys.stderr.write("the figures shown are not those of results/e2e: run ./task docs\n")
        return 1
    for path, text in renewed.items():
        path.write_text(text, "utf-8")
    return 0


def _taken(row: dict[str, Any]) -> str:
    # Somebody else was computing as well, or the case itself on all cores.
    return f"{row['at'][:10]} {row['commit'][:7]}{'~' if row['load_1m'] > row['cores'] else ''}"


def _machine(row: dict[str, Any]) -> str:
    versions = f"Python {row['python']}, pyarrow {row['pyarrow']}, PySpark {row['pyspark']}, Java {row['java']}"
    return f"{row['cores']} × {row['cpu']}, {row['machine']}, {versions}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
