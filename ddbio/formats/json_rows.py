"""JSON: reads the documents of complete rows as lines of DynamoDB JSON, then converts them to columns.

Plain JSON is converted to DynamoDB JSON first: each value gets its JSON type, or the type of its declared column. The
compiled loops do this (Arrow's reader ends the process at some texts), and plain Python handles all other cases.
"""

from __future__ import annotations

import functools
import itertools
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.formats.file_format import BATCH_ROWS, NO_TYPES, FileFormat, ReadOptions, TextRows
from ddbio.formats.text_ranges import last_document, lines_at
from ddbio.formats.text_reader import TextReader
from ddbio.formats.text_types import has_inexact_numbers, joined_columns
from ddbio.formats.text_writers import TEXT_ENDINGS, write_dynamodb_json, write_json
from ddbio.items.decode import from_dynamodb_json, infer_schema_of_body
from ddbio.items.framing import check_object, checked_items, framing_of
from ddbio.items.json_text import WrittenNumber, compact_json, parse_documents, parse_json
from ddbio.items.kernel.typed_items import TypedLines, typed_lines
from ddbio.items.plain_json import has_map, json_type, restore
from ddbio.items.python_rows import item_columns
from ddbio.items.raw_items import shift_line
from ddbio.items.schema.arrow import (
    RESCUE_NAME,
    fields_within,
    has_attribute_names,
    is_list,
    is_nulls,
    name_of_field,
    normalize_schema,
    nulls_field,
    tag_of_field,
)
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.item_schema import ItemSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddbio.formats.file_format import Block
    from ddbio.formats.row_lines import Lines
    from ddbio.items.attribute import Item

    _Fields = Mapping[str, pa.Field[Any]]

_NO_ROWS = pa.schema([])
_NO_OPTIONS = ReadOptions()
_RESCUE_MEMBER = f'"{RESCUE_NAME}"'.encode()
# It never matches within a document: commas separate objects, and strings that contain it make the count differ.
_BETWEEN = re.compile(rb"\}\s*\{")

