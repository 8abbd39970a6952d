"""Make a whole Parquet file in memory, for files that are written by one request."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ddbio.formats.file_format import WriterOptions
from ddbio.formats.parquet import ParquetFileWriter
from ddbio.storage.staged import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from ddbio.options import Compression


class _MemorySink:
    """A sink that keeps what it takes."""

    closed = False

    def __init__(self) -> None:
        self.held = io.BytesIO()

    def write(self, data: Buffer, /) -> int:
        return self.held.write(data)

    def finish(self, rows: int) -> StagedFile:
        return StagedFile("", self.held.tell(), rows, {})

    def abort(self) -> None:
        self.held = io.BytesIO()


def parquet_bytes(table: pa.Table, compression: Compression) -> bytes:
    """Return a Parquet file of one row group."""
    sink = _MemorySink()
    writer = ParquetFileWriter(sink, table.schema, WriterOptions(compression, table.nbytes, table))
    writer.write_group(table)
    writer.finish()
    return sink.held.getvalue()
