"""Contract of backups and restores. Backends name their known gaps."""

from __future__ import annotations

import time

from tests.contract.backends import build_classes

RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
PATIENCE_SECONDS = 600
PAUSE_SECONDS = 0.1
INDEX = {
    "IndexName": "byg",
    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}


class DynamoContract:
    """Contract of backups and restores."""

    @staticmethod
    def _until(look, wanted):
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while look() != wanted:
            assert time.monotonic() < ends_at
            time.sleep(PAUSE_SECONDS)

    def _filled(self, client, make_table):
        table = make_table("pk:S", more=["g:S"], GlobalSecondaryIndexes=[INDEX])
        for number in range(3):
            client.put_item(TableName=table, Item={"pk": {"S": str(number)}, "g": {"S": "x"}})
        return table

    def _backed_up(self, client, table):
        arn = client.create_backup(TableName=table, BackupName="contract")["BackupDetails"]["BackupArn"]
        self._until(
            lambda: client.describe_backup(BackupArn=arn)["BackupDescription"]["BackupDetails"]["BackupStatus"],
            "AVAILABLE",
        )
        return arn

    def _check_restored(self, client, dynamo, table):
        self._until(lambda: client.describe_table(TableName=table)["Table"]["TableStatus"], "ACTIVE")
        described = client.describe_table(TableName=table)["Table"]
        assert [index["IndexName"] for index in described["GlobalSecondaryIndexes"]] == ["byg"]
        assert described["RestoreSummary"]["RestoreInProgress"] is False
        assert sorted(item["pk"]["S"] for item in dynamo.items("scan", TableName=table)) == ["0", "1", "2"]
        client.delete_table(TableName=table)

    def test_a_backup_has_the_state_of_its_time(self, client, dynamo, make_table):
        """A table restored from a backup has the items and indexes of that time, without later writes."""
        table = self._filled(client, make_table)
        arn = self._backed_up(client, table)
        client.put_item(TableName=table, Item={"pk": {"S": "later"}})
        client.restore_table_from_backup(TargetTableName=f"{table}-restored", BackupArn=arn)
        self._check_restored(client, dynamo, f"{table}-restored")
        assert [summary["BackupArn"] for summary in client.list_backups(TableName=table)["BackupSummaries"]] == [arn]
        client.delete_backup(BackupArn=arn)
        assert dynamo.refusal("describe_backup", BackupArn=arn) == "BackupNotFoundException"

    def test_a_table_is_restored_as_it_is(self, client, dynamo, make_table):
        """The latest restorable state of a table with recovery becomes a table with its items."""
        table = self._filled(client, make_table)
        client.update_continuous_backups(TableName=table, **RECOVERY)
        client.restore_table_to_point_in_time(
            SourceTableName=table, TargetTableName=f"{table}-restored", UseLatestRestorableTime=True
        )
        self._check_restored(client, dynamo, f"{table}-restored")

    def test_a_restore_makes_a_new_table(self, client, dynamo, make_table):
        """An existing table is never overwritten."""
        table = self._filled(client, make_table)
        arn = self._backed_up(client, table)
        assert (
            dynamo.refusal("restore_table_from_backup", TargetTableName=table, BackupArn=arn)
            == "TableAlreadyExistsException"
        )
        client.delete_backup(BackupArn=arn)

    def test_restoring_to_a_time_needs_recovery(self, client, dynamo, make_table):
        """A table without point-in-time recovery cannot be restored to a time."""
        table = self._filled(client, make_table)
        refused = dynamo.refusal(
            "restore_table_to_point_in_time",
            SourceTableName=table,
            TargetTableName=f"{table}-never",
            UseLatestRestorableTime=True,
        )
        assert refused == "PointInTimeRecoveryUnavailableException"

    def test_missing_tables_and_backups_are_refused(self, dynamo):
        """A missing table, and an invalid backup ARN, have their own errors."""
        assert dynamo.refusal("create_backup", TableName="ddbio-absent", BackupName="one") == "TableNotFoundException"
        arn = "arn:aws:dynamodb:us-east-1:123456789012:table/ddbio-absent/backup/01489602797149-73d8d5bc"
        assert dynamo.refusal("describe_backup", BackupArn=arn) == "BackupNotFoundException"


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={"recovery need not be on": ("test_restoring_to_a_time_needs_recovery",)},
    ministack={
        "a restored table does not say what it was made of": (
            "test_a_backup_has_the_state_of_its_time",
            "test_a_table_is_restored_as_it_is",
        ),
        "recovery need not be on": ("test_restoring_to_a_time_needs_recovery",),
    },
)
