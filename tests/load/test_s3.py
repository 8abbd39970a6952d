"""Loads of objects of a bucket, with rejected rows in another prefix."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.errors import NotFoundError, OptionError
from ddbio.testing import FakeDynamoDB, MotoServer

BUCKET = "sources"


@pytest.fixture(scope="module")
def s3():
    """Return a client of moto over HTTP, and its endpoint."""
    with MotoServer() as server:
        client = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client, server.endpoint_url


@pytest.fixture
def table():
    """Serve one empty table with the key id; return its endpoint."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "id:S")
        yield running.endpoint_url


def test_objects_of_a_prefix_become_items(s3, table):
    """Every row of every object below the prefix is in the table."""
    client, url = s3
    for number in range(3):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [f"{number}-{row}" for row in range(50)], "n": range(50)}), sink)
        client.put_object(Bucket=BUCKET, Key=f"in/part-{number}.parquet", Body=sink.getvalue())
    options = {"endpoint_url": table, "s3_endpoint_url": url}
    assert ddbio.load_files(f"s3://{BUCKET}/in/*.parquet", "rows", **options).written == 150
    again = ddbio.load_files(f"s3://{BUCKET}/in/", "rows", mode="create", **options)
    assert (again.written, again.skipped) == (0, 150)
    assert ddbio.read_table("rows", endpoint_url=table).num_rows == 150


def test_rejected_rows_are_in_the_bucket(s3, table):
    """A row without a key is rejected with its reason. The others are written."""
    client, url = s3
    lines = b'{"id": "a", "n": 1}\n{"id": "", "n": 2}\n{"n": 3}\n'
    client.put_object(Bucket=BUCKET, Key="bad/rows.jsonl", Body=lines)
    report = ddbio.load_files(
        f"s3://{BUCKET}/bad/rows.jsonl", "rows", reject_to=f"s3://{BUCKET}/rejects", endpoint_url=table,
        s3_endpoint_url=url,
    )  # fmt: skip
    assert (report.written, report.rejected) == (1, 2)
    (row,) = client.list_objects_v2(Bucket=BUCKET, Prefix="rejects/")["Contents"]
    text = client.get_object(Bucket=BUCKET, Key=row["Key"])["Body"].read()
    assert len([json.loads(line) for line in text.splitlines()]) == 2


def test_a_missing_bucket_is_an_error(s3, table):
    """A missing bucket is one clear error."""
    with pytest.raises(NotFoundError, match="nobody"):
        ddbio.load_files("s3://nobody/in/", "rows", endpoint_url=table, s3_endpoint_url=s3[1])


def test_a_load_resumes_from_checkpoints_in_the_bucket(s3, table):
    """Checkpoints may be in a bucket. A replaced object with the same size is another source."""
    client, url = s3

    def put(word):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [f"{word}-{row}" for row in range(50)]}), sink, row_group_size=20)
        client.put_object(Bucket=BUCKET, Key="noted/part-0.parquet", Body=sink.getvalue())
        return len(sink.getvalue())

    def load():
        options = {"endpoint_url": table, "s3_endpoint_url": url, "state": f"s3://{BUCKET}/state", "job_id": "job_1"}
        return ddbio.load_files(f"s3://{BUCKET}/noted/", "rows", **options)

    size = put("a")
    assert (load().rows, load().rows, load().resumed_rows) == (50, 0, 50)
    assert put("b") == size
    with pytest.raises(OptionError, match="the files of its source have changed since"):
        load()
