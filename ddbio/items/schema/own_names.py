"""Names of attribute columns next to ddbio's own columns in logs, archives, lake tables and histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.items.schema.arrow import DDB_NAME, DDB_TYPE, RESCUE_NAME, fields_within, is_list, name_of_field
from ddbio.items.schema.folded import MAX_COLUMN_NAME_BYTES, REFUSED, fold, with_checksum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet


def column_name(attribute: str, used: AbstractSet[str], arrow_type: pa.DataType | None = None) -> str:
    """Return the column name of an attribute: the attribute's name, or one with a checksum if that is impossible.

    Parameters
    ----------
    used
        The folded names of the other columns and of their nested fields.
    arrow_type
        The type of the column. Iceberg names a member ``b`` of a struct ``a`` ``a.b``, so no column may have that
        name.
    """
    name = attribute
    if not name or REFUSED.search(name) or len(name.encode()) > MAX_COLUMN_NAME_BYTES:
        name = with_checksum(attribute)
    number = 1
    while not used.isdisjoint(names_of(name, arrow_type)):
        # Another attribute may have this name.
        name = with_checksum(attribute) if number == 1 else with_checksum(f"{attribute} {number}")
        number += 1
    return name


def names_of(name: str, arrow_type: pa.DataType | None) -> Iterator[str]:
    """Yield the folded names of a column and of its nested fields, as Iceberg writes them."""
    yield fold(name)
    if arrow_type is None:
        return
    if pa.types.is_map(arrow_type):
        yield fold(f"{name}.key")
    for field in fields_within(arrow_type):
        inner = "element" if is_list(arrow_type) else "value" if pa.types.is_map(arrow_type) else field.name
        yield from names_of(f"{name}.{inner}", field.type)


def is_own(field: pa.Field[Any], own: Collection[str]) -> bool:
    """Return whether a field is one of ddbio's own columns: it has such a name and is not an attribute's column."""
    return field.name in own and (field.name == RESCUE_NAME or DDB_TYPE not in (field.metadata or {}))


def item_fields(schema: pa.Schema, own: Collection[str]) -> list[pa.Field[Any]]:
    """Return the columns of attributes and the rescue column of a schema that also has ddbio's own columns."""
    return [field for field in schema if field.name == RESCUE_NAME or not is_own(field, own)]


def columns_of(schema: pa.Schema, attributes: Iterable[str]) -> list[str]:
    """Return the column names of attributes. An attribute without a column is returned unchanged."""
    names = {name_of_field(field): field.name for field in schema if field.name != RESCUE_NAME}
    return [names.get(attribute, attribute) for attribute in attributes]


def beside(fields: pa.Schema | list[pa.Field[Any]], own: Collection[str]) -> list[pa.Field[Any]]:
    """Return the columns of attributes, renamed so that no name equals an own column's of a file, ignoring case.

    Names with more bytes than catalogs accept also get a checksum. The rescue column is unchanged.
    """
    reserved = {fold(name) for name in own}
    used = reserved | {fold(field.name) for field in fields}
    renamed: list[pa.Field[Any]] = []
    for field in fields:
        name = field.name
        if name != RESCUE_NAME and (fold(name) in reserved or len(name.encode()) > MAX_COLUMN_NAME_BYTES):
            name = column_name(name_of_field(field), used)
            used.add(fold(name))
        reserved.add(fold(name))
        renamed.append(field if name == field.name else _renamed(field, name))
    return renamed


def mark_own_columns(schema: pa.Schema) -> pa.Schema:
    """Mark own columns that have the name of an attribute with another column, so that they are not mistaken for it."""
    # Most schemas name no attribute. This check is cheaper than reading the metadata of each field.
    if DDB_NAME not in schema.serialize().to_pybytes():
        return schema
    named = {name_of_field(field) for field in schema if DDB_NAME in (field.metadata or {})}
    if named.isdisjoint(schema.names):
        return schema
    return pa.schema(
        [
            field.with_metadata({DDB_NAME: f"column {field.name}".encode()})
            if field.name in named and {DDB_NAME, DDB_TYPE}.isdisjoint(field.metadata or {})
            else field
            for field in schema
        ]
    )


def _renamed(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    metadata: dict[Any, Any] = {**(field.metadata or {}), DDB_NAME: name_of_field(field).encode()}
    return field.with_name(name).with_metadata(metadata)
