"""Say which row was not written, with all it held, so that it can be mended and tried again; keep nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ddbio.core.encode import Encoder
from ddbio.core.schema.field import is_text
from ddbio.core.text.json_text import compact_json


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
    """

    row: int
    rule: str
    reason: str
    item: str


def item_text(row: pa.RecordBatch, *, nulls: bool) -> str:
    """Return one row as DynamoDB JSON; a value that DynamoDB has no form for is its text as a number, which none takes.

    Parameters
    ----------
    nulls
        Write null columns as NULL: to an update they mean more than missing ones.
    """
    members = [_member(row.select([name]), nulls=nulls) for name in row.schema.names]
    return "{" + ",".join(member for member in members if member) + "}"


def _member(column: pa.RecordBatch, *, nulls: bool) -> str:
    if nulls and column.column(0).null_count:
        return compact_json({column.schema.names[0]: {"NULL": True}})[1:-1]
    encoded = Encoder(column.schema).encode(column)
    if not encoded.refusals:
        return encoded.buffer.tobytes().decode()[1:-1]
    return compact_json({column.schema.names[0]: {"N": _shown(column.column(0)[0])}})[1:-1]


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
