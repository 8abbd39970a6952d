# ruff: noqa: DTZ001 - times without a zone
from __future__ import annotations

import datetime as dt
import io
import re
import uuid
import zlib
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import DecodeError
from ddbio.formats.avro import _decompress
from ddbio.formats.avro_schema import as_stored, unwritable_type
from ddbio.formats.row_files import read_batches
from ddbio.storage.local_store import LocalStore


def logical(kind, meaning, **options):
    """Return a type with a logical type."""
    return {"type": kind, "logicalType": meaning, **options}


def fixed(size, meaning, **options):
    """Return a type of the given number of bytes with a logical type."""
    return logical("fixed", meaning, name="Fixed", size=size, **options)


def lines_of(folder, kind, value):
    """Return a fastavro file with one value as DynamoDB JSON."""
    fields = [{"name": "id", "type": "string"}, {"name": "v", "type": kind}]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with (folder / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": "a", "v": value}])
    store = LocalStore(str(folder))
    (batch,) = read_batches(store, next(iter(store.list())))
    return ddbio.to_dynamodb_json(batch).decode()


UTC = dt.UTC
UUID, UUID_TEXT = uuid.UUID(int=5), '{"S":"00000000-0000-0000-0000-000000000005"}'


def number(value):
    """Return a number in Avro's encoding."""
    coded, out = (value << 1) ^ (value >> 63), bytearray()
    while coded > 0x7F:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes(out) + bytes([coded])


NOTHING = {"type": "record", "name": "nothing", "fields": []}
BOMBS = [
    ([{"name": "a", "type": "null"}], 10**15, b""),
    ([{"name": "a", "type": "null"}], 3_999_999, b""),
    ([], 10**9, b""),
    ([{"name": "a", "type": NOTHING}], 10**9, b""),
    ([{"name": "a", "type": {"type": "fixed", "name": "f", "size": 0}}], 10**9, b""),
    ([{"name": "a", "type": {"type": "array", "items": "null"}}], 1, number(10**9) + b"\0"),
    ([{"name": "a", "type": {"type": "array", "items": NOTHING}}], 1, number(10**9) + b"\0"),
    ([{"name": "a", "type": {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}}], 1, b"\0"),
    ([{"name": "a", "type": ["null", {"type": "array", "items": "null"}]}], 1, b"\2" + number(10**9) + b"\0"),
    ([{"name": "n", "type": NOTHING}, {"name": "a", "type": {"type": "array", "items": "nothing"}}], 1, b"\0"),
    ([{"name": "a", "type": {"type": "map", "values": {"type": "array", "items": "null"}}}], 1, b"\0"),
    ([{"name": "a", "type": {"type": "array", "items": "string"}}], 1, number(10**12) + b"\0"),
    ([{"name": "a", "type": {"type": "map", "values": "null"}}], 1, number(10**12) + b"\0"),
    ([{"name": "a", "type": "bytes"}], 1, number(10**12)),
    ([{"name": "a", "type": {"type": "fixed", "name": "f", "size": 10**12}}], 1, b"x"),
    ([{"name": "a", "type": "string"}], -1, b"\0"),
]


@pytest.mark.parametrize(("fields", "rows", "data"), BOMBS, ids=range(len(BOMBS)))
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_counts_that_no_bytes_explain_are_refused(tmp_path, fields, rows, data, codec):
    """Rows, elements and texts that a block claims are not allocated before its bytes are checked."""
    schema = {"type": "record", "name": "r", "fields": fields}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [], codec=codec, sync_marker=b"S" * 16)
    stored = zlib.compress(data, wbits=-15) if codec == "deflate" else data
    (tmp_path / "x.avro").write_bytes(sink.getvalue() + number(rows) + number(len(stored)) + stored + b"S" * 16)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    with pytest.raises(DecodeError, match=r"x\.avro"):
        list(read_batches(store, entry))


