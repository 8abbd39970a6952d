from __future__ import annotations

import gzip
import json

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB, Faults, Storm
from ddbio.testing.faults import FaultInjector

RATIOS = st.floats(0, 0.25)


def puts(count):
    """Return this number of put requests."""
    return [{"PutRequest": {"Item": {"pk": {"S": str(at)}}}} for at in range(count)]


@pytest.fixture
def serve(connect):
    """Return a factory of fakes with faults, each with an empty table, and their clients."""
    running = []

    def make(**faults):
        fake = FakeDynamoDB(faults=Faults(**faults)).start()
        running.append(fake)
        fake.load("tab", b"", "pk:S")
        return fake, connect(fake.endpoint_url)

    yield make
    for fake in running:
        fake.stop()


@given(seed=st.integers(), ratios=st.tuples(RATIOS, RATIOS, RATIOS))
def test_the_seed_decides(seed, ratios):
    """The same seed causes the same faults of the same requests."""
    before, after, reset = ratios
    faults = Faults(error_before_ratio=before, error_after_ratio=after, reset_ratio=reset, seed=seed)
    first, second = FaultInjector(faults, 0.0), FaultInjector(faults, 0.0)
    assert [first.draw("PutItem") for _ in range(50)] == [second.draw("PutItem") for _ in range(50)]


def test_shares_are_kept():
    """Each kind of fault affects its ratio of requests, and never calls that manage tables."""
    injector = FaultInjector(Faults(error_before_ratio=0.1, error_after_ratio=0.05, reset_ratio=0.2, seed=1), 0.0)
    drawn = [injector.draw("Scan") for _ in range(10_000)]
    for fault, ratio in (("error_before", 0.1), ("error_after", 0.05), ("reset_before", 0.1), ("reset_after", 0.1)):
        assert abs(drawn.count(fault) / 10_000 - ratio) < 0.02
    assert {injector.draw("CreateTable") for _ in range(1000)} == {None}


def test_items_are_left_unprocessed(serve):
    """A ratio of a batch's items is returned unchanged and not written. The others are written."""
    fake, client = serve(unprocessed_ratio=0.3, seed=7)
    left = client.batch_write_item(RequestItems={"tab": puts(25)})["UnprocessedItems"]["tab"]
    assert 0 < len(left) < 25
    assert all(request in puts(25) for request in left)
    assert client.scan(TableName="tab", Select="COUNT")["Count"] == 25 - len(left)
    keys = {"tab": {"Keys": [{"pk": {"S": str(at)}} for at in range(25)]}}
    assert client.batch_get_item(RequestItems=keys)["UnprocessedKeys"]["tab"]["Keys"]
    assert fake.faulted()["unprocessed"] > len(left)


@pytest.mark.parametrize(("member", "count"), [("error_before_ratio", 0), ("error_after_ratio", 1)])
def test_an_error_comes_before_or_after_the_write(serve, member, count):
    """After an HTTP 500 the write may have been executed or not."""
    fake, client = serve(**{member: 1.0})
    with pytest.raises(ClientError) as caught:
        client.put_item(TableName="tab", Item={"pk": {"S": "a"}})
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert caught.value.response["Error"]["Code"] == "InternalServerError"
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == count
    assert fake.faulted() == {member.removesuffix("_ratio"): 1}


def test_connections_are_reset(serve):
    """After a reset the write may have been executed or not. The next connection works."""
    fake, client = serve(reset_ratio=1.0, seed=3)
    for at in range(8):
        with pytest.raises(ConnectionClosedError):
            client.put_item(TableName="tab", Item={"pk": {"S": str(at)}})
    drawn = fake.faulted()
    assert drawn["reset_before"] + drawn["reset_after"] == 8
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == drawn["reset_after"]


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException"),
        ("KeyRangeThroughputExceeded", "ProvisionedThroughputExceededException"),
        ("AccountLimitExceeded", "RequestLimitExceeded"),
    ],
)
def test_a_storm_throttles_everything_for_its_reason(serve, limit, code):
    """During a storm reads and writes are throttled for its reason, and tables can still be described."""
    _, client = serve(storms=(Storm(0, 1e6, limit),))
    calls = (
        ("Read", client.scan, {"TableName": "tab"}),
        ("Write", client.batch_write_item, {"RequestItems": {"tab": puts(1)}}),
    )
    for kind, call, members in calls:
        with pytest.raises(ClientError) as caught:
            call(**members)
        assert caught.value.response["Error"]["Code"] == code
        (reason,) = caught.value.response["ThrottlingReasons"]
        assert reason["reason"] == f"Table{kind}{limit}"
        assert reason["resource"].endswith(":table/tab")
    client.describe_table(TableName="tab")


def test_storms_begin_and_end():
    """A storm starts at its first second and ends before its last."""
    injector = FaultInjector(Faults(storms=(Storm(2, 3), Storm(5, 6))), now=100.0)
    stormy = [injector.storm("Scan", "tab", 100.0 + at / 2) is not None for at in range(13)]
    assert [at / 2 for at, there in enumerate(stormy) if there] == [2.0, 2.5, 5.0, 5.5]


def test_a_storm_is_spelled_on_the_command_line():
    """The text of a storm has its times and its reason. Any other text is an error with the choices."""
    assert Storm.parse("5-7.5") == Storm(5.0, 7.5)
    assert Storm.parse(str(Storm(1.5, 2.0, "AccountLimitExceeded"))) == Storm(1.5, 2.0, "AccountLimitExceeded")
    for text in ("", "5", "5-7:Nothing"):
        with pytest.raises(OptionError, match="START-END"):
            Storm.parse(text)


def test_faults_reach_a_separate_process(connect):
    """A fake in a separate process has the same faults and reports their counts."""
    faults = Faults(error_before_ratio=1.0, storms=(Storm(100, 200),), seed=5)
    with FakeDynamoDB(faults=faults, process=True) as fake:
        fake.load("tab", b"", "pk:S")
        with pytest.raises(ClientError):
            connect(fake.endpoint_url).scan(TableName="tab")
        assert fake.faulted() == {"error_before": 1}


def test_gzipped_batches_are_written(serve):
    """A gzip body with its Content-Encoding is decompressed."""
    fake, client = serve()

    def compress(request, **_):
        request.data = gzip.compress(json.dumps({"RequestItems": {"tab": puts(25)}}).encode())
        request.headers["Content-Encoding"] = "gzip"

    client.meta.events.register("before-sign.dynamodb.BatchWriteItem", compress)
    client.batch_write_item(RequestItems={"tab": puts(1)})
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == 25
    assert fake.requests()["BatchWriteItem"] == 1
