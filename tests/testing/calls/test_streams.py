"""Streams of the fake in cases that no other backend supports: splits, trims, expired iterators, merges, expiry."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError

from ddbio.errors import NotFoundError
from ddbio.testing import FakeDynamoDB, Faults

ON = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


class Streamed:
    """A table with a stream, and the clients of both."""

    def __init__(self, fake, connect):
        self.client = connect(fake.endpoint_url)
        described = self.client.create_table(
            TableName="tab",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification=ON,
        )
        self.arn = described["TableDescription"]["LatestStreamArn"]
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        self.streams = boto3.client("dynamodbstreams", endpoint_url=fake.endpoint_url, region_name="us-east-1", **keys)

    def put(self, pk, number):
        """Put an item."""
        self.client.put_item(TableName="tab", Item={"pk": {"S": pk}, "n": {"N": str(number)}})

    def shards(self, **members):
        """Return the shards that the stream describes."""
        return self.streams.describe_stream(StreamArn=self.arn, **members)["StreamDescription"]["Shards"]

    def iterator(self, shard, kind="TRIM_HORIZON", **members):
        """Return an iterator over a shard."""
        request = {"StreamArn": self.arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind}
        return self.streams.get_shard_iterator(**request, **members)["ShardIterator"]

    def read(self, shard, kind="TRIM_HORIZON", **members):
        """Return a shard's first reply."""
        return self.streams.get_records(ShardIterator=self.iterator(shard, kind), **members)

    def numbers(self, kind="TRIM_HORIZON"):
        """Return the written numbers by shard, from the first reply of each shard."""
        replies = [self.read(shard, kind)["Records"] for shard in self.shards()]
        return [[record["dynamodb"]["NewImage"]["n"]["N"] for record in records] for records in replies if records]


@pytest.fixture
def one_shard(connect):
    """Return a stream that starts with one shard."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        yield fake, Streamed(fake, connect)


def test_a_split_shard_ends_and_has_children(one_shard):
    """The parent's last reply has records and no next iterator.

    The children name it and have higher sequence numbers.
    """
    fake, table = one_shard
    table.put("a", 1)
    fake.split_shards("tab")
    table.put("a", 2)
    parent, *children = table.shards()
    reply = table.read(parent)
    assert len(reply["Records"]) == 1
    assert "NextShardIterator" not in reply
    assert [shard["ParentShardId"] for shard in children] == [parent["ShardId"]] * 2
    numbers = [shard["SequenceNumberRange"] for shard in (parent, *children)]
    assert all(int(shard["StartingSequenceNumber"]) > int(numbers[0]["EndingSequenceNumber"]) for shard in numbers[1:])
    assert sorted(len(table.read(shard)["Records"]) for shard in children) == [0, 1]
    listed = table.shards(ShardFilter={"Type": "CHILD_SHARDS", "ShardId": parent["ShardId"]})
    assert listed == children
    assert table.shards(ExclusiveStartShardId=children[-1]["ShardId"]) == []


def test_trimmed_records_are_refused_by_name(one_shard):
    """Records before the trim horizon cannot be read by number, nor by an old iterator. TRIM_HORIZON starts later."""
    fake, table = one_shard
    table.put("a", 1)
    (shard,) = table.shards()
    first = shard["SequenceNumberRange"]["StartingSequenceNumber"]
    old = table.iterator(shard)
    fake.trim_stream("tab")
    table.put("a", 2)
    for read in (
        lambda: table.iterator(shard, "AT_SEQUENCE_NUMBER", SequenceNumber=first),
        lambda: table.streams.get_records(ShardIterator=old),
    ):
        with pytest.raises(ClientError, match="TrimmedDataAccessException"):
            read()
    assert table.numbers() == [["2"]]


def test_a_day_trims_records_and_closed_shards(one_shard):
    """After 24 hours records and closed shards are deleted."""
    fake, table = one_shard
    table.put("a", 1)
    fake.split_shards("tab")
    fake.pass_time(24 * 3600 + 1)
    assert len(table.shards()) == 2
    assert table.numbers() == []


def test_an_iterator_lasts_15_minutes(one_shard):
    """An older iterator is refused."""
    fake, table = one_shard
    old = table.iterator(table.shards()[0])
    fake.pass_time(15 * 60 + 1)
    with pytest.raises(ClientError, match="ExpiredIteratorException"):
        table.streams.get_records(ShardIterator=old)


def test_a_reply_has_a_megabyte_at_most(one_shard):
    """Large records are split over several replies."""
    _, table = one_shard
    for number in range(4):
        item = {"pk": {"S": "a"}, "n": {"N": str(number)}, "text": {"S": "x" * 300_000}}
        table.client.put_item(TableName="tab", Item=item)
    (shard,) = table.shards()
    # From the second record on there are two images.
    assert len(table.read(shard)["Records"]) == 2


def test_expired_items_are_deleted_by_the_service(one_shard):
    """Their records name the service, those of other deletes do not, and no other item expires."""
    fake, table = one_shard
    table.client.update_time_to_live(TableName="tab", TimeToLiveSpecification={"Enabled": True, "AttributeName": "n"})
    for pk, number in (("old", 17 * 10**8), ("ancient", 1), ("new", 10**11)):
        table.put(pk, number)
    assert fake.expire("tab") == 1
    removes = [record for record in table.read(table.shards()[0])["Records"] if record["eventName"] == "REMOVE"]
    assert [record["userIdentity"] for record in removes] == [
        {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}
    ]
    assert removes[0]["dynamodb"]["OldImage"]["pk"] == {"S": "old"}


def test_quick_changes_may_be_merged(connect):
    """With a ratio of 1, two unread changes of an item become one, with the image before both. Read changes stay."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0, faults=Faults(merge_ratio=1.0)) as fake:
        table = Streamed(fake, connect)
        for number in (1, 2):
            table.put("a", number)
        (shard,) = table.shards()
        (record,) = table.read(shard)["Records"]
        assert (record["eventName"], record["dynamodb"]["NewImage"]["n"]) == ("INSERT", {"N": "2"})
        table.put("a", 3)
        assert table.numbers() == [["2", "3"]]


