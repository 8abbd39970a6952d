"""Reads of the items of a version of a lake table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import NotFoundError, OptionError
from ddbio.formats.lake_columns import DELETED, attribute_columns
from ddbio.formats.rolling_writer import FileOptions
from ddbio.items.schema.arrow import RESCUE_FIELD, name_of_field, tag_of_field
from ddbio.jobs.stores import open_store
from ddbio.lake_formats.bucket_files import BucketFiles
from ddbio.lake_formats.registry import lake_format, open_lake_table
from ddbio.lake_formats.rows import LakeShape, shape_of
from ddbio.lake_formats.table import BUCKETS, EPOCHS, KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.lake_formats.table import LakeFile, LakeState, LakeTable
    from ddbio.options import ConnectionOptions


@dataclass(frozen=True)
class LakeItems:
    """One version of a lake table that ddbio created."""

    table: LakeTable
    state: LakeState
    format: str

    @property
    def shape(self) -> LakeShape:
        """Return the columns, keys and buckets of the table."""
        keys = json.loads(self.state.properties[KEYS])
        return shape_of(self.state.schema, keys, int(self.state.properties[BUCKETS]))

    @property
    def key_types(self) -> dict[str, str]:
        """Return the key attributes and their types."""
        tags = {name_of_field(field): tag_of_field(field) for field in attribute_columns(self.state.schema)}
        return {name: tags[name] for name in self.shape.keys}

    @property
    def epochs(self) -> list[str]:
        """Return the streams whose changes the table has, in the order of their epochs."""
        epochs: list[str] = json.loads(self.state.properties.get(EPOCHS, "[]"))
        return epochs

    @property
    def item_schema(self) -> pa.Schema:
        """Return the columns of the items: those of the attributes, and the rescue column."""
        return pa.schema([*self.shape.attributes, RESCUE_FIELD])

    def rows(
        self, names: Sequence[str] | None = None, files: Sequence[LakeFile] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all or some files, in all or some of their columns."""
        bucket_files = BucketFiles(self.table.store, self.table.file_schema(self.state), "read", FileOptions())
        for file in self.state.files if files is None else files:
            yield from bucket_files.read(file, names)

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the items of the rows that are not deleted, in the columns of items."""
        schema = self.item_schema
        live_rows = batch.filter(pc.invert(batch.column(DELETED)))
        columns: list[Any] = [live_rows.column(field.name) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_items(
    uri: str, options: ConnectionOptions, table_format: str = "auto", version: int | None = None
) -> LakeItems:
    """Return the newest version of a lake table, or another one.

    Raises
    ------
    NotFoundError
        If there is no lake table, or no such version.
    OptionError
        If ddbio did not create the table.
    """
    format_name = lake_format(open_store(uri, options)) if table_format == "auto" else table_format
    table = None if format_name is None else open_lake_table(uri, format_name, options)
    state = None if table is None else table.load(version)
    if format_name is None or table is None or state is None:
        raise NotFoundError(f"there is no lake table at {uri}")
    if KEYS not in state.properties or BUCKETS not in state.properties:
        raise OptionError(f"{uri} is a table that ddbio did not create: its key is unknown")
    return LakeItems(table, state, format_name)
