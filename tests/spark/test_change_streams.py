"""Changes in Structured Streaming: a log and a table's stream, from checkpoints, repeated, in two partitions."""

from __future__ import annotations

import shutil
import uuid

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio


@pytest.fixture
def table(spark, fake):
    """Return a table with a stream, and a function that puts items numbered from one number to another."""
    ddbio.register(spark)
    name = f"changed-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )

    def put(first, last):
        fake.load(name, [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(first, last)], "pk:S")

    yield name, put
    client.close()


def run(frame, folder, checkpoint):
    """Run a query until all that is there was written to files."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(folder))
    query.awaitTermination()
    return [each["numInputRows"] for each in query.recentProgress]


def forget_last(checkpoint):
    """Leave the checkpoint as if the driver had died before it noted its second micro-batch."""
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()


def numbers(folder):
    """Return the numbers of the items of all rows, and how many operations of each kind."""
    found = ds.dataset(str(folder), exclude_invalid_files=True).to_table()
    return sorted(found.column("n").to_pylist()), set(found.column("_op").to_pylist())


def test_a_log_is_streamed_from_its_checkpoint(spark, fake, table, tmp_path):
    """Each change comes once over restarts, in two partitions; a micro-batch that Spark repeats is the same."""
    name, put = table
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    capture = {"available_now": True, "endpoint_url": fake.endpoint_url}
    put(0, 30)
    ddbio.capture(name, log, **capture)
    put(30, 50)
    ddbio.capture(name, log, **capture)
    frame = spark.readStream.format("dynamodb-log").load(str(log))
    assert [each for each in frame.columns if each[0] == "_"] == [
        "_op",
        "_sequence",
        "_event_time",
        "_expired",
        "_rescue",
    ]
    assert sum(run(frame, out, checkpoint)) == 50
    assert len(list(out.glob("*.parquet"))) == 2
    put(50, 60)
    ddbio.capture(name, log, **capture)
    assert sum(run(frame, out, checkpoint)) == 10
    assert numbers(out) == ([*range(60)], {"INSERT"})
    forget_last(checkpoint)
    again = tmp_path / "again"
    shutil.copytree(checkpoint, tmp_path / "copied")
    assert sum(run(frame, again, tmp_path / "copied")) == 10
    assert numbers(again)[0] == [*range(50, 60)]


def test_a_log_is_streamed_in_small_batches(spark, fake, table, tmp_path):
    """After the first one, a micro-batch has about so many changes; the next one goes on behind it."""
    name, put = table
    log, counts = tmp_path / "log", []
    frame = spark.readStream.format("dynamodb-log").option("maxRecordsPerBatch", 15).schema("n bigint, _op string")
    writer = frame.load(str(log)).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
    for first, last in ((0, 10), (10, 40)):
        for begin in range(first, last, 10):
            put(begin, begin + 10)
            ddbio.capture(name, log, available_now=True, endpoint_url=fake.endpoint_url)
        query = writer.start(str(tmp_path / "out"))
        query.processAllAvailable()
        query.stop()
        counts += [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert counts == [10, 10, 10, 10]
    assert numbers(tmp_path / "out")[0] == [*range(40)]


def test_a_stream_is_read_from_its_checkpoint(spark, fake, table, tmp_path):
    """The changes of a table come once over restarts, and those of a repeated micro-batch are the same."""
    name, put = table
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    put(0, 30)
    options = {"endpointUrl": fake.endpoint_url, "log": str(tmp_path / "log")}
    frame = spark.readStream.format("dynamodb-streams").options(**options).load(name)
    assert sum(run(frame, out, checkpoint)) == 30
    put(30, 50)
    fake.split_shards(name)
    put(50, 60)
    assert sum(run(frame, out, checkpoint)) == 30
    assert numbers(out) == ([*range(60)], {"INSERT"})
    forget_last(checkpoint)
    put(60, 70)
    shutil.copytree(checkpoint, tmp_path / "copied")
    counts = [sum(run(frame, tmp_path / "again", tmp_path / "copied")) for _ in range(2)]
    assert sum(counts) == 40
    assert numbers(tmp_path / "again")[0] == [*range(30, 70)]


def test_a_kinesis_data_stream_is_read(spark, fake, table, tmp_path):
    """The same from the data stream that the changes of a table go to."""
    name, put = table
    clients = [boto3.client(each, endpoint_url=fake.endpoint_url) for each in ("dynamodb", "kinesis")]
    clients[1].create_stream(StreamName=name, ShardCount=2)
    arn = clients[1].describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    clients[0].enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)
    put(0, 30)
    options = {"endpointUrl": fake.endpoint_url, "log": str(tmp_path / "log")}
    frame = spark.readStream.format("dynamodb-kinesis").options(**options).load(name)
    assert sum(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == 30
    assert numbers(tmp_path / "out") == ([*range(30)], {"INSERT"})
    for each in clients:
        each.close()


def test_an_empty_table_needs_a_schema(spark, fake, table, tmp_path):
    """Columns are decided once: nothing is guessed from a table without items."""
    reader = spark.readStream.format("dynamodb-streams").options(endpointUrl=fake.endpoint_url, log=str(tmp_path))
    with pytest.raises(Exception, match="has no items that show its columns yet: give schema"):
        reader.load(table[0])
