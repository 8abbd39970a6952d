"""Conversion of columns of any Arrow type to the types of DynamoDB's values, as a load writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.encode import EncodeOptions
from ddbio.items.kernel.arrays import entries_of, plain_array
from ddbio.items.kernel.encode.fields import is_time, plain_fields, time_array, unfit_times
from ddbio.items.schema.arrow import RESCUE_NAME, is_item_bytes, is_list, normalize_schema
from ddbio.items.schema.own_names import mark_own_columns
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = EncodeOptions()


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of DynamoDB's types for the values of a schema. Dates and timestamps are unchanged.

    Raises
    ------
    SchemaError
        A column has an Arrow type without an exact encoding in DynamoDB.
    """
    plain = normalize_schema(pa.schema(list(_plain_fields(mark_own_columns(schema)))))
    return plain if RESCUE_NAME in schema.names else plain.remove(len(plain) - 1)


def _plain_fields(schema: pa.Schema) -> Iterator[pa.Field[Any]]:
    for field in schema:
        if is_time_column(field.type):
            yield field
        elif not is_item_bytes(field):
            yield from plain_fields(pa.schema([field]), _OPTIONS)[0]


def plain_batch(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch with the types of :func:`plain_schema`.

    Raises
    ------
    DecodeError
        A date or a time cannot be written as text.
    """
    columns = [_plain(batch.column(field.name), field.type, field.name) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _plain(array: Any, target: Any, path: str) -> Any:
    if array.type.equals(target):
        return array
    array = plain_array(array)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        members = [
            _plain(array.field(index), member.type, f"{path}.{member.name}") for index, member in enumerate(target)
        ]
        return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)
    if pa.types.is_map(target):
        offsets, keys, items = entries_of(array, array.keys, array.items)
        keys, items = _plain(keys, target.key_type, path), _plain(items, target.item_type, f"{path}.*")
        maps: Any = pa.MapArray
        return maps.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, type=target, mask=mask)
    if is_list(target):
        offsets, values = entries_of(array, array.values)
        lists: Any = pa.LargeListArray
        return lists.from_arrays(pa.array(offsets), _plain(values, target.value_type, f"{path}[]"), mask=mask).cast(
            target
        )
    if is_time(array.type) and not is_time_column(target):
        unfit, message = unfit_times(array, _OPTIONS)
        if unfit:
            raise DecodeError(f"{path}: {message}")
        array = time_array(array, _OPTIONS)
    return array.cast(target)
