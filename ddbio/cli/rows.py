"""Arrow rows as lines of JSON or as CSV, with exact numbers."""

from __future__ import annotations

import base64
import csv
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.items.row_lines import JsonLinePrinter
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TextIO


def print_json(batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write a line of JSON for each row. Nulls are omitted."""
    printer = None
    for batch in batches:
        if printer is None or not batch.schema.equals(printer.schema):
            printer = JsonLinePrinter(batch.schema)
        for rows, lines in printer.print_pieces(batch):
            if lines is None:
                out.writelines(python_lines(rows))
            else:
                out.write(lines.decode())


def python_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the line of each row in Python. It is the reference for the compiled loops, and prints rows they skip."""
    kinds = {field.name: field.type for field in batch.schema}
    for row in batch.to_pylist():
        rescued = row.pop(RESCUE_NAME, None)
        members = _members(row, kinds)
        if rescued is not None:
            # It is already JSON.
            members.append(f"{json.dumps(RESCUE_NAME)}:{rescued}")
        yield f"{{{','.join(members)}}}\n"


def print_csv(batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write a header and a line of CSV for each row. Maps and lists are JSON, nulls are empty."""
    writer = csv.writer(out, lineterminator="\n")
    is_begun = False
    for batch in batches:
        if not is_begun:
            writer.writerow(batch.schema.names)
            is_begun = True
        columns = [column.to_pylist() for column in batch.columns]
        kinds = batch.schema.types
        writer.writerows(map(_cell, row, kinds) for row in zip(*columns, strict=True))


def _members(values: dict[str, Any], kinds: Mapping[str, Any]) -> list[str]:
    shown = ((name, value) for name, value in values.items() if value is not None)
    return [f"{json.dumps(name, ensure_ascii=False)}:{_json(value, kinds[name])}" for name, value in shown]


def _json(value: Any, kind: Any) -> str:
    if isinstance(value, dict):
        return f"{{{','.join(_members(value, {field.name: field.type for field in kind}))}}}"
    if isinstance(value, list):
        if pa.types.is_map(kind):
            entries = dict(value)
            return f"{{{','.join(_members(entries, dict.fromkeys(entries, kind.item_type)))}}}"
        return f"[{','.join(_json(item, kind.value_type) for item in value)}]"
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    elif isinstance(value, (datetime, date, time)):
        value = value.isoformat()
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        # All values of a column have the same scale: remove the zeros that it adds to a number.
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    # The text of integers and floating-point numbers is a JSON number.
    return str(value)


def _cell(value: Any, kind: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return _json(value, kind).strip('"')
