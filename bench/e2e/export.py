"""Turn a gzipped export into typed Parquet (zstd), compared with Spark's JSON reader, a chain of libraries, and the
steps.

Goals: ≥ 6 × Spark and ≥ 2.2 × the chain per CPU second, and ≥ 85 % of the sum of its steps alone.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import ddbio
from bench import data, decoders, pairs, spark_json
from bench import export as steps
from bench.e2e import processes, record
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In a job of seconds, PySpark's overhead per task and job would be half of the direct method.
SPARK_ITEMS = 800_000
CORES = 2
# Until then the JVM still compiles the code of Spark's method, also while the other method is measured.
WARM_ROUNDS = 5
DIRECT, SPARK = "ddbio export read, engine spark", "spark.read.schema(…).json … write.parquet"
STEPS = (steps.GUNZIP, steps.DECODE, steps.PARQUET)


def main() -> None:
    """Append a row: on one core in this process, then in one Spark session; methods in turns, with a given schema."""
    arguments = record.parser("export")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--spark-rounds", type=int, default=5)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {"one_core": measure_core(asked, Path(folder, "core"))}
        figures["spark"] = measure_spark(asked, Path(folder, "spark"))
    record.append("export", asked, figures)


def measure_core(asked: Any, folder: Path) -> dict[str, Any]:
    """Return speeds of one core, ddbio compared with the chain and with the sum of its steps."""
    steps.ExportToParquet.check(asked.shape)
    count = data.scaled(steps.ITEMS)
    seconds = pairs.interleave(steps.ways(asked.shape, folder, count), asked.rounds)
    sums = [sum(seconds[step][turn] for step in STEPS) for turn in range(asked.rounds)]
    text_bytes = len(data.export_lines(asked.shape, count))
    return {
        "items": count,
        "text_bytes": text_bytes,
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, text_bytes), 1),
        "times_as_fast_as": record.rounded({steps.CHAIN: pairs.speed_ratio(seconds, steps.OURS, steps.CHAIN)}),
        "share_of_steps": round(statistics.median(s / o for s, o in zip(sums, seconds[steps.OURS], strict=True)), 3),
    }


def measure_spark(asked: Any, folder: Path) -> dict[str, Any]:
    """Return CPU seconds of driver, JVM and workers for ddbio and for Spark's method."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    count = data.scaled(SPARK_ITEMS)
    home = ExportWriter(folder / "in", files=2 * CORES, empty_files=1).full(data.items(asked.shape, count))
    clock = processes.TreeClock()
    session = start_session(f"local[{CORES}]", {})
    try:
        ways = {
            DIRECT: functools.partial(write_direct, home, folder / "direct", asked.shape),
            SPARK: functools.partial(write_by_spark, session, home, folder / "frame", asked.shape),
        }
        for way in tuple(ways.values()) * WARM_ROUNDS:
            way()
        check(folder)
        seconds = pairs.interleave(ways, asked.spark_rounds, clock=clock, collecting=True)
    finally:
        session.stop()
    return {
        "items": count,
        "cpu_seconds": {name: [round(time, 2) for time in times] for name, times in seconds.items()},
        "times_as_fast_as": record.rounded({SPARK: pairs.speed_ratio(seconds, DIRECT, SPARK)}),
    }


def write_direct(home: Path, dest: Path, shape: data.Shape) -> None:
    """Write from the workers."""
    ddbio.read_export_to_files(home, dest, schema=decoders.schema_of(shape), engine="spark", mode="overwrite")


def write_by_spark(session: SparkSession, home: Path, dest: Path, shape: data.Shape) -> None:
    """Read and write with Spark only, at ddbio's level of zstd: Spark's default, 3, takes about 3 % more."""
    frame = spark_json.read_typed(session, home / "data", shape)
    options = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
    frame.write.mode("overwrite").options(**options).parquet(str(dest))


def check(folder: Path) -> None:
    """Raise unless the files contain the same rows."""
    direct, frame = (pq.read_table(folder / name) for name in ("direct", "frame"))
    direct = direct.drop_columns(["_rescue"])
    key = direct.column_names[:2]
    order = [(name, "ascending") for name in key]
    direct, frame = direct.sort_by(order), frame.sort_by(order)
    assert frame.cast(direct.schema).equals(direct)


if __name__ == "__main__":
    main()
