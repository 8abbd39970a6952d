"""The proxy that enforces policies: the permissions of requests, and the errors of refusals."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB, MotoServer, Permission, PolicyProxy

REGION, ACCOUNT = "us-east-1", "000000000000"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders"


def statement(actions, resources="*", effect="Allow", **conditions):
    """Return a statement."""
    result = {"Sid": "A", "Effect": effect, "Action": actions, "Resource": resources}
    return result | ({"Condition": conditions} if conditions else {})


@pytest.mark.parametrize(
    ("statements", "action", "resource", "context", "allowed"),
    [
        ([statement("dynamodb:Scan", TABLE)], "dynamodb:Scan", TABLE, {}, True),
        ([statement(["dynamodb:Query", "dynamodb:Sc?n"], [TABLE])], "dynamodb:Scan", TABLE, {}, True),
        ([statement("dynamodb:*", f"{TABLE}/index/*")], "dynamodb:Scan", TABLE, {}, False),
        ([statement("dynamodb:*", f"{TABLE}/index/*")], "dynamodb:Scan", f"{TABLE}/index/a", {}, True),
        ([statement("*"), statement("dynamodb:Scan", effect="Deny")], "dynamodb:Scan", TABLE, {}, False),
        ([], "dynamodb:Scan", TABLE, {}, False),
        ([statement("s3:*", StringLike={"s3:prefix": "a/*"})], "s3:ListBucket", "b", {"s3:prefix": "a/x"}, True),
        ([statement("s3:*", StringLike={"s3:prefix": "a/*"})], "s3:ListBucket", "b", {"s3:prefix": "b/x"}, False),
        ([statement("s3:*", StringLike={"s3:prefix": "a/*"})], "s3:ListBucket", "b", {}, False),
        ([statement("s3:*", StringLikeIfExists={"s3:prefix": ["a/*"]})], "s3:ListBucket", "b", {}, True),
        ([statement("s3:*", StringEquals={"aws:SourceVpce": "vpce-1"})], "s3:GetObject", "b", {}, True),
        ([statement("s3:*", StringEquals={"aws:SourceVpce": "vpce-2"})], "s3:GetObject", "b", {}, False),
        (
            [statement("s3:*", StringEquals={"aws:SourceVpce": "vpce-1"})],
            "s3:PutObject", "b", {"aws:ViaAWSService": "true"}, False,
        ),
        ([statement("s3:*", StringEquals={"aws:ResourceAccount": ACCOUNT})], "s3:GetObject", "b", {}, True),
    ],
)  # fmt: skip
def test_a_policy_is_read_as_iam_reads_it(statements, action, resource, context, allowed):
    """Patterns of actions and resources, denials, and conditions on the request work as in IAM."""
    proxy = PolicyProxy({}, {"Version": "2012-10-17", "Statement": statements}, vpc_endpoint="vpce-1")
    assert proxy.allows(Permission(action, resource, context)) is allowed


@pytest.fixture(scope="module")
def upstreams():
    """Serve a table and a bucket."""
    with FakeDynamoDB() as fake, MotoServer() as moto:
        fake.load("orders", [{"pk": {"S": "a"}}], "pk:S")
        boto3.client("s3", region_name=REGION, endpoint_url=moto.endpoint_url).create_bucket(Bucket="lake")
        yield {"dynamodb": fake.endpoint_url, "s3": moto.endpoint_url}


@pytest.mark.parametrize(
    ("service", "operation", "members", "actions"),
    [
        ("dynamodb", "scan", {"TableName": "orders"}, {"dynamodb:Scan", "kms:Decrypt"}),
        ("dynamodb", "describe_table", {"TableName": TABLE}, {"dynamodb:DescribeTable"}),
        ("dynamodb", "list_backups", {}, {"dynamodb:ListBackups"}),
        (
            "dynamodb", "transact_write_items",
            {"TransactItems": [{"Put": {"TableName": "orders", "Item": {"pk": {"S": "b"}}}}]},
            {"dynamodb:PutItem"},
        ),
        ("dynamodb", "execute_statement", {"Statement": "SELECT * FROM orders"}, {"dynamodb:PartiQLSelect"}),
        (
            "dynamodb", "execute_statement",
            {"Statement": "DELETE FROM orders WHERE pk = ?", "Parameters": [{"S": "z"}]},
            {"dynamodb:PartiQLDelete", "kms:Decrypt"},
        ),
        (
            "dynamodb", "batch_execute_statement",
            {"Statements": [{"Statement": "UPDATE orders SET n = 1 WHERE pk = 'a'"}]},
            {"dynamodb:PartiQLUpdate"},
        ),
        (
            "dynamodb", "execute_transaction",
            {
                "TransactStatements": [
                    {"Statement": "DELETE FROM orders WHERE pk = 'y'"},
                    {"Statement": "UPDATE orders SET n = 2 WHERE pk = 'a'"},
                ]
            },
            {"dynamodb:PartiQLDelete", "dynamodb:PartiQLUpdate", "kms:Decrypt"},
        ),
        (
            "dynamodb", "tag_resource", {"ResourceArn": TABLE, "Tags": [{"Key": "a", "Value": "b"}]},
            {"dynamodb:TagResource"},
        ),
        ("dynamodb", "untag_resource", {"ResourceArn": TABLE, "TagKeys": ["a"]}, {"dynamodb:UntagResource"}),
        ("dynamodb", "list_tags_of_resource", {"ResourceArn": TABLE}, {"dynamodb:ListTagsOfResource"}),
        ("s3", "put_object", {"Key": "a", "Body": b"1"}, {"s3:PutObject", "kms:GenerateDataKey"}),
        ("s3", "put_object", {"Key": "a", "ServerSideEncryption": "AES256"}, {"s3:PutObject"}),
        (
            "s3", "put_object", {"Key": "a", "Tagging": "a=b", "ACL": "private"},
            {"s3:PutObject", "s3:PutObjectTagging", "s3:PutObjectAcl", "kms:GenerateDataKey"},
        ),
        ("s3", "get_object", {"Key": "a"}, {"s3:GetObject", "kms:Decrypt"}),
        ("s3", "head_object", {"Key": "none"}, {"s3:GetObject", "s3:ListBucket"}),
        (
            "s3", "copy_object", {"Key": "c", "CopySource": "lake/a"},
            {"s3:GetObject", "s3:PutObject", "kms:GenerateDataKey"},
        ),
        ("s3", "list_objects_v2", {"Prefix": "a/"}, {"s3:ListBucket"}),
        ("s3", "list_multipart_uploads", {}, {"s3:ListBucketMultipartUploads"}),
        ("s3", "create_multipart_upload", {"Key": "u"}, {"s3:PutObject", "kms:GenerateDataKey"}),
        ("s3", "delete_objects", {"Delete": {"Objects": [{"Key": "x"}, {"Key": "y"}]}}, {"s3:DeleteObject"}),
        ("s3", "delete_object", {"Key": "x"}, {"s3:DeleteObject"}),
    ],
)  # fmt: skip
def test_requests_take_permissions(upstreams, service, operation, members, actions):
    """Each request needs the permissions that the service checks. Without one of them the error names it."""
    request = {"Bucket": "lake", **members} if service == "s3" else members

    def ask(policy):
        with PolicyProxy(upstreams, policy, bucket_key=KEY, table_key=KEY) as proxy:
            client = boto3.client(service, region_name=REGION, endpoint_url=proxy.endpoint_url)
            reply, error = {}, None
            try:
                reply = getattr(client, operation)(**request)
            except ClientError as refused:
                error = refused
            return (
                {permission.action for permission in proxy.asked},
                [permission.action for permission in proxy.denied],
                reply,
                error,
            )

    asked, denied, _, _ = ask(None)
    assert asked >= actions if service == "dynamodb" else asked == actions
    assert denied == []
    for action in actions:
        policy = {"Statement": [statement(sorted(actions - {action}) or "none:None")]}
        _, denied, reply, error = ask(policy)
        assert action in denied
        if operation == "delete_objects":
            assert {error_of_key["Code"] for error_of_key in reply["Errors"]} == {"AccessDenied"}
        elif operation == "head_object":
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        else:
            assert f"not authorized to perform: {action} on resource" in str(error)


@pytest.mark.parametrize(
    ("operation", "members", "action"),
    [
        ("describe_endpoints", {}, "dynamodb:DescribeEndpoints"),
        ("execute_statement", {"Statement": "SELECTT"}, "dynamodb:ExecuteStatement"),
    ],
)
def test_unknown_operations_are_refused(upstreams, operation, members, action):
    """A request without known permissions needs its own permission for everything."""
    policy = {"Statement": [statement("dynamodb:*", TABLE)]}
    with PolicyProxy(upstreams, policy) as proxy:
        client = boto3.client("dynamodb", region_name=REGION, endpoint_url=proxy.endpoint_url)
        with pytest.raises(ClientError, match=f"not authorized to perform: {action}"):
            getattr(client, operation)(**members)


def test_statements_take_permissions_of_their_index(upstreams):
    """A SELECT from an index needs the permission of the index."""
    with PolicyProxy(upstreams, {"Statement": []}) as proxy:
        client = boto3.client("dynamodb", region_name=REGION, endpoint_url=proxy.endpoint_url)
        with pytest.raises(ClientError, match="PartiQLSelect"):
            client.execute_statement(Statement='SELECT * FROM "orders"."by-n"')
        assert proxy.denied == [Permission("dynamodb:PartiQLSelect", f"{TABLE}/index/by-n")]
