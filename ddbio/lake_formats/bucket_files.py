"""Read and write the data files of a lake table."""

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
# A file of so many bytes is read by one request if all of its columns are wanted: ranges would be several.
_WHOLE_BYTES = 8 << 20
NOTED = (KEY, VERSION, TIME)
"""Columns whose least and greatest values the table's log has of each file."""


@dataclass(frozen=True)
class BucketFiles:
    """Read and write the data files of a table.

    Attributes
    ----------
    schema
        That of the files.
    job_id
        Names the files that are written.
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
        """Yield the rows of a file in the columns of the table, or some of them; one it does not have yet is null.

        Raises
        ------
        DecodeError
            If a page is damaged.
        SchemaError
            If a column has another type than the table, and a value does not fit.
        """
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        is_whole = columns is None and file.size_bytes <= _WHOLE_BYTES
        opened = self._open(file, whole=is_whole)
        known = set(opened.schema_arrow.names)
        names = [name for name in wanted.names if name in known]
        try:
            if is_whole:
                batches = iter(opened.read(names, use_threads=False).to_batches(_BATCH_ROWS))
            else:
                # What Arrow reads ahead it keeps until the call is done: of one row group it is little, of a file much.
                groups = range(opened.num_row_groups)
                batches = (
                    batch
                    for group in groups
                    for batch in opened.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names)
                )
            for batch in batches:
                yield self._typed(batch, wanted, file)
        except OSError as error:
            raise DecodeError(f"{self.store.uri}/{file.path} is damaged: {error}") from error

    def read_rows(self, file: LakeFile, wanted: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a file, in all columns of the table."""
        start = 0
        for batch in self.read(file):
            end = start + batch.num_rows
            yield batch.filter(pa.array(wanted[start:end]))
            start = end

    def _open(self, file: LakeFile, *, whole: bool) -> pq.ParquetFile:
        if whole:
            return open_parquet(pa.BufferReader(self.store.read(file.path)))
        entry = StoredObject(file.path, file.size_bytes)
        ranges = pa.PythonFile(RangeFile(self.store, entry), "r")
        return open_parquet(ranges, pre_buffer=True)

    def _typed(self, batch: pa.RecordBatch, wanted: pa.Schema, file: LakeFile) -> pa.RecordBatch:
        known, arrays = set(batch.schema.names), []
        for field in wanted:
            if field.name not in known:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            array = batch.column(field.name)
            # A cast copies nested columns also if there is nothing to do.
            if array.type.equals(field.type, check_metadata=True):
                arrays.append(array)
                continue
            try:
                arrays.append(array.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaError(f"{field.name} of {self.store.uri}/{file.path}: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def require_equal(given: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse rows whose columns are not exactly those of a table: engines would cast, round or drop them in silence.

    Raises
    ------
    SchemaError
        Naming the first column that differs.
    """
    if given.equals(wanted):
        return
    for name in sorted({*given.names, *wanted.names}):
        places = given.get_all_field_indices(name), wanted.get_all_field_indices(name)
        types = [
            [schema.field(place).type for place in found] for schema, found in zip((given, wanted), places, strict=True)
        ]
        if types[0] != types[1]:
            shown = [" and ".join(map(str, each)) or "no column" for each in types]
            raise SchemaError(f"{name} is {shown[0]} in the rows and {shown[1]} in the table")
    if given.names != wanted.names:
        raise SchemaError(f"the rows have their columns in another order than the table: {', '.join(given.names)}")
