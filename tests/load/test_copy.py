"""Copies of tables on the fake and on moto: every item is unchanged, and created tables are like their source."""

import json
from pathlib import Path

import boto3
import botocore.session
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from item_strategies import ITEMS

import ddbio
from ddbio.aws.table_description import IndexKey, VectorIndexDescription
from ddbio.errors import (
    NotFoundError,
    OptionError,
    PartialWriteError,
    SchemaError,
    ServiceError,
    TargetError,
    ValidationError,
)
from ddbio.load.copy import CopyReport, plan_copy
from ddbio.load.options import CopyOptions
from ddbio.testing import FakeDynamoDB, MotoServer

PAGE = (Path(__file__).parents[2] / "docs/copy.md").read_text("utf-8")
ODD = [
    {"pk": {"S": "a"}, "sk": {"N": "1"}, "n": {"N": "12345678901234567890123456789012345678"}, "z": {"NULL": True}},
    {"pk": {"S": "a"}, "sk": {"N": "2"}, "n": {"S": "text"}, "s": {"NS": ["1", "2.5"]}, "l": {"L": []}},
    {"pk": {"S": "b"}, "sk": {"N": "1"}, "b": {"B": "AAE="}, "m": {"M": {"e": {"M": {}}}}, "a.b#c": {"BOOL": False}},
    {"pk": {"S": "b"}, "sk": {"N": "2"}, "A": {"S": ""}, "a": {"BS": ["AA==", "AQ=="]}},
]


def client_of(server):
    """Return boto3's client of a server."""
    return boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")


def lines_of(items):
    """Return items as lines of DynamoDB JSON."""
    return b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items)


def stored(server, table):
    """Return a table's items, in the order of their keys."""
    items = client_of(server).scan(TableName=table, ConsistentRead=True)["Items"]
    return sorted(items, key=lambda item: (item["pk"]["S"], float(item["sk"]["N"])))


@pytest.fixture
def server():
    """Serve a table ``source`` of odd items."""
    with FakeDynamoDB() as running:
        running.load("source", lines_of(ODD), "pk:S,sk:N")
        yield running


def test_a_copy_holds_every_item_as_it_was(server):
    """Several types under one name, NULL, empty containers, sets and 38 digits are copied. The digests agree."""
    report = ddbio.copy_table("source", "target", create_target=True, verify=True, endpoint_url=server.endpoint_url)
    assert stored(server, "target") == stored(server, "source")
    assert (report.created, report.items, report.written, report.verified) == (True, 4, 4, True)
    assert report.digest == ddbio.digest("source", endpoint_url=server.endpoint_url)


def test_a_slow_copy_writes_while_it_reads(server):
    """Items are written while others are still read, not after all items of a small table."""
    items = [{"pk": {"S": f"{number:05d}"}, "sk": {"N": "1"}, "text": {"S": "x" * 960}} for number in range(4_000)]
    server.load("slow", lines_of(items), "pk:S,sk:N")
    report = ddbio.copy_table(
        "slow", "target", create_target=True, rcu_per_second=100, endpoint_url=server.endpoint_url
    )
    assert report.written == len(items)
    first_write = min(at for at, _, units in server.consumed("target") if units)
    last_read = max(at for at, units, _ in server.consumed("slow") if units)
    assert first_write < last_read


def test_a_copy_is_verified_regardless_of_folder_names(server, tmp_path, monkeypatch):
    """Folders with the names of the tables are neither read nor a problem."""
    monkeypatch.chdir(tmp_path)
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    assert ddbio.copy_table(
        "source", "target", create_target=True, verify=True, endpoint_url=server.endpoint_url
    ).verified


