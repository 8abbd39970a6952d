"""Figures of each case in docs/benchmarks.md, and their goals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import decoders, encode, export, functions, profiles, public, scanners
from bench.e2e import compact, emr_scan, emr_write, files, import_files, latency, simulate, slopes, spark_source, verbs
from bench.e2e.export import SPARK as SPARK_JSON
from bench.e2e.functions import DECODE_COLUMN, ENCODE_COLUMN
from bench.e2e.spark_files import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Row = dict[str, Any]


_LINES = ("order", "shuffled", "wide_sparse")
_STEP_SECONDS = 0.05


@dataclass(frozen=True)
class Line:
    """Line of the table. A goal is a lower bound (``≥``), an upper bound (``≤``), or missing."""

    what: str
    value: float
    unit: str
    goal: tuple[str, float] | None = None
    digits: int = 0

    def cells(self) -> str:
        """Return the cells of the figure and the goal. A missed goal is marked."""
        shown = f"{self.value:,.{self.digits}f}{self.unit}"
        if self.goal is None:
            return f"{shown} | "
        sign, bound = self.goal
        is_met = self.value >= bound if sign == "≥" else self.value <= bound
        return f"{shown} | {sign} {bound:g}{self.unit}{'' if is_met else ' **missed**'}"


def _public(row: Row) -> Iterator[Line]:
    figures = row["figures"]

    def least(start: str, beside: str) -> float:
        return min(figure["times_as_fast_as"][beside] for name, figure in figures.items() if name.startswith(start))

    mixed, unknown = figures["decode mixed"], figures["decode_unknown mixed"]["times_as_fast_as"]
    what = "`from_dynamodb_json` with a schema vs the bare loops (lowest of ASCII, scripts, rescue, 100 items)"
    yield Line(what, least("decode ", public.KERNEL), "×", ("≥", 0.9), 2)
    yield Line(
        "… text in several scripts, vs `pyarrow.json`",
        mixed["times_as_fast_as"][public.PYARROW],
        "×",
        ("≥", 5.5),
        1,
    )
    yield Line("… MB per CPU-second", mixed["megabytes_per_cpu_second"][public.DDBIO], "")
    yield Line("… without a schema, vs the loops with one", unknown[public.KERNEL], "×", ("≥", 0.4), 2)
    yield Line("… vs `pyarrow.json` with one", unknown[public.PYARROW], "×", ("≥", 2.5), 1)
    tailed = figures["encode tailed"]["times_as_fast_as"][public.PYARROW]
    what = "`to_dynamodb_json`, `_rescue` in two of three rows, vs `pyarrow.json` decoding the same bytes"
    yield Line(what, tailed, "×", ("≥", 2), 1)
    yield Line("`infer_schema` of lines vs `pyarrow.json`", least("infer", public.PYARROW), "×", ("≥", 3), 1)
    read = figures["read_export mixed"]["times_as_fast_as"][public.KERNEL]
    yield Line("`read_export` vs `isal` and the loops", read, "×", ("≥", 0.7), 2)


def _decode(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    others = [figures["profiles"][name]["times_as_fast_as"][decoders.PYARROW] for name in _LINES]
    what = "loops on orders, shuffled orders, 20 of 300 attributes, vs `pyarrow.json` (lowest)"
    yield Line(what, min(others), "×", ("≥", 3), 1)
    ratio = figures["export export"]["times_as_fast_as"][decoders.BOTO3]
    yield Line("… export lines vs `json.loads` + `TypeDeserializer`", ratio, "×", ("≥", 4), 1)
    cost = 100 / figures["profiles"]["drifted_1%"]["times_as_fast_as"][profiles.BASE] - 100
    yield Line("… extra time if 1 % of the rows drifted", cost, " %", ("≤", 10))


def _encode(row: Row) -> Iterator[Line]:
    ratio = min(row["figures"][shape]["times_as_fast_as"][encode.BOTO3] for shape in ("orders", "flights"))
    yield Line("encoding of orders and flights vs `TypeSerializer` + `json.dumps` (lowest)", ratio, "×", ("≥", 30), 1)


def _digest(row: Row) -> Iterator[Line]:
    ratio = min(figures["times_as_fast_as"]["decode"] for figures in row["figures"].values())
    yield Line("digest of columns vs decoding the same rows (lowest)", ratio, "×", ("≥", 2), 2)


def _scan(row: Row) -> Iterator[Line]:
    figures, ratios = row["figures"], row["figures"]["times_as_fast_as"]
    what = f"`scan_batches` of {figures['item_json_bytes'] / 1e6:.0f} MB over HTTP vs boto3 `client.scan`"
    yield Line(what, ratios[scanners.CLIENT], "×", ("≥", 80), 1)
    yield Line("… vs awswrangler `read_items`", ratios[scanners.AWSWRANGLER], "×", digits=1)
    yield Line("… vs only fetching the same pages", ratios[scanners.RAW_LIGHT], "×", digits=2)
    if "infer_cpu_seconds" in figures:
        yield Line("… schema inference, CPU", 1000 * figures["infer_cpu_seconds"], " ms", ("≤", 50))


def _write(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    what = f"`write_table` of {figures['item_bytes']}-byte items vs boto3 `batch_writer`"
    yield Line(what, figures["times_as_many_as_boto3"], "×", ("≥", 25), 1)
    yield Line("… with one lane", figures["times_as_many_as_boto3_by_one_lane"], "×", digits=1)


def _update(row: Row) -> Iterator[Line]:
    ratio = row["figures"]["updates_times_as_many_as_boto3"]
    yield Line('`write_table(mode="update")` vs boto3 `update_item`', ratio, "×", ("≥", 6), 1)


def _verbs(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    for name, what, peer, goal in (
        ("load parquet", "`ddbio load` of Parquet vs `batch_writer`", verbs.BATCH_WRITER, 18),
        ("load lines", "… of DynamoDB JSON lines", verbs.BATCH_WRITER, 15),
        ("load update", "… `--mode update` vs `update_item`", verbs.UPDATE_ITEM, 6),
        ("copy", "`ddbio copy` vs `batch_writer`", verbs.BATCH_WRITER, 20),
    ):
        yield Line(what, figures[name]["times_as_many_as"][peer], "×", ("≥", goal), 1)
    # Steps of milliseconds, as those of `schema`, are no floor for a process.
    costly = {
        name: figure for name, figure in figures.items() if sum(figure["steps_cpu_seconds"].values()) > _STEP_SECONDS
    }
    shares = {name: figure["share_of_steps"] for name, figure in costly.items()}
    least = min(shares, key=lambda name: shares[name])
    what = f"every verb vs the sum of its steps (lowest: `{least}`)"
    yield Line(what, shares[least], "×", ("≥", 0.7), 2)
    starts = [seconds for figure in figures.values() for seconds in figure["start_cpu_seconds"]]
    yield Line("start of a verb, not included above, CPU", sorted(starts)[len(starts) // 2], " s", digits=1)


def _log_verbs(row: Row) -> Iterator[Line]:
    least, share = slopes.least_share(row)
    what = f"every log and lake verb vs the sum of its steps (lowest: `{least}`)"
    yield Line(what, share, "×", ("≥", 0.7), 2)
    yield from _per_unit(row, "row")


def _folder_verbs(row: Row) -> Iterator[Line]:
    yield from _per_unit(row, "file")


def _per_unit(row: Row, what: str) -> Iterator[Line]:
    for verb, figures in row["figures"].items():
        yield Line(f"`ddbio {verb}`, CPU per {what}", 1e6 / figures["count_per_cpu_second"], " µs", None, 1)


def _service_verbs(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    most = max(figures, key=lambda verb: figures[verb]["times_the_script"])
    what = f"verbs that only call the service vs a boto3 script with the same calls, time (highest: `{most}`)"
    yield Line(what, figures[most]["times_the_script"], "×", None, 2)
    for verb, figure in figures.items():
        yield Line(f"… `ddbio {verb}`, CPU with start", figure["median_cpu_seconds"], " s", None, 2)


def _delivered(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    yield Line(
        "`read_changes` of Firehose objects, records per CPU-second",
        figures["records_per_cpu_second"],
        "",
        ("≥", 100_000),
    )
    yield Line("… vs the standard library, boto3 and pyarrow", figures["times_as_many_as_boto3"], "×", None, 1)


def _export(row: Row) -> Iterator[Line]:
    core, spark = row["figures"]["one_core"], row["figures"]["spark"]
    what = f"`read_export_to_files` on one core vs {export.CHAIN}"
    yield Line(what, core["times_as_fast_as"][export.CHAIN], "×", ("≥", 2.2), 1)
    if "share_of_steps" in core:
        yield Line("… vs `isal`, the loops and Parquet alone", core["share_of_steps"], "×", ("≥", 0.85), 2)
    yield Line("… on Spark vs Spark's JSON reader", spark["times_as_fast_as"][SPARK_JSON], "×", ("≥", 6), 1)


def _import_files(row: Row) -> Iterator[Line]:
    share = min(figure["times_as_fast_as"][import_files.STEPS] for figure in row["figures"].values())
    yield Line("`write_import_files` vs encoding and compression alone", share, "×", ("≥", 0.6), 2)


def _functions(row: Row) -> Iterator[Line]:
    bodies = [body["times_as_fast_as_kernel"] for body in row["figures"]["bodies"].values()]
    share = min(ratio for body in bodies for ratio in body.values())
    what = f"`{functions.FROM}` and `{functions.TO}` in a Spark worker vs the bare loops (lowest)"
    yield Line(what, share, "×", ("≥", 0.7), 2)
    queries = row["figures"]["queries"]["times_as_fast_as_sparks_own"]
    yield Line("`decode_column` vs Spark's `from_json`, which keeps type tags", queries[DECODE_COLUMN], "×", digits=1)
    yield Line("`encode_column` vs Spark's `to_json`, which adds no type tags", queries[ENCODE_COLUMN], "×", digits=1)


def _spark_files(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    what = f"`ddbio scan --engine spark` of {figures['rows']:,} orders vs our data source and Spark's writer"
    yield Line(what, figures["times_as_fast_as"][SOURCE], "×", ("≥", 3), 1)


def _spark_source(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    what = f"`{spark_source.DDBIO}` of {figures['rows']:,} orders vs a bare source of the same Arrow batches and "
    yield Line(f"{what}{' and '.join(spark_source.STEPS)} alone", figures["share_of_bare"], "×", ("≥", 0.9), 2)


def _emr_scan(row: Row) -> Iterator[Line]:
    yield Line("… vs the EMR connector", row["figures"]["times_as_fast_as"][emr_scan.CONNECTOR], "×", ("≥", 10), 1)


def _emr_write(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    what = f"`write_table` of {figures['item_bytes']}-byte items vs the EMR connector's output format"
    yield Line(what, figures["times_as_many_as"][emr_write.CONNECTOR], "×", ("≥", 3), 1)


def _demo(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    budget = figures["rcu_consumed"] / figures["rcu_asked_per_second"]
    what = f"`./task demo`, of which {budget:.0f} s for the budget ({figures['rcu_consumed']:,.0f} units)"
    yield Line(what, figures["seconds"], " s", ("≤", 90), 1)


def _latency(row: Row) -> Iterator[Line]:
    by_latency = {int(milliseconds): rates for milliseconds, rates in row["figures"].items()}
    highest = max(by_latency)
    peers = {latency.SCAN: latency.CLIENT, latency.WRITE: latency.BATCH_WRITER, latency.LOAD: latency.BATCH_WRITER}
    for ours, peer in peers.items():
        # Rows before 23 November have no load.
        if ours not in by_latency[highest]:
            continue
        others = ", ".join(
            f"{rates[ours]:,} at {latency} ms" for latency, rates in by_latency.items() if latency != highest
        )
        name, beside = ours.removeprefix("ddbio."), by_latency[highest][peer]
        what = f"`{name}`, {highest} ms latency ({others}; {peer} {beside:,} at {highest} ms)"
        yield Line(what, by_latency[highest][ours], " items/s")


def _lookup(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    what = f"{figures['keys']:,} items by key vs bare BatchGetItem, time (CPU: "
    yield Line(f"{what}{figures['cpu_seconds_times_bare']} ×)", figures["seconds_times_bare"], "×", ("≤", 1.2), 2)
    # Older rows have no join.
    if "join_seconds_times_bare" in figures:
        yield Line(
            "… joined with a DataFrame by `ddbio.spark.lookup`", figures["join_seconds_times_bare"], "×", ("≤", 1.2), 2
        )


def _spark_start(row: Row) -> Iterator[Line]:
    seconds = row["figures"]["seconds"]
    what = f"scan on two new executors, above bare Spark's {seconds['bare Spark']:.1f} s"
    yield Line(what, seconds["ddbio_over_bare"], " s", ("≤", 1.5), 1)


def _versions(row: Row) -> Iterator[Line]:
    items = row["parameters"]["items"]
    start = f"{items:,} orders as a DataFrame"
    for jobs in row["figures"]["versions"].values():
        # A missing environment and a failed job have no figure.
        if "pyspark" in jobs:
            seconds = {job: jobs[job]["seconds"] for job in ("files", "write", "format", "pushdown") if job in jobs}
            others = ", ".join(f"`{job}` {taken:.1f} s" for job, taken in seconds.items())
            yield Line(f"{start} on Spark {jobs['pyspark']} ({others})", jobs["frame"]["seconds"], " s", None, 1)
            start = "…"


def _base_load(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    # The first rows have no rates.
    kind = "rate" if "cpu_rate_beside_parquet" in figures else "speed"
    cpu, wall = (figures[f"{name}_{kind}_beside_parquet"] for name in ("cpu", "wall"))
    for name in cpu:
        what = f"scan into a table of {name} vs to Parquet (wall clock {wall[name]:.2f} ×)"
        yield Line(what, cpu[name], "×", ("≥", 0.9), 2)
        if kind == "rate":
            with_start = figures["cpu_speed_beside_parquet"][name], figures["wall_speed_beside_parquet"][name]
            what = f"… with one-time work, over {figures['items']:,} rows (wall clock {with_start[1]:.2f} ×)"
            yield Line(what, with_start[0], "×", None, 2)


def _first_use(row: Row) -> Iterator[Line]:
    steps = row["figures"]["steps"]
    seconds = {name: step["seconds"] for name, step in steps.items()}
    first = seconds["import"] + seconds["small decode"]
    yield Line("start of a process to the first decoded items, with imports", first, " s", ("≤", 1), 2)
    yield Line("… 100,000 further items", seconds["decode"], " s", None, 2)


def _plan(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    start = "`ddbio plan scan` of a table"
    for name, plan in figures["plans"].items():
        yield Line(f"{start} {name}", plan["seconds"], " s", ("≤", 2), 1)
        start = "…"
    sizer = figures["sizer_mb_per_cpu_second"]
    yield Line("DynamoDB sizes of Arrow rows, one core", sizer, " MB/s", ("≥", 300))


_REAL = {"flights": "real flights", "territories": "real names in all languages"}


def _real(row: Row) -> Iterator[Line]:
    start = "scan, export read and load vs boto3,"
    for shape, figures in row["figures"].items():
        ratios = {
            verb: figure["times_as_fast"]["median"] for verb, figure in figures.items() if isinstance(figure, dict)
        }
        least = min(ratios, key=lambda verb: ratios[verb])
        yield Line(f"{start} {_REAL[shape]} (lowest: `{least}`)", ratios[least], "×", None, 1)
        start = "…"


def _series(row: Row) -> Iterator[Line]:
    runs = row["figures"]["runs"]
    highest = max(run["highest_10s_ratio"] for run in runs.values() if run["highest_10s_ratio"] is not None)
    last = min(runs, key=lambda name: runs[name]["tail_ratio"])
    what = "highest 10 s of a scan or write, of the requested rate, with skew and with an index"
    yield Line(what, 100 * highest, " %", ("≤", 102), 1)
    yield Line(f"… last tenth of a run (lowest: {last})", 100 * runs[last]["tail_ratio"], " %", ("≥", 90), 1)


def _scaling(row: Row) -> Iterator[Line]:
    start = ""
    for verb, figures in row["figures"].items():
        # Rows without a separate start are of short jobs.
        kind = ", rows/s of a long job" if "start_seconds" in figures else ""
        start = "…" if start else f"two Spark executors vs one{kind}:"
        what = f"{start} `{verb}`, limited by {figures['limited_by']}"
        yield Line(what, figures["times_as_fast"], "×", ("≥", 1.8), 2)


def _budget(row: Row) -> Iterator[Line]:
    runs = row["figures"]["runs"]
    highest = max(run["highest_10s_ratio"] for run in runs)
    what = f"budget of {row['parameters']['rcu_per_second']:g} RCU/s with 1 to 8 lanes and tasks, highest 10 s"
    yield Line(what, 100 * highest, " %", ("≤", 102), 1)
    if all(run["lowest_60s_ratio"] for run in runs):
        yield Line("… lowest minute", 100 * min(run["lowest_60s_ratio"] for run in runs), " %", ("≥", 97), 1)


def _memory(row: Row) -> Iterator[Line]:
    run = max(row["figures"]["runs"], key=lambda run_figures: run_figures["growth_mebibytes"])
    what = f"memory of a task above {run['start_mebibytes']:.0f} MiB at its start, any table size"
    yield Line(what, run["growth_mebibytes"], " MiB", ("≤", 256))


def _export_memory(row: Row) -> Iterator[Line]:
    run = max(row["figures"]["runs"], key=lambda run_figures: run_figures["file_bytes"])
    size = f"{run['file_bytes'] / 1e6:.0f} MB gzipped"
    what = f"memory of a task above {run['start_mebibytes']:.0f} MiB at its start, one export file of {size}"
    yield Line(what, run["growth_mebibytes"], " MiB", ("≤", 256))


def _spread(row: Row) -> Iterator[Line]:
    shares = {
        f"`{way}` into {partitions} partitions": figures["share_of_table"]
        for partitions, ways in row["figures"].items()
        for way, figures in ways.items()
    }
    least = min(shares, key=lambda name: shares[name])
    what = f"writes in scan order, of the table's rate (lowest: {least})"
    yield Line(what, shares[least], "×", ("≥", 0.9), 2)


def _lambda_start(row: Row) -> Iterator[Line]:
    for handler, figure in row["figures"].items():
        what = f"new process of `{handler}`, first event of {figure['records']} records"
        yield Line(what, 1000 * (figure["import_seconds"] + figure["first_seconds"]), " ms", None, 0)
        yield Line("… second event", 1000 * figure["second_seconds"], " ms", None, 0)


def _capture(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    yield Line("`capture`, records per CPU-second", figures["records_per_cpu_second"], "", ("≥", 100_000))
    yield Line("… vs boto3 and pyarrow", figures["times_as_many_as_boto3"], "×", None, 1)
    yield Line("… idle, share of a core", 100 * figures["idle_share_of_a_core"], " %", ("≤", 2), 1)
    yield Line("… restart without changes", figures["restart_seconds"], " s", ("≤", 5), 1)
    if "kinesis" not in figures:
        return
    kinesis = figures["kinesis"]
    yield Line("… from Kinesis, records per CPU-second", kinesis["records_per_cpu_second"], "", ("≥", 100_000))
    yield Line("… … idle, share of a core", 100 * kinesis["idle_share_of_a_core"], " %", ("≤", 2), 1)
    lag, peak = (max(source[name] for source in (figures, kinesis)) for name in ("lag_seconds", "peak_mb"))
    yield Line(f"… lag at {row['parameters']['rate']:,} changes/s, either source", lag, " s", ("≤", 2), 1)
    yield Line("… peak memory, either source", peak, " MiB", ("≤", 256))


def _apply(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    for share, words in (("1_percent", "1 %"), ("0_1_percent", "0.1 %")):
        what = f"`ddbio.apply` to Delta, {words} of the rows changed, CPU vs `DeltaTable.merge`"
        yield Line(what, figures[f"times_deltalake_merge_{share}"], "×", ("≤", 1.15), 2)
    cheaper = figures["append_times_cheaper_0_1_percent"]
    yield Line("… append to the log instead, times cheaper", cheaper, "×", ("≥", 50))


def _apply_memory(row: Row) -> Iterator[Line]:
    figures, parameters = row["figures"], row["parameters"]
    peaks = {
        suffix: [
            figures[name]
            for file_format in parameters["formats"]
            if (name := f"peak_mebibytes_{file_format}{suffix}") in figures
        ]
        for suffix in ("", "_skewed")
    }
    size = f"{parameters['changes']:,} changes, table of {parameters['rows']:,} rows, either format"
    what = f"peak memory of `ddbio apply`: {size}"
    yield Line(what, max(peaks[""]), " MiB", ("≤", 1024))
    # The first rows have no such changes.
    if peaks["_skewed"]:
        yield Line(f"… changes in {parameters['at_once']} of 16 buckets", max(peaks["_skewed"]), " MiB", ("≤", 1024))


def _validate(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    yield Line(
        "`validate` of a table and its files vs the scan to files, time", figures["times_the_scan"], "×", ("≤", 1.15), 2
    )
    yield Line("… with one changed value", figures["times_the_scan_one_changed"], "×", None, 2)


def _simulate(row: Row) -> Iterator[Line]:
    seconds, ratios = row["figures"]["cpu_seconds"], row["figures"]["ratios"]
    what = "`ddbio simulate` of 80 TB with 1,000 tasks, one core"
    yield Line(what, seconds[simulate.LEASES], " s", ("≤", 30), 1)
    yield Line("… job time with leases vs the ideal", ratios[simulate.LEASES], "×", ("≤", 1.1), 2)
    yield Line("… with fixed shares", ratios[simulate.SHARES], "×", None, 1)
    yield Line("… with leases, 10 % of the executors lost after 2 h", ratios[simulate.LOST], "×", None, 2)


def _layout(row: Row) -> Iterator[Line]:
    figures = row["figures"]
    seconds = statistics.median(figures["cpu_seconds"]["layout"])
    yield Line(f"`layout` of {figures['files']:,} Parquet files, one core", seconds, " s", ("≤", 20), 1)


def _compact(row: Row) -> Iterator[Line]:
    shares = row["figures"]["share_of_bare"]
    what = "`ddbio.compact` of 100 small Parquet files vs pyarrow's read + write"
    yield Line(what, shares[compact.REWRITE], "×", ("≥", 0.85), 2)
    yield Line("… with verification by digests", shares[compact.VERIFIED], "×", None, 2)
    yield Line("… task memory", row["figures"]["task_growth_mebibytes"], " MiB", ("≤", 256))


def _files(row: Row) -> Iterator[Line]:
    writing, layout = row["figures"]["writing"], row["figures"]["layout"]
    for name in ("parquet", "orc"):
        ratio = writing[name]["times_as_fast_as"][files.FLOOR]
        yield Line(f"scan batches to {name} vs pyarrow's writer", ratio, "×", ("≥", 0.85), 2)
    for name in ("avro", "csv", "json"):
        speed = writing[name]["megabytes_per_cpu_second"][files.OURS]
        yield Line(f"… to {name}, MB of Arrow per CPU-second", speed, "", None, 1)
    if "partitioned" in row["figures"]:
        ratio = row["figures"]["partitioned"]["times_as_fast_as"][files.FLOOR]
        yield Line("… to Parquet in 100 partitions vs `pyarrow.dataset`", ratio, "×", ("≥", 0.7), 2)
    near = min(layout_figures["1"]["bytes_near_target_ratio"] for layout_figures in layout.values())
    target = row["parameters"].get("target_bytes", files.MIB) / files.MIB
    what = f"bytes in files within 15 % of a target of {target:g} MiB (lowest of five formats)"
    yield Line(what, 100 * near, " %", ("≥", 95))


GROUPS: dict[str, dict[str, Callable[[Row], Iterator[Line]]]] = {
    "DynamoDB JSON in memory": {"public": _public, "decode": _decode, "encode": _encode, "digest": _digest},
    "Tables in Python": {
        "scan": _scan,
        "write": _write,
        "update": _update,
        "export": _export,
        "import_files": _import_files,
        "files": _files,
        "simulate": _simulate,
        "validate": _validate,
        "layout": _layout,
        "real": _real,
    },
    "Command line, one process per verb": {
        "verbs": _verbs,
        "log_verbs": _log_verbs,
        "folder_verbs": _folder_verbs,
        "service_verbs": _service_verbs,
    },
    "Spark: driver, JVM and workers": {
        "spark_files": _spark_files,
        "spark_source": _spark_source,
        "emr_scan": _emr_scan,
        "emr_write": _emr_write,
        "functions": _functions,
    },
    "Wall clock, client and server on one machine": {
        "first_use": _first_use,
        "spark_start": _spark_start,
        "versions": _versions,
        "plan": _plan,
        "scaling": _scaling,
        "lambda_start": _lambda_start,
        "latency": _latency,
        "lookup": _lookup,
        "demo": _demo,
    },
    "Folders, logs and lake tables": {
        "compact": _compact,
        "capture": _capture,
        "delivered": _delivered,
        "apply": _apply,
        "apply_memory": _apply_memory,
        "base_load": _base_load,
    },
    "Limits": {
        "spread": _spread,
        "budget": _budget,
        "series": _series,
        "memory": _memory,
        "export_memory": _export_memory,
    },
}
"""Cases by topic, in the order of the page. A case has the name of its module and of its file of rows."""

CASES = {case: lines for group in GROUPS.values() for case, lines in group.items()}
