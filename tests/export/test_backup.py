"""Backups and restores: they wait for the service, and the new table has the expected items."""

from __future__ import annotations

import json
from datetime import UTC, timedelta

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.main import cli
from ddbio.errors import NotFoundError, OptionError, ThrottledError, ValidationError
from ddbio.testing import FakeDynamoDB, MotoServer

TABLE = "orders"


class Side:
    """A fake with a table, a client of it, and the options for it."""

    def __init__(self, fake):
        self.fake = fake
        self.options = {"endpoint_url": fake.endpoint_url, "region": "us-east-1"}
        self.client = ClientSpec(**self.options).client("dynamodb")
        fake.load(TABLE, [{"pk": {"S": f"item-{number}"}, "n": {"N": "1"}} for number in range(50)], "pk:S")

    def change(self, number):
        """Write one item."""
        self.client.put_item(TableName=TABLE, Item={"pk": {"S": f"item-{number}"}, "n": {"N": "2"}})


@pytest.fixture
def serve():
    """Return a factory of fakes with the table."""
    running = []

    def side(**options):
        running.append(FakeDynamoDB(**options).start())
        return Side(running[-1])

    yield side
    for fake in running:
        fake.stop()


def test_a_backup_is_what_was(serve):
    """A table restored from a backup has the digest of the time of the backup, regardless of later writes."""
    side = serve()
    made = ddbio.create_backup(TABLE, digest=True, **side.options)
    assert (made.status, made.items, made.table_items) == ("AVAILABLE", 50, 50)
    side.change(1)
    job = ddbio.restore_table(made.arn, "restored", expect_digest=made.digest, **side.options)
    assert (job.status, job.items, job.verified, job.source) == ("ACTIVE", 50, True, made.arn)
    with pytest.raises(ValidationError, match="orders written to since"):
        ddbio.restore_table(made.arn, "again", verify=True, **side.options)
    assert [backup.arn for backup in ddbio.list_backups(TABLE, **side.options)] == [made.arn]


def test_a_table_goes_back_in_time(serve):
    """With ``at`` the new table has the state of that time, without it the latest state."""
    side = serve()
    side.client.update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    before = ddbio.digest(TABLE, **side.options)
    side.fake.pass_time(100)
    continuous_backups = side.client.describe_continuous_backups(TableName=TABLE)["ContinuousBackupsDescription"]
    latest = continuous_backups["PointInTimeRecoveryDescription"]["LatestRestorableDateTime"].astimezone(UTC)
    side.change(1)
    then = latest.replace(microsecond=0) - timedelta(seconds=50)
    assert ddbio.restore_table(TABLE, "then", at=then, expect_digest=before, **side.options).items == 50
    assert ddbio.restore_table(TABLE, "now", verify=True, **side.options).verified
    assert ddbio.digest("now", **side.options) != before
    with pytest.raises(OptionError, match="recovered from"):
        ddbio.restore_table(TABLE, "never", at="2020-01-01T00:00:00Z", **side.options)


def test_what_cannot_be_restored_starts_nothing(serve):
    """No recovery, an unknown backup, an existing target, a time for a backup: each is refused before the start."""
    side = serve()
    made = ddbio.create_backup(TABLE, **side.options)
    with pytest.raises(OptionError, match="no point-in-time recovery"):
        ddbio.restore_table(TABLE, "new", **side.options)
    with pytest.raises(NotFoundError, match="backup"):
        ddbio.restore_table(f"{made.table_arn}/backup/0-0-0-0-0-0", "new", **side.options)
    with pytest.raises(OptionError, match="exists"):
        ddbio.restore_table(made.arn, TABLE, **side.options)
    with pytest.raises(OptionError, match="one time"):
        ddbio.restore_table(made.arn, "new", at="2026-11-01T00:00:00Z", **side.options)
    with pytest.raises(NotFoundError, match="absent"):
        ddbio.create_backup("absent", **side.options)
    assert not {"RestoreTableFromBackup", "RestoreTableToPointInTime"} & set(side.fake.requests())


def test_waiting_has_an_end(serve):
    """A backup that is not ready in time is created nevertheless."""
    side = serve(job_seconds=60)
    with pytest.raises(ThrottledError, match="still CREATING"):
        ddbio.create_backup(TABLE, wait_seconds=0.1, poll_seconds=0.1, **side.options)
    side.fake.pass_time(60)
    (made,) = ddbio.list_backups(**side.options)
    assert made.status == "AVAILABLE"


def test_the_command_line_backs_up_and_restores(serve):
    """Dry runs start nothing; each verb prints one JSON object."""
    side = serve()
    reach = ["--endpoint-url", side.fake.endpoint_url, "--region", "us-east-1", "--json"]

    def run(*words):
        return json.loads(CliRunner().invoke(cli, ["backup", *words, *reach], catch_exceptions=False).stdout)

    planned = run("create", TABLE, "--dry-run")
    assert planned["item_count"] == 50
    assert [line["what"] for line in planned["lines"]] == ["backup for a month"]
    assert run("list") == {"backups": []}
    made = run("create", TABLE, "--name", "before-it", "--digest")
    assert (made["name"], made["items"]) == ("before-it", 50)
    plan = run("restore", made["arn"], "restored", "--dry-run")
    assert (plan["target"], plan["source_table"], plan["backup_arn"]) == ("restored", TABLE, made["arn"])
    same = ddbio.plan_restore(made["arn"], "restored", endpoint_url=side.fake.endpoint_url, region="us-east-1")
    assert same.to_dict() == plan
    assert run("restore", made["arn"], "restored", "--expect-digest", made["digest"])["verified"]
    assert run("list", TABLE)["backups"][0]["status"] == "AVAILABLE"


def test_another_fake_restores_the_same():
    """Moto creates and restores a backup with the same verbs."""
    with MotoServer() as moto:
        options = {"endpoint_url": moto.endpoint_url, "region": "us-east-1"}
        client = ClientSpec(**options).client("dynamodb")
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.put_item(TableName=TABLE, Item={"pk": {"S": "a"}})
        made = ddbio.create_backup(TABLE, digest=True, **options)
        assert ddbio.restore_table(made.arn, "restored", expect_digest=made.digest, **options).items == 1
