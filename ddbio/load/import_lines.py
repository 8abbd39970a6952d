"""Encode rows as lines of the files that the service imports: DynamoDB JSON, Ion or CSV.

A row that is no item of the table is a refusal. The members beside ``Item`` that hold a line's condition are named as
in PutItem; no such file has been put by the service yet. In CSV only keys have types, every other column becomes text,
and no attribute can be left out.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ddbio.errors import OptionError
from ddbio.items.encode import EncodeOptions, Encoder, Refusal
from ddbio.items.ion import OPENING, to_ion_lines
from ddbio.items.ion_values import ion_to_json_lines
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.load.requests import EncodedRows, ItemEncoder, absent_condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    from ddbio.aws.table_description import IndexKey

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Offsets: TypeAlias = npt.NDArray[np.int64]

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CsvOptions.html
MAX_COLUMNS = 255
_NAME_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - {'"', ","}
_NEWLINE = ord("\n")
_WRITTEN_BY_TAG = {"S": "text", "N": "numbers"}


@dataclass(frozen=True)
class LineFormat:
    """Describe how a line is written, and what its item is checked for.

    Attributes
    ----------
    key
        Names and types of the key, the partition key first.
    format
        ``dynamodb_json``, ``ion`` or ``csv``.
    index_keys
        Keys of indexes. An item may lack their attributes; if it has one, its type and size must be right.
    if_absent, newer_by
        The condition of each line: no item with its key exists, or only one whose attribute ``newer_by`` is smaller.
    delimiter, csv_strings
        How CSV is written; see :class:`ddbio.load.import_lines.CsvColumns`.
    """

    key: tuple[tuple[str, str], ...]
    format: str = "dynamodb_json"
    index_keys: tuple[IndexKey, ...] = ()
    if_absent: bool = False
    newer_by: str | None = None
    delimiter: str = ","
    csv_strings: bool = False

    @property
    def condition(self) -> dict[str, object]:
        """Return the members that hold the condition; they are the same in each line."""
        if not self.if_absent and self.newer_by is None:
            return {}
        return absent_condition(self.key[0][0], self.newer_by)

    @property
    def tags(self) -> dict[str, str]:
        """Return the types of the attributes of all keys."""
        return {**{key.name: key.tag for key in self.index_keys}, **dict(self.key)}

    def item_of(self, line: bytes, header: bytes) -> dict[str, Any]:
        """Return the item of a line."""
        if self.format == "csv":
            names, values = csv.reader([header.decode(), line.decode()], delimiter=self.delimiter)
            return {name: {self.tags.get(name, "S"): value} for name, value in zip(names, values, strict=True)}
        item: dict[str, Any] = json.loads(ion_to_json_lines(line) if self.format == "ion" else line)["Item"]
        return item


@dataclass(frozen=True)
class EncodedLines:
    """Hold the lines of a batch in one buffer; valid until the next batch is encoded.

    Attributes
    ----------
    items
        The rows as the table will hold them: CSV changes types.
    """

    items: pa.RecordBatch
    text: Bytes
    offsets: Offsets
    refusals: Sequence[Refusal]


class LineEncoder(Protocol):
    """Encode batches of one schema as lines. An instance belongs to one thread.

    Attributes
    ----------
    header
        The first bytes of each object.
    """

    header: bytes

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        """Return the line of each row, and the rows that cannot be items of the table."""
        ...


def line_encoder(schema: pa.Schema, line_format: LineFormat) -> LineEncoder:
    """Return the encoder for rows of a schema.

    Raises
    ------
    OptionError
        If the rows lack the column ``newer_by``, or have a column that CSV cannot hold.
    """
    if line_format.format == "csv":
        return _CsvLineEncoder(schema, line_format)
    if line_format.newer_by is None:
        return _PlainLineEncoder(schema, line_format)
    if line_format.newer_by not in schema.names:
        raise OptionError(f"newer_by: the rows have no column {line_format.newer_by!r}, but {', '.join(schema.names)}")
    return _ComparingLineEncoder(schema, line_format, line_format.newer_by)


class _PlainLineEncoder:
    header = b""

    def __init__(self, schema: pa.Schema, line_format: LineFormat) -> None:
        self._encoder = Encoder(
            schema, keys=dict(line_format.key), options=EncodeOptions(index_keys=line_format.index_keys)
        )
        self._is_ion = line_format.format == "ion"
        self._edges = (OPENING, b"}\n") if self._is_ion else _edges(line_format)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        prefix, suffix = self._edges
        encoded = self._encoder.encode_view(rows, prefix=prefix, suffix=suffix)
        if not self._is_ion:
            return EncodedLines(rows, encoded.buffer, encoded.offsets, encoded.refusals)
        text = np.frombuffer(to_ion_lines(encoded.buffer.tobytes()), np.uint8)
        return EncodedLines(rows, text, line_offsets(text), encoded.refusals)


class _ComparingLineEncoder:
    """Add to each line the value of ``newer_by``, which its condition compares."""

    header = b""

    def __init__(self, schema: pa.Schema, line_format: LineFormat, newer_by: str) -> None:
        self._parts = ItemEncoder(schema, schema.names, dict(line_format.key), newer_by, line_format.index_keys)
        self._edges = _edges(line_format)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        made = self._parts.encode(rows)
        return EncodedLines(rows, *_framed(made, *self._edges), made.refusals)


class _CsvLineEncoder:
    def __init__(self, schema: pa.Schema, line_format: LineFormat) -> None:
        self._columns = CsvColumns(schema, line_format.tags, line_format.delimiter, as_text=line_format.csv_strings)
        self.header = self._columns.header
        options = EncodeOptions(index_keys=line_format.index_keys)
        self._encoder = Encoder(self._columns.schema, keys=dict(line_format.key), options=options)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        items = self._columns.items(rows)
        # Only the encoder knows which items DynamoDB takes; the text it makes is not used.
        refusals = (*self._encoder.encode_view(items).refusals, *self._columns.refusals(items))
        return EncodedLines(items, *self._columns.lines(items), refusals)


def _edges(line_format: LineFormat) -> tuple[bytes, bytes]:
    """Return the text before and after an item."""
    members = compact_json(line_format.condition)[1:-1]
    return b'{"Item":', f"{members and ','}{members}}}\n".encode()


def _framed(made: EncodedRows, prefix: bytes, suffix: bytes) -> tuple[Bytes, Offsets]:
    kind = pa.large_binary()
    parts: Any = pa.Array.from_buffers(
        kind, len(made.offsets) - 1, [None, pa.py_buffer(made.offsets.data), pa.py_buffer(made.texts.data)]
    )
    edges: list[Any] = [pa.scalar(each, kind) for each in (prefix, suffix, b"")]
    lines: Any = pc.binary_join_element_wise(edges[0], parts, *edges[1:])
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(lines) + 1]
    return np.frombuffer(text, np.uint8)[: ends[-1]], ends


class CsvColumns:
    """Convert the columns of a schema to those of CSV.

    Parameters
    ----------
    tags
        Types of the key attributes of the table and of its indexes.
    as_text
        Write numbers, booleans and dates as text if they are in no key.

    Attributes
    ----------
    schema
        Columns of the items that the service makes of the lines.
    header
        The first line of each object.

    Raises
    ------
    OptionError
        If CSV cannot hold a column.
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
        """Return rows as the items that the service will make of them."""
        columns: list[Any] = [
            column if column.type.equals(field.type) else pc.cast(column, field.type)
            for column, field in zip(rows.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def refusals(self, items: pa.RecordBatch) -> list[Refusal]:
        """Return, for each column, the first row without a value or with a line break in its value."""
        return sorted(_refusals(items), key=lambda refusal: refusal.row)

    def lines(self, items: pa.RecordBatch) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the lines of the rows in one buffer, and where each begins."""
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
