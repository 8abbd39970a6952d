"""Read rows of plain JSON and of CSV exactly as they are written.

Arrow's readers do the work unless they would change a value: they round numbers of more than 15 digits, take text for
times, lose nulls at the head of lists, and have no form for objects that are all empty.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ddbio.core.items.decode import from_dynamodb_json
from ddbio.core.items.raw_items import shift_line
from ddbio.core.schema.arrow import fields_within, tag_of_field
from ddbio.core.text.json_text import compact_json, parse_documents
from ddbio.errors import DecodeError
from ddbio.files.csv_records import record_starts
from ddbio.files.file_format import NO_KEYS, NO_TYPES
from ddbio.files.json_values import declared_cells, item_of, with_declared_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

# A double keeps numbers of fewer digits, but not with every exponent.
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15,}(?:[eE][+-]?[0-9]+)?|(?<![0-9.])[0-9.]++[eE][+-]?[0-9]{3,}")
# Arrow reads a number here, but these are texts: the number of a house, a phone or a part.
_MARKED = r"^\s*(?:\+|-?0[0-9xX])"
_MARKED_CELL = re.compile(rb"""(?:^|[,\n\r"])[ \t]*(?:\+|-?0[0-9xX])""")
# A row that is too large for an item is rejected by itself, so it has to be read.
_BLOCK_BYTES = 16 * 1024 * 1024
_JSON_BLOCK_BYTES = 4 * 1024 * 1024
_BAD_RECORD = re.compile(r"(?:CSV parse error: )?Row #([0-9]+): ")
_NUMBER_FIELD = {b"ddb:type": b"N"}


def read_json(
    data: bytes, keys: Mapping[str, str] = NO_KEYS, types: Mapping[str, pa.Field[Any]] = NO_TYPES
) -> pa.Table:
    """Return the rows of a sequence of JSON objects.

    Parameters
    ----------
    keys
        Key attributes and their types: one of type S is text whatever its values look like.
    types
        Declared columns.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    try:
        table = _read_json_by_arrow(data, _of_type("S", keys))
        if table is not None and not all(_fits(each.type, types.get(each.name)) for each in table.schema):
            table = None
    except UnicodeDecodeError:
        raise DecodeError("a name is not UTF-8: write the file in UTF-8") from None
    return _read_json_exactly(data, types) if table is None else table


def read_csv(
    data: bytes,
    keys: Mapping[str, str] = NO_KEYS,
    names: Sequence[str] | None = None,
    columns: pa.Schema | None = None,
    types: Mapping[str, pa.Field[Any]] = NO_TYPES,
) -> pa.Table:
    """Return the rows of CSV; times stay text, as do numbers that begin with +, 0x or needless zeros.

    Parameters
    ----------
    keys
        As for ``read_json``; a key of type N is a number in every row, so that another cell rejects only its row.
    names
        The names of the columns if the text does not begin with them.
    columns
        What :func:`joined_columns` has made of the columns of all parts of a file, or of all files.
    types
        Declared columns: a cell that is none of their values rejects only its row.

    Raises
    ------
    DecodeError
        If its text is not UTF-8.
    pyarrow.ArrowInvalid
        If it is no CSV.
    """
    if columns is not None:
        return _declared(_with_number_keys(_csv_as(data, names, columns, types), keys), types)
    table = _csv(data, [*_of_type("S", keys), *types], names=names)
    try:
        found = table.schema.names
    except UnicodeDecodeError:
        raise DecodeError("the name of a column is not UTF-8: write the file in UTF-8") from None
    for field in table.schema:
        if pa.types.is_binary(field.type):
            line = _undecodable_line(data)
            where = "" if line is None else f"line {line}: "
            raise DecodeError(
                f"{where}column {field.name!r} holds bytes that are not UTF-8: write the file in UTF-8", line=line
            )
    doubtful = bool(_MARKED_CELL.search(data) or _LONG_NUMBER.search(data))
    asked = [field.name for field in table.schema if _is_time(field.type) or (doubtful and _is_number(field.type))]
    if len(set(found)) < len(found):
        return table
    if asked:
        table = _as_written(table, _csv(data, asked, only=asked, names=names))
    return _declared(_with_number_keys(table, keys), types)


def joined_columns(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return columns that hold the values of both, each exactly as it is written."""
    fields = {field.name: field for field in one}
    for field in other:
        fields[field.name] = _joined(fields[field.name], field) if field.name in fields else field
    return pa.schema(list(fields.values()))


def _joined(one: Any, other: Any) -> Any:
    if one.equals(other, check_metadata=True) or pa.types.is_null(other.type):
        return one
    if pa.types.is_null(one.type):
        return other
    kinds = one.type, other.type
    if all(map(pa.types.is_struct, kinds)):
        return pa.field(one.name, pa.struct(list(joined_columns(*(pa.schema(list(kind)) for kind in kinds)))))
    if all(map(pa.types.is_list, kinds)):
        return pa.field(one.name, pa.list_(_joined(one.type.value_field, other.type.value_field)))
    if all(_is_number(each.type) or each.metadata == _NUMBER_FIELD for each in (one, other)):
        return pa.field(one.name, pa.string(), metadata=_NUMBER_FIELD)
    # Values of JSON that are no text are rescued.
    return pa.field(one.name, pa.string())


def _csv_as(
    data: bytes, names: Sequence[str] | None, columns: pa.Schema, types: Mapping[str, pa.Field[Any]]
) -> pa.Table:
    """Return the rows of CSV as columns that hold all of them."""
    kinds = {each.name: each.type for each in columns} | dict.fromkeys(types, pa.string())
    options = pa.csv.ConvertOptions(column_types=kinds)
    table = _csv(data, (), names=names, options=options)
    for place, field in enumerate(table.schema):
        declared = columns.field(field.name)
        if declared.metadata == _NUMBER_FIELD and field.name not in types:
            texts = pc.utf8_trim_whitespace(table.column(place))
            is_null = pc.is_in(table.column(place), pa.array(options.null_values or [], pa.string()))
            texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
            table = table.set_column(place, declared, texts)
    return table


def _declared(table: pa.Table, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    for place, name in enumerate(table.schema.names):
        if name in types:
            table = table.set_column(place, *declared_cells(table.column(place), types[name].with_name(name)))
    return table


def _with_number_keys(table: pa.Table, keys: Mapping[str, str]) -> pa.Table:
    names = table.schema.names
    for name in _of_type("N", keys):
        if name in names and pa.types.is_string(table.column(name).type):
            field = pa.field(name, pa.string(), metadata=_NUMBER_FIELD)
            table = table.set_column(names.index(name), field, pc.utf8_trim_whitespace(table.column(name)))
    return table


def _of_type(tag: str, keys: Mapping[str, str]) -> list[str]:
    return [name for name, given in keys.items() if given == tag]


def _as_written(table: pa.Table, written: pa.Table) -> pa.Table:
    """Return a table in which columns that Arrow has changed are the text that is written."""
    for name in written.schema.names:
        place, read = table.schema.get_field_index(name), table.column(name)
        shown = pc.if_else(read.is_valid(), written.column(name), pa.scalar(None, pa.string()))
        if _is_time(read.type) or pc.any(pc.match_substring_regex(shown, _MARKED)).as_py():
            table = table.set_column(place, pa.field(name, pa.string()), shown)
        elif pa.types.is_floating(read.type) and not _are_exact(shown.drop_null().to_pylist()):
            field = pa.field(name, pa.string(), metadata=_NUMBER_FIELD)
            table = table.set_column(place, field, pc.utf8_trim_whitespace(shown))
    return table


def _csv(
    data: bytes,
    texts: Collection[str],
    only: Collection[str] = (),
    *,
    names: Sequence[str] | None = None,
    options: pa.csv.ConvertOptions | None = None,
) -> pa.Table:
    options = options or pa.csv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()), include_columns=list(only)
    )
    return parse_csv(data, names, options)


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


