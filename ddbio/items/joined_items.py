"""Join items of several files in one table, also where the files have other types for an attribute."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.items.encode import to_dynamodb_json
from ddbio.items.rescue import rescue_text
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence


def joined_items(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables that have a rescue column, each item as it was.

    A column has a type for the values of all tables. Where there is none, the values of a table with another type than
    the tables before it are rescued, and so are values that Arrow does not convert.
    """
    fields: dict[str, pa.Field[Any]] = {}
    for field in (field for table in tables for field in table.schema):
        fields[field.name] = _common(fields.get(field.name, field), field) or fields[field.name]
    joined = list[pa.Table]()
    for table in tables:
        others = [field.name for field in table.schema if not _fits(table, field, fields[field.name])]
        joined.append(_with_rescued(table, others) if others else table)
    return pa.concat_tables(joined, promote_options="permissive")


def _fits(table: pa.Table, field: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    """Return whether Arrow converts the values of a column to the type of another one."""
    if field.type == wanted.type:
        return _tag(field) == _tag(wanted)
    if _common(wanted, field) is None:
        return False
    try:
        pa.concat_tables([pa.schema([wanted]).empty_table(), table.select([field.name])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return False
    return True


def _common(known: pa.Field[Any], field: pa.Field[Any]) -> pa.Field[Any] | None:
    """Return a column for the values of two; None if one would change values of the other."""
    if known.type == field.type and known.metadata == field.metadata:
        return known
    is_exact = pa.types.is_floating(known.type) == pa.types.is_floating(field.type)
    if not is_exact or _tag(known) != _tag(field):
        return None
    try:
        (found,) = pa.unify_schemas([pa.schema([known]), pa.schema([field])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return found


def _tag(field: pa.Field[Any]) -> bytes | None:
    # A column of an old image has none if another program has written the file.
    return (field.metadata or {}).get(DDB_TYPE)


def _with_rescued(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table whose rescue column has the values of some columns instead."""
    place = table.schema.get_field_index(RESCUE_NAME)
    lines = to_dynamodb_json(table.select(list(names))).splitlines()
    texts = [
        rescue_text({**json.loads(text or "{}"), **json.loads(line)})
        for text, line in zip(table.column(place).to_pylist(), lines, strict=True)
    ]
    field = table.schema.field(place)
    return table.set_column(place, field, pa.array(texts, field.type)).drop_columns(list(names))