def test_keys_and_versions_may_differ_from_others_by_case_alone(server):
    """Columns with other names are still the table's key and the attribute of newer_by."""
    items = [{"id": {"S": n}, "ID": {"S": n}, "At": {"N": n}, "at": {"N": "0"}} for n in "123"]
    server.load("cased", lines_of([*items, {"ID": {"S": "4"}, "At": {"S": "late"}}]), "ID:S")
    here = {"endpoint_url": server.endpoint_url}
    assert ddbio.copy_table("cased", "copied", create_target=True, verify=True, **here).written == 4
    server.load("older", lines_of([{"ID": {"S": "1"}, "At": {"N": "0"}}, {"ID": {"S": "2"}, "At": {"N": "9"}}]), "ID:S")
    report = ddbio.copy_table("cased", "older", newer_by="At", **here)
    assert (report.written, report.skipped) == (3, 1)


def test_a_copy_crosses_endpoints(server):
    """Source and target may have separate connections."""
    with FakeDynamoDB() as other:
        there = {"target_endpoint_url": other.endpoint_url, "target_region": "eu-west-1"}
        report = ddbio.copy_table("source", "source", create_target=True, endpoint_url=server.endpoint_url, **there)
        assert report.written == 4
        assert stored(other, "source") == stored(server, "source")


def test_a_second_copy_changes_nothing(server):
    """In mode create, existing items are skipped. With newer_by, an older item replaces no newer one."""
    here = {"endpoint_url": server.endpoint_url}
    ddbio.copy_table("source", "target", create_target=True, **here)
    again = ddbio.copy_table("source", "target", create_target=True, mode="create", **here)
    assert (again.created, again.written, again.skipped) == (False, 0, 4)
    items = [{"pk": {"S": "v"}, "sk": {"N": "1"}, "at": {"N": number}} for number in ("1", "2")]
    for name, item in zip(("older", "newer"), items, strict=True):
        server.load(name, lines_of([item]), "pk:S,sk:N")
    assert ddbio.copy_table("older", "newer", newer_by="at", **here).skipped == 1
    assert ddbio.copy_table("newer", "older", newer_by="at", **here).written == 1


def test_differences_are_reported(server):
    """A target with more items than the source fails the verification, and the report has the numbers."""
    more = {"pk": {"S": "z"}, "sk": {"N": "9"}}
    server.load("target", lines_of([more]), "pk:S,sk:N")
    with pytest.raises(ValidationError, match="has 5 items") as caught:
        ddbio.copy_table("source", "target", verify=True, endpoint_url=server.endpoint_url)
    assert (caught.value.report["read_items"], caught.value.report["held_items"]) == (4, 5)


def test_tables_with_other_keys_are_refused(server):
    """The keys must have the same names and types, before anything is written."""
    server.load("target", b"", "pk:S,sk:S")
    with pytest.raises(SchemaError, match="has the key pk:S, sk:N, table 'target' pk:S, sk:S"):
        ddbio.copy_table("source", "target", endpoint_url=server.endpoint_url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "source"}, "source and target are one table"),
        ({"mode": "create", "newer_by": "a"}, "newer_by does not apply to mode create"),
        ({"verify": True, "mode": "create"}, "verify compares whole tables"),
        ({"warm_up": True}, "has provisioned capacity, which needs no warm_up"),
        ({"rcu_per_second": 1, "read_ratio": 1}, "give rcu_per_second or read_ratio, not both"),
    ],
)
def test_contradictions_are_refused(server, options, message):
    """Options that exclude each other are one OptionError, and nothing is written."""
    here = {"endpoint_url": server.endpoint_url}
    ddbio.create_table("target", key="pk:S,sk:N", billing="provisioned", rcu=5, wcu=5, **here)
    with pytest.raises(OptionError, match=message):
        ddbio.copy_table(**{"source": "source", "target": "target", **here, **options})
    assert stored(server, "target") == []


@pytest.mark.parametrize("target", ["source", "arn:aws:dynamodb:us-east-1:000000000000:table/source"])
def test_a_table_is_not_copied_onto_itself(server, target):
    """It holds for any spelling of the target: an item written between reading and writing it would be lost."""
    options = {"endpoint_url": server.endpoint_url, "target_region": "eu-west-1"}
    with pytest.raises(OptionError, match="source and target are one table"):
        ddbio.copy_table("source", target, **options)


