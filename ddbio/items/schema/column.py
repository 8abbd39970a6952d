"""Columns of attributes: the type inferred from samples, and a column name that is unique in the schema.

A type is also written and read as text: ``N decimal128(38, 2)``. It depends only on the joined shape, not on the order
in which samples were joined. Names differ by more than case, as Spark and Delta require. If an attribute's name needs a
suffix, the suffix depends only on that name, so adding or removing other attributes never changes it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.attribute import TAGS
from ddbio.items.number import MAX_DIGITS
from ddbio.items.schema.arrow import (
    ELEMENT,
    RESCUE_NAME,
    SETS,
    fields_within,
    is_list,
    name_of_field,
    tag_of_field,
    tagged_field,
)
from ddbio.items.schema.folded import fold
from ddbio.items.schema.shape import NOTHING_DECLARED, NOTHING_SEEN, Declared, Shape, join_all
from ddbio.items.schema.times import format_of_field, parse_format, time_type_of_text, with_format
from ddbio.items.schema.vectors import is_vector, vector_text, vector_type_of_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MIN_DATA_NAMES = 3
"""If a map has at least this many names that look like data, all its names are treated as data."""

# Numbers, dates and times; UUIDs; long hexadecimal numbers; ULIDs; addresses.
_DATA_NAME = re.compile(
    r"[0-9][0-9 .,:/+TZ_-]*|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=.*[0-9])[0-9a-fA-F]{16,}"
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}|[^@\s]+@[^@\s]+"
)

_NUL = "\0"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html: nested attribute depth.
_MAX_LEVELS = 32
_SUFFIXED = re.compile(r".*__[0-9a-f]{8}", re.DOTALL | re.IGNORECASE)

JSON_COLUMN, STRUCT_COLUMN, MAP_COLUMN, LIST_COLUMN = "JSON string", "M struct", "M map", "L list"
_PLAIN_COLUMNS = {"S": "S string", "B": "B binary", "BOOL": "BOOL bool", "NULL": "NULL string"}


def column_of(shape: Shape) -> str:
    """Return the column for values of this shape.

    The most frequent type except NULL decides. A list with elements of several types is JSON text, and so is a map
    whose names are data and whose values have several types.
    """
    tag = _tag(shape)
    match tag:
        case "N":
            return f"N {_number(shape)}"
        case "SS" | "NS" | "BS":
            return f"{tag} list<{ {'S': 'string', 'N': _number(shape), 'B': 'binary'}[SETS[tag]] }>"
        case "L":
            return LIST_COLUMN if _has_one_type(shape.element) else JSON_COLUMN
        case "M" if has_data_names(shape):
            return MAP_COLUMN if _has_one_type(values_of(shape)) else JSON_COLUMN
        case "M":
            return STRUCT_COLUMN if shape.members else JSON_COLUMN
    return _PLAIN_COLUMNS[tag]


def has_data_names(shape: Shape) -> bool:
    """Return whether a map's names are data: too many, or several that look like data.

    More names never change a True.
    """
    if shape.others is not None:
        return True
    return sum(_DATA_NAME.fullmatch(name) is not None for name in shape.members) >= MIN_DATA_NAMES


def values_of(shape: Shape) -> Shape:
    """Return the joined shape of all members of a map."""
    return join_all([*shape.members.values(), *([shape.others] if shape.others else [])])


def _tag(shape: Shape) -> str:
    typed = [tag for tag in TAGS if tag != "NULL" and shape.tags.get(tag)]
    return max(typed, key=shape.tags.__getitem__, default="NULL")


def counts_decide(items: Shape) -> bool:
    """Return whether the columns of items may depend on the number of values per type, not only on the set of types."""
    return any(map(_needs_counts, items.members.values()))


def _needs_counts(shape: Shape) -> bool:
    # The values under names that are data are joined.
    if len(shape.tags.keys() - {"NULL"}) > 1 or has_data_names(shape):
        return True
    return counts_decide(shape) or (shape.element is not None and _needs_counts(shape.element))


def _number(shape: Shape) -> str:
    if shape.fits_int64:
        return "int64"
    fits_decimal = shape.whole_digits + shape.scale <= MAX_DIGITS
    return f"decimal128({MAX_DIGITS}, {shape.scale})" if fits_decimal else "string"


def _has_one_type(shape: Shape | None) -> bool:
    return shape is not None and len(shape.tags.keys() - {"NULL"}) == 1


def names_of(shape: Shape, declared: Declared) -> list[str]:
    """Return members' names in column order: first those in samples, as first seen, then those only declared."""
    seen = sorted(shape.members, key=lambda name: (shape.members[name].place, name))
    only_declared = declared.members.keys() - shape.members.keys()
    return seen + sorted(only_declared, key=lambda name: (declared.members[name].place, name))


