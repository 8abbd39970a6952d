"""Calls of DynamoDB's control plane."""

import pytest

from ddbio.aws.client import ClientSpec
from ddbio.aws.control_plane import call
from ddbio.errors import ServiceError


def test_an_operation_that_boto3_does_not_know_is_named():
    """With a library older than the operation, the message names both, with advice."""
    spec = ClientSpec(endpoint_url="http://127.0.0.1:1", region="eu-west-1")
    with pytest.raises(ServiceError, match=r"botocore \S+ does not know dynamodb:BrewCoffee: install a newer boto3"):
        call(spec, "BrewCoffee", "table 'orders'", {})
