"""Rejected rows: their source, the violated rule, their content, and the target of rejects."""

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


def require_reject_location(reject_to: str | None, options: ConnectionOptions) -> None:
    """Raise if other programs manage the folder for rejects. Errors are those of ``require_target``."""
    if reject_to is not None:
        require_target(open_store(reject_to, options))


_BATCH_ROW = re.compile(r"^row \d+: ")

COLUMNS = ("row", "file", "file_row", "line", "rule", "reason", "item")
"""Columns of a file of rejects, in this order."""


@dataclass(frozen=True)
class RejectedRow:
    """Rejected row and the reason. A file of rejects has the same fields.

    Attributes
    ----------
    row
        The row's number in the source, from 0.
    rule
        The violated rule of the encoder, or the service's error code.
    reason
        The reason as text.
    item
        The entire row as DynamoDB JSON, even if only a part of it would have been sent.
    file, file_row
        The source file of the row, and its number in the file, from 0; None if unknown.
    line
        First line of the row in a text file, from 1; None if unknown.
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
    """Return the rejected row if its item violates a rule of another write; None otherwise.

    The reason of an item that is not valid DynamoDB JSON is kept.
    """
    try:
        check_item(item)
    except DecodeError:
        return row
    problem = _missing_of(item, plan)
    return None if problem is None else replace(row, rule=problem[0], reason=problem[1])


def _missing_of(item: Mapping[str, Any], plan: WritePlan) -> tuple[str, str] | None:
    """Return the rule and the reason if an item lacks a required attribute of the write."""
    for name, tag in plan.key_types:
        value = item.get(name, {"NULL": True})
        if "NULL" in value:
            return "key_missing", f"{name}: the key is missing: every item needs it"
        if tag not in value:
            return "key_type", f"{name}: a key of type {tag} cannot be {compact_json(value)}"
    if plan.operation_by is not None and plan.operation_by not in item:
        return "operation", f"the row has no {plan.operation_by!r}: write put, delete, update"
    if plan.newer_by is not None and plan.newer_by not in item:
        return "newer_by", "the row has no value to compare by newer_by"
    return None


def refused_row(rows: pa.RecordBatch | RawItems, refusal: Refusal, first_row: int, *, nulls: bool) -> RejectedRow:
    """Return the row that an encoder refused. ``rows`` are numbered from ``first_row``; see ``item_text``."""
    # The message starts with the row's number in its batch. Rejects number all rows.
    message, item = _BATCH_ROW.sub("", refusal.message), row_text(rows, refusal.row, nulls=nulls)
    # Half of a surrogate pair, which may be the reason, remains an escape sequence.
    message, item = (text.encode(errors="backslashreplace").decode() for text in (message, item))
    return RejectedRow(first_row + refusal.row, refusal.rule, message, item)


def row_text(rows: pa.RecordBatch | RawItems, row: int, *, nulls: bool) -> str:
    """Return one row as DynamoDB JSON; see ``item_text``."""
    if isinstance(rows, pa.RecordBatch):
        return item_text(rows.slice(row, 1), nulls=nulls)
    return rows.item_text(row)


def item_text(row: pa.RecordBatch, *, nulls: bool) -> str:
    """Return a row as DynamoDB JSON. A value that DynamoDB cannot store becomes an invalid number.

    Parameters
    ----------
    nulls
        Whether null columns are written as NULL: an update removes their attributes, but ignores missing columns. For a
        row that names its nulls, only those are written.
    """
    rescued = _member(row.select([RESCUE_NAME])) if RESCUE_NAME in row.schema.names else ""
    elsewhere = parse_json(b"{" + rescued.encode(errors="backslashreplace") + b"}")
    named = next((row.column(field.name)[0].as_py() or () for field in row.schema if is_nulls(field)), None)
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
            parsed = parse_json(value.as_py().encode())
            if isinstance(parsed, dict) or not is_rescue:
                return compact_json(parsed if is_rescue else {name_of_field(field): parsed})[1:-1]
    return compact_json({name_of_field(field): {"N": _number_text(value)}})[1:-1]


def _number_text(value: Any) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        pass
    # Invalid UTF-8, and times that Python cannot represent.
    if is_text(value.type):
        return str(value.cast(pa.large_binary()).as_py())
    is_short = pa.types.is_time32(value.type) or pa.types.is_date32(value.type)
    try:
        return str(value.cast(pa.int32() if is_short else pa.int64()).as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return f"{value.type} that no text shows"
