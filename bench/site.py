"""Pages of all results that open from the file system: ``./task bench site`` writes them into ``build/results``.

An index leads to the figures of every case, their history, the matrix, capacity over time, and asv's results of each
benchmark. All pages are generated from ``results/e2e``, without requests to a host.
"""

from __future__ import annotations

import html
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import asv_page
from bench.e2e import record, scaling
from bench.figures import CASES, GROUPS
from bench.rows import newest
from ddbio.charts.page import Bars, Chart, Lines, Page, Table, page_html

if TYPE_CHECKING:
    from collections.abc import Iterable

    Row = dict[str, Any]

SITE = record.ROOT / "build" / "results"
ASV = record.ROOT / ".asv" / "results"
CLUSTER_PAIRS = (("local[1]", "local[2]"), ("local-cluster[1,1,1024]", "local-cluster[2,1,1024]"))
BASE = {"file_format": "parquet zstd", "cluster": "threads", "latency_ms": 0}


def main(words: list[str]) -> int:
    """Build the pages in the folder argument, and print the index."""
    target = Path(words[0]) if words else SITE
    build(target)
    sys.stdout.write(f"{target / 'index.html'}\n")
    return 0


def build(target: Path, results: Path = record.RESULTS, asv: Path = ASV) -> list[str]:
    """Write the pages. Return their names."""
    target.mkdir(parents=True, exist_ok=True)
    pages = {
        "figures.html": figures_page(results),
        "history.html": history_page(results),
        "matrix.html": matrix_page(rows_of(results / "matrix.jsonl"), rows_of(results / "scaling.jsonl")),
        "capacity.html": capacity_page(rows_of(results / "budget.jsonl"), rows_of(results / "series.jsonl")),
    }
    if asv.exists():
        pages["asv.html"] = asv_page.page(asv)
    links = [(name, page.title) for name, page in pages.items()]
    for name, page in pages.items():
        (target / name).write_text(with_links(page, [("index.html", "all pages")]), "utf-8")
    (target / "index.html").write_text(with_links(index_page(results), links), "utf-8")
    shutil.copytree(results, target / "rows", dirs_exist_ok=True)
    return ["index.html", *pages]


def with_links(page: Page, links: Iterable[tuple[str, str]]) -> str:
    """Return a page with links below its title."""
    items = "".join(f'<li><a href="{html.escape(to)}">{html.escape(text)}</a></li>' for to, text in links)
    return page_html(page).replace("</h1>", f"</h1>\n<nav><ul>{items}</ul></nav>", 1)


def index_page(results: Path) -> Page:
    """Return the index page: cases, dates and machines."""
    rows = [(path.stem, newest(path)) for path in sorted(results.glob("*.jsonl"))]
    table = tuple(
        (
            case,
            str((results / f"{case}.jsonl").read_bytes().count(b"\n")),
            row["at"][:10],
            row["commit"][:7],
            machine(row),
        )
        for case, row in rows
        if row
    )
    facts = (("rows", f"in rows/, one file of JSON lines a case; {sum(int(cells[1]) for cells in table)} in all"),)
    return Page(
        "Results of ddbio's benchmarks",
        facts,
        (Table("Cases", ("case", "rows", "newest", "commit", "machine"), table),),
    )


def figures_page(results: Path) -> Page:
    """Return the figures of the latest rows with their goals."""
    tables = []
    for title, cases in GROUPS.items():
        cells = [
            (line.what.replace("`", ""), *(cell.replace("**", "").strip() for cell in line.cells().split("|")), case)
            for case, lines_of in cases.items()
            if (row := newest(results / f"{case}.jsonl"))
            for line in lines_of(row)
        ]
        if cells:
            tables.append(
                Table(title, ("client CPU, unless it says wall clock", "figure", "goal", "case"), tuple(cells))
            )
    return Page("Figures", (("shown", "the newest row of each case at full scale"),), tuple(tables))


