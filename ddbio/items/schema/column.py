"""Choose the column of each attribute: its type from what samples showed, and a name that no other column has.

A type is also written and read as text: ``N decimal128(38, 2)``. It follows from the joined shape alone, not from the
order in which samples were joined. Names differ by more than case, as Spark and Delta need it. An attribute whose name
needs a suffix gets one made from that name alone, so other attributes that come or go never change it.
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
from ddbio.items.schema.times import form_of_field, parse_form, time_type_of_text, with_form

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MIN_DATA_NAMES = 3
"""A map with this many names that look like data has data as names."""

# Numbers, dates and times; UUIDs; long hexadecimal numbers; ULIDs; addresses.
_DATA_NAME = re.compile(
    r"[0-9][0-9 .,:/+TZ_-]*|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=.*[0-9])[0-9a-fA-F]{16,}"
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}|[^@\s]+@[^@\s]+"
)

_NUL = "\0"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html: nested attribute depth.
_MOST_LEVELS = 32
_SUFFIXED = re.compile(r".*__[0-9a-f]{8}", re.DOTALL | re.IGNORECASE)

JSON_COLUMN, STRUCT_COLUMN, MAP_COLUMN, LIST_COLUMN = "JSON string", "M struct", "M map", "L list"
_PLAIN_COLUMNS = {"S": "S string", "B": "B binary", "BOOL": "BOOL bool", "NULL": "NULL string"}


def column_of(shape: Shape) -> str:
    """Return the column that values of this shape get.

    The most frequent type decides, NULL aside. A list with elements of several types is JSON text, and so is a map
    whose names are data and whose values have several types.
    """
    tag = _tag(shape)
    match tag:
        case "N":
            return f"N {_number(shape)}"
        case "SS" | "NS" | "BS":
            return f"{tag} list<{ {'S': 'string', 'N': _number(shape), 'B': 'binary'}[SETS[tag]] }>"
        case "L":
            return LIST_COLUMN if _is_of_one_type(shape.element) else JSON_COLUMN
        case "M" if has_data_names(shape):
            return MAP_COLUMN if _is_of_one_type(values_of(shape)) else JSON_COLUMN
        case "M":
            return STRUCT_COLUMN if shape.members else JSON_COLUMN
    return _PLAIN_COLUMNS[tag]


def has_data_names(shape: Shape) -> bool:
    """Return whether a map's names are data: too many, or several that look like data; more names never undo it."""
    if shape.others is not None:
        return True
    return sum(_DATA_NAME.fullmatch(name) is not None for name in shape.members) >= MIN_DATA_NAMES


def values_of(shape: Shape) -> Shape:
    """Return what all members of a map looked like together."""
    return join_all([*shape.members.values(), *([shape.others] if shape.others else [])])


def _tag(shape: Shape) -> str:
    typed = [tag for tag in TAGS if tag != "NULL" and shape.tags.get(tag)]
    return max(typed, key=shape.tags.__getitem__, default="NULL")


def counts_decide(items: Shape) -> bool:
    """Return whether the columns of items may depend on how many values each type has, not only on which types."""
    return any(map(_needs_counts, items.members.values()))


def _needs_counts(shape: Shape) -> bool:
    # Values under data names are joined.
    if len(shape.tags.keys() - {"NULL"}) > 1 or has_data_names(shape):
        return True
    return counts_decide(shape) or (shape.element is not None and _needs_counts(shape.element))


def _number(shape: Shape) -> str:
    if shape.fits_int64:
        return "int64"
    fits_decimal = shape.whole_digits + shape.scale <= MAX_DIGITS
    return f"decimal128({MAX_DIGITS}, {shape.scale})" if fits_decimal else "string"


def _is_of_one_type(shape: Shape | None) -> bool:
    return shape is not None and len(shape.tags.keys() - {"NULL"}) == 1


def names_of(shape: Shape, declared: Declared) -> list[str]:
    """Return members' names in the order of their columns: first those seen, in that order, then those declared."""
    seen = sorted(shape.members, key=lambda name: (shape.members[name].place, name))
    only_declared = declared.members.keys() - shape.members.keys()
    return seen + sorted(only_declared, key=lambda name: (declared.members[name].place, name))


