"""Read a table into Spark, compared with a minimal data source of the same Arrow batches; goal: ≥ 0.9 of it.

The minimal source maps files of Arrow IPC and yields their batches, so that only Spark's path from a Python worker to
the JVM remains. It does not fetch or decode, so these two steps are measured separately and added.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ddbio
from bench import data, orders, pairs, serving
from bench.e2e import processes, record
from bench.steps import Resources, Steps
from ddbio.items.schema.file import schema_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

ITEMS = 300_000
TASKS = 2
SEGMENTS = 4
# Until then the JVM still compiles.
WARM_UPS = 5
DDBIO, BARE = "spark.read.format('ddbio')", "bare Arrow source"
STEPS = ("fetch", "decode")


def main() -> None:
    """Append a row: both sources and the steps, warm, in turns, in one session; CPU of driver, JVM and workers."""
    arguments = record.parser("spark_source")
    arguments.add_argument("--warm-ups", type=int, default=WARM_UPS)
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    count = data.scaled(ITEMS)
    url = serving.serve_orders(count)
    # Created before Spark and after the server: the former is counted, the latter is not.
    clock = processes.TreeClock()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(url, count, Path(folder), clock, asked)
    serving.stop()
    record.append("spark_source", asked, figures)


def measure(url: str, count: int, folder: Path, clock: processes.TreeClock, asked: Any) -> dict[str, Any]:
    """Return the CPU seconds of each, and the ratio of the minimal source plus the steps to ddbio."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    resources = Resources(lines=folder, parquet=folder, export=folder, increment=folder, read_url=url, write_url=url,
                    table="orders")  # fmt: skip
    steps = Steps(resources, few=0)
    session = start_session(f"local[{TASKS}]", {})
    try:
        ddbio.register(session)
        frames = {DDBIO: read_table(session, url)}
        frames[BARE] = read_files(session, write_batches(url, frames[DDBIO], folder), frames[DDBIO])
        # The batches are the same; the JVM discards the timed ones.
        assert [frame.count() for frame in frames.values()] == [count, count]
        assert frames[DDBIO].exceptAll(frames[BARE]).isEmpty()
        ways: dict[str, Any] = {name: functools.partial(read_and_discard, frame) for name, frame in frames.items()}
        ways |= {name: steps.ways[name] for name in STEPS}
        pairs.interleave(ways, asked.warm_ups)
        seconds = pairs.interleave(ways, asked.rounds, clock=clock, collecting=True)
    finally:
        session.stop()
    medians = {name: median(times) for name, times in seconds.items()}
    return {
        "rows": count,
        "cpu_seconds": {name: [round(time, 2) for time in times] for name, times in seconds.items()},
        "rows_per_cpu_second": round(count / medians[DDBIO]),
        "share_of_bare": round((medians[BARE] + sum(medians[name] for name in STEPS)) / medians[DDBIO], 3),
    }


def read_table(session: SparkSession, url: str) -> DataFrame:
    """Return the orders as a DataFrame that reads them again each time, with given columns."""
    reader = session.read.format("ddbio").option("table", "orders").option("endpointUrl", url)
    columns = schema_to_json(orders.schema_of("mixed"))
    return reader.option("segments", SEGMENTS).option("tasks", TASKS).option("schema", columns).load()


def read_and_discard(frame: DataFrame) -> None:
    """Let Spark read all columns of all rows, without writing them."""
    frame.write.format("noop").mode("overwrite").save()


def write_batches(url: str, frame: DataFrame, folder: Path) -> list[str]:
    """Write the batches of ddbio's source into files of Arrow IPC, one per task."""
    from ddbio.spark.reading import fit_batch, slice_batch  # noqa: PLC0415
    from ddbio.spark.types import to_arrow_schema  # noqa: PLC0415

    columns = to_arrow_schema(frame.schema).remove_metadata()
    scanned = ddbio.scan_batches("orders", schema=orders.schema_of("mixed"), segments=SEGMENTS, endpoint_url=url)
    paths = [str(folder / f"{number}.arrow") for number in range(TASKS)]
    writers = [pa.ipc.new_file(path, columns) for path in paths]
    for number, batch in enumerate(scanned):
        for part in slice_batch(fit_batch(batch, columns)):
            writers[number % TASKS].write_batch(part)
    for writer in writers:
        writer.close()
    return paths


def read_files(session: SparkSession, paths: list[str], like: DataFrame) -> DataFrame:
    """Return the batches of files as a DataFrame, by a data source that does nothing else."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: PLC0415

    schema = like.schema

    @dataclass
    class File(InputPartition):  # type: ignore[misc]
        path: str

    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> list[File]:
            return [File(path) for path in paths]

        def read(self, partition: File) -> Iterator[pa.RecordBatch]:
            with pa.ipc.open_file(pa.memory_map(partition.path)) as batches:
                for number in range(batches.num_record_batches):
                    yield batches.get_batch(number)

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "bare-arrow"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Reader:  # noqa: ARG002 - by this name
            return Reader()

    session.dataSource.register(Source)
    return session.read.format("bare-arrow").load()


if __name__ == "__main__":
    main()
