"""Make attribute values of plain JSON values and of cells: by their own types, or by those that are declared."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.json_text import WrittenNumber, compact_json, parse_documents, parse_json
from ddbio.items.schema.arrow import is_list, name_of_field, tag_of_field, tagged_field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ddbio.items.attribute import Item


def self_typed(value: Any) -> dict[str, Any]:
    """Return a value of plain JSON as the attribute value that its own type makes of it."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case Decimal():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [self_typed(each) for each in value]}
    return {"M": {name: self_typed(each) for name, each in value.items() if each is not None}}


def item_of(row: dict[str, Any], fields: Mapping[str, pa.Field[Any]]) -> Item:
    """Return an object's members as attribute values, without those that are null; see ``attribute_of``."""
    return {
        name_of_field(fields[name]) if name in fields else name: attribute_of(value, fields.get(name))
        for name, value in row.items()
        if value is not None
    }


def attribute_of(value: Any, field: pa.Field[Any] | None) -> dict[str, Any]:
    """Return a value of plain JSON as the attribute value that its column's type makes of it, or its own type."""
    if field is None or value is None:
        return self_typed(value)
    tag, kind = tag_of_field(field), cast("Any", field.type)
    match value:
        case str():
            return _of_text(value, tag)
        case list() if is_list(kind):
            elements = [attribute_of(each, kind.value_field) for each in value]
            return {"L": elements} if tag == "L" else {tag: [next(iter(each.values())) for each in elements]}
        case dict() if pa.types.is_struct(kind):
            return {"M": item_of(value, {each.name: each for each in kind})}
        case dict() if pa.types.is_map(kind):
            return {"M": {name: attribute_of(each, kind.item_field) for name, each in value.items()}}
    return self_typed(value)


def _of_text(text: str, tag: str) -> dict[str, Any]:
    if tag == "JSON":
        found: dict[str, Any] = parse_json(text.encode())
        return found
    if tag == "NULL":
        return {"NULL": True}
    return {tag: text} if tag in {"N", "B"} else {"S": text}


def with_declared_texts(row: dict[str, Any], texts: Collection[str]) -> dict[str, Any]:
    """Return a row in which numbers are text, as they are written, where text is declared.

    Parameters
    ----------
    texts
        The columns that are declared as text.
    """
    if not texts:
        return row
    return {
        name: value.text if name in texts and isinstance(value, WrittenNumber) else value for name, value in row.items()
    }


def declared_cells(cells: pa.ChunkedArray[Any], field: pa.Field[Any]) -> tuple[pa.Field[Any], Any]:
    """Return cells of CSV as the column that is declared for them; an empty one is null, but in a column of text.

    What is none of the column's values stays as it is, so that a write refuses its row.
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
    """Return a cell as an attribute value's JSON; what is none of the declared type is no JSON, which is refused."""
    tag = tag_of_field(field)
    if tag == "JSON":
        return text
    found: dict[str, Any] = {}
    try:
        if tag == "BOOL":
            found = {tag: {"true": True, "false": False}[text.lower()]}
        elif tag == "B":
            found = {tag: base64.b64encode(base64.b64decode(text, validate=True)).decode()}
        else:
            [(_, value)] = parse_documents(text.encode(), decimals=True)
            found = attribute_of(value, field)
    except (KeyError, binascii.Error, ValueError):
        pass
    return compact_json(found) if tag in found else f"no {tag}: {text}"
