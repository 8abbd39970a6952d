"""Plans of loads from footers, a sample and the table's description. Nothing is written."""

import gzip
import json

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.load.load import load_plan_of
from ddbio.load.options import LoadOptions
from ddbio.options import parse_options
from ddbio.testing import FakeDynamoDB


@pytest.fixture(scope="module")
def server():
    """Serve an on-demand table, and a provisioned one with an index."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S")
        options = {"billing": "provisioned", "rcu": 10, "wcu": 100, "endpoint_url": running.endpoint_url}
        ddbio.create_table("indexed", key="pk:S", gsi="by_g=g:S", **options)
        yield running


@pytest.fixture
def plan(server):
    """Return a function that plans a load."""

    def run(source, table="rows", **options):
        values = {"source": str(source), "table": table, "endpoint_url": server.endpoint_url, **options}
        made = load_plan_of(parse_options(LoadOptions, values))
        assert server.requests().keys() <= {"CreateTable", "DescribeTable"}
        return made

    return run


def test_rows_of_parquet_are_counted(plan, tmp_path):
    """Footers have the number of rows, a sample determines their cost: items of 1.5 KB cost two units each."""
    pq.write_table(pa.table({"pk": list(map(str, range(1000))), "t": ["x" * 1500] * 1000}), tmp_path / "a.parquet", 100)
    made = plan(tmp_path, wcu_per_second=100)
    assert (made.files, made.source_units, made.rows, made.rows_exact, made.estimated_units) == (
        1,
        10,
        1000,
        True,
        2000,
    )
    assert (made.estimated_seconds, made.on_demand, made.table_wcu) == (20, True, None)


def test_indexes_cost_as_much_again(plan, tmp_path):
    """An index counts if the rows have its key. Table and index each have a rate that limits the time."""
    pq.write_table(pa.table({"pk": ["a", "b"], "g": ["x", "y"]}), tmp_path / "a.parquet")
    made = plan(tmp_path, "indexed", wcu_per_second=1000)
    assert (made.indexes, made.estimated_units, made.estimated_seconds) == (("by_g",), 4, 0.02)
    pq.write_table(pa.table({"pk": ["a", "b"]}), tmp_path / "a.parquet")
    assert (plan(tmp_path, "indexed").indexes, plan(tmp_path, "indexed").estimated_units) == ((), 2)


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_text_are_estimated(plan, tmp_path, packed):
    """The first half megabyte of a text gives an estimate of its rows, compressed or not."""
    texts = ("x" * (n * 7919 % 300) for n in range(30_000))
    lines = "".join(json.dumps({"pk": f"{n:08}", "v": text}) + "\n" for n, text in enumerate(texts)).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines)) if packed else (tmp_path / "a.jsonl").write_bytes(lines)
    made = plan(tmp_path)
    assert not made.rows_exact
    assert made.rows == pytest.approx(30_000, rel=0.05)
    assert made.estimated_units == made.rows


def test_a_small_text_is_exact_enough(plan, tmp_path):
    """A file that the sample reads completely has an exact count."""
    (tmp_path / "a.csv").write_text("pk,n\na,1\nb,2\n")
    assert plan(tmp_path).rows == 2


@pytest.mark.parametrize(
    ("table", "options", "lanes"),
    [
        ("rows", {}, 8),
        ("rows", {"wcu_per_second": 40_000}, 8),
        ("rows", {"mode": "update"}, 64),
        ("rows", {"mode": "update", "wcu_per_second": 2000}, 100),
        ("rows", {"mode": "create", "wcu_per_second": 40_000}, 128),
        ("rows", {"mode": "delete", "newer_by": "n", "wcu_per_second": 20}, 8),
        ("rows", {"operation_by": "n"}, 32),
        ("rows", {"mode": "update", "lanes": 3}, 3),
        ("indexed", {"mode": "update", "wcu_per_second": 2000}, 8),
    ],
)
def test_lanes_follow_the_rate_where_requests_take_one_row(plan, tmp_path, table, options, lanes):
    """The lanes are enough for the budget or the table's capacity with requests of 50 ms.

    Batches need at most eight.
    """
    pq.write_table(pa.table({"pk": ["a"], "n": ["b"]}), tmp_path / "a.parquet")
    assert plan(tmp_path, table, **options).lanes == lanes


def test_a_retry_has_no_plan(plan, tmp_path):
    """Rejects are not a source of rows."""
    with pytest.raises(OptionError, match="a retry of rejects has no plan"):
        plan(tmp_path, retry_rejects=True)


def test_errors_of_the_load_are_errors_of_the_plan(plan, tmp_path):
    """Rows without the table's key are refused before anything is written."""
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="no column 'pk'"):
        plan(tmp_path)


@pytest.mark.parametrize("name", ["array.json", "array.json.gz", "array.jsonl.gz"])
def test_a_bad_file_among_others_is_found_by_the_plan(plan, tmp_path, name):
    """A list of rows is not valid JSON for a load, even in a small file. It is an error before anything is written."""
    (tmp_path / "a.jsonl").write_text('{"pk":"a"}\n' * 100)
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "mark.jsonl").write_bytes(b'\xef\xbb\xbf {"pk":"b"}')
    assert plan(tmp_path).files == 3
    text = b'[{"pk":"x"}]'
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(DecodeError, match=name):
        plan(tmp_path)


def test_a_narrow_index_makes_a_load_long(plan, server, tmp_path):
    """An index of 5 units per second on a table of 1,000 determines the time of a load, and is in the plan."""
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="eu-west-1")
    client.create_table(
        TableName="narrow",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "g")],
        ProvisionedThroughput={"ReadCapacityUnits": 10, "WriteCapacityUnits": 1000},
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by_g",
                "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
                "ProvisionedThroughput": {"ReadCapacityUnits": 10, "WriteCapacityUnits": 5},
            }
        ],
    )
    rows = {"pk": list(map(str, range(1000))), "g": ["x"] * 1000, "t": ["x" * 1500] * 1000}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    made = plan(tmp_path, "narrow", wcu_per_second=5000)
    # The index has only keys: one unit per item, and two for the table.
    assert (made.estimated_units, made.estimated_seconds, made.limited_by) == (3000, 200, "index by_g")
    assert (made.requests, made.to_dict()["usd"]) == (40, 0)


def test_a_load_has_a_price(plan, tmp_path):
    """Write units on demand have a price. A note has the date of the prices."""
    pq.write_table(pa.table({"pk": ["a", "b"]}), tmp_path / "a.parquet")
    made = plan(tmp_path).to_dict()
    (line,) = made["lines"]
    assert (made["units"], line["what"], line["quantity"], line["unit"]) == (2, "writes", 2, "WRU")
    assert made["usd"] == line["usd"] == pytest.approx(2 * 0.625e-6)
    assert "the price of 2024-11-15 is old" in made["notes"][0]


def test_a_provisioned_table_is_shared_with_its_application(plan, tmp_path):
    """Unless a rate or a share is given, a load uses half of a provisioned table's write units."""
    pq.write_table(pa.table({"pk": ["a", "b"]}), tmp_path / "a.parquet")
    assert plan(tmp_path, "indexed").wcu_per_second == 50
    assert plan(tmp_path, "indexed", write_ratio=1).wcu_per_second == 100
    assert plan(tmp_path).wcu_per_second is None
