"""Compressed answers, asked for by an option of the verbs."""

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
def test_sample_and_scan_ask_as_told(wire, asked, header, monkeypatch):
    """Every page is asked for as the option says, by default uncompressed."""
    monkeypatch.setenv("DDBIO_TRANSPORT", wire)
    with ScriptedServer(answer(json.dumps({"Table": TABLE}).encode())) as server:
        assert ddbio.read_table("table", endpoint_url=server.url, **asked)["id"].to_pylist() == ["a"]
    pages = [each for each in server.requests if each.headers["x-amz-target"].endswith(".Scan")]
    assert [each.headers["accept-encoding"] for each in pages] == [header, header]


@pytest.mark.parametrize("wire", ["light", "botocore"])
def test_a_compressed_scan_brings_the_same_rows(wire, monkeypatch):
    """A table of many pages is the same table, however it came over the wire."""
    monkeypatch.setenv("DDBIO_TRANSPORT", wire)
    items = [json.dumps({"id": {"S": f"{number:03}"}, "text": {"S": "x" * 5_000}}).encode() for number in range(700)]
    with FakeDynamoDB() as fake:
        fake.load("table", items, "id:S")
        plain, packed = (
            ddbio.read_table("table", endpoint_url=fake.endpoint_url, accept_encoding=each).sort_by("id")
            for each in ("identity", "gzip")
        )
    assert plain.num_rows == 700
    assert packed.equals(plain)


def test_the_option_has_all_its_spellings():
    """Spark's option means the same; another encoding is refused."""
    assert parse_options(ScanOptions, {"table": "t", "acceptencoding": "gzip"}).accept_encoding == "gzip"
    with pytest.raises(OptionError, match=r"accept_encoding.*deflate"):
        parse_options(ScanOptions, {"table": "t", "accept_encoding": "deflate"})
