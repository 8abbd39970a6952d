"""Captures with enhanced fan-out: subscriptions that end, are refused and broken, over real HTTP."""

from __future__ import annotations

import contextlib
import threading
import time

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cdc.capture import capture
from ddbio.cdc.kinesis_streams import FanOutSource
from ddbio.cdc.options import CaptureOptions
from ddbio.cdc.shards import HORIZON
from ddbio.errors import NotFoundError, OptionError
from ddbio.options import parse_options
from ddbio.testing import FakeDynamoDB, Faults
from tests.cdc.tables import create_data_stream, create_table

WAIT_SECONDS = 300


@pytest.fixture(scope="module")
def fake():
    """Serve a fake that sends changes twice and late, fails some requests and breaks some connections."""
    faults = Faults(duplicate_ratio=0.2, late_ratio=0.2, error_before_ratio=0.1, reset_ratio=0.1)
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, faults=faults) as served:
        yield served


@pytest.fixture(scope="module")
def clients(fake):
    """Return clients of the fake, for tables and for data streams."""
    connected = [boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis")]
    yield connected
    for client in connected:
        client.close()


@pytest.fixture
def table(fake, clients):
    """Return a table, the ARN of its data stream of two shards, and a function that puts numbered items."""
    client, kinesis = clients
    name = create_table(client, view=None)
    arn = create_data_stream(kinesis, name)
    client.enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)

    def put(first, last):
        fake.load(name, [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(first, last)], "pk:S")

    return name, arn, put


def numbers(folder):
    """Return the numbers in the log, in order."""
    files = [str(path) for path in folder.rglob("*.parquet")]
    return sorted(ds.dataset(files).to_table(columns=["n"]).column("n").to_pylist()) if files else []


def wait_for(folder, count):
    """Wait until the log has this number of changes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while len(numbers(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert numbers(folder) == [*range(count)]


def test_each_change_is_logged_once(fake, clients, table, tmp_path):
    """Changes are logged once with renewed subscriptions, a split, and immediate restarts. Duplicates are left out."""
    _, kinesis = clients
    name, arn, put = table
    wanted = {"table": name, "dest": str(tmp_path), "source": "kinesis", "fan_out": "one", "flush_seconds": 0.2}
    options, stop = parse_options(CaptureOptions, {**wanted, "endpoint_url": fake.endpoint_url}), threading.Event()
    put(0, 40)
    thread = threading.Thread(target=capture, args=(options, stop))
    thread.start()
    try:
        wait_for(tmp_path, 40)
        # Each of the two subscriptions ends, and is renewed after its last event.
        fake.pass_time(301)
        put(40, 60)
        wait_for(tmp_path, 60)
        shard = kinesis.list_shards(StreamName=name)["Shards"][0]
        middle = str(int(shard["HashKeyRange"]["EndingHashKey"]) // 2)
        kinesis.split_shard(StreamARN=arn, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)
        put(60, 80)
        wait_for(tmp_path, 80)
    finally:
        stop.set()
        thread.join()
    assert [consumer["ConsumerName"] for consumer in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]] == [
        "one"
    ]
    put(80, 90)
    # Another subscription is refused for five seconds.
    report = ddbio.capture(**wanted, available_now=True, endpoint_url=fake.endpoint_url)
    assert (report.records, numbers(tmp_path)) == (10, [*range(90)])
    report = ddbio.capture(name, tmp_path, source="kinesis", available_now=True, endpoint_url=fake.endpoint_url)
    assert report.records == 0
    assert ddbio.verify_capture(tmp_path).is_whole


def test_who_is_taken_over_subscribes_again(fake, clients, table):
    """Another client of the same consumer ends the subscription. It is renewed, and no record is skipped."""
    _, kinesis = clients
    _, arn, put = table
    put(0, 10)
    source = FanOutSource(ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1"), arn, "two")
    bodies = []

    def read(until):
        deadline = time.monotonic() + WAIT_SECONDS
        while until() and time.monotonic() < deadline:
            for shard, iterator in list(at.items()):
                body = source.begin(iterator).result()
                if body is not None:
                    bodies.append(body)
                    at[shard] = body.rpartition(b'"NextShardIterator":"')[2].partition(b'"')[0].decode()
            time.sleep(0.01)

    try:
        at = {shard.shard_id: source.iterator(shard, HORIZON) for shard in source.shards()}
        read(lambda: b"".join(bodies).count(b'"Data"') < 10)
        consumer = kinesis.list_stream_consumers(StreamARN=arn)["Consumers"][0]["ConsumerARN"]
        shard = min(at)
        begin = {"Type": "TRIM_HORIZON"}
        taken = None
        # A connection that breaks after the request leaves a subscription, which refuses the next one for a while.
        while taken is None:
            fake.pass_time(6)
            asked = {"ConsumerARN": consumer, "ShardId": shard, "StartingPosition": begin}
            with contextlib.suppress(kinesis.exceptions.ResourceInUseException):
                taken = kinesis.subscribe_to_shard(**asked)["EventStream"]
        assert "SubscribeToShardEvent" in next(iter(taken))
        before = fake.requests()["SubscribeToShard"]
        put(10, 20)
        fake.pass_time(6)
        read(lambda: b"".join(bodies).count(b'"Data"') < 20 or fake.requests()["SubscribeToShard"] == before)
        taken.close()
    finally:
        source.close()
    assert b"".join(bodies).count(b'"Data"') >= 20


def test_consumers_are_checked(fake, table, tmp_path):
    """A consumer of another stream, a missing one, and one without Kinesis are errors."""
    name, arn, _ = table
    run = {"source": "kinesis", "available_now": True, "endpoint_url": fake.endpoint_url}
    with pytest.raises(OptionError, match="not a consumer of the data stream"):
        ddbio.capture(name, tmp_path, fan_out=f"{arn}-other/consumer/one:1", **run)
    with pytest.raises(NotFoundError, match="consumer"):
        ddbio.capture(name, tmp_path, fan_out=f"{arn}/consumer/gone:1", **run)
    with pytest.raises(OptionError, match="with source=kinesis"):
        ddbio.capture(name, tmp_path, fan_out="one", endpoint_url=fake.endpoint_url)
