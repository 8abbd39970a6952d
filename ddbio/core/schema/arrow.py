"""Describe items as a plain ``pyarrow.Schema``: infer, normalise, project, print, save and load one.

A column per attribute, DynamoDB's type in field metadata ``ddb:type`` (one of the ten, or ``JSON`` for text that holds
any attribute value), and ``_rescue`` last. Refuses Arrow types without an exact DynamoDB form.
"""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.schema.column import fields_of, type_of_text
from ddbio.core.schema.field import (
    DDB_NAME,
    RESCUE_FIELD,
    RESCUE_NAME,
    fields_within,
    is_item_bytes,
    is_text,
    name_of_field,
    normalize_field,
    require_unique,
    tag_of_field,
    tagged_field,
)
from ddbio.core.schema.inference import observe_items
from ddbio.core.schema.lattice import NOTHING_DECLARED
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddbio.core.attribute import Item

__all__ = [
    "format_schema",
    "infer_schema_of_items",
    "load_text",
    "normalize_schema",
    "project_schema",
    "schema_from_json",
    "schema_to_json",
]

VERSION = 1
"""The version of the schema's JSON form."""


def infer_schema_of_items(items: Iterable[Item]) -> pa.Schema:
    """Return the columns of the sample in the order first seen, and ``_rescue`` at the end.

    Raises
    ------
    DecodeError
        An item is not DynamoDB JSON.
    """
    return pa.schema([*fields_of(observe_items(items), NOTHING_DECLARED), RESCUE_FIELD])


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with a DynamoDB type on every field and ``_rescue`` as its last column; idempotent.

    Items' sizes, where a decoder has added them, are no attribute and left out.

    Raises
    ------
    SchemaError
        A name occurs twice, or a field has an Arrow type that DynamoDB has no exact form for.
    """
    require_unique(list(schema), "schema")
    attributes = [field for field in schema if field.name != RESCUE_NAME and not is_item_bytes(field)]
    columns = [normalize_field(field, field.name) for field in attributes]
    if RESCUE_NAME in schema.names and not is_text(schema.field(RESCUE_NAME).type):
        raise SchemaError(f"{RESCUE_NAME}: this name is kept for the rescue column, a string: rename or drop the field")
    return pa.schema([*columns, RESCUE_FIELD])


def project_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the named attributes, in their order, and ``_rescue``.

    Raises
    ------
    SchemaError
        The schema has no such attribute.
    """
    fields = {name_of_field(field): field for field in schema if tag_of_field(field) != "RESCUE"}
    for name in columns:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "give a schema that has it"
            raise SchemaError(f"{name}: the schema has no such attribute: {hint}")
    return normalize_schema(pa.schema([fields[name] for name in columns]))


def format_schema(schema: pa.Schema) -> str:
    """Return the schema as a table for people: attribute, DynamoDB type, Arrow type; nested fields indented.

    Where the column has another name, that is said behind the attribute's.
    """
    rows = [("attribute", "DynamoDB", "Arrow"), *_rows(schema, "")]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {tag:<{widths[1]}}  {arrow}" for name, tag, arrow in rows)


def _rows(fields: Iterable[pa.Field[Any]], indent: str) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        children = fields_within(field.type)
        arrow = str(field.type) if not children else _container_name(field.type)
        attribute, column = _printable(name_of_field(field)), _printable(field.name)
        yield indent + (attribute if attribute == column else f"{attribute} as {column}"), tag_of_field(field), arrow
        yield from _rows(children, indent + "  ")


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _container_name(arrow_type: pa.DataType) -> str:
    if pa.types.is_map(arrow_type):
        return f"map<{arrow_type.key_type}, …>"
    return str(arrow_type).partition("<")[0]


def schema_to_json(schema: pa.Schema) -> str:
    """Return the schema as versioned JSON text that ``schema_from_json`` reads; the same schema gives the same text."""
    fields = [_field_to_json(field) for field in schema if field.name != RESCUE_NAME]
    return json.dumps({"version": VERSION, "fields": fields}, indent=2, ensure_ascii=False)


def load_text(text: str | bytes) -> Any:
    """Return what a schema's JSON text says; editors of some systems put a byte order mark before it."""
    return json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)


def schema_from_json(text: str) -> pa.Schema:
    """Return the normalised schema of a text that ``schema_to_json`` wrote or a person edited.

    Raises
    ------
    SchemaError
        The text is not such JSON, of another version, or names an unknown type.
    """
    try:
        document = load_text(text)
        if document["version"] != VERSION:
            raise SchemaError(
                f"schema version {document['version']!r} is not {VERSION}: write it again with this release"
            )
        fields = [_field_from_json(field) for field in document["fields"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(
            f"this is not a schema's JSON text ({error!r}): compare with what schema_to_json writes"
        ) from None
    return normalize_schema(pa.schema(fields))


def _field_to_json(field: pa.Field[Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"name": field.name, "type": tag_of_field(field)}
    if DDB_NAME in (field.metadata or {}):
        described["attribute"] = name_of_field(field)
    children = [_field_to_json(child) for child in fields_within(field.type)]
    described["arrow"] = str(field.type) if not children else str(field.type).partition("<")[0]
    if children:
        described["fields"] = children
    return described


def _field_from_json(described: dict[str, Any]) -> pa.Field[Any]:
    children = [_field_from_json(child) for child in described.get("fields", ())]
    arrow_type = type_of_text(described["arrow"], children)
    return tagged_field(described["name"], arrow_type, described["type"], attribute=described.get("attribute"))
