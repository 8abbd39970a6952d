"""Reader of the reports of the service's bulk puts, which list the items that were not put. Experimental.

AWS has not published the format of reports, so all objects below the location are read. The names of their fields are
guessed; fields that are not recognised are kept as text.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.errors import NotFoundError
from ddbio.export.bulk_puts import BULK
from ddbio.formats.decompress import line_blocks
from ddbio.items.json_text import compact_json
from ddbio.jobs.rejected_rows import RejectedRow, reject_line, require_reject_location
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddbio.export.options import BulkReportOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

_CHECKSUM_ENDINGS = (".md5", ".checksum")
# One row for each item that was not put; item, existing_item and rest are JSON.
_REPORT_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("kind", "reason", "message", "item", "existing_item", "rest", "object")]
)
BulkKind = Literal["error", "condition"]


@dataclass(frozen=True)
class BulkSummary(Result):
    """Counts of the items that were not put.

    Attributes
    ----------
    place
        The location that was read.
    objects, records
        Number of objects below the location, and of records in them.
    errors, conditions
        Items that were refused, and items whose condition was false.
    reasons
        Number of items by the service's code.
    rejects
        Refused items that were written to ``reject_to``.
    """

    place: str
    objects: int
    records: int
    errors: int
    conditions: int
    reasons: dict[str, int]
    rejects: int


@dataclass(frozen=True)
class BulkReport(Result):
    """The items that were not put, one row each, and their counts.

    Attributes
    ----------
    rows
        ``kind`` (``error`` or ``condition``), ``reason``, ``message``, ``object``, and as JSON ``item``,
        ``existing_item`` and ``rest``, which contains all unrecognised fields of the record.
    summary
        The counts.
    """

    rows: pa.Table
    summary: BulkSummary

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the rows as plain values."""
        return {"summary": self.summary.to_dict(), "rows": self.rows.to_pylist()}


def read_reports(options: BulkReportOptions) -> BulkReport:
    """Return the items that a bulk put did not put, from the service's reports: rows and counts; experimental.

    Raises
    ------
    NotFoundError
        If there is no report, or no such bulk operation.
    AccessDeniedError, EndpointError
        If the reports cannot be read.
    """
    require_reject_location(options.reject_to, options)
    location, name = options.place, ""
    if location.startswith("arn:"):
        location, name = BULK.describe(location, options).reports, location.rpartition("/")[2]
    store = open_store(location, options)
    entries = list(store.list())
    # A prefix may contain the reports of many operations. Their names probably contain the id of the operation.
    entries = [entry for entry in entries if name in entry.path] or entries
    if not entries:
        raise NotFoundError(f"there is no report at {location}: the operation is still running, or had no errors")
    records = list(_records(store, entries))
    rejects = [] if options.reject_to is None else list(_rejects(record for _, record in records))
    if options.reject_to is not None and rejects:
        path = f"rejects-{new_job_id()}.jsonl"
        open_store(options.reject_to, options).put(path, b"".join(map(reject_line, rejects)))
    kinds = Counter(record.kind for _, record in records)
    reasons = Counter(record.reason for _, record in records)
    counts = BulkSummary(
        location,
        len(entries),
        len(records),
        kinds["error"],
        kinds["condition"],
        dict(reasons.most_common()),
        len(rejects),
    )
    return BulkReport(_records_table(records), counts)


def _records(store: ObjectStore, entries: Iterable[StoredObject]) -> Iterator[tuple[str, BulkRecord]]:
    for entry in entries:
        if entry.path.endswith(_CHECKSUM_ENDINGS) or "manifest" in entry.path.rpartition("/")[2]:
            continue
        data = store.read(entry.path)
        for block in line_blocks([data], entry.path):
            yield from ((entry.path, record) for record in _parse_records(entry.path, bytes(block)))


def _rejects(records: Iterable[BulkRecord]) -> Iterator[RejectedRow]:
    """Yield the refused items, without those whose condition was false, since a load would put them."""
    for row, record in enumerate(records):
        if record.kind == "error" and record.item is not None:
            yield RejectedRow(row, record.reason, record.message or "", record.item)


@dataclass(frozen=True)
class BulkRecord:
    """Record of a report about one item that was not put.

    Attributes
    ----------
    kind
        ``error`` if the item was refused, ``condition`` if its condition was false.
    reason, message
        The service's code, or the kind if there is no code, and its message.
    item, existing_item
        The item and the one in the table, as DynamoDB JSON; None if the record lacks it.
    rest
        All other fields as JSON, or the whole line if it is not JSON.
    """

    kind: BulkKind
    reason: str
    message: str | None
    item: str | None
    existing_item: str | None
    rest: str | None


def _parse_records(path: str, text: bytes) -> Iterator[BulkRecord]:
    """Yield the records of one object of a report, one per line.

    If a record has no kind, it is derived from the path of the object.
    """
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            members = None
        if isinstance(members, dict):
            yield _record(path, members)
        else:
            yield BulkRecord(_kind(path), _kind(path), None, None, None, line.decode(errors="replace"))


def _records_table(records: Iterable[tuple[str, BulkRecord]]) -> pa.Table:
    """Return records with their objects as rows of a table."""
    rows = [{**vars(record), "object": path} for path, record in records]
    return pa.Table.from_pylist(rows, schema=_REPORT_SCHEMA)


def _record(path: str, members: Mapping[str, Any]) -> BulkRecord:
    items: dict[bool, str] = {}  # The key is true for the item in the table.
    texts: dict[bool, str] = {}  # The key is true for the message.
    other_members = {}
    for name, value in members.items():
        word = name.lower()
        if word.endswith("item") and isinstance(value, dict):
            items["exist" in word] = compact_json(value)
        elif word.endswith(("code", "reason", "message")) and isinstance(value, str):
            texts["message" in word] = value
        else:
            other_members[name] = value
    kind = _kind(f"{path} {texts.get(False, '')}")
    return BulkRecord(
        kind=kind,
        reason=texts.get(False, kind),
        message=texts.get(True),
        item=items.get(False),
        existing_item=items.get(True),
        rest=compact_json(other_members) if other_members else None,
    )


def _kind(text: str) -> BulkKind:
    return "condition" if "condition" in text.lower() else "error"
