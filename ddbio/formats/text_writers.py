"""Writers of text: rows as CSV and as lines of JSON, and lines of items for an export or for the service's import.

An export's files are rolled at a target size. An import's files have one window of rows each, in random order: sorted
rows would keep one partition of the new table busy and the others idle.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from isal import igzip_lib, isal_zlib

from ddbio.formats.file_format import BATCH_ROWS
from ddbio.items.encode import Encoder
from ddbio.items.kernel.arrays import int64_array
from ddbio.items.plain_json import csv_column, json_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from typing_extensions import Buffer

    from ddbio.formats.file_format import WriterOptions
    from ddbio.options import Compression
    from ddbio.options.format_names import ImportCompression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import FileNaming, StagedFile

    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
    _RowText: TypeAlias = tuple[bytes, Callable[[pa.RecordBatch], Buffer]]

TEXT_ENDINGS: dict[Compression, str] = {"gzip": ".gz", "zstd": ".zst", "none": ""}
"""Endings of the names of text files, by codec."""

EXTENSION = "json.gz"
"""Ending of the names of an export's files."""

# ISA-L's second-best level: 3 takes twice the time to save a hundredth of the bytes.
_GZIP_LEVEL, _IMPORT_GZIP_LEVEL = 2, 1
_GZIP_WINDOW_BITS = 31
_THREADS = 2


class CompressedSink:
    """Compressing sink, which counts the stored bytes.

    Parameters
    ----------
    has_md5
        Whether the staged file has the MD5 of the stored bytes.
    """

    def __init__(self, sink: Sink, compression: Compression, *, has_md5: bool = False) -> None:
        self._sink = sink
        self.size_bytes = 0
        self._md5 = hashlib.md5(usedforsecurity=False) if has_md5 else None
        self._gzip: Any = None
        self._zstd: Any = None
        if compression == "gzip":
            self._gzip = isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
        elif compression == "zstd":
            stored: Any = _Stored(self._store)
            self._zstd = pa.CompressedOutputStream(pa.PythonFile(stored, mode="w"), "zstd")

    def write(self, data: Buffer) -> None:
        """Write all of the bytes."""
        if self._zstd is not None:
            self._zstd.write(data)
        else:
            self._store(data if self._gzip is None else self._gzip.compress(data))

    def _store(self, data: Buffer) -> int:
        size_bytes = memoryview(data).nbytes
        if size_bytes:
            if self._md5 is not None:
                self._md5.update(data)
            self._sink.write(data)
            self.size_bytes += size_bytes
        return size_bytes

    def flush(self) -> None:
        """Store the bytes in the compressor, which would be missing from the size."""
        if self._zstd is not None:
            self._zstd.flush()
        elif self._gzip is not None:
            self._store(self._gzip.flush(isal_zlib.Z_SYNC_FLUSH))

    def finish(self, rows: int) -> StagedFile:
        """Store the end of the file, and return it staged."""
        if self._zstd is not None:
            self._zstd.close()
        elif self._gzip is not None:
            self._store(self._gzip.flush())
        staged = self._sink.finish(rows)
        return staged if self._md5 is None else replace(staged, md5=base64.b64encode(self._md5.digest()).decode())

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        if self._zstd is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._zstd.close()


class _Stored:
    """Minimal file interface for pyarrow; flush and close do nothing, because the sink is finished or aborted."""

    closed = False

    def __init__(self, write: Callable[[Buffer], int]) -> None:
        self.write = write

    def flush(self) -> None: ...

    def close(self) -> None: ...


class TextFileWriter:
    """Writer of one text file into a sink, which counts the bytes.

    Parameters
    ----------
    make_text
        Returns for a schema the bytes before the first row, and the function that converts rows to text.
    """

    def __init__(
        self, sink: Sink, schema: pa.Schema, options: WriterOptions, *, make_text: Callable[[pa.Schema], _RowText]
    ) -> None:
        head, self._text_of = make_text(schema)
        self._rows = 0
        self._out = CompressedSink(sink, options.compression)
        self._out.write(head)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes written to the sink."""
        return self._out.size_bytes

    def write_group(self, table: pa.Table) -> None:
        """Write a table's rows."""
        for batch in table.to_batches(BATCH_ROWS):
            self._out.write(self._text_of(batch))
        self._out.flush()
        self._rows += table.num_rows

    def finish(self) -> StagedFile:
        """Return the staged file."""
        return self._out.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._out.abort()


