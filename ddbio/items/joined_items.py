"""Items of several files in one table, also if the files have different types for an attribute."""

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
    """Return the rows of tables that have a rescue column. The items are unchanged.

    A column has a common type for the values of all tables. If there is none, the values of a table with another type
    than the previous tables are rescued, and so are values that Arrow cannot convert.
    """
    fields: dict[str, pa.Field[Any]] = {}
    for field in (field for table in tables for field in table.schema):
        fields[field.name] = _common(fields.get(field.name, field), field) or fields[field.name]
    joined = list[pa.Table]()
    for table in tables:
        others = [field.name for field in table.schema if not _fits(table, field, fields[field.name])]
        joined.append(_with_rescued(table, others) if others else table)
    return pa.concat_tables(joined, promote_options="permissive")


def _fits(table: pa.Table, field: pa.Field[Any], target: pa.Field[Any]) -> bool:
    """Return whether Arrow can convert the values of a column to the type of another one."""
    if field.type == target.type:
        return _tag(field) == _tag(target)
    if _common(target, field) is None:
        return False
    try:
        pa.concat_tables([pa.schema([target]).empty_table(), table.select([field.name])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return False
    return True


def _common(first: pa.Field[Any], field: pa.Field[Any]) -> pa.Field[Any] | None:
    """Return a column for the values of both, or None if it would change values of one."""
    if first.type == field.type and first.metadata == field.metadata:
        return first
    is_exact = pa.types.is_floating(first.type) == pa.types.is_floating(field.type)
    if not is_exact or _tag(first) != _tag(field):
        return None
    try:
        (common,) = pa.unify_schemas([pa.schema([first]), pa.schema([field])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return common


def _tag(field: pa.Field[Any]) -> bytes | None:
    # A column of an old image has no tag if another program wrote the file.
    return (field.metadata or {}).get(DDB_TYPE)


def _with_rescued(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table with the values of some columns moved to its rescue column."""
    index = table.schema.get_field_index(RESCUE_NAME)
    lines = to_dynamodb_json(table.select(list(names))).splitlines()
    texts = [
        rescue_text({**json.loads(text or "{}"), **json.loads(line)})
        for text, line in zip(table.column(index).to_pylist(), lines, strict=True)
    ]
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(texts, field.type)).drop_columns(list(names))
