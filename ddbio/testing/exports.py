"""Answer ExportTableToPointInTime by writing the table as it is now; refuses incremental exports, Ion and filters."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections import defaultdict
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from ddbio.testing.delivery import NoSuchBucketError
from ddbio.testing.refusal import invalid, lacking, service_refusal, table_not_found
from ddbio.testing.values import to_wire

if TYPE_CHECKING:
    from ddbio.testing.database import Database
    from ddbio.testing.delivery import Delivery
    from ddbio.testing.request import Request
    from ddbio.testing.table import Table

_ECHOED = ("ExportType", "S3BucketOwner", "S3Prefix", "S3SseKmsKeyId")
_TOKEN_MEMBERS = ("TableArn", "S3Bucket", "ExportTime", "ExportFormat", *_ECHOED, "S3SseAlgorithm")
_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NAME_LENGTH = 26
_MAX_LISTED = 25


def export_table(database: Database, request: Request) -> dict[str, Any]:
    """Export a table; what the service does in minutes is done when the reply is sent."""
    exports = database.exports
    if exports.delivery is None:
        raise lacking("ExportTableToPointInTime without export_to")
    table = _exported_table(database, request)
    asked = {name: request.members[name] for name in _TOKEN_MEMBERS if name in request.members}
    token = request.text("ClientToken")
    if token in exports.tokens:
        before, arn = exports.tokens[token or ""]
        if before != asked:
            raise service_refusal("ExportConflictException", "Duplicate request detected")
        return {"ExportDescription": exports.described[arn]}
    description = _description(table, request)
    exports.described[description["ExportArn"]] = description
    if token is not None:
        exports.tokens[token] = asked, description["ExportArn"]
    started = dict(description)
    _run(exports.delivery, table, description)
    return {"ExportDescription": started}


def describe_export(database: Database, request: Request) -> dict[str, Any]:
    """Describe one export."""
    request.required("ExportArn")
    arn = request.text("ExportArn") or ""
    if "/export/" not in arn:
        raise invalid("Invalid Export ARN")
    if arn not in database.exports.described:
        raise service_refusal("ExportNotFoundException", f"Export not found: {arn}")
    return {"ExportDescription": database.exports.described[arn]}


def list_exports(database: Database, request: Request) -> dict[str, Any]:
    """List exports, the newest first; those of a deleted table are not shown."""
    arn = request.text("TableArn")
    limit = request.integer("MaxResults", 1, _MAX_LISTED) or _MAX_LISTED
    there = {table.arn for table in database.tables.values()}
    shown = [
        {"ExportArn": each["ExportArn"], "ExportStatus": each["ExportStatus"], "ExportType": "FULL_EXPORT"}
        for each in reversed(list(database.exports.described.values()))
        if each["TableArn"] in there and arn in (None, each["TableArn"])
    ]
    after = request.text("NextToken")
    if after is not None:
        places = [at for at, each in enumerate(shown) if each["ExportArn"] == after]
        if not places:
            raise invalid("Invalid NextToken")
        shown = shown[places[0] + 1 :]
    more = {"NextToken": shown[limit - 1]["ExportArn"]} if len(shown) > limit else {}
    return {"ExportSummaries": shown[:limit], **more}


def _exported_table(database: Database, request: Request) -> Table:
    request.required("S3Bucket")
    name = request.table_name("TableArn")
    for member in ("TableArn", "S3Bucket", "S3Prefix", "ClientToken", "ExportFormat", "ExportType"):
        if request.text(member) == "":
            raise invalid(f"1 validation error detected: {member} must not be empty")
    if not (request.text("TableArn") or "").startswith("arn:"):
        raise invalid("Invalid TableArn")
    if name not in database.tables:
        raise table_not_found(f"Table not found: {name}")
    if request.text("ExportFormat", ("DYNAMODB_JSON", "ION")) == "ION":
        raise lacking("ION")
    if request.text("ExportType", ("FULL_EXPORT", "INCREMENTAL_EXPORT")) == "INCREMENTAL_EXPORT":
        raise lacking("INCREMENTAL_EXPORT")
    if "FilterSpecification" in request.members:
        raise lacking("FilterSpecification")
    table = database.tables[name]
    if table.recovery is None:
        raise service_refusal(
            "PointInTimeRecoveryUnavailableException", f"Point in time recovery is not enabled for table '{name}'"
        )
    return table


def _description(table: Table, request: Request) -> dict[str, Any]:
    now = round(time.time(), 3)
    at = request.members.get("ExportTime", now)
    if not isinstance(at, (int, float)) or at > now or table.recovery is None or at < int(table.recovery[0]):
        raise service_refusal(
            "InvalidExportTimeException", "The specified ExportTime is outside of the recovery window"
        )
    export_id = (
        f"{int(now * 1000):014d}-{hashlib.blake2b(str(time.monotonic_ns()).encode(), digest_size=4).hexdigest()}"
    )
    return {
        "ExportArn": f"{table.arn}/export/{export_id}",
        "ExportStatus": "IN_PROGRESS",
        "StartTime": now,
        "TableArn": table.arn,
        "TableId": table.description["TableId"],
        "ExportTime": at,
        "ClientToken": request.text("ClientToken") or export_id,
        "S3Bucket": request.text("S3Bucket"),
        "S3SseAlgorithm": request.text("S3SseAlgorithm") or "AES256",
        "ExportFormat": "DYNAMODB_JSON",
        **{name: request.members[name] for name in _ECHOED if name in request.members},
    }


def _run(delivery: Delivery, table: Table, description: dict[str, Any]) -> None:
    try:
        _write(delivery, table, description)
    except NoSuchBucketError:
        description |= {
            "ExportStatus": "FAILED",
            "FailureCode": "S3NoSuchBucket",
            "FailureMessage": "The specified bucket does not exist",
        }
    else:
        description["ExportStatus"] = "COMPLETED"
    description["EndTime"] = round(time.time(), 3)


def _write(delivery: Delivery, table: Table, description: dict[str, Any]) -> None:
    bucket, export_id = description["S3Bucket"], description["ExportArn"].rpartition("/")[2]
    prefix = description.get("S3Prefix", "").rstrip("/")
    folder = f"{prefix}/AWSDynamoDB/{export_id}".lstrip("/")
    delivery.put(bucket, f"{folder}/_started", b"")
    chosen = Random(export_id)
    files = []
    for lines in _lines_by_partition(table, chosen):
        body = gzip.compress(b"".join(lines))
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        key = f"{folder}/data/{''.join(chosen.choices(_NAME_LETTERS, k=_NAME_LENGTH))}.json.gz"
        delivery.put(bucket, key, body)
        files.append(
            {
                "itemCount": len(lines),
                "md5Checksum": base64.b64encode(digest).decode(),
                "etag": hashlib.md5(digest, usedforsecurity=False).hexdigest() + "-1",
                "dataFileS3Key": key,
            }
        )
    description |= {
        "ExportManifest": f"{folder}/manifest-summary.json",
        "ItemCount": table.shelf.count,
        "BilledSizeBytes": table.shelf.size_bytes,
    }
    _put_summed(delivery, bucket, f"{folder}/manifest-files", b"".join(to_wire(file) + b"\n" for file in files))
    _put_summed(delivery, bucket, f"{folder}/manifest-summary", to_wire(_summary(description, folder)))


def _put_summed(delivery: Delivery, bucket: str, key: str, body: bytes) -> None:
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    delivery.put(bucket, f"{key}.md5", base64.b64encode(digest))
    delivery.put(bucket, f"{key}.json", body)


def _summary(description: dict[str, Any], folder: str) -> dict[str, Any]:
    return {
        "version": "2020-06-30",
        "exportArn": description["ExportArn"],
        "startTime": _iso(description["StartTime"]),
        "endTime": _iso(time.time()),
        "tableArn": description["TableArn"],
        "tableId": description["TableId"],
        "exportTime": _iso(description["ExportTime"]),
        "s3Bucket": description["S3Bucket"],
        "s3Prefix": description.get("S3Prefix"),
        "s3SseAlgorithm": description["S3SseAlgorithm"],
        "s3SseKmsKeyId": description.get("S3SseKmsKeyId"),
        "manifestFilesS3Key": f"{folder}/manifest-files.json",
        "billedSizeBytes": description["BilledSizeBytes"],
        "itemCount": description["ItemCount"],
        "outputFormat": description["ExportFormat"],
        "exportType": "FULL_EXPORT",
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines_by_partition(table: Table, chosen: Random) -> list[list[bytes]]:
    lines: defaultdict[int, list[bytes]] = defaultdict(list)
    for key, stored in table.shelf.frozen().entries():
        lines[table.partition_of(key)].append(b'{"Item":' + _shuffled(stored.wire, chosen) + b"}\n")
    return [lines[partition] for partition in range(table.throughput.partitions)]


def _shuffled(wire: bytes, chosen: Random) -> bytes:
    """Return an item whose sets are in another order: the service's exports promise none."""
    if b'S":[' not in wire:
        return wire
    item: dict[str, Any] = json.loads(wire)
    _shuffle_members(item, chosen)
    return to_wire(item)


def _shuffle_members(item: dict[str, Any], chosen: Random) -> None:
    for value in item.values():
        ((tag, content),) = value.items()
        if tag in {"SS", "NS", "BS"}:
            chosen.shuffle(content)
        elif tag == "M":
            _shuffle_members(content, chosen)
        elif tag == "L":
            for element in content:
                _shuffle_members({"": element}, chosen)