def _read_json_by_arrow(data: bytes, texts: Collection[str]) -> pa.Table | None:
    """Return the rows, or None if Arrow cannot read them, or not exactly."""
    try:
        table = parse_json_rows(data)
        wanted = pa.schema(
            [(each.name, pa.string() if each.name in texts else _timeless(each.type)) for each in table.schema]
        )
        if wanted != table.schema:
            table = parse_json_rows(data, explicit_schema=wanted)
    except pa.ArrowException:
        return None
    kinds = {kind for field in table.schema for kind in _kinds(field.type)}
    if "struct<>" in kinds or ("list" in kinds and b"null" in data):
        return None
    if "double" in kinds and has_inexact_numbers(data):
        return None
    return table


def parse_json_rows(data: bytes, **options: Any) -> pa.Table:
    """Return the rows that Arrow reads of JSON, a line each or not.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it reads none.
    """
    # pyarrow 25 ends the process where a line end that it takes for the end of a row is within one.
    between = data.count(b"}\n{") + data.count(b"}\r\n{")
    is_lines = between == data.count(b"\n") - data.endswith(b"\n")
    parsing = pa.json.ParseOptions(newlines_in_values=not is_lines, **options)
    return pa.json.read_json(io.BytesIO(data), pa.json.ReadOptions(block_size=_JSON_BLOCK_BYTES), parsing)


