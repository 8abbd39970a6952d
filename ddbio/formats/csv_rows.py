"""CSV: reads the cells of complete records as text, then infers the columns or applies the declared ones.

The first record has the column names.
"""

from __future__ import annotations

import base64
import binascii
import functools
import io
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ddbio.errors import DecodeError
from ddbio.formats.csv_records import MAX_HEADER_BYTES, check_quotes, complete_records_end, header_names, record_starts
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, ReadOptions, TextRows
from ddbio.formats.json_rows import attribute_of, read_json
from ddbio.formats.text_ranges import lines_at
from ddbio.formats.text_reader import TextReader
from ddbio.formats.text_types import cells_of_column, column_of_cells, joined_columns
from ddbio.formats.text_writers import TEXT_ENDINGS, write_csv
from ddbio.items.json_text import compact_json, parse_documents
from ddbio.items.plain_json import csv_type, restore
from ddbio.items.schema.arrow import tag_of_field, tagged_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddbio.formats.file_format import Block
    from ddbio.formats.row_lines import Lines

# A row that is too large for an item is rejected by itself, so it must be read.
_BLOCK_BYTES = 16 * 1024 * 1024
_BAD_ENCODING = re.compile(r"In CSV column #([0-9]+): .*invalid UTF8")
_BAD_RECORD = re.compile(r"(?:CSV parse error: )?Row #([0-9]+): ")
_NO_OPTIONS = ReadOptions()
_VALUE = "value"


