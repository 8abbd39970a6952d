"""Mistakes of other writers, each as a test that would have found it."""

from decimal import Decimal

import boto3
import pyarrow as pa
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB
from ddbio.testing.faults import Faults, Storm


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
    """Return the number of items in the table."""
    return ddbio.read_table(table, endpoint_url=server.endpoint_url).num_rows


def test_a_key_twice_in_a_batch(server):
    """boto3, PynamoDB, Beam and Feast sent a key twice in one batch, which the service refuses whole."""
    assert write(server, {"pk": ["a", "b", "a", "a"], "v": [1, 2, 3, 4]}).written == 4
    assert count(server) == 2


def test_numbers_that_are_equal_are_one_key(server):
    """The keys 1, 1.0 and 1.00 are one key for the service, regardless of their spelling."""
    numbers = pa.array([Decimal("1.00"), Decimal(1), Decimal("2.50"), Decimal("2.5")], pa.decimal128(9, 2))
    report = write(server, {"pk": numbers, "v": [1, 2, 3, 4]}, "numbers")
    assert (report.written, report.rejected, count(server, "numbers")) == (4, 0, 2)


def test_no_rows_are_no_request(server):
    """spark-dynamodb sent an empty batch for an empty partition, which the service refuses."""
    report = write(server, pa.table({"pk": pa.array([], pa.string())}))
    assert (report.rows, report.written, report.write_seconds) == (0, 0, 0)
    assert "BatchWriteItem" not in server.requests()


def test_a_number_of_rows_that_fills_batches_exactly(server):
    """No empty batch follows the last full one."""
    assert write(server, {"pk": [f"k{n}" for n in range(50)]}, lanes=1).written == 50
    assert server.requests()["BatchWriteItem"] == 2


def test_deletes_send_the_key_only():
    """Flink's sink sent full items as keys of deletes, which the service refuses."""
    with FakeDynamoDB() as running:
        running.load("rows", b'{"pk":{"S":"a"},"v":{"N":"1"}}', "pk:S")
        assert write(running, {"pk": ["a"], "v": [1]}, mode="delete").written == 1
        assert count(running) == 0


def test_throttling_loses_nothing():
    """dynamodb-import-export-tool lost three quarters of the rows of a throttled table without an error."""
    with FakeDynamoDB(wcu=200, burst_seconds=0.2) as running:
        running.load("rows", b"", "pk:S")
        report = write(running, {"pk": [f"k{n}" for n in range(600)]}, wcu_per_second=10_000)
        assert (report.written, count(running)) == (600, 600)
        assert report.retries > 0
        assert sum(report.throttles.values()) > 0


def test_more_lanes_than_rows(server):
    """A single row is written with any number of lanes."""
    assert write(server, {"pk": ["a"]}, lanes=64).written == 1


def test_names_are_never_words(server):
    """Five writers used names in expressions. Reserved words, dots and signs then failed or changed another path."""
    names = ["size", "a.b", "FROM#TO", "_x", "name", "status", "values"]
    write(server, {"pk": ["a"], **{name: [1] for name in names}}, mode="update")
    assert set(names) < set(ddbio.read_table("rows", endpoint_url=server.endpoint_url).column_names)


def test_a_bad_row_of_an_index_spares_its_batch(tmp_path):
    """An index key of the wrong type makes the service refuse a batch.

    Only its row is rejected, the others are written.
    """
    with FakeDynamoDB() as running:
        ddbio.create_table("indexed", key="pk:S", gsi="by_g=g:S", endpoint_url=running.endpoint_url)
        columns = {"pk": [f"k{n}" for n in range(100)], "g": ["x" if n != 42 else "" for n in range(100)]}
        report = write(running, columns, "indexed", reject_to=str(tmp_path))
        assert (report.written, report.rejected, count(running, "indexed")) == (99, 1, 99)
        assert report.wcu_consumed == 198
    (path,) = tmp_path.glob("*.jsonl")
    assert '"row": 42' in path.read_text()


def test_units_of_indexes_count_in_the_budget():
    """EMR's connector does not include indexes in its limiter. Here a rate applies to table and index together."""
    with FakeDynamoDB() as running:
        ddbio.create_table("indexed", key="pk:S", gsi="by_g=g:S", endpoint_url=running.endpoint_url)
        columns = {"pk": [f"k{n}" for n in range(500)], "g": ["x"] * 500}
        report = write(running, columns, "indexed", wcu_per_second=500)
        assert (report.wcu_consumed, report.write_seconds > 1.5) == (1000, True)


def test_the_accounts_limit_ends_nothing():
    """EMR's connector fails with RequestLimitExceeded. Here the job waits until the account has capacity again."""
    with FakeDynamoDB(faults=Faults(storms=(Storm(0, 5, "AccountLimitExceeded"),))) as running:
        running.load("rows", b"", "pk:S")
        report = write(running, {"pk": [f"k{n}" for n in range(100)]})
        assert (report.written, count(running)) == (100, 100)
        assert set(report.throttles) == {"account"}


def test_leftovers_never_overtake():
    """boto3 puts unprocessed items at the end of its buffer, after newer rows of their keys.

    Here the newest row is kept.
    """
    with FakeDynamoDB(faults=Faults(unprocessed_ratio=0.4, reset_ratio=0.05, seed=7)) as running:
        running.load("rows", b"", "pk:S")
        rows = {"pk": [f"k{n}" for _ in range(40) for n in range(25)], "v": [v for v in range(40) for _ in range(25)]}
        assert write(running, rows).written == 1000
        left = ddbio.read_table("rows", endpoint_url=running.endpoint_url)
        assert (left.num_rows, set(left.column("v").to_pylist())) == (25, {39})


def test_deletes_are_sent_again():
    """EMR's connector failed with a null pointer when it sent a delete again."""
    with FakeDynamoDB(faults=Faults(unprocessed_ratio=0.3, error_after_ratio=0.1, seed=3)) as running:
        running.load("rows", b"\n".join(b'{"pk":{"S":"k%d"}}' % n for n in range(200)), "pk:S")
        assert write(running, {"pk": [f"k{n}" for n in range(200)]}, mode="delete").written == 200
        assert count(running) == 0


def test_values_arrive_as_they_are(server):
    """Others lost digits, wrapped bytes, dropped empty lists and maps, and wrote NULL for missing values."""
    big = Decimal(12345678901234567890123456789012345678)
    rows = pa.table(
        {
            "pk": ["a", "b"],
            "big": pa.array([big, None], pa.decimal128(38, 0)),
            "raw": pa.array([b"\x00\xff", None], pa.binary()),
            "list": pa.array([[], None], pa.list_(pa.string())),
            "map": pa.array([[], None], pa.map_(pa.string(), pa.string())),
        }
    )
    write(server, rows)
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="eu-west-1")
    items = {item["pk"]["S"]: item for item in client.scan(TableName="rows")["Items"]}
    assert items["b"] == {"pk": {"S": "b"}}
    assert items["a"] == {
        "pk": {"S": "a"}, "big": {"N": str(big)}, "raw": {"B": b"\x00\xff"}, "list": {"L": []}, "map": {"M": {}}
    }  # fmt: skip


def test_items_near_the_limit_are_written(server, tmp_path):
    """EMR's connector failed with large items. Items of 400 KB are written, and one more byte rejects the row."""
    free_bytes = 400 * 1024 - len("pkav")
    report = write(server, {"pk": ["a", "b"], "v": ["x" * free_bytes, "x" * (free_bytes + 1)]}, reject_to=str(tmp_path))
    assert (report.written, report.rejected, report.wcu_consumed) == (1, 1, 400)
