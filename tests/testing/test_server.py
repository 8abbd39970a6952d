from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from ddbio.testing.server import HttpReply, Server, reply_coding

AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
)
HEADERS = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Authorization": AUTHORIZATION}


def send(fake, body=b"{}", path="/", method="POST", **headers):
    """Send one request and return status, headers and body."""
    connection = HTTPConnection(urlsplit(fake.endpoint_url).netloc)
    try:
        sent = {name.replace("_", "-"): value for name, value in (HEADERS | headers).items() if value is not None}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def talk(fake, text):
    """Send raw bytes and return the reply until the server closes the connection."""
    address = urlsplit(fake.endpoint_url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(text)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


def kind(body):
    """Return the error code of a reply."""
    return json.loads(body)["__type"].partition("#")[2]


def test_reply_has_the_headers_of_the_service(fake):
    """Type, checksum, date, server and request id are on every reply, including errors."""
    for body in (b"{}", b"broken"):
        _, headers, reply = send(fake, body)
        assert headers["Content-Type"] == "application/x-amz-json-1.0"
        assert headers["x-amz-crc32"] == str(zlib.crc32(reply))
        assert headers["Content-Length"] == str(len(reply))
        assert all(headers[name] for name in ("Date", "Server", "x-amzn-RequestId"))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"Authorization": None}, "MissingAuthenticationTokenException"),
        ({"Authorization": "Basic x"}, "InvalidSignatureException"),
        ({"path": "/extra"}, "InvalidSignatureException"),
        ({"X-Amz-Target": "DynamoDB_20120810.DescribeLimits"}, "UnknownOperationException"),
        ({"X-Amz-Target": "Other_20120810.ListTables"}, "UnknownOperationException"),
        ({"X-Amz-Target": None}, "UnknownOperationException"),
        ({"body": b""}, "SerializationException"),
        ({"body": b"[]"}, "SerializationException"),
        ({"body": b'{"Limit": NaN}'}, "SerializationException"),
        ({"body": b'{"Limit": "1"}'}, "SerializationException"),
        ({"body": b"\xff"}, "SerializationException"),
        ({"body": b"[" * 100_000}, "SerializationException"),
        ({"body": b'{"Limit": 0}'}, "ValidationException"),
    ],
    ids=str,
)
def test_wrong_requests_have_their_errors(fake, changed, expected):
    """Every wrong request gets a client error of DynamoDB."""
    status, _, body = send(fake, **changed)
    assert (status, kind(body)) == (400, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"N": 3}, "SerializationException"),
        ({"S": 3}, "SerializationException"),
        ({"B": "YQ"}, "SerializationException"),
        ({"B": "Y\u00e9=="}, "SerializationException"),
        ({"SS": "a"}, "SerializationException"),
        ({"BOOL": "true"}, "SerializationException"),
        ("text", "SerializationException"),
        ({"S": "\ud800"}, "SerializationException"),
        ({"X": "1"}, "ValidationException"),
        ({"NULL": False}, "ValidationException"),
    ],
    ids=ascii,
)
def test_values_of_wrong_json_type_are_serialization_errors(fake, value, expected):
    """A wrong JSON type has a different error than a wrong value, and nothing is stored."""
    fake.load("tab", [], "pk")
    item = json.dumps({"TableName": "tab", "Item": {"pk": {"S": "a"}, "a": value}}).encode()
    status, _, body = send(fake, item, X_Amz_Target="DynamoDB_20120810.PutItem")
    scanned = json.loads(send(fake, b'{"TableName":"tab"}', X_Amz_Target="DynamoDB_20120810.Scan")[2])
    assert (status, kind(body), scanned["Count"]) == (400, expected, 0)


