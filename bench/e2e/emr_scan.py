"""Scan to Parquet (zstd) from Spark tasks, and by the EMR connector; goal: ≥ 10 × its rows per CPU second."""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, pairs, serving
from bench.decoders import schema_of
from bench.e2e import processes, record, spark_files
from bench.e2e.emr.connector import Connector, MissingConnectorError
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

# It was slowest with one and with very many, and equally fast with any number between.
SEGMENTS = 4
DDBIO, CONNECTOR = spark_files.DIRECT, "emr-dynamodb-hadoop 5.0.0 → Row → write.parquet"


def main() -> int:
    """Append a row: both warm, in turns, each with a separate JVM. The CPU time of ddbio's driver counts too."""
    arguments = record.parser("emr_scan")
    arguments.add_argument("--warm-ups", type=int, default=spark_files.WARM_UPS)
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    table = serving.serve("orders", data.scaled(spark_files.ITEMS))
    try:
        # Started before the clock, so its time does not count.
        connector = Connector(table.endpoint_url, spark_files.CORES)
    except MissingConnectorError as missing:
        sys.stderr.write(f"skipped: {missing}\n")
        return 0
    with connector, tempfile.TemporaryDirectory() as folder:
        figures = measure(table, Path(folder), connector, asked)
    serving.stop()
    record.append("emr_scan", asked, figures)
    return 0


def measure(table: serving.Table, folder: Path, connector: Connector, asked: Any) -> dict[str, Any]:
    """Return rows per CPU second of both methods, and their ratio."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415

    schema = schema_of(table.shape)
    # Only ddbio has the last column, which is empty.
    spark_schema = to_spark_schema(pa.schema(list(schema)[:-1])).json()
    clock = processes.TreeClock()
    session = start_session(f"local[{spark_files.CORES}]", {})
    try:
        direct = functools.partial(spark_files.write_direct, table, folder, schema, [])
        seconds: pairs.Seconds = {DDBIO: [], CONNECTOR: []}
        ways: dict[str, Callable[[], float]] = {
            CONNECTOR: lambda: connector.scan(table.name, folder / "connector", SEGMENTS, spark_schema),
            DDBIO: lambda: pairs.interleave({DDBIO: direct}, 1, clock=clock, collecting=True)[DDBIO][0],
        }
        for number in range(asked.warm_ups + asked.rounds):
            for name in pairs.turned(list(ways), number):
                seconds[name].append(ways[name]())
    finally:
        session.stop()
    check(table, folder)
    seconds = {name: times[asked.warm_ups :] for name, times in seconds.items()}
    return {
        "rows": table.count,
        "item_json_bytes": table.line_bytes,
        "cpu_seconds": {name: [round(time, 2) for time in times] for name, times in seconds.items()},
        "rows_per_cpu_second": {name: round(table.count / statistics.median(times)) for name, times in seconds.items()},
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, table.line_bytes), 1),
        "times_as_fast_as": record.rounded({CONNECTOR: pairs.speed_ratio(seconds, DDBIO, CONNECTOR)}),
    }


def check(table: serving.Table, folder: Path) -> None:
    """Raise unless the files contain the same rows."""
    direct, theirs = (spark_files.read_rows(folder / name, table) for name in ("direct", "connector"))
    assert direct.num_rows == table.count
    direct = direct.drop_columns(RESCUE_NAME)
    assert theirs.select(direct.column_names).cast(direct.schema).equals(direct)


if __name__ == "__main__":
    sys.exit(main())
