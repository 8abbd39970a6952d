"""What ddbio does on every version of Spark: reads, writes, engines, functions, lake tables, streams, Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sql

import ddbio
import ddbio.spark
from ddbio.errors import OptionError
from ddbio.files.local_store import LocalStore
from ddbio.spark import functions
from ddbio.testing.export import ExportWriter
from tests.ops.lake.virtual_log import VirtualLog, Writer
from tests.versions.conftest import VERSION

COUNT = 400
ODD = 7
HAS_SOURCES = VERSION >= (4, 0)


def item(number):
    """Return one item: many types, and one value that does not fit."""
    return {
        "pk": {"S": f"key-{number:04}"},
        "n": {"N": str(number)} if number != ODD else {"S": "odd"},
        "price": {"N": f"{number}.25"},
        "raw": {"B": "AAEC"},
        "tags": {"SS": ["a", "b"]},
        "list": {"L": [{"N": "1"}, {"N": "2"}]},
        "map": {"M": {"x": {"N": "1"}, "y": {"S": "z"}}},
    }


def check(frame):
    """Compare the rows of a DataFrame with the items."""
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == {
        "pk": "string",
        "n": "bigint",
        "price": "decimal(38,2)",
        "raw": "binary",
        "tags": "array<string>",
        "list": "array<bigint>",
        "map": "struct<x:bigint,y:string>",
        "_rescue": "string",
    }
    assert frame.schema["tags"].metadata == {"ddb:type": "SS"}
    rows = {row["pk"]: row for row in frame.collect()}
    assert len(rows) == COUNT
    for number in range(COUNT):
        row = rows[f"key-{number:04}"]
        assert row["n"] == (None if number == ODD else number)
        assert row["price"] == Decimal(f"{number}.25")
        assert bytes(row["raw"]) == b"\0\1\2"
        assert (row["tags"], row["list"], tuple(row["map"])) == (["a", "b"], [1, 2], (1, "z"))
    assert json.loads(rows[f"key-{ODD:04}"]["_rescue"]) == {"n": {"S": "odd"}}


@pytest.fixture(scope="session")
def things(fake):
    """Return how the table ``things`` is reached."""
    fake.load("things", (json.dumps(item(number)).encode() for number in range(COUNT)), "pk:S")
    return {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}


@pytest.fixture
def export(tmp_path):
    """Return the folder of a full export."""
    return ExportWriter(tmp_path / "in", files=5, empty_files=2).full(item(number) for number in range(COUNT))


def test_a_table_as_a_frame(spark, things):
    """``ddbio.spark.scan`` gives every item, exactly, under a budget, and a second action scans anew."""
    frame = ddbio.spark.scan(spark, "things", rcu_per_second=500, tasks=2, **things)
    check(frame)
    assert frame.where("n > 10").count() == COUNT - 11


def test_given_columns_of_a_table(spark, things):
    """A schema of Spark reads these attributes alone; without a rescue column a value of another type is an error."""
    some = ddbio.spark.scan(spark, "things", schema="pk string, price double", **things)
    assert sorted(some.collect())[3] == ("key-0003", 3.25)
    columns = spark.createDataFrame([], "pk string, n bigint").schema
    strict = ddbio.spark.scan(spark, "things", schema=columns, **things)
    with pytest.raises(Exception, match="SchemaError: n"):
        strict.collect()


def test_a_frame_into_a_table(spark, fake, things):
    """``ddbio.spark.write`` writes each row once, times as ISO text whatever the session's time zone, and counts."""
    fake.load("sink", b"", "pk:S")
    frame = spark.range(0, COUNT, 1, 3).select(
        sql.col("id").cast("string").alias("pk"),
        sql.col("id").alias("n.with dot"),
        sql.lit(datetime(2024, 2, 29, 12, 30, tzinfo=UTC)).alias("at"),
        sql.lit(date(2024, 2, 29)).alias("day"),
        sql.array(sql.lit(Decimal("1.50"))).alias("list"),
    )
    report = ddbio.spark.write(frame, "sink", wcu_per_second=10_000, **things)
    assert (report.rows, report.written, report.rejected, report.table) == (COUNT, COUNT, 0, "sink")
    assert report.wcu_consumed >= COUNT
    assert ddbio.last_report(spark) == report
    rows = {row["pk"]: row for row in ddbio.read_table("sink", **things).to_pylist()}
    assert len(rows) == COUNT
    assert rows["17"]["n.with dot"] == 17
    assert (rows["17"]["at"], rows["17"]["day"]) == ("2024-02-29T12:30:00.000000Z", "2024-02-29")
    again = ddbio.spark.write(frame, "sink", mode="create", **things)
    assert (again.written, again.skipped) == (0, COUNT)
    with pytest.raises(OptionError, match="did you mean 'wcu_per_second'"):
        ddbio.spark.write(frame, "sink", wcu_per_seconds=1, **things)


