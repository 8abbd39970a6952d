"""Databases with a clock that the test controls, and clients of a fake."""

from __future__ import annotations

import boto3
import pytest

from ddbio.testing import FakeDynamoDB
from ddbio.testing.calls.control import create_table
from ddbio.testing.request import Request
from ddbio.testing.tables.capacity import Capacity
from ddbio.testing.tables.database import Database
from ddbio.testing.tables.definition import Defaults


class HeldDatabase:
    """A database and its clock, which only the test advances."""

    def __init__(self, defaults=None, **capacity):
        self.now = 0.0
        self.database = Database(defaults or Defaults(), Capacity(**capacity), lambda: self.now)

    def create(self, name="tab", key=("pk:S",), **members):
        """Create a table, which is on-demand without throughput."""
        parts = [part.split(":") for part in key]
        units = members.pop("units", None)
        billing = {"BillingMode": "PAY_PER_REQUEST"}
        if units is not None:
            read, write = units
            billing = {"ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write}}
        definitions = [*parts, *(part.split(":") for part in members.pop("more", ()))]
        self.call(
            create_table,
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": tag} for part, tag in definitions],
            KeySchema=[
                {"AttributeName": part, "KeyType": kind}
                for (part, _), kind in zip(parts, ("HASH", "RANGE"), strict=False)
            ],
            TableName=name,
            **billing,
            **members,
        )
        return name

    def call(self, operation, **members):
        """Run one operation."""
        return operation(self.database, Request(members))


@pytest.fixture
def hold():
    """Return a factory of databases with a controlled clock."""
    return HeldDatabase


@pytest.fixture
def fake():
    """Serve a fake in this process whose buckets start with capacity."""
    with FakeDynamoDB(burst_at_creation=1.0) as served:
        yield served


@pytest.fixture
def connect():
    """Return a factory of boto3 clients that do not retry."""
    made = []

    def client(url):
        connected = boto3.client(
            "dynamodb",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=boto3.session.Config(retries={"total_max_attempts": 1}),
        )
        made.append(connected)
        return connected

    yield client
    for connected in made:
        connected.close()
