"""Bring items into the columns of a lake table, exactly: what fits no column is in the rescue column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ddbio.formats.lake_columns import lake_fields
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.kernel.arrays import as_type, take_rows
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field


class Fitter:
    """Bring batches into columns; how is decided once for batches of one schema.

    Parameters
    ----------
    attributes
        The columns of the attributes.

    Attributes
    ----------
    schema
        That of what is returned: the attributes, and the rescue column.
    """

    def __init__(self, attributes: pa.Schema) -> None:
        self.schema = pa.schema([*attributes, RESCUE_FIELD])
        self._given: pa.Schema | None = None
        # Where each attribute is among the columns that are given; None if items have to be decoded again.
        self._places: list[int | None] | None = None
        # Whether the columns that are given are the wanted ones, but for their names.
        self._is_plain = False

    def fit(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns."""
        given = items.schema
        if self._given is None or not given.equals(self._given, check_metadata=True):
            self._given, self._places = given, self._found(given)
            self._is_plain = self._places == [*range(len(given) - 1)] and given.types == self.schema.types
        count = items.num_rows
        if self._is_plain and items.column(items.num_columns - 1).null_count == count:
            return pa.RecordBatch.from_arrays(items.columns, schema=self.schema)
        rescued = given.get_field_index(RESCUE_NAME)
        rescue = pa.nulls(count, pa.string()) if rescued < 0 else as_type(items.column(rescued), pa.string())
        if self._places is None:
            return self._converted(items)
        columns = [
            pa.nulls(count, field.type) if place is None else as_type(items.column(place), field.type)
            for place, field in zip(self._places, self.schema, strict=False)
        ]
        found = pa.RecordBatch.from_arrays([*columns, rescue], schema=self.schema)
        if rescue.null_count == count:
            return found
        # What was rescued may have a column here.
        chosen = np.flatnonzero(rescue.is_valid().to_numpy(zero_copy_only=False))
        mended = self._converted(take_rows(items, chosen))
        order = np.arange(count)
        order[chosen] = count + np.arange(len(chosen))
        both = pa.Table.from_batches([found, mended]).combine_chunks().to_batches()[0]
        return take_rows(both, order)

    def _found(self, given: pa.Schema) -> list[int | None] | None:
        places = {name_of_field(field): place for place, field in enumerate(given) if field.name != RESCUE_NAME}
        types = {name_of_field(field): field for field in self.schema if field.name != RESCUE_NAME}
        if not all(name in types and _is_same(given.field(place), types[name]) for name, place in places.items()):
            return None
        return [places.get(name) for name in types]

    def _converted(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items decoded again, by other columns."""
        found = from_dynamodb_json(to_dynamodb_json(items), self.schema, nulls="keep")
        columns = [found.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def fitted(items: pa.RecordBatch, attributes: pa.Schema) -> pa.RecordBatch:
    """Return items in the columns of a lake table, and the rescue column."""
    return Fitter(attributes).fit(items)


def _is_same(field: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    """Return whether all values of a column are values of another: the types are equal but for the width of offsets."""
    if (field.metadata or {}).get(b"ddb:type") != (wanted.metadata or {}).get(b"ddb:type"):
        return False
    return bool(lake_fields([field])[0].type == wanted.type)
