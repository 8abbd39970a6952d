"""Captures of a served Kinesis data stream: duplicates, late changes, other tables, reshards."""

from __future__ import annotations

import itertools
import uuid

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB, Faults
from tests.cdc.tables import create_data_stream, create_table

KEY = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}


@pytest.fixture(scope="module")
def fake():
    """Serve one fake for all tests of this module. One third of the changes is repeated, one third is late."""
    with FakeDynamoDB(
        partitions=2, burst_at_creation=1.0, faults=Faults(duplicate_ratio=0.3, late_ratio=0.3)
    ) as served:
        yield served


@pytest.fixture(scope="module")
def clients(fake):
    """Return clients of the fake, for tables and for data streams."""
    connected = [boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis")]
    yield connected
    for client in connected:
        client.close()


@pytest.fixture
def make_table(clients):
    """Return a function that creates tables with data streams."""
    client, _ = clients

    def make(*arns):
        name = create_table(client, view=None)
        for arn in arns:
            client.enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)
        return name

    return make


@pytest.fixture
def make_stream(clients):
    """Return a function that creates data streams of two shards."""
    _, kinesis = clients
    return lambda: create_data_stream(kinesis, f"stream-{uuid.uuid4().hex}")


def test_each_change_is_logged_once_and_in_order(fake, clients, make_table, make_stream, tmp_path):
    """Duplicates and another table's changes are left out, a split is followed, and numbers order an item's changes."""
    client, kinesis = clients
    arn = make_stream()
    table, other = make_table(arn), make_table(arn)
    run = {"source": "kinesis", "available_now": True, "old_image": True, "endpoint_url": fake.endpoint_url}
    records = 0
    for part in range(2):
        for number in range(part * 60, part * 60 + 60):
            client.put_item(TableName=table, Item={"pk": {"S": str(number % 7)}, "n": {"N": str(number)}})
            client.put_item(TableName=other, Item={"pk": {"S": "x"}, "n": {"N": str(number)}})
        records += ddbio.capture(table, tmp_path, **run).records
        shard = kinesis.list_shards(StreamName=arn.rpartition("/")[2])["Shards"][0]
        middle = str(int(shard["HashKeyRange"]["EndingHashKey"]) // 2)
        if not part:
            kinesis.split_shard(StreamARN=arn, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)
    client.delete_item(TableName=table, Key={"pk": {"S": "0"}})
    # Late changes arrive with further reads.
    for _ in range(2):
        records += ddbio.capture(table, tmp_path, **run).records
    rows = ds.dataset(tmp_path, partitioning="hive", ignore_prefixes=["_"]).to_table().to_pylist()
    assert len(rows) == records == len({row["_event_id"] for row in rows}) == 121
    by_key = {}
    for row in sorted(rows, key=lambda row: row["_sequence"]):
        by_key.setdefault(row["pk"], []).append(row)
    for changes in by_key.values():
        for before, after in itertools.pairwise(changes):
            assert after["_old_image"]["n"] == before["n"]
    assert [row["_op"] for row in by_key["0"]][-2:] == ["MODIFY", "REMOVE"]


def test_a_capture_takes_the_changes_of_its_table_alone(tmp_path):
    """Binary keys, sets and nested values are unchanged. Records of other producers are counted."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client, kinesis = (boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis"))
        arn = create_data_stream(kinesis, "changes", 1)
        for name in ("orders", "users"):
            create_table(client, name, keys=["pk:B"], view=None)
            client.enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)
        keys = [b"\xff\x00", b"abcd", b"QUJD", b"UVVKRA=="]
        for key in keys:
            deep = {"L": [{"M": {"x": {"B": key}}}]}
            item = {"pk": {"B": key}, "set": {"BS": [b"\x00", b"abcd"]}, "deep": deep}
            client.put_item(TableName="orders", Item=item)
            client.put_item(TableName="users", Item=item)
        for data in (b"hello", b'{"event":"click"}', b""):
            kinesis.put_record(StreamARN=arn, PartitionKey="x", Data=data)
        run = {"source": "kinesis", "available_now": True, "endpoint_url": fake.endpoint_url}
        report = ddbio.capture("orders", tmp_path, **run)
    assert (report.records, report.foreign) == (4, 7)
    rows = ds.dataset(tmp_path, partitioning="hive", ignore_prefixes=["_"]).to_table().to_pylist()
    assert [row["pk"] for row in rows] == keys
    assert [row["deep"] for row in rows] == [[{"x": key}] for key in keys]
    assert {tuple(sorted(row["set"])) for row in rows} == {(b"\x00", b"abcd")}


@pytest.mark.parametrize("fan_out", [None, "consumer"])
def test_large_records_of_other_producers_are_counted(fan_out, tmp_path):
    """Records of 2 and 9 MiB between the changes of the table neither hide a change nor end a batch."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client, kinesis = (boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis"))
        arn = create_data_stream(kinesis, "changes", 1)
        kinesis.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=10_240)
        create_table(client, "orders", view=None)
        client.enable_kinesis_streaming_destination(TableName="orders", StreamArn=arn)
        for number, data in enumerate([bytes(2 << 20), b'{"dynamodb":"orders","x":"%s"}' % (b"x" * (9 << 20))]):
            client.put_item(TableName="orders", Item={"pk": {"S": str(number)}})
            kinesis.put_record(StreamARN=arn, PartitionKey="x", Data=data)
        client.put_item(TableName="orders", Item={"pk": {"S": "2"}})
        run = {"source": "kinesis", "available_now": True, "endpoint_url": fake.endpoint_url, "flush_seconds": 60}
        report = ddbio.capture("orders", tmp_path, fan_out=fan_out, **run)
    assert (report.records, report.foreign, report.batches) == (3, 2, 1)
    rows = ds.dataset(tmp_path, partitioning="hive", ignore_prefixes=["_"]).to_table().to_pylist()
    assert [row["pk"] for row in rows] == ["0", "1", "2"]


