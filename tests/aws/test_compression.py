"""Compressed responses."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from ddbio.aws.client import ClientSpec
from ddbio.aws.connection_pool import gunzip
from ddbio.aws.error_codes import is_transient
from ddbio.aws.transport import open_page_source
from tests.aws.scripted import PAGE, ScriptedServer, answer, opened

SCAN = {"TableName": "table", "Segment": 0, "TotalSegments": 1}
# Without a time, so that the names of tests are the same in every process.
PACKED = gzip.compress(PAGE, mtime=0)


@pytest.fixture(params=["light", "botocore"])
def asking(request, monkeypatch):
    """Return a function that opens a source of either kind that requests compressed responses."""
    return lambda server: opened(monkeypatch, request.param, server.url, accept_encoding="gzip")


def test_a_compressed_page_is_the_page(asking):
    """A gzip response, whose checksum covers the sent bytes, returns the page. An uncompressed one does too."""
    step = answer(PACKED, headers={"Content-Encoding": "gzip"})
    with ScriptedServer(step) as server, asking(server) as source:
        assert source.read("Scan", SCAN).items == source.read("Scan", SCAN).items
        assert source.read("Scan", SCAN).count == 1
    assert {request.headers["accept-encoding"] for request in server.requests} == {"gzip"}
    assert all(request.is_signed_by("testing") for request in server.requests)


def test_each_source_has_its_own_encoding(asking):
    """Sources of the same client do not mix up their accepted encodings."""
    with ScriptedServer() as server, asking(server) as source:
        plain = open_page_source(ClientSpec(endpoint_url=server.url), 1)
        for reader in (source, plain, source):
            reader.read("Scan", SCAN)
        plain.close()
    assert [request.headers["accept-encoding"] for request in server.requests] == ["gzip", "identity", "gzip"]


def test_a_checksum_of_the_plain_bytes_is_wrong(asking):
    """The checksum covers the compressed bytes: one of the content is a broken response."""
    step = answer(PACKED, headers={"Content-Encoding": "gzip", "x-amz-crc32": str(zlib.crc32(PAGE))})
    with ScriptedServer(step) as server, asking(server) as source, pytest.raises(HTTPClientError, match="crc32"):
        source.read("Scan", SCAN)


def test_a_compressed_refusal_is_a_refusal(asking):
    """Errors of the service may also be compressed."""
    body = json.dumps({"__type": "x#ResourceNotFoundException", "message": "no"}).encode()
    step = answer(gzip.compress(body), status=400, headers={"Content-Encoding": "gzip"})
    with ScriptedServer(step) as server, asking(server) as source, pytest.raises(ClientError, match="NotFound"):
        source.read("Scan", SCAN)


@pytest.mark.parametrize("body", [b"", PACKED[:-1], PACKED + b"x", b"x" + PACKED, PAGE])
def test_broken_compression_is_transient(body):
    """A body that cannot be decompressed completely is a transient error."""
    with pytest.raises(HTTPClientError) as caught:
        gunzip(body)
    assert is_transient(caught.value)
