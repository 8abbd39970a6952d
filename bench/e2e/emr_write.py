"""Write the same items into the same endpoint as the EMR connector; goal: ≥ 3 × its items per CPU second."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import boto3

import ddbio
from bench import data, pairs, serving
from bench.e2e import record
from bench.e2e.emr.connector import Connector, MissingConnectorError
from bench.e2e.spark_files import WARM_UPS
from bench.e2e.write import ITEM_BYTES, TEXT_BYTES, rows_of
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

ITEMS = 100_000
CORES = 2
DDBIO, CONNECTOR = "ddbio.write_table", "emr-dynamodb-hadoop 5.0.0 DynamoDBOutputFormat"


def main() -> int:
    """Append a row: both warm, in turns, with the same server; all threads of the writing process count."""
    arguments = record.parser("emr_write")
    arguments.add_argument("--warm-ups", type=int, default=WARM_UPS)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lanes", type=int, default=4)
    asked = arguments.parse_args()
    serving.isolate()
    with FakeDynamoDB(process=True) as fake:
        try:
            connector = Connector(fake.endpoint_url, CORES)
        except MissingConnectorError as missing:
            sys.stderr.write(f"skipped: {missing}\n")
            return 0
        with connector:
            figures = measure(fake, connector, asked)
    record.append("emr_write", asked, figures)
    return 0


def measure(fake: FakeDynamoDB, connector: Connector, asked: Any) -> dict[str, Any]:
    """Return items per CPU second of both methods, and their ratio."""
    count = data.scaled(ITEMS)
    rows = rows_of(count)
    seconds: dict[str, list[float]] = {DDBIO: [], CONNECTOR: []}
    for number in range(asked.warm_ups + asked.rounds):
        ours, theirs = f"ours-{number}", f"theirs-{number}"
        ways: dict[str, tuple[str, Callable[[str], float]]] = {
            DDBIO: (ours, lambda table: write_table(rows, table, fake, asked.lanes)),
            CONNECTOR: (theirs, lambda table: connector.write(table, count, TEXT_BYTES)),
        }
        for name in pairs.turned(list(ways), number):
            seconds[name].append(into(fake, *ways[name]))
        check(fake, (ours, theirs), rows)
    seconds = {name: times[asked.warm_ups :] for name, times in seconds.items()}
    rates = {name: count / statistics.median(times) for name, times in seconds.items()}
    return {
        "items": count,
        "item_bytes": ITEM_BYTES,
        "cpu_seconds": {name: [round(time, 3) for time in times] for name, times in seconds.items()},
        "items_per_cpu_second": record.rounded(rates, 0),
        "times_as_many_as": record.rounded({CONNECTOR: rates[DDBIO] / rates[CONNECTOR]}, 2),
    }


def into(fake: FakeDynamoDB, table: str, write: Callable[[str], float]) -> float:
    """Return the cost of writing into a new table."""
    fake.load(table, b"", "pk:S")
    return write(table)


def write_table(rows: pa.Table, table: str, fake: FakeDynamoDB, lanes: int) -> float:
    """Return the CPU seconds of this process."""
    gc.collect()
    began = time.process_time()
    ddbio.write_table(rows, table, endpoint_url=fake.endpoint_url, lanes=lanes)
    return time.process_time() - began


def check(fake: FakeDynamoDB, tables: tuple[str, str], rows: pa.Table) -> None:
    """Raise unless the tables contain the same items. Drop the tables."""
    client: Any = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    for table in tables:
        stored = ddbio.read_table(table, endpoint_url=fake.endpoint_url, schema=rows.schema).sort_by("pk")
        assert stored.select(rows.column_names).cast(rows.schema).equals(rows)
        client.delete_table(TableName=table)


if __name__ == "__main__":
    sys.exit(main())