def has_inexact_numbers(data: bytes) -> bool:
    """Return whether a text holds numbers that doubles would round."""
    return not _are_exact(token.decode() for token in _LONG_NUMBER.findall(data))


def _read_json_exactly(data: bytes, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    lines, given, named = list[bytes](), set[str](), dict[str, None]()
    places = list[int]()
    for line, row in parse_documents(data, decimals=True):
        if not isinstance(row, dict):
            raise DecodeError(f"line {line}: this is no object: write one for each row, and no list around", line=line)
        item = item_of(with_declared_texts(row, types, line), types)
        lines.append(utf8_json(item, line))
        places.append(line)
        given.update(item)
        named |= dict.fromkeys(row)
    with lines_of_source(places):
        table = pa.Table.from_batches([from_dynamodb_json(b"\n".join(lines))])
    # An attribute that is null in every row is a column too: an update removes it.
    for name in named:
        if name not in given:
            table = table.append_column(name, pa.nulls(len(lines)))
    return table


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


def _fits(kind: Any, field: pa.Field[Any] | None) -> bool:
    """Return whether the values that Arrow has read are of the declared type as they are."""
    if field is None or pa.types.is_null(kind):
        return True
    tag = tag_of_field(field)
    if tag == "M" and pa.types.is_struct(kind) and pa.types.is_struct(field.type):
        members = {each.name: each for each in field.type}
        return all(_fits(each.type, members.get(each.name)) for each in kind)
    if tag == "L" and pa.types.is_list(kind):
        return _fits(kind.value_type, fields_within(field.type)[0])
    kinds: dict[str, Any] = {"S": pa.types.is_string, "N": _is_number, "BOOL": pa.types.is_boolean}
    return tag in kinds and bool(kinds[tag](kind))


def _timeless(kind: Any) -> Any:
    """Return a type with text instead of times."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_timeless(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _timeless(each.type)) for each in kind])
    return kind


def _kinds(kind: Any) -> Iterator[str]:
    yield "list" if pa.types.is_list(kind) else str(kind)
    for place in range(kind.num_fields):
        yield from _kinds(kind.field(place).type)


def _is_time(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_time(kind)


def _is_number(kind: Any) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _are_exact(texts: Iterable[str]) -> bool:
    """Return whether doubles hold the numbers of these texts exactly."""
    return all(_is_exact(text) for text in texts)


def _is_exact(text: str) -> bool:
    try:
        return Decimal(repr(float(text))) == Decimal(text.strip())
    except (ValueError, ArithmeticError):
        # Digits that are no number are part of some text.
        return True