def history_page(results: Path) -> Page:
    """Return the history of the first figure of each case."""
    charts = []
    for case, lines_of in CASES.items():
        values, what, unit = [], "", ""
        for row in rows_of(results / f"{case}.jsonl"):
            try:
                line = next(iter(lines_of(row)))
            except (KeyError, StopIteration, TypeError):
                continue  # A row from before a figure was renamed.
            values.append(line.value)
            what, unit = line.what.replace("`", ""), line.unit
        if len(values) > 1:
            xs = tuple(float(number) for number in range(1, len(values) + 1))
            charts.append(Lines(f"{case}: {what}", "row", unit or "figure", xs, {case: values}))
    return Page(
        "From row to row", (("drawn", "the first figure of each case, in all its rows at full scale"),), tuple(charts)
    )


def matrix_page(rows: list[Row], scaling_rows: list[Row]) -> Page:
    """Return the matrix: speed by format, cluster and latency, speed-up of two executors, and layout of files."""
    cells = {key_of(row["parameters"]): row for row in rows}
    verbs = sorted({verb for verb, *_ in cells})
    parts: list[Chart | Table] = list(executors(scaling_rows))
    for axis, title in (("file_format", "format"), ("cluster", "cluster"), ("latency_ms", "latency")):
        for verb in verbs:
            rows_of_verb = [
                row for row in cells.values() if row["parameters"]["verb"] == verb and differs_by(axis, row)
            ]
            if len(rows_of_verb) > 1:
                labels = tuple(
                    f"{row['parameters'][axis]}{' ms' if axis == 'latency_ms' else ''}" for row in rows_of_verb
                )
                values = tuple(float(row["figures"]["rows_per_second"]) for row in rows_of_verb)
                parts.append(Bars(f"{verb} by {title}", "rows/s", labels, values))
    scaled = tuple(scaled_cells(cells))
    if scaled:
        columns = ("case", "clusters", "times the rows/s", "efficiency", "limited by")
        parts.append(Table("Scaling", columns, scaled))
    beside = tuple(cell for row in cells.values() for cell in peer_cells(row))
    if beside:
        columns = ("case", "beside", "times the rows per CPU-second", "by the clock", "items", "how it was called")
        parts.append(Table("Beside other libraries, in turns", columns, beside))
    if cells:
        columns = ("case", "rows/s", "MB/s", "CPU-s/GB", "units", "peak MiB", "files", "small")
        parts.append(Table("All cases", columns, tuple(map(case_cells, cells.values()))))
    return Page("Matrix of formats, cluster sizes and latencies", (("cases", str(len(cells))),), tuple(parts))


def executors(rows: list[Row]) -> Iterable[Chart | Table]:
    """Yield the speed-up of two executors and its limit, from the latest row."""
    for row in rows[-1:]:
        case_figures = row["figures"]
        speeds = tuple(row_figures["times_as_fast"] for row_figures in case_figures.values())
        yield Bars("Two executors beside one", "times as fast", tuple(case_figures), speeds)
        lines = tuple(
            (
                verb,
                f"{row_figures['rows']:,}",
                " → ".join(f"{rate:,}" for rate in row_figures.get("rows_per_second", ())),
                " → ".join(f"{seconds:.1f} s" for seconds in row_figures.get("start_seconds", ())),
                f"{row_figures['times_as_fast']:.2f}×",
                f"{row_figures['times_as_fast'] / 2:.0%}",
                row_figures["limited_by"],
            )
            for verb, row_figures in case_figures.items()
        )
        columns = ("verb", "rows", "rows/s without the start", "start", "as fast", "efficiency", "limited by")
        yield Table("Two executors beside one, and what limits", columns, lines)


