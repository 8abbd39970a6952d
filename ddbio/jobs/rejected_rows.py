"""Rows that cannot be written: where each came from, what it broke, all that it held, and where rows are kept."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.commit.contents import require_target
from ddbio.errors import DecodeError
from ddbio.items.attribute import check_item
from ddbio.items.encode import Encoder
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, is_nulls, is_text, name_of_field
from ddbio.jobs.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.items.encode import Refusal
    from ddbio.items.raw_items import RawItems
    from ddbio.load.plan import WritePlan
    from ddbio.options import ConnectionOptions


def require_reject_place(reject_to: str | None, options: ConnectionOptions) -> None:
    """Refuse a folder for rejects that other programs keep a record of; errors are those of ``require_target``."""
    if reject_to is not None:
        require_target(open_store(reject_to, options))


_BATCH_ROW = re.compile(r"^row \d+: ")

COLUMNS = ("row", "file", "file_row", "line", "rule", "reason", "item")
"""What a file of rejects says of each row, in this order."""


@dataclass(frozen=True)
class RejectedRow:
    """Hold a row that cannot be written, and why; a file of rejects has the same fields.

    Attributes
    ----------
    row
        The row's number in the source, from 0.
    rule
        The rule of the encoder that it broke, or the service's error code.
    reason
        The reason in words.
    item
        The whole row as DynamoDB JSON, even if the request would have sent only a part of it.
    file, file_row
        The file that the row came from, and its number in the file, from 0; None if unknown.
    line
        The line of a file of text on which the row begins, from 1; None if unknown.
    """

    row: int
    rule: str
    reason: str
    item: str
    file: str | None = None
    file_row: int | None = None
    line: int | None = None


def reject_line(row: RejectedRow) -> bytes:
    """Return a rejected row as a line of JSON."""
    head = json.dumps({name: getattr(row, name) for name in COLUMNS[:-1]}, ensure_ascii=False)[:-1]
    return f'{head},"item":{row.item}}}\n'.encode()


def rejected_again(row: RejectedRow, item: Any, plan: WritePlan) -> RejectedRow | None:
    """Return a row that cannot even become columns of another write, with the rule it breaks; None if it can.

    The reason of an item that is no legal DynamoDB JSON stays.
    """
    try:
        check_item(item)
    except DecodeError:
        return row
    problem = _missing_of(item, plan)
    return None if problem is None else replace(row, rule=problem[0], reason=problem[1])


def _missing_of(item: Mapping[str, Any], plan: WritePlan) -> tuple[str, str] | None:
    """Return the rule and reason if an item lacks an attribute that the write needs."""
    for name, tag in plan.key_types:
        found = item.get(name, {"NULL": True})
        if "NULL" in found:
            return "key_missing", f"{name}: the key is missing: every item needs it"
        if tag not in found:
            return "key_type", f"{name}: a key of type {tag} cannot be {compact_json(found)}"
    if plan.operation_by is not None and plan.operation_by not in item:
        return "operation", f"the row has no {plan.operation_by!r}: write put, delete, update"
    if plan.newer_by is not None and plan.newer_by not in item:
        return "newer_by", "the row has no value to compare by newer_by"
    return None


def refused_row(rows: pa.RecordBatch | RawItems, refusal: Refusal, first_row: int, *, nulls: bool) -> RejectedRow:
    """Return the row that an encoder refused; ``rows`` are numbered from ``first_row``; see ``item_text``."""
    # The message begins with the row's number in its batch; rejects number all rows.
    message, item = _BATCH_ROW.sub("", refusal.message), row_text(rows, refusal.row, nulls=nulls)
    # Half of a surrogate pair, which may be the reason, stays an escape.
    message, item = (text.encode(errors="backslashreplace").decode() for text in (message, item))
    return RejectedRow(first_row + refusal.row, refusal.rule, message, item)


def row_text(rows: pa.RecordBatch | RawItems, row: int, *, nulls: bool) -> str:
    """Return one row as DynamoDB JSON; see ``item_text``."""
    if isinstance(rows, pa.RecordBatch):
        return item_text(rows.slice(row, 1), nulls=nulls)
    return rows.item_text(row)


def item_text(row: pa.RecordBatch, *, nulls: bool) -> str:
    """Return one row as DynamoDB JSON; a value that DynamoDB cannot store becomes a number that nothing accepts.

    Parameters
    ----------
    nulls
        Write null columns as NULL: an update removes their attributes, unlike those of missing columns. Of a row that
        names its nulls, those that it names.
    """
    rescued = _member(row.select([RESCUE_NAME])) if RESCUE_NAME in row.schema.names else ""
    elsewhere = parse_json(b"{" + rescued.encode(errors="backslashreplace") + b"}")
    named = next((row.column(each.name)[0].as_py() or () for each in row.schema if is_nulls(each)), None)
    members = []
    for field in row.schema:
        name = name_of_field(field)
        is_null = nulls and row.column(field.name).null_count and (named is None or name in named)
        if field.name == RESCUE_NAME or is_nulls(field):
            continue
        if is_null and name not in elsewhere:
            members.append(compact_json({name: {"NULL": True}})[1:-1])
        else:
            members.append(_member(row.select([field.name])))
    return "{" + ",".join(member for member in (*members, rescued) if member) + "}"


def _member(column: pa.RecordBatch) -> str:
    encoded = Encoder(column.schema).encode(column)
    if not encoded.refusals:
        return encoded.buffer.tobytes().decode()[1:-1]
    field, value = column.schema.field(0), column.column(0)[0]
    is_rescue = field.name == RESCUE_NAME
    if is_rescue or (field.metadata or {}).get(DDB_TYPE) == b"JSON":
        with suppress(DecodeError):
            found = parse_json(value.as_py().encode())
            if isinstance(found, dict) or not is_rescue:
                return compact_json(found if is_rescue else {name_of_field(field): found})[1:-1]
    return compact_json({name_of_field(field): {"N": _shown(value)}})[1:-1]


def _shown(value: Any) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        pass
    # Broken UTF-8, and times that Python has no object for.
    if is_text(value.type):
        return str(value.cast(pa.large_binary()).as_py())
    is_short = pa.types.is_time32(value.type) or pa.types.is_date32(value.type)
    try:
        return str(value.cast(pa.int32() if is_short else pa.int64()).as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return f"{value.type} that no text shows"
