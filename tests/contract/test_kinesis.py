"""Contract of reads of a Kinesis data stream, and of a table's changes in it. Backends name their known gaps."""

from __future__ import annotations

import json
import time
import uuid

import boto3
import pytest

from tests.contract.backends import build_classes

HALF = 2**127


@pytest.fixture(scope="class")
def kinesis(client):
    """Return a plain boto3 client for the data streams of the same backend."""
    keys = client._request_signer._credentials.get_frozen_credentials()
    connected = boto3.client(
        "kinesis",
        endpoint_url=client.meta.endpoint_url,
        region_name=client.meta.region_name,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
    )
    yield connected
    connected.close()


class KinesisContract:
    """Contract of the creation, reads, splits and merges of a data stream's shards."""

    @pytest.fixture
    def stream(self, kinesis):
        """Return the name of a new stream of two shards."""
        name = f"stream-{uuid.uuid4().hex}"
        kinesis.create_stream(StreamName=name, ShardCount=2)
        while kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
            time.sleep(0.05)
        yield name
        kinesis.delete_stream(StreamName=name)

    def _read(self, kinesis, name, shard_id, **position):
        position = position or {"ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(StreamName=name, ShardId=shard_id, **position)["ShardIterator"]
        return kinesis.get_records(ShardIterator=iterator)

    def _shards(self, kinesis, name):
        return kinesis.list_shards(StreamName=name)["Shards"]

    def test_records_go_to_shards_by_the_hash_of_their_key(self, kinesis, stream):
        """The shards divide all hash keys, and a record is in the shard of its hash key."""
        one, two = self._shards(kinesis, stream)
        assert (one["HashKeyRange"]["StartingHashKey"], two["HashKeyRange"]["EndingHashKey"]) == ("0", str(2**128 - 1))
        assert int(one["HashKeyRange"]["EndingHashKey"]) + 1 == int(two["HashKeyRange"]["StartingHashKey"]) == HALF
        records = [{"Data": b"low", "PartitionKey": "a", "ExplicitHashKey": "1"}]
        records += [{"Data": b"high", "PartitionKey": "a", "ExplicitHashKey": str(HALF)}]
        put = kinesis.put_records(StreamName=stream, Records=records)
        assert put["FailedRecordCount"] == 0
        assert [record["ShardId"] for record in put["Records"]] == [one["ShardId"], two["ShardId"]]
        (record,) = self._read(kinesis, stream, two["ShardId"])["Records"]
        assert (record["Data"], record["PartitionKey"]) == (b"high", "a")
        assert record["SequenceNumber"] == put["Records"][1]["SequenceNumber"]

    def test_a_shard_is_read_from_a_position(self, kinesis, stream):
        """Numbers ascend.

        An iterator starts at or after a number, or at the oldest record, and the next one continues there.
        """
        put = [
            kinesis.put_record(StreamName=stream, Data=str(n), PartitionKey="a", ExplicitHashKey="1") for n in range(3)
        ]
        numbers = [record["SequenceNumber"] for record in put]
        assert sorted(numbers, key=int) == numbers
        shard_id = put[0]["ShardId"]
        for kind, expected in (("AT_SEQUENCE_NUMBER", [b"1", b"2"]), ("AFTER_SEQUENCE_NUMBER", [b"2"])):
            position = {"ShardIteratorType": kind, "StartingSequenceNumber": numbers[1]}
            second_reply = self._read(kinesis, stream, shard_id, **position)["Records"]
            assert [record["Data"] for record in second_reply] == expected
        reply = self._read(kinesis, stream, shard_id)
        assert len(reply["Records"]) == 3
        assert reply["MillisBehindLatest"] == 0
        assert kinesis.get_records(ShardIterator=reply["NextShardIterator"])["Records"] == []

    def test_a_shard_is_split(self, kinesis, stream):
        """The parent gets an ending number, its children name it, and its records stay."""
        parent, _ = self._shards(kinesis, stream)
        kinesis.put_record(StreamName=stream, Data=b"x", PartitionKey="a", ExplicitHashKey="1")
        middle = str(int(parent["HashKeyRange"]["EndingHashKey"]) // 2)
        kinesis.split_shard(StreamName=stream, ShardToSplit=parent["ShardId"], NewStartingHashKey=middle)
        shards = {shard["ShardId"]: shard for shard in self._shards(kinesis, stream)}
        assert "EndingSequenceNumber" in shards[parent["ShardId"]]["SequenceNumberRange"]
        children = [shard for shard in shards.values() if shard.get("ParentShardId") == parent["ShardId"]]
        assert len(children) == 2
        assert [shard["Data"] for shard in self._read(kinesis, stream, parent["ShardId"])["Records"]] == [b"x"]

    def test_neighbours_are_merged(self, kinesis, stream):
        """The child names both of its parents."""
        one, two = self._shards(kinesis, stream)
        kinesis.merge_shards(StreamName=stream, ShardToMerge=one["ShardId"], AdjacentShardToMerge=two["ShardId"])
        child = next(shard for shard in self._shards(kinesis, stream) if "ParentShardId" in shard)
        assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (one["ShardId"], two["ShardId"])

    def test_a_closed_shard_ends(self, kinesis, stream):
        """The last reply of a closed shard has no next iterator, and names its children."""
        one, two = self._shards(kinesis, stream)
        kinesis.merge_shards(StreamName=stream, ShardToMerge=one["ShardId"], AdjacentShardToMerge=two["ShardId"])
        reply = self._read(kinesis, stream, one["ShardId"])
        assert reply.get("NextShardIterator") is None
        assert [child["ParentShards"] for child in reply["ChildShards"]] == [[one["ShardId"], two["ShardId"]]]

    def test_a_stream_has_a_maximum_record_size(self, kinesis, stream):
        """A record may have 1 MiB including its key, and up to 10 MiB after UpdateMaxRecordSize."""
        described = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        assert described["MaxRecordSizeInKiB"] == 1024
        with pytest.raises(kinesis.exceptions.InvalidArgumentException):
            kinesis.put_record(StreamName=stream, Data=bytes(2**20), PartitionKey="a")
        kinesis.put_record(StreamName=stream, Data=bytes(2**20 - 1), PartitionKey="a", ExplicitHashKey="1")
        kinesis.update_max_record_size(StreamARN=described["StreamARN"], MaxRecordSizeInKiB=10_240)
        described = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        assert described["MaxRecordSizeInKiB"] == 10_240
        put = kinesis.put_record(
            StreamName=stream, Data=bytes(10 * 2**20 - 1), PartitionKey="a", ExplicitHashKey=str(HALF)
        )
        (record,) = self._read(kinesis, stream, put["ShardId"])["Records"]
        assert record["Data"] == bytes(10 * 2**20 - 1)
        with pytest.raises(kinesis.exceptions.ValidationException):
            kinesis.update_max_record_size(StreamARN=described["StreamARN"], MaxRecordSizeInKiB=10_241)

    def test_a_page_of_records_has_up_to_10_mebibytes(self, kinesis, stream):
        """Two records of 5.5 MiB are two pages. They need two requests, as a request also has up to 10 MiB."""
        arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
        kinesis.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=10_240)
        record = {"Data": bytes(11 * 2**19), "PartitionKey": "a", "ExplicitHashKey": "1"}
        for _ in range(2):
            kinesis.put_records(StreamName=stream, Records=[record])
        with pytest.raises(kinesis.exceptions.InvalidArgumentException):
            kinesis.put_records(StreamName=stream, Records=[record] * 2)
        page = self._read(kinesis, stream, self._shards(kinesis, stream)[0]["ShardId"])
        assert len(page["Records"]) == 1
        assert page["NextShardIterator"]

    def test_pages_of_shards_follow_one_another(self, kinesis, stream):
        """A page has the requested number of shards, and a token for the next one."""
        page = kinesis.list_shards(StreamName=stream, MaxResults=1)
        second_page = kinesis.list_shards(NextToken=page["NextToken"])
        assert [*page["Shards"], *second_page["Shards"]] == self._shards(kinesis, stream)

    def test_changes_of_a_table_are_received(self, client, kinesis, stream, make_table):
        """Each record has the change as JSON, with both images. The table describes the destination of its changes."""
        table = make_table("pk:S")
        arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
        client.enable_kinesis_streaming_destination(TableName=table, StreamArn=arn)
        (destination,) = client.describe_kinesis_streaming_destination(TableName=table)["KinesisDataStreamDestinations"]
        assert (destination["StreamArn"], destination["DestinationStatus"]) == (arn, "ACTIVE")
        client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "1"}})
        client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "2"}})
        client.delete_item(TableName=table, Key={"pk": {"S": "a"}})
        shards = self._shards(kinesis, stream)
        replies = [self._read(kinesis, stream, record["ShardId"])["Records"] for record in shards]
        changes = [json.loads(record["Data"]) for reply in replies for record in reply]
        assert [record["eventName"] for record in changes] == ["INSERT", "MODIFY", "REMOVE"]
        assert {record["tableName"] for record in changes} == {table}
        change = changes[1]["dynamodb"]
        assert (change["OldImage"]["n"], change["NewImage"]["n"]) == ({"N": "1"}, {"N": "2"})
        assert "NewImage" not in changes[2]["dynamodb"]

    def test_records_are_sent_to_a_consumer(self, kinesis, stream):
        """A consumer is registered once, and a subscription gets the records after a position, then new ones."""
        arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
        put = [
            kinesis.put_record(StreamName=stream, Data=str(n), PartitionKey="a", ExplicitHashKey="1") for n in range(3)
        ]
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="reader")["Consumer"]["ConsumerARN"]
        with pytest.raises(kinesis.exceptions.ResourceInUseException):
            kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="reader")
        while (
            kinesis.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"]["ConsumerStatus"] != "ACTIVE"
        ):
            time.sleep(0.05)
        begin = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": put[0]["SequenceNumber"]}
        subscribed = kinesis.subscribe_to_shard(
            ConsumerARN=consumer, ShardId=put[0]["ShardId"], StartingPosition=begin
        )["EventStream"]
        received, last = [], {}
        for event in subscribed:
            last = event["SubscribeToShardEvent"]
            received += [record["Data"] for record in last["Records"]]
            if len(received) == 2:
                kinesis.put_record(StreamName=stream, Data=b"3", PartitionKey="a", ExplicitHashKey="1")
            if len(received) >= 3:
                break
        subscribed.close()
        assert received[:3] == [b"1", b"2", b"3"]
        assert int(last["ContinuationSequenceNumber"]) >= int(put[-1]["SequenceNumber"])
        assert last["MillisBehindLatest"] == 0
        kinesis.deregister_stream_consumer(ConsumerARN=consumer)
        with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
            kinesis.subscribe_to_shard(ConsumerARN=consumer, ShardId=put[0]["ShardId"], StartingPosition=begin)


TestFake, TestMoto = build_classes(
    KinesisContract,
    ("fake", "moto"),
    moto={
        "moto names no children at the end of a shard": ("test_a_closed_shard_ends",),
        "moto's token of a page of shards is refused": ("test_pages_of_shards_follow_one_another",),
        "moto has no maximum size of records": (
            "test_a_stream_has_a_maximum_record_size",
            "test_a_page_of_records_has_up_to_10_mebibytes",
        ),
        "moto has no Kinesis destinations of tables": ("test_changes_of_a_table_are_received",),
        "moto sends no records to consumers": ("test_records_are_sent_to_a_consumer",),
    },
)
