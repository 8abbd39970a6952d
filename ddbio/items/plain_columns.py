"""Bring columns of any Arrow type to the types that DynamoDB's values have, as a load writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.encode import EncodeOptions
from ddbio.items.kernel.arrays import entries_of, plain_array
from ddbio.items.kernel.encode.fields import is_time, plain_fields, time_array, unfit_times
from ddbio.items.schema.arrow import RESCUE_NAME, is_item_bytes, is_list, normalize_schema
from ddbio.items.schema.own_names import told_apart
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = EncodeOptions()


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of DynamoDB's types that hold the values of a schema; dates and timestamps stay.

    Raises
    ------
    SchemaError
        A column has an Arrow type that DynamoDB has no exact form for.
    """
    found = normalize_schema(pa.schema(list(_plain_fields(told_apart(schema)))))
    return found if RESCUE_NAME in schema.names else found.remove(len(found) - 1)


def _plain_fields(schema: pa.Schema) -> Iterator[pa.Field[Any]]:
    for each in schema:
        if is_time_column(each.type):
            yield each
        elif not is_item_bytes(each):
            yield from plain_fields(pa.schema([each]), _OPTIONS)[0]


def plain_batch(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch with the types that :func:`plain_schema` says.

    Raises
    ------
    DecodeError
        A date or a time has no form in text.
    """
    columns = [_plain(batch.column(each.name), each.type, each.name) for each in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _plain(array: Any, wanted: Any, path: str) -> Any:
    if array.type.equals(wanted):
        return array
    array = plain_array(array)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(wanted):
        members = [_plain(array.field(place), each.type, f"{path}.{each.name}") for place, each in enumerate(wanted)]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)
    if pa.types.is_map(wanted):
        offsets, keys, items = entries_of(array, array.keys, array.items)
        keys, items = _plain(keys, wanted.key_type, path), _plain(items, wanted.item_type, f"{path}.*")
        maps: Any = pa.MapArray
        return maps.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, type=wanted, mask=mask)
    if is_list(wanted):
        offsets, values = entries_of(array, array.values)
        lists: Any = pa.LargeListArray
        return lists.from_arrays(pa.array(offsets), _plain(values, wanted.value_type, f"{path}[]"), mask=mask).cast(
            wanted
        )
    if is_time(array.type) and not is_time_column(wanted):
        unfit, message = unfit_times(array, _OPTIONS)
        if unfit:
            raise DecodeError(f"{path}: {message}")
        array = time_array(array, _OPTIONS)
    return array.cast(wanted)
