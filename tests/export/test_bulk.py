"""Bulk puts from files into an existing table, against the fake."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.cli.progress import JobWatch
from ddbio.errors import NotFoundError, OptionError, PartialWriteError, ServiceError
from ddbio.testing import Faults

BUCKET = "bulk"
REPORTS = f"s3://{BUCKET}/reports"


@pytest.fixture
def serve(serve):
    """Return a factory of fakes with a table; it returns the fake and the options for all endpoints."""

    def side(**options):
        fake, reach = serve(**options)
        fake.load("orders", [{"pk": {"S": "old"}}, {"pk": {"S": "k1"}, "n": {"N": "0"}}], "pk:S")
        return fake, reach

    return side


def files(name, options, count=100, key="pk"):
    """Write rows as files and return their location."""
    rows = pa.table({"pk": [f"k{number}" for number in range(count)], "n": list(range(count))})
    ddbio.write_import_files(rows, f"s3://{BUCKET}/{name}", key=key, **options)
    return f"s3://{BUCKET}/{name}"


def test_files_are_put_into_a_table(serve):
    """Every item of the files replaces the item with its key; other items of the table stay."""
    _, options = serve()
    job = ddbio.start_bulk_put(files("put", options), "orders", REPORTS, **options)
    job = ddbio.wait_bulk_put(job.arn, **options)
    assert (job.status, job.processed_items, job.failed_items) == ("COMPLETED", 100, 0)
    values = {row["pk"]: row["n"] for row in ddbio.read_table("orders", **options).to_pylist()}
    assert values == {"old": None} | {f"k{number}": number for number in range(100)}
    assert [operation.status for operation in ddbio.list_bulk_puts(**options)] == ["COMPLETED"]


def test_refused_items_are_a_partial_write(serve, s3):
    """The error has the numbers of put and refused items, and the location of the reports."""
    _, options = serve()
    body = b'{"Item":{"pk":{"S":"a"}}}\n{"Item":{"other":{"S":"b"}}}\n{"Item":{"pk":{"S":"c"}}}\n'
    s3[1].put_object(Bucket=BUCKET, Key="partly/a", Body=body)
    job = ddbio.start_bulk_put(f"s3://{BUCKET}/partly", "orders", REPORTS, compression="none", **options)
    with pytest.raises(PartialWriteError, match=r"2 items put into orders, 1 refused.*reports") as caught:
        ddbio.wait_bulk_put(job.arn, **options)
    assert (caught.value.accepted, caught.value.rejected, caught.value.rejects_uri) == (2, 1, REPORTS)


def test_a_bulk_put_can_be_cancelled(serve):
    """A cancelled bulk put is reported by waiting; with a token the start can be repeated before."""
    fake, options = serve(job_seconds=3600)
    source = files("cancelled", options)
    job = ddbio.start_bulk_put(source, "orders", REPORTS, client_token="t", **options)
    assert ddbio.start_bulk_put(source, "orders", REPORTS, client_token="t", **options).arn == job.arn
    with pytest.raises(ServiceError, match="another one"):
        ddbio.start_bulk_put(source, "orders", REPORTS, client_token="t", wcu_per_second=2048, **options)
    assert ddbio.describe_bulk_put(job.arn, **options).status == "IN_PROGRESS"
    assert ddbio.cancel_bulk_put(job.arn, **options).status == "CANCELLED"
    fake.pass_time(3600)
    with pytest.raises(ServiceError, match="CANCELLED, and the items that it has put stay"):
        ddbio.wait_bulk_put(job.arn, **options)


def test_what_cannot_start_does_not(serve):
    """Files of another key, reports below the source, no files, no table, no bucket: all are refused at the start."""
    fake, options = serve()
    source = files("refused", options)
    with pytest.raises(OptionError, match="written for the key"):
        ddbio.start_bulk_put(files("other-key", options, key="n:N"), "orders", REPORTS, **options)
    with pytest.raises(OptionError, match="below the source"):
        ddbio.start_bulk_put(f"s3://{BUCKET}", "orders", REPORTS, compression="none", **options)
    with pytest.raises(NotFoundError, match="has no objects"):
        ddbio.start_bulk_put(f"s3://{BUCKET}/nothing", "orders", REPORTS, compression="none", **options)
    with pytest.raises(NotFoundError, match="absent"):
        ddbio.start_bulk_put(source, "absent", REPORTS, **options)
    with pytest.raises(NotFoundError, match="bucket absent"):
        ddbio.start_bulk_put(source, "orders", "s3://absent/x", **options)
    assert "StartBulkPutItems" not in fake.requests()


def test_a_failed_bulk_put_reports_the_reason(serve):
    """The FailureCode becomes the error."""
    _, options = serve(faults=Faults(job_failure="InternalServerError"))
    job = ddbio.start_bulk_put(files("failed", options), "orders", REPORTS, **options)
    with pytest.raises(ServiceError, match="InternalServerError"):
        ddbio.wait_bulk_put(job.arn, **options)


def test_the_command_line_drives_a_bulk_put(serve):
    """A dry run starts nothing; each verb prints one JSON object."""
    _, options = serve()
    source = files("cli", options)
    reach = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]

    def run(*words):
        return json.loads(CliRunner().invoke(cli, ["bulk", *words, *reach, "--json"], catch_exceptions=False).stdout)

    plan = run("start", source, "orders", REPORTS, "--dry-run")
    assert (plan["items"], plan["compression"], plan["objects"]) == (100, "zstd", 1)
    same = json.loads(ddbio.plan_bulk_put(source, "orders", REPORTS, **options).to_json())
    assert same | {"client_token": plan["client_token"]} == plan
    assert run("list") == {"bulk_puts": []}
    job = run("start", source, "orders", REPORTS)
    assert run("wait", job["arn"])["processed_items"] == 100
    assert run("describe", job["arn"])["table"] == "orders"
    assert run("list")["bulk_puts"][0]["status"] == "COMPLETED"


def test_the_remaining_time_is_shown(serve, capsys):
    """While bytes are counted, the progress output has the completed share and the estimated remaining time."""
    _, options = serve()
    job = ddbio.start_bulk_put(files("watched", options), "orders", REPORTS, **options)
    job = ddbio.describe_bulk_put(job.arn, **options)
    JobWatch("bulk put").look(dataclasses.replace(job, processed_bytes=25, total_bytes=100), 10.0)
    assert "25% done, about 30.0 s left" in capsys.readouterr().err
