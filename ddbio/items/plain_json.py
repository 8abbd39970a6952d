"""Columns as plain JSON: one line per row, or one text per value. Values that JSON readers would change are text.

A number is a JSON number if it is an integer, a float, or in a decimal column of at most 15 digits, which every double
represents exactly. Wider decimals are text, and binary is base64. Null is omitted from objects, and ``null`` in lists.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import DecodeError, EncodeError
from ddbio.items.encode import EncodeOptions
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import entries_of, plain_array
from ddbio.items.kernel.encode.fields import is_time, time_array
from ddbio.items.schema.arrow import fields_within, is_binary, is_decimal, is_float, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

# pyarrow's stubs lack the methods of nested arrays.
_Array: TypeAlias = Any

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.string()}


def orc_type(kind: Any) -> Any:
    """Return ORC's type for an Arrow type: a wider one, or text that Arrow casts back."""
    if pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind):
        # A time that ORC's readers cannot represent is then refused when it is written.
        return pa.timestamp("ns", kind.tz)
    return _UNSIGNED.get(kind) or _with_inner(kind, orc_type)


def json_type(kind: Any) -> Any:
    """Return the type that ``plain_json`` writes for a type: binary is base64 text, and wide decimals are text."""
    if is_binary(kind) or is_time(kind) or (is_decimal(kind) and kind.precision > MAX_DOUBLE_DIGITS):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    return _with_inner(kind, json_type)


def has_map(kind: Any) -> bool:
    """Return whether a type is or contains a map."""
    return pa.types.is_map(kind) or any(has_map(kind.field(index).type) for index in range(kind.num_fields))


def csv_type(kind: Any) -> Any:
    """Return the type of a CSV cell: base64 for binary, JSON text for nested types."""
    is_cast = is_binary(kind) or is_text(kind) or is_time(kind) or pa.types.is_decimal256(kind)
    return pa.string() if kind.num_fields or is_cast else kind


def csv_column(values: _Array) -> _Array:
    """Return a column as cells of the type :func:`csv_type`."""
    kind = values.type
    if kind.num_fields:
        return json_texts(values)
    if is_binary(kind):
        return base64_texts(values)
    return time_texts(values).cast(pa.string()) if is_text(kind) or is_time(kind) else values


def restore(values: _Array, kind: Any, path: str) -> _Array:
    """Return values of a file, which are text or have another type, with the declared type.

    Raises
    ------
    DecodeError
        If a text is not a value of that type. The message begins with ``path``.
    """
    if values.type == kind:
        return values
    try:
        return _restore(values, kind)
    except (pa.ArrowException, binascii.Error, ValueError) as error:
        raise DecodeError(f"{path}: the file holds {values.type}, which is no {kind}: {error}") from None


def restore_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema, including metadata, in the order of the batch.

    Columns that are not in the schema are unchanged.

    Raises
    ------
    DecodeError
        See :func:`restore`.
    """
    columns: list[_Array] = []
    fields: list[pa.Field[Any]] = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        declared = schema.field(field.name) if field.name in schema.names else field
        columns.append(restore(values, declared.type, field.name))
        fields.append(declared)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _with_inner(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type with its inner types changed. Their fields lose DynamoDB's types, which may no longer match."""
    inner = [field.with_type(change(field.type)).remove_metadata() for field in fields_within(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner[0])
    return pa.list_(inner[0]) if is_list(kind) else kind


def _restore(values: _Array, kind: Any) -> _Array:
    if values.type == kind:
        return values
    if is_binary(kind) and is_text(values.type):
        decoded = [None if text is None else binascii.a2b_base64(text, strict_mode=True) for text in values.to_pylist()]
        return pa.array(decoded, kind)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, kind, mask)
    if is_list(kind) and is_list(values.type):
        lists: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        offsets = pa.array(values.offsets.to_numpy().astype(np.int64 if lists is pa.LargeListArray else np.int32))
        return lists.from_arrays(offsets, _restore(values.values, kind.value_type), type=kind, mask=mask)
    return values.cast(kind)


def _struct(values: _Array, kind: Any, mask: Any) -> _Array:
    indices = {values.type.field(index).name: index for index in range(values.type.num_fields)}
    children: Iterable[_Array] = (
        _restore(values.field(indices[field.name]), field.type)
        if field.name in indices
        else pa.nulls(len(values), field.type)
        for field in kind
    )
    return pa.StructArray.from_arrays(list(children), fields=list(kind), mask=mask)


# pyarrow's stubs lack the methods of nested arrays.

MAX_DOUBLE_DIGITS = 15
"""A double represents every decimal with this number of digits."""

_AS_ISO = EncodeOptions()
_SPECIAL = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"


