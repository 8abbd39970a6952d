"""Bring any Arrow schema to fields that DynamoDB has a type for, and its arrays to fewer layouts.

Refuses what DynamoDB has no exact form for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.core.kernel.encode.times import form_of, is_time, refuse_interval, scale_of
from ddbio.core.schema.arrow import (
    DDB_TYPE,
    RESCUE_FIELD,
    RESCUE_NAME,
    SETS,
    is_item_bytes,
    is_list,
    is_text,
    normalize_field,
    require_unique,
)
from ddbio.errors import SchemaError


def plain_fields(schema: pa.Schema, options: Any) -> tuple[list[pa.Field[Any]], dict[str, int]]:
    """Return normalised fields, the rescue column last, and the decimal places of counts of time by path.

    Raises
    ------
    SchemaError
        A type has no form, a name occurs twice, or the options name a set that is none.
    """
    require_unique(list(schema), "schema")
    scales: dict[str, int] = {}
    fields = []
    has_rescue = False
    for name in options.sets:
        if name not in schema.names:
            raise SchemaError(
                f"{name}: named in sets, but there is no such column: known are {', '.join(schema.names)}"
            )
    for each in schema:
        if each.name == RESCUE_NAME and is_text(_plain_type(each.type, each.name, options, scales)):
            has_rescue = True
            continue
        if is_item_bytes(each):
            continue
        plain = _plain_field(each, each.name, options, scales)
        if each.name in options.sets and DDB_TYPE not in (each.metadata or {}):
            plain = _as_set(plain)
        fields.append(normalize_field(plain, each.name))
    return [*fields, RESCUE_FIELD] if has_rescue else fields, scales


def _plain_field(each: pa.Field[Any], path: str, options: Any, scales: dict[str, int]) -> pa.Field[Any]:
    return pa.field(each.name, _plain_type(each.type, path, options, scales), metadata=each.metadata)


def _plain_type(arrow_type: Any, path: str, options: Any, scales: dict[str, int]) -> pa.DataType:  # noqa: C901, PLR0911 - one line a type
    types = pa.types
    refuse_interval(path, arrow_type)
    if is_time(arrow_type):
        scales[path] = scale_of(arrow_type, options)
        return pa.string() if form_of(arrow_type, options) == "iso" else pa.int64()
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _plain_type(arrow_type.storage_type, path, options, scales)
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return _plain_type(arrow_type.value_type, path, options, scales)
    if types.is_map(arrow_type):
        key = _plain_type(arrow_type.key_type, path, options, scales)
        return pa.map_(key, _plain_field(arrow_type.item_field, f"{path}.*", options, scales))  # type: ignore[call-overload, no-any-return] # stubs lack fields
    if types.is_nested(arrow_type) and hasattr(arrow_type, "value_field"):
        return pa.list_(_plain_field(arrow_type.value_field, f"{path}[]", options, scales))
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return pa.struct([_plain_field(member, f"{path}.{member.name}", options, scales) for member in members])
    if types.is_string_view(arrow_type):
        return pa.string()
    if types.is_binary_view(arrow_type) or types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if types.is_float16(arrow_type):
        return pa.float32()
    if types.is_decimal(arrow_type) and not types.is_decimal256(arrow_type):
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    return arrow_type  # type: ignore[no-any-return]


def _as_set(each: pa.Field[Any]) -> pa.Field[Any]:
    if not is_list(each.type):
        raise SchemaError(f"{each.name}: named in sets, but it is an Arrow {each.type}: only lists become sets")
    element = normalize_field(each.type.field(0).with_name("element"), f"{each.name}[]")
    tag = (element.metadata or {})[DDB_TYPE].decode() + "S"
    if tag not in SETS:
        raise SchemaError(f"{each.name}: named in sets, but DynamoDB has sets of text, numbers and binary only")
    return each.with_metadata({**(each.metadata or {}), DDB_TYPE: tag.encode()})  # type: ignore[dict-item] # stubs


def plain_array(array: Any) -> Any:
    """Return the array without extension, dictionary, run ends, views and fixed sizes."""
    while True:
        arrow_type = array.type
        if isinstance(arrow_type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(arrow_type):
            array = _taken(array.dictionary, array.indices)
        elif pa.types.is_run_end_encoded(arrow_type):
            entries = np.arange(array.offset, array.offset + len(array))
            array = _taken(array.values, pa.array(np.searchsorted(array.run_ends, entries, side="right")))
        elif pa.types.is_fixed_size_list(arrow_type):
            return _without_fixed_size(array)
        elif pa.types.is_list_view(arrow_type) or pa.types.is_large_list_view(arrow_type):
            return _without_view(array)
        else:
            return array


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a batch in an order, of the same schema."""
    try:
        return batch.take(pa.array(rows, pa.int64()))
    except pa.ArrowNotImplementedError:
        # pyarrow 25 takes nothing from views, nor from run ends, wherever they are; it joins slices of them.
        firsts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
        runs = [(int(run[0]), len(run)) for run in np.split(rows, firsts[1:])] if len(rows) else [(0, 0)]
        columns = [pa.concat_arrays([column.slice(*run) for run in runs]) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _taken(values: Any, places: Any) -> Any:
    plain = plain_array(values)
    # pyarrow 25 takes nothing from views.
    if pa.types.is_string_view(plain.type):
        plain = plain.cast(pa.large_string())
    elif pa.types.is_binary_view(plain.type):
        plain = plain.cast(pa.large_binary())
    return plain.take(places)


def _without_fixed_size(array: Any) -> Any:
    # The cast of pyarrow 25 loses the texts of views.
    size = array.type.list_size
    offsets = size * np.arange(len(array) + 1)
    return _lists(offsets, array.values.slice(size * array.offset, offsets[-1]), array.is_null())


def _without_view(array: Any) -> Any:
    lengths = np.where(array.is_valid(), array.sizes, 0)
    return _lists(_ends_of(lengths), _gathered(array.values, array.offsets.to_numpy(), lengths), array.is_null())


def without_hidden(array: Any, offsets: npt.NDArray[np.int64], values: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the offsets and the values of a list or map, or its keys, without what lies under its nulls."""
    lengths = np.where(array.is_valid(), np.diff(offsets), 0)
    return _ends_of(lengths), _gathered(values, offsets[:-1], lengths)


def _lists(offsets: npt.NDArray[np.int64], values: Any, mask: Any) -> Any:
    places: Any = pa.array(offsets)
    return pa.LargeListArray.from_arrays(places, values, mask=mask)


def _ends_of(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _gathered(values: Any, starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Any:
    """Return so many values from each start on, one stretch after the other."""
    # pyarrow 25 loses the texts of extensions that are views, and cannot make nothing of every type.
    plain = plain_array(values)
    if not lengths.any():
        return plain.slice(0, 0)
    views: Any = pa.LargeListViewArray
    places = [pa.array(each, pa.int64()) for each in (np.where(lengths, starts, 0), lengths)]
    return views.from_arrays(*places, plain).flatten()
