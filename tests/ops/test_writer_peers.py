"""Mistakes that other writers made, each as the test that would have found it."""

from decimal import Decimal

import pyarrow as pa
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB


@pytest.fixture
def server():
    """Serve two empty tables, one with a number as key."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S")
        running.load("numbers", b"", "pk:N")
        yield running


def write(server, columns, table="rows", **options):
    """Write columns into a table."""
    rows = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return ddbio.write_table(rows, table, endpoint_url=server.endpoint_url, **options)


def count(server, table="rows"):
    """Return how many items the table holds."""
    return ddbio.read_table(table, endpoint_url=server.endpoint_url).num_rows


def test_a_key_twice_in_a_batch(server):
    """boto3, PynamoDB, Beam and Feast sent a key twice in one batch, which the service refuses whole."""
    assert write(server, {"pk": ["a", "b", "a", "a"], "v": [1, 2, 3, 4]}).written == 4
    assert count(server) == 2


def test_numbers_that_are_equal_are_one_key(server):
    """Keys 1, 1.0 and 1.00 are one key to the service, however a writer spells them."""
    spellings = pa.array([Decimal("1.00"), Decimal(1), Decimal("2.50"), Decimal("2.5")], pa.decimal128(9, 2))
    report = write(server, {"pk": spellings, "v": [1, 2, 3, 4]}, "numbers")
    assert (report.written, report.rejected, count(server, "numbers")) == (4, 0, 2)


def test_no_rows_are_no_request(server):
    """spark-dynamodb sent an empty batch for an empty partition, which the service refuses."""
    report = write(server, pa.table({"pk": pa.array([], pa.string())}))
    assert (report.rows, report.written, report.write_seconds) == (0, 0, 0)
    assert "BatchWriteItem" not in server.requests()


def test_a_number_of_rows_that_fills_batches_exactly(server):
    """After the last full batch comes no empty one."""
    assert write(server, {"pk": [f"k{n}" for n in range(50)]}, lanes=1).written == 50
    assert server.requests()["BatchWriteItem"] == 2


def test_deletes_send_the_key_only():
    """Flink's sink sent whole items as keys of deletes, which the service refuses."""
    with FakeDynamoDB() as running:
        running.load("rows", b'{"pk":{"S":"a"},"v":{"N":"1"}}', "pk:S")
        assert write(running, {"pk": ["a"], "v": [1]}, mode="delete").written == 1
        assert count(running) == 0


def test_throttling_loses_nothing():
    """dynamodb-import-export-tool lost three quarters of the rows of a throttled table without an error."""
    with FakeDynamoDB(wcu=200, burst_seconds=0.2) as running:
        running.load("rows", b"", "pk:S")
        report = write(running, {"pk": [f"k{n}" for n in range(600)]})
        assert (report.written, count(running)) == (600, 600)
        assert report.retries > 0
        assert sum(report.throttles.values()) > 0


def test_more_lanes_than_rows(server):
    """A single row is written whatever the number of lanes."""
    assert write(server, {"pk": ["a"]}, lanes=64).written == 1


def test_names_are_never_words(server):
    """Five writers built expressions out of names; reserved words, dots and signs then failed or hit another path."""
    names = ["size", "a.b", "FROM#TO", "_x", "name", "status", "values"]
    write(server, {"pk": ["a"], **{name: [1] for name in names}}, mode="update")
    assert set(names) < set(ddbio.read_table("rows", endpoint_url=server.endpoint_url).column_names)


def test_a_bad_row_of_an_index_spares_its_batch(tmp_path):
    """An index key of the wrong type refuses a whole batch; only its own row is rejected, the others are written."""
    boto3 = pytest.importorskip("boto3")
    with FakeDynamoDB() as running:
        client = boto3.client("dynamodb", endpoint_url=running.endpoint_url, region_name="eu-west-1")
        client.create_table(
            TableName="indexed",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "g")],
            BillingMode="PAY_PER_REQUEST",
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_g",
                    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        )
        columns = {"pk": [f"k{n}" for n in range(100)], "g": ["x" if n != 42 else "" for n in range(100)]}
        report = write(running, columns, "indexed", reject_to=str(tmp_path))
        assert (report.written, report.rejected, count(running, "indexed")) == (99, 1, 99)
        assert report.wcu_consumed == 198
    (path,) = tmp_path.glob("*.jsonl")
    assert '"row": 42' in path.read_text()
