"""ImportTable and StartBulkPutItems, and the calls that describe, list and cancel these jobs.

An import reads an object up to its first line that is no valid item. That line and the remaining object are one error.
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

from ddbio.items.ion_values import ion_to_json_lines
from ddbio.testing.calls.control import existing_table
from ddbio.testing.calls.writes import planned_put
from ddbio.testing.expressions.conditions import Guard
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.refusal import Refusal, in_use, invalid, lacking, malformed, not_found, service_refusal
from ddbio.testing.request import Request, stored_item, to_json
from ddbio.testing.tables.definition import define_table
from ddbio.testing.tables.table import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.items.attribute import Item
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.jobs import S3Access
    from ddbio.testing.tables.table import Table


_ECHOED = ("S3BucketSource", "InputFormat", "InputFormatOptions", "TableCreationParameters")
_LISTED = ("ImportArn", "ImportStatus", "TableArn", "S3BucketSource", "CloudWatchLogGroupArn", "InputFormat")
_LOG_GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:/aws-dynamodb/imports:*"
_BULK_ECHOED = ("InputS3Configuration", "OutputS3Configuration", "MaxWriteRequestUnits")
_BULK_LISTED = ("BulkOperationArn", "BulkOperationStatus", "StartTime", "EndTime")
_MAX_LISTED = 25
_MEMBERS = {"Item", "ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ERROR, _CONDITION = "ERROR", "CONDITION_CHECK_FAILURE"


def import_table(database: Database, request: Request) -> dict[str, Any]:
    """Create a table and fill it from the objects under a prefix."""
    if database.s3 is None:
        raise lacking("ImportTable without export_to")
    token = request.required("ClientToken")
    source, table = _source(request), _table(database, request)
    imports = database.imports
    for running in imports.running():
        if running["ClientToken"] == token:
            if running["TableArn"] != table.arn:
                raise service_refusal("ImportConflictException", "Duplicate request detected")
            return {"ImportTableDescription": running}
    if table.name in database.tables or any(running["TableArn"] == table.arn for running in imports.running()):
        raise in_use(f"Table already exists: {table.name}")
    now = database.wall_clock.now()
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
    s3 = database.s3
    run = _ImportRun(table, description, _items_of(request, table))
    return {
        "ImportTableDescription": imports.begin(description, lambda: run.end(database, s3, *source)),
    }


def describe_import(database: Database, request: Request) -> dict[str, Any]:
    """Describe one import. Its counts are 0 until it ends."""
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
    shown, more = database.imports.page(
        limit, request.text("NextToken"), lambda description: arn in (None, description["TableArn"])
    )
    names = (*_LISTED, "StartTime", "EndTime")
    return {
        "ImportSummaryList": [
            {name: description[name] for name in names if name in description} for description in shown
        ],
        **more,
    }


class _ImportRun:
    def __init__(self, table: Table, description: dict[str, Any], items: Callable[[bytes], Iterator[Any]]) -> None:
        self._table, self._description, self._items = table, description, items
        self._size_bytes = self._written = self._errors = 0

    def end(self, database: Database, s3: S3Access, bucket: str, prefix: str) -> dict[str, Any]:
        for key in s3.list(bucket, prefix):
            self._read(s3.get(bucket, key))
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
        self._table.load([(canonical, Stored(to_json(canonical), size_bytes))], settle=False)
        self._written += 1


def _source(request: Request) -> tuple[str, str]:
    match request.required("S3BucketSource"):
        case {"S3Bucket": str(bucket), **members}:
            return bucket, str(members.get("S3KeyPrefix", ""))
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
    """Return the text of an object, decompressed as declared. An empty object needs no compression."""
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
    # Only keys have a type other than S.
    return ({name: {tags.get(name, "S"): value} for name, value in row.items()} for row in rows)


class BulkRun:
    """One bulk put, which counts its items and reports the failed ones."""

    def __init__(self, table: Table, s3: S3Access, reports: dict[str, Any], name: str) -> None:
        self._table, self._s3, self._reports, self._name = table, s3, reports, name
        self._processed = self._failed = self._size_bytes = 0
        self._reported: dict[str, list[dict[str, Any]]] = {_ERROR: [], _CONDITION: []}

    def end(self, source: dict[str, Any]) -> dict[str, Any]:
        """Put all items, write the reports, and return the description of the finished operation."""
        for key in self._s3.list(source["S3Bucket"], source.get("S3KeyPrefix", "")):
            body = self._s3.get(source["S3Bucket"], key)
            self._size_bytes += len(body)
            text = inflated_object(body, source.get("InputCompressionType", "NONE"))
            for line in (ion_to_json_lines(text) if source["InputFormat"] == "ION" else text).split(b"\n"):
                if line.strip():
                    self._take(line)
        self._report()
        return {
            "BulkOperationStatus": "COMPLETED_WITH_ERRORS" if self._failed else "COMPLETED",
            "ProcessedItemCount": self._processed,
            "FailedItemCount": self._failed,
            "ProcessedInputBytes": self._size_bytes,
            "TotalInputBytes": self._size_bytes,
        }

    def _take(self, line: bytes) -> None:
        self._processed += 1
        record: dict[str, Any] = {}
        try:
            members = json.loads(line)
            record = {"Item": members["Item"]}
            existing = self._put(members)
        except (ValueError, TypeError, KeyError, AttributeError, Refusal) as error:
            self._failed += 1
            record = record or {"Record": line.decode(errors="replace")}
            words = error.body.get("message") if isinstance(error, Refusal) else f"The line is no item: {error}"
            self._reported[_ERROR].append({**record, "ErrorCode": "ValidationException", "ErrorMessage": words})
            return
        if existing is not None:
            # A false condition is not an error of the operation.
            shown = {"ExistingItem": existing} if existing else {}
            self._reported[_CONDITION].append({**record, **shown, "ErrorCode": "ConditionalCheckFailedException"})

    def _put(self, members: dict[str, Any]) -> Item | None:
        """Put an item and return None. If its condition is false, return the existing item, or an empty one."""
        if not members.keys() <= _MEMBERS:
            raise invalid(f"Unknown members: {sorted(members.keys() - _MEMBERS)}")
        request = Request(members)
        placeholders = Placeholders.of(request, "ConditionExpression")
        guard = Guard.of(request, placeholders)
        placeholders.check_all_used()
        write = planned_put(self._table, members["Item"])
        change = self._table.plan_write(write.key, write.new, write.size_bytes)
        if guard.refusal(change.old) is not None:
            return change.old or {}
        change.apply()
        return None

    def _report(self) -> None:
        prefix = self._reports.get("S3KeyPrefix", "").rstrip("/")
        for kind in self._reports["OutputType"]:
            if self._reported[kind]:
                lines = "".join(json.dumps(record) + "\n" for record in self._reported[kind])
                key = f"{prefix}/{self._name}/{kind}/0000.json.gz".lstrip("/")
                self._s3.put(self._reports["S3Bucket"], key, gzip.compress(lines.encode()))
        counts = {kind: len(records) for kind, records in self._reported.items()}
        key = f"{prefix}/{self._name}/manifest.json".lstrip("/")
        self._s3.put(self._reports["S3Bucket"], key, json.dumps({"Records": counts}).encode())


def start_bulk_put(database: Database, request: Request) -> dict[str, Any]:
    """Put the items of the objects under a prefix into a table."""
    if database.s3 is None:
        raise lacking("StartBulkPutItems without export_to")
    table, source = existing_table(database, request), request.required("InputS3Configuration")
    reports = request.required("OutputS3Configuration")
    asked = {name: value for name, value in request.members.items() if name != "ClientToken"}
    token = request.text("ClientToken") or ""
    bulk = database.bulk
    if token in bulk.tokens:
        before, arn = bulk.tokens[token]
        if before != asked:
            raise service_refusal("IdempotentParameterMismatchException", "The parameters are not those of before")
        return {"BulkOperationDescription": bulk.described(arn)}
    now = database.wall_clock.now()
    description = {
        "BulkOperationArn": f"{table.arn}/bulk-operation/{int(now * 1000):014d}-{time.monotonic_ns() % 2**32:08x}",
        "TableDetails": [{"TableName": table.name, "TableId": table.description["TableId"]}],
        "ClientToken": token,
        "StartTime": round(now, 3),
        "PerformanceTier": request.text("PerformanceTier") or "STANDARD",
        **dict.fromkeys(("ProcessedItemCount", "ProcessedInputBytes", "FailedItemCount"), 0),
        **{name: request.members[name] for name in _BULK_ECHOED if name in request.members},
    }
    bulk.tokens[token] = asked, description["BulkOperationArn"]
    run = BulkRun(table, database.s3, reports, description["BulkOperationArn"].rpartition("/")[2])
    return {"BulkOperationDescription": bulk.begin(description, lambda: run.end(source))}


def describe_bulk_operation(database: Database, request: Request) -> dict[str, Any]:
    """Describe one bulk operation."""
    return {"BulkOperationDescription": _described(database, request)}


def cancel_bulk_operation(database: Database, request: Request) -> dict[str, Any]:
    """Stop a running bulk operation."""
    description = _described(database, request)
    arn = description["BulkOperationArn"]
    if not database.bulk.cancel(arn):
        raise invalid("The bulk operation has ended")
    return {"BulkOperationArn": arn, "BulkOperationStatus": "CANCELLING"}


def list_bulk_operations(database: Database, request: Request) -> dict[str, Any]:
    """List bulk operations, the newest first."""
    limit = request.integer("MaxResults", 1, _MAX_LISTED) or _MAX_LISTED
    shown, more = database.bulk.page(limit, request.text("NextToken"), lambda _: True)
    listed = [{name: description[name] for name in _BULK_LISTED if name in description} for description in shown]
    return {"BulkOperationsSummaryList": listed, **more}


def _described(database: Database, request: Request) -> dict[str, Any]:
    description = database.bulk.described(request.required("BulkOperationArn"))
    if description is None:
        raise not_found()
    return description
