"""Exports from their start to what is read of them, against a service and an S3 that answer over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.main import cli
from ddbio.errors import AccessDeniedError, LimitError, NotFoundError, OptionError, ServiceError, ThrottledError
from ddbio.testing import FakeDynamoDB, Faults, MotoServer

BUCKET = "exports"
TABLE = "orders"


@pytest.fixture(scope="module")
def s3_url():
    """Serve an S3 with one bucket."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket=BUCKET)
        yield server.endpoint_url


class Side:
    """Hold a fake, a client of it, and the options by which verbs reach it."""

    def __init__(self, fake, s3_url):
        self.fake = fake
        self.options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
        self.client = ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb")
        fake.load(TABLE, [item(number, "0") for number in range(200)], "pk:S")

    def start(self, prefix, **options):
        """Start an export of the table."""
        return ddbio.start_export(TABLE, f"s3://{BUCKET}/{prefix}", **self.options, **options)

    def finished(self, prefix, **options):
        """Return the place of an export that has completed."""
        return ddbio.wait_export(self.start(prefix, **options).arn, **self.options).uri

    def latest(self):
        """Return the service's own time, a second from now at the earliest."""
        self.fake.pass_time(1)
        described = self.client.describe_continuous_backups(TableName=TABLE)["ContinuousBackupsDescription"]
        latest = described["PointInTimeRecoveryDescription"]["LatestRestorableDateTime"]
        return latest.astimezone(UTC).replace(microsecond=0)


def item(number, version):
    """Return an item."""
    return {"pk": {"S": f"item-{number}"}, "v": {"N": version}, "tags": {"SS": ["a", "b"]}}


@pytest.fixture
def serve(s3_url):
    """Return a maker of fakes that hold the table."""
    running = []

    def side(**options):
        fake = FakeDynamoDB(export_to=s3_url, **options).start()
        running.append(fake)
        return Side(fake, s3_url)

    yield side
    for fake in running:
        fake.stop()


@pytest.mark.parametrize("file_format", ["dynamodb_json", "ion"])
def test_an_export_equals_its_table(serve, file_format):
    """Started, awaited and read, an export holds the table's items, in either format."""
    side = serve()
    uri = side.finished(f"full-{file_format}", enable_pitr=True, format=file_format)
    assert ddbio.digest(ddbio.read_export(uri, **side.options)) == ddbio.digest(TABLE, **side.options)


def test_windows_fold_to_the_table(serve):
    """A full export and the windows after it fold to what the table holds at their end."""
    side = serve()
    side.start("early", enable_pitr=True)
    side.fake.pass_time(60)
    full = ddbio.wait_export(side.start("fold").arn, **side.options)
    windows = []
    begin = datetime.fromisoformat(full.export_time)
    for round_ in range(2):
        for number in range(round_, 200, 3):
            side.client.put_item(TableName=TABLE, Item=item(number + round_ * 100, str(round_ + 1)))
        for number in range(round_, 200, 7):
            side.client.delete_item(TableName=TABLE, Key={"pk": {"S": f"item-{number}"}})
        side.fake.pass_time(3600)
        end = side.latest()
        windows.append(side.finished("fold", from_time=begin, to_time=end))
        begin = end
    folded = ddbio.fold_exports(full.uri, windows, **side.options)
    assert ddbio.digest(folded) == ddbio.digest(TABLE, **side.options)


def test_recovery_is_turned_on_only_when_asked(serve):
    """Without recovery nothing is started, and it stays off."""
    side = serve()
    with pytest.raises(OptionError, match="enable_pitr"):
        side.start("off")
    with pytest.raises(OptionError, match="reaches nothing before"):
        side.start("off", enable_pitr=True, at="2026-11-01T00:00:00Z")
    assert side.fake.requests().get("UpdateContinuousBackups", 0) == 0
    assert "ExportTableToPointInTime" not in side.fake.requests()


def test_a_token_makes_a_start_repeatable(serve):
    """The same request under one token is one export, another one a conflict; a token is made where none is given."""
    side = serve()
    first = side.start("token", enable_pitr=True, client_token="one")
    assert side.start("token", client_token="one").arn == first.arn
    with pytest.raises(ServiceError, match="another one"):
        side.start("elsewhere", client_token="one")
    other = side.start("token")
    assert other.client_token
    assert other.arn != first.arn
    listed = ddbio.list_exports(TABLE, **side.options)
    assert [each.arn for each in listed] == [other.arn, first.arn]


KEY, OWNER = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab", "123456789012"


@pytest.mark.parametrize(
    ("options", "owner", "key"),
    [
        ({}, None, None),
        ({"s3_expected_bucket_owner": OWNER}, OWNER, None),
        ({"s3_expected_bucket_owner": OWNER, "bucket_owner": "210987654321"}, "210987654321", None),
        ({"s3_sse_kms_key_id": KEY}, None, KEY),
        ({"s3_sse_kms_key_id": KEY, "kms_key": "alias/other"}, None, "alias/other"),
        ({"s3_sse": "aws:kms"}, None, "aws/s3"),
        ({"s3_sse_kms_key_id": "aws/s3"}, None, "aws/s3"),
        ({"s3_sse": "AES256"}, None, None),
    ],
)
def test_what_the_service_writes_follows_the_options_of_s3(serve, options, owner, key):
    """The owner of the bucket and the key are those of all other objects, unless the export has its own."""
    plan = ddbio.plan_export(TABLE, f"s3://{BUCKET}/kept", enable_pitr=True, **serve().options, **options)
    assert (plan.bucket_owner, plan.kms_key) == (owner, key)


