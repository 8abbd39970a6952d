"""Make rows of a lake table of rows of a log, or of a base load: each attribute in its column, misfits rescued."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_ID, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, SEQUENCE
from ddbio.core.capture.columns import OPERATION as LOG_OPERATION
from ddbio.core.decode import from_dynamodb_json, infer_schema_of_body
from ddbio.core.encode import to_dynamodb_json
from ddbio.core.kernel.arrays import take_rows
from ddbio.core.lake.columns import DELETED, MOST_COLUMNS, VERSION, attribute_columns, lake_fields, lake_schema
from ddbio.core.lake.columns import KEY as KEY_COLUMN
from ddbio.core.lake.keys import buckets_of, key_texts
from ddbio.core.lake.versions import BASE, versions
from ddbio.core.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG_OWN = frozenset({LOG_OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, EVENT_ID, OLD_IMAGE, OLD_RESCUE})
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
        added = lake_fields(new, self.attributes.names)[:room]
        return dataclasses.replace(self, attributes=pa.schema([*self.attributes, *added])) if added else self


def shape_of(schema: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of the lake table that has a schema."""
    return LakeShape(tuple(keys), buckets, attribute_columns(schema))


def new_shape(columns: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of a new lake table for items with these columns."""
    return LakeShape(tuple(keys), buckets, pa.schema(lake_fields(columns)))


def log_columns(schema: pa.Schema) -> pa.Schema:
    """Return those columns of a log that a lake table is made of."""
    return pa.schema([field for field in schema if field.name not in {OLD_IMAGE, OLD_RESCUE, EVENT_ID}])


def item_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the attributes of a log, and the rescue column."""
    return pa.schema([field for field in schema if field.name not in _LOG_OWN])


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
    items = rows.select([name for name in rows.schema.names if name not in _LOG_OWN])
    own = [
        versions(epoch, rows.column(SEQUENCE)),
        times,
        pc.if_else(rows.column(EXPIRED), pa.scalar(TTL), operations),
        deleted,
    ]
    return _lake_rows(items, shape, own)


def base_rows(items: pa.RecordBatch, shape: LakeShape, loaded_us: int) -> pa.RecordBatch:
    """Return the rows of a lake table for items of a base load, over which every change wins."""
    count = items.num_rows
    own = [
        pa.repeat(pa.scalar(BASE), count),
        pa.repeat(pa.scalar(loaded_us, pa.int64()), count),
        pa.nulls(count, pa.string()),
        pa.array(np.zeros(count, np.bool_)),
    ]
    return _lake_rows(items, shape, own)


def _lake_rows(items: pa.RecordBatch, shape: LakeShape, own: Sequence[Any]) -> pa.RecordBatch:
    keys = key_texts(items, shape.keys)
    *attributes, rescue = fitted(items, shape.attributes).columns
    columns = [keys, buckets_of(keys, shape.buckets), *own, rescue, *attributes]
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def fitted(items: pa.RecordBatch, attributes: pa.Schema) -> pa.RecordBatch:
    """Return items in the columns of a lake table, exactly: what fits no column is in the rescue column."""
    wanted = pa.schema([*attributes, RESCUE_FIELD])
    places = {name_of_field(field): place for place, field in enumerate(items.schema) if field.name != RESCUE_NAME}
    types = {name_of_field(field): field for field in wanted if field.name != RESCUE_NAME}
    fits = all(name in types and _is_same(items.schema.field(place), types[name]) for name, place in places.items())
    rescue = items.column(RESCUE_NAME) if RESCUE_NAME in items.schema.names else pa.nulls(items.num_rows, pa.string())
    if not fits:
        return _converted(items, wanted)
    columns = [
        items.column(places[name]).cast(field.type) if name in places else pa.nulls(items.num_rows, field.type)
        for name, field in types.items()
    ]
    found = pa.RecordBatch.from_arrays([*columns, rescue.cast(pa.string())], schema=wanted)
    if rescue.null_count == len(rescue):
        return found
    # What was rescued may have a column here.
    rescued = np.flatnonzero(rescue.is_valid().to_numpy(zero_copy_only=False))
    mended = _converted(take_rows(items, rescued), wanted)
    order = np.arange(items.num_rows)
    order[rescued] = items.num_rows + np.arange(len(rescued))
    both = pa.Table.from_batches([found, mended]).combine_chunks().to_batches()[0]
    return take_rows(both, order)


def _is_same(field: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    """Return whether all values of a column are values of another: the types are equal but for the width of offsets."""
    if (field.metadata or {}).get(b"ddb:type") != (wanted.metadata or {}).get(b"ddb:type"):
        return False
    return bool(lake_fields([field])[0].type == wanted.type)


def _converted(items: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return items decoded again, by other columns."""
    lines = to_dynamodb_json(items)
    found = from_dynamodb_json(lines, wanted, nulls="keep")
    columns = [found.column(field.name).cast(field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


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
