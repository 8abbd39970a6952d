"""Bring rows of one file of a log into the columns of the whole log: its jobs may have chosen other types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError
from ddbio.formats.log_columns import LOG_COLUMNS, OLD_IMAGE, OLD_RESCUE
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME
from ddbio.items.schema.own_names import is_own, item_fields
from ddbio.lake_formats.fitting import fitted

if TYPE_CHECKING:
    from collections.abc import Sequence


def fitted_log(batch: pa.RecordBatch, names: Sequence[str | None], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows in other columns; a value that does not fit the type of its column is in the rescue column.

    Parameters
    ----------
    names
        What the batch calls each column; None if it has none, and the column is null.
    columns
        The columns, with the rescue column.

    Raises
    ------
    SchemaError
        If a column that is no attribute's has values of another type.
    """
    arrays, differ = dict[str, Any](), set[str]()
    for wanted, name in zip(columns, names, strict=True):
        array = pa.nulls(len(batch), wanted.type) if name is None else _cast(batch, name, wanted)
        if array is None:
            differ.add(wanted.name)
        arrays[wanted.name] = array
    if differ - {OLD_IMAGE}:
        held = {name for name in names if name is not None}
        items = [each.name for each in item_fields(batch.schema, LOG_COLUMNS) if each.name in held]
        wanted_items = pa.schema([each for each in item_fields(columns, LOG_COLUMNS) if each.name != RESCUE_NAME])
        found = fitted(batch.select(items), wanted_items)
        arrays |= dict(zip(found.schema.names, found.columns, strict=True))
    if OLD_IMAGE in differ:
        arrays |= _fitted_images(batch, columns.field(OLD_IMAGE).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)


def _cast(batch: pa.RecordBatch, name: str, wanted: pa.Field[Any]) -> Any:
    """Return a column in another type; None if that would change a value, or one does not fit."""
    field, array = batch.schema.field(name), batch.column(name)
    is_attribute = not is_own(wanted, LOG_COLUMNS)
    if field.type != wanted.type and (wanted.name == OLD_IMAGE or (is_attribute and not _is_alike(field, wanted))):
        return None
    if is_attribute and _tag(field) != _tag(wanted):
        return None
    try:
        return array.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if not is_attribute:
            raise SchemaError(f"{wanted.name}: {error}") from error
        return None


def _is_alike(field: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    """Return whether a cast between two types of columns keeps each value, or fails."""
    kinds = [
        "number" if pa.types.is_integer(each) or pa.types.is_decimal(each)
        else "text" if pa.types.is_string(each) or pa.types.is_large_string(each)
        else "bytes" if pa.types.is_binary(each) or pa.types.is_large_binary(each)
        else None
        for each in (field.type, wanted.type)
    ]  # fmt: skip
    return kinds[0] is not None and kinds[0] == kinds[1]


def _tag(field: pa.Field[Any]) -> bytes | None:
    return (field.metadata or {}).get(DDB_TYPE)


def _fitted_images(batch: pa.RecordBatch, wanted: Any) -> dict[str, Any]:
    """Return the old images of rows in other columns, and what does not fit them."""
    images: Any = batch.column(OLD_IMAGE)
    items = dict(zip((each.name for each in images.type), images.flatten(), strict=True))
    fields = [batch.schema.field(name) for name in items] + [batch.schema.field(RESCUE_NAME)]
    found = fitted(
        pa.RecordBatch.from_arrays([*items.values(), batch.column(OLD_RESCUE)], schema=pa.schema(fields)),
        pa.schema(list(wanted)),
    )
    *columns, rescue = found.columns
    known = pa.StructArray.from_arrays(columns, fields=list(wanted), mask=pc.is_null(images))
    return {OLD_IMAGE: known, OLD_RESCUE: pc.if_else(pc.is_null(images), pa.scalar(None, pa.string()), rescue)}
