"""Contract of descriptions and changes of tables. Backends name their known gaps."""

from __future__ import annotations

import pytest

from tests.contract.backends import build_classes

ON_DEMAND = {"BillingMode": "PAY_PER_REQUEST"}


def provisioned(read, write):
    """Return the throughput of a table or index."""
    return {"ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write}}


def index(name, projection, *key, **members):
    """Return the definition of an index."""
    schema = [{"AttributeName": part, "KeyType": kind} for part, kind in zip(key, ("HASH", "RANGE"), strict=False)]
    return {"IndexName": name, "KeySchema": schema, "Projection": {"ProjectionType": projection}, **members}


class DynamoContract:
    """Contract of descriptions and changes of tables."""

    @staticmethod
    def _described(client, table):
        client.get_waiter("table_exists").wait(TableName=table)
        return client.describe_table(TableName=table)["Table"]

    def test_a_description_is_enough_to_make_the_same_table(self, client, make_table):
        """The description has the keys, types, indexes with projections and the billing mode as requested."""
        table = make_table(
            "pk:S",
            "sk:N",
            more=["g:B", "l:S"],
            GlobalSecondaryIndexes=[index("byg", "KEYS_ONLY", "g", "sk")],
            LocalSecondaryIndexes=[index("byl", "ALL", "pk", "l")],
        )
        described = self._described(client, table)
        assert sorted(part["AttributeName"] for part in described["AttributeDefinitions"]) == ["g", "l", "pk", "sk"]
        assert [(part["AttributeName"], part["KeyType"]) for part in described["KeySchema"]] == [
            ("pk", "HASH"),
            ("sk", "RANGE"),
        ]
        assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        (global_index,), (local,) = described["GlobalSecondaryIndexes"], described["LocalSecondaryIndexes"]
        for described_index, expected in (
            (global_index, index("byg", "KEYS_ONLY", "g", "sk")),
            (local, index("byl", "ALL", "pk", "l")),
        ):
            assert {member: described_index[member] for member in expected} == expected

    def test_a_stream_is_described_while_it_is_on(self, client, make_table):
        """The description has a stream's view and ARN. Without a stream it has no specification."""
        plain = make_table("pk:S")
        assert "StreamSpecification" not in self._described(client, plain)
        specification = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        table = make_table("pk:S", StreamSpecification=specification)
        described = self._described(client, table)
        assert described["StreamSpecification"] == specification
        assert described["LatestStreamArn"].startswith(described["TableArn"] + "/stream/")

    def test_a_stream_is_turned_on_and_off(self, client, dynamo, make_table):
        """UpdateTable can turn a stream on only once, and off only once."""
        table = make_table("pk:S")
        specification = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
        client.update_table(TableName=table, StreamSpecification=specification)
        assert self._described(client, table)["StreamSpecification"] == specification
        twice = dynamo.refusal("update_table", TableName=table, StreamSpecification=specification)
        assert twice in {"ValidationException", "ResourceInUseException"}
        client.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
        assert "StreamSpecification" not in self._described(client, table)

    def test_the_billing_mode_is_changed(self, client, make_table):
        """A table can become provisioned, change its throughput and become on-demand again."""
        table = make_table("pk:S")
        client.update_table(TableName=table, BillingMode="PROVISIONED", **provisioned(7, 5))
        self._assert_numbers(client, table, 7, 5)
        client.update_table(TableName=table, **provisioned(9, 6))
        self._assert_numbers(client, table, 9, 6)
        client.update_table(TableName=table, **ON_DEMAND)
        self._assert_numbers(client, table, 0, 0)
        assert self._described(client, table)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"

    def _assert_numbers(self, client, table, read, write):
        described = self._described(client, table)["ProvisionedThroughput"]
        assert (described["ReadCapacityUnits"], described["WriteCapacityUnits"]) == (read, write)

    def test_an_index_is_added_to_items_that_are_there(self, client, dynamo, make_table):
        """A new index has the items with its key. Items with an invalid value are left out."""
        table = make_table("pk:S")
        dynamo.put_all(
            table,
            [{"pk": {"S": "a"}, "g": {"S": "x"}}, {"pk": {"S": "b"}}, {"pk": {"S": "c"}, "g": {"N": "1"}}],
        )
        client.update_table(
            TableName=table,
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "g", "AttributeType": "S"},
            ],
            GlobalSecondaryIndexUpdates=[{"Create": index("byg", "ALL", "g")}],
        )
        items = dynamo.items("scan", TableName=table, IndexName="byg")
        assert [item["pk"]["S"] for item in items] == ["a"]

    def test_an_index_is_deleted(self, client, dynamo, make_table):
        """A deleted index cannot be read, and its attribute can have any type again."""
        table = make_table("pk:S", more=["g:S"], GlobalSecondaryIndexes=[index("byg", "ALL", "g")])
        client.update_table(TableName=table, GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": "byg"}}])
        assert not self._described(client, table).get("GlobalSecondaryIndexes")
        assert dynamo.refusal("scan", TableName=table, IndexName="byg") == "ValidationException"
        client.put_item(TableName=table, Item={"pk": {"S": "a"}, "g": {"N": "1"}})

    def test_time_to_live_is_named_once(self, client, dynamo, make_table):
        """The attribute is described while it is set. Setting it twice, or removing another one, is refused."""
        table = make_table("pk:S")
        assert client.describe_time_to_live(TableName=table)["TimeToLiveDescription"] == {
            "TimeToLiveStatus": "DISABLED"
        }
        asked = {"Enabled": True, "AttributeName": "expires"}
        reply = client.update_time_to_live(TableName=table, TimeToLiveSpecification=asked)
        assert reply["TimeToLiveSpecification"] == asked
        described = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        assert described["AttributeName"] == "expires"
        assert described["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}
        for wrong in (asked, {"Enabled": False, "AttributeName": "other"}):
            code = dynamo.refusal("update_time_to_live", TableName=table, TimeToLiveSpecification=wrong)
            assert code == "ValidationException"

    def test_recovery_is_turned_on(self, client, dynamo, make_table):
        """Point-in-time recovery describes its window. A missing table has a separate code."""
        table = make_table("pk:S")
        client.update_continuous_backups(
            TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )
        described = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
        assert described["ContinuousBackupsStatus"] == "ENABLED"
        window = described["PointInTimeRecoveryDescription"]
        assert window["PointInTimeRecoveryStatus"] == "ENABLED"
        assert window["EarliestRestorableDateTime"] <= window["LatestRestorableDateTime"]
        absent = "ddbio-contract-absent"
        assert dynamo.refusal("describe_continuous_backups", TableName=absent) == "TableNotFoundException"

    @pytest.mark.parametrize("operation", ["update_table", "describe_time_to_live"])
    def test_absent_tables_are_not_found(self, dynamo, operation):
        """Calls that manage tables refuse a missing one with ResourceNotFoundException."""
        members = ON_DEMAND if operation == "update_table" else {}
        code = dynamo.refusal(operation, TableName="ddbio-contract-absent", **members)
        assert code == "ResourceNotFoundException"


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "an on-demand table keeps its old numbers": ("test_the_billing_mode_is_changed",),
        "values that an index cannot hold break its Scan": ("test_an_index_is_added_to_items_that_are_there",),
        "the time to live may be set twice": ("test_time_to_live_is_named_once",),
        "an absent table has a code of its own": ("test_absent_tables_are_not_found[describe_time_to_live]",),
    },
    ministack={
        "streams and the time to live may be set twice": (
            "test_a_stream_is_turned_on_and_off",
            "test_time_to_live_is_named_once",
        ),
        "values that an index cannot hold are in it": ("test_an_index_is_added_to_items_that_are_there",),
        "absent tables have one code": ("test_recovery_is_turned_on",),
    },
)