def key_of(parameters: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a case, whose latest row is shown."""
    return tuple(parameters[name] for name in ("verb", *BASE))


def differs_by(axis: str, row: Row) -> bool:
    """Return whether a row is the base in all but one respect. The base of a DataFrame is Spark with two cores."""
    base = {**BASE, **({"cluster": "local[2]"} if row["parameters"]["verb"] == "frame" else {})}
    return all(row["parameters"][name] == value for name, value in base.items() if name != axis)


def scaled_cells(cells: dict[tuple[Any, ...], Row]) -> Iterable[tuple[str, ...]]:
    """Yield the speed-up of two executors by rows, and its limit."""
    for (verb, file_format, cluster, latency), row in cells.items():
        for one, two in CLUSTER_PAIRS:
            twice = cells.get((verb, file_format, two, latency))
            if cluster == one and twice is not None:
                ratio = twice["figures"]["rows_per_second"] / row["figures"]["rows_per_second"]
                yield f"{verb}, {file_format}", f"{one} → {two}", f"{ratio:.2f}×", f"{ratio / 2:.0%}", limit_of(twice)


def limit_of(row: Row) -> str:
    """Return the bottleneck of a job."""
    figures, late = row["figures"], bool(row["parameters"]["latency_ms"])
    job = figures["busy_cores"]
    return scaling.limit(job, figures["busy_cores_with_server"] - job, row["cores"], late=late)


def peer_cells(row: Row) -> Iterable[tuple[str, ...]]:
    """Yield the lines of a case's peers: medians with the minimum and maximum of the rounds, or the reason for none."""
    for name, peer in row["figures"].get("peers", {}).items():
        shown = f"{name} {peer.get('version', '')}".strip()
        if "missing" in peer:
            yield named(row), shown, "", "", "", f"cannot be had: {peer['missing']}"
        else:
            ratios = (
                f"{peer[by]['median']:g}× ({peer[by]['least']:g} to {peer[by]['most']:g})"
                for by in ("times_as_fast", "times_as_fast_by_the_clock")
            )
            yield named(row), shown, *ratios, f"{peer['items']:,}", peer["settings"]


def named(row: Row) -> str:
    """Return the distinguishing parameters of a case."""
    asked = row["parameters"]
    return f"{asked['verb']}, {asked['file_format']}, {asked['cluster']}, {asked['latency_ms']} ms"


def case_cells(row: Row) -> tuple[str, ...]:
    """Return the line of one case."""
    case_figures = row["figures"]
    memory = ", ".join(f"{name} {value:.0f}" for name, value in case_figures["peak_mebibytes"].items())
    return (
        named(row),
        f"{case_figures['rows_per_second']:,}",
        f"{case_figures['megabytes_per_second']:,}",
        f"{case_figures['cpu_seconds_per_gigabyte']:,}",
        f"{case_figures['read_units'] + case_figures['write_units']:,.0f}",
        memory,
        ", ".join(f"{count} {size}" for size, count in case_figures["file_bytes_histogram"].items()),
        f"{case_figures['small_file_ratio']:.0%}",
    )


def capacity_page(budgets: list[Row], series: list[Row]) -> Page:
    """Return requested and consumed units per second in each run of the latest rows that have them."""
    charts: list[Chart | Table] = []
    ratios = []
    for row in budgets[-1:]:
        for run in row["figures"]["runs"]:
            title = f"scan, {run['engine']}, {run['lanes']} lanes, {run['tasks']} tasks"
            charts += asked_and_consumed(title, run.get("rcu_by_second"), row["parameters"]["rcu_per_second"])
    for row in series[-1:]:
        for title, run in row["figures"]["runs"].items():
            charts += asked_and_consumed(title, run["units_by_second"], row["parameters"]["units_per_second"])
            tasks = tuple(map(float, run.get("tasks_by_second", ())))
            if tasks:
                xs = tuple(float(second) for second in range(len(tasks)))
                charts.append(Lines(f"{title}: tasks that ran", "second", "tasks", xs, {"tasks": tasks}))
            shown = (run["highest_10s_ratio"], run["mean_ratio"], run["tail_ratio"])
            ratios.append((title, *("" if ratio is None else f"{ratio:.1%}" for ratio in shown)))
    if ratios:
        columns = ("run", "busiest 10 s of what was asked", "all of it", "its last tenth")
        charts.append(Table("Near the budget", columns, tuple(ratios)))
    facts = () if charts else (("runs", "none yet: python -m bench.e2e budget series takes them"),)
    return Page("Capacity over time", facts, tuple(charts))


def asked_and_consumed(title: str, series: list[float] | None, rate: float) -> list[Chart | Table]:
    """Return the chart of a run; none for rows without series."""
    if not series:
        return []
    xs = tuple(float(second) for second in range(len(series)))
    return [Lines(title, "second", "units", xs, {"consumed": series, "asked": (rate,) * len(series)})]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a case at full scale."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [row for row in map(json.loads, lines) if row["scale"] == 1.0]


def machine(row: Row) -> str:
    """Return the machine of a row."""
    return f"{row['cores']} × {row['cpu']}, Python {row['python']}, pyarrow {row['pyarrow']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