class CsvRows(TextRows):
    """CSV reader that works block by block."""

    has_header = True
    needs_starts = True
    _head: bytes | None = None

    @cached_property
    def _names(self) -> list[str]:
        return header_names(self._head or b"")

    def begin(self, head: bytes) -> None:
        """Read the column names from the start of a file."""
        self._header(head)

    def cut(self, text: bytes) -> int:
        """Return the end of the last record that is complete."""
        return complete_records_end(text)

    @classmethod
    def joined(cls, columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
        """Return columns that fit the cells of all of these."""
        return joined_columns(columns)

    def columns(self, blocks: Iterable[Block]) -> pa.Schema | None:
        """Return columns that fit the cells of all blocks; if all columns are declared, the first block is enough."""
        return self.joined(self._columns_of_each(blocks))

    def _columns_of_each(self, blocks: Iterable[Block]) -> Iterator[pa.Schema]:
        for block in blocks:
            yield block.apply(lambda text: csv_columns(text, self._options, self._header(text)))
            if self._options.types.keys() >= set(self._names):
                return

    def rows(self, text: bytes, columns: pa.Schema | None) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next block."""
        names, declared = self._header(text), self._options.schema
        if declared is not None:
            return read_csv_as(text, declared, names).to_batches(BATCH_ROWS)
        return read_csv(text, self._options, names, columns).to_batches(BATCH_ROWS)

    def lines(self, text: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the first lines of the records; None if the number of records differs from that of the rows."""
        has_header = first_line == 1
        records, lines = rows + has_header, text.count(b"\n") + (not text.endswith(b"\n"))
        if lines == records and text.count(b"\r") == text.count(b"\r\n"):
            # Each record takes at least one line, and no line remains for more.
            return range(first_line + has_header, first_line + records)
        starts = record_starts(text)
        return lines_at(text, starts[has_header:], first_line) if len(starts) == records else None

    def _header(self, text: bytes) -> list[str] | None:
        """Return the column names if the text does not start with them."""
        if self._head is not None:
            return self._names
        self._head = text[:MAX_HEADER_BYTES]
        return None


def read_csv(
    data: bytes,
    options: ReadOptions = _NO_OPTIONS,
    names: Sequence[str] | None = None,
    columns: pa.Schema | None = None,
) -> pa.Table:
    """Return the rows of CSV. A column has numbers, booleans or dates if all its cells do; otherwise it is raw text.

    No cell is missing in a column of text. In other columns, empty cells and ``NULL_WORDS`` are missing. Times are
    text, and
    so are numbers that start with +, 0x or needless zeros.

    Parameters
    ----------
    options
        A key of type S is read as text. A key of type N must be a number in every row, so another cell rejects only its
        row; so does a cell that is not a value of its declared column. The words of ``null_values`` are missing in all
        columns.
    names
        The column names if the text does not start with them.
    columns
        The result of :func:`joined_columns` for the columns of all parts of a file, or of all files.

    Raises
    ------
    DecodeError
        If the text is not UTF-8 or not CSV.
    """
    table = _read_cells(data, names, options)
    if len(set(table.schema.names)) < table.num_columns:
        return table
    columns_by_name = {} if columns is None else {column.name: column for column in columns}
    converted = []
    for name, cells in zip(table.schema.names, table.columns, strict=True):
        if name in options.types:
            converted.append(_declared_column(cells, options.types[name].with_name(name)))
        else:
            converted.append(
                cells_of_column(columns_by_name.get(name) or column_of_cells(name, cells, options), cells, options)
            )
    return pa.Table.from_arrays([array for _, array in converted], schema=pa.schema([field for field, _ in converted]))


def csv_columns(data: bytes, options: ReadOptions = _NO_OPTIONS, names: Sequence[str] | None = None) -> pa.Schema:
    """Return columns that fit the cells of CSV, to be joined with those of other parts; see :func:`read_csv`."""
    table = _read_cells(data, names, options)
    columns = zip(table.schema.names, table.columns, strict=True)
    return pa.schema([column_of_cells(name, cells, options) for name, cells in columns])


def _read_cells(data: bytes, names: Sequence[str] | None, options: ReadOptions) -> pa.Table:
    """Return all cells as text; cells that are missing in every type of column are null."""
    column_names = header_names(data) if names is None else names
    converting = pa.csv.ConvertOptions(column_types=dict.fromkeys(column_names, pa.string()))
    if options.null_values is not None:
        converting.null_values, converting.strings_can_be_null = list(options.null_values), True
    table = _parse(data, names, converting)
    try:
        _ = table.schema.names
    except UnicodeDecodeError:
        raise DecodeError("the name of a column is not UTF-8: write the file in UTF-8") from None
    return table


def _declared_column(cells: pa.ChunkedArray[Any], field: pa.Field[Any]) -> tuple[pa.Field[Any], Any]:
    """Return cells as their declared column; an empty cell is null, except in a column of text.

    A cell that is not a value of the column is kept unchanged, so that the write refuses its row.
    """
    name, tag = field.name, tag_of_field(field)
    if tag == "S":
        return tagged_field(name, pa.string(), "S"), cells
    trimmed = pc.utf8_trim_whitespace(cells)
    texts: Any = pc.if_else(pc.is_in(trimmed, pa.array([""])), pa.scalar(None, pa.string()), trimmed)
    if tag == "N":
        return tagged_field(name, pa.string(), "N"), texts
    values = [None if text is None else _value_of_cell(text, field) for text in texts.to_pylist()]
    return tagged_field(name, pa.string(), "JSON"), pa.chunked_array([pa.array(values, pa.string())])


def _value_of_cell(text: str, field: pa.Field[Any]) -> str:
    """Return a cell as the JSON of an attribute value; a cell of another type than declared gives an invalid text."""
    tag = tag_of_field(field)
    if tag == "JSON":
        return text
    value_json: dict[str, Any] = {}
    try:
        if tag == "BOOL":
            value_json = {tag: {"true": True, "false": False}[text.lower()]}
        elif tag == "B":
            value_json = {tag: base64.b64encode(base64.b64decode(text, validate=True)).decode()}
        else:
            [(_, value)] = parse_documents(text.encode(), decimals=True)
            value_json = attribute_of(value, field)
    except (KeyError, binascii.Error, ValueError):
        pass
    return compact_json(value_json) if tag in value_json else f"no {tag}: {text}"


def read_csv_as(data: bytes, schema: pa.Schema, names: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of CSV with a header. A cell is null if it is empty and unquoted.

    Parameters
    ----------
    schema
        The columns that were written.
    names
        The column names if the text does not start with them.

    Raises
    ------
    DecodeError
        If a cell is not a value of its column.
    pyarrow.ArrowInvalid
        If it is not CSV.
    """
    converting = pa.csv.ConvertOptions(
        column_types={field.name: csv_type(field.type) for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true"],
        false_values=["false"],
    )
    table = _parse(data, names, converting)
    fields = [schema.field(name) for name in table.schema.names if name in schema.names]
    columns = [_parse_cells(table.column(field.name), field) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _parse_cells(cells: Any, field: pa.Field[Any]) -> Any:
    if not field.type.num_fields:
        return pa.chunked_array([restore(chunk, field.type, field.name) for chunk in cells.chunks], field.type)
    texts = cells.combine_chunks()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    shown = (f'{{"{_VALUE}":{text}}}' for text in texts.drop_null().to_pylist())
    table = read_json("\n".join(shown).encode(), ReadOptions(schema=pa.schema([field.with_name(_VALUE)])))
    values: Any = table.column(_VALUE).combine_chunks() if table.num_rows else pa.nulls(0, field.type)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values.take(_valid_indices(texts))


def _valid_indices(texts: Any) -> Any:
    """Return the index of each entry among the valid ones, or null."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(valid.cumsum() - 1, mask=~valid)


def _parse(data: bytes, names: Sequence[str] | None, converting: pa.csv.ConvertOptions) -> pa.Table:
    """Return the rows of CSV, read by Arrow.

    Raises
    ------
    DecodeError
        If a record has another number of cells, or a cell cannot be converted; the message has the line.
    pyarrow.ArrowInvalid
        If it is not CSV.
    """
    check_quotes(data)
    # Allowing line ends in cells makes Arrow search for the ends of blocks, which is slower.
    parsing = pa.csv.ParseOptions(newlines_in_values=b'"' in data)
    reading = pa.csv.ReadOptions(column_names=None if names is None else list(names), block_size=_BLOCK_BYTES)
    try:
        return pa.csv.read_csv(io.BytesIO(data), reading, parsing, converting)
    except pa.ArrowInvalid:
        # Arrow counts records only without threads.
        reading.use_threads = False
        try:
            return pa.csv.read_csv(io.BytesIO(data), reading, parsing, converting)
        except pa.ArrowInvalid as error:
            raise _with_line(error, data, names) from None


def _with_line(error: pa.ArrowInvalid, data: bytes, names: Sequence[str] | None) -> Exception:
    """Return an error of Arrow with the line of the file, if the error names the record."""
    if (encoded := _BAD_ENCODING.search(str(error))) is not None:
        line = _undecodable_line(data)
        column = (names or header_names(data))[int(encoded[1])]
        message = f"line {line}: column {column!r} holds bytes that are not UTF-8: write the file in UTF-8"
        return DecodeError(message, line=line)
    match, starts = _BAD_RECORD.search(str(error)), record_starts(data)
    if match is None or int(match[1]) > len(starts):
        return error
    line = 1 + data.count(b"\n", 0, int(starts[int(match[1]) - 1]))
    return DecodeError(f"line {line}: {_BAD_RECORD.sub('', str(error))}", line=line)


def _undecodable_line(data: bytes) -> int | None:
    """Return the line of the first byte that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return None


CSV = FileFormat(
    name="csv",
    endings=(".csv",),
    open_reader=functools.partial(TextReader, make_rows=CsvRows),
    open_writer=write_csv,
    extensions={codec: f"csv{ending}" for codec, ending in TEXT_ENDINGS.items()},
    default_compression="gzip",
    text_rows=CsvRows,
)
