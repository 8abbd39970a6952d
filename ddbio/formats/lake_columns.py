"""Columns of a lake table: its own, and those of the items' attributes.

A lake table has one row for each key that it ever received. A deleted item stays as a row with a true ``_deleted``, a
tombstone, so that an older change that arrives late cannot restore it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError
from ddbio.formats.file_format import FileFormat, FileReader, Parts, Sample
from ddbio.formats.parquet import PARQUET
from ddbio.items.schema.arrow import (
    DDB_NAME,
    DDB_TYPE,
    RESCUE_FIELD,
    RESCUE_NAME,
    fields_within,
    is_list,
    name_of_field,
    normalize_field,
    tagged_field,
)
from ddbio.items.schema.folded import REFUSED, fold
from ddbio.items.schema.own_names import column_name, names_of
from ddbio.items.schema.vectors import listed_vector
from ddbio.options.lake_formats import LAKE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.formats.file_format import ReadOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

KEY, BUCKET, VERSION, TIME, OPERATION, DELETED = "_key", "_b", "_ver", "_ts_us", "_op", "_deleted"

OWN_FIELDS: Final[tuple[pa.Field[Any], ...]] = (
    pa.field(KEY, pa.string(), nullable=False),
    pa.field(BUCKET, pa.int32(), nullable=False),
    pa.field(VERSION, pa.string(), nullable=False),
    pa.field(TIME, pa.int64()),
    pa.field(OPERATION, pa.string()),
    pa.field(DELETED, pa.bool_(), nullable=False),
)
"""The columns before those of the attributes: the key as text, its bucket, the version of the row, the time of the
change in microseconds, its operation, and whether the item is deleted."""

_OWN = frozenset({*(field.name for field in OWN_FIELDS), RESCUE_NAME})

# Iceberg refuses to read columns with the names of its metadata: https://iceberg.apache.org/spec/#reserved-field-ids
_RESERVED = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id", "_is_deleted"),
        # Hudi's own: https://hudi.apache.org/docs/faq_writing_tables#hoodie-meta-columns
        *(
            f"_hoodie_{suffix}"
            for suffix in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
        ),
        *("_hoodie_operation", "_hoodie_is_deleted"),
    }
)

# Hive writes the names of members into the type, without quotes.
_REFUSED_WITHIN = re.compile(rf"{REFUSED.pattern}|[:<>`]")

_USED = frozenset(map(fold, (*_OWN, *_RESERVED)))

MOST_COLUMNS: Final = 500
"""Maximum number of attributes with their own columns; further attributes are in the rescue column."""

_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}
_SAME = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_date32,
)


def lake_schema(attributes: pa.Schema) -> pa.Schema:
    """Return the schema of a lake table whose items have these columns, as :func:`lake_fields` returned them."""
    # Added columns come last in every format.
    return pa.schema([*OWN_FIELDS, RESCUE_FIELD, *(field for field in attributes if field.name != RESCUE_NAME)])


def deleted_column(table_format: str) -> str:
    """Return the name of the column that marks tombstones in tables of this format."""
    return LAKE_FORMATS[table_format].deleted_column


def shown_schema(schema: pa.Schema, table_format: str) -> pa.Schema:
    """Return the columns of a lake table under the names that readers of this format see."""
    index = schema.get_field_index(DELETED)
    return schema.set(index, schema.field(index).with_name(deleted_column(table_format)))


def attribute_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the attributes of a lake table."""
    return pa.schema([field for field in schema if field.name not in _OWN])


