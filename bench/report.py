"""Tables of the pages and README's picture, from the newest rows of ``results/e2e``.

With ``--check`` nothing is written, and the exit code is 1 if a page differs. Only rows of scale 1 are shown.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench import picture
from bench.e2e import record, simulate
from bench.figures import CASES, GROUPS, Line
from bench.rows import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PAGE = record.ROOT / "docs/benchmarks.md"
SIMULATIONS = record.ROOT / "docs/simulate.md"
BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


def render(folder: Path = record.RESULTS) -> str:
    """Return the text between the marks of the page, including the last line end."""
    rows = {case: row for case in CASES if (row := newest(folder / f"{case}.jsonl"))}
    gate = newest(folder.parent / "gate.jsonl")
    if gate is not None and "variation_percent" in gate["figures"]:
        rows["gate"] = gate
    if not rows:
        return ""
    lines = []
    for title, cases in {**GROUPS, "Gate": {"gate": gate_lines}}.items():
        shown = _joined(line for case, lines_of in cases.items() if case in rows for line in lines_of(rows[case]))
        lines += [f"**{title}** | | ", *shown] if shown else []
    head = ["client CPU, except wall clock | figure | goal", "---|---:|---:"]
    cases_of = defaultdict[str, list[str]](list)
    for case, row in rows.items():
        cases_of[_taken(row)].append(f"`{case}`")
    taken = "; ".join(f"{when}: {', '.join(cases)}" for when, cases in sorted(cases_of.items()))
    machines = "; ".join(sorted({_machine(row) for row in rows.values()}))
    versions = "; ".join(sorted({_versions(row) for row in rows.values()}))
    tail = [
        "",
        f"Date, commit (`~`: load above the number of cores) and [cases](#whole-jobs): {taken}.",
        "",
        f"Machines: {machines}. Versions: {versions}.",
    ]
    return "\n".join([*head, *lines, *tail]) + "\n"


_SAME_FIGURE = re.compile(r"(?:… )?`ddbio ([^`]+)`, (CPU .+)")


def _joined(lines: Iterable[Line]) -> list[str]:
    """Return the rows of lines. Lines of the same figure of several commands become one row."""
    rows = list[str]()
    for what, group in itertools.groupby(lines, lambda line: (match := _SAME_FIGURE.fullmatch(line.what)) and match[2]):
        if what is None:
            rows += [f"{line.what} | {line.cells()}" for line in group]
        else:
            values = ((_SAME_FIGURE.sub(r"\1", line.what), line.cells().partition(" |")[0]) for line in group)
            rows.append(f"{what}: {', '.join(f'`{verb}` {value}' for verb, value in values)} | | ")
    return rows


def replace(text: str, table: str) -> str:
    """Return the page with another table between its marks."""
    before, _, tail = text.partition(BEGIN)
    _, _, after = tail.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


def gate_lines(row: dict[str, Any]) -> Iterator[Line]:
    """Yield the variation of counts of one tree."""
    what = f"instructions of the pure kernels, largest coefficient of variation of {row['figures']['runs']} counts"
    yield Line(what, row["figures"]["variation_percent"], " %", ("≤", 1), 3)


def simulations(text: str, folder: Path = record.RESULTS) -> str:
    """Return the page of simulations with the table of the newest row, or unchanged if no row has one."""
    row = newest(folder / "simulate.jsonl")
    if row is None or "progress" not in row["figures"]:
        return text
    lines = ["| | 80 % read | 90 % read | all read | of the ideal time |", "|---|---|---|---|---|"]
    for way, what in simulate.SHOWN.items():
        times = " | ".join(map(hours, row["figures"]["progress"][way]))
        lines.append(f"| {what} | {times} | {row['figures']['ratios'][way]:.3g} × |")
    begin, end = "<!-- simulate:begin -->\n", "<!-- simulate:end -->"
    before, _, tail = text.partition(begin)
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, tail.partition(end)[2]))


def layouts(text: str, folder: Path = record.RESULTS) -> str:
    """Return the page with the layouts of the newest row of files, or unchanged if there is no row."""
    row, begin, end = newest(folder / "files.jsonl"), "<!-- layouts:begin -->\n", "<!-- layouts:end -->"
    if row is None or begin not in text:
        return text
    formats = row["figures"]["layout"]
    counts = [f"{count} task{'s' * (count > 1)}" for count in map(int, next(iter(formats.values())))]
    lines = [f"| | {' | '.join(counts)} |", f"|---|{'---|' * len(counts)}"]
    for name, by_tasks in formats.items():
        lines.append(f"| {name} | {' | '.join(map(_layout, by_tasks.values()))} |")
    before, _, tail = text.partition(begin)
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, tail.partition(end)[2]))


def _layout(layout: dict[str, Any]) -> str:
    small, near = (100 * layout[name] for name in ("small_file_ratio", "bytes_near_target_ratio"))
    return f"{layout['files']:,} of {layout['median_bytes'] / 2**20:.2f} MiB, {small:.0f} % small, {near:.0f} % near"


def hours(seconds: float) -> str:
    """Return a time in hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def main(words: list[str]) -> int:
    """Write the pages and the picture, or check them. Return the exit code."""
    renewed = {
        PAGE: layouts(replace(PAGE.read_text("utf-8"), render())),
        picture.PICTURE: picture.render(),
        SIMULATIONS: simulations(SIMULATIONS.read_text("utf-8")),
    }
    old = {path: path.read_text("utf-8") if path.exists() else None for path in renewed}
    if old == renewed:
        return 0
    if "--check" in words:
        sys.stderr.write("the pages do not show the figures of results/e2e: run ./task docs\n")
        return 1
    for path, text in renewed.items():
        path.write_text(text, "utf-8")
    return 0


def _taken(row: dict[str, Any]) -> str:
    # A load above the number of cores means other jobs, or a case on all cores.
    return f"{row['at'][:10]} {row['commit'][:7]}{'~' if row['load_1m'] > row['cores'] else ''}"


def _machine(row: dict[str, Any]) -> str:
    return f"{row['cores']} × {row['cpu']}, {row['machine']}"


def _versions(row: dict[str, Any]) -> str:
    return f"Python {row['python']}, pyarrow {row['pyarrow']}, PySpark {row['pyspark']}, Java {row['java']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
