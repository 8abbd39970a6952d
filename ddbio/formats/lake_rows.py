"""Read the items in a data file of a lake table of ddbio: no tombstones, and no columns of the table's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.file_format import FileFormat, FileReader, Parts, Sample
from ddbio.formats.lake_columns import DELETED, attribute_columns
from ddbio.formats.parquet import PARQUET
from ddbio.items.schema.arrow import RESCUE_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.formats.file_format import ReadOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


class LakeRowsReader(FileReader):
    """Read the items of one file, in the columns that its table has for items.

    How many rows are items shows only when they are read.
    """

    def __init__(self, store: ObjectStore, entry: StoredObject, options: ReadOptions) -> None:
        self._reader = PARQUET.open_reader(store, entry, options)
        given = options.schema
        self._schema = pa.schema([*attribute_columns(self._reader.schema()), RESCUE_FIELD]) if given is None else given

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
        found = self._reader.sample(rows)
        if found is None:
            return None
        return Sample(self._items(found.batch), self._row_bytes())

    def _row_bytes(self) -> float | None:
        parts = self._reader.parts()
        return sum(parts.sizes_bytes) / parts.rows if parts.rows else None

    def _items(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.filter(pc.invert(batch.column(DELETED)))
        known = set(batch.schema.names)
        columns: list[Any] = [
            kept.column(field.name).cast(field.type) if field.name in known else pa.nulls(kept.num_rows, field.type)
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
