"""Render the newest rows of ``results/e2e`` as README's table; with ``--check`` only say whether that is there.

Rows taken at another scale than 1 are kept, and not shown.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import decoders, encode, functions, profiles, scanners
from bench import export as steps
from bench.e2e import emr_scan, emr_write, import_files, record, write
from bench.e2e.export import SPARK as SPARK_JSON
from bench.e2e.functions import DECODE_COLUMN, ENCODE_COLUMN
from bench.e2e.spark_files import DATAFRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

README = record.ROOT / "README.md"
BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


@dataclass(frozen=True)
class Line:
    """Hold one line of the table; a goal is a bound from below (``≥``), from above (``≤``), or there is none."""

    what: str
    value: float
    unit: str
    goal: tuple[str, float] | None = None
    digits: int = 0

    def cells(self) -> str:
        """Return figure and goal as they are shown; a missed goal says so."""
        shown = f"{self.value:,.{self.digits}f}{self.unit}"
        if self.goal is None:
            return f"{shown} | "
        sign, bound = self.goal
        met = self.value >= bound if sign == "≥" else self.value <= bound
        return f"{shown} | {sign} {bound:g}{self.unit}{'' if met else ' **missed**'}"


def render(folder: Path = record.RESULTS) -> str:
    """Return what stands between README's marks, the end of the last line included."""
    rows = {case: row for case in CASES if (row := newest(folder / f"{case}.jsonl"))}
    if not rows:
        return ""
    lines = [
        f"| {line.what} | {line.cells()} | {_taken(row)} |" for case, row in rows.items() for line in CASES[case](row)
    ]
    head = ["| | figure | goal | taken |", "|---|---:|---:|---|"]
    machines = sorted({_machine(row) for row in rows.values()})
    tail = [
        "",
        f"{'; '.join(machines)}; shared with other work. `+`: the tree had changes.",
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


def _demo(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    rate = f"{figures['rcu_asked_per_second']:g} RCU/s"
    what = f"`./task demo`: {figures['items']:,} flights → Parquet on S3 by Spark, at {rate}"
    yield Line(what, figures["seconds"], " s", ("≤", 90), 1)
    yield Line("… wire MB per CPU-second of driver, JVM and workers", figures["megabytes_per_cpu_second"], "", digits=1)


def _decode(row: dict[str, Any]) -> Iterator[Line]:
    ratios = row["figures"]["export export"]["times_as_fast_as"]
    yield Line("decode export lines, beside bare `pyarrow.json` (floor)", ratios[decoders.FLOOR], "×", ("≥", 4.3), 2)
    yield Line("… beside `json.loads` + `TypeDeserializer`", ratios[decoders.BOTO3], "×", ("≥", 4), 1)
    speeds = row["figures"]["export export"]["megabytes_per_cpu_second"]
    yield Line("… MB per CPU-second", speeds[decoders.DDBIO], "")
    measured = row["figures"].get("profiles", {})
    for profile, goal in (("order", 4.3), ("shuffled", 3.5), ("wide_sparse", 3)):
        if profile in measured:
            ratio = measured[profile]["times_as_fast_as"][decoders.FLOOR]
            yield Line(f"… lines of profile `{profile}`, beside bare `pyarrow.json`", ratio, "×", ("≥", goal), 1)
    if "drifted_1%" in measured:
        cost = 100 / measured["drifted_1%"]["times_as_fast_as"][profiles.BASE] - 100
        yield Line("… what 1 % of drifted rows cost", cost, " %", ("≤", 10))


def _digest(row: dict[str, Any]) -> Iterator[Line]:
    for start, shape in (("digest rows of", "orders"), ("…", "export"), ("…", "flights")):
        ratio = row["figures"][shape]["times_as_fast_as"]["decode"]
        yield Line(f"{start} {shape}, beside decoding them", ratio, "×", ("≥", 2), 2)


def _scan(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    ratios = figures["times_as_fast_as"]
    megabytes = figures["item_json_bytes"] / 1e6
    what = f"scan {megabytes:.0f} MB over HTTP to typed columns, beside boto3 `client.scan`"
    yield Line(what, ratios[scanners.CLIENT], "×", ("≥", 80), 1)
    yield Line("… beside boto3 resource `table.scan`", ratios[scanners.RESOURCE], "×", digits=1)
    yield Line("… beside awswrangler `read_items`", ratios[scanners.AWSWRANGLER], "×", digits=1)
    yield Line("… beside fetching the pages and no more (floor)", ratios[scanners.RAW_LIGHT], "×", digits=2)
    if "infer_cpu_seconds" in figures:
        yield Line("… the schema inferred, CPU", 1000 * figures["infer_cpu_seconds"], " ms", ("≤", 50))


def _emr_scan(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    what = f"{figures['rows']:,} orders to Parquet (zstd) straight from Spark tasks, beside the EMR connector"
    yield Line(what, figures["times_as_fast_as"][emr_scan.CONNECTOR], "×", ("≥", 10), 1)


def _write(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    speeds, sizes = figures["items_per_cpu_second"], figures["body_bytes_per_item"]
    what = f"write items of {figures['item_bytes']} bytes, items per CPU-second beside boto3 `batch_writer`"
    yield Line(what, figures["times_as_many_as_boto3"], "×", ("≥", 25), 1)
    by_one = figures.get("times_as_many_as_boto3_by_one_lane")
    if by_one is not None:
        yield Line("… over one lane, which sleeps until each answer", by_one, "×", digits=1)
    yield Line("… items per CPU-second", speeds[write.DDBIO], "")
    yield Line("… with `compress_requests`", speeds[write.COMPRESSED], "")
    yield Line(
        "… its bytes sent, beside those of plain requests", sizes[write.COMPRESSED] / sizes[write.DDBIO], "×", digits=2
    )


def _emr_write(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    what = f"items of {figures['item_bytes']} bytes written per CPU-second, beside the EMR connector's output format"
    yield Line(what, figures["times_as_many_as"][emr_write.CONNECTOR], "×", ("≥", 3), 1)


def _spark_files(row: dict[str, Any]) -> Iterator[Line]:
    figures = row["figures"]
    size = f"{figures['rows']:,} {row['parameters']['shape']}"
    what = f"{size} to Parquet (zstd) straight from Spark tasks, beside the same DataFrame written by Spark"
    yield Line(what, figures["times_as_fast_as"][DATAFRAME], "×", ("≥", 3), 1)


def _budget(row: dict[str, Any]) -> Iterator[Line]:
    runs = row["figures"]["runs"]
    highest = max(run["highest_10s_ratio"] for run in runs)
    readers = ", ".join(f"{run['tasks']} × {run['lanes'] // run['tasks']}" for run in runs)
    what = f"budget of {row['parameters']['rcu_per_second']:g} RCU/s by the server's record, tasks × lanes {readers}: "
    yield Line(f"{what}highest 10 s", 100 * highest, " %", ("≤", 102), 1)
    if all(run["lowest_60s_ratio"] for run in runs):
        lowest = min(run["lowest_60s_ratio"] for run in runs)
        yield Line("… lowest minute", 100 * lowest, " %", ("≥", 97), 1)


def _memory(row: dict[str, Any]) -> Iterator[Line]:
    runs = row["figures"]["runs"]
    sizes = " and ".join(f"{size / 1e6:.0f}" for size in sorted({run["wire_bytes"] for run in runs}))
    later, first = (
        max(run["growth_mebibytes"] for run in runs if run["first_task"] == is_first) for is_first in (0, 1)
    )
    yield Line(f"memory of a task above its start, highest of tables of {sizes} MB", later, " MiB", ("≤", 256))
    yield Line("… where it is its process's first, which loads the libraries", first, " MiB", ("≤", 256))


def _import_files(row: dict[str, Any]) -> Iterator[Line]:
    for compression, figures in row["figures"].items():
        what = f"files for an import ({compression}), beside encoding and compressing the rows and no more (floor)"
        yield Line(what, figures["times_as_fast_as"][import_files.FLOOR], "×", ("≥", 0.6), 2)


def _export(row: dict[str, Any]) -> Iterator[Line]:
    core, spark = row["figures"]["one_core"], row["figures"]["spark"]
    what = f"gzipped export of {row['parameters']['shape']} → typed Parquet (zstd) on one core, beside {steps.CHAIN}"
    yield Line(what, core["times_as_fast_as"][steps.CHAIN], "×", ("≥", 2.2), 2)
    yield Line("… share of isal, kernel and Parquet alone", 100 * core["share_of_floors"], " %", ("≥", 85))
    yield Line("… beside Spark's JSON reader, per CPU-second", spark["times_as_fast_as"][SPARK_JSON], "×", ("≥", 6), 1)


def _export_memory(row: dict[str, Any]) -> Iterator[Line]:
    runs = row["figures"]["runs"]
    largest = max(runs, key=lambda run: run["file_bytes"])
    what = f"memory of a task above its start, reading one export file of {largest['file_bytes'] / 1e6:.0f} MB gzipped"
    yield Line(what, largest["growth_mebibytes"], " MiB", ("≤", 256))


def _encode(row: dict[str, Any]) -> Iterator[Line]:
    for shape, what in (("orders", "nested orders"), ("flights", "flat flights")):
        ratios = row["figures"][shape]["times_as_fast_as"]
        yield Line(f"encode {what}, beside `TypeSerializer` + `json.dumps`", ratios[encode.BOTO3], "×", ("≥", 30), 1)
        yield Line("… beside bare `pyarrow.json` decoding the same bytes", ratios[decoders.FLOOR], "×", ("≥", 3), 1)


def _functions(row: dict[str, Any]) -> Iterator[Line]:
    bodies = [body["times_as_fast_as_kernel"] for body in row["figures"]["bodies"].values()]
    for name, before in ((functions.FROM, functions.FROM_PANDAS), (functions.TO, functions.TO_PANDAS)):
        what = f"`{name}` on 10,000 rows, beside the bare kernel, slowest shape"
        yield Line(what, min(body[name] for body in bodies), "×", ("≥", 0.7), 2)
        # The oldest rows have no such figure.
        if all(before in body for body in bodies):
            yield Line(
                "… before Spark 4.1, with all that its worker does",
                min(body[before] for body in bodies),
                "×",
                ("≥", 0.7),
                2,
            )
    queries = row["figures"]["queries"]["times_as_fast_as_sparks_own"]
    yield Line("`decode_column` in Spark, beside its `from_json`", queries[DECODE_COLUMN], "×", digits=1)
    yield Line("`encode_column` in Spark, beside its `to_json`", queries[ENCODE_COLUMN], "×", digits=1)


CASES: dict[str, Callable[[dict[str, Any]], Iterator[Line]]] = {
    "demo": _demo,
    "decode": _decode,
    "digest": _digest,
    "encode": _encode,
    "functions": _functions,
    "scan": _scan,
    "spark_files": _spark_files,
    "emr_scan": _emr_scan,
    "write": _write,
    "emr_write": _emr_write,
    "budget": _budget,
    "memory": _memory,
    "import_files": _import_files,
    "export": _export,
    "export_memory": _export_memory,
}


def _taken(row: dict[str, Any]) -> str:
    return f"{row['at'][:10]} {(row['commit'] or 'none')[:7]}{'+' if row['dirty'] else ''}"


def _machine(row: dict[str, Any]) -> str:
    versions = f"Python {row['python']}, pyarrow {row['pyarrow']}, PySpark {row['pyspark']}, Java {row['java']}"
    return f"{row['cores']} × {row['cpu']}, {row['machine']}, {versions}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
