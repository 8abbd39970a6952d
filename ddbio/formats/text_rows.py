"""Read rows of plain JSON and of CSV exactly as they are written.

JSON is read by our own loops: Arrow's reader ends the process at some texts. Arrow reads CSV, each cell as text.
"""

from __future__ import annotations

import io
import itertools
import re
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ddbio.errors import DecodeError, SchemaError
from ddbio.formats.csv_records import check_quotes, header_names, record_starts
from ddbio.formats.file_format import NO_TYPES, ReadOptions
from ddbio.formats.json_values import declared_cells, item_of, with_declared_texts
from ddbio.items.decode import from_dynamodb_json, infer_schema_of_body
from ddbio.items.json_text import compact_json, exact_number, parse_documents, parse_json
from ddbio.items.kernel.arrays import texts_array
from ddbio.items.kernel.first_calls import FIRST_CALLS
from ddbio.items.kernel.typed_items import TypedLines, typed_lines
from ddbio.items.raw_items import shift_line
from ddbio.items.schema.arrow import RESCUE_NAME, fields_within, name_of_field, tag_of_field
from ddbio.items.schema.declare import ColumnRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddbio.items.attribute import Item

# A double keeps numbers of fewer digits, but not with every exponent.
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15,}(?:[eE][+-]?[0-9]+)?|(?<![0-9.])[0-9.]++[eE][+-]?[0-9]{3,}")
# Arrow reads a number here, but these are texts: the number of a house, a phone or a part.
_MARKED = r"^(?:\+|-?0[0-9xX])"
_LONG = r"[0-9.]{16,}|[eE][+-]?[0-9]{3,}"
# Arrow takes nan and inf for numbers, which DynamoDB has not.
_NO_NUMBER = "[nN]"
_KINDS = (pa.int64(), pa.float64(), pa.date32())
_HEAD_ROWS = 100
_BOOLEANS = texts_array("true", "True", "TRUE", "false", "False", "FALSE")
# A row that is too large for an item is rejected by itself, so it has to be read.
_BLOCK_BYTES = 16 * 1024 * 1024
_BAD_ENCODING = re.compile(r"In CSV column #([0-9]+): .*invalid UTF8")
_BAD_RECORD = re.compile(r"(?:CSV parse error: )?Row #([0-9]+): ")
_NUMBER_FIELD = {b"ddb:type": b"N"}
# What the cells of a column of text are, where empty ones are missing.
_CELLS = b"ddbio:cells"
_DAY, _OF_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]+)?)?)?"
_PATTERNS = {
    "code": r"^[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.)$",
    "timestamp": f"^{_DAY}(?:[ T]{_OF_DAY} ?(?:Z|[+-]{_OF_DAY})?)?$",
    "time": f"^{_OF_DAY}$",
}
# Columns of these kinds are one of the latter.
_ALIKE = ({"number", "code"}, {"date32[day]", "timestamp"})
_NO_OPTIONS = ReadOptions()

NULL_WORDS = ("NA", "null")
"""What is missing in columns of CSV that are no text, beside empty cells, if nobody gives other words."""


