"""Compressed answers."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from ddbio.aws.client import ClientSpec
from ddbio.aws.compression import gunzip
from ddbio.aws.failure import is_transient
from ddbio.aws.wire import open_pages
from tests.aws.scripted import PAGE, ScriptedServer, answer

SCAN = {"TableName": "table", "Segment": 0, "TotalSegments": 1}
PACKED = gzip.compress(PAGE)


@pytest.fixture
def asking(monkeypatch):
    """Return a function that opens a source that asks for compressed answers."""
    for name, value in {"ACCESS_KEY_ID": "testing", "SECRET_ACCESS_KEY": "testing"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return lambda server: open_pages(ClientSpec(server.url, "eu-west-1"), 1, accept_encoding="gzip")


def test_a_compressed_page_is_the_page(asking):
    """An answer in gzip, its checksum taken of what was sent, gives the page; a plain one is read as well."""
    step = answer(PACKED, headers={"Content-Encoding": "gzip"})
    with ScriptedServer(step) as server:
        source = asking(server)
        assert source.scan(SCAN).items == source.scan(SCAN).items
        source.close()
    assert {request.headers["accept-encoding"] for request in server.requests} == {"gzip"}


def test_a_checksum_of_the_plain_bytes_is_wrong(asking):
    """The checksum covers the compressed bytes: one of the content is a broken answer."""
    step = answer(PACKED, headers={"Content-Encoding": "gzip", "x-amz-crc32": str(zlib.crc32(PAGE))})
    with ScriptedServer(step) as server, pytest.raises(HTTPClientError, match="crc32"):
        asking(server).scan(SCAN)


def test_a_compressed_refusal_is_a_refusal(asking):
    """Errors of the service may be compressed too."""
    body = json.dumps({"__type": "x#ResourceNotFoundException", "message": "no"}).encode()
    step = answer(gzip.compress(body), status=400, headers={"Content-Encoding": "gzip"})
    with ScriptedServer(step) as server, pytest.raises(ClientError, match="ResourceNotFoundException"):
        asking(server).scan(SCAN)


@pytest.mark.parametrize("body", [b"", PACKED[:-1], PACKED + b"x", b"x" + PACKED, PAGE])
def test_broken_compression_is_transient(body):
    """What cannot be decompressed whole is an error that another try may mend."""
    with pytest.raises(HTTPClientError) as caught:
        gunzip(body)
    assert is_transient(caught.value)
