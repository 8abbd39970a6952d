"""An S3 of moto, for the verbs about folders."""

from __future__ import annotations

import itertools

import boto3
import pytest

_serial = itertools.count()


@pytest.fixture
def s3(s3_url):
    """Return a client."""
    return boto3.client("s3", endpoint_url=s3_url, region_name="eu-west-1")


@pytest.fixture
def bucket(s3):
    """Return the name of a new bucket."""
    name = f"folders{next(_serial)}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return name
