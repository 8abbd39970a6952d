"""Lake tables that equal the table, now and as of a time; and the differences of others."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import boto3
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import NotFoundError, OptionError, ServiceError
from ddbio.lake import verify as verifying
from ddbio.lambda_handlers import log_changes
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import ExportWriter, put_manifest
from tests.lake.test_apply import capture, fake, resource, table
from tests.test_lambda_handlers import stream_record

__all__ = ["capture", "fake", "resource", "table"]


def export_of(folder, items, at, **members):
    """Write a full export of the state at a time, with more members of its summary, and return its folder."""
    home = ExportWriter(folder).full(items)
    summary = json.loads((home / "manifest-summary.json").read_bytes())
    put_manifest(home, "manifest-summary", json.dumps({**summary, "exportTime": at.isoformat(), **members}).encode())
    return home


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_table_equals_the_table(kind, fake, table, capture, tmp_path):
    """With base, changes and deletes: equal after each apply, and changes that are not applied are shown by key."""
    lake, options = tmp_path / "lake", {"endpoint_url": fake.endpoint_url}
    for number in range(12):
        table.put_item(Item={"pk": "a", "sk": number, "n": number, "tags": {"x", "y"}, "nothing": None})
    ddbio.scan_to_files(table.name, lake, format=kind, buckets=3, engine="local", **options)
    report = ddbio.verify(table.name, lake, **options)
    assert (report.equal, report.source_rows, report.target_rows, report.tombstones) == (True, 12, 12, 0)
    table.delete_item(Key={"pk": "a", "sk": 3})
    table.put_item(Item={"pk": "a", "sk": 4, "n": "text", "more": [1, {"deep": True}]})
    table.put_item(Item={"pk": "b", "sk": 1})
    before = ddbio.verify(table.name, lake, **options)
    assert (before.equal, before.missing, before.extra, before.different) == (False, 1, 1, 1)
    assert {(example.kind, example.key["sk"]["N"]) for example in before.examples} == {
        ("missing", "1"), ("extra", "3"), ("different", "4"),
    }  # fmt: skip
    ddbio.apply(capture(), lake, format=kind)
    after = ddbio.verify(table.name, lake, **options)
    assert (after.equal, after.tombstones, after.source_digest) == (True, 1, after.target_digest), after
    earlier = ddbio.verify(table.name, lake, version=before.version, **options)
    assert (earlier.version, earlier.equal) == (before.version, False)
    # A lake table can be a side of any validation.
    assert ddbio.validate(lake, table.name, target_endpoint_url=fake.endpoint_url, **options).equal


def test_the_exit_code_shows_whether_it_is_equal(fake, table, tmp_path):
    """``--json`` prints ``equal`` and the differences; the exit code is 1 if there are any."""
    table.put_item(Item={"pk": "a", "sk": 1})
    ddbio.scan_to_files(table.name, tmp_path / "lake", format="delta", engine="local", endpoint_url=fake.endpoint_url)
    command = ["verify", table.name, str(tmp_path / "lake"), "--endpoint-url", fake.endpoint_url]
    done = CliRunner().invoke(cli, [*command, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["equal"]) == (0, True), done
    table.put_item(Item={"pk": "a", "sk": 2})
    failed = CliRunner().invoke(cli, command)
    assert failed.exit_code == 1
    assert "1 missing" in failed.stdout


def test_verified_as_of_a_time(s3_url, tmp_path):
    """The service exports as of a time; the log has the state of items that changed since; else they are left out."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=s3_url) as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        name = f"tab-{uuid.uuid4().hex}"
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        client.update_continuous_backups(
            TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )

        def put(key, n):
            client.put_item(TableName=name, Item={"pk": {"S": key}, "n": {"N": str(n)}})

        def write_and_apply(writes):
            for key, n in writes:
                if n is None:
                    client.delete_item(TableName=name, Key={"pk": {"S": key}})
                else:
                    put(key, n)
            ddbio.capture(name, log, available_now=True, endpoint_url=fake.endpoint_url)
            ddbio.apply(log, lake)

        log, lake = tmp_path / "log", tmp_path / "lake"
        write_and_apply([(key, 1) for key in "abcde"])
        fake.pass_time(600)
        write_and_apply([("a", 2), ("b", None), ("f", 1)])
        fake.pass_time(600)
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1200)
        fake.pass_time(600)
        write_and_apply([("a", 3), ("a", 4), ("c", None), ("b", 5), ("g", 1)])
        client.close()
        options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
        with pytest.raises(OptionError, match="export_to is missing"):
            ddbio.verify(name, lake, at=at, **options)
        asked = {"at": at, "export_to": "s3://exports/full", "poll_seconds": 0.2, **options}
        report = ddbio.verify(name, lake, log=str(log), **asked)
        assert (report.equal, report.source_rows, report.recent, report.unsettled) == (True, 5, 4, 0), report
        assert report.at == at.isoformat()
        without = ddbio.verify(name, lake, **asked)
        assert (without.equal, without.source_rows, without.recent, without.unsettled) == (True, 3, 4, 4), without
        assert not ddbio.verify(name, lake, **options, version=1).equal


