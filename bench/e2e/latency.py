"""Wall-clock time of a scan, a write and a load with response latencies of 0, 5 and 20 ms, compared with boto3.

Client and server share this machine, and the server is Python: without latency the server is the bottleneck.
"""

from __future__ import annotations

import functools
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench import data, decoders, orders, pairs
from bench.e2e import record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

MILLISECONDS = (0, 5, 20)
ITEMS, WRITTEN, FEWER = 60_000, 20_000, 4
SCAN, CLIENT = "ddbio.scan_batches", "boto3 client.scan"
WRITE, LOAD, BATCH_WRITER = "ddbio.write_table", "ddbio.load_files", "boto3 batch_writer"


def main() -> None:
    """Append a row: each method at each latency, in turns."""
    arguments = record.parser("latency")
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    isolate()
    record.append(
        "latency",
        asked,
        {str(milliseconds): measure(milliseconds / 1000, asked.rounds) for milliseconds in MILLISECONDS},
    )


def measure(latency_seconds: float, rounds: int) -> dict[str, float]:
    """Return items per second of wall-clock time, by method."""
    count, written = data.scaled(ITEMS), data.scaled(WRITTEN)
    rows = ddbio.from_dynamodb_json(b"\n".join(orders.lines("mixed", written)), orders.schema_of("mixed"))
    with TemporaryDirectory() as folder, FakeDynamoDB(process=True, latency_seconds=latency_seconds) as fake:
        pq.write_table(pa.Table.from_batches([rows.drop_columns(["_rescue"])]), Path(folder, "rows.parquet"))
        fake.load("orders", orders.lines("mixed", count), orders.KEY)
        fake.load("rows", b"", orders.KEY)
        fewer = max(1, written // FEWER)
        ways: dict[str, tuple[Callable[[], int], int]] = {
            SCAN: (functools.partial(_scan, fake.endpoint_url), count),
            CLIENT: (functools.partial(_client_scan, fake.endpoint_url), count),
            WRITE: (functools.partial(_write, fake.endpoint_url, rows), written),
            LOAD: (functools.partial(_load, fake.endpoint_url, folder), written),
            BATCH_WRITER: (functools.partial(_batch_writer, fake.endpoint_url, _plain(fewer)), fewer),
        }
        for way, expected in ways.values():
            assert way() == expected
        seconds = pairs.interleave(
            {name: way for name, (way, _) in ways.items()}, rounds, clock=time.perf_counter, collecting=True
        )
    return {name: round(ways[name][1] / statistics.median(times)) for name, times in seconds.items()}


def _scan(url: str) -> int:
    schema = orders.schema_of("mixed")
    return sum(batch.num_rows for batch in ddbio.scan_batches("orders", endpoint_url=url, schema=schema))


def _client_scan(url: str) -> int:
    client = boto3.client("dynamodb", endpoint_url=url)
    return sum(len(page["Items"]) for page in client.get_paginator("scan").paginate(TableName="orders"))


def _write(url: str, rows: pa.RecordBatch) -> int:
    return ddbio.write_table(rows.drop_columns(["_rescue"]), "rows", endpoint_url=url).written


def _load(url: str, folder: str) -> int:
    return ddbio.load_files(folder, "rows", endpoint_url=url, engine="local").written


def _batch_writer(url: str, items: list[dict[str, Any]]) -> int:
    resource: Any = boto3.resource("dynamodb", endpoint_url=url)
    with resource.Table("rows").batch_writer() as writer:
        for item in items:
            writer.put_item(Item=item)
    return len(items)


def _plain(count: int) -> list[dict[str, Any]]:
    deserialize = decoders.Deserializer().deserialize
    return [{name: deserialize(value) for name, value in item.items()} for item in orders.items("mixed", count)]


if __name__ == "__main__":
    main()