@pytest.mark.parametrize("options", [{"warm_up": True}, {"write_ratio": 0.5, "billing": "on_demand"}])
def test_limits_are_checked_before_the_target_is_created(server, options):
    """A budget that the new table could not have is refused before it is created."""
    here = {"endpoint_url": server.endpoint_url}
    ddbio.create_table("model", key="pk:S", billing="provisioned", rcu=5, wcu=5, **here)
    with pytest.raises(OptionError):
        ddbio.copy_table("model", "target", create_target=True, **here, **options)
    assert client_of(server).list_tables()["TableNames"] == ["model", "source"]


def test_a_missing_table_is_named(server):
    """Neither a missing source nor a missing target is created by accident. The error suggests create_target."""
    for source, target, message in (
        ("source", "missing", "missing.*use create_target to create it"),
        ("missing", "source", "missing"),
    ):
        with pytest.raises(NotFoundError, match=message):
            ddbio.copy_table(source, target, endpoint_url=server.endpoint_url)


def test_items_the_target_refuses_are_kept(server, tmp_path):
    """An item with a wrong type of an index key is rejected. Without reject_to the copy fails."""
    server.load("source", lines_of([*ODD, {"pk": {"S": "c"}, "sk": {"N": "1"}, "A": {"N": "5"}}]), "pk:S,sk:N")
    here = {"endpoint_url": server.endpoint_url}
    ddbio.create_table("target", key="pk:S,sk:N", gsi="by_n=n:S", **here)
    with pytest.raises(PartialWriteError):
        ddbio.copy_table("source", "target", **here)
    report = ddbio.copy_table("source", "target", reject_to=str(tmp_path), **here)
    assert (report.items, report.written, report.rejected) == (5, 4, 1)
    (kept,) = tmp_path.rglob("rejects-*")
    assert "12345678901234567890123456789012345678" in kept.read_text("utf-8")


@settings(max_examples=12, deadline=None)
@given(items=st.lists(ITEMS, max_size=6))
def test_any_table_is_copied(items):
    """Any items are copied one by one."""
    keyed = [{**item, "pk": {"S": str(number)}} for number, item in enumerate(items)]
    with FakeDynamoDB() as server:
        server.load("source", lines_of(keyed), "pk:S")
        report = ddbio.copy_table("source", "target", create_target=True, verify=True, endpoint_url=server.endpoint_url)
        assert (report.items, report.written, report.verified) == (len(items), len(items), True)


RICH = {
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "other")],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "ProvisionedThroughput": {"ReadCapacityUnits": 7, "WriteCapacityUnits": 9},
    "LocalSecondaryIndexes": [
        {
            "IndexName": "local",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "other", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "global",
            "KeySchema": [{"AttributeName": "other", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["a"]},
            "ProvisionedThroughput": {"ReadCapacityUnits": 3, "WriteCapacityUnits": 4},
        }
    ],
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
}


@pytest.mark.parametrize("backend", [FakeDynamoDB, MotoServer])
@pytest.mark.parametrize("billing", ["like", "on_demand"])
def test_a_table_like_another_is_alike(backend, billing):
    """Keys, indexes, rates, stream and time to live are those of the source, on every backend that supports them."""
    with backend() as server:
        client = client_of(server)
        client.create_table(TableName="model", **RICH)
        client.update_time_to_live(
            TableName="model", TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"}
        )
        ddbio.create_table_like("model", "made", billing=billing, endpoint_url=server.endpoint_url, region="us-east-1")
        model, made = (client.describe_table(TableName=name)["Table"] for name in ("model", "made"))
        expiry = client.describe_time_to_live(TableName="made")["TimeToLiveDescription"]
    assert expiry["AttributeName"] == "until"
    for name in ("KeySchema", "StreamSpecification"):
        assert made[name] == model[name]
    assert shape(made, billing) == shape(model, billing)
    if billing == "on_demand":
        assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