def json_lines(batch: pa.RecordBatch) -> _Array:
    """Return one JSON object per row, by the names of the columns.

    Raises
    ------
    EncodeError
        If a float is not a number.
    """
    return _objects(zip(batch.schema.names, batch.columns, strict=True), batch.num_rows)


def json_texts(array: _Array) -> _Array:
    """Return the JSON text of each value. Null stays null.

    Raises
    ------
    EncodeError
        If a float is not a number.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        objects = _objects(
            ((kind.field(index).name, array.field(index)) for index in range(kind.num_fields)), len(array)
        )
        return _where_valid(array, objects)
    if pa.types.is_map(kind):
        offsets, keys, items = entries_of(array, array.keys, array.items)
        members = _joined(_quoted(keys, ""), json_texts(items).fill_null("null"), separator=":")
        return _around("{", _lists_of(array, offsets, members), "}")
    if pa.types.is_fixed_size_list(kind):
        return json_texts(plain_array(array))
    if is_list(kind):
        offsets, values = entries_of(array, array.values)
        return _around("[", _lists_of(array, offsets, json_texts(values).fill_null("null")), "]")
    return _scalars(array, "")


def base64_texts(array: _Array) -> _Array:
    """Return the base64 text of each binary value."""
    texts = [None if value is None else base64.b64encode(value) for value in array.to_pylist()]
    return pa.array(texts, pa.binary()).cast(pa.string())


def time_texts(array: _Array) -> _Array:
    """Return the ISO 8601 text of each time."""
    return time_array(array, _AS_ISO)


def _number_texts(array: _Array) -> _Array:
    texts: Any = array.cast(pa.string())
    if is_decimal(array.type) and array.type.scale > 0:
        # The scale is the column's: trailing zeros are not part of a number.
        texts = pc.replace_substring_regex(texts, r"\.([0-9]*[1-9])?0*$", r".\1")
        texts = pc.utf8_rtrim(texts, ".")
    return texts


def _objects(members: Iterable[tuple[str, _Array]], count: int) -> _Array:
    texts = [_member(name, values) for name, values in members]
    if not texts:
        return pa.array(["{}"] * count, pa.string())
    if all(text.null_count for text in texts):
        # pyarrow 25 drops rows of which all members are skipped.
        is_present = functools.reduce(pc.or_, (text.is_valid() for text in texts))
        texts[0] = pc.if_else(is_present, texts[0], "")
    return _around("{", pc.binary_join_element_wise(*texts, ",", null_handling="skip"), "}")


def _member(name: str, values: _Array) -> _Array:
    prefix = compact_json(name) + ":"
    if values.type.num_fields:
        return _around(prefix, json_texts(values), "")
    return _scalars(values, prefix)


def _scalars(values: _Array, prefix: str) -> _Array:
    kind = values.type
    if is_binary(kind):
        return _around(f'{prefix}"', base64_texts(values), '"')
    if is_text(kind) or is_time(kind):
        return _quoted(time_texts(values), prefix)
    if is_float(kind) and pc.all(pc.is_finite(values)).as_py() is False:
        raise EncodeError("a float that is not a number cannot be written as JSON")
    texts = _number_texts(values)
    if is_decimal(kind) and kind.precision > MAX_DOUBLE_DIGITS:
        return _around(f'{prefix}"', texts, '"')
    return _around(prefix, texts, "") if prefix else texts


def _quoted(texts: _Array, prefix: str) -> _Array:
    return _around(f'{prefix}"', _escaped(texts.cast(pa.string())), '"')


def _escaped(texts: _Array) -> _Array:
    if not _occurs(pc.match_substring_regex(texts, _SPECIAL)):
        return texts
    for sign in '\\"':
        texts = pc.replace_substring(texts, sign, f"\\{sign}")
    if _occurs(pc.match_substring_regex(texts, _CONTROL)):
        for code in range(0x20):
            if _occurs(pc.match_substring(texts, chr(code))):
                texts = pc.replace_substring(texts, chr(code), compact_json(chr(code))[1:-1])
    return texts


def _occurs(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())


def _around(before: str, texts: _Array, after: str) -> _Array:
    if not before and not after:
        return texts
    return pc.binary_join_element_wise(before, texts, after, "")


def _joined(first: _Array, second: _Array, *, separator: str) -> _Array:
    return pc.binary_join_element_wise(first, second, separator)


def _where_valid(array: _Array, texts: _Array) -> _Array:
    if not array.null_count:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _lists_of(array: _Array, offsets: NDArray[np.int64], texts: _Array) -> _Array:
    """Return the texts of each list's elements, joined."""
    lists: Any = pa.LargeListArray
    mask = array.is_null() if array.null_count else None
    return pc.binary_join(lists.from_arrays(pa.array(offsets), texts, mask=mask), ",")
