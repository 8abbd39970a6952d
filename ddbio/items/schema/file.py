"""JSON files of schemas: an item schema as a file to edit (version 2), and an Arrow schema (version 1).

In version 2 each attribute has its column and the shape of its values. A column other than the one inferred from the
values was chosen by a person, and is kept. Text of another version, or that is not a schema, is a SchemaError.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.attribute import TAGS
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import (
    DDB_NAME,
    RESCUE_NAME,
    fields_within,
    name_of_field,
    normalize_schema,
    tag_of_field,
    tagged_field,
)
from ddbio.items.schema.column import column_of, declared_by, names_of, type_of_text
from ddbio.items.schema.shape import NOTHING_DECLARED, NOTHING_SEEN, Declared, Shape
from ddbio.items.schema.times import format_of_field, parse_format, with_format

VERSION = 2
"""The version of an item schema's file."""

ARROW_VERSION = 1
"""The version of an Arrow schema's JSON."""

_KEYS = {
    "name", "column_name", "column", "declared", "seen", "place", "declared_place", "whole_digits", "scale",
    "fits_int64", "members", "element", "values",
}  # fmt: skip


def item_schema_to_json(seen: Shape, declared: Declared) -> str:
    """Return the text of an item schema's file: one entry per attribute, in the order of the columns."""
    document = {"version": VERSION, "items": seen.tags.get("M", 0), "attributes": _members(seen, declared)}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _defect(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    return f"{error} is missing" if isinstance(error, KeyError) else "something in it is of another type"


def item_schema_from_json(text: str) -> tuple[Shape, Declared]:
    """Return the shape and the declared columns in a schema's text, of either version.

    Raises
    ------
    SchemaError
        The text is not a schema.
    """
    try:
        document = parse_schema(text)
        version = document["version"]
        if version == ARROW_VERSION:
            return NOTHING_SEEN, Declared(members=declared_by(list(schema_from_json(text))[:-1]))
        if version != VERSION:
            raise SchemaError(f"schema version {version!r} is not {VERSION}: write it again with this release")
        members, choices = _read_members(document["attributes"], "")
        count = int(document.get("items", 0))
    except RecursionError:
        raise SchemaError("the schema is nested deeper than any DynamoDB item") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(
            f"this is not a schema's JSON text ({_defect(error)}): compare with what 'ddbio schema --json' writes"
        ) from None
    return Shape(tags={"M": count} if count else {}, members=members), Declared(members=choices)


def _members(seen: Shape, declared: Declared) -> list[dict[str, Any]]:
    return [
        _entry(seen.members.get(name, NOTHING_SEEN), declared.members.get(name, NOTHING_DECLARED), index, name)
        for index, name in enumerate(names_of(seen, declared))
    ]


def _entry(seen: Shape, declared: Declared, index: int = 0, name: str | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = {} if name is None else {"name": name}
    if declared.column_name is not None:
        entry["column_name"] = declared.column_name
    entry["column"] = declared.column or column_of(seen)
    if declared.column is not None:
        entry["declared"] = True
    if seen.tags:
        entry["seen"] = dict(sorted(seen.tags.items()))
        entry |= {"place": seen.place} if seen.place != index else {}
    if declared != NOTHING_DECLARED and declared.place != index:
        entry["declared_place"] = declared.place
    if "N" in seen.tags or "NS" in seen.tags:
        entry |= {"whole_digits": seen.whole_digits, "scale": seen.scale, "fits_int64": seen.fits_int64}
    if members := _members(seen, declared):
        entry["members"] = members
    inner = declared.inner or NOTHING_DECLARED
    is_list = entry["column"].startswith("L ")
    for key, shape, choice in (
        ("element", seen.element, inner if is_list else NOTHING_DECLARED),
        ("values", seen.others, NOTHING_DECLARED if is_list else inner),
    ):
        if shape is not None or choice != NOTHING_DECLARED:
            entry[key] = _entry(shape or NOTHING_SEEN, choice)
    return entry


def _read_members(entries: list[dict[str, Any]], path: str) -> tuple[dict[str, Shape], dict[str, Declared]]:
    shapes: dict[str, Shape] = {}
    choices: dict[str, Declared] = {}
    for index, entry in enumerate(entries):
        name = entry["name"]
        if not isinstance(name, str) or not _is_utf8(name):
            raise SchemaError(f"{path or 'attributes'}: {name!r} is no name: write text")
        where = f"{path}.{name}" if path else name
        if name in shapes or name in choices:
            raise SchemaError(f"{where}: the file names this attribute twice: keep one of them")
        shape, declared = _read_entry(entry, index, where)
        if shape != NOTHING_SEEN:
            shapes[name] = shape
        if declared is not None:
            choices[name] = declared
    return shapes, choices


def _read_entry(entry: dict[str, Any], index: int, path: str) -> tuple[Shape, Declared | None]:
    _check_keys(entry, path)
    members, choices = _read_members(entry.get("members", []), path)
    element, element_choice = _read_entry(entry["element"], 0, f"{path}[]") if "element" in entry else (None, None)
    others, others_choice = _read_entry(entry["values"], 0, f"{path}.*") if "values" in entry else (None, None)
    shape = Shape(
        tags={tag: int(count) for tag, count in entry.get("seen", {}).items()},
        whole_digits=int(entry.get("whole_digits", 0)),
        scale=int(entry.get("scale", 0)),
        fits_int64=bool(entry.get("fits_int64", True)),
        element=element if element != NOTHING_SEEN else None,
        members=members,
        others=others if others != NOTHING_SEEN else None,
    )
    column = _read_column(entry, shape, path)
    inner = element_choice or others_choice
    column_name = _read_column_name(entry, path)
    is_declared = any(choice is not None for choice in (column, inner, column_name)) or bool(choices)
    declared_place = int(entry.get("declared_place", index))
    declared = Declared(column, declared_place, inner, choices, column_name) if is_declared else None
    return replace(shape, place=int(entry.get("place", index))) if shape != NOTHING_SEEN else shape, declared


def _check_keys(entry: dict[str, Any], path: str) -> None:
    for key in entry.keys() - _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "remove it"
        raise SchemaError(f"{path}: {key!r} is not a key of a column: {hint}")


def _read_column_name(entry: dict[str, Any], path: str) -> str | None:
    chosen = entry.get("column_name")
    if chosen is None:
        return None
    if "name" not in entry:
        raise SchemaError(f"{path}: column_name {chosen!r} has no meaning here: only attributes have columns of a name")
    if not isinstance(chosen, str) or not _is_utf8(chosen):
        raise SchemaError(f"{path}: column_name {chosen!r} is no name: write text")
    return chosen


def _is_utf8(text: str) -> bool:
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _read_column(entry: dict[str, Any], shape: Shape, path: str) -> str | None:
    is_seen = shape != NOTHING_SEEN
    column = entry.get("column", column_of(shape)) if is_seen else entry["column"]
    if (unknown := shape.tags.keys() - set(TAGS)) or not isinstance(column, str) or not column:
        raise SchemaError(f"{path}: {sorted(unknown) or column!r} is not a DynamoDB type and an Arrow type")
    is_chosen = entry.get("declared", False) or not is_seen or column != column_of(shape)
    return column if is_chosen else None


def schema_to_json(schema: pa.Schema, *, is_compact: bool = False) -> str:
    """Return an Arrow schema as JSON text for ``schema_from_json``. Equal schemas have equal texts.

    Parameters
    ----------
    is_compact
        Whether to omit line breaks and spaces.
    """
    fields = [_field_to_json(field) for field in schema if field.name != RESCUE_NAME]
    document = {"version": ARROW_VERSION, "fields": fields}
    return compact_json(document) if is_compact else json.dumps(document, indent=2, ensure_ascii=False)


def parse_schema(text: str | bytes) -> Any:
    """Return the parsed JSON of a schema's text. A byte order mark, which some editors write, is skipped."""
    return json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)


def schema_from_json(text: str) -> pa.Schema:
    """Return the normalised Arrow schema of a text that ``schema_to_json`` wrote or a person edited.

    Raises
    ------
    SchemaError
        The text is not such JSON, has another version, or names an unknown type.
    """
    try:
        document = parse_schema(text)
        if document["version"] != ARROW_VERSION:
            raise SchemaError(
                f"schema version {document['version']!r} is not {ARROW_VERSION}: write it again with this release"
            )
        fields = [_field_from_json(field) for field in document["fields"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(
            f"this is not a schema's JSON text ({_defect(error)}): compare with what schema_to_json writes"
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
    if (form := format_of_field(field)) is not None:
        described["time"] = str(form)
    return described


def _field_from_json(described: dict[str, Any]) -> pa.Field[Any]:
    children = [_field_from_json(child) for child in described.get("fields", ())]
    arrow_type = type_of_text(described["arrow"], children)
    field = tagged_field(described["name"], arrow_type, described["type"], attribute=described.get("attribute"))
    return with_format(field, parse_format(described["time"])) if "time" in described else field
