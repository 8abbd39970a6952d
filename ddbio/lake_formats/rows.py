"""The rows of a lake table: how items fit its columns, and which row of a key is the newest."""

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


TTL = "TTL"
"""The operation of a tombstone that the time to live made."""


@dataclass(frozen=True)
class LakeShape:
    """Say how the items of a table lie in a lake table.

    Attributes
    ----------
    keys
        The key attributes of the DynamoDB table.
    buckets
        How many partitions ``_b`` the lake table has; it never changes.
    attributes
        The columns of the attributes.
    """

    keys: tuple[str, ...]
    buckets: int
    attributes: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the lake table."""
        return lake_schema(self.attributes)

    def grown(self, columns: pa.Schema, rescued: Sequence[str] = ()) -> LakeShape:
        """Return the shape with a column for each attribute that has none yet.

        Parameters
        ----------
        rescued
            Texts of a rescue column; attributes that only they have get columns too.
        """
        known = {name_of_field(field) for field in self.attributes}
        new = [field for field in columns if field.name != RESCUE_NAME and name_of_field(field) not in known]
        known |= {name_of_field(field) for field in new}
        if rescued:
            unknown = [
                {name: value for name, value in json.loads(text).items() if name not in known and "NULL" not in value}
                for text in rescued
            ]
            body = b"\n".join(compact_json({"Item": each}).encode() for each in unknown if each)
            if body:
                found = infer_schema_of_body(body).to_arrow()
                new += [field for field in found if field.name != RESCUE_NAME]
        room = max(0, MOST_COLUMNS - len(self.attributes))
        added = lake_fields(new, self.attributes)[:room]
        return dataclasses.replace(self, attributes=pa.schema([*self.attributes, *added])) if added else self


def shape_of(schema: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of the lake table that has a schema."""
    return LakeShape(tuple(keys), buckets, attribute_columns(schema))


def new_shape(columns: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of a new lake table for items with these columns."""
    return LakeShape(tuple(keys), buckets, pa.schema(lake_fields(columns)))


def log_columns(schema: pa.Schema) -> pa.Schema:
    """Return those columns of a log that a lake table is made of."""
    return pa.schema([field for field in schema if not is_own(field, {OLD_IMAGE, OLD_RESCUE, EVENT_ID})])


def item_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the attributes of a log, and the rescue column."""
    return pa.schema(item_fields(schema, LOG_COLUMNS))


def rows_of_log(rows: pa.RecordBatch, shape: LakeShape, epoch: int) -> pa.RecordBatch:
    """Return the rows of a lake table for changes of a log; a delete is a tombstone.

    Raises
    ------
    SchemaError
        If a row lacks its key.
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
    kept = np.ones(len(codes), np.bool_)
    kept[repeated] = False
    places: Any = pa.array(repeated)
    texts: Any = rows.column(VERSION).take(places)
    order = np.lexsort((np.array(texts.to_pylist(), "S"), codes[repeated]))
    ordered = codes[repeated][order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    kept[repeated[order[last]]] = True
    return rows.filter(pa.array(kept))


def deleted_count(rows: pa.Table) -> int:
    """Return how many rows are tombstones."""
    return int(pc.sum(rows.column(DELETED)).as_py() or 0)