_TAGS = rb"(?:S|N|B|BOOL|NULL|SS|NS|BS|L|M)"
_FIRST = rb'\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"' + _TAGS + rb'"\s*:'
# An item, or an export's line: the first value has one of DynamoDB's types, unlike in plain JSON.
_TYPED = re.compile(rb'\s*\{(?:\s*"Item"\s*:\s*\{)?' + _FIRST)
# A saved response of Scan or Query; only its member Items has items.
_RESPONSE = re.compile(rb'\s*\{\s*"(?:ConsumedCapacity|Count|Items|LastEvaluatedKey|ScannedCount)"\s*:')
_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\{' + _FIRST)
_NO_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\][^\[]*\Z')


def starts_with_item(text: bytes) -> bool:
    """Return whether a text starts with DynamoDB JSON: an item, or a line of an export."""
    return bool(_TYPED.match(text))


def _is_response(text: bytes) -> bool:
    """Return whether a text is a saved response of Scan or Query."""
    if not _RESPONSE.match(text):
        return False
    return bool(_ITEMS.search(text) or (b'"ScannedCount"' in text and _NO_ITEMS.search(text)))


class JsonRows(TextRows):
    """JSON reader, block by block: plain rows, or DynamoDB JSON."""

    row_begin = b"{"

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._is_typed = None if options.json_format == "auto" else options.json_format == "dynamodb"

    @staticmethod
    def begins_with_items(head: bytes) -> bool:
        """Return whether a text starts with an item, or a line of an export."""
        return starts_with_item(head)

    def is_one_document(self, head: bytes) -> bool:
        """Return whether the rows are in a saved response of Scan or Query."""
        return self._options.json_format != "plain" and self._options.schema is None and _is_response(head)

    def begin(self, head: bytes) -> None:
        """Determine from the start of a file whether it is DynamoDB JSON."""
        self._begins_typed(head)

    def cut(self, text: bytes) -> int:
        """Return the start of the last document that certainly follows another one."""
        return last_document(text)

    @classmethod
    def joined(cls, columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
        """Return normalised columns that fit the values of all of these."""
        merged = joined_columns(columns)
        return None if merged is None else normalize_schema(merged)

    def columns(self, blocks: Iterable[Block]) -> pa.Schema | None:
        """Return columns that fit the rows of all blocks."""
        schemas = (block.apply(self._schema_of) for block in blocks)
        first = next(schemas, None)
        if isinstance(first, ItemSchema):
            return functools.reduce(ItemSchema.merge, cast("Iterator[ItemSchema]", schemas), first).to_arrow()
        if self._is_typed and self._options.takes_illegal:
            # A write reads each block in its own columns.
            return normalize_schema(_NO_ROWS)
        return self.joined(itertools.chain([first], cast("Iterator[pa.Schema]", schemas)))

    def _schema_of(self, text: bytes) -> ItemSchema | pa.Schema:
        if self._options.schema is None and self._begins_typed(text):
            return _NO_ROWS if self._options.takes_illegal else infer_schema_of_body(text)
        batches = self.rows(text, None)
        return next(
            (pa.schema([field for field in batch.schema if not is_nulls(field)]) for batch in batches), _NO_ROWS
        )

    def rows(self, text: bytes, columns: pa.Schema | None) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next block; values that no item may have are in columns of JSON."""
        if not text.strip():
            return []
        options = self._options
        is_typed = options.schema is None and self._begins_typed(text)
        if not options.takes_illegal:
            return self._legal_rows(text, columns, is_typed=is_typed)
        with suppress(DecodeError):
            batches = list(self._legal_rows(text, None if is_typed else columns, is_typed=is_typed))
            if has_attribute_names(batches[0].schema if batches else ()):
                return batches
        if is_typed:
            return self._batches(item_columns(list(checked_items(text, framing_of(text), check_object))), b"")
        fields = {field.name: field for field in options.schema or ()} or options.types
        read = list(json_items(text, options.types, fields))
        # An attribute that is null in every row is a column too: an update removes it.
        named = (name_of_field(fields[name]) if name in fields else name for _, row, _ in read for name in row)
        return self._batches(item_columns([item for _, _, item in read], named), text)

    def _legal_rows(self, text: bytes, columns: pa.Schema | None, *, is_typed: bool) -> Iterable[pa.RecordBatch]:
        if not is_typed:
            return self._batches(read_json(text, self._options, columns), text)
        rows = from_dynamodb_json(text) if columns is None else from_dynamodb_json(text, columns, nulls="keep")
        return self._batches(rows, b"")

    def _batches(self, rows: pa.Table | pa.RecordBatch, text: bytes) -> Iterable[pa.RecordBatch]:
        """Return rows, with the names of their nulls if requested; the text is plain JSON."""
        batches = rows.to_batches(BATCH_ROWS) if isinstance(rows, pa.Table) else [rows]
        fields = {**self._options.types, **{field.name: field for field in self._options.schema or ()}}
        return _with_named_nulls(batches, text, fields) if self._options.names_nulls else batches

    def lines(self, text: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the line numbers of documents; None if the number of documents differs from that of the rows."""
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        if text.count(b"}\n{") == rows - 1 and lines == rows:
            return range(first_line, first_line + rows)
        starts = [text.find(b"{"), *(match.end() - 1 for match in _BETWEEN.finditer(text))]
        return lines_at(text, np.array(starts), first_line) if len(starts) == rows else None

    def _begins_typed(self, text: bytes) -> bool:
        # The first row decides for all: a later block may start with a row whose first value looks typed.
        if self._is_typed is None:
            self._is_typed = starts_with_item(text) or _is_response(text)
        return self._is_typed


def read_json(data: bytes, options: ReadOptions = _NO_OPTIONS, columns: pa.Schema | None = None) -> pa.Table:
    """Return the rows of a sequence of JSON objects.

    Parameters
    ----------
    options
        With a ``schema``, values have the types of its columns, and values that fit no column are in ``_rescue``. In
        columns of ``types``, which a person declares, a number becomes text if the declared type is text.
    columns
        Normalised columns that were inferred from such rows, whose values have their own types; other values are in
        ``_rescue``.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    schema, table = options.schema, None
    has_rescue = (schema is not None or columns is not None) and _RESCUE_MEMBER in data
    typed = None if has_rescue else typed_lines(data)
    if typed is not None:
        with suppress(DecodeError, SchemaError, pa.ArrowException):
            if schema is not None:
                table = _as_written(typed, data, schema)
            elif columns is not None:
                table = _as_chosen(typed, columns, options.types)
            else:
                table = _inferred(typed, data, options.types)
    return read_json_in_python(data, options, columns) if table is None else table


def read_json_in_python(data: bytes, options: ReadOptions, columns: pa.Schema | None = None) -> pa.Table:
    """Return the rows as ``read_json`` does, in plain Python."""
    schema, types = options.schema, options.types
    fields = types if schema is None else {field.name: field for field in schema}
    target_columns = columns if schema is None else schema
    lines, line_numbers, named, item_names = list[bytes](), list[int](), dict[str, None](), set[str]()
    for line, row, item in json_items(data, types, fields):
        lines.append(_utf8_json(item, line))
        line_numbers.append(line)
        item_names.update(item)
        named |= dict.fromkeys(row)
    with _lines_of_source(line_numbers):
        if target_columns is None:
            table = pa.Table.from_batches([from_dynamodb_json(b"\n".join(lines))])
            return _with_null_columns(table, [name for name in named if name not in item_names])
        batch = from_dynamodb_json(b"\n".join(lines), target_columns, nulls="keep")
    # The decoder adds the rescue column, even if the columns do not include it.
    if RESCUE_NAME not in target_columns.names and _has_rescued(batch):
        raise DecodeError(f"a value does not fit its column: {batch.column(RESCUE_NAME).drop_null()[0].as_py()}")
    return pa.Table.from_batches([batch if RESCUE_NAME in target_columns.names else _without_empty_rescue(batch)])


def _inferred(typed: TypedLines, data: bytes, types: _Fields) -> pa.Table | None:
    """Return the rows in columns of inferred types; numbers are doubles if all of them can be."""
    columns = infer_schema_of_body(typed.lines).to_arrow()
    if any(map(_has_fractions, columns)) and not (typed.has_long_numbers and has_inexact_numbers(data)):
        columns = ColumnRules(numbers="float64").apply(columns)
    batch = _without_empty_rescue(from_dynamodb_json(typed.lines, columns, nulls="keep"))
    if not all(_fits(field, types.get(field.name)) for field in batch.schema):
        return None
    return _with_null_columns(pa.Table.from_batches([batch]), parse_json(b"[%s]" % typed.nulls))


def _as_chosen(typed: TypedLines, columns: pa.Schema, types: _Fields) -> pa.Table | None:
    """Return the rows in the given columns; None if a declared column may have values written in another type."""
    if any(map(_is_read_otherwise, types.values())):
        return None
    batch = from_dynamodb_json(typed.lines, columns, nulls="keep")
    has_rescue_column = RESCUE_NAME in columns.names
    # A value that does not fit a declared column may still be of its type: a number is text where text is declared.
    if (types or not has_rescue_column) and _has_rescued(batch):
        return None
    return pa.Table.from_batches([batch if has_rescue_column else _without_empty_rescue(batch)])


def _as_written(typed: TypedLines, data: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return rows that ``plain_json`` wrote, or None if it would write a value differently."""
    fields = [field for field in schema if field.name != RESCUE_NAME]
    # A null in an object is a missing member, but a null in a map is an entry.
    if any(has_map(field.type) and (b"null" in data or json_type(field.type) != field.type) for field in fields):
        return None
    json_columns = pa.schema([pa.field(field.name, json_type(field.type)) for field in fields])
    batch = from_dynamodb_json(typed.lines, json_columns, nulls="merge")
    if _has_rescued(batch):
        return None
    columns = {field.name: restore(batch.column(field.name), field.type, field.name) for field in fields}
    arrays = [columns.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _has_rescued(batch: pa.RecordBatch) -> bool:
    return batch.column(RESCUE_NAME).null_count < batch.num_rows


def _without_empty_rescue(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the rescue column if it is empty."""
    return batch if _has_rescued(batch) else batch.drop_columns([RESCUE_NAME])


def _with_null_columns(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return rows with columns of these names: an update removes an attribute that is null in every row."""
    for name in dict.fromkeys(names):
        if name not in table.schema.names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return table


def _has_fractions(field: pa.Field[Any]) -> bool:
    kind: Any = field.type
    if kind.num_fields:
        return any(map(_has_fractions, fields_within(kind)))
    return tag_of_field(field) == "N" and not pa.types.is_integer(kind)


def _fits(field: pa.Field[Any], declared: pa.Field[Any] | None) -> bool:
    """Return whether a column of inferred type fits the declared type."""
    if declared is None:
        return True
    if name_of_field(declared) != field.name:
        return False
    tag, kinds = tag_of_field(field), (field.type, declared.type)
    if tag == tag_of_field(declared) == "M" and all(map(pa.types.is_struct, kinds)):
        members = {member.name: member for member in fields_within(declared.type)}
        return all(_fits(member, members.get(member.name)) for member in fields_within(field.type))
    if tag == tag_of_field(declared) == "L":
        field, declared = (fields_within(kind)[0].with_name("") for kind in kinds)
        return _fits(field, declared)
    return tag in {"S", "N", "BOOL"} and tag == tag_of_field(declared)


def _is_read_otherwise(declared: pa.Field[Any]) -> bool:
    """Return whether a column reads texts as another DynamoDB type, or has another name than its attribute."""
    within = any(map(_is_read_otherwise, fields_within(declared.type)))
    return within or tag_of_field(declared) == "JSON" or name_of_field(declared) != declared.name


def json_items(data: bytes, types: _Fields, fields: _Fields) -> Iterator[tuple[int, dict[str, Any], Item]]:
    """Yield the line, the object and the item of each object of plain JSON; the values need not be legal.

    Parameters
    ----------
    types
        The columns that a person has declared: a number becomes text where text is declared.
    fields
        The columns whose types values have; other values have their own types.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    texts = {name for name, field in types.items() if tag_of_field(field) == "S"}
    for line, row in parse_documents(data, decimals=True, written=bool(texts)):
        if not isinstance(row, dict):
            raise DecodeError(f"line {line}: this is no object: write one for each row, and no list around", line=line)
        rescued = row.pop(RESCUE_NAME, None) if RESCUE_NAME in fields else None
        shown = {
            name: value.text if name in texts and isinstance(value, WrittenNumber) else value
            for name, value in (row.items() if texts else ())
        }
        try:
            item = _item_of(shown or row, fields)
        except RecursionError:
            raise DecodeError(f"line {line}: nested deeper than any DynamoDB item", line=line) from None
        if rescued is not None:
            item |= parse_json(rescued.encode())
        _null_names(row, line)
        yield line, row, item


def _item_of(row: dict[str, Any], fields: _Fields) -> Item:
    """Return an object's non-null members as attribute values; see ``attribute_of``."""
    return {
        name_of_field(fields[name]) if name in fields else name: attribute_of(value, fields.get(name))
        for name, value in row.items()
        if value is not None
    }


def attribute_of(value: Any, field: pa.Field[Any] | None = None) -> dict[str, Any]:  # noqa: PLR0911 - one line a type
    """Return a value of plain JSON as an attribute value of its column's type, or of its JSON type."""
    kind: Any = None if field is None else field.type
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value} if field is None else _attribute_of_text(value, tag_of_field(field))
        case list() if field is not None and is_list(kind):
            elements, tag = [attribute_of(element, kind.value_field) for element in value], tag_of_field(field)
            return {"L": elements} if tag == "L" else {tag: [next(iter(element.values())) for element in elements]}
        case list():
            return {"L": [attribute_of(element) for element in value]}
        case dict() if kind is not None and pa.types.is_struct(kind):
            return {"M": _item_of(value, {member.name: member for member in kind})}
        case dict() if kind is not None and pa.types.is_map(kind):
            return {"M": {name: attribute_of(item, kind.item_field) for name, item in value.items()}}
        case dict():
            return {"M": _item_of(value, NO_TYPES)}
    return {"N": str(value)}


def _attribute_of_text(text: str, tag: str) -> dict[str, Any]:
    if tag == "JSON":
        return cast("dict[str, Any]", parse_json(text.encode()))
    if tag == "NULL":
        return {"NULL": True}
    return {tag: text} if tag in {"N", "B"} else {"S": text}


def _null_names(row: dict[str, Any], line: int) -> list[str]:
    """Return the names of an object's null members.

    Raises
    ------
    DecodeError
        If a name has half of a surrogate pair.
    """
    names = [name for name, value in row.items() if value is None]
    if names:
        _utf8_json(dict.fromkeys(names), line)
    return names


def _with_named_nulls(batches: Iterable[pa.RecordBatch], text: bytes, fields: _Fields) -> Iterator[pa.RecordBatch]:
    """Yield rows with the column of :func:`nulls_field`, which lets a write distinguish a null from a missing member.

    Parameters
    ----------
    text
        The plain JSON of the rows. DynamoDB JSON has no nulls except NULL, which is a value.
    fields
        The columns, whose names may differ from their attributes' names.
    """
    named = None
    if b"null" in text:
        rows = (_null_names(row, line) for line, row in parse_documents(text, decimals=True))
        named = [[name_of_field(fields[name]) if name in fields else name for name in names] or None for names in rows]
    first = 0
    for batch in batches:
        field, count = nulls_field(batch.schema), batch.num_rows
        names: Any = (
            pa.nulls(count, field.type) if named is None else pa.array(named[first : first + count], field.type)
        )
        yield batch.append_column(field, names)
        first += count


@contextmanager
def _lines_of_source(lines: Sequence[int]) -> Iterator[None]:
    """Replace the line number in errors: the line of an item becomes the line of the row in the source."""
    try:
        yield
    except DecodeError as error:
        raise shift_line(error, 0 if error.line is None else lines[error.line - 1] - error.line) from None


def _utf8_json(item: dict[str, Any], line: int) -> bytes:
    """Return the JSON text of an item.

    Raises
    ------
    DecodeError
        If it has half of a surrogate pair; the message has the line.
    """
    try:
        return compact_json(item).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        message = f"line {line}: {half!r} is half of a surrogate pair, which is not valid in UTF-8"
        raise DecodeError(message, line=line) from None


JSON = FileFormat(
    name="json",
    endings=(".jsonl", ".ndjson", ".json"),
    open_reader=functools.partial(TextReader, make_rows=JsonRows),
    open_writer=write_json,
    extensions={codec: f"json{ending}" for codec, ending in TEXT_ENDINGS.items()},
    default_compression="gzip",
    text_rows=JsonRows,
)
DYNAMODB_JSON = FileFormat(
    name="dynamodb-json",
    # Read as JSON, which recognises it by its first value.
    endings=(),
    open_reader=JSON.open_reader,
    open_writer=write_dynamodb_json,
    extensions={codec: f"dynamodb.json{ending}" for codec, ending in TEXT_ENDINGS.items()},
    default_compression="gzip",
    text_rows=JsonRows,
)
