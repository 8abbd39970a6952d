"""Write one ORC file over a sink; never make it visible."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.orc

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ddbio.core.staged import StagedFile
    from ddbio.files.object_store import Sink
    from ddbio.options import Compression

EXTENSIONS: dict[Compression, str] = {
    "zstd": "zstd.orc",
    "snappy": "snappy.orc",
    "gzip": "zlib.orc",
    "lz4": "lz4.orc",
    "none": "orc",
}
_CODECS: dict[Compression, Literal["UNCOMPRESSED", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]] = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "ZLIB",
    "lz4": "LZ4",
    "none": "UNCOMPRESSED",
}


class OrcFile:
    """Hold one open ORC file over a sink, and count what it gives the sink; ORC keeps no field metadata."""

    def __init__(self, sink: Sink, compression: Compression, schema: pa.Schema) -> None:
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
        """Return the staged file, its footer written."""
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