def test_connection_carries_many_requests(fake):
    """Pipelined requests on one connection are answered in order, until one has Connection: close."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    request = f"POST / HTTP/1.1\r\n{lines}Content-Length: 2\r\n%s\r\n{{}}"
    answer = talk(fake, (request % "" * 2 + request % "Connection: close\r\n").encode())
    assert answer.count(b'{"TableNames":[]}') == answer.count(b"HTTP/1.1 200 OK") == 3


def test_body_may_come_in_chunks(fake):
    """A chunked upload is read like any other."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST / HTTP/1.1\r\n{lines}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b'{"TableNames":[]}' in talk(fake, head.encode() + b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /" + b"x" * 17_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["line", "header", "long", "length"],
)
def test_broken_http_is_a_bad_request(fake, text):
    """A malformed request, or one with a too long head, is answered by 400, and the connection is closed."""
    assert talk(fake, text).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_bodies_are_bounded(fake):
    """More than 16 MiB is HTTP 413."""
    assert send(fake, b" " * (16 << 20) + b"{}")[0] == 413


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None),
        ("identity", None),
        ("br, zstd", None),
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("deflate;q=0.5, gzip", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=-1", None),
        ("*", "gzip"),
        ("*, gzip;q=0.5", "deflate"),
        ("deflate, *", "deflate"),
        ("gzip;q=7, deflate;q=1", "gzip"),
        ("gzip;q=x, deflate;q=0.9", "gzip"),
        ("gzip;q=0.1, deflate;q=0.5, gzip;q=1", "deflate"),
    ],
)
def test_coding_follows_the_weights(accepted, coding):
    """The highest weight wins, then the first in the list. A star stands for the codings that are not named."""
    assert reply_coding(accepted) == coding


def test_large_replies_are_compressed_on_request(fake):
    """The checksum covers the compressed bytes. Small replies stay uncompressed."""
    fake.load("tab", [{"pk": {"S": "a"}, "x": {"S": "x" * 5000}}], "pk")
    scan = {"X_Amz_Target": "DynamoDB_20120810.Scan", "Accept_Encoding": "gzip"}
    _, headers, body = send(fake, b'{"TableName":"tab"}', **scan)
    assert headers["Content-Encoding"] == "gzip"
    assert headers["x-amz-crc32"] == str(zlib.crc32(body))
    assert json.loads(gzip.decompress(body))["Count"] == 1
    assert send(fake, b'{"TableName":"tab","Select":"COUNT"}', **scan)[1]["Content-Encoding"] is None


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("gzip", gzip.compress(b"{") + gzip.compress(b"}"), 200),
        ("gzip", gzip.compress(b"{}") + b"junk", 200),
        ("deflate", zlib.compress(b"{}"), 200),
        ("br", b"{}", 500),
        ("gzip", b"{}", 500),
        ("gzip", b"", 500),
        ("gzip", gzip.compress(b"{}")[:-4], 500),
        ("deflate", zlib.compress(b"{}")[:-2], 500),
        ("gzip", gzip.compress(b" " * (17 << 20)), 500),
    ],
    ids=["members", "junk", "deflate", "unknown", "plain", "empty", "truncated", "short", "bomb"],
)
def test_requests_may_be_compressed(fake, coding, body, status):
    """Gzip of several members, junk after it, and one deflate stream are read.

    The service answers 500 to a stream that it cannot read, although no retry helps.
    """
    assert send(fake, body, Content_Encoding=coding)[0] == status


def test_slow_reply_blocks_no_other_connection():
    """While one request waits, another connection is answered."""
    released = threading.Event()

    def answer(request):
        if request.target == "/slow":
            released.wait()
        released.set()
        return HttpReply(200, [b"done"])

    server = Server(answer)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        with socket.create_connection(("127.0.0.1", server.port)) as fast:
            fast.sendall(b"GET /fast HTTP/1.1\r\n\r\n")
            assert fast.recv(65536).endswith(b"done")
        assert slow.recv(65536).endswith(b"done")
    server.stop()


def test_fault_of_the_fake_is_a_server_error(caplog):
    """An exception while answering is logged and becomes HTTP 500, and the connection stays open."""

    def answer(request):
        if request.target == "/fault":
            raise RuntimeError("a fault of the test")
        return HttpReply(200, [b"fine"])

    server = Server(answer)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /fault HTTP/1.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 500")
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(65536).endswith(b"fine")
    server.stop()
    assert "a fault of the test" in caplog.text


def test_health_is_plain_text(fake):
    """A GET without a path is answered by a health text."""
    assert send(fake, None, method="GET")[2].startswith(b"healthy: dynamodb")
    assert send(fake, None, path="/_ddbio/absent", method="GET")[0] == 404
