"""ORC: write a file stripe by stripe, and read its stripes. ORC keeps no field metadata."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.orc

from ddbio.files.file_format import BATCH_ROWS, FileFormat, Parts, Sample
from ddbio.files.object_store import RangeFile
from ddbio.files.orc_process import OrcProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from ddbio.core.staged import StagedFile, StoredObject
    from ddbio.files.file_format import ReadOptions
    from ddbio.files.object_store import ObjectStore, Sink
    from ddbio.options import Compression

_CODECS: dict[Compression, Literal["UNCOMPRESSED", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]] = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "ZLIB",
    "lz4": "LZ4",
    "none": "UNCOMPRESSED",
}
# A damaged file may keep the reader busy for ever; a whole one is read at many megabytes a second.
_LIMIT_SECONDS = 30.0
_LIMIT_BYTES_PER_SECOND = 1_000_000


class OrcFileWriter:
    """Write one ORC file into a sink, and count the bytes."""

    def __init__(self, sink: Sink, schema: pa.Schema, compression: Compression, _: pa.Table) -> None:
        self._sink, self._schema = sink, schema
        self.closed = False
        self.size_bytes = 0
        self._rows = 0
        handle: Any = self
        self._writer: Any = pyarrow.orc.ORCWriter(pa.PythonFile(handle, mode="w"), compression=_CODECS[compression])

    def write(self, data: Buffer, /) -> int:
        """Pass the writer's bytes on to the sink."""
        taken = self._sink.write(data)
        self.size_bytes += taken
        return taken

    def flush(self) -> None:
        """Do nothing: the sink has its own pace."""

    def write_group(self, table: pa.Table) -> None:
        """Write a table's rows."""
        self._writer.write(table)
        self._rows += table.num_rows

    def finish(self) -> StagedFile:
        """Write the footer, and return the staged file."""
        if not self._rows:
            # The writer learns its columns from rows: without any it would leave no file of ORC.
            self._writer.write(self._schema.empty_table())
        self._writer.close()
        return self._sink.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        # The aborted sink swallows the footer; a writer that failed half-way may refuse to write one.
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()


class OrcReader:
    """Read one ORC file by its stripes, in a child process.

    Parameters
    ----------
    limit_seconds
        Processor time that a file may take to be opened, or a stripe to be read; a second more for each megabyte.
    """

    def __init__(
        self, store: ObjectStore, entry: StoredObject, _: ReadOptions, *, limit_seconds: float = _LIMIT_SECONDS
    ) -> None:
        self._size_bytes = entry.size_bytes
        limit_seconds += entry.size_bytes / _LIMIT_BYTES_PER_SECOND
        self._opened = OrcProcess(RangeFile(store, entry), entry.path, entry.size_bytes, limit_seconds)

    def parts(self) -> Parts:
        """Return the stripes, by the footer; it tells neither their bytes nor their rows."""
        count = self._opened.stripes
        sizes = (self._size_bytes // max(1, count),) * count
        return Parts(sizes, self._opened.rows, (0, *[None] * (count - 1))[:count])

    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return self._opened.schema

    def read(self, part: int, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one stripe, as it was written."""
        return self._opened.read_stripe(part)

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows of the first stripe, which is read whole."""
        if not self._opened.stripes:
            return None
        return next((Sample(batch.slice(0, rows), None) for batch in self.read(0, BATCH_ROWS)), None)


ORC = FileFormat(
    name="orc",
    endings=(".orc",),
    open_reader=OrcReader,
    is_splittable=True,
    open_writer=OrcFileWriter,
    extensions={
        "zstd": "zstd.orc",
        "snappy": "snappy.orc",
        "gzip": "zlib.orc",
        "lz4": "lz4.orc",
        "none": "orc",
    },
)
