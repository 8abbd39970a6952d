"""Answer ImportTable, DescribeImport and ListImports from objects in the stand-in of S3; refuses local indexes.

An object is read up to its first line that cannot become an item: that line and the rest of the object are one error.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.ion.plain import ion_to_json_lines
from ddbio.testing.refusal import Refusal, in_use, invalid, lacking, malformed, service_refusal
from ddbio.testing.request import Request
from ddbio.testing.tables.definition import define_table
from ddbio.testing.tables.shelf import Stored
from ddbio.testing.values import stored_item, to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.delivery import Delivery
    from ddbio.testing.tables.table import Table

_ECHOED = ("S3BucketSource", "InputFormat", "InputFormatOptions", "TableCreationParameters")
_LISTED = ("ImportArn", "ImportStatus", "TableArn", "S3BucketSource", "CloudWatchLogGroupArn", "InputFormat")
_LOG_GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:/aws-dynamodb/imports:*"
_MAX_LISTED = 25


def import_table(database: Database, request: Request) -> dict[str, Any]:
    """Make a table from the objects below a prefix."""
    if database.delivery is None:
        raise lacking("ImportTable without export_to")
    token = request.required("ClientToken")
    source, table = _source(request), _table(database, request)
    imports = database.imports
    for each in imports.running():
        if each["ClientToken"] == token:
            if each["TableArn"] != table.arn:
                raise service_refusal("ImportConflictException", "Duplicate request detected")
            return {"ImportTableDescription": each}
    if table.name in database.tables or any(each["TableArn"] == table.arn for each in imports.running()):
        raise in_use(f"Table already exists: {table.name}")
    now = database.wall.now()
    digest = hashlib.blake2b(str(time.monotonic_ns()).encode(), digest_size=4).hexdigest()
    description = {
        "ImportArn": f"{table.arn}/import/{int(now * 1000):014d}-{digest}",
        "TableArn": table.arn,
        "TableId": table.description["TableId"],
        "ClientToken": token,
        "CloudWatchLogGroupArn": _LOG_GROUP,
        "InputCompressionType": request.text("InputCompressionType", ("GZIP", "ZSTD", "NONE")) or "NONE",
        "StartTime": round(now, 3),
        **dict.fromkeys(("ErrorCount", "ProcessedItemCount", "ImportedItemCount"), 0),
        **{name: request.members[name] for name in _ECHOED if name in request.members},
    }
    delivery = database.delivery
    run = _Run(table, description, _items_of(request, table))
    return {
        "ImportTableDescription": imports.begin(description, lambda: run.end(database, delivery, *source)),
    }


def describe_import(database: Database, request: Request) -> dict[str, Any]:
    """Describe one import; it counts nothing before its end."""
    request.required("ImportArn")
    arn = request.text("ImportArn") or ""
    if "/import/" not in arn:
        raise invalid("Invalid Import ARN")
    description = database.imports.described(arn)
    if description is None:
        raise service_refusal("ImportNotFoundException", f"Import not found: {arn}")
    return {"ImportTableDescription": description}


def list_imports(database: Database, request: Request) -> dict[str, Any]:
    """List imports, the newest first, without their counts."""
    arn = request.text("TableArn")
    limit = request.integer("PageSize", 1, _MAX_LISTED) or _MAX_LISTED
    shown, more = database.imports.page(limit, request.text("NextToken"), lambda each: arn in (None, each["TableArn"]))
    names = (*_LISTED, "StartTime", "EndTime")
    return {"ImportSummaryList": [{name: each[name] for name in names if name in each} for each in shown], **more}


class _Run:
    def __init__(self, table: Table, description: dict[str, Any], items: Callable[[bytes], Iterator[Any]]) -> None:
        self._table, self._description, self._items = table, description, items
        self._size_bytes = self._written = self._errors = 0

    def end(self, database: Database, delivery: Delivery, bucket: str, prefix: str) -> dict[str, Any]:
        for key in delivery.list(bucket, prefix):
            self._read(delivery.get(bucket, key))
        database.add(self._table)
        counts = {
            "ProcessedItemCount": self._written + self._errors,
            "ImportedItemCount": self._written,
            "ErrorCount": self._errors,
            "ProcessedSizeBytes": self._size_bytes,
        }
        if not self._errors:
            return counts
        failure = {"FailureCode": "ItemValidationError", "FailureMessage": "Some of the items failed validation checks"}
        return {**counts, **failure, "ImportStatus": "FAILED"}

    def _read(self, body: bytes) -> None:
        try:
            text = inflated_object(body, self._description["InputCompressionType"])
            self._size_bytes += len(text)
            for item in self._items(text):
                self._put(item)
        except (ValueError, KeyError, TypeError, OSError, Refusal):
            self._errors += 1

    def _put(self, item: Any) -> None:
        canonical, size_bytes = stored_item(item)
        self._table.check_item(canonical)
        self._table.load([(canonical, Stored(to_wire(canonical), size_bytes))], settle=False)
        self._written += 1


def _source(request: Request) -> tuple[str, str]:
    match request.required("S3BucketSource"):
        case {"S3Bucket": str(bucket), **rest}:
            return bucket, str(rest.get("S3KeyPrefix", ""))
    raise malformed()


def _table(database: Database, request: Request) -> Table:
    parameters = request.required("TableCreationParameters")
    if type(parameters) is not dict or "LocalSecondaryIndexes" in parameters:
        raise malformed()
    return define_table(Request(parameters), database.defaults)


def _items_of(request: Request, table: Table) -> Callable[[bytes], Iterator[Any]]:
    match request.text("InputFormat", ("DYNAMODB_JSON", "ION", "CSV")):
        case "DYNAMODB_JSON":
            if "InputFormatOptions" in request.members:
                raise invalid("InputFormatOptions is not supported for DYNAMODB_JSON")
            return _json_items
        case "ION":
            return lambda text: _json_items(ion_to_json_lines(text))
        case "CSV":
            options = (request.mapping("InputFormatOptions") or {}).get("Csv", {})
            schemas = (table.keys, *(index.keys for index in table.indexes.values()))
            tags = {part.name: part.tag for schema in schemas for part in schema.attributes}
            return lambda text: _csv_items(text, options, tags)
    raise malformed()


def inflated_object(body: bytes, compression: str) -> bytes:
    """Return an object's text by the compression that is said; what is empty has none."""
    match compression:
        case "GZIP":
            return gzip.decompress(body) if body else body
        case "ZSTD":
            return pa.CompressedInputStream(pa.BufferReader(body), "zstd").read() if body else body
    return body


def _json_items(text: bytes) -> Iterator[Any]:
    return (json.loads(line)["Item"] for line in text.split(b"\n") if line.strip())


def _csv_items(text: bytes, options: dict[str, Any], tags: dict[str, str]) -> Iterator[Any]:
    names = options.get("HeaderList")
    rows = csv.DictReader(io.StringIO(text.decode(), newline=""), names, delimiter=options.get("Delimiter", ","))
    # Only keys have types of their own.
    return ({name: {tags.get(name, "S"): value} for name, value in row.items()} for row in rows)
