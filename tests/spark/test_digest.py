"""The digest of a DataFrame equals that of its rows in other containers."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import SchemaError
from ddbio.items.decode import Decoder
from ddbio.spark.types import to_spark_schema

ITEMS = [
    {
        "pk": {"S": f"key-{n}"},
        "n": {"N": f"{n}.50"},
        "tags": {"SS": ["b", "a"]},
        "m": {"M": {"codes": {"NS": ["1", "2.0"]}, "raw": {"B": "AAE="}}},
        "lines": {"L": [{"M": {"sku": {"S": "x"}, "at": {"NULL": True}}}]},
        **({"rare": {"NULL": True}} if n % 3 else {"rare": {"BOOL": True}}),
    }
    for n in range(50)
]
LINES = b"\n".join(json.dumps(item).encode() for item in ITEMS)


@pytest.fixture
def schema():
    """Return the schema of the items."""
    return ddbio.infer_schema(LINES)


@pytest.fixture
def table(schema):
    """Return the items as Arrow rows, NULL distinct from missing."""
    return pa.Table.from_batches([Decoder(schema.to_arrow(), nulls="keep").decode(LINES, "items")])


@pytest.fixture
def frame(spark, table):
    """Return the rows as a DataFrame in several partitions with DynamoDB's types."""
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(rows, to_spark_schema(table.schema)).repartition(4)


def test_every_partition_counts(frame, table):
    """A DataFrame has the digest of the wire format and of Arrow rows, for any partitioning."""
    assert ddbio.digest(frame) == ddbio.digest(table) == ddbio.digest(LINES) == ddbio.digest(frame.coalesce(1))
    assert ddbio.digest(frame.limit(49)) != ddbio.digest(frame)
    assert ddbio.digest(frame.limit(0)) == ddbio.digest(table[:0]) == "0" * 32


def test_a_schema_declares_what_metadata_does_not(frame, table, schema):
    """Rows whose fields lost their metadata have another digest, and the items' digest with the schema."""
    bare = frame.toDF(*frame.columns).selectExpr(*[f"{name} as {name}" for name in frame.columns])
    stripped = pa.table([column.cast(_bare(column.type)) for column in table.columns], table.schema.names)
    assert ddbio.digest(stripped) != ddbio.digest(table)
    assert ddbio.digest(stripped, schema=schema) == ddbio.digest(table)
    assert ddbio.digest(bare, schema=schema) == ddbio.digest(table)


def test_a_frame_of_a_table(spark, fake):
    """A DataFrame of a table has the table's digest, including NULLs."""
    fake.load("digested", LINES, "pk:S")
    reader = spark.read.format("dynamodb").option("endpointUrl", fake.endpoint_url).option("nulls", "keep")
    assert ddbio.digest(reader.load("digested")) == ddbio.digest("digested", endpoint_url=fake.endpoint_url)


def test_times_are_what_writing_them_sends(spark):
    """Spark's own times need no schema: their items have ISO texts."""
    spark_rows = spark.createDataFrame([(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),)], "at timestamp")
    assert ddbio.digest(spark_rows) == ddbio.digest(b'{"at":{"S":"2024-01-02T03:04:05.000000Z"}}')


def test_names_that_spark_takes_for_paths(spark):
    """Columns with dots and backquotes in their names are digested like any other."""
    frame = spark.createDataFrame([("x", "y", "z")], "`a.b` string, `a` string, `c``d` string")
    assert ddbio.digest(frame) == ddbio.digest(b'{"a.b":{"S":"x"},"a":{"S":"y"},"c`d":{"S":"z"}}')


def test_an_error_is_ours(spark):
    """An error of a worker is raised like for Arrow rows."""
    frame = spark.createDataFrame([(["a", None],), (["b"],)], "tags array<string>").coalesce(1)
    declared = pa.schema([pa.field("tags", pa.list_(pa.string()), metadata={"ddb:type": "SS"})])
    with pytest.raises(SchemaError, match="tags: a set of DynamoDB holds no null"):
        ddbio.digest(frame, schema=declared)


def _bare(arrow_type):
    """Return the type without any metadata."""
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _bare(field.type)) for field in arrow_type])
    return pa.list_(_bare(arrow_type.value_type)) if pa.types.is_list(arrow_type) else arrow_type