def _csv_text(schema: pa.Schema) -> _RowText:
    """Return the header of CSV and a converter of rows: texts are quoted, and a null is an empty cell without quotes.

    Binary is base64, and nested values are JSON.
    """
    names = schema.names

    def text_of(batch: pa.RecordBatch) -> Buffer:
        cells: Any = pa.RecordBatch.from_arrays([csv_column(column) for column in batch.columns], names)
        out: Any = pa.BufferOutputStream()
        pa.csv.write_csv(cells, out, pa.csv.WriteOptions(include_header=False))
        return out.getvalue()  # type: ignore[no-any-return]

    quoted = ('"' + name.replace('"', '""') + '"' for name in names)
    return ",".join(quoted).encode() + b"\n", text_of


def _json_text(_: pa.Schema) -> _RowText:
    """Return no header and a converter of each row to a line of plain JSON."""
    return b"", lambda batch: _lines(json_lines(batch))


def _dynamodb_json_text(schema: pa.Schema) -> _RowText:
    """Return no header and a converter of each row to a line of DynamoDB JSON, without a member ``Item``."""
    return b"", Encoder(schema).encode_lines


def _lines(texts: Any) -> Buffer:
    """Return texts as lines."""
    # The last text gets a line end, too.
    lines: Any = pa.ListArray.from_arrays([0, len(texts) + 1], pa.concat_arrays([texts, pa.array([""])]))
    joined: Any = pc.binary_join(lines, "\n")
    return joined[0].as_buffer()  # type: ignore[no-any-return]


write_csv = partial(TextFileWriter, make_text=_csv_text)
write_json = partial(TextFileWriter, make_text=_json_text)
write_dynamodb_json = partial(TextFileWriter, make_text=_dynamodb_json_text)


class RollingGzipWriter:
    """Writer of one task's lines to gzip files close to the target size, in the format of an export.

    Parameters
    ----------
    store
        Store where the files are staged.
    naming
        Names of this attempt of this task.
    folder
        Folder of the target in which the files appear.
    target_file_bytes
        Compressed size at which a file is closed.
    """

    def __init__(self, store: ObjectStore, naming: FileNaming, folder: str, target_file_bytes: int) -> None:
        self._store, self._naming, self._folder = store, naming, folder
        self._target_file_bytes = target_file_bytes
        self._file: CompressedSink | None = None
        self._rows = 0
        self._staged: list[StagedFile] = []

    def write(self, lines: bytes, count: int) -> None:
        """Write ``count`` complete lines."""
        if self._file is None:
            path = self._naming.path(len(self._staged), EXTENSION)
            self._file = CompressedSink(self._store.create(f"{self._folder}/{path}"), "gzip", has_md5=True)
        self._file.write(lines)
        self._rows += count
        if self._file.size_bytes >= self._target_file_bytes:
            self._close_file()

    def finish(self) -> list[StagedFile]:
        """Return the staged files of this task with their MD5; none if there was no line."""
        self._close_file()
        return self._staged

    def abort(self) -> None:
        """Discard the open file; the job's abort discards the finished files."""
        if self._file:
            self._file.abort()
            self._file = None

    def _close_file(self) -> None:
        if self._file:
            self._staged.append(self._file.finish(self._rows))
            self._file, self._rows = None, 0


