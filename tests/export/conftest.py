"""An S3 for imports and bulk puts, and fakes that read from it."""

from __future__ import annotations

import pytest

from ddbio.aws.client import ClientSpec
from ddbio.testing import FakeDynamoDB, MotoServer


@pytest.fixture(scope="module")
def s3(request):
    """Return the endpoint of an S3 with the module's ``BUCKET``, and a client of it."""
    with MotoServer() as server:
        client = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        client.create_bucket(Bucket=request.module.BUCKET)
        yield server.endpoint_url, client


@pytest.fixture
def serve(s3):
    """Return a factory of fakes that read from the bucket; it returns the fake and the options for both endpoints."""
    running = []

    def side(**options):
        fake = FakeDynamoDB(export_to=s3[0], **options).start()
        running.append(fake)
        return fake, {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3[0], "region": "us-east-1"}

    yield side
    for fake in running:
        fake.stop()