def test_an_export_as_a_frame(spark, export):
    """``ddbio.spark.read_export`` gives every item, exactly; given columns leave out all others."""
    check(ddbio.spark.read_export(spark, str(export)))
    some = ddbio.spark.read_export(spark, str(export), schema="pk string, price double")
    assert sorted(some.collect())[3] == ("key-0003", 3.25)
    empty = ddbio.spark.read_export(spark, str(ExportWriter(export.parent / "none").full([])))
    assert empty.collect() == []


def test_formats(spark, fake, things, export, tmp_path):
    """The formats of Spark 4 read, write and stream; Spark 3.5 has none, and is told what to use."""
    if not HAS_SOURCES:
        with pytest.raises(OptionError, match=r"has no Python data sources.*ddbio\.spark\.scan"):
            ddbio.register(spark)
        return
    ddbio.register(spark)
    check(spark.read.format("dynamodb").option("endpointUrl", fake.endpoint_url).load("things"))
    check(spark.read.format("dynamodb-export").load(str(export)))
    fake.load("formatted", b"", "pk:S")
    frame = spark.range(COUNT).selectExpr("cast(id as string) as pk", "id as n")
    frame.write.format("ddbio").mode("append").option("endpointUrl", fake.endpoint_url).save("formatted")
    assert ddbio.read_table("formatted", **things).num_rows == COUNT
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(3)
    for _ in range(3):
        log.append(writer.batch())
    source = spark.readStream.format("dynamodb-log").load(str(tmp_path / "log"))
    query = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "place"))
    query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == sum(map(len, log.batches))


def test_the_engine(spark, fake, things, export, tmp_path):
    """Verbs with the engine ``spark`` scan, read exports, and load, in the session that runs."""
    scanned = ddbio.scan_to_files("things", tmp_path / "scan", engine="spark", **things)
    assert (scanned.engine, scanned.rows) == ("spark", COUNT)
    read = ddbio.read_export_to_files(export, tmp_path / "read", engine="spark")
    assert (read.engine, read.rows) == ("spark", COUNT)
    tables = [pq.read_table(tmp_path / name).sort_by("pk") for name in ("scan", "read")]
    assert tables[0].drop_columns("_rescue").equals(tables[1].select(tables[0].drop_columns("_rescue").column_names))
    fake.load("loaded", b"", "pk:S")
    options = {"engine": "spark", "tasks": 2, "state": str(tmp_path / "state"), **things}
    assert ddbio.load_files(tmp_path / "scan", "loaded", **options).written == COUNT
    assert ddbio.digest("loaded", **things) == ddbio.digest("things", **things)


def test_lookup(spark, things):
    """A DataFrame is joined with the items that have its keys."""
    frame = spark.createDataFrame([("key-0001", 1), ("key-0001", 2), ("gone", 3)], "pk string, at long")
    joined = ddbio.spark.lookup(frame, "things", columns="price", **things)
    assert sorted((row["at"], row["price"]) for row in joined.collect()) == [
        (1, Decimal("1.25")), (2, Decimal("1.25")), (3, None),
    ]  # fmt: skip


