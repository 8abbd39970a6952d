"""Contract of a table's stream, and of reads of its shards. Backends name their known gaps."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.contract.backends import build_classes

VIEWS = {
    "KEYS_ONLY": set(),
    "NEW_IMAGE": {"NewImage"},
    "OLD_IMAGE": {"OldImage"},
    "NEW_AND_OLD_IMAGES": {"NewImage", "OldImage"},
}
DRAINS = 20


@pytest.fixture(scope="class")
def streams(client):
    """Return a plain boto3 client for the streams of the same backend."""
    keys = client._request_signer._credentials.get_frozen_credentials()
    connected = boto3.client(
        "dynamodbstreams",
        endpoint_url=client.meta.endpoint_url,
        region_name=client.meta.region_name,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
        config=Config(parameter_validation=False),
    )
    yield connected
    connected.close()


class DynamoContract:
    """Contract of a table's stream, and of reads of its shards."""

    def _table(self, client, make_table, view="NEW_AND_OLD_IMAGES"):
        table = make_table("pk:S", StreamSpecification={"StreamEnabled": True, "StreamViewType": view})
        return table, client.describe_table(TableName=table)["Table"]["LatestStreamArn"]

    def _records(self, streams, arn):
        records = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            position = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            iterator = streams.get_shard_iterator(**position)["ShardIterator"]
            for _ in range(DRAINS):
                reply = streams.get_records(ShardIterator=iterator)
                records += reply["Records"]
                iterator = reply.get("NextShardIterator")
                if iterator is None or not reply["Records"]:
                    break
        return sorted(records, key=lambda record: int(record["dynamodb"]["SequenceNumber"]))

    def _refusal(self, streams, operation, **members):
        with pytest.raises(ClientError) as caught:
            getattr(streams, operation)(**members)
        return caught.value.response["Error"]["Code"]

    def test_puts_updates_and_deletes_are_recorded(self, client, streams, make_table):
        """Each change is one record, with complete images as items and ascending numbers."""
        table, arn = self._table(client, make_table)
        key = {"pk": {"S": "a"}}
        client.put_item(TableName=table, Item={**key, "n": {"N": "1"}})
        client.put_item(TableName=table, Item={**key, "n": {"N": "2"}, "b": {"B": b"\x00\xff"}})
        client.delete_item(TableName=table, Key=key)
        records = self._records(streams, arn)
        assert [record["eventName"] for record in records] == ["INSERT", "MODIFY", "REMOVE"]
        images = [[record["dynamodb"].get(name) for name in ("OldImage", "NewImage")] for record in records]
        one, two = {**key, "n": {"N": "1"}}, {**key, "n": {"N": "2"}, "b": {"B": b"\x00\xff"}}
        assert images == [[None, one], [one, two], [two, None]]
        assert all(record["dynamodb"]["Keys"] == key and "userIdentity" not in record for record in records)

    @pytest.mark.parametrize("view", VIEWS)
    def test_a_view_chooses_the_images(self, client, streams, make_table, view):
        """A replaced item's record has the images of the stream's view, and always the key."""
        table, arn = self._table(client, make_table, view)
        for number in "12":
            client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": number}})
        last = self._records(streams, arn)[-1]["dynamodb"]
        assert {name for name in last if name.endswith("Image")} == VIEWS[view]
        assert (last["Keys"], last["StreamViewType"]) == ({"pk": {"S": "a"}}, view)

    def test_batches_are_recorded_item_by_item(self, client, streams, make_table):
        """Each put of a batch is a record."""
        table, arn = self._table(client, make_table)
        puts = [{"PutRequest": {"Item": {"pk": {"S": str(number)}}}} for number in range(5)]
        client.batch_write_item(RequestItems={table: puts})
        keys = [record["dynamodb"]["Keys"]["pk"]["S"] for record in self._records(streams, arn)]
        assert sorted(keys) == list("01234")

    def test_what_changes_nothing_is_not_recorded(self, client, streams, make_table):
        """An equal put, a set in another order and a delete of a missing item make no record."""
        table, arn = self._table(client, make_table)
        for members in (["a", "b"], ["b", "a"]):
            client.put_item(TableName=table, Item={"pk": {"S": "a"}, "s": {"SS": members}, "n": {"N": "1.0"}})
        client.delete_item(TableName=table, Key={"pk": {"S": "absent"}})
        assert [record["eventName"] for record in self._records(streams, arn)] == ["INSERT"]

    def test_iterators_begin_at_and_after_a_number(self, client, streams, make_table):
        """AT includes the record with the number, AFTER does not. LATEST starts at the end."""
        table, arn = self._table(client, make_table)
        for number in range(4):
            client.put_item(TableName=table, Item={"pk": {"S": "one"}, "n": {"N": str(number)}})
        numbers = [record["dynamodb"]["SequenceNumber"] for record in self._records(streams, arn)]
        assert numbers == sorted(numbers, key=int)
        numbers_read = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
                position = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind}
                iterator = streams.get_shard_iterator(**position, SequenceNumber=numbers[2])["ShardIterator"]
                numbers_read.append(
                    [
                        record["dynamodb"]["SequenceNumber"]
                        for record in streams.get_records(ShardIterator=iterator)["Records"]
                    ]
                )
        assert sorted(record for record in numbers_read if record) == sorted([numbers[2:], numbers[3:]])

    def test_a_limit_pages_through_a_shard(self, client, streams, make_table):
        """A reply has at most the requested number of records, and the next one continues after them."""
        table, arn = self._table(client, make_table)
        for number in range(5):
            client.put_item(TableName=table, Item={"pk": {"S": "one"}, "n": {"N": str(number)}})
        records_read = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            position = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            iterator = streams.get_shard_iterator(**position)["ShardIterator"]
            while records := (reply := streams.get_records(ShardIterator=iterator, Limit=2))["Records"]:
                records_read.append(len(records))
                iterator = reply["NextShardIterator"]
        assert records_read == [2, 2, 1]

    def test_a_disabled_stream_keeps_its_records(self, client, streams, make_table):
        """A disabled stream keeps its records. Its shards are closed, and their last reply has no next iterator."""
        table, arn = self._table(client, make_table)
        client.put_item(TableName=table, Item={"pk": {"S": "a"}})
        client.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
        described = streams.describe_stream(StreamArn=arn)["StreamDescription"]
        assert described["StreamStatus"] in {"DISABLED", "DISABLING"}
        assert all("EndingSequenceNumber" in record["SequenceNumberRange"] for record in described["Shards"])
        assert [record["eventName"] for record in self._records(streams, arn)] == ["INSERT"]
        for shard in described["Shards"]:
            position = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            iterator = streams.get_shard_iterator(**position)["ShardIterator"]
            assert "NextShardIterator" not in streams.get_records(ShardIterator=iterator)

    def test_streams_are_listed(self, client, streams, make_table):
        """A table's streams are listed by ARN and label."""
        table, arn = self._table(client, make_table)
        (listed,) = streams.list_streams(TableName=table)["Streams"]
        assert (listed["StreamArn"], listed["TableName"]) == (arn, table)
        assert arn.endswith("/stream/" + listed["StreamLabel"])

    def test_missing_streams_and_shards_are_refused(self, client, streams, make_table):
        """A missing stream and shard are not found. A wrong iterator or sequence number is invalid."""
        _, arn = self._table(client, make_table)
        shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
        position = {"StreamArn": arn, "ShardId": shard}
        assert self._refusal(streams, "describe_stream", StreamArn=f"{arn}-absent") == "ResourceNotFoundException"
        wrong = {**position, "ShardId": "shardId-00000000000000000000-absent00", "ShardIteratorType": "LATEST"}
        assert self._refusal(streams, "get_shard_iterator", **wrong) == "ResourceNotFoundException"
        lacking = {**position, "ShardIteratorType": "AT_SEQUENCE_NUMBER"}
        assert self._refusal(streams, "get_shard_iterator", **lacking) == "ValidationException"
        assert self._refusal(streams, "get_records", ShardIterator="no iterator") == "ValidationException"


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "a set in another order is a change": ("test_what_changes_nothing_is_not_recorded",),
        "a stream that is off, and one that is not there, end in an error of the server": (
            "test_a_disabled_stream_keeps_its_records",
            "test_missing_streams_and_shards_are_refused",
        ),
    },
    ministack={"a set in another order is a change": ("test_what_changes_nothing_is_not_recorded",)},
)
