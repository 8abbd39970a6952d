"""Describe items as a plain ``pyarrow.Schema``: infer, normalise, project, print, save and load one.

A column per attribute, DynamoDB's type in field metadata ``ddb:type`` (one of the ten, or ``JSON`` for text that holds
any attribute value), and ``_rescue`` last. Refuses Arrow types without an exact DynamoDB form.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.field import (
    ELEMENT,
    RESCUE_FIELD,
    RESCUE_NAME,
    is_list,
    is_text,
    normalize_field,
    require_unique,
    tag_of_field,
    tagged_field,
)
from ddbio.core.inference import infer_schema_of_items
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "format_schema",
    "infer_schema_of_items",
    "normalize_schema",
    "project_schema",
    "schema_from_json",
    "schema_to_json",
]

VERSION = 1
"""The version of the schema's JSON form."""


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with a DynamoDB type on every field and ``_rescue`` as its last column; idempotent.

    Raises
    ------
    SchemaError
        A name occurs twice, or a field has an Arrow type that DynamoDB has no exact form for.
    """
    require_unique(schema.names, "schema")
    columns = [normalize_field(field, field.name) for field in schema if field.name != RESCUE_NAME]
    if RESCUE_NAME in schema.names and not is_text(schema.field(RESCUE_NAME).type):
        raise SchemaError(f"{RESCUE_NAME}: this name is kept for the rescue column, a string: rename or drop the field")
    return pa.schema([*columns, RESCUE_FIELD])


def project_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the named columns, in their order, and ``_rescue``.

    Raises
    ------
    SchemaError
        The schema has no such column.
    """
    for name in columns:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "give a schema that has it"
            raise SchemaError(f"{name}: the schema has no such attribute: {hint}")
    return normalize_schema(pa.schema([schema.field(name) for name in columns]))


def format_schema(schema: pa.Schema) -> str:
    """Return the schema as a table for people: attribute, DynamoDB type, Arrow type; nested fields indented."""
    rows = [("attribute", "DynamoDB", "Arrow"), *_rows(schema, "")]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {tag:<{widths[1]}}  {arrow}" for name, tag, arrow in rows)


def _rows(fields: Iterable[pa.Field[Any]], indent: str) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        children = _children(field.type)
        arrow = str(field.type) if not children else _container_name(field.type)
        yield indent + _printable(field.name), tag_of_field(field), arrow
        yield from _rows(children, indent + "  ")


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _container_name(arrow_type: pa.DataType) -> str:
    if pa.types.is_map(arrow_type):
        return f"map<{arrow_type.key_type}, …>"
    return str(arrow_type).partition("<")[0]


def _children(arrow_type: pa.DataType) -> list[pa.Field[Any]]:
    if pa.types.is_map(arrow_type):
        return [arrow_type.item_field]
    if is_list(arrow_type) or pa.types.is_struct(arrow_type):
        return [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    return []


def schema_to_json(schema: pa.Schema) -> str:
    """Return the schema as versioned JSON text that ``schema_from_json`` reads; the same schema gives the same text."""
    fields = [_field_to_json(field) for field in schema if field.name != RESCUE_NAME]
    return json.dumps({"version": VERSION, "fields": fields}, indent=2, ensure_ascii=False)


def schema_from_json(text: str) -> pa.Schema:
    """Return the normalised schema of a text that ``schema_to_json`` wrote or a person edited.

    Raises
    ------
    SchemaError
        The text is not such JSON, of another version, or names an unknown type.
    """
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise SchemaError(
                f"schema version {document['version']!r} is not {VERSION}: write it again with this release"
            )
        fields = [_field_from_json(field) for field in document["fields"]]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(
            f"this is not a schema's JSON text ({error!r}): compare with what schema_to_json writes"
        ) from None
    return normalize_schema(pa.schema(fields))


def _field_to_json(field: pa.Field[Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"name": field.name, "type": tag_of_field(field)}
    children = [_field_to_json(child) for child in _children(field.type)]
    described["arrow"] = str(field.type) if not children else str(field.type).partition("<")[0]
    if children:
        described["fields"] = children
    return described


_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), ?([0-9]+)\)")


def _field_from_json(described: dict[str, Any]) -> pa.Field[Any]:
    children = [_field_from_json(child) for child in described.get("fields", ())]
    return tagged_field(described["name"], _type_from_json(described["arrow"], children), described["type"])


def _type_from_json(arrow: str, children: list[pa.Field[Any]]) -> pa.DataType:
    match arrow, children:
        case "struct", _:
            return pa.struct(children)
        case "list", [element]:
            return pa.list_(element.with_name(ELEMENT))
        case "large_list", [element]:
            return pa.large_list(element.with_name(ELEMENT))
        case "map", [item]:
            return pa.map_(pa.string(), item)  # type: ignore[call-overload, no-any-return] # the stubs lack fields
    if decimal := _DECIMAL.fullmatch(arrow):
        width, precision, scale = map(int, decimal.groups())
        return pa.decimal128(precision, scale) if width == 128 else pa.decimal256(precision, scale)  # noqa: PLR2004
    return pa.type_for_alias(arrow)  # type: ignore[call-overload, no-any-return] # the stubs list literals
