"""Changes in Structured Streaming: a log and a table's stream, from checkpoints, repeated, in two partitions."""

from __future__ import annotations

import shutil
import uuid
from types import SimpleNamespace

import boto3
import pyarrow.dataset as ds
import pytest
from pyspark.sql.types import StructType

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cdc.log_jobs import log_jobs
from ddbio.jobs.stores import open_store
from ddbio.options import ConnectionOptions
from ddbio.spark.change_reading import open_log_reader
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.cdc.gapped_log import AFTER, last_rows, make_gap


@pytest.fixture
def table(spark, fake):
    """Return a table with a stream, and a function that puts the items of a range of numbers."""
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
    """Run a query until all available changes are written to files."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(folder))
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def forget_last(checkpoint):
    """Change the checkpoint as if the driver had died before it recorded its second micro-batch."""
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()


def numbers(folder):
    """Return the numbers of the items of all rows, and the counts of operations by kind."""
    rows = ds.dataset(str(folder), exclude_invalid_files=True).to_table()
    return sorted(rows.column("n").to_pylist()), set(rows.column("_op").to_pylist())


def test_a_log_is_streamed_from_its_checkpoint(spark, fake, table, tmp_path):
    """Each change is read once over restarts, in two partitions. A micro-batch that Spark repeats is equal."""
    name, put = table
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    capture = {"available_now": True, "endpoint_url": fake.endpoint_url}
    put(0, 30)
    ddbio.capture(name, log, **capture)
    put(30, 50)
    ddbio.capture(name, log, **capture)
    frame = spark.readStream.format("dynamodb-log").load(str(log))
    assert [column for column in frame.columns if column[0] == "_"] == [
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


@pytest.mark.nightly
def test_a_log_is_streamed_in_small_batches(spark, fake, table, tmp_path):
    """After the first one, a micro-batch has about the limit of changes, and the next one continues after it."""
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
        counts += [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert counts == [10, 10, 10, 10]
    assert numbers(tmp_path / "out")[0] == [*range(40)]


def test_a_limit_of_spark_counts(spark, fake, table, tmp_path):
    """With the calls of Spark 4.2, the limits are a number of changes, all changes, and the end of AvailableNow."""
    name, put = table
    capture = {"available_now": True, "endpoint_url": fake.endpoint_url}
    for first in range(0, 40, 10):
        put(first, first + 10)
        ddbio.capture(name, tmp_path, **capture)
    store = open_store(str(tmp_path), ConnectionOptions())
    (job_id,) = (job.job_id for job in log_jobs(store))
    reader = open_log_reader({"path": str(tmp_path), "maxRecordsPerBatch": "10"}, StructType([]))
    begin = reader.initialOffset()
    assert begin == {job_id: 0}
    assert reader.latestOffset(begin, SimpleNamespace(max_rows=20)) == {job_id: 2}
    assert reader.latestOffset({job_id: 1}, SimpleNamespace(max_rows=20)) == {job_id: 3}
    assert reader.latestOffset(begin, SimpleNamespace()) == reader.reportLatestOffset() == {job_id: 4}
    reader.prepareForTriggerAvailableNow()
    put(40, 50)
    ddbio.capture(name, tmp_path, **capture)
    assert reader.latestOffset({job_id: 2}, SimpleNamespace(max_rows=100)) == {job_id: 4}
    assert reader.reportLatestOffset() == {job_id: 5}


def test_a_stream_is_read_from_its_checkpoint(spark, fake, table, tmp_path):
    """The changes of a table are read once over restarts, and those of a repeated micro-batch are equal."""
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
    """The same for the data stream that receives the changes of a table."""
    name, put = table
    clients = [boto3.client(service, endpoint_url=fake.endpoint_url) for service in ("dynamodb", "kinesis")]
    clients[1].create_stream(StreamName=name, ShardCount=2)
    arn = clients[1].describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    clients[0].enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)
    put(0, 30)
    options = {"endpointUrl": fake.endpoint_url, "log": str(tmp_path / "log")}
    frame = spark.readStream.format("dynamodb-kinesis").options(**options).load(name)
    assert sum(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == 30
    assert numbers(tmp_path / "out") == ([*range(30)], {"INSERT"})
    for client in clients:
        client.close()


def test_an_empty_table_needs_a_schema(spark, fake, table, tmp_path):
    """Columns are chosen once, and not guessed from a table without items."""
    reader = spark.readStream.format("dynamodb-streams").options(endpointUrl=fake.endpoint_url, log=str(tmp_path))
    with pytest.raises(Exception, match="has no items that show its columns yet: give schema"):
        reader.load(table[0])


@pytest.mark.nightly
def test_a_healed_log_is_streamed(spark, tmp_path):
    """After a restart, a query over a Kinesis log has the rows that heal its gap, each once."""
    ddbio.register(spark)
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    with MotoServer() as s3:
        ClientSpec(endpoint_url=s3.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="exports")
        with FakeDynamoDB(burst_at_creation=1.0, export_to=s3.endpoint_url) as fake:
            name, _ = make_gap(fake, log)
            counts = [sum(run(spark.readStream.format("dynamodb-log").load(str(log)), out, checkpoint))]
            urls = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3.endpoint_url}
            ddbio.heal_capture(name, log, export_to="s3://exports/spark", poll_seconds=0.2, region="us-east-1", **urls)
    frame = spark.readStream.format("dynamodb-log").load(str(log))
    counts += [sum(run(frame, out, checkpoint)) for _ in range(2)]
    assert counts == [6, 4, 0]
    assert last_rows(ds.dataset(str(out), exclude_invalid_files=True).to_table()) == AFTER