def read_json(data: bytes, types: Mapping[str, pa.Field[Any]] = NO_TYPES) -> pa.Table:
    """Return the rows of a sequence of JSON objects.

    Parameters
    ----------
    types
        Declared columns.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    return FIRST_CALLS.answer(len(data), _read_json, _read_json_exactly, data, types)


def read_csv(
    data: bytes,
    options: ReadOptions = _NO_OPTIONS,
    names: Sequence[str] | None = None,
    columns: pa.Schema | None = None,
) -> pa.Table:
    """Return the rows of CSV: a column is numbers, booleans or dates if all its cells are, otherwise text as written.

    In a column of text no cell is missing; in others empty ones are, and ``NULL_WORDS``. Times are text, as are numbers
    that begin with +, 0x or needless zeros.

    Parameters
    ----------
    options
        A key of type S is text, one of type N a number in every row, so that another cell rejects only its row; so does
        a cell that is no value of its declared column. The words of ``null_values`` are missing in all columns.
    names
        The names of the columns if the text does not begin with them.
    columns
        What :func:`joined_columns` has made of the columns of all parts of a file, or of all files.

    Raises
    ------
    DecodeError
        If it is not UTF-8, or no CSV.
    """
    table = _cells(data, names, options)
    if len(set(table.schema.names)) < table.num_columns:
        return table
    known = {} if columns is None else {each.name: each for each in columns}
    made = [
        _column(known.get(name) or _chosen(name, cells, options), cells, options)
        for name, cells in zip(table.schema.names, table.columns, strict=True)
    ]
    return pa.Table.from_arrays([array for _, array in made], schema=pa.schema([field for field, _ in made]))


def csv_columns(data: bytes, options: ReadOptions = _NO_OPTIONS, names: Sequence[str] | None = None) -> pa.Schema:
    """Return the columns that hold the cells of CSV, to be joined with those of other parts; see :func:`read_csv`."""
    table = _cells(data, names, options)
    return pa.schema(list(map(_chosen, table.schema.names, table.columns, itertools.repeat(options))))


def _cells(data: bytes, names: Sequence[str] | None, options: ReadOptions) -> pa.Table:
    """Return all cells as text; those that are missing in any column are null."""
    known = header_names(data) if names is None else names
    converting = pa.csv.ConvertOptions(column_types=dict.fromkeys(known, pa.string()))
    if options.null_values is not None:
        converting.null_values, converting.strings_can_be_null = list(options.null_values), True
    table = parse_csv(data, names, converting)
    try:
        _ = table.schema.names
    except UnicodeDecodeError:
        raise DecodeError("the name of a column is not UTF-8: write the file in UTF-8") from None
    return table


def _shown(cells: Any) -> Any:
    """Return cells without white space around."""
    return pc.utf8_trim_whitespace(cells)


def _without_missing(cells: Any, shown: Any, options: ReadOptions) -> Any:
    """Return cells, null where what they show is missing in a column that is no other text."""
    missing = ["", *(NULL_WORDS if options.null_values is None else ())]
    return pc.if_else(pc.is_in(shown, pa.array(missing)), pa.scalar(None, pa.string()), cells)


def _chosen(name: str, cells: Any, options: ReadOptions) -> pa.Field[Any]:
    """Return the column that holds all cells."""
    if name in options.types or options.keys.get(name) == "S":
        return pa.field(name, pa.string())
    shown: Any = _shown(cells)
    shown = _without_missing(shown, shown, options).drop_null()
    if not len(shown):
        is_empty = not _has(cells, ".")
        return pa.field(name, pa.null()) if is_empty else _text(name, "words")
    for kind in _KINDS:
        # A cast does not end at the first cell that is none of its values.
        for part in (shown[:_HEAD_ROWS], shown):
            try:
                values: Any = part.cast(kind)
            except pa.ArrowInvalid:
                break
        else:
            return _exact(name, shown, values)
    if pc.all(pc.is_in(shown, _BOOLEANS)).as_py():
        return pa.field(name, pa.bool_())
    for said, pattern in _PATTERNS.items():
        if all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (shown[:_HEAD_ROWS], shown)):
            return _text(name, said)
    return pa.field(name, pa.string())


def _exact(name: str, shown: Any, values: Any) -> pa.Field[Any]:
    """Return the column of cells that can be read as these values, if the values say all that the cells do."""
    if pa.types.is_date(values.type):
        return pa.field(name, values.type)
    is_float = pa.types.is_floating(values.type)
    others = shown if is_float else shown.filter(pc.not_equal(values.cast(pa.string()), shown))
    if is_float and _has(others, _NO_NUMBER):
        return pa.field(name, pa.string())
    if _has(others, _MARKED):
        return _text(name, "code")
    if is_float and not _are_exact(shown.filter(pc.match_substring_regex(shown, _LONG)).to_pylist()):
        return pa.field(name, pa.string(), metadata=_NUMBER_FIELD)
    return pa.field(name, values.type)


def _has(texts: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _text(name: str, cells: str) -> pa.Field[Any]:
    metadata: dict[bytes | str, bytes | str] = {_CELLS: cells.encode()}
    return pa.field(name, pa.string(), metadata=metadata)


def _said(field: pa.Field[Any]) -> str:
    """Return what the cells of a column say."""
    if field.metadata == _NUMBER_FIELD or _is_number(field.type):
        return "number"
    return (field.metadata or {}).get(_CELLS, b"").decode() or str(field.type)


def _column(field: pa.Field[Any], cells: Any, options: ReadOptions) -> tuple[pa.Field[Any], Any]:
    """Return the column with these cells."""
    name, said = field.name, _said(field)
    if name in options.types:
        return declared_cells(cells, options.types[name].with_name(name))
    if said == "null":
        return field, pa.chunked_array([pa.nulls(len(cells))])
    text = pa.field(name, pa.string())
    if options.keys.get(name) == "N" and pa.types.is_string(field.type):
        return pa.field(name, pa.string(), metadata=_NUMBER_FIELD), _shown(cells)
    if said in _PATTERNS:
        return text, _without_missing(cells, _shown(cells), options)
    if said in {"string", "words"}:
        return text, cells
    shown = _shown(cells)
    return field, _without_missing(shown, shown, options).cast(field.type)


def joined_columns(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return columns that hold the values of both, each exactly as it is written."""
    fields = {field.name: field for field in one}
    for field in other:
        fields[field.name] = _joined(fields[field.name], field) if field.name in fields else field
    return pa.schema(list(fields.values()))


