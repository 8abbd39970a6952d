"""Types of text columns: the chosen type stores all cells or values of its column exactly as they are written."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.json_text import exact_number
from ddbio.items.kernel.arrays import texts_array

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.formats.file_format import ReadOptions

NULL_WORDS = ("NA", "null")
"""Default words for missing values in columns of CSV that are not text, in addition to empty cells."""

NUMBER_FIELD: dict[bytes | str, bytes | str] = {b"ddb:type": b"N"}
"""Metadata of a column of text with numbers that no Arrow type stores exactly."""

# A double stores numbers with fewer digits exactly, but not with every exponent.
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15,}(?:[eE][+-]?[0-9]+)?|(?<![0-9.])[0-9.]++[eE][+-]?[0-9]{3,}")
_LONG = r"[0-9.]{16,}|[eE][+-]?[0-9]{3,}"
# Arrow reads a number here, but these are texts: the number of a house, a phone or a part.
_MARKED = r"^(?:\+|-?0[0-9xX])"
# Arrow accepts nan and inf as numbers, which DynamoDB does not have.
_NO_NUMBER = "[nN]"
_CAST_TYPES = (pa.int64(), pa.float64(), pa.date32())
_HEAD_ROWS = 100
_BOOLEANS = texts_array("true", "True", "TRUE", "false", "False", "FALSE")
# The kind of cells in a column of text, with empty cells missing.
_CELLS = b"ddbio:cells"
_DAY, _OF_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]+)?)?)?"
_PATTERNS = {
    "code": r"^[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.)$",
    "timestamp": f"^{_DAY}(?:[ T]{_OF_DAY} ?(?:Z|[+-]{_OF_DAY})?)?$",
    "time": f"^{_OF_DAY}$",
}
# If the columns of parts have both kinds of a set, the joined column has the latter.
_MERGEABLE = ({"number", "code"}, {"date32[day]", "timestamp"})


def column_of_cells(name: str, cells: Any, options: ReadOptions) -> pa.Field[Any]:
    """Return the column that fits all cells of CSV, to be joined with the columns of other cells.

    Parameters
    ----------
    cells
        Texts; null if they are missing in a column of any type.
    """
    if name in options.types or options.keys.get(name) == "S":
        return pa.field(name, pa.string())
    shown: Any = pc.utf8_trim_whitespace(cells)
    shown = _without_missing(shown, shown, options).drop_null()
    if not len(shown):
        return _text(name, "words") if _has(cells, ".") else pa.field(name, pa.null())
    for kind in _CAST_TYPES:
        # A cast does not stop at the first invalid cell, so the first rows are tried before.
        for part in (shown[:_HEAD_ROWS], shown):
            try:
                values: Any = part.cast(kind)
            except pa.ArrowInvalid:
                break
        else:
            return _exact(name, shown, values)
    if pc.all(pc.is_in(shown, _BOOLEANS)).as_py():
        return pa.field(name, pa.bool_())
    for kind_of_cells, pattern in _PATTERNS.items():
        if all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (shown[:_HEAD_ROWS], shown)):
            return _text(name, kind_of_cells)
    return pa.field(name, pa.string())


def _exact(name: str, shown: Any, values: Any) -> pa.Field[Any]:
    """Return the column of cells that can be read as these values; text if the values would lose anything."""
    if pa.types.is_date(values.type):
        return pa.field(name, values.type)
    is_float = pa.types.is_floating(values.type)
    others = shown if is_float else shown.filter(pc.not_equal(values.cast(pa.string()), shown))
    if is_float and _has(others, _NO_NUMBER):
        return pa.field(name, pa.string())
    if _has(others, _MARKED):
        return _text(name, "code")
    if is_float and not _are_exact(shown.filter(pc.match_substring_regex(shown, _LONG)).to_pylist()):
        return pa.field(name, pa.string(), metadata=NUMBER_FIELD)
    return pa.field(name, values.type)


def cells_of_column(field: pa.Field[Any], cells: Any, options: ReadOptions) -> tuple[pa.Field[Any], Any]:
    """Return the field for cells of CSV in the column that was chosen, and the cells as its values."""
    kind = _kind_of(field)
    if kind == "null":
        return field, pa.chunked_array([pa.nulls(len(cells))])
    text = pa.field(field.name, pa.string())
    is_number_key = options.keys.get(field.name) == "N" and pa.types.is_string(field.type)
    if kind in {"string", "words"} and not is_number_key:
        return text, cells
    shown = pc.utf8_trim_whitespace(cells)
    if is_number_key:
        return text.with_metadata(NUMBER_FIELD), shown
    if kind in _PATTERNS:
        return text, _without_missing(cells, shown, options)
    return field, _without_missing(shown, shown, options).cast(field.type)


def _without_missing(cells: Any, shown: Any, options: ReadOptions) -> Any:
    """Return cells, with null for those that are missing in a column that is not plain text."""
    missing = ["", *(NULL_WORDS if options.null_values is None else ())]
    return pc.if_else(pc.is_in(shown, pa.array(missing)), pa.scalar(None, pa.string()), cells)


def joined_columns(parts: Iterable[Iterable[pa.Field[Any]] | None]) -> pa.Schema | None:
    """Return columns that fit the values of all parts exactly as they are written; None if no part has rows."""
    parts_with_rows = [columns for columns in parts if columns is not None]
    fields: dict[str, pa.Field[Any]] = {}
    for columns in parts_with_rows:
        for field in columns:
            fields[field.name] = _join(fields[field.name], field) if field.name in fields else field
    return pa.schema(list(fields.values())) if parts_with_rows else None


def _join(one: Any, other: Any) -> Any:  # noqa: PLR0911 - one line a kind
    if one.equals(other, check_metadata=True):
        return one
    kinds = [_kind_of(one), _kind_of(other)]
    for nothing in ("null", "words"):
        if nothing in kinds:
            return one if kinds[1] == nothing else other
    types = one.type, other.type
    if all(map(pa.types.is_struct, types)):
        return pa.field(one.name, pa.struct(list(joined_columns(types) or ())))
    if all(map(pa.types.is_list, types)):
        return pa.field(one.name, pa.list_(_join(one.type.value_field, other.type.value_field)))
    if kinds == ["number", "number"]:
        return pa.field(one.name, pa.string(), metadata=NUMBER_FIELD)
    for group in _MERGEABLE:
        if group.issuperset(kinds):
            return _text(one.name, max(kinds, key=list(_PATTERNS).__contains__))
    # Values of JSON that are not text are rescued.
    return pa.field(one.name, pa.string())


def _kind_of(field: pa.Field[Any]) -> str:
    """Return the kind of a column's values: numbers, cells of a pattern, words for nothing, or its type."""
    if field.metadata == NUMBER_FIELD or pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return "number"
    return (field.metadata or {}).get(_CELLS, b"").decode() or str(field.type)


def _text(name: str, kind_of_cells: str) -> pa.Field[Any]:
    metadata: dict[bytes | str, bytes | str] = {_CELLS: kind_of_cells.encode()}
    return pa.field(name, pa.string(), metadata=metadata)


def _has(texts: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def has_inexact_numbers(data: bytes) -> bool:
    """Return whether a text has numbers that doubles would round."""
    return not _are_exact(token.decode() for token in _LONG_NUMBER.findall(data))


def _are_exact(texts: Iterable[str]) -> bool:
    """Return whether doubles store the numbers of these texts exactly."""
    return all(map(_is_exact, texts))


def _is_exact(text: str) -> bool:
    try:
        return Decimal(repr(float(text))) == exact_number(text.strip())
    except (ValueError, ArithmeticError):
        # Digits that are not a number are part of some text.
        return True