def test_rows_without_bytes_are_read_if_they_are_few(tmp_path):
    """Columns with only nulls are ordinary rows."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "null"}, {"name": "m", "type": {"type": "map", "values": "null"}}],
    }
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"a": None, "m": {"k": None}}] * 1000)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    assert sum(batch.num_rows for batch in read_batches(store, entry)) == 1000


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_blocks_do_not_inflate_beyond_their_size(codec):
    """No codec inflates a block to gigabytes, whether the size is claimed or true."""
    zeros = bytes(200 << 20)
    packed = {
        "deflate": lambda: zlib.compress(zeros, 9, wbits=-15),
        "zstandard": lambda: pa.compress(zeros, codec="zstd", asbytes=True),
        "snappy": lambda: b"\xff\xff\xff\xff\x0f" + b"\0" * 12,
    }[codec]()
    with pytest.raises(DecodeError, match="inflates to more than"):
        _decompress(packed, codec)


@pytest.mark.parametrize(("kind", "value", "expected"), [
    (logical("string", "uuid"), UUID, UUID_TEXT),
    (["null", logical("string", "uuid")], UUID, UUID_TEXT),
    ({"type": "array", "items": logical("string", "uuid")}, [UUID], f'{{"L":[{UUID_TEXT}]}}'),
    ({"type": "map", "values": logical("string", "uuid")}, {"k": UUID}, f'{{"M":{{"k":{UUID_TEXT}}}}}'),
    (logical("string", "uuid"), "no UUID at all", '{"S":"no UUID at all"}'),
    (fixed(16, "uuid"), UUID.bytes, '{"B":"AAAAAAAAAAAAAAAAAAAABQ=="}'),
    (logical("bytes", "decimal", precision=10, scale=2), Decimal("-1.25"), '{"N":"-1.25"}'),
    (fixed(8, "decimal", precision=10, scale=2), Decimal("-1.25"), '{"N":"-1.25"}'),
    (logical("bytes", "decimal", precision=50, scale=2), Decimal("1.25"), '{"N":"1.25"}'),
    (logical("bytes", "decimal", precision=10), Decimal(7), '{"N":"7"}'),
    (logical("int", "date"), dt.date(1, 1, 1), '{"S":"0001-01-01"}'),
    (logical("int", "date"), dt.date(9999, 12, 31), '{"S":"9999-12-31"}'),
    (logical("int", "time-millis"), dt.time(1, 2, 3, 4000), '{"S":"01:02:03.004"}'),
    (logical("long", "time-micros"), dt.time(1, 2, 3, 4), '{"S":"01:02:03.000004"}'),
    (logical("long", "timestamp-millis"), dt.datetime(9999, 12, 31, tzinfo=UTC), '{"S":"9999-12-31T00:00:00.000Z"}'),
    (logical("long", "timestamp-micros"), dt.datetime(1, 1, 1, tzinfo=UTC), '{"S":"0001-01-01T00:00:00.000000Z"}'),
    (logical("long", "timestamp-nanos"), 1, '{"S":"1970-01-01T00:00:00.000000001Z"}'),
    (logical("long", "local-timestamp-millis"), dt.datetime(1, 1, 1), '{"S":"0001-01-01T00:00:00.000"}'),
    (logical("long", "local-timestamp-nanos"), 1, '{"S":"1970-01-01T00:00:00.000000001"}'),
    (logical("string", "timestamp-millis"), "x", '{"S":"x"}'),
    (logical("int", "timestamp-millis"), 5, '{"N":"5"}'),
    (logical("string", "unheard-of"), "x", '{"S":"x"}'),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", '{"S":"B"}'),
])  # fmt: skip
def test_logical_types_become_attributes(tmp_path, kind, value, expected):
    """A logical type on another stored type than Avro specifies is ignored."""
    assert lines_of(tmp_path, kind, value) == f'{{"id":{{"S":"a"}},"v":{expected}}}\n'


@pytest.mark.parametrize(("kind", "value", "message"), [
    (fixed(12, "duration"), bytes(12), "DynamoDB has no type for Avro's duration: write it as a string or a number"),
    (logical("bytes", "big-decimal"), b"1", "DynamoDB has no type for Avro's big-decimal"),
    (["null", "int", "string"], 5, "a value of it may have several types: make a file with one type for each column"),
    ({"type": "record", "name": "n", "fields": [{"name": "m", "type": ["null", "n"]}]}, {"m": None}, "contains itself"),
])  # fmt: skip
def test_types_without_an_equivalent_are_refused(tmp_path, kind, value, message):
    """The error has an advice."""
    with pytest.raises(DecodeError, match=re.escape(message)):
        lines_of(tmp_path, kind, value)


@pytest.mark.parametrize(("kind", "lost"), [
    (logical("string", "uuid"), "string uuid"),
    (["null", {"type": "array", "items": logical("int", "time-millis")}], "int time-millis"),
    ({"type": "map", "values": {"type": "enum", "name": "E", "symbols": []}}, "enum E"),
    ({"type": "record", "name": "r", "fields": [{"name": "f", "type": fixed(4, "decimal")}]}, "fixed decimal"),
    (logical("long", "timestamp-nanos"), "long timestamp-nanos"),
    (logical("long", "timestamp-micros"), ""),
    (logical("bytes", "decimal", precision=4), ""),
    (["null", "string"], ""),
])  # fmt: skip
def test_types_that_are_not_written_again(kind, lost):
    """A compaction does not rewrite files with such a type."""
    described = {"type": "record", "name": "rows", "fields": [{"name": "v", "type": kind}]}
    assert unwritable_type(described) == lost
    assert ("decimal" in str(kind)) == ("logicalType" in str(as_stored(described)))