def _joined(one: Any, other: Any) -> Any:  # noqa: PLR0911 - one line a kind
    if one.equals(other, check_metadata=True):
        return one
    said = [_said(one), _said(other)]
    for nothing in ("null", "words"):
        if nothing in said:
            return one if said[1] == nothing else other
    kinds = one.type, other.type
    if all(map(pa.types.is_struct, kinds)):
        return pa.field(one.name, pa.struct(list(joined_columns(*(pa.schema(list(kind)) for kind in kinds)))))
    if all(map(pa.types.is_list, kinds)):
        return pa.field(one.name, pa.list_(_joined(one.type.value_field, other.type.value_field)))
    if said == ["number", "number"]:
        return pa.field(one.name, pa.string(), metadata=_NUMBER_FIELD)
    for group in _ALIKE:
        if group.issuperset(said):
            return _text(one.name, max(said, key=list(_PATTERNS).__contains__))
    # Values of JSON that are no text are rescued.
    return pa.field(one.name, pa.string())


def _of_type(tag: str, keys: Mapping[str, str]) -> list[str]:
    return [name for name, given in keys.items() if given == tag]


def parse_csv(data: bytes, names: Sequence[str] | None, converting: pa.csv.ConvertOptions) -> pa.Table:
    """Return the rows that Arrow reads of CSV.

    Parameters
    ----------
    names
        The names of the columns if the text does not begin with them.

    Raises
    ------
    DecodeError
        If a record has another number of cells, or a cell cannot be converted; the message has the line.
    pyarrow.ArrowInvalid
        If it is no CSV.
    """
    check_quotes(data)
    # If cells may hold line ends, Arrow cuts blocks with care, which takes longer.
    parsing = pa.csv.ParseOptions(newlines_in_values=b'"' in data)
    reading = pa.csv.ReadOptions(column_names=None if names is None else list(names), block_size=_BLOCK_BYTES)
    try:
        return pa.csv.read_csv(io.BytesIO(data), reading, parsing, converting)
    except pa.ArrowInvalid:
        # Only one thread counts records.
        reading.use_threads = False
        try:
            return pa.csv.read_csv(io.BytesIO(data), reading, parsing, converting)
        except pa.ArrowInvalid as error:
            if (encoded := _BAD_ENCODING.search(str(error))) is not None:
                line = _undecodable_line(data)
                column = (names or header_names(data))[int(encoded[1])]
                message = f"line {line}: column {column!r} holds bytes that are not UTF-8: write the file in UTF-8"
                raise DecodeError(message, line=line) from None
            found = _BAD_RECORD.search(str(error))
            starts = record_starts(data)
            if found is None or int(found[1]) > len(starts):
                raise
            line = 1 + data.count(b"\n", 0, int(starts[int(found[1]) - 1]))
            raise DecodeError(f"line {line}: {_BAD_RECORD.sub('', str(error))}", line=line) from None


def _undecodable_line(data: bytes) -> int | None:
    """Return the line of the first byte that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return None


def _read_json(data: bytes, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    typed = typed_lines(data)
    found = None if typed is None else _decoded(typed, data)
    if typed is None or found is None or not all(_fits(each, types.get(each.name)) for each in found.schema):
        return _read_json_exactly(data, types)
    return _with_null_columns(pa.Table.from_batches([found]), parse_json(b"[%s]" % typed.nulls))


def _decoded(typed: TypedLines, data: bytes) -> pa.RecordBatch | None:
    """Return the rows, or None if one is no item; numbers are doubles if all can be."""
    try:
        columns = infer_schema_of_body(typed.lines).to_arrow()
        if any(map(_has_fractions, columns)) and not (typed.has_long_numbers and has_inexact_numbers(data)):
            columns = ColumnRules(numbers="float64").apply(columns)
        return without_empty_rescue(from_dynamodb_json(typed.lines, columns, nulls="keep"))
    except (DecodeError, SchemaError):
        return None


def _has_fractions(field: pa.Field[Any]) -> bool:
    kind: Any = field.type
    if kind.num_fields:
        return any(map(_has_fractions, fields_within(kind)))
    return tag_of_field(field) == "N" and not pa.types.is_integer(kind)


def without_empty_rescue(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the column of what was rescued, if that is nothing."""
    if batch.column(RESCUE_NAME).null_count < batch.num_rows:
        return batch
    return batch.select([name for name in batch.schema.names if name != RESCUE_NAME])