def test_an_export_that_the_lake_does_not_hold(fake, table, tmp_path):
    """An export of a time before the base load is refused."""
    table.put_item(Item={"pk": "a", "sk": 1})
    ddbio.scan_to_files(table.name, tmp_path / "lake", format="delta", engine="local", endpoint_url=fake.endpoint_url)
    export = export_of(tmp_path, [{"pk": {"S": "a"}, "sk": {"N": "1"}}], datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(OptionError, match=r"was loaded at .*, after"):
        ddbio.verify(export, tmp_path / "lake")


def test_a_filtered_export_is_refused(fake, table, tmp_path):
    """An export without all items and attributes is not compared with a lake table."""
    table.put_item(Item={"pk": "a", "sk": 1})
    ddbio.scan_to_files(table.name, tmp_path / "lake", format="delta", engine="local", endpoint_url=fake.endpoint_url)
    items = [{"pk": {"S": "a"}, "sk": {"N": "1"}}]
    specification = {"FilterExpression": "sk > 0"}
    export = export_of(tmp_path, items, datetime(2099, 1, 1, tzinfo=UTC), filterSpecification=specification)
    with pytest.raises(OptionError, match="is filtered"):
        ddbio.verify(export, tmp_path / "lake")


@pytest.mark.parametrize(
    ("more_us", "log", "problem"),
    [
        (0, True, None),
        (1, True, None),
        (999_999, False, None),
        (1, "none", "is not a log of changes"),
        (-1, True, "the base"),
        (-1_000_000, False, "the base"),
    ],
)
def test_unverifiable_tables_are_refused_before_an_export(more_us, log, problem, monkeypatch, tmp_path):
    """A time before the base, and a missing log, are refused before an export; export times are whole seconds."""
    monkeypatch.setenv("DDBIO_LOG", str(tmp_path / "log"))
    log_changes({"Records": [stream_record(1)]})
    ddbio.apply(tmp_path / "log", tmp_path / "lake")
    base, asked = datetime(2026, 11, 2, tzinfo=UTC), []
    monkeypatch.setattr(verifying, "base_us", lambda _: round(base.timestamp() * 1e6))

    def start(options):
        asked.append(options.at)
        raise ServiceError("no export")

    monkeypatch.setattr(verifying, "EXPORT", SimpleNamespace(start=start))
    at = base + timedelta(microseconds=more_us)
    options = {} if log is False else {"log": str(tmp_path / ("log" if log is True else log))}
    with pytest.raises((OptionError, NotFoundError, ServiceError), match=problem or "no export"):
        ddbio.verify("orders", tmp_path / "lake", at=at, export_to="s3://exports/x", **options)
    assert asked == ([] if problem else [at.replace(microsecond=0)])
