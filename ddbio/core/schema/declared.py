"""Give the columns of a batch DynamoDB's types as a schema declares them; change no value and no Arrow type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.schema.field import fields_within, is_list

if TYPE_CHECKING:
    from collections.abc import Iterable


def declare_types(batch: pa.RecordBatch, declared: Iterable[pa.Field[Any]]) -> pa.RecordBatch:
    """Return the batch with the metadata of declared fields on the fields of the same names, nested ones too."""
    by_name = {field.name: field for field in declared}
    fields = [_declare(field, by_name.get(field.name)) for field in batch.schema]
    # Types that differ in their metadata alone are equal.
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _declare(field: pa.Field[Any], declared: pa.Field[Any] | None) -> pa.Field[Any]:
    if declared is None:
        return field
    metadata = {**(field.metadata or {}), **(declared.metadata or {})}
    return pa.field(field.name, _declare_type(field.type, declared.type), field.nullable, metadata)


def _declare_type(arrow_type: Any, declared: pa.DataType) -> pa.DataType:
    inside = fields_within(declared)
    if pa.types.is_struct(arrow_type) and pa.types.is_struct(declared):
        by_name = {field.name: field for field in inside}
        return pa.struct([_declare(field, by_name.get(field.name)) for field in fields_within(arrow_type)])
    if is_list(arrow_type) and is_list(declared):
        element = _declare(arrow_type.value_field, inside[0])
        return pa.large_list(element) if pa.types.is_large_list(arrow_type) else pa.list_(element)
    if pa.types.is_map(arrow_type) and pa.types.is_map(declared):
        value: Any = _declare(arrow_type.item_field, inside[0])
        return pa.map_(arrow_type.key_type, value)
    return arrow_type  # type: ignore[no-any-return]
