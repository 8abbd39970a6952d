"""Streams into a table: every row of every micro-batch, also after a query was stopped and restarted."""

import json

import pytest

import ddbio
from ddbio.spark import write_batch

SCHEMA = "pk string, n bigint"


@pytest.fixture
def stream(spark, tmp_path):
    """Return a stream over the files of a folder, one per micro-batch, and a function that adds one."""
    ddbio.register(spark)
    folder = tmp_path / "in"
    folder.mkdir()

    def add(name, count):
        lines = [json.dumps({"pk": f"{name}-{n}", "n": n}) for n in range(count)]
        (folder / f"{name}.json").write_text("\n".join(lines))

    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder)), add


def run(writer):
    """Run a query until all available rows are written."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def count(fake, table):
    """Return the number of items of the table."""
    return ddbio.read_table(table, endpoint_url=fake.endpoint_url).num_rows


def test_a_stream_is_written_and_resumes(spark, stream, fake, tmp_path):
    """Each micro-batch is written once. A query that restarts from its checkpoint only writes new rows."""
    frame, add = stream
    fake.load("streamed", b"", "pk:S")
    writer = frame.writeStream.format("dynamodb").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.options(table="streamed", endpointUrl=fake.endpoint_url)
    add("a", 30)
    run(writer)
    assert (count(fake, "streamed"), sum(row[2] for row in fake.consumed("streamed"))) == (30, 30)
    described = fake.requests()["DescribeTable"]
    add("c", 10)
    add("d", 10)
    run(writer)
    assert (count(fake, "streamed"), sum(row[2] for row in fake.consumed("streamed"))) == (50, 50)
    # Nothing was planned again, except the read of the assertion.
    assert fake.requests()["DescribeTable"] == described + 1
    assert ddbio.last_report(spark).written == 10


def test_each_batch_as_a_function(stream, fake):
    """``foreachBatch`` writes the same, and a repeated batch changes nothing."""
    frame, add = stream
    fake.load("batched", b"", "pk:S")
    add("a", 30)
    for _ in range(2):
        run(frame.writeStream.foreachBatch(write_batch("batched", endpoint_url=fake.endpoint_url, mode="create")))
    assert count(fake, "batched") == 30


def test_complete_output_is_refused(stream, fake, tmp_path):
    """A table cannot be replaced with every micro-batch, and the query has an error."""
    frame, add = stream
    fake.load("replaced", b"", "pk:S")
    add("a", 3)
    writer = frame.groupBy("pk").count().writeStream.outputMode("complete").format("dynamodb")
    writer = writer.options(table="replaced", endpointUrl=fake.endpoint_url, checkpointLocation=str(tmp_path / "c"))
    with pytest.raises(Exception, match="a table cannot be overwritten"):
        run(writer)
