"""Prepared bodies are sent unchanged by both transports, and responses are returned unchanged."""

from concurrent.futures import Future

import pytest
from botocore.exceptions import ClientError

from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import BotocoreTransport, CompressingSender, LightTransport, open_body_sender, open_page_source
from ddbio.testing import FakeDynamoDB

PUT = b'{"RequestItems":{"rows":[{"PutRequest":{"Item":{"pk":{"S":"a"},"b":{"B":"AAE="}}}}]}}'
SINGLE = {
    "PutItem": b'{"TableName":"rows","Item":{"pk":{"S":"b"}}}',
    "UpdateItem": b'{"TableName":"rows","Key":{"pk":{"S":"c"}}}',
    "DeleteItem": b'{"TableName":"rows","Key":{"pk":{"S":"c"}}}',
}


@pytest.fixture(scope="module")
def server():
    """Serve the table ``rows``."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S")
        yield running


@pytest.fixture(params=["light", "botocore"])
def source(server, request, monkeypatch):
    """Return one of the two transports."""
    monkeypatch.setenv("DDBIO_TRANSPORT", request.param)
    opened = open_body_sender(ClientSpec(endpoint_url=server.endpoint_url, region="eu-west-1"), 2)
    assert isinstance(opened, LightTransport if request.param == "light" else BotocoreTransport)
    yield opened
    opened.close()


def test_bodies_are_sent_unchanged(source, server):
    """Base64 is unchanged, and the response is that of the service."""
    assert source.begin("BatchWriteItem", "rows", PUT).result() == b'{"UnprocessedItems":{}}'
    for operation, body in SINGLE.items():
        assert source.begin(operation, "rows", body).result() == b"{}"
    pages = open_page_source(ClientSpec(endpoint_url=server.endpoint_url, region="eu-west-1"), 1)
    assert b'"b":{"B":"AAE="}' in pages.read("Scan", {"TableName": "rows"}).items
    assert source.endpoint_url == server.endpoint_url


def test_errors_are_those_of_botocore(source):
    """A refusal is a ClientError with the service's code and message."""
    with pytest.raises(ClientError, match="ValidationException") as caught:
        source.begin("PutItem", "rows", b'{"TableName":"rows","Item":{"pk":{"S":""}}}').result()
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_the_clients_own_calls_are_left_alone(server):
    """The hooks affect only requests of the sender: other writes of the same client stay botocore's."""
    spec = ClientSpec(endpoint_url=server.endpoint_url, region="eu-west-1")
    BotocoreTransport(spec, 1)
    answer = spec.client("dynamodb").put_item(TableName="rows", Item={"pk": {"S": "d"}}, ReturnValues="ALL_OLD")
    assert "RawBody" not in answer


@pytest.mark.parametrize("way", ["light", "botocore"])
def test_large_bodies_are_sent_compressed(server, way, monkeypatch):
    """Large bodies arrive with fewer bytes and are stored completely. Small bodies are sent uncompressed."""
    monkeypatch.setenv("DDBIO_TRANSPORT", way)
    source = open_body_sender(ClientSpec(endpoint_url=server.endpoint_url, region="eu-west-1"), 1, compresses=True)
    large = PUT.replace(b"AAE=", b"AAAA" * 10_000)
    assert source.begin("BatchWriteItem", "rows", large).result() == b'{"UnprocessedItems":{}}'
    assert source.begin("PutItem", "rows", SINGLE["PutItem"]).result() == b"{}"
    pages = open_page_source(ClientSpec(endpoint_url=server.endpoint_url, region="eu-west-1"), 1)
    assert b"AAAA" * 10_000 in pages.read("Scan", {"TableName": "rows"}).items
    source.close()


class Answered(Future):
    """Available response."""

    expires_at, link = float("inf"), None

    def fileno(self):
        """Return no descriptor, because nothing waits."""
        return -1


class Picky:
    """Endpoint that refuses compressed bodies in a certain way."""

    endpoint_url = "http://picky"

    def __init__(self, code, status):
        self.code, self.status, self.calls = code, status, []

    def begin(self, operation, table, body, encoding=""):
        """Refuse or answer later."""
        self.calls.append((encoding, len(body)))
        answered = Answered()
        if encoding:
            error = {"Error": {"Code": self.code}, "ResponseMetadata": {"HTTPStatusCode": self.status}}
            answered.set_exception(ClientError(error, operation))
        else:
            answered.set_result(b"{}")
        return answered


def send(source):
    """Send a body that is large enough for compression."""
    return source.begin("BatchWriteItem", "rows", b"x" * 20_000)


def test_an_endpoint_that_finds_no_json_is_asked_once():
    """After the first refusal, the same body and all later ones are sent uncompressed."""
    picky = Picky("SerializationException", 400)
    source = CompressingSender(picky)
    assert [send(source).result() for _ in range(2)] == [b"{}", b"{}"]
    assert [encoding for encoding, _ in picky.calls] == ["gzip", "", ""]
    assert picky.calls[0][1] < 200


def test_requests_in_flight_are_sent_again_uncompressed(caplog):
    """Compressed requests sent before the first refusal are also repeated, with a single warning."""
    picky = Picky("SerializationException", 400)
    source = CompressingSender(picky)
    assert [pending.result() for pending in [send(source) for _ in range(3)]] == [b"{}"] * 3
    assert [encoding for encoding, _ in picky.calls] == ["gzip"] * 3 + [""] * 3
    assert len(caplog.records) == 1


def test_a_service_that_cannot_decompress_gets_plain_bodies_after_some_failures(caplog):
    """The caller repeats each 500 with its pause. After three in a row bodies are sent uncompressed."""
    picky = Picky("InternalServerError", 500)
    source = CompressingSender(picky)
    for _ in range(3):
        with pytest.raises(ClientError, match="InternalServerError"):
            send(source).result()
    assert send(source).result() == b"{}"
    assert [encoding for encoding, _ in picky.calls] == ["gzip", "gzip", "gzip", ""]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("code", "status"), [("InternalServerError", 500), ("ServiceUnavailable", 503), ("ThrottlingException", 400)]
)
def test_a_busy_service_is_no_reason_to_stop_compressing(code, status):
    """Failures between successful compressed requests, and any number of 503 and throttles, have no effect."""
    picky = Picky(code, status)
    source = CompressingSender(picky)
    for _ in range(6):
        with pytest.raises(ClientError, match=code):
            send(source).result()
        if status == 500:
            source.succeeded()
    assert {encoding for encoding, _ in picky.calls} == {"gzip"}


def test_other_refusals_of_compressed_bodies_stay():
    """An error for another reason, such as a bad request, is raised, and compression stays on."""
    picky = Picky("ValidationException", 400)
    source = CompressingSender(picky)
    for _ in range(2):
        with pytest.raises(ClientError, match="ValidationException"):
            source.begin("BatchWriteItem", "rows", b"x" * 20_000).result()
    assert [encoding for encoding, _ in picky.calls] == ["gzip", "gzip"]