@pytest.mark.parametrize(
    "options",
    [
        {"s3_tags": "a=b"}, {"s3_acl": "private"}, {"s3_storage_class": "GLACIER"}, {"s3_object_lock_legal_hold": True},
        {"s3_object_lock_mode": "GOVERNANCE", "s3_object_lock_until": datetime(2099, 1, 1, tzinfo=UTC)},
        {"s3_sse": "aws:kms:dsse"},
    ],
)  # fmt: skip
def test_what_the_service_cannot_do_with_its_objects_is_refused(serve, options):
    """An option that would hold for none of the export's objects ends the start before anything is asked for."""
    side = serve()
    with pytest.raises(OptionError, match="DynamoDB writes these objects itself"):
        side.start("refused", enable_pitr=True, **options)
    assert "ExportTableToPointInTime" not in side.fake.requests()


def test_an_absent_bucket_is_found_before_the_start(serve):
    """The service would accept it and fail ten minutes later."""
    side = serve()
    with pytest.raises(NotFoundError, match="bucket absent"):
        ddbio.start_export(TABLE, "s3://absent/x", **side.options, enable_pitr=True)
    assert "ExportTableToPointInTime" not in side.fake.requests()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("S3NoSuchBucket", NotFoundError),
        ("S3AccessDenied", AccessDeniedError),
        ("KmsKeyDisabled", AccessDeniedError),
        ("InternalServerError", ServiceError),
    ],
)
def test_a_failed_export_says_why(serve, code, error):
    """Each FailureCode is the error a caller can act on."""
    side = serve(faults=Faults(job_failure=code))
    job = side.start("failed", enable_pitr=True)
    with pytest.raises(error, match=code):
        ddbio.wait_export(job.arn, **side.options)
    assert ddbio.describe_export(job.arn, **side.options).status == "FAILED"


def test_waiting_has_an_end(serve):
    """An export that runs longer than asked is left to run."""
    side = serve(job_seconds=3600)
    job = side.start("slow", enable_pitr=True)
    with pytest.raises(ThrottledError, match="still IN_PROGRESS"):
        ddbio.wait_export(job.arn, wait_seconds=0.1, poll_seconds=0.1, **side.options)
    side.fake.pass_time(3600)
    assert ddbio.wait_export(job.arn, **side.options).items == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"from_time": "2026-11-01T00:00:00Z"}, "belong together"),
        ({"at": "2026-11-01T00:00:00"}, "timezone"),
        ({"from_time": "2026-11-01T00:00Z", "to_time": "2026-11-01T00:10Z"}, "15 minutes"),
        ({"at": "2020-01-01T00:00:00Z"}, "recovered from"),
        ({"at": "2999-01-01T00:00:00Z"}, "recovered from"),
    ],
    ids=str,
)
def test_impossible_times_are_refused(serve, options, words):
    """Half a window, a time without a zone, a short window and a time out of reach start nothing."""
    side = serve()
    side.start("on", enable_pitr=True)
    with pytest.raises(OptionError, match=words):
        side.start("times", **options)


def test_an_unknown_export_is_named(serve):
    """An ARN that the service does not know is a NotFoundError."""
    side = serve()
    with pytest.raises(NotFoundError, match="/export/0-0"):
        ddbio.describe_export("arn:aws:dynamodb:us-east-1:000000000000:table/orders/export/0-0", **side.options)


def test_the_command_line_drives_an_export(serve):
    """A dry run starts nothing; start, wait, list and show each print one JSON object."""
    side = serve()
    reach = [word for name, value in side.options.items() for word in (f"--{name.replace('_', '-')}", value)]

    def run(*words):
        done = CliRunner().invoke(cli, ["export", *words, *reach, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    plan = run("start", TABLE, f"s3://{BUCKET}/cli", "--enable-pitr", "--dry-run")
    assert (plan["kind"], plan["prefix"], plan["enables_recovery"], plan["view"]) == ("full", "cli", True, None)
    same = ddbio.plan_export(TABLE, f"s3://{BUCKET}/cli", enable_pitr=True, **side.options).to_dict()
    assert same | {"client_token": plan["client_token"]} == plan
    assert [each["what"] for each in plan["lines"]][:2] == ["export", "point-in-time recovery for a month"]
    with pytest.raises(LimitError, match="max_usd"):
        ddbio.start_export(TABLE, f"s3://{BUCKET}/cli", enable_pitr=True, max_usd=1e-9, **side.options)
    assert run("list") == {"exports": []}
    done = run("start", TABLE, f"s3://{BUCKET}/awaited", "--enable-pitr", "--wait")
    assert (done["status"], done["items"]) == ("COMPLETED", 200)
    assert done["actual"]["usd"] == pytest.approx(done["billed_bytes"] / 2**30 * 0.1)
    job = run("start", TABLE, f"s3://{BUCKET}/cli", "--enable-pitr")
    assert job["planned"]["usd"] > 0
    assert run("wait", job["arn"])["items"] == 200
    assert {"arn": job["arn"], "status": "COMPLETED", "kind": "full"} in run("list", TABLE)["exports"]
    assert run("describe", job["arn"])["uri"].startswith(f"s3://{BUCKET}/cli/AWSDynamoDB/")
