"""Rows of a lake table: conversion of items to its columns, and selection of the newest row of a key."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.lake_columns import DELETED, MOST_COLUMNS, VERSION, attribute_columns, lake_fields, lake_schema
from ddbio.formats.lake_columns import KEY as KEY_COLUMN
from ddbio.formats.log_columns import EVENT_ID, EVENT_TIME, EXPIRED, LOG_COLUMNS, OLD_IMAGE, OLD_RESCUE, SEQUENCE
from ddbio.formats.log_columns import OPERATION as LOG_OPERATION
from ddbio.items.decode import from_dynamodb_json, infer_schema_of_body
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import as_type, take_rows
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field
from ddbio.items.schema.own_names import is_own, item_fields
from ddbio.lake_formats.keys import keys_and_buckets, versions

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fitter:
    """Conversion of batches to given columns; the conversion is planned once for batches of one schema.

    Parameters
    ----------
    attributes
        The columns of the attributes.

    Attributes
    ----------
    schema
        The columns of the result: the attributes, and the rescue column.
    """

    def __init__(self, attributes: pa.Schema) -> None:
        self.schema = pa.schema([*attributes, RESCUE_FIELD])
        self._input_schema: pa.Schema | None = None
        # The index of each attribute in the input columns; None if items must be decoded again.
        self._indices: list[int | None] | None = None
        # Whether input and output columns are equal except for their names.
        self._is_plain = False

    def fit(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns."""
        input_schema = items.schema
        if self._input_schema is None or not input_schema.equals(self._input_schema, check_metadata=True):
            self._input_schema, self._indices = input_schema, self._match_columns(input_schema)
            self._is_plain = (
                self._indices == [*range(len(input_schema) - 1)] and input_schema.types == self.schema.types
            )
        count = items.num_rows
        if self._is_plain and items.column(items.num_columns - 1).null_count == count:
            return pa.RecordBatch.from_arrays(items.columns, schema=self.schema)
        rescued = input_schema.get_field_index(RESCUE_NAME)
        rescue = pa.nulls(count, pa.string()) if rescued < 0 else as_type(items.column(rescued), pa.string())
        if self._indices is None:
            return self._converted(items)
        columns = [
            pa.nulls(count, field.type) if index is None else as_type(items.column(index), field.type)
            for index, field in zip(self._indices, self.schema, strict=False)
        ]
        fitted_rows = pa.RecordBatch.from_arrays([*columns, rescue], schema=self.schema)
        if rescue.null_count == count:
            return fitted_rows
        # Rescued values may have a column here.
        chosen = np.flatnonzero(rescue.is_valid().to_numpy(zero_copy_only=False))
        converted = self._converted(take_rows(items, chosen))
        order = np.arange(count)
        order[chosen] = count + np.arange(len(chosen))
        both = pa.Table.from_batches([fitted_rows, converted]).combine_chunks().to_batches()[0]
        return take_rows(both, order)

    def _match_columns(self, input_schema: pa.Schema) -> list[int | None] | None:
        indices = {name_of_field(field): index for index, field in enumerate(input_schema) if field.name != RESCUE_NAME}
        types = {name_of_field(field): field for field in self.schema if field.name != RESCUE_NAME}
        if not all(
            name in types and _is_same(input_schema.field(index), types[name]) for name, index in indices.items()
        ):
            return None
        return [indices.get(name) for name in types]

    def _converted(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns, decoded again."""
        decoded = from_dynamodb_json(to_dynamodb_json(items), self.schema, nulls="keep")
        columns = [decoded.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def fitted(items: pa.RecordBatch, attributes: pa.Schema) -> pa.RecordBatch:
    """Return items in the columns of a lake table, and the rescue column."""
    return Fitter(attributes).fit(items)


def _is_same(field: pa.Field[Any], target: pa.Field[Any]) -> bool:
    """Return whether all values of a column fit another one: the types are equal except for the width of offsets."""
    if (field.metadata or {}).get(b"ddb:type") != (target.metadata or {}).get(b"ddb:type"):
        return False
    return bool(lake_fields([field])[0].type == target.type)


TTL = "TTL"
"""The operation of a tombstone that was caused by the time to live."""


@dataclass(frozen=True)
class LakeShape:
    """Keys, buckets and columns of a lake table.

    Attributes
    ----------
    keys
        The key attributes of the DynamoDB table.
    buckets
        The number of partitions ``_b`` of the lake table, which never changes.
    attributes
        The columns of the attributes.
    """

    keys: tuple[str, ...]
    buckets: int
    attributes: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the lake table."""
        return lake_schema(self.attributes)

    def grown(self, columns: pa.Schema, rescued: Sequence[str] = ()) -> LakeShape:
        """Return the shape with a column for each attribute without one.

        Parameters
        ----------
        rescued
            Texts of a rescue column; attributes that occur only in them get columns too.
        """
        names = {name_of_field(field) for field in self.attributes}
        new = [field for field in columns if field.name != RESCUE_NAME and name_of_field(field) not in names]
        names |= {name_of_field(field) for field in new}
        if rescued:
            unknown = [
                {name: value for name, value in json.loads(text).items() if name not in names and "NULL" not in value}
                for text in rescued
            ]
            body = b"\n".join(compact_json({"Item": attributes}).encode() for attributes in unknown if attributes)
            if body:
                inferred = infer_schema_of_body(body).to_arrow()
                new += [field for field in inferred if field.name != RESCUE_NAME]
        free_columns = max(0, MOST_COLUMNS - len(self.attributes))
        added = lake_fields(new, self.attributes)[:free_columns]
        return dataclasses.replace(self, attributes=pa.schema([*self.attributes, *added])) if added else self


def shape_of(schema: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of the lake table with a schema."""
    return LakeShape(tuple(keys), buckets, attribute_columns(schema))


def new_shape(columns: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of a new lake table for items with these columns."""
    return LakeShape(tuple(keys), buckets, pa.schema(lake_fields(columns)))


def log_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a log that a lake table needs."""
    return pa.schema([field for field in schema if not is_own(field, {OLD_IMAGE, OLD_RESCUE, EVENT_ID})])


def item_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the attributes of a log, and the rescue column."""
    return pa.schema(item_fields(schema, LOG_COLUMNS))


def rows_of_log(rows: pa.RecordBatch, shape: LakeShape, epoch: int) -> pa.RecordBatch:
    """Return the rows of a lake table for changes of a log; a delete becomes a tombstone.

    Raises
    ------
    SchemaError
        If a row has no key.
    """
    operations: Any = rows.column(LOG_OPERATION)
    deleted = pc.equal(operations, pa.scalar("REMOVE"))
    times = rows.column(EVENT_TIME).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    items = rows.select(item_columns(rows.schema).names)
    own = [
        versions(epoch, rows.column(SEQUENCE)),
        times,
        pc.if_else(rows.column(EXPIRED), pa.scalar(TTL), operations),
        deleted,
    ]
    return _lake_rows(items, shape, own)


def _lake_rows(items: pa.RecordBatch, shape: LakeShape, own: Sequence[Any]) -> pa.RecordBatch:
    keys, buckets = keys_and_buckets(items, shape.keys, shape.buckets)
    *attributes, rescue = fitted(items, shape.attributes).columns
    columns = [keys, buckets, *own, rescue, *attributes]
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def newest(rows: pa.Table) -> pa.Table:
    """Return the newest row of each key."""
    codes = rows.column(KEY_COLUMN).combine_chunks().dictionary_encode().indices.to_numpy()
    counts = np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
    repeated = np.flatnonzero(counts[codes] > 1)
    if not len(repeated):
        return rows
    mask = np.ones(len(codes), np.bool_)
    mask[repeated] = False
    indices: Any = pa.array(repeated)
    texts: Any = rows.column(VERSION).take(indices)
    order = np.lexsort((np.array(texts.to_pylist(), "S"), codes[repeated]))
    ordered = codes[repeated][order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    mask[repeated[order[last]]] = True
    return rows.filter(pa.array(mask))


def deleted_count(rows: pa.Table) -> int:
    """Return the number of tombstones."""
    return int(pc.sum(rows.column(DELETED)).as_py() or 0)
