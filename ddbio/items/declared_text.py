"""Carry columns that a file format has no type for as text, and make the declared columns of such text again.

A format keeps neither all Arrow types nor DynamoDB's types. Whoever reads its files back knows the schema from the
job's manifest, or is given it: text is then decoded by the type that the schema declares, and nothing is guessed.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.kernel.encode.fields import is_time
from ddbio.items.plain_json import MOST_DOUBLE_DIGITS, base64_texts, json_texts, time_texts
from ddbio.items.schema.arrow import fields_within, is_binary, is_decimal, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The stubs do not know what nested arrays have.
_Array: TypeAlias = Any

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.string()}


def orc_type(kind: Any) -> Any:
    """Return the type that ORC has for an Arrow type: a wider one, or text that Arrow casts back."""
    if pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind):
        # So that a time that ORC's readers cannot hold is refused when it is written.
        return pa.timestamp("ns", kind.tz)
    return _UNSIGNED.get(kind) or _with_inner(kind, orc_type)


def json_type(kind: Any) -> Any:
    """Return the type of what ``plain_json`` writes of a type: binary is base64 text, as are wide decimals text."""
    if is_binary(kind) or is_time(kind) or (is_decimal(kind) and kind.precision > MOST_DOUBLE_DIGITS):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    return _with_inner(kind, json_type)


def has_map(kind: Any) -> bool:
    """Return whether a type is a map or holds one."""
    return pa.types.is_map(kind) or any(has_map(kind.field(place).type) for place in range(kind.num_fields))


def csv_type(kind: Any) -> Any:
    """Return the type of a CSV cell: base64 for binary, JSON text for what is nested."""
    is_cast = is_binary(kind) or is_text(kind) or is_time(kind) or pa.types.is_decimal256(kind)
    return pa.string() if kind.num_fields or is_cast else kind


def csv_column(values: _Array) -> _Array:
    """Return a column as the cells that :func:`csv_type` says."""
    kind = values.type
    if kind.num_fields:
        return json_texts(values)
    if is_binary(kind):
        return base64_texts(values)
    return time_texts(values).cast(pa.string()) if is_text(kind) or is_time(kind) else values


def restore(values: _Array, kind: Any, path: str) -> _Array:
    """Return values of the declared type, of which a file holds text or another type.

    Raises
    ------
    DecodeError
        If a text is no value of that type; the message begins with ``path``.
    """
    if values.type == kind:
        return values
    try:
        return _restored(values, kind)
    except (pa.ArrowException, binascii.Error, ValueError) as error:
        raise DecodeError(f"{path}: the file holds {values.type}, which is no {kind}: {error}") from None


def restore_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema, metadata included, in the order of its own columns.

    Columns that the schema does not name stay.

    Raises
    ------
    DecodeError
        As :func:`restore` says.
    """
    columns: list[_Array] = []
    fields: list[pa.Field[Any]] = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        declared = schema.field(field.name) if field.name in schema.names else field
        columns.append(restore(values, declared.type, field.name))
        fields.append(declared)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _with_inner(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type with the types within it changed; their fields lose DynamoDB's types, which may fit no more."""
    inner = [each.with_type(change(each.type)).remove_metadata() for each in fields_within(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner[0])
    return pa.list_(inner[0]) if is_list(kind) else kind


def _restored(values: _Array, kind: Any) -> _Array:
    if values.type == kind:
        return values
    if is_binary(kind) and is_text(values.type):
        found = [None if text is None else binascii.a2b_base64(text, strict_mode=True) for text in values.to_pylist()]
        return pa.array(found, kind)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, kind, mask)
    if is_list(kind) and is_list(values.type):
        lists: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        offsets = pa.array(values.offsets.to_numpy().astype(np.int64 if lists is pa.LargeListArray else np.int32))
        return lists.from_arrays(offsets, _restored(values.values, kind.value_type), type=kind, mask=mask)
    return values.cast(kind)


def _struct(values: _Array, kind: Any, mask: Any) -> _Array:
    places = {values.type.field(place).name: place for place in range(values.type.num_fields)}
    children: Iterable[_Array] = (
        _restored(values.field(places[each.name]), each.type)
        if each.name in places
        else pa.nulls(len(values), each.type)
        for each in kind
    )
    return pa.StructArray.from_arrays(list(children), fields=list(kind), mask=mask)
