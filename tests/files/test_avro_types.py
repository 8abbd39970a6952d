# ruff: noqa: DTZ001 - times without a zone
from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal

import fastavro
import pytest

import ddbio
from ddbio.errors import DecodeError
from ddbio.files.avro_schema import as_stored, unwritable_type
from ddbio.files.local_store import LocalStore
from ddbio.files.row_files import read_batches


def logical(kind, meaning, **options):
    """Return a type with a logical type."""
    return {"type": kind, "logicalType": meaning, **options}


def fixed(size, meaning, **options):
    """Return a type of so many bytes with a logical type."""
    return logical("fixed", meaning, name="Fixed", size=size, **options)


def lines_of(folder, kind, value):
    """Return the DynamoDB JSON of a file of fastavro with one value."""
    fields = [{"name": "id", "type": "string"}, {"name": "v", "type": kind}]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with (folder / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": "a", "v": value}])
    store = LocalStore(str(folder))
    (batch,) = read_batches(store, next(iter(store.list())))
    return ddbio.to_dynamodb_json(batch).decode()


UTC = dt.UTC
UUID, UUID_TEXT = uuid.UUID(int=5), '{"S":"00000000-0000-0000-0000-000000000005"}'


@pytest.mark.parametrize(("kind", "value", "wanted"), [
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
def test_logical_types_become_attributes(tmp_path, kind, value, wanted):
    """A logical type of another stored type than Avro says is ignored, as Avro says."""
    assert lines_of(tmp_path, kind, value) == f'{{"id":{{"S":"a"}},"v":{wanted}}}\n'


@pytest.mark.parametrize(("kind", "value", "message"), [
    (fixed(12, "duration"), bytes(12), "DynamoDB has no type for Avro's duration: write it as a string or a number"),
    (logical("bytes", "big-decimal"), b"1", "DynamoDB has no type for Avro's big-decimal"),
    (["null", "int", "string"], 5, "a value of it may have several types: make a file with one type for each column"),
    ({"type": "record", "name": "n", "fields": [{"name": "m", "type": ["null", "n"]}]}, {"m": None}, "contains itself"),
])  # fmt: skip
def test_types_without_a_form_are_refused(tmp_path, kind, value, message):
    """The error says what to do."""
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
    """A compaction leaves files alone that have one."""
    described = {"type": "record", "name": "rows", "fields": [{"name": "v", "type": kind}]}
    assert unwritable_type(described) == lost
    assert ("decimal" in str(kind)) == ("logicalType" in str(as_stored(described)))
