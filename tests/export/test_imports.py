"""Imports from files into a new table, over HTTP."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.main import cli
from ddbio.errors import LimitError, NotFoundError, OptionError, ServiceError, ValidationError
from ddbio.testing import Faults

BUCKET = "imports"
KEY = "pk:S,sk:N"


def rows(count, first=0):
    """Return rows of several types."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "pk": [f"user-{number // 10}" for number in numbers],
            "sk": list(numbers),
            "name": [f"ä{number}" for number in numbers],
            "tags": [[f"{number}", "x"] for number in numbers],
        }
    )


@pytest.mark.parametrize(
    ("compression", "file_format"),
    [("zstd", "dynamodb_json"), ("gzip", "dynamodb_json"), ("none", "dynamodb_json"), ("zstd", "ion")],
)
def test_rows_become_a_table(serve, compression, file_format):
    """The table has the rows after they were written, imported with the manifest, awaited and verified."""
    _, options = serve()
    dest, table = f"s3://{BUCKET}/{compression}-{file_format}", f"made-{compression}"
    ddbio.write_import_files(
        rows(1000),
        dest,
        key=KEY,
        compression=compression,
        format=file_format,
        target_file_bytes=65536,
        digest=True,
        **options,
    )
    job = ddbio.start_import(dest, table, **options)
    assert (job.source, job.items) == (f"{dest}/data", 1000)
    job = ddbio.wait_import(job.arn, verify=True, **options)
    assert (job.imported_items, job.errors, job.verified) == (1000, 0, True)
    assert ddbio.digest(table, **options) == ddbio.digest(rows(1000))


def test_csv_becomes_a_table(serve):
    """The manifest describes the CSV: keys, including those of the index, have their types; other columns are text."""
    _, options = serve()
    table = pa.table({"pk": ['a "b"; c', "d"], "sk": [1, 2], "day": [3, 4], "n": [0.5, 1e20], "text": ["", "x;y"]})
    write_options = {
        "key": KEY,
        "gsi": "by_day=day:N",
        "format": "csv",
        "delimiter": ";",
        "csv_strings": True,
        "digest": True,
    }
    ddbio.write_import_files(table, f"s3://{BUCKET}/csv", **write_options, **options)
    job = ddbio.start_import(f"s3://{BUCKET}/csv", "from_csv", **options)
    job = ddbio.wait_import(job.arn, verify=True, **options)
    assert (job.format, job.imported_items, job.verified) == ("csv", 2, True)
    table_rows = sorted(
        ddbio.read_table("from_csv", **options).drop_columns("_rescue").to_pylist(), key=lambda row: row["sk"]
    )
    assert table_rows == [
        {"pk": 'a "b"; c', "sk": 1, "day": 3, "n": "0.5", "text": ""},
        {"pk": "d", "sk": 2, "day": 4, "n": "1e+20", "text": "x;y"},
    ]


def test_the_table_has_its_indexes_and_billing(serve):
    """Key, indexes and capacity are the requested ones."""
    fake, options = serve()
    dest = f"s3://{BUCKET}/indexed"
    ddbio.write_import_files(rows(10), dest, key=KEY, **options)
    job = ddbio.start_import(
        f"{dest}/data",
        "indexed",
        gsi="by_name=name;by_sk=sk:N,pk:S/KEYS_ONLY",
        billing="provisioned",
        rcu=5,
        wcu=6,
        **options,
    )
    ddbio.wait_import(job.arn, **options)
    client = ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb")
    table = client.describe_table(TableName="indexed")["Table"]
    assert {index["IndexName"]: index["Projection"]["ProjectionType"] for index in table["GlobalSecondaryIndexes"]} == {
        "by_name": "ALL",
        "by_sk": "KEYS_ONLY",
    }
    assert table["ProvisionedThroughput"]["WriteCapacityUnits"] == 6
    assert [key_part["AttributeName"] for key_part in table["KeySchema"]] == ["pk", "sk"]


def test_other_objects_need_to_be_described(serve, s3):
    """Without a manifest key and compression are required; with them any export's lines can be imported."""
    _, options = serve()
    lines = b"".join(json.dumps({"Item": {"pk": {"S": str(n)}}}).encode() + b"\n" for n in range(20))
    s3[1].put_object(Bucket=BUCKET, Key="bare/a.json.gz", Body=gzip.compress(lines))
    with pytest.raises(OptionError, match="give key"):
        ddbio.start_import(f"s3://{BUCKET}/bare", "bare", **options)
    with pytest.raises(OptionError, match="give compression"):
        ddbio.start_import(f"s3://{BUCKET}/bare", "bare", key="pk", **options)
    job = ddbio.start_import(f"s3://{BUCKET}/bare", "bare", key="pk", compression="gzip", **options)
    job = ddbio.wait_import(job.arn, verify=True, **options)
    assert (job.imported_items, job.items) == (20, None)
    assert [listed.arn for listed in ddbio.list_imports("bare", **options)] == [job.arn]


def test_a_bad_line_ends_its_object(serve, s3):
    """The rest of the object is lost and counts as one error, which names the imported items and the log."""
    _, options = serve()
    good = [json.dumps({"Item": {"pk": {"S": str(n)}}}) for n in range(10)]
    s3[1].put_object(Bucket=BUCKET, Key="bad/a.json", Body="\n".join(good[:5]).encode())
    s3[1].put_object(Bucket=BUCKET, Key="bad/b.json", Body="\n".join([good[5], "{}", *good[6:]]).encode())
    job = ddbio.start_import(f"s3://{BUCKET}/bad", "bad", key="pk", compression="none", **options)
    with pytest.raises(ServiceError, match=r"ItemValidationError.*6 items.*1 objects.*/aws-dynamodb/imports"):
        ddbio.wait_import(job.arn, **options)