def test_functions(spark):
    """DynamoDB JSON becomes a struct and text again, by functions of columns and of frames."""
    lines = [(json.dumps({"pk": {"S": f"a{number}"}, "n": {"N": str(number)}}),) for number in range(50)]
    frame = spark.createDataFrame(lines, "line string")
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64())])
    for decoded in (
        frame.select(functions.from_dynamodb_json("line", schema).alias("line")),
        functions.decode_column(frame, "line", schema),
    ):
        assert sorted(row["line"]["n"] for row in decoded.collect()) == list(range(50))
        encoded = functions.encode_column(decoded, "line")
        texts = decoded.select(functions.to_dynamodb_json("line", decoded.schema["line"].dataType).alias("line"))
        for back in (encoded, texts):
            assert sorted(json.loads(row["line"])["n"]["N"] for row in back.collect()) == sorted(map(str, range(50)))


def test_a_lake_table(spark, tmp_path):
    """Spark's tasks merge changes into a Delta table without a jar, and a frame of changes too."""
    assert spark.version
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(11), tmp_path / "lake"
    for engine in ("spark", "local", "spark"):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, engine=engine, buckets=2)
        rows = deltalake.DeltaTable(lake).to_pyarrow_table().to_pylist()
        assert {row["pk"]: row["n"] for row in rows if not row["_deleted"]} == {
            key: (change.item or {}).get("n") for key, change in log.model().items()
        }
    frame = spark.createDataFrame([(1, "k|0", 7)], "_sequence long, pk string, n long")
    frame = frame.withColumn("_event_time", sql.lit(datetime(2026, 11, 1, tzinfo=UTC)))
    assert ddbio.apply(frame, tmp_path / "frames", key=["pk"], engine="spark").inserted == 1


def test_batches_of_a_stream(spark, fake, things, tmp_path):
    """``foreachBatch`` writes the micro-batches of a stream into a table."""
    fake.load("batched", b"", "pk:S")
    spark.range(90).selectExpr("cast(id as string) as pk").write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema("pk string").json(str(tmp_path / "in"))
    write = stream.writeStream.foreachBatch(ddbio.spark.write_batch("batched", **things))
    query = write.option("checkpointLocation", str(tmp_path / "place")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert ddbio.read_table("batched", **things).num_rows == 90


def test_the_command(things, tmp_path):
    """``ddbio scan --engine spark`` in a process of its own starts a session, and prints a report."""
    command = [sys.executable, "-m", "ddbio", "scan", "things", str(tmp_path / "out"), "--engine", "spark", "--json"]
    command += ["--endpoint-url", things["endpoint_url"], "--master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == COUNT


CONNECT = """
import sys
from pyspark.sql import SparkSession
import ddbio, ddbio.spark
spark = SparkSession.builder.remote("local[2]").getOrCreate()
ddbio.register(spark)
frame = spark.read.format("dynamodb").option("endpointUrl", sys.argv[1]).load("things")
print(frame.count(), frame.where("n > 10").count())
rows = spark.range(30).selectExpr("cast(id as string) as pk")
rows.write.format("dynamodb").mode("append").option("endpointUrl", sys.argv[1]).save("connected")
try:
    ddbio.spark.scan(spark, "things", endpoint_url=sys.argv[1])
except ddbio.errors.OptionError as error:
    print(error)
spark.stop()
"""


def test_connect(fake, things):
    """Spark Connect reads and writes by the formats; the functions say that they need the driver."""
    if not HAS_SOURCES:
        return  # Its sources are what Connect would use: test_formats says what 3.5 is told.
    pytest.importorskip("grpc", reason="this environment has no grpcio, which Spark Connect needs")
    fake.load("connected", b"", "pk:S")
    command = [sys.executable, "-c", CONNECT, things["endpoint_url"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-2] == f"{COUNT} {COUNT - 11}"
    assert "this is Spark Connect" in done.stdout.splitlines()[-1]
    assert ddbio.read_table("connected", **things).num_rows == 30
