"""Say how items lie in a lake table, and make its rows of changes of a log; tell the newest row of each key."""

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
from ddbio.items.decode import infer_schema_of_body
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.items.schema.own_names import is_own, item_fields
from ddbio.lake_formats.fitting import fitted
from ddbio.lake_formats.keys import keys_and_buckets
from ddbio.lake_formats.versions import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

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
