"""Hudi tables on S3: ddbio reads them by its own store, and Hudi's writer on Spark by s3a, in one folder."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner

from ddbio.cli.main import cli
from ddbio.testing import MotoServer

# Moto is part of the first environment alone.
PYTHON = Path(__file__).parents[2] / ".venv/bin/python"


@pytest.fixture
def s3(need):
    """Return the session, which reaches a local S3, and where that is."""
    need("hudi")
    session = need("s3a")
    with MotoServer(str(PYTHON) if PYTHON.exists() else sys.executable) as server:
        client = boto3.client("s3", endpoint_url=server.endpoint_url, region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        client.close()
        session.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.endpoint", server.endpoint_url)
        yield session, server.endpoint_url


def invoked(*words):
    """Return the exit code of a command, and its answer."""
    done = CliRunner().invoke(cli, [*map(str, words), "--json"])
    assert done.stdout, (done.output, done.exception)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_a_hudi_table_on_s3(s3, fake):
    """Base, changes, proof and maintenance of a table whose log and folder are on S3."""
    session, s3_url = s3
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
    name, lake = f"tab-{uuid.uuid4().hex}", "s3://lake/orders"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for n in range(5):
        client.put_item(TableName=name, Item={"pk": {"S": f"k{n}"}, "n": {"N": str(n)}})
    given = ("--endpoint-url", fake.endpoint_url, "--s3-endpoint-url", s3_url, "--region", "us-east-1")
    on_spark = ("--format", "hudi", "--engine", "spark", *given)
    command = ("bootstrap", name, lake, "--log", "s3://lake/log", "--buckets", 1, *on_spark)
    assert invoked(*command)[1]["base_rows"] == 5
    client.delete_item(TableName=name, Key={"pk": {"S": "k0"}})
    client.put_item(TableName=name, Item={"pk": {"S": "k1"}, "n": {"N": "-1"}})
    _, applied = invoked(*command)
    assert (applied["updated"] > 0, applied["deleted"]) == (True, 1)
    code, found = invoked("verify", name, lake, *given)
    assert (code, found["equal"], found["tombstones"]) == (0, True, 1)
    _, done = invoked("maintain", lake, "--sort-by", "n", *on_spark)
    assert (done["rewritten_files"], done["written_files"]) == (1, 1)
    code, found = invoked("verify", name, lake, *given)
    assert (code, found["equal"], found["version"]) == (0, True, done["version"])
    rows = session.read.format("hudi").load("s3a://lake/orders").where("not _deleted").select("pk", "n").collect()
    assert {row["pk"]: int(row["n"]) for row in rows} == {"k1": -1, "k2": 2, "k3": 3, "k4": 4}
    client.close()
