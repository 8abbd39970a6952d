"""Say which row was not written, with all it held, so that it can be mended and tried again; keep nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.encode import Encoder
from ddbio.core.schema.arrow import RESCUE_NAME, is_text, name_of_field
from ddbio.core.text.json_text import compact_json, parse_json

if TYPE_CHECKING:
    from ddbio.core.raw_items import RawItems


@dataclass(frozen=True)
class RejectedRow:
    """Hold a row that was not written, and why.

    Attributes
    ----------
    row
        Its number in the source, counted from 0.
    rule
        What it broke: a rule of the encoder, or the service's code.
    reason
        The same in words.
    item
        The whole row as DynamoDB JSON, whatever of it the write would have sent.
    file, file_row
        The file that it came of, and its number within that, counted from 0; None where they are not known.
    """

    row: int
    rule: str
    reason: str
    item: str
    file: str | None = None
    file_row: int | None = None


def row_text(rows: pa.RecordBatch | RawItems, row: int, *, nulls: bool) -> str:
    """Return one of some rows as DynamoDB JSON; see ``item_text``."""
    if isinstance(rows, pa.RecordBatch):
        return item_text(rows.slice(row, 1), nulls=nulls)
    return rows.item_text(row)


def item_text(row: pa.RecordBatch, *, nulls: bool) -> str:
    """Return one row as DynamoDB JSON; a value that DynamoDB has no form for is its text as a number, which none takes.

    Parameters
    ----------
    nulls
        Write null columns as NULL: to an update they mean more than missing ones.
    """
    rescued = _member(row.select([RESCUE_NAME])) if RESCUE_NAME in row.schema.names else ""
    elsewhere = parse_json(b"{" + rescued.encode() + b"}")
    members = []
    for field in row.schema:
        name = name_of_field(field)
        if field.name != RESCUE_NAME and nulls and row.column(field.name).null_count and name not in elsewhere:
            members.append(compact_json({name: {"NULL": True}})[1:-1])
        elif field.name != RESCUE_NAME:
            members.append(_member(row.select([field.name])))
    return "{" + ",".join(member for member in (*members, rescued) if member) + "}"


def _member(column: pa.RecordBatch) -> str:
    encoded = Encoder(column.schema).encode(column)
    if not encoded.refusals:
        return encoded.buffer.tobytes().decode()[1:-1]
    return compact_json({name_of_field(column.schema.field(0)): {"N": _shown(column.column(0)[0])}})[1:-1]


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