def fields_of(shape: Shape, declared: Declared, depth: int = 0) -> list[pa.Field[Any]]:
    """Return one column per member.

    Parameters
    ----------
    depth
        The number of lists and maps around the members. Members nested deeper than DynamoDB allows become JSON.

    Raises
    ------
    SchemaError
        A declared column has an unknown type, or two columns would have one name.
    """
    chosen = {
        name: declared_column.column_name
        for name, declared_column in declared.members.items()
        if declared_column.column_name is not None
    }
    return [
        _field(column, name, shape.members.get(name, NOTHING_SEEN), declared.members.get(name, NOTHING_DECLARED), depth)
        for name, column in column_names(names_of(shape, declared), chosen).items()
    ]


def _field(column: str, name: str, shape: Shape, declared: Declared, depth: int) -> pa.Field[Any]:
    chosen = declared.column or (column_of(shape) if depth <= _MAX_LEVELS else JSON_COLUMN)
    tag, _, arrow = chosen.partition(" ")
    children: list[pa.Field[Any]] = []
    if chosen == STRUCT_COLUMN:
        children = fields_of(shape, declared, depth + 1)
        if not children:
            tag, arrow = JSON_COLUMN.split(" ")
    elif chosen == MAP_COLUMN:
        children = [_field("value", "value", values_of(shape), declared.inner or NOTHING_DECLARED, depth + 1)]
    elif tag == "L":
        children = [
            _field(ELEMENT, ELEMENT, shape.element or NOTHING_SEEN, declared.inner or NOTHING_DECLARED, depth + 1)
        ]
    arrow, _, time_format = arrow.partition("] ") if _TIMED.fullmatch(arrow) else (arrow, "", "")
    try:
        field = tagged_field(
            column, _arrow_type(tag, f"{arrow}]" if time_format else arrow, children), tag, attribute=name
        )
        return with_format(field, parse_format(time_format)) if time_format else field
    except (ValueError, TypeError, pa.ArrowException):
        raise SchemaError(
            f"{name}: {chosen!r} is no column: write a DynamoDB type and an Arrow type, as in 'N int64'"
        ) from None


def _arrow_type(tag: str, arrow: str, children: Sequence[pa.Field[Any]]) -> pa.DataType:
    if tag in SETS and (parts := re.fullmatch(r"(list|large_list)<(.*)>", arrow)):
        return type_of_text(parts[1], [tagged_field(ELEMENT, type_of_text(parts[2], ()), SETS[tag])])
    return type_of_text(arrow, children)


_TIMED = re.compile(r"(timestamp|date)\S*( tz=\S+)? \S+")
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), ?([0-9]+)\)")


