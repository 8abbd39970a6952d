"""Requirements of every source of pages, for the light transport and for botocore."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from ddbio.aws import client
from ddbio.aws.connection_pool import ChecksumMismatchError
from ddbio.aws.error_codes import error_code, is_transient, throttling_reasons
from ddbio.aws.transport import PageSource
from ddbio.errors import DecodeError
from ddbio.testing import FakeDynamoDB
from tests.aws.scripted import PAGE, ScriptedServer, Step, answer, hang_up, opened, read_at_last, refuse, speak, stall

SCAN = {"TableName": "table", "Segment": 0, "TotalSegments": 1}


@pytest.fixture(params=["light", "botocore"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name the source under test."""
    return str(request.param)


@pytest.fixture
def source_of(kind, monkeypatch):
    """Return a function that opens a source of the parametrised kind on a server."""

    def open_on(
        server: ScriptedServer | FakeDynamoDB, read_timeout_seconds: float = 100.0
    ) -> AbstractContextManager[PageSource]:
        url = server.url if isinstance(server, ScriptedServer) else server.endpoint_url
        return opened(monkeypatch, kind, url, read_timeout_seconds)

    return open_on


def test_a_page_is_the_bytes_that_came(source_of):
    """Items stay bytes, counts and capacity are parsed, requests are signed and use one connection."""
    with ScriptedServer() as server, source_of(server) as source:
        pages = [source.read("Scan", SCAN), source.read("Scan", SCAN), source.read("Scan", SCAN)]
        assert source.endpoint_url == server.url
    assert {page.items for page in pages} == {b'{"Items":[{"id":{"S":"a"}}]}'}
    assert pages[0].consumed_units == 0.5
    assert all(request.is_signed_by("testing") for request in server.requests)
    targets = [request.headers["x-amz-target"] for request in server.requests]
    assert targets == ["DynamoDB_20120810.Scan"] * 3
    assert all("ddbio/" in request.headers["user-agent"] for request in server.requests)
    assert all(request.headers["host"] == server.url.removeprefix("http://") for request in server.requests)


def test_parameters_reach_the_service_correctly(source_of):
    """A page's key is sent back byte for byte, including binary keys. Bytes in expressions become base64."""
    key = {"b": {"B": "AAH/"}, "s": {"S": "é\u2028\\"}, "n": {"N": "1"}}
    values = {":v": {"B": b"\x00\x01\xff"}}
    asked = {**SCAN, "ConsistentRead": True, "ExpressionAttributeValues": values, "ExclusiveStartKey": key}
    body = json.dumps({"Count": 0, "Items": [], "ScannedCount": 0, "LastEvaluatedKey": key}).encode()
    with ScriptedServer(answer(body)) as server, source_of(server) as source:
        page = source.read("Scan", SCAN)
        source.read("Scan", {**asked, "ExclusiveStartKey": page.last_evaluated_key})
    assert json.loads(server.requests[1].body) == {**asked, "ExpressionAttributeValues": {":v": {"B": "AAH/"}}}


def test_whole_tables_are_paged(source_of):
    """A scan with binary keys continues from page to page to the end of a table."""
    items = [json.dumps({"id": {"B": f"{number:04d}"}}).encode() for number in range(50)]
    received = []
    with FakeDynamoDB() as fake:
        fake.load("table", items, "id:B")
        with source_of(fake) as source:
            start: dict[str, object] = {}
            while True:
                page = source.read("Scan", {**SCAN, "Limit": 7, **start})
                received += json.loads(page.items)["Items"]
                if page.last_evaluated_key is None:
                    break
                start = {"ExclusiveStartKey": page.last_evaluated_key}
    assert sorted(json.dumps(item).encode() for item in received) == items


def test_a_session_token_is_sent_and_signed(source_of, monkeypatch):
    """Temporary keys sign with their token."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token/+=")
    with ScriptedServer() as server, source_of(server) as source:
        source.read("Scan", SCAN)
    [request] = server.requests
    assert request.headers["x-amz-security-token"] == "token/+="
    assert "x-amz-security-token" in request.headers["authorization"]
    assert request.is_signed_by("testing")


def test_refreshed_credentials_sign_the_next_request(source_of, monkeypatch):
    """Expiring keys are refreshed between requests, and each request is signed with the current keys."""
    numbers = iter(range(1, 100))

    def refreshed() -> dict[str, str]:
        number = next(numbers)
        soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
        return {
            "access_key": f"KEY{number}",
            "secret_key": f"secret{number}",
            "token": f"t{number}",
            "expiry_time": soon,
        }

    def session(_spec: object, _environment: object) -> boto3.Session:
        made = botocore.session.Session()
        made._credentials = RefreshableCredentials.create_from_metadata(refreshed(), refreshed, "test")
        return boto3.Session(botocore_session=made)

    monkeypatch.setattr(client, "_session", session)
    with ScriptedServer() as server, source_of(server) as source:
        for _ in range(3):
            source.read("Scan", SCAN)
    tokens = [request.headers["x-amz-security-token"] for request in server.requests]
    assert len(set(tokens)) == 3
    assert all(
        request.is_signed_by(f"secret{token[1:]}") for request, token in zip(server.requests, tokens, strict=True)
    )


def test_without_credentials_nothing_is_sent(source_of, monkeypatch):
    """Missing credentials are botocore's error, raised before a connection is opened."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with ScriptedServer() as server, source_of(server) as source, pytest.raises(NoCredentialsError):
        source.read("Scan", SCAN)
    assert server.requests == []


