"""Lake tables that are created by one command: they equal the table, also after kills and gaps."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid

import boto3
import pytest
from pyiceberg.catalog.rest import RestCatalog as RestClient

import ddbio
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB
from tests.lake.rest_catalog import RestCatalog

STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


@pytest.fixture(scope="module")
def fake(s3_url):
    """Serve one fake that can export, for all tests of this module."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=s3_url) as served:
        yield served


@pytest.fixture(scope="module")
def client(fake):
    """Return a client of the fake."""
    connected = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    yield connected
    connected.close()


@pytest.fixture
def table(fake, client):
    """Return a new table with a stream, point-in-time recovery and some items."""
    name = f"tab-{uuid.uuid4().hex}"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=STREAM,
    )
    recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
    client.update_continuous_backups(TableName=name, **recovery)
    fake.pass_time(1800)
    for key in "abcdef":
        put(client, name, key, 1)
    return name


def put(client, table, key, n):
    """Put an item."""
    client.put_item(TableName=table, Item={"pk": {"S": key}, "n": {"N": str(n)}})


def delete(client, table, key):
    """Delete an item."""
    client.delete_item(TableName=table, Key={"pk": {"S": key}})


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_one_command_makes_a_table_and_keeps_it_up(kind, fake, client, table, tmp_path):
    """Items from before the log are in the base, changes since are applied; the same command brings it up to date."""
    log, lake, options = tmp_path / "log", tmp_path / "lake", {"endpoint_url": fake.endpoint_url}
    # Changes that are older than the stream are only in the base.
    fake.trim_stream(table)
    first = ddbio.bootstrap(table, lake, log=str(log), format=kind, buckets=2, **options)
    assert (first.base_rows, first.gaps) == (6, 0)
    assert ddbio.verify(table, lake, **options).equal
    put(client, table, "a", 2)
    delete(client, table, "b")
    put(client, table, "g", 1)
    second = ddbio.bootstrap(table, lake, log=str(log), format=kind, **options)
    assert (second.base_rows, second.inserted, second.updated, second.deleted) == (None, 1, 1, 1)
    assert ddbio.verify(table, lake, **options).equal


def test_the_base_is_a_full_export(fake, client, table, s3_url, tmp_path):
    """The service exports, and no scan reads the table; later changes are applied."""
    options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    locations = {"log": str(tmp_path / "log"), "export_to": "s3://exports/base", "poll_seconds": 0.2, **options}
    fake.pass_time(10)
    first = ddbio.bootstrap(table, tmp_path / "lake", base="export", **locations)
    assert first.base_rows == 6
    put(client, table, "a", 2)
    delete(client, table, "b")
    second = ddbio.bootstrap(table, tmp_path / "lake", base="export", **locations)
    assert (second.base_rows, second.updated, second.deleted) == (None, 1, 1), second
    assert ddbio.verify(table, tmp_path / "lake", **options).equal


def test_expired_records_are_healed_or_loaded_again(fake, client, table, s3_url, tmp_path):
    """With exports the log is healed and the base stays; without them a new base replaces the old one."""
    options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    for name, export in (("healed", {"export_to": "s3://exports/heal", "poll_seconds": 0.2}), ("anew", {})):
        locations = {"log": str(tmp_path / f"{name}-log"), **export, **options}
        lake = tmp_path / f"{name}-lake"
        ddbio.bootstrap(table, lake, **locations)
        fake.pass_time(1000)
        put(client, table, "a", len(name))
        delete(client, table, "b")
        put(client, table, "zombie", 1)
        delete(client, table, "zombie")
        put(client, table, "b", 5 + len(name))
        fake.trim_stream(table)
        fake.pass_time(1000)
        put(client, table, "c", 10 + len(name))
        report = ddbio.bootstrap(table, lake, **locations)
        assert report.gaps == 1, report
        assert (report.base_rows is None, report.healed > 0) == (bool(export), bool(export)), report
        report_of_verify = ddbio.verify(table, lake, **options)
        assert report_of_verify.equal, report_of_verify


