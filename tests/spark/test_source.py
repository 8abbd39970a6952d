"""``spark.read.format("dynamodb")`` against the fake."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ddbio.errors import OptionError, SchemaError
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.spark import reading, registration
from ddbio.spark.registration import register

ROWS = 6_000
ODD = 40
"""Items whose ``n`` is text instead of a number."""


def item(number):
    """Return one item of the table ``things``, with each of DynamoDB's types, and sometimes a misfit."""
    attributes = {
        "pk": {"S": f"key-{number}"},
        "n": {"N": str(number)} if number % (ROWS // ODD) != 1 else {"S": "odd"},
        "price": {"N": f"{number}.25"},
        "flag": {"BOOL": number % 2 == 0},
        "raw": {"B": "AAEC"},
        "tags": {"SS": ["a", "b"]},
        "list": {"L": [{"N": "1"}, {"N": "2"}]},
        "map": {"M": {"x": {"N": "1"}, "y": {"S": "z"}}},
        "pad": {"S": "p" * 500},
    }
    if number % 3 == 0:
        attributes["late"] = {"NULL": True}
    return attributes


@pytest.fixture(scope="module")
def things(fake):
    """Return the fake with a table of some MB, so that a read takes several pages."""
    fake.load("things", (json.dumps(item(number)).encode() for number in range(ROWS)), "pk:S")
    fake.load("empty", [], "pk:S,sk:N")
    return fake


@pytest.fixture
def read(spark, things):
    """Return a function that returns the DataFrame reader of a format with options."""

    def reader(name="dynamodb", **options):
        return spark.read.format(name).option("endpointUrl", things.endpoint_url).options(**options)

    return reader


@pytest.fixture
def registered(spark):
    """Return the driver's lease server."""
    register(spark)
    return registration._lease_servers[SparkFiles.getRootDirectory()]


def test_found_without_registering_and_every_value_is_there(read):
    """A read of an unregistered format infers exact types, and every item arrives; misfits are in the rescue column."""
    frame = read(tableName="things").load().cache()
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == {
        "pk": "string",
        "n": "bigint",
        "price": "decimal(38,2)",
        "flag": "boolean",
        "raw": "binary",
        "tags": "array<string>",
        "list": "array<bigint>",
        "map": "struct<x:bigint,y:string>",
        "pad": "string",
        "late": "string",
        "_rescue": "string",
    }
    assert frame.schema["tags"].metadata == {"ddb:type": "SS"}
    sums = frame.selectExpr("count(*)", "count(distinct pk)", "sum(price)", "count(n)", "count(_rescue)").first()
    assert tuple(sums) == (ROWS, ROWS, Decimal(ROWS * (ROWS - 1) // 2) + ROWS * Decimal("0.25"), ROWS - ODD, ODD)
    row = frame.where("pk = 'key-4'").first()
    assert (row.n, row.price, row.flag, bytes(row.raw)) == (4, Decimal("4.25"), True, b"\0\1\2")
    assert (row.tags, row.list, row.map.asDict()) == (["a", "b"], [1, 2], {"x": 1, "y": "z"})
    odd = frame.where("_rescue is not null").first()
    assert odd.n is None
    assert json.loads(odd._rescue) == {"n": {"S": "odd"}}
    frame.unpersist()


def test_times_are_sparks_own(read, things):
    """Declared times are Spark's timestamps and dates, to the microsecond. Other values are rescued."""
    lines = ['{"pk":{"S":"a"},"at":{"S":"2024-05-01T12:00:00.250Z"},"ttl":{"N":"1700000000"},"day":{"S":"1969-12-31"}}']
    things.load("times", [*(line.encode() for line in lines), b'{"pk":{"S":"b"},"day":{"S":"2023-02-29"}}'], "pk:S")
    frame = read(tableName="times", timestamps="at=iso,ttl=epoch_s,day=date").load()
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == {
        "pk": "string", "at": "timestamp", "ttl": "timestamp", "day": "date", "_rescue": "string",
    }  # fmt: skip
    first, second = frame.selectExpr("unix_micros(at)", "unix_micros(ttl)", "day", "_rescue").orderBy("pk").collect()
    assert tuple(first) == (1_714_564_800_250_000, 1_700_000_000_000_000, dt.date(1969, 12, 31), None)
    assert tuple(second) == (None, None, None, '{"day":{"S":"2023-02-29"}}')


def test_table_is_sampled_once(read, things):
    """Inferring, planning and two actions describe and sample the table once. Each action scans it once."""
    before = things.requests()
    frame = read("ddbio").load("things")
    sampled = requests_since(before, things)
    assert frame.count() == frame.count() == ROWS
    total = requests_since(before, things)
    assert sampled["DescribeTable"] == total["DescribeTable"] == 1
    # Pages of 1 MB, and at most one more at the end.
    pages = sum(len(json.dumps(item(number))) for number in range(ROWS)) // 1_000_000 + 1
    assert total["Scan"] - sampled["Scan"] <= 2 * (pages + 1)


def test_user_schema_is_a_projection(read, things):
    """A user's schema reads only these attributes, in its order and types. Nothing is read immediately.

    A column whose name differs from an attribute's only by case has its values, as for files in Spark.
    """
    before = things.requests()
    frame = read().schema("Price double, PK string, rare string, _rescue string").load("things")
    assert frame.columns == ["Price", "PK", "rare", "_rescue"]
    assert requests_since(before, things) == {}
    assert tuple(frame.where("price = 7.25 and _rescue is null").first()) == (7.25, "key-7", None, None)


def test_misfit_without_rescue_column_fails(read):
    """A value that fits no column is never silently null: without a rescue column the read fails with an error."""
    with pytest.raises(PySparkException, match=r"SchemaError: n: another type: .*add '_rescue string' to \.schema"):
        read().schema("pk string, n long").load("things").count()


def test_schema_option(read):
    """The option ``schema`` takes the JSON text of ``ddbio schema --json``, including nested types."""
    schema = normalize_schema(pa.schema([("pk", pa.string()), ("list", pa.list_(pa.decimal128(10, 1)))]))
    frame = read(table="things", schema=schema_to_json(schema), columns="pk,list").load()
    assert frame.where("pk = 'key-9'").first().list == [Decimal("1.0"), Decimal("2.0")]


def test_a_condition_chooses_the_items(read):
    """A filter applies in every task, and a key is read by Query."""
    assert read(where="flag = TRUE AND n >= 3000").load("things").count() == sum(
        number % 2 == 0 and number % (ROWS // ODD) != 1 for number in range(3000, ROWS)
    )
    rows = read(where="pk IN ('key-5', 'key-77', 'nobody')").load("things").select("pk").collect()
    assert sorted(row.pk for row in rows) == ["key-5", "key-77"]


def test_empty_table(read):
    """A table without items has its keys as columns, and no rows."""
    frame = read(table="empty").load()
    assert frame.columns == ["pk", "sk", "_rescue"]
    assert frame.collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "things", "rcupersecnd": "5"}, r"unknown option 'rcupersecnd': did you mean"),
        ({"table": "things", "segments": "many"}, r"option 'segments' has value 'many'"),
        ({"table": "things", "tablename": "other"}, r"option 'table' is set twice"),
        ({}, r"option 'table' is missing"),
    ],
)
def test_wrong_options_are_refused(options, message):
    """The error names the problem and the remedy."""
    with pytest.raises(OptionError, match=message):
        reading.parse_read_options(options)