def test_the_latest_may_begin_early(connect):
    """With a slack, LATEST returns earlier records."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0, faults=Faults(latest_slack=2), process=True) as fake:
        table = Streamed(fake, connect)
        for number in range(3):
            table.put(str(number), number)
        assert table.numbers("LATEST") == [["1", "2"]]
        fake.split_shards("tab", into=1)
        fake.trim_stream("tab")
        assert fake.expire("tab") == 0
        assert len(table.shards()) == 1
        with pytest.raises(NotFoundError, match="has no stream"):
            fake.split_shards("absent")


def test_numbers_grow_by_a_digit(one_shard):
    """Sequence numbers do not sort as text."""
    _, table = one_shard
    for number in range(8):
        table.put("a", number)
    (shard,) = table.shards()
    numbers = [record["dynamodb"]["SequenceNumber"] for record in table.read(shard)["Records"]]
    assert numbers == sorted(numbers, key=int) != sorted(numbers)


@pytest.mark.parametrize("gone", ["turned off", "turned on again", "table deleted", "table made anew"])
def test_an_older_stream_can_be_read_for_a_day(one_shard, gone):
    """The records of an ended stream stay for 24 hours, while a newer stream exists. Then the stream is deleted."""
    fake, made = one_shard
    made.put("a", 1)
    old, table_id = made.arn, made.client.describe_table(TableName="tab")["Table"]["TableId"]
    if gone.startswith("turned"):
        made.client.update_table(TableName="tab", StreamSpecification={"StreamEnabled": False})
        made.put("b", 2)
        if gone == "turned on again":
            made.client.update_table(TableName="tab", StreamSpecification=ON)
    else:
        made.client.delete_table(TableName="tab")
    if gone == "table made anew":
        made = Streamed(fake, lambda _: made.client)
    if gone.endswith(("again", "anew")):
        described = made.client.describe_table(TableName="tab")["Table"]
        assert described["LatestStreamArn"] != old
        assert (described["TableId"] == table_id) is (gone == "turned on again")
        made.arn = described["LatestStreamArn"]
        made.put("c", 3)
        assert made.numbers() == [["3"]]
    made.arn = old
    assert made.numbers() == [["1"]]
    assert made.streams.describe_stream(StreamArn=old)["StreamDescription"]["StreamStatus"] == "DISABLED"
    fake.pass_time(24 * 3600 + 1)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        made.shards()


def test_consecutive_streams_have_different_labels(one_shard):
    """A stream that is turned off and on within a millisecond is a new stream."""
    _, made = one_shard
    arns = {made.arn}
    for _ in range(5):
        made.client.update_table(TableName="tab", StreamSpecification={"StreamEnabled": False})
        streams_listed = made.client.update_table(TableName="tab", StreamSpecification=ON)["TableDescription"]
        arns.add(streams_listed["LatestStreamArn"])
    assert len(arns) == 6