BROKEN = {
    "truncated": answer(headers={"Content-Length": str(len(PAGE) + 100)}, stays_open=False),
    "truncated without a checksum": answer(
        headers={"Content-Length": str(len(PAGE) + 100), "x-amz-crc32": None}, stays_open=False
    ),
    "longer than stated": answer(headers={"Content-Length": str(len(PAGE) - 1)}),
    "not what the checksum says": answer(headers={"x-amz-crc32": "1"}),
    "with a checksum that is none": answer(headers={"x-amz-crc32": "crc"}),
    "cut inside its head": speak(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "not HTTP": speak(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
    "never sent": hang_up,
    "a server error": refuse("InternalServerError", "try again", status=500),
    "a gateway's page": answer(b"<html>502</html>", status=502, headers={"Content-Type": "text/html"}),
    "an empty server error": answer(b"", status=503),
    "empty": answer(b""),
    "a gateway that is too busy": answer(b"", status=429),
    "a gateway that waited too long": answer(b"", status=408),
}


@pytest.mark.parametrize("step", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_answer_is_transient_and_leaves_no_trace(source_of, step):
    """A broken response is a transient error. The same source then answers normally."""
    with ScriptedServer(step) as server, source_of(server) as source:
        with pytest.raises((ClientError, BotoCoreError)) as raised:
            source.read("Scan", SCAN)
        assert is_transient(raised.value)
        assert read_at_last(source, "Scan", SCAN).count == 1


def test_a_wrong_checksum_is_an_error(source_of):
    """The error contains both checksums."""
    broken = answer(headers={"x-amz-crc32": "12"})
    with (
        ScriptedServer(broken) as server,
        source_of(server) as source,
        pytest.raises(ChecksumMismatchError, match="is not 12"),
    ):
        source.read("Scan", SCAN)


def test_no_checksum_is_no_error(source_of):
    """A response without a checksum is accepted."""
    with ScriptedServer(answer(headers={"x-amz-crc32": None})) as server, source_of(server) as source:
        assert source.read("Scan", SCAN).count == 1


def test_a_verified_body_that_is_no_page_is_a_decode_error(source_of):
    """A verified body that is not a page is not requested again."""
    with ScriptedServer(answer(b'{"Items":7}')) as server, source_of(server) as source, pytest.raises(DecodeError):
        source.read("Scan", SCAN)


CHUNKED = b"".join(b"%x;some=extension\r\n%s\r\n" % (len(part), part) for part in (PAGE[:9], PAGE[9:])) + b"0\r\n\r\n"
SHAPES = {
    "chunked": speak(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED, stays_open=True),
    "without a length": speak(b"HTTP/1.1 200 OK\r\n\r\n" + PAGE),
    "HTTP/1.0": speak(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)),
    "closing": answer(headers={"Connection": "close"}, stays_open=False),
    "bare line ends": speak(b"HTTP/1.1 200\ncontent-length:%d\n\n%s" % (len(PAGE), PAGE), stays_open=True),
}


@pytest.mark.parametrize("step", SHAPES.values(), ids=SHAPES.keys())
def test_every_legal_shape_of_an_answer_is_read(source_of, step):
    """Fakes answer chunked, without a length or by HTTP/1.0. The next request works."""
    with ScriptedServer(step) as server, source_of(server) as source:
        assert [source.read("Scan", SCAN).items, source.read("Scan", SCAN).items] == [
            b'{"Items":[{"id":{"S":"a"}}]}'
        ] * 2


def test_an_idle_connection_that_was_closed_is_replaced(source_of):
    """A server may close an idle connection at any time: the next request detects it, or is sent again."""
    with ScriptedServer(answer(stays_open=False)) as server, source_of(server) as source:
        assert source.read("Scan", SCAN).count == 1
        server.wait_until_idle()  # botocore detects only received bytes
        assert source.read("Scan", SCAN).count == 1
    assert [request.connection for request in server.requests] == [1, 2]


def test_bytes_nobody_asked_for_are_never_an_answer(source_of):
    """Bytes on an idle connection, such as a load balancer's 408, are not read as the next response."""
    timeout = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    with ScriptedServer(answer(after=timeout)) as server, source_of(server) as source:
        assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]


def test_silence_is_a_read_timeout(source_of):
    """A server that does not answer is given up after the read timeout."""
    with ScriptedServer(stall) as server, source_of(server, read_timeout_seconds=0.2) as source:
        with pytest.raises(ReadTimeoutError) as raised:
            source.read("Scan", SCAN)
        assert is_transient(raised.value)
        assert read_at_last(source, "Scan", SCAN).count == 1


def test_a_closed_port_is_an_endpoint_connection_error(source_of):
    """For a closed port the error is that of botocore."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = ScriptedServer()
    server._listener.close()
    server.port = port
    with source_of(server) as source, pytest.raises(EndpointConnectionError):
        source.read("Scan", SCAN)


REASONS = [{"reason": "TableReadProvisionedThroughputExceeded", "resource": "arn:table"}]
ERRORS: dict[str, tuple[Step, int, str, list[str]]] = {
    "throttled by its capacity": (
        refuse("ProvisionedThroughputExceededException", "slow down", ThrottlingReasons=REASONS),
        400, "ProvisionedThroughputExceededException", ["TableReadProvisionedThroughputExceeded"],
    ),
    "throttled by the account": (
        refuse("RequestLimitExceeded", "slow down", ThrottlingReasons=REASONS),
        400, "RequestLimitExceeded", ["TableReadProvisionedThroughputExceeded"],
    ),
    "throttled by the control plane": (
        refuse("ThrottlingException", "slow down", throttlingReasons=REASONS),
        400, "ThrottlingException", ["TableReadProvisionedThroughputExceeded"],
    ),
    "throttled without a reason": (refuse("ThrottlingException", "slow down"), 400, "ThrottlingException", []),
    "no such table": (refuse("ResourceNotFoundException", "none"), 400, "ResourceNotFoundException", []),
    "a code botocore does not know": (refuse("NewException", "news"), 400, "NewException", []),
    "a message in capitals": (
        answer(b'{"__type":"x#ValidationException","Message":"no"}', status=400), 400, "ValidationException", []
    ),
    "a code without a namespace": (answer(b'{"__type":"A:http://x"}', status=400), 400, "A", []),
    "no text at all": (answer(b'{"__type":"x#SerializationException"}', status=400), 400, "SerializationException", []),
    "too large": (answer(b"", status=413), 413, "413", []),
    "text": (answer(b"forbidden", status=403), 403, "403", []),
    "a redirect": (answer(b"", status=301, headers={"Location": "http://127.0.0.1:9/"}), 301, "301", []),
    "internal": (refuse("InternalServerError", "oops", status=500), 500, "InternalServerError", []),
    "an HTML page": (answer(b"<html></html>", status=502), 502, "502", []),
}  # fmt: skip


@pytest.mark.parametrize(("step", "status", "code", "reasons"), ERRORS.values(), ids=ERRORS.keys())
def test_refusals_are_what_botocore_makes_of_them(source_of, step, status, code, reasons):
    """Code, status and throttling reasons of a refusal are in the expected members. It is requested once."""
    with ScriptedServer(step) as server, source_of(server) as source, pytest.raises(ClientError) as raised:
        source.read("Scan", SCAN)
    assert error_code(raised.value) == code
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert throttling_reasons(raised.value) == reasons
    assert is_transient(raised.value) == (status >= 500)
    assert len(server.requests) == 1


@pytest.mark.parametrize("step", [case[0] for case in ERRORS.values()], ids=ERRORS.keys())
def test_both_sources_raise_the_same_error(monkeypatch, step):
    """Class and parsed response of an error are equal, except botocore's count of retries."""
    raised = []
    for kind in ("light", "botocore"):
        with ScriptedServer(step) as server, opened(monkeypatch, kind, server.url) as source:
            with pytest.raises(ClientError) as caught:
                source.read("Scan", SCAN)
            raised.append(caught.value)
    light, theirs = (error.response for error in raised)
    for counted in ("RetryAttempts", "MaxAttemptsReached"):
        theirs["ResponseMetadata"].pop(counted, None)
    for response in (light, theirs):
        response["ResponseMetadata"]["HTTPHeaders"].pop("date")
    assert light == theirs
    # The classes are recreated for each client.
    assert type(raised[0]).__name__ == type(raised[1]).__name__