class LineBuffer:
    """Window of lines in one buffer, which the next window reuses.

    Parameters
    ----------
    window_bytes
        Expected size of a window; the buffer grows if necessary.
    """

    def __init__(self, window_bytes: int) -> None:
        self._text = np.empty(window_bytes, np.uint8)
        self._offsets = [np.zeros(1, np.int64)]
        self.size_bytes = 0

    def add(self, text: np.ndarray[Any, np.dtype[np.uint8]], offsets: _Words) -> None:
        """Append lines: line ``i`` is ``text[offsets[i]:offsets[i + 1]]``."""
        end = self.size_bytes + len(text)
        if end > len(self._text):
            self._text = np.concatenate([self._text[: self.size_bytes], np.empty(end, np.uint8)])
        self._text[self.size_bytes : end] = text
        self._offsets.append(offsets[1:] + self.size_bytes)
        self.size_bytes = end

    def line(self, number: int) -> bytes:
        """Return one line."""
        offsets = np.concatenate(self._offsets)
        return self._text[offsets[number] : offsets[number + 1]].tobytes()

    def take(self, order: _Words) -> pa.Buffer:
        """Return the lines with these numbers, in this order, without separators, and clear the buffer."""
        offsets = np.concatenate(self._offsets)
        parts = [None, pa.py_buffer(offsets.data), pa.py_buffer(self._text.data)]
        array: Any = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, parts)
        selected = array.take(int64_array(order))
        self._offsets, self.size_bytes = self._offsets[:1], 0
        size_bytes = int(np.frombuffer(selected.buffers()[1], np.int64)[len(order)])
        return selected.buffers()[2].slice(0, size_bytes)  # type: ignore[no-any-return]


class ImportObjectWriter:
    """Writer of one object per window of lines; threads compress it while the caller fills the next window.

    Parameters
    ----------
    folder
        Folder of the store's target in which the objects appear.
    naming
        Names of the objects.
    ending
        The ending of names before that of the compression, such as ``json``.
    """

    def __init__(
        self, store: ObjectStore, folder: str, naming: FileNaming, ending: str, compression: ImportCompression
    ) -> None:
        self._store, self._folder, self._naming, self._compression = store, folder, naming, compression
        self._ending = f"{ending}{TEXT_ENDINGS[compression]}"
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-compress")
        self._pending: deque[Future[StagedFile]] = deque()
        self._staged: list[StagedFile] = []
        self._random = np.random.default_rng()

    def write(self, lines: LineBuffer, chosen: _Words, header: bytes = b"") -> int:
        """Stage a header and the chosen lines of a window, in random order; return their bytes before compression."""
        text = lines.take(self._random.permutation(chosen))
        if not len(chosen):
            return 0
        if header:
            text = pa.py_buffer(header + text.to_pybytes())
        if len(self._pending) == _THREADS:
            self._staged.append(self._pending.popleft().result())
        path = f"{self._folder}{self._naming.path(len(self._staged) + len(self._pending), self._ending)}"
        self._pending.append(self._pool.submit(self._put, path, text, len(chosen)))
        return text.size

    def finish(self) -> list[StagedFile]:
        """Return the staged objects."""
        while self._pending:
            self._staged.append(self._pending.popleft().result())
        self._pool.shutdown()
        return self._staged

    def abort(self) -> None:
        """Wait for objects that are being staged; the job's abort discards them."""
        self._pool.shutdown(cancel_futures=True)

    def _put(self, path: str, text: pa.Buffer, count: int) -> StagedFile:
        body = compress(text, self._compression)
        sink = self._store.create(path)
        try:
            sink.write(body)
            return sink.finish(count)
        except BaseException:
            sink.abort()
            raise


class LineCounter:
    """Counter of the bytes that an ``ImportObjectWriter`` would write."""

    def write(self, lines: LineBuffer, chosen: _Words, header: bytes = b"") -> int:
        """Return the bytes of a header and the chosen lines of a window."""
        return lines.take(chosen).size + len(header) * bool(len(chosen))


def compress(text: pa.Buffer, compression: ImportCompression) -> Any:
    """Return text compressed for the service's import, in one frame.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataImport.Format.html
    """
    if compression == "gzip":
        return igzip_lib.compress(text, _IMPORT_GZIP_LEVEL, igzip_lib.COMP_GZIP)
    return text if compression == "none" else pa.Codec("zstd").compress(text)
