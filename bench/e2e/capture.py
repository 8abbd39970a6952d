"""Capture a table's changes into a log, from its stream and from Kinesis; speed, lag, memory, idle share, restart.

The server is the fake in a separate process. Speed is that of ``ddbio.capture`` in this process, including the start.
Lag, memory and the idle share are those of ``ddbio capture`` as a process. It is compared with a consumer of the stream
with boto3 and pyarrow, over an eighth of the changes: GetRecords as Python objects, a row per record, one Parquet file
per 1,000 records.
"""

from __future__ import annotations

import io
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from boto3.dynamodb.types import TypeDeserializer

import ddbio
from bench import orders, paced
from bench.e2e import processes, record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = ("streams", "kinesis")
_REGION = "eu-west-1"
_FEWER = 8
_IDLE_SECONDS = 10.0
_SETTLED_SECONDS, _LOOK_SECONDS = 5.0, 0.02


def main() -> None:
    """Append a row with the median of the rounds of each source."""
    arguments = record.parser("capture")
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--rate", type=int, default=10_000, help="changes a second whose lag is measured")
    arguments.add_argument("--seconds", type=int, default=15, help="how long they come")
    arguments.add_argument("--only", default="", help="one of the sources; prints it, and keeps no row")
    asked = arguments.parse_args()
    isolate()
    with FakeDynamoDB(process=True, partitions=2, burst_at_creation=0) as fake:
        figures_by_source = {source: _measure(fake, source, asked) for source in SOURCES if asked.only in source}
        peer = _consume(fake, _filled(fake, "peer", "streams", orders.lines("mixed", asked.items // _FEWER)))
    figures = figures_by_source.get("streams", {})
    if figures:
        figures["times_as_many_as_boto3"] = round(figures["records_per_cpu_second"] / peer, 1)
    record.append(
        "capture",
        asked,
        figures | ({"kinesis": figures_by_source["kinesis"]} if "kinesis" in figures_by_source else {}),
    )


def _measure(fake: FakeDynamoDB, source: str, asked: Any) -> dict[str, Any]:
    rates, run = list[float](), _run(fake, source)
    # The first round compiles, imports and connects.
    for number in range(asked.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            table = _filled(fake, f"{source}-{number}", source, orders.lines("mixed", asked.items))
            report = ddbio.capture(table, folder, available_now=True, **run)
            _check(folder, asked.items)
            rates += [report.records / report.cpu_seconds] * bool(number)
    with tempfile.TemporaryDirectory() as folder:
        _, peak = _capture(fake, table, source, folder)
        _check(folder, asked.items)
        restart, _ = _capture(fake, table, source, folder)
        idle = _idle(fake, table, source, folder)
    with tempfile.TemporaryDirectory() as folder:
        lag = _lag(fake, source, folder, asked)
    return {
        "records_per_cpu_second": round(statistics.median(rates)),
        "restart_seconds": round(restart, 2),
        "idle_share_of_a_core": round(idle, 4),
        "lag_seconds": round(lag, 2),
        "peak_mb": round(peak),
    }


def _run(fake: FakeDynamoDB, source: str) -> dict[str, Any]:
    return {"endpoint_url": fake.endpoint_url, "region": _REGION, "source": source}


def _filled(fake: FakeDynamoDB, table: str, source: str, lines: list[bytes]) -> str:
    """Create and load a table, so that its changes are in its stream, or in a data stream of eight shards."""
    client = _client(fake, "dynamodb")
    names = [part.partition(":")[0] for part in orders.KEY.split(",")]
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=[
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
        ],
        **({"StreamSpecification": stream} if source == "streams" else {}),
    )
    if source == "kinesis":
        kinesis = _client(fake, "kinesis")
        # Each has a limit of two megabytes per second, which should not delay the run.
        kinesis.create_stream(StreamName=table, ShardCount=8)
        described = kinesis.describe_stream_summary(StreamName=table)["StreamDescriptionSummary"]
        client.enable_kinesis_streaming_destination(
            TableName=table,
            StreamArn=described["StreamARN"],
            EnableKinesisStreamingConfiguration={"ApproximateCreationDateTimePrecision": "MICROSECOND"},
        )
    fake.load(table, b"\n".join(lines), orders.KEY)
    return table


def _check(folder: str, items: int) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, which would delay other benchmarks

    captured = ds.dataset(folder, partitioning="hive", ignore_prefixes=["_"]).to_table(columns=["_sequence", "_op"])
    assert captured.num_rows == len(set(captured.column("_sequence").to_pylist())) == items


def _command(endpoint_url: str, table: str, source: str, folder: str) -> list[str]:
    words = ["capture", table, folder, "--source", source, "--endpoint-url", endpoint_url, "--region", _REGION]
    return [sys.executable, "-m", "ddbio", *words, "--json"]


def _capture(fake: FakeDynamoDB, table: str, source: str, folder: str) -> tuple[float, float]:
    """Capture all changes in a process. Return its seconds, and its peak resident memory in MiB."""
    began = time.monotonic()
    process = subprocess.Popen(
        [*_command(fake.endpoint_url, table, source, folder), "--available-now"], stdout=subprocess.DEVNULL
    )
    peak = 0.0
    # At its end the system's peak includes the memory of this process, which it was forked from.
    while process.poll() is None:
        peak = max(peak, processes.peak_mebibytes(process.pid))
        time.sleep(_LOOK_SECONDS)
    assert process.returncode == 0
    return time.monotonic() - began, peak


def _idle(fake: FakeDynamoDB, table: str, source: str, folder: str) -> float:
    """Return the share of a core that a process uses without changes."""
    process = subprocess.Popen(_command(fake.endpoint_url, table, source, folder), stdout=subprocess.DEVNULL)
    time.sleep(_SETTLED_SECONDS)
    before = processes.cpu_seconds([process.pid])
    time.sleep(_IDLE_SECONDS)
    used = processes.cpu_seconds([process.pid]) - before
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    return used / _IDLE_SECONDS


def _lag(fake: FakeDynamoDB, source: str, folder: str, asked: Any) -> float:
    """Capture changes at a steady rate. Return the age at which 99 % of them were in the log."""
    count = asked.rate * asked.seconds
    table = _filled(fake, f"{source}-lag", source, _numbered(orders.lines("mixed", count)))
    stream = _stream_of(fake, table) if source == "streams" else table
    with paced.serving(paced.PacedStream(fake.endpoint_url, source, stream, asked.rate)) as changes:
        assert changes.fill() == count
        process = subprocess.Popen(_command(changes.endpoint_url, table, source, folder), stdout=subprocess.DEVNULL)
        time.sleep(_SETTLED_SECONDS)
        changes.began_at = time.time()
        time.sleep(asked.seconds + _SETTLED_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    seen = [change for path in Path(folder).glob("year=*/**/*.parquet") for change in _captured_in(path)]
    assert len({number for number, _ in seen}) == len(seen) == count
    return sorted(at - changes.visible_at(number) for number, at in seen)[count * 99 // 100]


def _numbered(lines: list[bytes]) -> list[bytes]:
    """Return orders with their number."""
    name = paced.NUMBER.encode()
    return [b'{"%s":{"N":"%d"},%s' % (name, number, line[1:]) for number, line in enumerate(lines)]


def _captured_in(path: Path) -> Iterator[tuple[int, float]]:
    """Yield the number of each change of a file, and the time of the file's rename."""
    at = path.stat().st_ctime
    for number in pq.read_table(path, columns=[paced.NUMBER], partitioning=None).column(0).to_pylist():
        yield int(number), at


def _consume(fake: FakeDynamoDB, table: str) -> float:
    """Return the records per CPU second of a consumer with boto3."""
    streams, decode = _client(fake, "dynamodbstreams"), TypeDeserializer().deserialize
    arn = _stream_of(fake, table)
    began, count = time.process_time(), 0
    for records in _replies(streams, arn):
        rows = [
            {"_op": record["eventName"], "_sequence": record["dynamodb"]["SequenceNumber"]}
            | {name: repr(decode(value)) for name, value in record["dynamodb"]["NewImage"].items()}
            for record in records
        ]
        pq.write_table(pa.Table.from_pylist(rows), io.BytesIO(), compression="zstd")
        count += len(rows)
    return count / (time.process_time() - began)


def _stream_of(fake: FakeDynamoDB, table: str) -> str:
    streams = _client(fake, "dynamodbstreams").list_streams(TableName=table)["Streams"]
    return str(streams[0]["StreamArn"])


def _replies(streams: Any, arn: str) -> Iterator[list[Any]]:
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        request = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = streams.get_shard_iterator(**request)["ShardIterator"]
        while (reply := streams.get_records(ShardIterator=iterator))["Records"]:
            yield reply["Records"]
            iterator = reply["NextShardIterator"]


def _client(fake: FakeDynamoDB, service: str) -> Any:
    return boto3.client(service, endpoint_url=fake.endpoint_url, region_name=_REGION)


if __name__ == "__main__":
    main()