def test_a_table_unlike_its_files_is_an_error(serve, s3):
    """Another number of items than in the manifest, and another digest, are errors."""
    fake, options = serve(job_seconds=60)
    dest = f"s3://{BUCKET}/unlike"
    ddbio.write_import_files(rows(30), dest, key=KEY, compression="none", digest=True, **options)
    job = ddbio.start_import(dest, "unlike", **options)
    body = b'{"Item":{"pk":{"S":"stranger"},"sk":{"N":"1"}}}\n'
    s3[1].put_object(Bucket=BUCKET, Key="unlike/data/more", Body=body)
    fake.pass_time(60)
    with pytest.raises(ValidationError, match=r"31 items, but its files contain 30"):
        ddbio.wait_import(job.arn, **options)


def test_a_changed_item_is_found_by_its_digest(serve):
    """With verify the table is read, and one differing item is an error."""
    fake, options = serve()
    dest = f"s3://{BUCKET}/changed"
    ddbio.write_import_files(rows(30), dest, key=KEY, digest=True, **options)
    job = ddbio.start_import(dest, "changed", **options)
    ddbio.wait_import(job.arn, **options)
    item = {"pk": {"S": "user-0"}, "sk": {"N": "1"}}
    ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb").put_item(
        TableName="changed", Item=item
    )
    with pytest.raises(ValidationError, match="digest"):
        ddbio.wait_import(job.arn, verify=True, **options)


def test_what_cannot_start_does_not(serve):
    """An empty prefix, an existing table, a conflict with the manifest and an unchecked index are refused."""
    fake, options = serve()
    dest = f"s3://{BUCKET}/refused"
    ddbio.write_import_files(rows(10), dest, key=KEY, **options)
    fake.load("there", b"", "pk:S")
    with pytest.raises(NotFoundError, match="empty table"):
        ddbio.start_import(f"s3://{BUCKET}/nothing", "new", key="pk", compression="none", **options)
    with pytest.raises(ServiceError, match="there is such a table"):
        ddbio.start_import(dest, "there", **options)
    with pytest.raises(OptionError, match="manifest of the files has"):
        ddbio.start_import(dest, "new", key="pk:N", **options)
    with pytest.raises(OptionError, match="is S in one key and N in another"):
        ddbio.start_import(dest, "new", gsi="by=pk:N", **options)
    with pytest.raises(OptionError, match="no index"):
        ddbio.start_import(dest, "new", gsi="by", **options)
    assert ddbio.list_imports(**options) == []


def test_a_token_of_another_import_is_found_out(serve):
    """The service would silently return the old import while it runs."""
    _, options = serve(job_seconds=60)
    for name in ("one", "two"):
        ddbio.write_import_files(rows(10), f"s3://{BUCKET}/token-{name}", key=KEY, **options)
    first = ddbio.start_import(f"s3://{BUCKET}/token-one", "token", client_token="t", **options)
    assert ddbio.start_import(f"s3://{BUCKET}/token-one", "token", client_token="t", **options).arn == first.arn
    with pytest.raises(ServiceError, match="use another one"):
        ddbio.start_import(f"s3://{BUCKET}/token-two", "token", client_token="t", **options)


def test_a_failed_import_reports_the_reason(serve):
    """The FailureCode becomes the error."""
    _, options = serve(faults=Faults(job_failure="S3NoSuchBucket"))
    ddbio.write_import_files(rows(10), f"s3://{BUCKET}/failed", key=KEY, **options)
    job = ddbio.start_import(f"s3://{BUCKET}/failed", "failed", **options)
    with pytest.raises(NotFoundError, match="S3NoSuchBucket"):
        ddbio.wait_import(job.arn, **options)


def test_the_command_line_drives_an_import(serve):
    """A dry run starts nothing; start, wait, list and show each print one JSON object."""
    _, options = serve()
    reach = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    dest = f"s3://{BUCKET}/cli"
    ddbio.write_import_files(rows(10), dest, key=KEY, **options)

    def run(*words):
        return json.loads(CliRunner().invoke(cli, ["import", *words, *reach, "--json"], catch_exceptions=False).stdout)

    plan = run("start", dest, "cli", "--dry-run")
    assert (plan["key"], plan["objects"], plan["items"], plan["compression"]) == (KEY, 1, 10, "zstd")
    same = json.loads(ddbio.plan_import(dest, "cli", **options).to_json())
    assert same | {"client_token": plan["client_token"]} == plan
    assert plan["lines"][0]["usd"] == pytest.approx(plan["json_bytes"] / 2**30 * 0.15)
    with pytest.raises(LimitError, match="max_usd"):
        ddbio.start_import(dest, "cli", max_usd=1e-9, **options)
    assert run("list") == {"imports": []}
    job = run("start", dest, "cli")
    assert run("wait", job["arn"], "--verify")["imported_items"] == 10
    assert run("list", "cli")["imports"][0]["status"] == "COMPLETED"
    assert run("describe", job["arn"])["table"] == "cli"


def test_another_fake_imports_the_same(s3):
    """Moto creates the same table from the same files with the same verbs."""
    url, _ = s3
    options = {"endpoint_url": url, "s3_endpoint_url": url, "region": "us-east-1"}
    dest = f"s3://{BUCKET}/moto"
    ddbio.write_import_files(rows(50), dest, key=KEY, compression="gzip", digest=True, **options)
    job = ddbio.start_import(dest, "moto-made", **options)
    assert ddbio.wait_import(job.arn, verify=True, **options).imported_items == 50
