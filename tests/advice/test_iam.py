"""Parts of policies: their identity, their resources, and their conditions."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import OptionError

ACCOUNT, OTHER = "111111111111", "222222222222"
KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd"
PLACE = {"table": "orders", "dest": "s3://lake/out"}


@pytest.fixture(autouse=True)
def region(monkeypatch):
    """Set the region by the environment."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


def allowed(policy, action):
    """Return the resources of an action, over all statements."""
    return sorted(
        {r for statement in policy["Statement"] if action in statement["Action"] for r in statement["Resource"]}
    )


def conditions(policy, action):
    """Return the conditions of an action's statements."""
    return [statement.get("Condition") for statement in policy["Statement"] if action in statement["Action"]]


@pytest.mark.parametrize(
    ("table", "options", "arn"),
    [
        ("orders", {}, f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/orders"),
        ("orders", {"region": "cn-north-1"}, f"arn:aws-cn:dynamodb:cn-north-1:{ACCOUNT}:table/orders"),
        ("orders", {"region": "us-gov-west-1"}, f"arn:aws-us-gov:dynamodb:us-gov-west-1:{ACCOUNT}:table/orders"),
        (f"arn:aws:dynamodb:us-east-1:{OTHER}:table/orders", {}, f"arn:aws:dynamodb:us-east-1:{OTHER}:table/orders"),
    ],
)
def test_a_table_is_named_by_its_arn(table, options, arn):
    """Region and account are those of the table's ARN, otherwise of the options and the environment."""
    policy = ddbio.iam_policy("read", {"source": table, **options}, account=ACCOUNT)
    assert allowed(policy, "dynamodb:Scan") == allowed(policy, "dynamodb:DescribeTable") == [arn]


def test_an_account_is_that_of_the_role():
    """Without an account option it is that of the role; without a role it is any."""
    role = f"arn:aws:iam::{OTHER}:role/reader"
    for options, account in (({}, "*"), ({"role_arn": role}, OTHER)):
        resources = allowed(ddbio.iam_policy("read", {"source": "orders", **options}), "dynamodb:Scan")
        assert resources == [f"arn:aws:dynamodb:eu-west-1:{account}:table/orders"]


@pytest.mark.parametrize(
    ("source", "objects", "prefixes"),
    [
        ("s3://lake", ["arn:aws:s3:::lake/*"], None),
        ("s3://lake/rows/", ["arn:aws:s3:::lake/rows/*"], ["rows", "rows/*"]),
        ("s3://lake/rows", ["arn:aws:s3:::lake/rows", "arn:aws:s3:::lake/rows/*"], ["rows", "rows/*"]),
        (
            "s3a://lake/a.json",
            ["arn:aws:s3:::lake/_ddbio/*", "arn:aws:s3:::lake/a.json", "arn:aws:s3:::lake/a.json/*"],
            ["a.json", "a.json/*", "_ddbio/*"],
        ),
        ("s3://lake/rows/*.json", ["arn:aws:s3:::lake/rows/*.json"], ["rows/*"]),
        ("s3://lake/rows/[ab]?.json", ["arn:aws:s3:::lake/rows/*?.json"], ["rows/*"]),
        (
            f"s3://arn:aws:s3:eu-west-1:{ACCOUNT}:accesspoint/point/rows/",
            [f"arn:aws:s3:eu-west-1:{ACCOUNT}:accesspoint/point/object/rows/*"],
            ["rows", "rows/*"],
        ),
        ("rows/a.json", [], None),
    ],
)
def test_locations_are_buckets_and_keys(source, objects, prefixes):
    """A location is a folder, an object, a glob, a bucket or an access point. A local path needs no permission."""
    policy = ddbio.iam_policy("load", {"source": source, "table": "orders"})
    assert allowed(policy, "s3:GetObject") == objects
    statements = conditions(policy, "s3:ListBucket")
    assert statements == (
        [] if not objects else [{"StringLikeIfExists": {"s3:prefix": prefixes}} if prefixes else None]
    )


def test_another_identity_has_the_target():
    """With a target role each of both roles has its part, and the caller may assume both."""
    roles = {"role_arn": f"arn:aws:iam::{ACCOUNT}:role/reader", "target_role_arn": f"arn:aws:iam::{OTHER}:role/writer"}
    arguments = {"source": "orders", "target": "copied", "create_target": True, "target_region": "us-east-1", **roles}
    source, target = (ddbio.iam_policy("copy", arguments, principal=principal) for principal in ("job", "target"))
    assert allowed(source, "dynamodb:Scan") == [f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/orders"]
    assert allowed(source, "dynamodb:BatchWriteItem") == allowed(target, "dynamodb:Scan") == []
    for action in ("BatchWriteItem", "CreateTable", "UpdateTimeToLive"):
        assert allowed(target, f"dynamodb:{action}") == [f"arn:aws:dynamodb:us-east-1:{OTHER}:table/copied"]
    caller = ddbio.iam_policy("copy", arguments, principal="caller")
    assert allowed(caller, "sts:AssumeRole") == sorted(roles.values())
    assert len(caller["Statement"]) == 1
    with pytest.raises(OptionError, match="role_arn"):
        ddbio.iam_policy("copy", {"source": "orders", "target": "copied"}, principal="caller")


def test_conditions_are_those_of_the_options():
    """Endpoints apply to the job's own requests, an owner only to buckets."""
    policy = ddbio.iam_policy(
        "export start", {**PLACE, "s3_expected_bucket_owner": OTHER, "kms_key": KEY}, vpc_endpoint="vpce-1,vpce-2"
    )
    vpc = {"aws:SourceVpce": ["vpce-1", "vpce-2"]}
    assert conditions(policy, "dynamodb:ExportTableToPointInTime") == [{"StringEquals": vpc}]
    assert conditions(policy, "s3:PutObject") == [{"StringEquals": {"aws:ResourceAccount": [OTHER]}}]
    assert conditions(policy, "kms:GenerateDataKey") == [None]
    policy = ddbio.iam_policy("scan", {**PLACE, "s3_expected_bucket_owner": OTHER}, vpc_endpoint="vpce-1")
    assert conditions(policy, "s3:PutObject") == [
        {"StringEquals": {"aws:SourceVpce": ["vpce-1"], "aws:ResourceAccount": [OTHER]}}
    ]


@pytest.mark.parametrize(
    ("options", "settings", "read", "written"),
    [
        ({}, {}, [], []),
        ({"s3_sse_kms_key_id": KEY}, {}, [KEY], [KEY]),
        ({"s3_sse_kms_key_id": "aws/s3"}, {}, [], []),
        ({}, {"bucket_kms_key": KEY}, [KEY], [KEY]),
        ({"s3_sse": "AES256"}, {"bucket_kms_key": KEY}, [], []),
        ({}, {"table_kms_key": KEY}, [KEY], []),
        ({"s3_sse_kms_key_id": "1234abcd"}, {"account": ACCOUNT}, [KEY], [KEY]),
    ],
)
def test_keys_are_those_of_objects_and_tables(options, settings, read, written):
    """Keys are those of the options, of the bucket's default, and of the table."""
    policy = ddbio.iam_policy("scan", {**PLACE, **options}, **settings)
    assert (allowed(policy, "kms:Decrypt"), allowed(policy, "kms:GenerateDataKey")) == (read, written)


@pytest.mark.parametrize(
    ("where", "key", "actions"),
    [
        ("n > 1", None, {"Scan"}),
        ("pk = 'a'", None, {"Scan", "Query"}),
        ("pk = 'a'", "pk", {"Query"}),
        ("pk = 'a' and n > 1", "pk", {"Query"}),
        ("n = 1", "pk", {"Scan"}),
    ],
)
def test_a_query_is_determined_by_the_partition_key(where, key, actions):
    """The table's key determines whether a condition is a Query."""
    policy = ddbio.iam_policy("read", {"source": "orders", "where": where}, partition_key=key)
    reads = {action.partition(":")[2] for statement in policy["Statement"] for action in statement["Action"]}
    assert reads - {"DescribeTable"} == actions


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("scan", {**PLACE, "tabel": "x"}, "unknown option 'tabel'"),
        ("skan", PLACE, "is none of"),
        ("bulk report", {"place": "arn:aws:dynamodb:x"}, "give their s3:// prefix"),
    ],
)
def test_what_is_no_command_is_refused(verb, arguments, message):
    """An option that does not exist would omit a permission."""
    with pytest.raises(OptionError, match=message):
        ddbio.iam_policy(verb, arguments)


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("scan orders s3://lake/out --account 111111111111", "s3:PutObject"),
        ("--account 111111111111 export start orders s3://lake/out --wait", "dynamodb:DescribeExport"),
        ("archive restore s3://lake/out orders", "dynamodb:PutItem"),
        ("plan copy orders copied", "dynamodb:Scan"),
        ("capture orders s3://lake/log --fan-out reader --source kinesis --stream changes", "kinesis:SubscribeToShard"),
    ],
)
def test_a_command_is_given_as_it_is_to_run(line, action):
    """Parts and groups are recognized, and options may be on both sides. A wrong option has the error of the verb."""
    result = CliRunner().invoke(cli, ["iam", *line.split(" ")])
    assert result.exit_code == 0, result.output
    assert allowed(json.loads(result.output), action)
    for wrong in ("scan orders", "scan orders s3://lake/out --colums a", "exprt start orders s3://lake", "export"):
        assert CliRunner().invoke(cli, ["iam", *wrong.split(" ")]).exit_code != 0