@pytest.mark.parametrize("backend", [FakeDynamoDB, MotoServer])
def test_tags_and_policy_are_copied_on_request(backend):
    """A table like another has its tags and its policy only with the options. The policy names the new table."""
    with backend() as server:
        client = client_of(server)
        client.create_table(TableName="model", **RICH, Tags=[{"Key": "team", "Value": "shop"}])
        source = client.describe_table(TableName="model")["Table"]["TableArn"]
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": source}]}
        client.put_resource_policy(ResourceArn=source, Policy=json.dumps(policy))
        at = {"endpoint_url": server.endpoint_url, "region": "us-east-1"}
        ddbio.create_table_like("model", "plain", **at)
        ddbio.create_table_like("model", "made", copy_tags=True, copy_policy=True, **at)
        # The new table has neither, and is copied without an error.
        ddbio.create_table_like("plain", "again", copy_tags=True, copy_policy=True, **at)
        arns = {name: client.describe_table(TableName=name)["Table"]["TableArn"] for name in ("plain", "made", "again")}
        tags = {name: client.list_tags_of_resource(ResourceArn=arn)["Tags"] for name, arn in arns.items()}
        copied = json.loads(client.get_resource_policy(ResourceArn=arns["made"])["Policy"])
        for name in ("plain", "again"):
            with pytest.raises(client.exceptions.PolicyNotFoundException):
                client.get_resource_policy(ResourceArn=arns[name])
    assert tags == {"plain": [], "made": [{"Key": "team", "Value": "shop"}], "again": []}
    assert copied["Statement"] == [{"Effect": "Allow", "Resource": arns["made"]}]


VECTOR_INDEX = {
    "IndexName": "by_meaning",
    "VectorAttribute": {"AttributeName": "embedding"},
    "SearchSchema": [{"AttributeName": "tenant", "SearchSchemaElementType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
    "Dimensions": 2,
    "DistanceFunction": "EUCLIDEAN",
}
VECTOR_TABLE = {
    "TableName": "documents",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "tenant")],
    "BillingMode": "PAY_PER_REQUEST",
    "VectorIndexes": [VECTOR_INDEX],
}


def test_a_copy_keeps_vector_indexes(server):
    """The created target has the source's vector indexes, with the same entries."""
    client = client_of(server)
    client.create_table(**VECTOR_TABLE)
    for number in range(3):
        vector = {"L": [{"N": str(number)}, {"N": "1"}]}
        item = {"pk": {"S": str(number)}, "tenant": {"S": "t"}, "embedding": vector}
        client.put_item(TableName="documents", Item=item)
    ddbio.copy_table("documents", "copied", create_target=True, verify=True, endpoint_url=server.endpoint_url)
    (index,) = ddbio.describe_table("copied", endpoint_url=server.endpoint_url).vector_indexes
    assert index == VectorIndexDescription(
        name="by_meaning",
        attribute="embedding",
        dimensions=2,
        distance_function="EUCLIDEAN",
        item_count=3,
        size_bytes=3 * (4 * 2 + len("embedding") + len("pk0tenantt")),
        partition_name="tenant",
        keys=(IndexKey("tenant", "S", 2048, "by_meaning"),),
        projected=(),
    )


@pytest.fixture
def older_session(tmp_path):
    """Return a session of boto3 whose service model has no vector indexes, as before botocore 1.43.64."""
    loader = botocore.session.get_session().get_component("data_loader")
    model = loader.load_service_model("dynamodb", "service-2")
    for shape in ("TableDescription", "CreateTableInput"):
        del model["shapes"][shape]["members"]["VectorIndexes"]
    folder = tmp_path / "dynamodb" / "2012-08-10"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text(json.dumps(model))
    session = botocore.session.Session()
    session.get_component("data_loader").search_paths.insert(0, str(tmp_path))
    return boto3.Session(botocore_session=session, region_name="us-east-1")


