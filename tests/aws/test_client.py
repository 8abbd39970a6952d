"""Clients from a picklable recipe, descriptions of tables, and errors a user can act on."""

import pickle

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError

from ddbio.aws.client import ClientSpec
from ddbio.aws.failure import is_transient, to_ddbio_error
from ddbio.aws.table import describe_table
from ddbio.errors import (
    AccessDeniedError,
    EndpointError,
    NotFoundError,
    OptionError,
    ServiceError,
)
from ddbio.testing import FakeDynamoDB


def test_spec_travels_and_shares_a_client():
    """A recipe survives pickling, and equal recipes share one client per process."""
    spec = ClientSpec(endpoint_url="http://127.0.0.1:1", region="eu-west-1")
    again = pickle.loads(pickle.dumps(spec))
    assert again.client("dynamodb") is spec.client("dynamodb")


def test_retries_are_explicit():
    """DynamoDB's client sends once, since retries are ours; S3's uses botocore's standard mode."""
    spec = ClientSpec(endpoint_url="http://127.0.0.1:1", region="eu-west-1")
    assert spec.client("dynamodb").meta.config.retries == {"total_max_attempts": 1, "mode": "standard"}
    assert spec.client("s3").meta.config.retries["total_max_attempts"] == 5


def test_stand_ins_get_path_style():
    """Bucket names are not hosts on a stand-in."""
    assert ClientSpec(endpoint_url="http://127.0.0.1:1").client("s3").meta.config.s3["addressing_style"] == "path"


def test_role_is_assumed_through_refreshable_credentials():
    """A role gives credentials that botocore refreshes, not a fixed set."""
    client = ClientSpec(endpoint_url="http://127.0.0.1:1", role_arn="arn:aws:iam::1:role/r").client("dynamodb")
    assert client._request_signer._credentials.method == "assume-role"


def test_unknown_profile_is_an_option_error():
    """A profile that does not exist is named."""
    with pytest.raises(OptionError, match="nobody"):
        ClientSpec(profile="nobody").client("dynamodb")


def test_describe_states_keys_rates_and_indexes():
    """Facts are DescribeTable's, keys in order, each index with its own rate."""
    with FakeDynamoDB() as fake:
        spec = ClientSpec(endpoint_url=fake.endpoint_url)
        throughput = {"ReadCapacityUnits": 10, "WriteCapacityUnits": 5}
        spec.client("dynamodb").create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "g")],
            ProvisionedThroughput=throughput,
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_g",
                    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                    "ProvisionedThroughput": {"ReadCapacityUnits": 7, "WriteCapacityUnits": 5},
                }
            ],
        )
        facts = describe_table(spec, "orders")
        with pytest.raises(NotFoundError, match="check the name, the region and the endpoint"):
            describe_table(spec, "absent")
    assert (facts.key_types, facts.rcu, facts.on_demand) == ((("pk", "S"), ("sk", "S")), 10.0, False)
    index = facts.index("by_g")
    assert index is not None
    assert (index.is_global, index.key_names, index.rcu) == (True, ("g",), 7.0)
    assert facts.index("none") is None


def _refusal(code, status=400):
    return ClientError({"Error": {"Code": code, "Message": "m."}, "ResponseMetadata": {"HTTPStatusCode": status}}, "X")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (_refusal("ResourceNotFoundException"), NotFoundError, "it does not exist (m)"),
        (_refusal("NoSuchBucket", 404), NotFoundError, "does not exist"),
        (_refusal("UnrecognizedClientException"), AccessDeniedError, "check the credentials"),
        (_refusal("KMS.AccessDeniedException"), AccessDeniedError, "allow s3:Do"),
        (_refusal("InternalServerError", 500), EndpointError, "try again"),
        (_refusal("501", 501), EndpointError, "HTTP 501 and no word of AWS"),
        (_refusal("ValidationException"), ServiceError, "ValidationException: m"),
        (NoCredentialsError(), AccessDeniedError, "AWS_ACCESS_KEY_ID"),
        (NoRegionError(), OptionError, "AWS_REGION"),
        (EndpointConnectionError(endpoint_url="http://x"), EndpointError, "is the endpoint right and up?"),
        (ValueError("Invalid endpoint: x"), OptionError, "Invalid endpoint"),
    ],
)
def test_errors_say_what_to_do(error, kind, message):
    """Every failure of AWS becomes one of our classes, with the action, the resource and the advice."""
    made = to_ddbio_error(error, action="s3:Do", resource="it")
    assert type(made) is kind
    assert message in str(made)


def test_transient_is_what_another_try_may_mend():
    """Server errors and broken connections are transient, refusals are not."""
    assert is_transient(_refusal("InternalServerError", 500))
    assert is_transient(EndpointConnectionError(endpoint_url="http://x"))
    assert not is_transient(_refusal("ValidationException"))


def test_region_comes_from_either_variable(monkeypatch):
    """AWS_REGION serves where boto3's own variable is not set."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert ClientSpec().client("dynamodb", max_pool_connections=11).meta.region_name == "ap-south-1"
