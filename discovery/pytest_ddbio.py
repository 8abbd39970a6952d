"""Give pytest a DynamoDB and an S3 on this machine, as fixtures, wherever ddbio is installed.

Nothing is imported before a test asks for a fixture. Each fixture points AWS's own environment variables at what it
serves, so that boto3, ddbio, Spark and every child process find it, and no account is reached.
"""

from __future__ import annotations

import http.client
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.testing import FakeDynamoDB, MotoServer
    from ddbio.testing.loading import Items

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_OK = 200


@dataclass(frozen=True)
class FakeS3:
    """Endpoint of an S3, and the empty bucket of this test."""

    endpoint_url: str
    bucket: str

    @property
    def uri(self) -> str:
        """The bucket as ``s3://…``."""
        return f"s3://{self.bucket}"


@dataclass(frozen=True)
class LoadedTable:
    """Endpoint and name of a table, and the number of its items."""

    name: str
    endpoint_url: str
    items: int


class LoadTable(Protocol):
    """Make a table of items."""

    def __call__(self, items: Items, key: str = "id:S", name: str = "table") -> LoadedTable:
        """Put items of DynamoDB JSON into a new table; ``key`` is as in ``customer:S,placed_at:N``."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker by which a test sets its DynamoDB up."""
    config.addinivalue_line(
        "markers", "dynamodb_fake(**parameters): parameters of ddbio.testing.FakeDynamoDB for this test, as rcu=100"
    )


@pytest.fixture
def dynamodb_fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDynamoDB]:
    """Serve an empty DynamoDB for one test; ``@pytest.mark.dynamodb_fake(wcu=100)`` gives it parameters."""
    from ddbio.testing import FakeDynamoDB  # noqa: PLC0415 - only who asks for it waits for its import

    marker = request.node.get_closest_marker("dynamodb_fake")
    parameters: dict[str, Any] = marker.kwargs if marker else {}
    with FakeDynamoDB(**parameters) as fake:
        _point("DYNAMODB", fake.endpoint_url, monkeypatch)
        yield fake


@pytest.fixture
def loaded_table(dynamodb_fake: FakeDynamoDB) -> LoadTable:
    """Return a function that makes tables: ``loaded_table([{"id": {"S": "a"}}], key="id:S", name="orders")``."""

    def load(items: Items, key: str = "id:S", name: str = "table") -> LoadedTable:
        return LoadedTable(name, dynamodb_fake.endpoint_url, dynamodb_fake.load(name, items, key))

    return load


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[MotoServer]:
    """Serve moto's S3 for the whole run: it takes a second to start."""
    from ddbio.errors import EndpointError  # noqa: PLC0415 - as above
    from ddbio.testing import MotoServer  # noqa: PLC0415 - as above

    server = MotoServer()
    try:
        server.__enter__()
    except EndpointError:
        pytest.fail("s3_fake is moto's server, which does not start: pip install 'ddbio[demo]'", pytrace=False)
    yield server
    server.__exit__(None, None, None)


@pytest.fixture
def s3_fake(_s3_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> FakeS3:
    """Serve an S3 with an empty bucket of this test's own."""
    bucket = f"test-{uuid4()}"
    connection = http.client.HTTPConnection(urlsplit(_s3_server.endpoint_url).netloc)
    try:
        connection.request("PUT", f"/{bucket}")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != _OK:
        pytest.fail(f"the S3 at {_s3_server.endpoint_url} made no bucket: it answered {status}", pytrace=False)
    _point("S3", _s3_server.endpoint_url, monkeypatch)
    return FakeS3(_s3_server.endpoint_url, bucket)


def _point(service: str, endpoint_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client of this test and its children reach an endpoint, and no account."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", endpoint_url)
