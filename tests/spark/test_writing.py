"""``df.write.format("dynamodb")``: every row of every task, with its types and within the budget."""

import os

import numpy as np
import pyarrow as pa
import pytest
from pyspark import SparkFiles, TaskContext

import ddbio
from ddbio.aws.table_description import TableDescription
from ddbio.errors import OptionError, ServiceError
from ddbio.load.options import WriteOptions
from ddbio.load.plan import plan_write
from ddbio.options import parse_options
from ddbio.spark import registration
from ddbio.spark.writing import KeyHashes, rows_of_new_keys, rows_of_unique_keys

ROWS = 2_000


@pytest.fixture
def frame(spark):
    """Return rows in four partitions."""
    ddbio.register(spark)
    return (
        spark.range(ROWS)
        .selectExpr("cast(id as string) as pk", "id as n", "cast(id / 4 as decimal(9,2)) as d")
        .repartition(4)
    )


def test_every_row_of_every_task_is_written(spark, frame, fake):
    """Appending puts each row, and a read returns the written rows."""
    fake.load("sink", b"", "pk:S")
    frame.write.format("dynamodb").mode("append").option("endpointUrl", fake.endpoint_url).save("sink")
    back = spark.read.format("dynamodb").option("endpointUrl", fake.endpoint_url).load("sink").drop("_rescue")
    assert sorted(map(tuple, back.select("pk", "n", "d").collect())) == sorted(map(tuple, frame.collect()))


def test_dates_and_times_are_written(spark, fake):
    """Spark's own times are written as ISO texts."""
    ddbio.register(spark)
    fake.load("timed", b"", "pk:S")
    frame = spark.sql("""
        SELECT 'a' AS pk, timestamp'2024-02-29 12:30:00Z' AS at, timestamp_ntz'2024-02-29 12:30:00' AS local,
            date'2024-02-29' AS day, interval '1' DAY AS took, array(date'1970-01-01') AS days
    """)
    frame.write.format("dynamodb").mode("append").option("endpointUrl", fake.endpoint_url).save("timed")
    assert ddbio.read_table("timed", endpoint_url=fake.endpoint_url).drop_columns("_rescue").to_pylist() == [
        {
            "pk": "a",
            "at": "2024-02-29T12:30:00.000000Z",
            "local": "2024-02-29T12:30:00.000000",
            "day": "2024-02-29",
            "took": "PT86400.000000S",
            "days": ["1970-01-01"],
        }
    ]


def test_modes_are_options(frame, fake):
    """The write modes are options of the writer: existing items are deleted."""
    fake.load("emptied", b"", "pk:S")
    writer = frame.write.format("ddbio").mode("append").option("endpointUrl", fake.endpoint_url)
    writer.save("emptied")
    frame.write.format("ddbio").mode("append").options(endpointUrl=fake.endpoint_url).option("mode", "delete").save(
        "emptied"
    )
    assert ddbio.read_table("emptied", endpoint_url=fake.endpoint_url).num_rows == 0


@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", "_spark_metadata/0"])
def test_rejects_are_not_written_into_what_others_keep(frame, fake, tmp_path, log):
    """A lake table or the output of a stream is refused as ``rejectTo`` before a row is written."""
    fake.load("kept", b"", "pk:S")
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).write_text("v1\n")
    writer = frame.write.format("dynamodb").mode("append").option("endpointUrl", fake.endpoint_url)
    with pytest.raises(Exception, match="other files in it could be read as rows of it"):
        writer.option("rejectTo", str(tmp_path / "in")).save("kept")
    assert ddbio.read_table("kept", endpoint_url=fake.endpoint_url).num_rows == 0
    assert [entry.name for entry in tmp_path.iterdir()] == [log.partition("/")[0]]


def test_overwriting_is_refused(frame, fake):
    """A table cannot be overwritten, and Spark's error has ddbio's text."""
    fake.load("kept", b"", "pk:S")
    with pytest.raises(Exception, match="a table cannot be overwritten"):
        frame.write.format("dynamodb").mode("overwrite").option("endpointUrl", fake.endpoint_url).save("kept")


def test_one_budget_for_all_tasks(spark, frame, fake):
    """The rate is enforced over all tasks, as the service counts it."""
    fake.load("paced", b"", "pk:S")
    options = {"endpointUrl": fake.endpoint_url, "wcuPerSecond": 1000}
    frame.write.format("dynamodb").mode("append").options(**options).save("paced")
    assert sum(row[2] for row in fake.consumed("paced")) == ROWS
    # Less time would mean a higher rate. More time is not an error.
    assert ddbio.last_report(spark).seconds > 0.8 * ROWS / 1000


@pytest.mark.parametrize("mode", ["upsert", pytest.param("create", marks=pytest.mark.nightly)])
def test_a_worker_that_dies_loses_nothing(frame, fake, mode):
    """If a process dies after writing half of a partition, Spark repeats the task, and every row is written."""

    def dying(batches):
        context = TaskContext.get()
        for batch in batches:
            yield batch.slice(0, 100)
            if context.partitionId() == 1 and context.attemptNumber() == 0:
                os._exit(1)
            yield batch.slice(100)

    fake.load(f"survived_{mode}", b"", "pk:S")
    writer = frame.mapInArrow(dying, frame.schema).write.format("dynamodb").mode("append")
    writer.options(endpointUrl=fake.endpoint_url, mode=mode).save(f"survived_{mode}")
    assert ddbio.read_table(f"survived_{mode}", endpoint_url=fake.endpoint_url).num_rows == ROWS


