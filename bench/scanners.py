"""Scans of the same table over HTTP by several libraries, one function each, and checks of their results."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
from boto3.dynamodb.types import TypeDeserializer

import ddbio
from bench import data
from bench.decoders import is_same_item, schema_of
from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import BotocoreTransport, LightTransport
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.serving import Table
    from ddbio.aws.transport import PageSource

    Scanner = Callable[[Table], Iterator[Any]]

DDBIO = "ddbio.scan_batches"
PACKED = "ddbio.scan_batches, gzip"
READ_TABLE = "ddbio.read_table"
RAW = "raw pages, botocore"
RAW_LIGHT = "raw pages, light wire"
CLIENT = "boto3 client.scan"
RESOURCE = "boto3 resource table.scan"
AWSWRANGLER = "awswrangler read_items"

# Methods that return Python objects take 100 times as long as the check is worth: a part of their items is enough.
_COMPARED = 1_000


def scan_batches(table: Table) -> Iterator[pa.RecordBatch]:
    """Yield typed columns with a given schema."""
    return ddbio.scan_batches(table.name, endpoint_url=table.endpoint_url, schema=schema_of(table.shape))


def scan_packed(table: Table) -> Iterator[pa.RecordBatch]:
    """Yield typed columns of compressed pages."""
    schema = schema_of(table.shape)
    return ddbio.scan_batches(table.name, endpoint_url=table.endpoint_url, schema=schema, accept_encoding="gzip")


def read_table(table: Table) -> Iterator[pa.Table]:
    """Yield the entire table as typed columns, with a schema inferred from a sample."""
    yield ddbio.read_table(table.name, endpoint_url=table.endpoint_url)


def raw_pages(table: Table) -> Iterator[bytes]:
    """Yield the items of each page as received through botocore: the floor of a scan with botocore."""
    return _raw(BotocoreTransport(ClientSpec(endpoint_url=table.endpoint_url), lanes=1), table)


def light_pages(table: Table) -> Iterator[bytes]:
    """Yield the items of each page as received by the light transport: the floor of a scan with it."""
    spec = ClientSpec(endpoint_url=table.endpoint_url)
    return _raw(LightTransport(spec.client("dynamodb"), spec), table)


def client_pages(table: Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the tagged values of each page of boto3's client."""
    client = boto3.client("dynamodb", endpoint_url=table.endpoint_url)
    for page in client.get_paginator("scan").paginate(TableName=table.name):
        yield page["Items"]


def resource_pages(table: Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the Python values of each page of boto3's resource."""
    resource = boto3.resource("dynamodb", endpoint_url=table.endpoint_url).Table(table.name)
    answer = resource.scan()
    yield answer["Items"]
    while "LastEvaluatedKey" in answer:
        answer = resource.scan(ExclusiveStartKey=answer["LastEvaluatedKey"])
        yield answer["Items"]


def awswrangler_frame(table: Table) -> Iterator[Any]:
    """Yield the data frame of awswrangler."""
    import awswrangler  # noqa: PLC0415 - its import takes seconds

    awswrangler.config.dynamodb_endpoint_url = table.endpoint_url
    with warnings.catch_warnings():
        # The argument confirms the scan of the entire table.
        warnings.simplefilter("ignore", UserWarning)
        frame = awswrangler.dynamodb.read_items(table.name, allow_full_scan=True)
    yield frame


SCANNERS: dict[str, Scanner] = {
    DDBIO: scan_batches,
    PACKED: scan_packed,
    READ_TABLE: read_table,
    RAW: raw_pages,
    RAW_LIGHT: light_pages,
    CLIENT: client_pages,
    RESOURCE: resource_pages,
    AWSWRANGLER: awswrangler_frame,
}


def drain(name: str, table: Table) -> int:
    """Run a scan to its end, piece by piece, and return the total length of the pieces."""
    return sum(len(piece) for piece in SCANNERS[name](table))


def check(name: str, table: Table) -> None:
    """Raise if a scan does not return every item with the right values."""
    pieces = list(SCANNERS[name](table))
    wanted = data.items(table.shape, table.count)
    if name in {RAW, RAW_LIGHT}:
        assert sum(map(len, pieces)) >= table.line_bytes
        return
    assert sum(map(len, pieces)) == table.count
    if name in {DDBIO, PACKED, READ_TABLE}:
        parts = pieces if name == READ_TABLE else [pa.Table.from_batches(pieces)]
        reference = RowBuilder(schema_of(table.shape), keep_nulls=False).batch(wanted, MisfitLog())
        assert _sorted(parts[0], table).equals(_sorted(pa.Table.from_batches([reference]), table))
        return
    by_key = {_key({at: value["S"] for at, value in item.items() if "S" in value}, table): item for item in wanted}
    for row in _first_rows(name, pieces):
        assert is_same_item(row, by_key[_key(row, table)])


def _first_rows(name: str, pieces: list[Any]) -> list[dict[str, Any]]:
    first: Any = pieces[0][:_COMPARED]
    if name == AWSWRANGLER:
        return list(first.to_dict("records"))
    if name == CLIENT:
        deserialize = TypeDeserializer().deserialize
        return [{at: deserialize(value) for at, value in item.items()} for item in first]
    return list(first)


def _key(row: Mapping[str, Any], table: Table) -> tuple[str, ...]:
    return tuple(row[name] for name in table.key_names)


def _sorted(rows: pa.Table, table: Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in table.key_names]).combine_chunks()


def _raw(source: PageSource, table: Table) -> Iterator[bytes]:
    parameters: dict[str, Any] = {"TableName": table.name, "ReturnConsumedCapacity": "TOTAL"}
    while True:
        page = source.read("Scan", parameters)
        yield page.items
        if page.last_evaluated_key is None:
            return
        parameters["ExclusiveStartKey"] = page.last_evaluated_key
