"""Write rows as text, compressed as a whole: CSV, lines of plain JSON, and lines of DynamoDB JSON."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from isal import isal_zlib

from ddbio.formats.file_format import BATCH_ROWS
from ddbio.items.declared_text import csv_column
from ddbio.items.encode import Encoder
from ddbio.items.plain_json import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from typing_extensions import Buffer

    from ddbio.formats.file_format import WriterOptions
    from ddbio.options import Compression
    from ddbio.storage.object_store import Sink
    from ddbio.storage.staged import StagedFile

    FormatRows: TypeAlias = Callable[[pa.RecordBatch], Buffer]

# ISA-L's best but one, as exports are written: 3 takes twice the time for a hundredth of the bytes.
_GZIP_LEVEL = 2
_GZIP_WINDOW_BITS = 31


class _RowText(Protocol):
    """Make text of rows of one schema."""

    def head(self) -> Buffer:
        """Return what stands before the first row."""
        ...

    def rows(self, batch: pa.RecordBatch) -> Buffer:
        """Return the text of rows."""
        ...


class TextFileWriter:
    """Write one file of text into a sink, and count the bytes.

    Parameters
    ----------
    make_text
        Makes what turns rows of the schema into text.
    """

    def __init__(
        self, sink: Sink, schema: pa.Schema, options: WriterOptions, *, make_text: Callable[[pa.Schema], _RowText]
    ) -> None:
        self._sink = sink
        self.closed = False
        self.size_bytes = 0
        self._rows = 0
        self._text = make_text(schema)
        self._compressor = _compressor(self, options.compression)
        self._compressor.write(self._text.head())

    def write(self, data: Buffer, /) -> int:
        """Pass compressed bytes on to the sink."""
        taken = self._sink.write(data)
        self.size_bytes += taken
        return taken

    def flush(self) -> None:
        """Do nothing: the sink has its own pace."""

    def close(self) -> None:
        """Do nothing: a compressor closes what it writes to, and the sink is finished or aborted."""

    def write_group(self, table: pa.Table) -> None:
        """Write a table's rows."""
        for batch in table.to_batches(BATCH_ROWS):
            self._compressor.write(self._text.rows(batch))
        # What a compressor holds would be missing in the size of the file.
        self._compressor.flush()
        self._rows += table.num_rows

    def finish(self) -> StagedFile:
        """Write what the compressor holds, and return the staged file."""
        self._compressor.close()
        return self._sink.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        with contextlib.suppress(pa.ArrowException, OSError):
            self._compressor.close()


class _Gzip:
    def __init__(self, file: TextFileWriter) -> None:
        self._file = file
        self._deflater: Any = isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)

    def write(self, data: Buffer) -> None:
        self._emit(self._deflater.compress(data))

    def flush(self) -> None:
        self._emit(self._deflater.flush(isal_zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        self._emit(self._deflater.flush())

    def _emit(self, data: bytes) -> None:
        if data:
            self._file.write(data)


class _Plain:
    def __init__(self, file: TextFileWriter) -> None:
        self._file = file

    def write(self, data: Buffer) -> None:
        if memoryview(data):
            self._file.write(data)

    def flush(self) -> None:
        """Do nothing: nothing is held."""

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _compressor(file: TextFileWriter, compression: Compression) -> _Gzip | _Plain | Any:
    if compression == "gzip":
        return _Gzip(file)
    if compression == "none":
        return _Plain(file)
    handle: Any = file
    return pa.CompressedOutputStream(pa.PythonFile(handle, mode="w"), "zstd")


class CsvText:
    """Make CSV of rows: every text is quoted, and a null is an empty cell without quotes.

    Binary is base64, what is nested is JSON.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names

    def head(self) -> bytes:
        """Return the line of the columns' names."""
        quoted = ('"' + name.replace('"', '""') + '"' for name in self._names)
        return ",".join(quoted).encode() + b"\n"

    def rows(self, batch: pa.RecordBatch) -> Buffer:
        """Return a record per row."""
        cells: Any = pa.RecordBatch.from_arrays([csv_column(each) for each in batch.columns], self._names)
        out: Any = pa.BufferOutputStream()
        pa.csv.write_csv(cells, out, pa.csv.WriteOptions(include_header=False))
        return out.getvalue()  # type: ignore[no-any-return]


class JsonText:
    """Make a line of plain JSON of each row."""

    def __init__(self, _: pa.Schema) -> None: ...

    def head(self) -> bytes:
        """Return nothing."""
        return b""

    def rows(self, batch: pa.RecordBatch) -> Buffer:
        """Return a line per row."""
        return _lines(json_lines(batch))


class DynamoDBJsonText:
    """Make a line of DynamoDB JSON of each row, as the service's own exports and imports have items, but bare."""

    def __init__(self, schema: pa.Schema) -> None:
        self._encoder = Encoder(schema)

    def head(self) -> bytes:
        """Return nothing."""
        return b""

    def rows(self, batch: pa.RecordBatch) -> Buffer:
        """Return a line per row."""
        return self._encoder.encode_lines(batch)


def _lines(texts: Any) -> Buffer:
    """Return texts as lines."""
    # The last text has a line's end too.
    lines: Any = pa.ListArray.from_arrays([0, len(texts) + 1], pa.concat_arrays([texts, pa.array([""])]))
    joined: Any = pc.binary_join(lines, "\n")
    return joined[0].as_buffer()  # type: ignore[no-any-return]


write_csv = partial(TextFileWriter, make_text=CsvText)
write_json = partial(TextFileWriter, make_text=JsonText)
write_dynamodb_json = partial(TextFileWriter, make_text=DynamoDBJsonText)
