"""Backups and restores by the fake: the new table, and refusals."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB

INDEX = {
    "IndexName": "by_n",
    "KeySchema": [{"AttributeName": "n", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "ALL"},
}


def create(client):
    """Create a table with an index and one item."""
    client.create_table(
        TableName="tab",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "n")],
        GlobalSecondaryIndexes=[INDEX],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName="tab", Item={"pk": {"S": "a"}, "n": {"S": "x"}})


def test_a_restored_table_has_its_definition_and_indexes(connect):
    """A restored table has the backup's keys, indexes and items, even after its table was deleted, but no settings."""
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        client = connect(fake.endpoint_url)
        create(client)
        arn = client.create_backup(TableName="tab", BackupName="one")["BackupDetails"]["BackupArn"]
        client.delete_table(TableName="tab")
        client.restore_table_from_backup(TargetTableName="new", BackupArn=arn)
        described = client.describe_table(TableName="new")["Table"]
        assert (described["ItemCount"], described["TableStatus"]) == (1, "ACTIVE")
        assert described["GlobalSecondaryIndexes"][0]["IndexArn"] == f"{described['TableArn']}/index/by_n"
        assert described["RestoreSummary"]["SourceBackupArn"] == arn
        assert client.scan(TableName="new", IndexName="by_n")["Count"] == 1


def test_a_restore_takes_its_time(connect):
    """A table that is being restored does not serve requests, and a backup in progress cannot be used."""
    with FakeDynamoDB(burst_at_creation=1.0, job_seconds=60) as fake:
        client = connect(fake.endpoint_url)
        create(client)
        arn = client.create_backup(TableName="tab", BackupName="one")["BackupDetails"]["BackupArn"]
        with pytest.raises(ClientError, match="BackupInUse"):
            client.restore_table_from_backup(TargetTableName="new", BackupArn=arn)
        fake.pass_time(60)
        client.restore_table_from_backup(TargetTableName="new", BackupArn=arn)
        described = client.describe_table(TableName="new")["Table"]
        assert (described["TableStatus"], described["RestoreSummary"]["RestoreInProgress"]) == ("CREATING", True)
        with pytest.raises(ClientError, match="ResourceNotFound"):
            client.scan(TableName="new")
        fake.pass_time(60)
        assert client.scan(TableName="new")["Count"] == 1


def test_backups_are_listed_by_pages_and_deleted(connect):
    """A page has the requested limit, and a deleted backup does not exist."""
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        client = connect(fake.endpoint_url)
        create(client)
        arns = [
            client.create_backup(TableName="tab", BackupName=name)["BackupDetails"]["BackupArn"]
            for name in ("one", "two", "three")
        ]
        page = client.list_backups(TableName="tab", Limit=2)
        assert [summary["BackupArn"] for summary in page["BackupSummaries"]] == arns[:2]
        second_page = client.list_backups(TableName="tab", ExclusiveStartBackupArn=page["LastEvaluatedBackupArn"])
        assert [summary["BackupArn"] for summary in second_page["BackupSummaries"]] == arns[2:]
        client.delete_backup(BackupArn=arns[0])
        with pytest.raises(ClientError, match="BackupNotFound"):
            client.describe_backup(BackupArn=arns[0])


@pytest.mark.parametrize(
    ("target", "members", "code"),
    [
        ("tab", {"UseLatestRestorableTime": True}, "TableAlreadyExistsException"),
        ("new", {"RestoreDateTime": 1}, "InvalidRestoreTimeException"),
        ("new", {"UseLatestRestorableTime": True, "BillingModeOverride": "PROVISIONED"}, "ValidationException"),
    ],
)
def test_what_cannot_be_restored_is_refused(connect, target, members, code):
    """A used name, a time outside the window and an override have their errors."""
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        client = connect(fake.endpoint_url)
        create(client)
        with pytest.raises(ClientError, match="PointInTimeRecoveryUnavailable"):
            client.restore_table_to_point_in_time(
                SourceTableName="tab", TargetTableName="new", UseLatestRestorableTime=True
            )
        client.update_continuous_backups(
            TableName="tab", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )
        with pytest.raises(ClientError) as caught:
            client.restore_table_to_point_in_time(SourceTableName="tab", TargetTableName=target, **members)
    assert caught.value.response["Error"]["Code"] == code
