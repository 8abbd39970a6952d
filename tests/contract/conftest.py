"""Start of the contract suite's backends, and marks of their known gaps."""

from __future__ import annotations

import contextlib
import functools
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from urllib.error import URLError

import boto3
import localstack_client.config
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB, MotoServer

MINISTACK = Path(__file__).parents[2] / ".venv-ministack" / "bin" / "ministack"
START_SECONDS = 250


def pytest_collection_modifyitems(items):
    """Expect the known gaps of a backend to fail. If they are certain, a passing gap is a failure."""
    for item in items:
        for reason, names in getattr(item.cls, "gaps", {}).items():
            unknown = [name for name in names if not hasattr(item.cls, name.partition("[")[0])]
            if unknown:
                raise pytest.UsageError(f"{item.cls.__name__}.gaps names no statement: {unknown}")
            if item.name in names or item.originalname in names:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=item.cls.gaps_are_certain))


@contextlib.contextmanager
def serve_fake(_):
    """Serve the fake in this process."""
    # Buckets that start empty would throttle the first writes to a new table, which is not tested here.
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        yield fake.endpoint_url


@contextlib.contextmanager
def serve_moto(_):
    """Serve moto in a separate process."""
    with MotoServer() as server:
        yield server.endpoint_url


@contextlib.contextmanager
def serve_ministack(environment):
    """Serve ministack from a separate environment with its pinned dependencies."""
    if not MINISTACK.exists():
        pytest.skip("ministack is not installed: ./task ministack")
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        if sys.platform != "linux":
            # While this socket is open, Linux gives the port to no other process, and lets the server listen on it.
            reserved.close()
        quiet = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SFTP_ENABLED": "0", "IOT_MTLS_ENABLED": "0"}
        with subprocess.Popen([MINISTACK], env={**environment, **quiet, "LOG_LEVEL": "ERROR"}) as process:
            try:
                await_health(f"http://127.0.0.1:{port}/_localstack/health")
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def await_health(url):
    """Return once a server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=START_SECONDS):
                return
        except (URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def serve_endpoint(environment):
    """Return the endpoint of the environment, from AWS's variables or localstack-client's."""
    url = environment.get("AWS_ENDPOINT_URL_DYNAMODB") or environment.get("AWS_ENDPOINT_URL")
    if url is None and "LOCALSTACK_HOST" in environment:
        url = localstack_client.config.get_service_endpoint("dynamodb")
    if url is None:
        pytest.skip("no endpoint is given: set AWS_ENDPOINT_URL or LOCALSTACK_HOST")
    yield url


SERVE = {"fake": serve_fake, "moto": serve_moto, "ministack": serve_ministack, "endpoint": serve_endpoint}


class Dynamo:
    """A plain boto3 client with the loops that every test needs."""

    def __init__(self, client):
        self.client = client

    @staticmethod
    def row(pk, sk, **attributes):
        """Return an item with a string and a number as its key."""
        return {"pk": {"S": pk}, "sk": {"N": str(sk)}, **attributes}

    def put_all(self, table, items):
        """Write items in batches of 25 until nothing is left unprocessed."""
        waiting = list(items)
        while waiting:
            batch, waiting = waiting[:25], waiting[25:]
            left = {table: [{"PutRequest": {"Item": item}} for item in batch]}
            while left:
                left = self.client.batch_write_item(RequestItems=left)["UnprocessedItems"]

    def pages(self, operation, **members):
        """Return every page of a Scan or Query."""
        read = getattr(self.client, operation)
        replies = [read(**members)]
        while "LastEvaluatedKey" in replies[-1]:
            replies.append(read(**members, ExclusiveStartKey=replies[-1]["LastEvaluatedKey"]))
        return replies

    def items(self, operation, **members):
        """Return the items of every page of a Scan or Query."""
        return [item for page in self.pages(operation, **members) for item in page["Items"]]

    def refusal(self, operation, **members):
        """Return the code of the error with which a call is refused, as HTTP 400."""
        with pytest.raises(ClientError) as caught:
            getattr(self.client, operation)(**members)
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
        return caught.value.response["Error"]["Code"]


@pytest.fixture(scope="session")
def url_of(original_environment):
    """Return a function from a backend's name to its address. Each backend is started once."""
    with contextlib.ExitStack() as started:
        yield functools.cache(lambda name: started.enter_context(SERVE[name](original_environment)))


@pytest.fixture(scope="class")
def client(request, url_of, original_environment):
    """Return a plain boto3 client of the class's backend."""
    own = original_environment if request.cls.backend == "endpoint" else {}
    connected = boto3.client(
        "dynamodb",
        endpoint_url=url_of(request.cls.backend),
        region_name=own.get("AWS_REGION", "us-east-1"),
        aws_access_key_id=own.get("AWS_ACCESS_KEY_ID", "test"),
        aws_secret_access_key=own.get("AWS_SECRET_ACCESS_KEY", "test"),
        aws_session_token=own.get("AWS_SESSION_TOKEN"),
        # Parameters must reach the service even where botocore would refuse them itself.
        config=Config(parameter_validation=False),
    )
    yield connected
    connected.close()


@pytest.fixture(scope="class")
def dynamo(client):
    """Return the client with the loops around it."""
    return Dynamo(client)


@pytest.fixture(scope="class")
def make_table(client):
    """Return a factory of tables with unique names, which are deleted at the end."""
    made = []

    def make(*key, **members):
        name = f"ddbio-contract-{uuid.uuid4()}"
        types = [part.split(":") for part in [*key, *members.pop("more", ())]]
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": tag} for part, tag in types],
            KeySchema=[
                {"AttributeName": part, "KeyType": kind}
                for (part, _), kind in zip(types[: len(key)], ("HASH", "RANGE"), strict=False)
            ],
            BillingMode="PAY_PER_REQUEST",
            **members,
        )
        made.append(name)
        client.get_waiter("table_exists").wait(TableName=name)
        return name

    yield make
    for name in made:
        client.delete_table(TableName=name)


@pytest.fixture(scope="class")
def numbered(dynamo, make_table):
    """Return a table of 3 partition keys, each with sort keys 1 to 12."""
    table = make_table("pk:S", "sk:N")
    dynamo.put_all(table, [dynamo.row(f"p{p}", sk, text={"S": f"t{sk}"}) for p in range(3) for sk in range(1, 13)])
    return table


@pytest.fixture(scope="class")
def spread(dynamo, make_table):
    """Return a table of 200 partition keys."""
    table = make_table("pk:S")
    dynamo.put_all(table, [{"pk": {"S": f"key {number}"}} for number in range(200)])
    return table
