"""Decoders of several libraries for the same bytes, one function each, and checks of their results."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.json as pj
from boto3.dynamodb.types import Binary, TypeDeserializer

import ddbio
from bench import data
from bench.pyarrow_json.tagged import tagged_struct, untag
from ddbio.items.decode import Decoder
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Framing = Literal["export", "page"]

DDBIO = "ddbio"
PYARROW = "pyarrow.json"
LOADS = "json.loads"
BOTO3 = "json.loads + TypeDeserializer"
ORJSON = "orjson.loads"

# Number of compared items at each end, if a comparison of all items would take longer than the benchmark.
_COMPARED = 200


def body_of(shape: data.Shape, framing: Framing) -> bytes:
    """Return about 9 MB of export lines, or one page."""
    if framing == "page":
        return data.page(shape, data.page_count(shape))
    return data.export_lines(shape, data.scaled(20_000))


@functools.lru_cache(maxsize=8)
def schema_of(shape: data.Shape) -> pa.Schema:
    """Return the typed schema of a sample of the shape."""
    return ddbio.infer_schema(data.export_lines(shape, 2_000)).to_arrow()


def decoders(shape: data.Shape, framing: Framing) -> dict[str, Callable[[bytes], Any]]:
    """Return all methods from bytes to rows."""
    decoder = Decoder(schema_of(shape))
    ways: dict[str, Callable[[bytes], Any]] = {
        DDBIO: lambda body: decoder.decode(body, framing),
        PYARROW: functools.partial(_parse, parse_options(shape, framing)),
        LOADS: functools.partial(_load, json.loads, framing),
        BOTO3: functools.partial(_deserialize, framing),
    }
    if importlib.util.find_spec("orjson"):
        ways[ORJSON] = functools.partial(_load, importlib.import_module("orjson").loads, framing)
    return ways


def line_loaders() -> dict[str, Callable[[bytes], Any]]:
    """Return the functions that parse bare lines into Python objects; orjson if it is installed."""
    ways: dict[str, Callable[[bytes], Any]] = {LOADS: lambda body: list(map(json.loads, body.splitlines()))}
    if importlib.util.find_spec("orjson"):
        loads = importlib.import_module("orjson").loads
        ways[ORJSON] = lambda body: list(map(loads, body.splitlines()))
    deserialize = Deserializer().deserialize
    ways[BOTO3] = lambda body: [
        {name: deserialize(value) for name, value in json.loads(line).items()} for line in body.splitlines()
    ]
    return ways


def check(shape: data.Shape, framing: Framing) -> None:
    """Raise if a decoder does not return every item with every value right."""
    body = body_of(shape, framing)
    wanted = [json.loads(line) for line in data.lines(shape, _count(body, framing))]
    reference = RowBuilder(schema_of(shape), keep_nulls=False).batch(wanted, MisfitLog())
    results = {name: way(body) for name, way in decoders(shape, framing).items()}
    assert results.pop(DDBIO).equals(reference)
    assert _untagged(results.pop(PYARROW), shape, framing).equals(reference.drop_columns(["_rescue"]))
    typed = results.pop(BOTO3)
    assert len(typed) == len(wanted)
    for index in (*range(_COMPARED), *range(-_COMPARED, 0)):
        if abs(index) < len(wanted):
            assert is_same_item(typed[index], wanted[index])
    assert all(result == wanted for result in results.values())


def parse_options(shape: data.Shape, framing: Framing) -> pj.ParseOptions:
    """Return the explicit tagged schema that a user would write manually for this data, with NULL where it occurs."""
    schema = schema_of(shape)
    fields = [schema.field(index) for index in range(len(schema) - 1)]
    tagged = tagged_struct(fields, "", frozenset({".note"}))
    assert tagged is not None
    top = pa.field("Item", tagged) if framing == "export" else pa.field("Items", pa.list_(tagged))
    return pj.ParseOptions(explicit_schema=pa.schema([top]), unexpected_field_behavior="error")


def is_same(value: Any, wire: dict[str, Any]) -> bool:
    """Return whether a Python value of any library equals the DynamoDB value."""
    ((tag, content),) = wire.items()
    match tag:
        case "NULL":
            return is_missing(value)
        case "N":
            return Decimal(str(value)) == Decimal(content)
        case "B":
            return bytes(value) == base64.b64decode(content)
        case "SS":
            content = set(content)
            value = set(value)
        case "L":
            return len(value) == len(content) and all(map(is_same, value, content))
        case "M":
            return is_same_item(value, content)
    return bool(value == content)


def is_same_item(values: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Return whether the item has exactly the same attributes."""
    others_missing = all(is_missing(value) for name, value in values.items() if name not in item)
    return others_missing and all(is_same(values[name], wire) for name, wire in item.items())


def is_missing(value: Any) -> bool:
    """Return whether a value is None or a data frame's NaN: no number of DynamoDB is NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def parse_typed(body: bytes, shape: data.Shape) -> pa.RecordBatch:
    """Return export lines as typed columns, with ``pyarrow.json`` and casts only."""
    return _untagged(_parse(parse_options(shape, "export"), body), shape, "export")


def _count(body: bytes, framing: Framing) -> int:
    return body.count(b"\n") if framing == "export" else len(json.loads(body)["Items"])


def _parse(options: pj.ParseOptions, body: bytes) -> pa.Table:
    # A page is one row and needs one block; lines are as fast in one block as in several.
    read = pj.ReadOptions(use_threads=False, block_size=len(body) + 1)
    source: Any = pa.BufferReader(body)
    return pj.read_json(source, read_options=read, parse_options=options)


def _load(loads: Callable[[bytes], Any], framing: Framing, body: bytes) -> list[dict[str, Any]]:
    if framing == "page":
        items: list[dict[str, Any]] = loads(body)["Items"]
        return items
    return [loads(line)["Item"] for line in body.splitlines()]


class Deserializer(TypeDeserializer):
    """Deserializer of base64, which botocore's parser would have decoded before."""

    def _deserialize_b(self, value: str) -> Binary:
        return Binary(base64.b64decode(value))


def _deserialize(framing: Framing, body: bytes) -> list[dict[str, Any]]:
    deserialize = Deserializer().deserialize
    items = _load(json.loads, framing, body)
    return [{name: deserialize(value) for name, value in item.items()} for item in items]


def _untagged(table: pa.Table, shape: data.Shape, framing: Framing) -> pa.RecordBatch:
    (column,) = table.combine_chunks().columns
    content: Any = column.combine_chunks()
    structs = content.values if framing == "page" else content
    fields = list(schema_of(shape))[:-1]
    arrays = [untag(structs.field(index), field, keep_nulls=False) for index, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
