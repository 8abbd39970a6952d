"""Parse the service's reports on items that a bulk put did not put.

AWS has not published the format, so names of members are guessed. What is not understood stays in the record as text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.items.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BulkKind = Literal["error", "condition"]

REPORT_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("kind", "reason", "message", "item", "existing_item", "rest", "object")]
)
"""A row per item that was not put; ``item``, ``existing_item`` and ``rest`` are JSON."""


@dataclass(frozen=True)
class BulkRecord:
    """Hold what a report says about one item that was not put.

    Attributes
    ----------
    kind
        ``error`` if the item was refused, ``condition`` if its condition did not hold.
    reason, message
        The service's code, or the kind if there is no code, and its message.
    item, existing_item
        The item and the one in the table, as DynamoDB JSON; None if the record does not have it.
    rest
        All other members as JSON, or the whole line if it is not JSON.
    """

    kind: BulkKind
    reason: str
    message: str | None
    item: str | None
    existing_item: str | None
    rest: str | None


def parse_records(path: str, text: bytes) -> Iterator[BulkRecord]:
    """Yield the records of one object of a report, one for each line.

    The kind of a record that does not name it comes from the path of the object.
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


def records_table(found: Iterable[tuple[str, BulkRecord]]) -> pa.Table:
    """Return records, each with its object, as the rows of a table."""
    rows = [{**vars(record), "object": path} for path, record in found]
    return pa.Table.from_pylist(rows, schema=REPORT_SCHEMA)


def _record(path: str, members: Mapping[str, Any]) -> BulkRecord:
    items: dict[bool, str] = {}  # By whether it is the item in the table.
    texts: dict[bool, str] = {}  # By whether it is the message.
    rest = {}
    for name, value in members.items():
        word = name.lower()
        if word.endswith("item") and isinstance(value, dict):
            items["exist" in word] = compact_json(value)
        elif word.endswith(("code", "reason", "message")) and isinstance(value, str):
            texts["message" in word] = value
        else:
            rest[name] = value
    kind = _kind(f"{path} {texts.get(False, '')}")
    return BulkRecord(
        kind=kind,
        reason=texts.get(False, kind),
        message=texts.get(True),
        item=items.get(False),
        existing_item=items.get(True),
        rest=compact_json(rest) if rest else None,
    )


def _kind(text: str) -> BulkKind:
    return "condition" if "condition" in text.lower() else "error"
