from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.testing.calls.reads import scan
from ddbio.testing.calls.writes import batch_write_item, put_item
from ddbio.testing.refusal import Refusal
from ddbio.testing.tables.capacity import Bucket, Capacity, Draw, Throughput, partition_count
from ddbio.testing.tables.definition import Defaults

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/tab"


def puts(*sizes, key=None):
    """Return put requests of items of these sizes in KB."""
    return [
        {"PutRequest": {"Item": {"pk": {"S": key or f"k{at}"}, "sk": {"S": str(at)}, "x": {"S": "x" * (1000 * size)}}}}
        for at, size in enumerate(sizes)
    ]


def reason(refusal):
    """Return the throttling reason of a refusal."""
    (reason,) = refusal.body["ThrottlingReasons"]
    return reason["reason"], reason["resource"]


@pytest.mark.parametrize(
    ("read", "write", "partitions"),
    [(None, None, 4), (1, 1, 1), (3000, None, 1), (3000, 1000, 2), (6001, 0, 3), (None, 2500, 3)],
)
def test_partitions_follow_the_numbers(read, write, partitions):
    """A partition serves 3,000 read and 1,000 write units. A table without throughput has the on-demand count."""
    assert partition_count(read, write, on_demand=4) == partitions


def test_bucket_admits_while_not_below_zero_and_may_be_overdrawn():
    """An empty bucket admits one request of any size, then none until it is refilled."""
    bucket = Bucket(rate=10, ceiling=100, units=0, now=0)
    assert bucket.admits(0)
    bucket.take(50, 0)
    assert not bucket.admits(4.9)
    assert bucket.admits(5.0)


def test_bucket_keeps_at_most_its_ceiling():
    """Unused units are saved up to the ceiling."""
    bucket = Bucket(rate=10, ceiling=30, units=500, now=0)
    assert bucket.level(0) == 30
    bucket.take(30, 0)
    assert bucket.level(1e6) == 30


@given(
    rate=st.floats(1, 1000),
    burst_seconds=st.floats(0, 300),
    requests=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 500)), max_size=50),
)
def test_spending_is_bounded(rate, burst_seconds, requests):
    """The admitted units over any time are at most the burst, the rate times the time, and one overshoot."""
    bucket = Bucket(rate, rate * burst_seconds, rate * burst_seconds, now=0)
    now = spent = 0.0
    for pause, units in requests:
        now += pause
        if bucket.admits(now):
            bucket.take(units, now)
            spent += units
    assert spent <= rate * burst_seconds + rate * now + 500 + 1e-3


@pytest.mark.parametrize(
    ("throughput", "burst_at_creation", "admitted"),
    [
        (Throughput(partitions=2), None, True),
        (Throughput(partitions=2), 0.0, False),
        (Throughput(write_per_second=1000, partitions=2), None, False),
        (Throughput(write_per_second=1000, partitions=2), 1.0, True),
    ],
    ids=["on-demand", "strict", "provisioned", "with burst"],
)
def test_new_tables_begin_with_a_second_if_on_demand(throughput, burst_at_creation, admitted):
    """An on-demand table, or one with burst_at_creation, starts with one second of its partitions' capacity."""
    capacity = Capacity(burst_at_creation=burst_at_creation)
    capacity.declare(ARN, throughput, now=0)
    capacity.charge([Draw(ARN, "Write", 0, 999)], now=0)
    assert (capacity.refusal([Draw(ARN, "Write", 0, 1)], 0) is None) == admitted
    capacity.charge([Draw(ARN, "Write", 0, 2)], now=0)
    assert capacity.refusal([Draw(ARN, "Write", 0, 1)], 0) is not None


def test_partition_is_named_when_only_it_is_empty():
    """The reason is the table's limit first, and the key range second."""
    capacity = Capacity(burst_seconds=300, burst_at_creation=300)
    capacity.declare(ARN, Throughput(read_per_second=5000, partitions=2), now=0)
    capacity.charge([Draw(ARN, "Read", 0, 4000)], now=0)
    assert reason(capacity.refusal([Draw(ARN, "Read", 0, 1)], 0)) == ("TableReadKeyRangeThroughputExceeded", ARN)
    assert capacity.refusal([Draw(ARN, "Read", 1, 1)], 0) is None
    capacity.charge([Draw(ARN, "Read", 1, 2e6)], now=0)
    assert reason(capacity.refusal([Draw(ARN, "Read", 0, 1)], 0)) == ("TableReadProvisionedThroughputExceeded", ARN)


