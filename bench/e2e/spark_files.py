"""Write Parquet (zstd) from Spark tasks, and by Spark from ddbio's data source; goal: ≥ 3 × per CPU second.

The other method also uses ddbio's decoder: the difference is the cost of rows that pass through the JVM.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench import data, pairs, serving
from bench.e2e import processes, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In a job of seconds, PySpark's overhead per task and job would be half of the direct method.
ITEMS = 600_000
CORES = 2
# Until then the JVM still compiles.
WARM_UPS = 5
DIRECT, SOURCE = "ddbio.scan_to_files, engine spark", "spark.read.format('ddbio') … write.parquet"


def main() -> None:
    """Append a row: both methods warm, in turns, in one session; CPU of driver, JVM and workers, schema given."""
    arguments = record.parser("spark_files")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--warm-ups", type=int, default=WARM_UPS)
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    table = serving.serve(asked.shape, data.scaled(ITEMS))
    # Created before Spark and after the server: the former is counted, the latter is not.
    clock = processes.TreeClock()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(table, Path(folder), clock, asked)
    serving.stop()
    record.append("spark_files", asked, figures)


def measure(table: serving.Table, folder: Path, clock: processes.TreeClock, asked: Any) -> dict[str, Any]:
    """Return rows per CPU second of both methods, and their ratio."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    session = start_session(f"local[{CORES}]", {})
    try:
        ddbio.register(session)
        cpu_seconds: list[float] = []
        schema = ddbio.infer_schema(table.name, endpoint_url=table.endpoint_url).to_json()
        ways = {
            DIRECT: functools.partial(write_direct, table, folder, schema, cpu_seconds),
            SOURCE: functools.partial(write_data_frame, session, table, folder, schema),
        }
        check(table, folder, ways)
        pairs.interleave(ways, asked.warm_ups)
        del cpu_seconds[:]
        seconds = pairs.interleave(ways, asked.rounds, clock=clock, collecting=True)
    finally:
        session.stop()
    return {
        "rows": table.count,
        "item_json_bytes": table.line_bytes,
        "cpu_seconds": {name: [round(time, 2) for time in times] for name, times in seconds.items()},
        "reported_cpu_seconds": [round(cpu_second, 2) for cpu_second in cpu_seconds],
        "rows_per_cpu_second": {name: round(table.count / statistics.median(times)) for name, times in seconds.items()},
        "times_as_fast_as": record.rounded({SOURCE: pairs.speed_ratio(seconds, DIRECT, SOURCE)}),
    }


def write_direct(table: serving.Table, folder: Path, schema: pa.Schema | str, cpu_seconds: list[float]) -> None:
    """Write from the workers. Record the CPU seconds of the report."""
    report = ddbio.scan_to_files(
        table.name, folder / "direct", mode="overwrite", engine="spark", endpoint_url=table.endpoint_url,
        segments=2 * CORES, tasks=CORES, compression="zstd", schema=schema,
    )  # fmt: skip
    assert report.rows == table.count
    cpu_seconds.append(report.cpu_seconds)


def write_data_frame(session: SparkSession, table: serving.Table, folder: Path, schema: str) -> None:
    """Read the same into a DataFrame and let Spark write it, at ddbio's level of zstd: Spark's default is 3."""
    reader = session.read.format("ddbio").option("table", table.name).option("endpointUrl", table.endpoint_url)
    frame = reader.option("segments", 2 * CORES).option("tasks", CORES).option("schema", schema).load()
    options = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
    frame.write.mode("overwrite").options(**options).parquet(str(folder / "frame"))


def check(table: serving.Table, folder: Path, ways: dict[str, Any]) -> None:
    """Raise unless the files contain the same rows."""
    for way in ways.values():
        way()
    direct, frame = (read_rows(folder / name, table) for name in ("direct", "frame"))
    assert direct.num_rows == table.count
    assert frame.select(direct.column_names).cast(direct.schema).equals(direct)


def read_rows(folder: Path, table: serving.Table) -> pa.Table:
    """Return the rows of all files of a folder, sorted by their key."""
    rows = pa.concat_tables(pq.ParquetFile(path).read() for path in sorted(folder.glob("*.parquet")))
    return rows.sort_by([(name, "ascending") for name in table.key_names]).combine_chunks()


if __name__ == "__main__":
    main()
