"""Jobs of a session that the tests run on every version, and on a Spark Connect server (``connect_job.py``)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
from pyspark.sql import functions as sql

import ddbio
import ddbio.spark
from ddbio.spark import functions

COUNT = 400
ODD = 7


def item(number):
    """Return one item of the table ``things`` with many types and one value that does not fit."""
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


def read_and_write(spark, target, at, export):
    """Read a table and an export by their formats, and write a table, which has no rows yet."""
    ddbio.register(spark)
    reader = spark.read.format("dynamodb").option("endpointUrl", at["endpoint_url"])
    check(reader.load("things"))
    assert reader.load("things").where("n > 10").count() == COUNT - 11
    check(spark.read.format("dynamodb-export").load(str(export)))
    frame = spark.range(COUNT).selectExpr("cast(id as string) as pk", "id as n")
    frame.write.format("ddbio").mode("append").option("endpointUrl", at["endpoint_url"]).save(target)
    assert ddbio.read_table(target, **at).num_rows == COUNT


def stream(spark, log, changes, folder):
    """Read a log with the given number of changes as a stream."""
    ddbio.register(spark)
    source = spark.readStream.format("dynamodb-log").load(str(log))
    query = source.writeStream.format("parquet").option("checkpointLocation", str(folder / "place"))
    finish(query.trigger(availableNow=True).start(str(folder / "out")))
    assert spark.read.parquet(str(folder / "out")).count() == changes


def finish(query):
    """Wait for the end of a query."""
    query.awaitTermination()
    assert query.exception() is None


def look_up(spark, at):
    """Join a DataFrame with the items of its keys."""
    frame = spark.createDataFrame([("key-0001", 1), ("key-0001", 2), ("gone", 3)], "pk string, at long")
    joined = ddbio.spark.lookup(frame, "things", columns="price", **at)
    assert sorted((row["at"], row["price"]) for row in joined.collect()) == [
        (1, Decimal("1.25")), (2, Decimal("1.25")), (3, None),
    ]  # fmt: skip


def _lines(spark):
    lines = [(json.dumps({"pk": {"S": f"a{number}"}, "n": {"N": str(number)}}),) for number in range(50)]
    return spark.createDataFrame(lines, "line string"), pa.schema([("pk", pa.string()), ("n", pa.int64())])


def _check_lines(decoded, encoded):
    assert sorted(row["line"]["n"] for row in decoded.collect()) == list(range(50))
    assert sorted(json.loads(row["line"])["n"]["N"] for row in encoded.collect()) == sorted(map(str, range(50)))


def functions_of_frames(spark):
    """Convert a frame's column of DynamoDB JSON to structs, and back to text."""
    frame, schema = _lines(spark)
    decoded = functions.decode_column(frame, "line", schema)
    _check_lines(decoded, functions.encode_column(decoded, "line"))


def functions_of_columns(spark):
    """Do the same by functions of columns, and compute the keys of rows as Arrow does."""
    frame, schema = _lines(spark)
    decoded = frame.select(functions.from_dynamodb_json("line", schema).alias("line"))
    _check_lines(
        decoded, decoded.select(functions.to_dynamodb_json("line", decoded.schema["line"].dataType).alias("line"))
    )
    rows = [("a", 1, Decimal("1.50")), (None, -2, Decimal("1E-7"))]
    keyed = spark.createDataFrame(rows, "s string, n long, d decimal(38,10)")
    key_rows = keyed.select(functions.idempotency_key("s", "n", "d").alias("key")).collect()
    arrow = pa.table({"s": ["a", None], "n": [1, -2], "d": pa.array([row[2] for row in rows], pa.decimal128(38, 10))})
    assert sorted(row["key"] for row in key_rows) == sorted(ddbio.idempotency_key(arrow, ["s", "n", "d"]).to_pylist())


def digest_and_compare(frame, at):
    """Digest and compare a frame of the table's rows, and one that lacks a row."""
    assert ddbio.digest(frame) == ddbio.digest("things", **at)
    assert ddbio.validate("things", frame, **at).equal
    report = ddbio.validate("things", frame.where("pk <> 'key-0003'"), **at)
    assert (report.missing, report.extra, report.different) == (1, 0, 0)


def write_sized_files(spark, folder):
    """Make files of one size by Spark's writer."""
    frame = spark.range(0, 20_000, 1, 8).selectExpr("id", "sha2(cast(id as string), 256) as payload")
    sized = ddbio.spark.sized_files(frame, target_file_bytes=250 * 1024)
    sized.write.parquet(str(folder))
    assert len([*Path(folder).glob("*.parquet")]) == sized.files > 3


def write_batches(spark, target, at, folder):
    """Write the micro-batches of a stream into a table, which has no rows yet."""
    spark.range(90).selectExpr("cast(id as string) as pk").write.json(str(folder / "in"))
    rows = spark.readStream.schema("pk string").json(str(folder / "in"))
    query = rows.writeStream.foreachBatch(ddbio.spark.write_batch(target, **at))
    finish(query.option("checkpointLocation", str(folder / "place")).trigger(availableNow=True).start())
    assert ddbio.read_table(target, **at).num_rows == 90


def apply_batches(spark, folder, **options):
    """Merge the micro-batches of a stream of changes into a table of Delta."""
    frame = spark.createDataFrame([(1, "k|0", 7), (2, "k|0", 8), (3, "k|1", 9)], "_sequence long, pk string, n long")
    frame = frame.withColumn("_event_time", sql.lit(datetime(2026, 11, 1, tzinfo=UTC)))
    frame.write.parquet(str(folder / "in"))
    rows = spark.readStream.schema(frame.schema).parquet(str(folder / "in"))
    merge = ddbio.spark.apply_batch(str(folder / "lake"), key=["pk"], buckets=2, **options)
    query = rows.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "place"))
    finish(query.trigger(availableNow=True).start())
    merged = deltalake.DeltaTable(folder / "lake").to_pyarrow_table().to_pylist()
    assert {row["pk"]: row["n"] for row in merged if not row["_deleted"]} == {"k|0": 8, "k|1": 9}