def fields_of(shape: Shape, declared: Declared, depth: int = 0) -> list[pa.Field[Any]]:
    """Return a column per member.

    Parameters
    ----------
    depth
        How many lists and maps the members are in: what is in more of them than an item may have is JSON.

    Raises
    ------
    SchemaError
        A declared column has no such type, or two columns would have one name.
    """
    chosen = {name: each.column_name for name, each in declared.members.items() if each.column_name is not None}
    return [
        _field(column, name, shape.members.get(name, NOTHING_SEEN), declared.members.get(name, NOTHING_DECLARED), depth)
        for name, column in column_names(names_of(shape, declared), chosen).items()
    ]


def _field(column: str, name: str, shape: Shape, declared: Declared, depth: int) -> pa.Field[Any]:
    chosen = declared.column or (column_of(shape) if depth <= _MOST_LEVELS else JSON_COLUMN)
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
    arrow, _, form = arrow.partition("] ") if _TIMED.fullmatch(arrow) else (arrow, "", "")
    try:
        field = tagged_field(column, _arrow_type(tag, f"{arrow}]" if form else arrow, children), tag, attribute=name)
        return with_form(field, parse_form(form)) if form else field
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
        There is no such type.
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
    if (time := time_type_of_text(arrow)) is not None:
        return time
    if decimal := _DECIMAL.fullmatch(arrow):
        width, precision, scale = map(int, decimal.groups())
        return pa.decimal128(precision, scale) if width == 128 else pa.decimal256(precision, scale)  # noqa: PLR2004
    return pa.type_for_alias(arrow)  # type: ignore[call-overload, no-any-return] # the stubs list literals


def declared_by(fields: Sequence[pa.Field[Any]]) -> dict[str, Declared]:
    """Return the columns that normalised fields declare, by attribute."""
    usual = column_names([name_of_field(field) for field in fields])
    choices = {}
    for place, field in enumerate(fields):
        name = name_of_field(field)
        column_name = None if field.name in {name, usual[name]} else field.name
        choices[name] = replace(_declared(field, place), column_name=column_name)
    return choices


def _declared(field: pa.Field[Any], place: int) -> Declared:
    tag, arrow_type = tag_of_field(field), field.type
    if tag in SETS:
        container = str(arrow_type).partition("<")[0]
        return Declared(f"{tag} {container}<{arrow_type.value_type}>", place)
    if pa.types.is_struct(arrow_type):
        return Declared(STRUCT_COLUMN, place, members=declared_by(fields_within(arrow_type)))
    if pa.types.is_map(arrow_type):
        return Declared(MAP_COLUMN, place, _declared(arrow_type.item_field, 0))
    if is_list(arrow_type):
        container = str(arrow_type).partition("<")[0]
        return Declared(f"{tag} {container}", place, _declared(arrow_type.field(0), 0))
    form = form_of_field(field)
    return Declared(f"{tag} {arrow_type}" if form is None else f"{tag} {arrow_type} {form}", place)


def column_names(attributes: Collection[str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the column's name for each attribute, in their order; all names differ by more than case.

    An attribute keeps its name if no other differs by case alone, or if it is the one in lower case. Three kinds of
    names always get a suffix: those that already look suffixed, ``_rescue``, and those with a NUL, where many programs
    end a name.

    Parameters
    ----------
    chosen
        Names that a person chose for some of the columns; they do not change the others.

    Raises
    ------
    SchemaError
        A chosen name is empty, reserved, or another column's.
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
        _require_apart(columns, chosen)
    return columns


def _require_apart(columns: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    # Names that nobody chose come first, so that the error is about a chosen one.
    for name, column in sorted(columns.items(), key=lambda each: each[0] in chosen):
        if name in chosen and (fold(column) in {"", RESCUE_NAME} or _NUL in column):
            raise SchemaError(f"{name}: no column can be called {column!r}: choose another column_name")
        owner = owners.setdefault(fold(column), name)
        if owner != name:
            raise SchemaError(
                f"{name}: its column {column!r} and that of {owner!r} have one name but for case: choose another "
                "column_name"
            )


def suffixed(name: str) -> str:
    """Return the name, without NULs, followed by its own hash."""
    return f"{name.replace(_NUL, '')}__{hashlib.sha256(name.encode()).hexdigest()[:8]}"