def test_a_catalog_has_each_run(fake, client, table, tmp_path, monkeypatch):
    """An Iceberg catalog has the table after the first base, after changes, and after a new base."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    (tmp_path / "catalog").mkdir()
    # The fake's clock makes its records later than the base.
    fake.trim_stream(table)
    with RestCatalog(tmp_path / "catalog") as catalog:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", catalog.uri)
        options = {"log": str(log), "format": "iceberg", "catalog": "iceberg://lake/shop.orders"}
        options["endpoint_url"] = fake.endpoint_url

        def shown():
            rows = RestClient("other", uri=catalog.uri).load_table("shop.orders").scan().to_arrow().to_pylist()
            return {row["pk"]: row["n"] for row in rows if not row["_is_deleted"]}

        ddbio.bootstrap(table, lake, **options)
        assert shown() == dict.fromkeys("abcdef", 1)
        put(client, table, "a", 2)
        delete(client, table, "b")
        ddbio.bootstrap(table, lake, **options)
        assert shown() == {"a": 2, **dict.fromkeys("cdef", 1)}
        # The stream loses a change, so the base is loaded again.
        fake.pass_time(1000)
        put(client, table, "c", 3)
        fake.trim_stream(table)
        fake.pass_time(1000)
        put(client, table, "d", 4)
        assert ddbio.bootstrap(table, lake, **options).base_rows == 5
        assert shown() == {"a": 2, "c": 3, "d": 4, "e": 1, "f": 1}
        assert ddbio.verify(table, lake, endpoint_url=fake.endpoint_url).equal


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"catalog": "iceberg://nowhere/shop.orders", "format": "iceberg"}, "no catalog 'nowhere'"),
        ({"catalog": "iceberg://lake/shop.orders"}, "is for Iceberg tables, but this table is delta"),
        ({"catalog": "glue://lake.orders"}, "is not on S3"),
    ],
)
def test_a_catalog_that_cannot_have_the_table(options, problem, fake, table, tmp_path):
    """Nothing is captured and no base is read if the catalog cannot have the table."""
    with pytest.raises(OptionError, match=problem):
        ddbio.bootstrap(table, tmp_path / "lake", log=str(tmp_path / "log"), endpoint_url=fake.endpoint_url, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_killed_run_is_resumed(fake, client, table, tmp_path):
    """After a kill after the capture or the base, or with a table without a base, the next run completes the table."""
    options = {"endpoint_url": fake.endpoint_url}
    for step in range(4):
        log, lake = tmp_path / f"log-{step}", tmp_path / f"lake-{step}"
        ddbio.capture(table, log, available_now=True, **options)
        if step == 1:
            ddbio.scan_to_files(table, lake, format="delta", engine="local", **options)
        if step == 2:
            ddbio.apply(log, lake)
        if step == 3:
            ddbio.bootstrap(table, lake, log=str(log), **options)
        put(client, table, f"k{step}", step)
        delete(client, table, "abcdef"[step])
        report = ddbio.bootstrap(table, lake, log=str(log), **options)
        assert (report.base_rows is None) == (step in {1, 3})
        verified = ddbio.verify(table, lake, **options)
        assert verified.equal, (step, verified)


@pytest.mark.nightly
def test_killed_at_any_time(fake, client, table, tmp_path):
    """Runs are killed with SIGKILL at different times, and the last one completes."""
    command = [
        sys.executable,
        "-m",
        "ddbio",
        "bootstrap",
        table,
        str(tmp_path / "lake"),
        "--log",
        str(tmp_path / "log"),
    ]
    command += ["--endpoint-url", fake.endpoint_url, "--region", "us-east-1"]
    for seconds in (2.0, 2.6, 3.4):
        put(client, table, f"at-{seconds}", 1)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
    delete(client, table, "a")
    ddbio.bootstrap(table, tmp_path / "lake", log=str(tmp_path / "log"), endpoint_url=fake.endpoint_url)
    assert ddbio.verify(table, tmp_path / "lake", endpoint_url=fake.endpoint_url).equal
