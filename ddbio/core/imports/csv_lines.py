"""Make rows the lines of CSV that the service imports; refuses what would be another item there.

In CSV only keys have types: every other column becomes text. It has no way to leave an attribute out.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ddbio.core.encode import Refusal
from ddbio.core.schema.field import RESCUE_NAME, name_of_field
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CsvOptions.html
MAX_COLUMNS = 255
_NAME_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - {'"', ","}
_NEWLINE = ord("\n")
_WRITTEN_BY_TAG = {"S": "text", "N": "numbers"}


class CsvColumns:
    """Hold how the columns of a schema become those of CSV.

    Parameters
    ----------
    tags
        Types of the attributes of keys, the table's and its indexes'.
    as_text
        Write numbers, booleans and dates that are in no key as text.

    Attributes
    ----------
    schema
        Columns of the items that the service makes of the lines.
    header
        The first line of each object.

    Raises
    ------
    OptionError
        If a column cannot be told in CSV.
    """

    def __init__(self, schema: pa.Schema, tags: Mapping[str, str], delimiter: str, *, as_text: bool) -> None:
        names = [name_of_field(field) for field in schema]
        if len(names) > MAX_COLUMNS:
            raise OptionError(f"CSV for an import has at most {MAX_COLUMNS} columns, the rows have {len(names)}")
        for name in names:
            if not name or not _NAME_CHARACTERS.issuperset(name) or delimiter in name or name == RESCUE_NAME:
                raise OptionError(f"column {name!r} cannot be named in the first line of CSV: use dynamodb_json")
        self.schema = pa.schema(
            [
                pa.field(name, _type(name, field.type, tags.get(name), as_text=as_text))
                for name, field in zip(names, schema, strict=True)
            ]
        )
        self.header = f"{delimiter.join(names)}\n".encode()
        self._options = pyarrow.csv.WriteOptions(include_header=False, delimiter=delimiter)

    def items(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the items that the service makes of rows."""
        columns: list[Any] = [
            column if column.type.equals(field.type) else pc.cast(column, field.type)
            for column, field in zip(rows.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def refusals(self, items: pa.RecordBatch) -> list[Refusal]:
        """Return the first row of each column that lacks a value, or has one with a line's end in it."""
        return sorted(_refusals(items), key=lambda refusal: refusal.row)

    def lines(self, items: pa.RecordBatch) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return a line for each row, back to back, and where each begins."""
        sink = io.BytesIO()
        pyarrow.csv.write_csv(items, sink, self._options)
        text = np.frombuffer(sink.getbuffer(), np.uint8)
        return text, line_offsets(text)


def line_offsets(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return where the lines of a text begin, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(text == _NEWLINE) + 1])


def _type(name: str, kind: pa.DataType, tag: str | None, *, as_text: bool) -> pa.DataType:
    is_text = _is_text(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if tag is not None:
        if tag not in _WRITTEN_BY_TAG or not (is_text if tag == "S" else is_number):
            wanted = _WRITTEN_BY_TAG.get(tag, "in no CSV")
            raise OptionError(f"key {name!r} of type {tag} is {wanted}, but the column is {kind}: use dynamodb_json")
        return pa.string() if is_text else kind
    if is_text or (as_text and (is_number or pa.types.is_boolean(kind) or pa.types.is_date(kind))):
        return pa.string()
    ways = "csv_strings writes numbers, booleans and dates as text" if not as_text else "make it text first"
    raise OptionError(f"column {name!r} of {kind} would be text in the table: {ways}, dynamodb_json keeps its type")


def _is_text(kind: pa.DataType) -> bool:
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value)


def _refusals(items: pa.RecordBatch) -> Iterator[Refusal]:
    for name, column in zip(items.schema.names, items.columns, strict=True):
        wrong: Any = pc.is_null(column)
        rule, what = "csv_null", "it is null, and CSV can leave no attribute out: use dynamodb_json"
        if not column.null_count and pa.types.is_string(column.type):
            wrong = pc.match_substring_regex(column, "[\r\n]")
            rule, what = "csv_newline", "an item of CSV is one line, and this has more: use dynamodb_json"
        row = pc.index(wrong, pa.scalar(value=True)).as_py()
        if row >= 0:
            yield Refusal(row, name, rule, f"row {row}: {name}: {what}")
