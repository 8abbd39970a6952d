"""Lake tables that are made by one command: equal to the table, after kills and gaps, too."""

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
    """Serve one fake that exports, for all tests of this module."""
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
    """Items from before the log are in the base, changes since are applied; the same command again brings it up."""
    log, lake, given = tmp_path / "log", tmp_path / "lake", {"endpoint_url": fake.endpoint_url}
    # What is older than the stream is only in the base.
    fake.trim_stream(table)
    first = ddbio.bootstrap(table, lake, log=str(log), format=kind, buckets=2, **given)
    assert (first.base_rows, first.gaps) == (6, 0)
    assert ddbio.verify(table, lake, **given).equal
    put(client, table, "a", 2)
    delete(client, table, "b")
    put(client, table, "g", 1)
    second = ddbio.bootstrap(table, lake, log=str(log), format=kind, **given)
    assert (second.base_rows, second.inserted, second.updated, second.deleted) == (None, 1, 1, 1)
    assert ddbio.verify(table, lake, **given).equal


def test_the_base_is_a_full_export(fake, client, table, s3_url, tmp_path):
    """The service exports, and no scan reads the table; what changes afterwards is applied."""
    given = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    place = {"log": str(tmp_path / "log"), "export_to": "s3://exports/base", "poll_seconds": 0.2, **given}
    fake.pass_time(10)
    first = ddbio.bootstrap(table, tmp_path / "lake", base="export", **place)
    assert first.base_rows == 6
    put(client, table, "a", 2)
    delete(client, table, "b")
    second = ddbio.bootstrap(table, tmp_path / "lake", base="export", **place)
    assert (second.base_rows, second.updated, second.deleted) == (None, 1, 1), second
    assert ddbio.verify(table, tmp_path / "lake", **given).equal


def test_what_a_stream_forgot_is_healed_or_loaded_anew(fake, client, table, s3_url, tmp_path):
    """With exports the log is healed and the base stays; without them a new base takes the place of the old one."""
    given = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    for name, export in (("healed", {"export_to": "s3://exports/heal", "poll_seconds": 0.2}), ("anew", {})):
        place = {"log": str(tmp_path / f"{name}-log"), **export, **given}
        lake = tmp_path / f"{name}-lake"
        ddbio.bootstrap(table, lake, **place)
        fake.pass_time(1000)
        put(client, table, "a", len(name))
        delete(client, table, "b")
        put(client, table, "zombie", 1)
        delete(client, table, "zombie")
        put(client, table, "b", 5 + len(name))
        fake.trim_stream(table)
        fake.pass_time(1000)
        put(client, table, "c", 10 + len(name))
        report = ddbio.bootstrap(table, lake, **place)
        assert report.gaps == 1, report
        assert (report.base_rows is None, report.healed > 0) == (bool(export), bool(export)), report
        found = ddbio.verify(table, lake, **given)
        assert found.equal, found


def test_a_catalog_has_each_run(fake, client, table, tmp_path, monkeypatch):
    """A catalog of Iceberg names the table behind the first base, behind changes, and behind a base that is new."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    (tmp_path / "catalog").mkdir()
    # Its records are later than the base, by the clock of the fake.
    fake.trim_stream(table)
    with RestCatalog(tmp_path / "catalog") as catalog:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", catalog.uri)
        given = {"log": str(log), "format": "iceberg", "catalog": "iceberg://lake/shop.orders"}
        given["endpoint_url"] = fake.endpoint_url

        def shown():
            rows = RestClient("other", uri=catalog.uri).load_table("shop.orders").scan().to_arrow().to_pylist()
            return {row["pk"]: row["n"] for row in rows if not row["_is_deleted"]}

        ddbio.bootstrap(table, lake, **given)
        assert shown() == dict.fromkeys("abcdef", 1)
        put(client, table, "a", 2)
        delete(client, table, "b")
        ddbio.bootstrap(table, lake, **given)
        assert shown() == {"a": 2, **dict.fromkeys("cdef", 1)}
        # The stream forgets a change, so the base is loaded anew.
        fake.pass_time(1000)
        put(client, table, "c", 3)
        fake.trim_stream(table)
        fake.pass_time(1000)
        put(client, table, "d", 4)
        assert ddbio.bootstrap(table, lake, **given).base_rows == 5
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
def test_a_catalog_that_cannot_name_the_table(options, problem, fake, table, tmp_path):
    """Nothing is captured and no base is read if the catalog could not name the table."""
    with pytest.raises(OptionError, match=problem):
        ddbio.bootstrap(table, tmp_path / "lake", log=str(tmp_path / "log"), endpoint_url=fake.endpoint_url, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_what_a_killed_run_leaves_is_gone_on_with(fake, client, table, tmp_path):
    """Behind the capture, behind the base, with a table without a base: the next run ends with an equal table."""
    given = {"endpoint_url": fake.endpoint_url}
    for step in range(4):
        log, lake = tmp_path / f"log-{step}", tmp_path / f"lake-{step}"
        ddbio.capture(table, log, available_now=True, **given)
        if step == 1:
            ddbio.scan_to_files(table, lake, format="delta", engine="local", **given)
        if step == 2:
            ddbio.apply(log, lake)
        if step == 3:
            ddbio.bootstrap(table, lake, log=str(log), **given)
        put(client, table, f"k{step}", step)
        delete(client, table, "abcdef"[step])
        report = ddbio.bootstrap(table, lake, log=str(log), **given)
        assert (report.base_rows is None) == (step in {1, 3})
        found = ddbio.verify(table, lake, **given)
        assert found.equal, (step, found)


@pytest.mark.nightly
def test_killed_at_any_time(fake, client, table, tmp_path):
    """Runs that are killed with SIGKILL, earlier and later, and one to the end."""
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
