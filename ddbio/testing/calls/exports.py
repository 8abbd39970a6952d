"""ExportTableToPointInTime, DescribeExport and ListExports from a table and the history of its writes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections import defaultdict
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.items.ion_values import ion_line
from ddbio.testing.calls.reads import filter_of, parsed, requested_paths
from ddbio.testing.expressions.conditions import check_filter_names, key_range
from ddbio.testing.expressions.parsing import Placeholders, pick, tree_of
from ddbio.testing.refusal import invalid, lacking, malformed, service_refusal, table_not_found
from ddbio.testing.request import Request, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.items.attribute import Item
    from ddbio.testing.expressions.conditions import KeyRange, Predicate
    from ddbio.testing.expressions.parsing import Tree
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.jobs import S3Access
    from ddbio.testing.tables.table import Key, KeySchema, Table, Write


_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NAME_LENGTH = 26
_ECHOED = ("ExportType", "FilterSpecification", "S3BucketOwner", "S3Prefix", "S3SseKmsKeyId")
_TOKEN_MEMBERS = (
    *("TableArn", "S3Bucket", "ExportTime", "ExportFormat", "IncrementalExportSpecification", "S3SseAlgorithm"),
    *_ECHOED,
)
_VIEWS = ("NEW_AND_OLD_IMAGES", "NEW_IMAGE")
_MAX_LISTED = 25
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_IncrementalExportSpecification.html
_MIN_WINDOW_SECONDS, _MAX_WINDOW_SECONDS = 15 * 60, 24 * 60 * 60
# https://aws.amazon.com/dynamodb/pricing/on-demand/
_MIN_BILLED_BYTES = 10 * 1024 * 1024


def put_export(
    s3: S3Access, description: dict[str, Any], lines: Sequence[Sequence[bytes]], chosen: Random
) -> dict[str, Any]:
    """Write an export with one data file per sequence of lines, and return the description of the finished export.

    Parameters
    ----------
    description
        The members of DescribeExport, with ``BilledSizeBytes``.
    """
    bucket, export_id = description["S3Bucket"], description["ExportArn"].rpartition("/")[2]
    root = f"{description.get('S3Prefix', '').rstrip('/')}/AWSDynamoDB".lstrip("/")
    folder = f"{root}/{export_id}"
    # All incremental exports under a prefix share one data folder.
    data = f"{root if 'IncrementalExportSpecification' in description else folder}/data"
    ending = "ion.gz" if description["ExportFormat"] == "ION" else "json.gz"
    s3.put(bucket, f"{folder}/_started", b"")
    files = []
    for file_lines in lines:
        body = gzip.compress(b"".join(file_lines))
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        key = f"{data}/{''.join(chosen.choices(_NAME_LETTERS, k=_NAME_LENGTH))}.{ending}"
        s3.put(bucket, key, body)
        files.append(
            {
                "itemCount": len(file_lines),
                "md5Checksum": base64.b64encode(digest).decode(),
                "etag": hashlib.md5(digest, usedforsecurity=False).hexdigest() + "-1",
                "dataFileS3Key": key,
            }
        )
    count = sum(map(len, lines))
    summary = {**_summary(description), "itemCount": count, "manifestFilesS3Key": f"{folder}/manifest-files.json"}
    _put_summed(s3, bucket, f"{folder}/manifest-files", b"".join(to_json(file) + b"\n" for file in files))
    # Written last: an export with a summary has completed.
    _put_summed(s3, bucket, f"{folder}/manifest-summary", to_json(summary))
    return {"ExportManifest": f"{folder}/manifest-summary.json", "ItemCount": count}


def _put_summed(s3: S3Access, bucket: str, key: str, body: bytes) -> None:
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    s3.put(bucket, f"{key}.md5", base64.b64encode(digest))
    s3.put(bucket, f"{key}.json", body)


def _summary(description: dict[str, Any]) -> dict[str, Any]:
    summary = {
        "version": "2020-06-30",
        "exportArn": description["ExportArn"],
        "startTime": _iso(description["StartTime"]),
        "endTime": _iso(description["StartTime"]),
        "tableArn": description["TableArn"],
        "tableId": description["TableId"],
        "exportTime": _iso(description["ExportTime"]),
        "s3Bucket": description["S3Bucket"],
        "s3Prefix": description.get("S3Prefix"),
        "s3SseAlgorithm": description["S3SseAlgorithm"],
        "s3SseKmsKeyId": description.get("S3SseKmsKeyId"),
        "billedSizeBytes": description["BilledSizeBytes"],
        "outputFormat": description["ExportFormat"],
        "exportType": "FULL_EXPORT",
    }
    # The documentation of the manifest does not mention filters. The name follows those of the other members.
    if "FilterSpecification" in description:
        summary["filterSpecification"] = description["FilterSpecification"]
    window = description.get("IncrementalExportSpecification")
    if window is not None:
        summary |= {
            "version": "2023-08-01",
            "exportType": "INCREMENTAL_EXPORT",
            "exportFromTime": _iso(window["ExportFromTime"]),
            "exportToTime": _iso(window["ExportToTime"]),
            "outputView": window["ExportViewType"],
        }
    return summary


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def export_table(database: Database, request: Request) -> dict[str, Any]:
    """Export the current state of a table, a past state, or the changes within a window."""
    if database.s3 is None:
        raise lacking("ExportTableToPointInTime without export_to")
    table = _exported_table(database, request)
    asked = {name: request.members[name] for name in _TOKEN_MEMBERS if name in request.members}
    token = request.text("ClientToken")
    exports = database.exports
    if token in exports.tokens:
        before, arn = exports.tokens[token or ""]
        if before != asked:
            raise service_refusal("ExportConflictException", "Duplicate request detected")
        return {"ExportDescription": exports.described(arn)}
    selection = _Filter.of(Request(request.mapping("FilterSpecification") or {}), table.keys)
    description = _description(database, table, request)
    if token is not None:
        exports.tokens[token] = asked, description["ExportArn"]
    # The export has the items of this moment, regardless of how long writing it takes.
    chosen = Random(description["ExportArn"])
    lines, size_bytes = _lines(table, description, selection, chosen, is_past="ExportTime" in request.members)
    target, members = database.s3, {**description, "BilledSizeBytes": size_bytes}
    return {
        "ExportDescription": exports.begin(
            description,
            lambda: {**put_export(target, members, lines, chosen), "BilledSizeBytes": size_bytes},
        )
    }


def describe_export(database: Database, request: Request) -> dict[str, Any]:
    """Describe one export."""
    request.required("ExportArn")
    arn = request.text("ExportArn") or ""
    if "/export/" not in arn:
        raise invalid("Invalid Export ARN")
    description = database.exports.described(arn)
    if description is None:
        raise service_refusal("ExportNotFoundException", f"Export not found: {arn}")
    return {"ExportDescription": description}


def list_exports(database: Database, request: Request) -> dict[str, Any]:
    """List exports, the newest first, except those of deleted tables."""
    arn = request.text("TableArn")
    limit = request.integer("MaxResults", 1, _MAX_LISTED) or _MAX_LISTED
    there = {table.arn for table in database.tables.values()}
    shown, more = database.exports.page(
        limit,
        request.text("NextToken"),
        lambda description: description["TableArn"] in there and arn in (None, description["TableArn"]),
    )
    summaries = [
        {
            "ExportArn": description["ExportArn"],
            "ExportStatus": description["ExportStatus"],
            "ExportType": description.get("ExportType", "FULL_EXPORT"),
        }
        for description in shown
    ]
    return {"ExportSummaries": summaries, **more}


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
    request.text("ExportFormat", ("DYNAMODB_JSON", "ION"))
    table = database.tables[name]
    if table.recovery is None:
        raise service_refusal(
            "PointInTimeRecoveryUnavailableException", f"Point in time recovery is not enabled for table '{name}'"
        )
    return table


def _description(database: Database, table: Table, request: Request) -> dict[str, Any]:
    now = round(database.wall_clock.now(), 3)
    at = request.members.get("ExportTime", now)
    _check_time(table, at, now)
    export_id = (
        f"{int(now * 1000):014d}-{hashlib.blake2b(str(time.monotonic_ns()).encode(), digest_size=4).hexdigest()}"
    )
    description = {
        "ExportArn": f"{table.arn}/export/{export_id}",
        "StartTime": now,
        "TableArn": table.arn,
        "TableId": table.description["TableId"],
        "ExportTime": at,
        "ClientToken": request.text("ClientToken") or export_id,
        "S3Bucket": request.text("S3Bucket"),
        "S3SseAlgorithm": request.text("S3SseAlgorithm") or "AES256",
        "ExportFormat": request.text("ExportFormat") or "DYNAMODB_JSON",
        **{name: request.members[name] for name in _ECHOED if name in request.members},
    }
    if request.text("ExportType", ("FULL_EXPORT", "INCREMENTAL_EXPORT")) == "INCREMENTAL_EXPORT":
        description["IncrementalExportSpecification"] = _window(table, request, now)
    return description


def _window(table: Table, request: Request, now: float) -> dict[str, Any]:
    if "ExportTime" in request.members:
        raise invalid("ExportTime cannot be specified for incremental exports")
    window = request.required("IncrementalExportSpecification")
    match window:
        case {"ExportFromTime": int() | float() as start, "ExportToTime": int() | float() as end}:
            pass
        case _:
            raise malformed()
    view = window.get("ExportViewType", _VIEWS[0])
    if view not in _VIEWS:
        raise malformed()
    _check_time(table, start, now)
    _check_time(table, end, now)
    if not _MIN_WINDOW_SECONDS <= end - start <= _MAX_WINDOW_SECONDS:
        raise service_refusal(
            "InvalidExportTimeException",
            "The export period must be between 15 minutes and 24 hours",
        )
    return {"ExportFromTime": start, "ExportToTime": end, "ExportViewType": view}


def _check_time(table: Table, at: object, now: float) -> None:
    if not isinstance(at, (int, float)) or at > now or table.recovery is None or at < int(table.recovery[0]):
        raise service_refusal("InvalidExportTimeException", "The specified time is outside of the recovery window")


class _Filter(NamedTuple):
    """The items and attributes of a filtered export.

    A key condition limits the items that are read and billed; AWS does not document the price.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Filtered.html
    """

    keys: KeyRange | None
    predicate: Predicate | None
    tree: Tree | None

    @classmethod
    def of(cls, specification: Request, keys: KeySchema) -> _Filter:
        """Return the filter of a FilterSpecification, whose expressions are checked like those of Query and Scan."""
        kinds = ("ProjectionExpression", "FilterExpression", "KeyConditionExpression")
        placeholders = Placeholders.of(specification, *kinds)
        condition = specification.text("KeyConditionExpression")
        condition_range = None if condition is None else key_range(condition, placeholders, keys)
        paths = requested_paths(specification, placeholders)
        predicate, names = filter_of(specification, placeholders)
        placeholders.check_all_used()
        if condition_range is not None:
            check_filter_names(names, keys.names)
        return cls(condition_range, predicate, None if paths is None else tree_of(paths))

    def reads(self, key: Key) -> bool:
        """Return whether the export reads the item at a key."""
        return self.keys is None or self.keys.contains(key)

    def selects(self, text: bytes) -> bool:
        """Return whether the export contains an item that it has read."""
        return self.predicate is None or self.predicate(parsed(text))

    def exported(self, text: bytes, chosen: Random) -> Item:
        """Return the selected attributes of an item."""
        item = _shuffled(text, chosen)
        return item if self.tree is None else pick(item, self.tree)


def _lines(
    table: Table, description: dict[str, Any], selection: _Filter, chosen: Random, *, is_past: bool
) -> tuple[list[list[bytes]], int]:
    """Return the lines of each data file and the billed bytes."""
    journal = table.journal
    if journal is None:
        raise AssertionError("a table with recovery has a journal")
    window = description.get("IncrementalExportSpecification")
    encode = ion_line if description["ExportFormat"] == "ION" else _json_line
    lines: defaultdict[int, list[bytes]] = defaultdict(list)
    size_bytes = 0
    if window is None:
        items = table.store.snapshot()
        entries = journal.state(items, description["ExportTime"]).items() if is_past else items.entries()
        for key, stored in entries:
            if not selection.reads(key):
                continue
            size_bytes += stored.size_bytes
            if selection.selects(stored.json):
                document = {"Item": selection.exported(stored.json, chosen)}
                lines[table.partition_of(key)].append(encode(document))
    else:
        for key, write in journal.changes(window["ExportFromTime"], window["ExportToTime"]).items():
            if not selection.reads(key):
                continue
            size_bytes += sum(image.size_bytes for image in (write.old, write.new) if image is not None)
            # The old image of a deleted item, else the new image.
            latest = write.new or write.old
            if latest is not None and selection.selects(latest.json):
                item = parsed(latest.json)
                keys = {name: item[name] for name in table.keys.names}
                record = dict(_record(keys, write, window["ExportViewType"], selection, chosen))
                lines[table.partition_of(key)].append(encode(record))
    return [lines[partition] for partition in range(table.throughput.partitions)], max(size_bytes, _MIN_BILLED_BYTES)


def _record(
    keys: Item, write: Write, view: str, selection: _Filter, chosen: Random
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "Metadata", {"WriteTimestampMicros": {"N": str(write.micros)}}
    yield "Keys", keys
    if write.old is not None and view == "NEW_AND_OLD_IMAGES":
        yield "OldImage", selection.exported(write.old.json, chosen)
    if write.new is not None:
        yield "NewImage", selection.exported(write.new.json, chosen)


def _json_line(document: dict[str, Any]) -> bytes:
    return to_json(document) + b"\n"


def _shuffled(text: bytes, chosen: Random) -> dict[str, Any]:
    """Return an item with its sets in random order: exports of the service have no order."""
    item: dict[str, Any] = json.loads(text)
    if b'S":[' in text:
        _shuffle_members(item, chosen)
    return item


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