def test_batch_is_admitted_item_by_item(hold):
    """The items that the buckets admit are written. The others are returned unchanged."""
    held = hold()
    held.create(units=(10, 10), key=("pk:S", "sk:S"))
    held.now = 3.0
    sent = puts(10, 10, 10, 10, 10)
    reply = held.call(batch_write_item, RequestItems={"tab": sent}, ReturnConsumedCapacity="TOTAL")
    assert reply["UnprocessedItems"] == {"tab": sent[4:]}
    assert reply["ConsumedCapacity"] == [{"TableName": "tab", "CapacityUnits": 40.0}]


def test_batch_of_which_nothing_is_admitted_is_throttled(hold):
    """A batch without an admitted item is an exception with its reason, and can succeed later."""
    held = hold()
    held.create(units=(10, 10), key=("pk:S", "sk:S"))
    held.call(batch_write_item, RequestItems={"tab": puts(10)})
    with pytest.raises(Refusal) as caught:
        held.call(batch_write_item, RequestItems={"tab": puts(1, 1)})
    assert caught.value.body["__type"].endswith("#ProvisionedThroughputExceededException")
    assert reason(caught.value) == ("TableWriteProvisionedThroughputExceeded", ARN)
    held.now = 1.0
    assert held.call(batch_write_item, RequestItems={"tab": puts(1)})["UnprocessedItems"] == {}


def test_on_demand_table_is_limited_by_its_partitions(hold):
    """One key of an on-demand table takes 1,000 write units per second."""
    held = hold()
    held.create(key=("pk:S", "sk:S"))
    held.now = 10.0
    left = held.call(batch_write_item, RequestItems={"tab": puts(*[100] * 25, key="hot")})["UnprocessedItems"]
    assert len(left["tab"]) == 25 - 11
    with pytest.raises(Refusal) as caught:
        held.call(put_item, TableName="tab", Item=puts(1, key="hot")[0]["PutRequest"]["Item"])
    assert reason(caught.value) == ("TableWriteKeyRangeThroughputExceeded", ARN)


def test_own_numbers_win_over_defaults(hold):
    """Default throughput applies to tables that set none."""
    held = hold(Defaults(read_per_second=1, write_per_second=1))
    held.create("own", units=(100, 100))
    held.create("none")
    held.now = 1.0
    for name, written in (("own", 5), ("none", 2)):
        items = [{"PutRequest": {"Item": {"pk": {"S": str(at)}}}} for at in range(5)]
        left = held.call(batch_write_item, RequestItems={name: items})["UnprocessedItems"]
        assert 5 - len(left.get(name, [])) == written


def test_maximum_of_an_on_demand_table_has_its_own_reason(hold):
    """OnDemandThroughput limits the table and is named in the reason."""
    held = hold()
    held.create(OnDemandThroughput={"MaxReadRequestUnits": 2, "MaxWriteRequestUnits": -1})
    held.call(scan, TableName="tab")
    with pytest.raises(Refusal) as caught:
        held.call(scan, TableName="tab")
    assert reason(caught.value) == ("TableReadMaxOnDemandThroughputExceeded", ARN)


def test_index_without_capacity_refuses_the_write(hold):
    """A write that an index cannot take is refused entirely, and the error names the index."""
    held = hold()
    index = {
        "IndexName": "byg",
        "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    }
    held.create(units=(100, 100), more=["g:S"], GlobalSecondaryIndexes=[index])
    held.now = 1.0
    for pk in "abc":
        held.call(put_item, TableName="tab", Item={"pk": {"S": pk}})
    for pk in "de":
        held.call(put_item, TableName="tab", Item={"pk": {"S": pk}, "g": {"S": "g"}})
    with pytest.raises(Refusal) as caught:
        held.call(put_item, TableName="tab", Item={"pk": {"S": "f"}, "g": {"S": "g"}})
    assert reason(caught.value) == ("IndexWriteProvisionedThroughputExceeded", ARN + "/index/byg")
    assert held.database.tables["tab"].store.count == 5


def test_consumption_is_recorded_per_100_ms(hold):
    """Each interval has its start, its read and its write units. A refused request is not recorded."""
    held = hold()
    held.create("one", units=(100, 100))
    held.create("two", units=(100, 100))
    held.call(put_item, TableName="one", Item={"pk": {"S": "a"}})
    held.now = 0.26
    held.call(scan, TableName="one")
    held.call(put_item, TableName="two", Item={"pk": {"S": "a"}, "x": {"S": "x" * 2000}})
    record = held.database.consumption
    assert record.consumed() == [(0.0, 0.0, 1.0), (0.2, 0.5, 2.0)]
    assert record.consumed("one") == [(0.0, 0.0, 1.0), (0.2, 0.5, 0.0)]
    assert record.consumed("absent") == []