def type_of_text(arrow: str, children: Sequence[pa.Field[Any]]) -> pa.DataType:  # noqa: PLR0911 - one line a type
    """Return the Arrow type with this name and these inner fields.

    Raises
    ------
    ValueError, TypeError, pyarrow.ArrowInvalid
        The type is unknown.
    """
    match arrow, list(children):
        case "struct", fields:
            return pa.struct(fields)
        case "list", [element]:
            return pa.list_(element.with_name(ELEMENT))
        case "large_list", [element]:
            return pa.large_list(element.with_name(ELEMENT))
        case "map", [item]:
            return pa.map_(pa.string(), item)  # type: ignore[call-overload, no-any-return] # the stubs lack fields
    if (declared := time_type_of_text(arrow) or vector_type_of_text(arrow)) is not None:
        return declared
    if decimal := _DECIMAL.fullmatch(arrow):
        width, precision, scale = map(int, decimal.groups())
        return pa.decimal128(precision, scale) if width == 128 else pa.decimal256(precision, scale)  # noqa: PLR2004
    return pa.type_for_alias(arrow)  # type: ignore[call-overload, no-any-return] # the stubs list literals


def declared_by(fields: Sequence[pa.Field[Any]]) -> dict[str, Declared]:
    """Return the columns that normalised fields declare, by attribute."""
    default_names = column_names([name_of_field(field) for field in fields])
    choices = {}
    for index, field in enumerate(fields):
        name = name_of_field(field)
        column_name = None if field.name in {name, default_names[name]} else field.name
        choices[name] = replace(_declared(field, index), column_name=column_name)
    return choices


def _declared(field: pa.Field[Any], index: int) -> Declared:
    tag, arrow_type = tag_of_field(field), field.type
    if tag in SETS:
        container = str(arrow_type).partition("<")[0]
        return Declared(f"{tag} {container}<{arrow_type.value_type}>", index)
    if pa.types.is_struct(arrow_type):
        return Declared(STRUCT_COLUMN, index, members=declared_by(fields_within(arrow_type)))
    if pa.types.is_map(arrow_type):
        return Declared(MAP_COLUMN, index, _declared(arrow_type.item_field, 0))
    if is_list(arrow_type):
        container = str(arrow_type).partition("<")[0]
        return Declared(f"{tag} {container}", index, _declared(arrow_type.field(0), 0))
    if is_vector(arrow_type):
        return Declared(f"{tag} {vector_text(arrow_type)}", index)
    time_format = format_of_field(field)
    return Declared(f"{tag} {arrow_type}" if time_format is None else f"{tag} {arrow_type} {time_format}", index)


def column_names(attributes: Collection[str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the column name of each attribute, in their order. All names differ by more than case.

    An attribute keeps its name if no other name differs only by case, or if its name is the one in lower case. Three
    kinds of names always get a suffix: names that already look suffixed, ``_rescue``, and names with a NUL, where many
    programs cut a name.

    Parameters
    ----------
    chosen
        Names that a person chose for some of the columns. They do not change the other names.

    Raises
    ------
    SchemaError
        A chosen name is empty, reserved, or the name of another column.
    """
    folded = {name: fold(name) for name in attributes}
    counts = Counter(folded.values())
    columns = {
        name: name
        if (counts[same] == 1 or name == same)
        and same != RESCUE_NAME
        and not _SUFFIXED.fullmatch(name)
        and _NUL not in name
        else suffixed(name)
        for name, same in folded.items()
    }
    if chosen:
        columns |= chosen
        _check_distinct(columns, chosen)
    return columns


def _check_distinct(columns: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    # Names that nobody chose come first, so that the error is about a chosen name.
    for name, column in sorted(columns.items(), key=lambda entry: entry[0] in chosen):
        if name in chosen and (fold(column) in {"", RESCUE_NAME} or _NUL in column):
            raise SchemaError(f"{name}: no column can be called {column!r}: choose another column_name")
        owner = owners.setdefault(fold(column), name)
        if owner != name:
            raise SchemaError(
                f"{name}: its column {column!r} and that of {owner!r} differ only in case: choose another column_name"
            )


def suffixed(name: str) -> str:
    """Return the name, without NULs, followed by its hash."""
    return f"{name.replace(_NUL, '')}__{hashlib.sha256(name.encode()).hexdigest()[:8]}"