def lake_fields(attributes: Iterable[pa.Field[Any]], existing: Iterable[pa.Field[Any]] = ()) -> list[pa.Field[Any]]:
    """Return columns of attributes for a lake table, without attributes above the limit.

    Table formats treat names that differ only in case as equal: all but the first get a checksum suffix. So do the
    names of
    the table's own columns, names that Iceberg or Hudi reserve, names that are too long for a catalog, and names with
    characters that formats refuse.

    Parameters
    ----------
    existing
        The columns of attributes that the table already has.

    Raises
    ------
    SchemaError
        If no table format has the type of a column.
    """
    previous = [*existing]
    used = {*_USED, *(name for field in previous for name in names_of(field.name, field.type))}
    added: list[pa.Field[Any]] = []
    for field in attributes:
        if field.name == RESCUE_NAME or len(previous) + len(added) >= MOST_COLUMNS:
            continue
        attribute = name_of_field(field)
        normal = normalize_field(listed_vector(field), attribute)
        tag, is_plain = (normal.metadata or {})[DDB_TYPE].decode(), has_plain_names(normal.type)
        kind = normal.type if is_plain else pa.string()
        name = column_name(attribute, used, kind)
        used.update(names_of(name, kind))
        column = tagged_field(name, _lake_type(kind, attribute), tag if is_plain else "JSON", attribute=attribute)
        if is_plain:
            extra: dict[Any, Any] = {k: v for k, v in (normal.metadata or {}).items() if k not in {DDB_TYPE, DDB_NAME}}
            extra.update(column.metadata or {})
            column = column.with_metadata(extra)
        added.append(column)
    return added


def has_plain_names(arrow_type: pa.DataType) -> bool:
    """Return whether no two members of a struct differ only in case, and none has a name that formats refuse."""
    fields = fields_within(arrow_type)
    if pa.types.is_struct(arrow_type):
        names = [field.name for field in fields]
        if len({fold(name) for name in names}) < len(names) or any(
            not name or _REFUSED_WITHIN.search(name) for name in names
        ):
            return False
    return all(has_plain_names(field.type) for field in fields)


def _lake_type(arrow_type: Any, path: str) -> Any:
    if arrow_type in _WIDER:
        return _WIDER[arrow_type]
    if any(is_kind(arrow_type) for is_kind in _SAME):
        return arrow_type
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit != "ns":
        return pa.timestamp("us", None if arrow_type.tz is None else "UTC")
    if is_list(arrow_type):
        return pa.list_(_lake_field(arrow_type.value_field, f"{path}[]"))
    if pa.types.is_struct(arrow_type):
        return pa.struct([_lake_field(field, f"{path}.{field.name}") for field in fields_within(arrow_type)])
    if pa.types.is_map(arrow_type):
        return pa.map_(pa.string(), _lake_field(arrow_type.item_field, f"{path}.*"))
    raise SchemaError(f"{path}: table formats have no {arrow_type}: declare another type for the column")


def _lake_field(field: pa.Field[Any], path: str) -> pa.Field[Any]:
    return field.with_type(_lake_type(field.type, path))


class LakeRowsReader(FileReader):
    """Reader of the items of one file, in the columns of items of its table.

    The number of items among the rows is unknown until they are read.
    """

    def __init__(self, store: ObjectStore, entry: StoredObject, options: ReadOptions) -> None:
        self._reader = PARQUET.open_reader(store, entry, options)
        declared = options.schema
        self._schema = (
            pa.schema([*attribute_columns(self._reader.schema()), RESCUE_FIELD]) if declared is None else declared
        )

    def parts(self) -> Parts:
        """Return the row groups."""
        sizes_bytes = self._reader.parts().sizes_bytes
        return Parts(sizes_bytes, None, (None,) * len(sizes_bytes))

    def schema(self) -> pa.Schema:
        """Return the columns of items."""
        return self._schema

    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the items of one row group."""
        yield from map(self._items, self._reader.read(part, batch_rows))

    def sample(self, rows: int) -> Sample | None:
        """Return the items among the first rows."""
        sample = self._reader.sample(rows)
        if sample is None:
            return None
        return Sample(self._items(sample.batch), self._row_bytes())

    def _row_bytes(self) -> float | None:
        parts = self._reader.parts()
        return sum(parts.sizes_bytes) / parts.rows if parts.rows else None

    def _items(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        live = batch.filter(pc.invert(batch.column(DELETED)))
        names = set(batch.schema.names)
        columns: list[Any] = [
            live.column(field.name).cast(field.type) if field.name in names else pa.nulls(live.num_rows, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


LAKE_ROWS = FileFormat(
    name="lake-rows",
    endings=(),
    open_reader=LakeRowsReader,
    is_splittable=True,
    self_checking=PARQUET.self_checking,
)