def has_inexact_numbers(data: bytes) -> bool:
    """Return whether a text holds numbers that doubles would round."""
    return not _are_exact(token.decode() for token in _LONG_NUMBER.findall(data))


def _read_json_exactly(data: bytes, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    lines, given, named = list[bytes](), set[str](), dict[str, None]()
    places = list[int]()
    for line, row, item in json_items(data, types, types):
        lines.append(utf8_json(item, line))
        places.append(line)
        given.update(item)
        named |= dict.fromkeys(row)
    with lines_of_source(places):
        table = pa.Table.from_batches([from_dynamodb_json(b"\n".join(lines))])
    return _with_null_columns(table, [name for name in named if name not in given])


def _with_null_columns(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return rows with columns of these names: an update removes an attribute that is null in every row."""
    for name in dict.fromkeys(names):
        if name not in table.schema.names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return table


def json_items(
    data: bytes, types: Mapping[str, pa.Field[Any]], fields: Mapping[str, pa.Field[Any]]
) -> Iterator[tuple[int, dict[str, Any], Item]]:
    """Yield for each object of plain JSON its line, the object, and its item, whose values need not be legal.

    Parameters
    ----------
    types
        The columns that a person has declared: a number becomes text where text is declared.
    fields
        The columns whose types values have; others have their own.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    texts = _of_type("S", {name: tag_of_field(field) for name, field in types.items()})
    for line, row in parse_documents(data, decimals=True, written=bool(texts)):
        if not isinstance(row, dict):
            raise DecodeError(f"line {line}: this is no object: write one for each row, and no list around", line=line)
        rescued = row.pop(RESCUE_NAME, None) if RESCUE_NAME in fields else None
        try:
            item = item_of(with_declared_texts(row, texts), fields)
        except RecursionError:
            raise DecodeError(f"line {line}: nested deeper than any DynamoDB item", line=line) from None
        if rescued is not None:
            item |= parse_json(rescued.encode())
        null_names(row, line)
        yield line, row, item


def null_names(row: dict[str, Any], line: int) -> list[str]:
    """Return the names of an object's members that are null.

    Raises
    ------
    DecodeError
        If half of a surrogate pair is in one.
    """
    names = [name for name, value in row.items() if value is None]
    if names:
        utf8_json(dict.fromkeys(names), line)
    return names


@contextmanager
def lines_of_source(lines: Sequence[int]) -> Iterator[None]:
    """Let errors about a line of items that were made of rows name the line of the row."""
    try:
        yield
    except DecodeError as error:
        raise shift_line(error, 0 if error.line is None else lines[error.line - 1] - error.line) from None


def utf8_json(item: dict[str, Any], line: int) -> bytes:
    """Return an item's text.

    Raises
    ------
    DecodeError
        If half of a surrogate pair is in it; the message has the line.
    """
    try:
        return compact_json(item).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        message = f"line {line}: {half!r} is half of a surrogate pair, which no UTF-8 has"
        raise DecodeError(message, line=line) from None


def _fits(found: pa.Field[Any], declared: pa.Field[Any] | None) -> bool:
    """Return whether values that have their own types are of the declared type."""
    if declared is None:
        return True
    if name_of_field(declared) != found.name:
        return False
    tag, kinds = tag_of_field(found), (found.type, declared.type)
    if tag == tag_of_field(declared) == "M" and all(map(pa.types.is_struct, kinds)):
        members = {each.name: each for each in fields_within(declared.type)}
        return all(_fits(each, members.get(each.name)) for each in fields_within(found.type))
    if tag == tag_of_field(declared) == "L":
        found, declared = (fields_within(each)[0].with_name("") for each in kinds)
        return _fits(found, declared)
    return tag in {"S", "N", "BOOL"} and tag == tag_of_field(declared)


def _is_number(kind: Any) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _are_exact(texts: Iterable[str]) -> bool:
    """Return whether doubles hold the numbers of these texts exactly."""
    return all(_is_exact(text) for text in texts)


def _is_exact(text: str) -> bool:
    try:
        return Decimal(repr(float(text))) == exact_number(text.strip())
    except (ValueError, ArithmeticError):
        # Digits that are no number are part of some text.
        return True
