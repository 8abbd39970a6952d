"""Compressed responses, requested by an option of the verbs."""

from __future__ import annotations

import json

import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.options import parse_options
from ddbio.scan.options import ScanOptions
from ddbio.testing import FakeDynamoDB
from tests.aws.scripted import ScriptedServer, answer

TABLE = {
    "TableName": "table",
    "TableArn": "arn:aws:dynamodb:eu-west-1:123456789012:table/table",
    "TableStatus": "ACTIVE",
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    "ItemCount": 1,
    "TableSizeBytes": 10,
}


@pytest.mark.parametrize("wire", ["light", "botocore"])
@pytest.mark.parametrize(("asked", "header"), [({}, "identity"), ({"accept_encoding": "gzip"}, "gzip")])
def test_sample_and_scan_request_the_encoding(wire, asked, header, monkeypatch):
    """Every page is requested with the encoding of the option, by default uncompressed."""
    monkeypatch.setenv("DDBIO_TRANSPORT", wire)
    with ScriptedServer(answer(json.dumps({"Table": TABLE}).encode())) as server:
        assert ddbio.read_table("table", endpoint_url=server.url, **asked)["id"].to_pylist() == ["a"]
    pages = [request for request in server.requests if request.headers["x-amz-target"].endswith(".Scan")]
    assert [page.headers["accept-encoding"] for page in pages] == [header, header]


@pytest.mark.parametrize("wire", ["light", "botocore"])
def test_a_compressed_scan_brings_the_same_rows(wire, monkeypatch):
    """A table of many pages is read identically with each encoding."""
    monkeypatch.setenv("DDBIO_TRANSPORT", wire)
    items = [json.dumps({"id": {"S": f"{number:03}"}, "text": {"S": "x" * 5_000}}).encode() for number in range(700)]
    with FakeDynamoDB() as fake:
        fake.load("table", items, "id:S")
        plain, packed = (
            ddbio.read_table("table", endpoint_url=fake.endpoint_url, accept_encoding=encoding).sort_by("id")
            for encoding in ("identity", "gzip")
        )
    assert plain.num_rows == 700
    assert packed.equals(plain)


def test_the_option_has_all_its_spellings():
    """Spark's option has the same effect; another encoding is refused."""
    assert parse_options(ScanOptions, {"table": "t", "acceptencoding": "gzip"}).accept_encoding == "gzip"
    with pytest.raises(OptionError, match=r"accept_encoding.*deflate"):
        parse_options(ScanOptions, {"table": "t", "accept_encoding": "deflate"})
