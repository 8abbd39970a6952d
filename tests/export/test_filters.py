"""Filtered exports: the requested filter, its plan and price, its text, and the steps that refuse it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.main import cli
from ddbio.errors import ExportIncompleteError, OptionError
from ddbio.export.filters import MAX_EXPRESSION_BYTES, expression_text
from ddbio.testing import FakeDynamoDB, MotoServer

BUCKET, TABLE = "exports", "orders"
ITEMS = [
    {
        "pk": {"S": pk},
        "sk": {"N": str(at)},
        "status": {"S": "open" if at % 2 else "shipped"},
        "bytes": {"B": "AP8="},
        "size": {"N": f"{at}.50"},
    }
    for pk in "ab"
    for at in range(20)
]


@pytest.fixture(scope="module")
def s3_url():
    """Serve an S3 with one bucket."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket=BUCKET)
        yield server.endpoint_url


@pytest.fixture(scope="module")
def fake(s3_url):
    """Serve the table."""
    with FakeDynamoDB(export_to=s3_url) as fake:
        fake.load(TABLE, ITEMS, "pk:S,sk:N")
        yield fake


@pytest.fixture(scope="module")
def reach(fake, s3_url):
    """Return the options for both endpoints; point-in-time recovery is on."""
    options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    client = ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb")
    client.update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    return options


def plan(reach, **options):
    """Return the plan of an export."""
    return ddbio.plan_export(TABLE, f"s3://{BUCKET}/x", **reach, **options)


def exported(reach, **options):
    """Return the description of a completed export."""
    job = ddbio.start_export(TABLE, f"s3://{BUCKET}/x", **reach, **options)
    return ddbio.wait_export(job.arn, **reach)


@pytest.mark.parametrize(
    ("where", "key_condition", "other"),
    [
        ("pk = 'a'", "\"pk\" = 'a'", None),
        ("pk = 'a' AND sk >= 2 AND sk <= 5", '"pk" = \'a\' AND "sk" BETWEEN 2 AND 5', None),
        ("pk IN ('a') AND status = 'open'", "\"pk\" = 'a'", "\"status\" = 'open'"),
        ("sk < 3 AND pk = 'b' AND bytes = x'00ff'", '"pk" = \'b\' AND "sk" < 3', "\"bytes\" = x'00ff'"),
        ("status = 'open' AND size IN (1.5, 3.5)", None, '"status" = \'open\' AND "size" IN (1.5, 3.5)'),
        ("NOT status = 'open' OR bytes = x'00'", None, "NOT (\"status\" = 'open') OR \"bytes\" = x'00'"),
        ("pk IN ('a', 'b') AND sk = 1", None, "\"pk\" IN ('a', 'b') AND \"sk\" = 1"),
        ("pk = 'a' AND sk < 5 AND sk > 1", None, '"pk" = \'a\' AND "sk" < 5 AND "sk" > 1'),
    ],
)
def test_an_export_has_the_items_of_a_scan(reach, where, key_condition, other):
    """One value of the partition key becomes the key condition. The export has the items that a scan returns."""
    planned = plan(reach, where=where)
    assert (planned.key_condition, planned.filter) == (key_condition, other)
    job = exported(reach, where=where)
    assert (job.filtered, job.key_condition, job.filter, job.columns) == (True, key_condition, other, None)
    expected = ddbio.read_table(TABLE, where=where, **reach)
    assert job.items == expected.num_rows
    assert ddbio.digest(ddbio.read_export(job.uri, **reach)) == ddbio.digest(expected)


def test_columns_are_exported(reach):
    """The export has the named attributes, also those whose names are reserved words."""
    job = exported(reach, columns="pk,status,size", where="status = 'open'")
    assert job.columns == '"pk", "status", "size"'
    assert ddbio.read_export(job.uri, **reach).schema.names == ["pk", "status", "size", "_rescue"]


def test_an_export_without_a_filter_sends_none(reach):
    """Without the options, the description has no filter."""
    job = exported(reach)
    assert (job.filtered, job.key_condition, job.filter, job.columns) == (False, None, None, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"where": "pk = 5"}, "the key 'pk' has type S"),
        ({"where": "status = 'open' OR sk > 'a'"}, "the key 'sk' has type N"),
        ({"where": "NOT begins_with(sk, '1')"}, "the key 'sk' has type N"),
        ({"where": "pk ="}, "the condition"),
        ({"where": "frequency(pk) = 2"}, "not a function"),
        ({"where": f"status IN ({', '.join(['1'] * MAX_EXPRESSION_BYTES)})"}, "FilterExpression has"),
        ({"columns": ["pk", "pk"]}, "twice"),
        ({"columns": [f"column{at}" for at in range(1000)]}, "ProjectionExpression has"),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_expressed_is_refused(fake, reach, options, words):
    """Wrong types, wrong conditions and long expressions are errors before the request."""
    before = fake.requests().get("ExportTableToPointInTime", 0)
    with pytest.raises(OptionError, match=words):
        ddbio.start_export(TABLE, f"s3://{BUCKET}/x", **reach, **options)
    assert fake.requests().get("ExportTableToPointInTime", 0) == before


