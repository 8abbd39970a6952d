"""Capture a table's changes into a log; goals: ≥ 100,000 records per CPU-second, an idle capture < 2 % of a core.

The stream is that of the fake in a process of its own. Beside it a consumer by boto3 and pyarrow, over an eighth of the
changes: GetRecords as Python objects, a row a record, one Parquet file for each thousand.
"""

from __future__ import annotations

import io
import resource
import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from boto3.dynamodb.types import TypeDeserializer

import ddbio
from bench import orders
from bench.e2e import record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Iterator

_REGION = "eu-west-1"
_FEWER = 8
_IDLE_SECONDS = 10.0


def main() -> None:
    """Append one row with the median of some rounds, and what an idle capture and a restart take."""
    arguments = record.parser("capture")
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    isolate()
    rates: list[float] = []
    with FakeDynamoDB(process=True, partitions=2, burst_at_creation=0) as fake:
        # The first round compiles, imports and connects.
        for number in range(asked.rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                table = _filled(fake, f"orders-{number}", asked.items)
                run: Any = {"endpoint_url": fake.endpoint_url, "region": _REGION}
                report = ddbio.capture(table, folder, available_now=True, **run)
                _check(folder, asked.items)
                rates += [report.records / report.cpu_seconds] * bool(number)
                restart = ddbio.capture(table, folder, available_now=True, **run)
                idle = _idle(table, folder, run) if number == asked.rounds else 0.0
        peer = _consume(fake, _filled(fake, "peer", asked.items // _FEWER))
    speed = statistics.median(rates)
    figures = {
        "records_per_cpu_second": round(speed),
        "times_as_many_as_boto3": round(speed / peer, 1),
        "restart_seconds": round(restart.seconds, 2),
        "idle_share_of_a_core": round(idle, 4),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    record.append("capture", asked, figures)


def _filled(fake: FakeDynamoDB, table: str, items: int) -> str:
    client = _client(fake, "dynamodb")
    names = [part.partition(":")[0] for part in orders.KEY.split(",")]
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=[
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    fake.load(table, b"\n".join(orders.lines("mixed", items)), orders.KEY)
    return table


def _check(folder: str, items: int) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, which other benchmarks must not wait for

    found = ds.dataset(folder, partitioning="hive", ignore_prefixes=["_"]).to_table(columns=["_sequence", "_op"])
    assert found.num_rows == len(set(found.column("_sequence").to_pylist())) == items


def _idle(table: str, folder: str, run: dict[str, Any]) -> float:
    stop, began = threading.Event(), time.process_time()
    threading.Timer(_IDLE_SECONDS, stop.set).start()
    report = ddbio.capture(table, folder, stop=stop, **run)
    return (time.process_time() - began) / report.seconds


def _consume(fake: FakeDynamoDB, table: str) -> float:
    """Return records a CPU-second of a consumer by boto3."""
    streams, decode = _client(fake, "dynamodbstreams"), TypeDeserializer().deserialize
    arn = streams.list_streams(TableName=table)["Streams"][0]["StreamArn"]
    began, count = time.process_time(), 0
    for records in _replies(streams, arn):
        rows = [
            {"_op": each["eventName"], "_sequence": each["dynamodb"]["SequenceNumber"]}
            | {name: repr(decode(value)) for name, value in each["dynamodb"]["NewImage"].items()}
            for each in records
        ]
        pq.write_table(pa.Table.from_pylist(rows), io.BytesIO(), compression="zstd")
        count += len(rows)
    return count / (time.process_time() - began)


def _replies(streams: Any, arn: str) -> Iterator[list[Any]]:
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        place = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = streams.get_shard_iterator(**place)["ShardIterator"]
        while (reply := streams.get_records(ShardIterator=iterator))["Records"]:
            yield reply["Records"]
            iterator = reply["NextShardIterator"]


def _client(fake: FakeDynamoDB, service: str) -> Any:
    return boto3.client(service, endpoint_url=fake.endpoint_url, region_name=_REGION)


if __name__ == "__main__":
    main()
