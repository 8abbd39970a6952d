"""Read the items that a version of a lake table has."""

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
    """Hold one version of a lake table that ddbio has made, and read its rows."""

    table: LakeTable
    state: LakeState
    format: str

    @property
    def shape(self) -> LakeShape:
        """How items lie in the table."""
        keys = json.loads(self.state.properties[KEYS])
        return shape_of(self.state.schema, keys, int(self.state.properties[BUCKETS]))

    @property
    def key_types(self) -> dict[str, str]:
        """The key attributes, and the type of each."""
        tags = {name_of_field(field): tag_of_field(field) for field in attribute_columns(self.state.schema)}
        return {name: tags[name] for name in self.shape.keys}

    @property
    def epochs(self) -> list[str]:
        """The streams whose changes the table has, in the order of their epochs."""
        found: list[str] = json.loads(self.state.properties.get(EPOCHS, "[]"))
        return found

    @property
    def item_schema(self) -> pa.Schema:
        """The columns of the items: those of the attributes, and the rescue column."""
        return pa.schema([*self.shape.attributes, RESCUE_FIELD])

    def rows(
        self, names: Sequence[str] | None = None, files: Sequence[LakeFile] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files, or of some, in all columns that files have, or in some."""
        work = BucketFiles(self.table.store, self.table.file_schema(self.state), "read", FileOptions())
        for file in self.state.files if files is None else files:
            yield from work.read(file, names)

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the items of some rows, in the columns of items; those that were deleted are left out."""
        wanted = self.item_schema
        kept = batch.filter(pc.invert(batch.column(DELETED)))
        columns: list[Any] = [kept.column(field.name) for field in wanted]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)


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
    found = lake_format(open_store(uri, options)) if table_format == "auto" else table_format
    table = None if found is None else open_lake_table(uri, found, options)
    state = None if table is None else table.load(version)
    if found is None or table is None or state is None:
        raise NotFoundError(f"there is no lake table at {uri}")
    if KEYS not in state.properties or BUCKETS not in state.properties:
        raise OptionError(
            f"{uri} is a table that ddbio did not make: nothing says by which key its rows are told apart"
        )
    return LakeItems(table, state, found)