def test_an_error_of_planning_keeps_its_class(read):
    """Spark's exception has the class and the text of ddbio's error when the DataFrame is created."""
    with pytest.raises(PySparkException, match=r"NotFoundError: .*'nothing'.* does not exist"):
        read(table="nothing").load()


def test_registered_budget_holds_over_all_tasks(read, things, registered):
    """With ``register`` all tasks of a read lease from one budget in the driver, and none of them waits for a share."""
    frame = read(rcuPerSecond="200", segments="8", tasks="4").schema("pk string").load("things")
    assert frame.rdd.getNumPartitions() == 4
    before = len(things.consumed())
    assert frame.count() == ROWS
    budget = registered._servers[-1]._budget
    consumed = things.consumed()[before:]
    assert budget.units_per_second == 200
    # The names of attributes come from a hundred items.
    assert budget.usage().items == ROWS + 100
    assert budget.usage().consumed_units == pytest.approx(sum(read for _, read, _ in consumed))


def test_register_again(spark, registered):
    """Registering twice keeps the existing budgets, and the session still works."""
    register(spark)
    assert registration._lease_servers[SparkFiles.getRootDirectory()] is registered


def test_static_portions_without_register(things, spark, monkeypatch, caplog):
    """Without ``register``, each task gets a share of the rate, and the log has the remedy once."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    described = reading.describe_read({"table": "things", "endpointurl": things.endpoint_url, "rcupersecond": "300",
                                   "segments": "6", "tasks": "3"})  # fmt: skip
    groups = reading.TableReader(described, described.spark_schema()).partitions()
    assert [group.portion_per_second for group in groups] == [100.0] * 3
    assert len([record for record in caplog.records if "ddbio.register(spark)" in record.message]) == 1


def test_schema_given_twice():
    """The user's schema and the option ``schema`` exclude each other."""
    with pytest.raises(OptionError, match="given twice"):
        reading.describe_read_of({"table": "t", "schema": "{}"}, StructType())


def test_batches_fit_sparks_columns():
    """A batch gets exactly the expected names, order, types and nullability, from any Arrow types."""
    batch = pa.record_batch({"a": pa.array(["x"], pa.large_string()), "b": pa.array([1]), "c": pa.array([True])})
    wanted = pa.schema([pa.field("b", pa.int64()), pa.field("a", pa.string(), nullable=False)])
    fitted = reading.fit_batch(batch, wanted)
    assert fitted.schema.equals(wanted, check_metadata=True)
    assert fitted.to_pylist() == [{"b": 1, "a": "x"}]


def test_null_in_a_column_declared_not_null():
    """Rows that would crash the JVM are a clear error."""
    wanted = pa.schema([pa.field("a", pa.string(), nullable=False)])
    with pytest.raises(SchemaError, match="a: declared NOT NULL, and 1 items lack it"):
        reading.fit_batch(pa.record_batch({"a": pa.array(["x", None])}), wanted)


def test_large_batches_are_sliced():
    """No slice is larger than the JVM's limit, and no row is lost or duplicated."""
    batch = pa.record_batch({"a": pa.array(["x" * 1000] * 50_000)})
    pieces = list(reading.slice_batch(batch))
    assert max(piece.nbytes for piece in pieces) <= reading.BATCH_BYTES * 1.01
    assert pa.Table.from_batches(pieces).to_batches()[0].num_rows < 50_000
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))


def requests_since(before, fake):
    """Return the calls since ``before``, by operation."""
    now = fake.requests()
    return {name: count - before.get(name, 0) for name, count in now.items() if count != before.get(name, 0)}