def test_hidden_vector_indexes_are_reported(server, older_session, caplog):
    """With an older botocore, a table with a search schema is an error, and another on-demand table a warning."""
    client = client_of(server)
    client.create_table(**VECTOR_TABLE)
    plain = {**VECTOR_INDEX, "SearchSchema": None}
    client.create_table(
        **{
            **VECTOR_TABLE,
            "TableName": "plain",
            "AttributeDefinitions": VECTOR_TABLE["AttributeDefinitions"][:1],
            "VectorIndexes": [{name: value for name, value in plain.items() if value}],
        }
    )
    at = {"endpoint_url": server.endpoint_url, "session": older_session}
    with pytest.raises(ServiceError, match=r"'documents' defines tenant, .* install boto3 1\.43\.64 or newer"):
        ddbio.create_table_like("documents", "made", **at)
    ddbio.create_table_like("plain", "made", **at)
    assert [record.message for record in caplog.records if record.name == "ddbio.table"] == [
        "table plain: if it has vector indexes, the new table lacks them: boto3 1.43.64 or newer shows them"
    ]
    assert "VectorIndexes" not in client.describe_table(TableName="made")["Table"]
    caplog.clear()
    client.create_table(TableName="provisioned", **RICH)
    ddbio.create_table_like("provisioned", "other", **at)
    assert not caplog.records


def shape(described, billing):
    """Return the parts of a description that must be equal. Rates are only included if they are copied."""
    units = ("ReadCapacityUnits", "WriteCapacityUnits")
    indexes = {}
    for kind in ("Local", "Global"):
        for index in described[f"{kind}SecondaryIndexes"]:
            kept = {name: index[name] for name in ("KeySchema", "Projection")}
            if billing == "like" and kind == "Global":
                kept |= {name: index["ProvisionedThroughput"][name] for name in units}
            indexes[index["IndexName"]] = kept
    rates = [described["ProvisionedThroughput"][name] for name in units] if billing == "like" else None
    return indexes, rates


def test_an_existing_table_is_not_touched(server):
    """Creating a table with an existing name is an error with this name."""
    server.load("target", b"", "pk:S,sk:N")
    with pytest.raises(TargetError, match="'target' exists already"):
        ddbio.create_table_like("source", "target", endpoint_url=server.endpoint_url)


def test_a_plan_creates_nothing(server):
    """A dry run returns the request that would create the target. The table does not exist afterwards."""
    options = CopyOptions(source="source", target="target", create_target=True, endpoint_url=server.endpoint_url)
    plan = plan_copy(options)
    assert (plan.scan.table, plan.write, plan.creates["TableName"]) == ("source", None, "target")
    assert client_of(server).list_tables()["TableNames"] == ["source"]


def test_the_page_lists_every_key():
    """The page of the copy has each key of the report."""
    assert [name for name in CopyReport.__dataclass_fields__ if f"`{name}`" not in PAGE.partition("## Report")[2]] == []


def test_items_that_match_a_condition(fake_of_conditions):
    """Only those are copied. The read items are reported, and a condition on the partition key is a Query."""
    at = {"endpoint_url": fake_of_conditions.endpoint_url, "region": "eu-west-1"}
    for number, (where, scanned) in enumerate({"total > 20": 90, "pk = 'b' AND total > 20": 30}.items()):
        report = ddbio.copy_table("wide", f"narrow{number}", where=where, create_target=True, verify=True, **at)
        wanted = sorted(row["pk"] + str(row["sk"]) for row in ddbio.read_table("wide", where=where, **at).to_pylist())
        rows = ddbio.read_table(f"narrow{number}", **at).to_pylist()
        assert sorted(row["pk"] + str(row["sk"]) for row in rows) == wanted
        assert (report.items, report.scanned_items) == (len(wanted), scanned)


@pytest.fixture
def fake_of_conditions():
    """Serve a table of three collections."""
    with FakeDynamoDB() as fake:
        items = [
            {"pk": {"S": pk}, "sk": {"N": str(sk)}, "total": {"N": str(sk)}} for pk in "abc" for sk in range(30)
        ]  # fmt: skip
        fake.load("wide", items, "pk,sk:N")
        yield fake