def test_a_change_above_a_mebibyte_needs_a_larger_record_size(tmp_path):
    """JSON of an item can be larger than the item. Such a change is skipped, or captured if the stream accepts it."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client, kinesis = (boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis"))
        arn = create_data_stream(kinesis, "changes", 1)
        create_table(client, "orders", view=None)
        client.enable_kinesis_streaming_destination(TableName="orders", StreamArn=arn)
        flags = {"L": [{"BOOL": False}] * 100_000}
        for number, size_kib in enumerate([1_024, 10_240]):
            kinesis.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=size_kib)
            client.put_item(TableName="orders", Item={"pk": {"S": str(number)}, "flags": flags})
        run = {"source": "kinesis", "available_now": True, "endpoint_url": fake.endpoint_url}
        assert ddbio.capture("orders", tmp_path, **run).records == 1
    (row,) = ds.dataset(tmp_path, partitioning="hive", ignore_prefixes=["_"]).to_table().to_pylist()
    assert (row["pk"], len(row["flags"])) == ("1", 100_000)


def test_the_data_stream_is_found_by_the_table(fake, make_table, make_stream, tmp_path):
    """A table without a stream, or with several, is an error. A name selects one."""
    run = {"source": "kinesis", "available_now": True, "endpoint_url": fake.endpoint_url}
    with pytest.raises(OptionError, match="go to no Kinesis data stream"):
        ddbio.capture(make_table(), tmp_path, **run)
    one, two = make_stream(), make_stream()
    table = make_table(one, two)
    with pytest.raises(OptionError, match="choose one with stream"):
        ddbio.capture(table, tmp_path, **run)
    with pytest.raises(OptionError, match="do not go to 'third'"):
        ddbio.capture(table, tmp_path, stream="third", **run)
    assert ddbio.capture(table, tmp_path, stream=two.rpartition("/")[2], **run).records == 0
    with pytest.raises(OptionError, match="with source=kinesis"):
        ddbio.capture(table, tmp_path, stream=two, endpoint_url=fake.endpoint_url)
