"""Read what the service says of the items that a bulk put did not put; guesses names, since AWS has published none.

Whatever of a record is not understood is kept as text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BulkKind = Literal["error", "condition"]

REPORT_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("kind", "reason", "message", "item", "existing_item", "rest", "object")]
)
"""A row per item that was not put; ``item``, ``existing_item`` and ``rest`` are JSON."""


@dataclass(frozen=True)
class BulkRecord:
    """Hold what is said of one item that was not put.

    Attributes
    ----------
    kind
        Whether it was refused, or its condition did not hold.
    reason, message
        The service's code, or the kind where it gives none, and its words.
    item, existing_item
        The item, and the one that is there instead, as DynamoDB JSON; None where the record holds none.
    rest
        All other members as JSON, or the whole line where it is none.
    """

    kind: BulkKind
    reason: str
    message: str | None
    item: str | None
    existing_item: str | None
    rest: str | None


def parse_records(path: str, text: bytes) -> Iterator[BulkRecord]:
    """Yield the records of a report's object, one a line; its path tells their kind where they do not."""
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            stated = json.loads(line)
        except ValueError:
            stated = None
        if isinstance(stated, dict):
            yield _record(path, stated)
        else:
            yield BulkRecord(_kind(path), _kind(path), None, None, None, line.decode(errors="replace"))


def records_table(found: Iterable[tuple[str, BulkRecord]]) -> pa.Table:
    """Return records, each with its object, as rows."""
    rows = [{**vars(record), "object": path} for path, record in found]
    return pa.Table.from_pylist(rows, schema=REPORT_SCHEMA)


def _record(path: str, stated: Mapping[str, Any]) -> BulkRecord:
    items: dict[bool, str] = {}  # By whether it is the one that is there.
    texts: dict[bool, str] = {}  # By whether it is words.
    rest = {}
    for name, value in stated.items():
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


def _kind(told: str) -> BulkKind:
    return "condition" if "condition" in told.lower() else "error"
