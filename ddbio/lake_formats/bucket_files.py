"""Reads and writes of the data files of a lake table."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import DecodeError, SchemaError
from ddbio.formats.lake_columns import BUCKET, KEY, TIME, VERSION
from ddbio.formats.parquet_input import open_parquet
from ddbio.formats.rolling_writer import RollingWriter
from ddbio.storage.object_store import RangeFile
from ddbio.storage.staged import FileNaming, StagedFile, StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ddbio.formats.rolling_writer import FileOptions
    from ddbio.lake_formats.table import LakeFile
    from ddbio.storage.object_store import ObjectStore

_BATCH_ROWS = 65_536
# Up to this size, a file of which all columns are needed is read by one request; ranges would need several.
_MAX_SINGLE_READ_BYTES = 8 << 20
STATISTICS_COLUMNS = (KEY, VERSION, TIME)
"""Columns with minimum and maximum values in the table's log, for each file."""


@dataclass(frozen=True)
class BucketFiles:
    """Reader and writer of the data files of a table.

    Attributes
    ----------
    schema
        The schema of the files.
    job_id
        The job id in the names of written files.
    """

    store: ObjectStore
    schema: pa.Schema
    job_id: str
    options: FileOptions

    def write(self, bucket: int, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        """Stage rows of a bucket as files."""
        naming = FileNaming(self.job_id, bucket, secrets.randbelow(10**6))
        writer = RollingWriter(self.store, naming, self.schema, self.options, {BUCKET: str(bucket)})
        try:
            for batch in batches:
                require_equal(batch.schema, self.schema)
                writer.write(batch)
            return tuple(writer.finish())
        except BaseException:
            writer.abort()
            raise

    def read(self, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in all or some columns of the table; a column that the file lacks is null.

        Raises
        ------
        DecodeError
            If a page is damaged.
        SchemaError
            If a column has another type than in the table, and a value does not fit.
        """
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        is_whole = columns is None and file.size_bytes <= _MAX_SINGLE_READ_BYTES
        opened = self._open(file, is_whole=is_whole)
        file_columns = set(opened.schema_arrow.names)
        names = [name for name in schema.names if name in file_columns]
        try:
            if is_whole:
                batches = iter(opened.read(names, use_threads=False).to_batches(_BATCH_ROWS))
            else:
                # Arrow keeps all data that it has read ahead until the call ends, so row groups are read one by one.
                groups = range(opened.num_row_groups)
                batches = (
                    batch
                    for group in groups
                    for batch in opened.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names)
                )
            for batch in batches:
                yield self._typed(batch, schema, file)
        except OSError as error:
            raise DecodeError(f"{self.store.uri}/{file.path} is damaged: {error}") from error

    def read_rows(self, file: LakeFile, mask: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """Yield the masked rows of a file, in all columns of the table."""
        start = 0
        for batch in self.read(file):
            end = start + batch.num_rows
            yield batch.filter(pa.array(mask[start:end]))
            start = end

    def _open(self, file: LakeFile, *, is_whole: bool) -> pq.ParquetFile:
        if is_whole:
            return open_parquet(pa.BufferReader(self.store.read(file.path)))
        entry = StoredObject(file.path, file.size_bytes)
        ranges = pa.PythonFile(RangeFile(self.store, entry), "r")
        return open_parquet(ranges, pre_buffer=True)

    def _typed(self, batch: pa.RecordBatch, schema: pa.Schema, file: LakeFile) -> pa.RecordBatch:
        names, arrays = set(batch.schema.names), []
        for field in schema:
            if field.name not in names:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            array = batch.column(field.name)
            # A cast copies nested columns even if their type stays the same.
            if array.type.equals(field.type, check_metadata=True):
                arrays.append(array)
                continue
            try:
                arrays.append(array.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaError(f"{field.name} of {self.store.uri}/{file.path}: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def require_equal(rows: pa.Schema, table: pa.Schema) -> None:
    """Raise if columns of rows differ from those of a table, because engines would silently cast, round or drop values.

    Raises
    ------
    SchemaError
        The message names the first column that differs.
    """
    if rows.equals(table):
        return
    for name in sorted({*rows.names, *table.names}):
        indices = rows.get_all_field_indices(name), table.get_all_field_indices(name)
        types = [
            [schema.field(index).type for index in positions]
            for schema, positions in zip((rows, table), indices, strict=True)
        ]
        if types[0] != types[1]:
            shown = [" and ".join(map(str, column_types)) or "no column" for column_types in types]
            raise SchemaError(f"{name} is {shown[0]} in the rows and {shown[1]} in the table")
    if rows.names != table.names:
        raise SchemaError(f"the rows have their columns in another order than the table: {', '.join(rows.names)}")