def test_a_plan_shows_the_price_of_a_filter(reach, tmp_path):
    """The price is that of the whole table. With a key condition the plan calls it an upper bound."""
    unfiltered, filtered, keyed = (plan(reach, where=where) for where in (None, "status = 'open'", "pk = 'a'"))
    assert unfiltered.estimate.cost.usd == filtered.estimate.cost.usd == keyed.estimate.cost.usd
    assert "the whole table is read and billed" in filtered.estimate.cost.notes[-1]
    assert "upper bound" in keyed.estimate.cost.notes[-1]
    assert len(unfiltered.estimate.cost.notes) == len(keyed.estimate.cost.notes) - 1
    day = {"from_time": datetime(2026, 11, 1, tzinfo=UTC), "to_time": datetime(2026, 11, 2, tzinfo=UTC)}
    client = ClientSpec(endpoint_url=reach["endpoint_url"], region="us-east-1").client("dynamodb")
    file = tmp_path / "table.json"
    file.write_text(json.dumps(client.describe_table(TableName=TABLE), default=str))
    options = {**day, "from_file": str(file)}
    increment, keyed = (
        ddbio.plan_export(TABLE, f"s3://{BUCKET}/x", where=where, **options) for where in (None, "pk = 'a'")
    )
    assert (increment.key_condition, keyed.key_condition) == (None, "\"pk\" = 'a'")
    assert increment.estimate.cost.notes == keyed.estimate.cost.notes


def test_a_plan_warns(reach):
    """A plan warns if a condition of the key reads the whole table, and if columns omit the key."""
    assert plan(reach, where="pk = 'a'", columns="pk,sk").warnings == ()
    (several,) = plan(reach, where="pk IN ('a', 'b')").warnings
    assert "one value of it" in several
    (omitted,) = plan(reach, columns="pk,status").warnings
    assert "columns omit sk of the key" in omitted


def test_the_command_line_shows_a_filter(reach):
    """A dry run shows condition, columns and the note on the price; export describe shows the same conditions."""
    flags = [word for name, value in reach.items() for word in (f"--{name.replace('_', '-')}", value)]
    where = ["--where", "pk = 'a' AND status = 'open'", "--columns", "pk,sk"]

    def run(*words):
        return CliRunner().invoke(cli, ["export", *words, *flags], catch_exceptions=False).stdout

    shown = run("start", TABLE, f"s3://{BUCKET}/x", *where, "--dry-run")
    shown_words = " ".join(shown.split())
    assert "key_condition \"pk\" = 'a' filter \"status\" = 'open' columns pk, sk" in shown_words
    assert "upper bound" in shown_words
    job = json.loads(run("start", TABLE, f"s3://{BUCKET}/x", *where, "--wait", "--json"))
    assert (job["items"], job["columns"]) == (10, '"pk", "sk"')
    assert "key_condition \"pk\" = 'a'" in " ".join(run("describe", job["arn"]).split())


def test_the_text_of_a_filter_of_another_client():
    """Names and values are substituted, also sets and lists, and text without placeholders stays."""
    specification = {
        "FilterExpression": "contains(#a.b, :s) AND c = :b",
        "ExpressionAttributeNames": {"#a": 'odd "name"'},
        "ExpressionAttributeValues": {":s": {"BS": [b"x"]}, ":b": {"B": b"\0"}},
    }
    text = expression_text(specification, "FilterExpression")
    assert text == 'contains("odd ""name""".b, {"BS": ["eA=="]}) AND c = x\'00\''
    assert expression_text(specification, "KeyConditionExpression") is None


def test_a_fold_refuses_filtered_exports(fake, reach):
    """A filtered full export or increment cannot be folded, bootstrap a lake table, or be applied to one."""
    fake.pass_time(60)
    full, base = exported(reach), exported(reach, columns="pk,sk")
    begin = datetime.fromisoformat(full.export_time)
    fake.pass_time(3600)
    client = ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb")
    described = client.describe_continuous_backups(TableName=TABLE)["ContinuousBackupsDescription"]
    end = described["PointInTimeRecoveryDescription"]["LatestRestorableDateTime"].astimezone(UTC).replace(microsecond=0)
    window = {"from_time": begin, "to_time": end}
    changes, filtered = exported(reach, **window), exported(reach, **window, where="pk = 'a'")
    assert ddbio.fold_exports(full.uri, [changes.uri], **reach).num_rows == len(ITEMS)
    with pytest.raises(ExportIncompleteError, match="not a full export of the whole table"):
        ddbio.fold_exports(base.uri, [changes.uri], **reach)
    with pytest.raises(ExportIncompleteError, match="not an incremental export of the whole table"):
        ddbio.fold_exports(full.uri, [filtered.uri], **reach)
    with pytest.raises(OptionError, match="not a full export of a whole table"):
        ddbio.read_export_to_files(base.uri, f"s3://{BUCKET}/lake", format="delta", **reach)