def test_a_task_that_runs_again_without_a_fence_writes_only_unique_keys():
    """If no driver can stop its first attempt, a task writes rows of unique keys, and otherwise none."""
    table = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)
    plan = plan_write(table, parse_options(WriteOptions, {"table": "rows"}))
    batches = [pa.record_batch({"pk": ["a", "b", None]}), pa.record_batch({"pk": ["c"], "n": [1]})]
    with rows_of_unique_keys(batches, plan, None) as rows:
        assert list(rows) == batches
    again = [*batches, pa.record_batch({"pk": ["b"]})]
    with pytest.raises(ServiceError, match=r"ddbio.register.*nothing was written.*newer_by.*unique_keys"):
        rows_of_unique_keys(again, plan, None).__enter__()


def test_a_task_that_no_driver_knows_ends_where_a_key_comes_again():
    """The rows before the repeated key are written: in every attempt, each is the only row of its key."""
    table = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)
    plan = plan_write(table, parse_options(WriteOptions, {"table": "rows"}))
    batches = [pa.record_batch({"pk": [f"{batch} {row}" for row in range(9)]}) for batch in range(20)]
    assert list(rows_of_new_keys(batches, plan)) == batches
    rows = rows_of_new_keys([*batches, batches[3].slice(4, 1)], plan)
    assert [next(rows) for _ in batches] == batches
    with pytest.raises(OptionError, match=r"ddbio.register.*newer_by.*unique_keys.*allow_unfenced"):
        next(rows)


def test_hashes_that_come_again_are_found_among_any_number():
    """The hashes are kept in few runs, and each earlier one is found."""
    rng = np.random.default_rng(15)
    values = rng.permutation(3_000).astype(np.uint64)
    seen = KeyHashes()
    cuts = np.sort(rng.integers(0, 3_000, 60))
    assert all(seen.add(part) for part in np.split(values, cuts))
    assert not any(seen.add(values[index : index + 1]) for index in range(0, 3_000, 7))
    assert seen.add(np.array([5_000], np.uint64))
    assert not seen.add(np.array([6_000, 6_000], np.uint64))


@pytest.fixture
def unregistered(spark):
    """Return the session without a driver that serves it."""
    server = registration._lease_servers.pop(SparkFiles.getRootDirectory(), None)
    if server is not None:
        server.close()
    return spark


def test_several_rows_of_a_key_take_a_driver_that_knows_the_tasks(unregistered, fake):
    """Without a driver they are refused, unless that is allowed. Unique keys are written."""
    fake.load("unfenced", b"", "pk:S")
    rows = unregistered.range(900).selectExpr("cast(id % 300 as string) as pk", "id as v").coalesce(1)

    def write(frame, **options):
        writer = frame.write.format("dynamodb").mode("append").options(endpointUrl=fake.endpoint_url, **options)
        writer.save("unfenced")

    with pytest.raises(Exception, match=r"several rows of a key.*ddbio.register\(spark\)"):
        write(rows)
    write(rows.where("v < 300"))
    assert ddbio.read_table("unfenced", endpoint_url=fake.endpoint_url).num_rows == 300
    write(rows, allowUnfenced="true")
    table = ddbio.read_table("unfenced", endpoint_url=fake.endpoint_url).to_pylist()
    assert {int(row["v"]) // 300 for row in table} == {2}


def test_the_last_write_is_reported(spark, frame, fake):
    """The driver has the report of all tasks' writes and their consumption."""
    fake.load("reported", [{"pk": {"S": "7"}}], "pk:S")
    writer = frame.write.format("dynamodb").mode("append").option("dynamodb.endpoint", fake.endpoint_url)
    writer.option("mode", "create").option("dynamodb.output.tableName", "reported").save()
    report = ddbio.last_report(spark)
    assert (report.table, report.mode, report.rows, report.written, report.skipped) == (
        *("reported", "create", ROWS, ROWS - 1, 1),
    )
    assert report.wcu_consumed == sum(row[2] for row in fake.consumed("reported"))
    assert report.seconds > 0


def test_newer_rows_and_operations(spark, fake):
    """``newer_by`` keeps newer rows, and ``operation_by`` sets the operation of each row, as in a load."""
    ddbio.register(spark)
    options = {"endpointUrl": fake.endpoint_url}
    fake.load("versions", [{"pk": {"S": key}, "v": {"N": str(v)}} for key, v in (("a", 1), ("b", 5))], "pk:S")
    rows = spark.createDataFrame([("a", 3), ("b", 3)], "pk string, v long")
    rows.write.format("dynamodb").mode("append").options(**options, newerBy="v").save("versions")
    assert ddbio.last_report(spark).skipped == 1
    table = ddbio.read_table("versions", endpoint_url=fake.endpoint_url).to_pylist()
    assert {row["pk"]: int(row["v"]) for row in table} == {"a": 3, "b": 5}
    changes = spark.createDataFrame([("a", 9, "update"), ("b", None, "delete")], "pk string, w long, op string")
    changes.write.format("dynamodb").mode("append").options(**options, operationBy="op").save("versions")
    table = ddbio.read_table("versions", endpoint_url=fake.endpoint_url).to_pylist()
    assert [(row["pk"], int(row["v"]), int(row["w"])) for row in table] == [("a", 3, 9)]
