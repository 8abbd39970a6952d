"""Stage lines of items as compressed files: those of an export, and those that the service's own import reads.

An export's files are rolled at a target size. An import's hold one window of rows each, in random order: sorted rows
would keep one partition of the new table busy and the others idle.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from isal import igzip_lib, isal_zlib

from ddbio.items.kernel.arrays import int64_array

if TYPE_CHECKING:
    from typing import TypeAlias

    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import FileNaming, StagedFile

    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

EXTENSION = "json.gz"

# ISA-L's best but one: 3 takes twice the time for a hundredth of the bytes.
_EXPORT_GZIP_LEVEL = 2
_GZIP_WINDOW_BITS = 31

ImportCompression = Literal["zstd", "gzip", "none"]
_ENDINGS = {"zstd": ".zst", "gzip": ".gz", "none": ""}
_IMPORT_GZIP_LEVEL = 1
_THREADS = 2


class RollingGzipWriter:
    """Stage one task's lines as gzip files close to the target size, as an export has them.

    Parameters
    ----------
    store
        Where the files are staged.
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
        self._file: _GzipFile | None = None
        self._staged: list[StagedFile] = []

    def write(self, lines: bytes, count: int) -> None:
        """Take ``count`` whole lines."""
        if self._file is None:
            path = self._naming.path(len(self._staged), EXTENSION)
            self._file = _GzipFile(self._store.create(f"{self._folder}/{path}"))
        self._file.write(lines, count)
        if self._file.size_bytes >= self._target_file_bytes:
            self._close_file()

    def finish(self) -> list[StagedFile]:
        """Return the files of this task, all staged, each with its MD5; none if no line came."""
        self._close_file()
        return self._staged

    def abort(self) -> None:
        """Discard the open file; the job's abort discards the finished ones."""
        if self._file:
            self._file.sink.abort()
            self._file = None

    def _close_file(self) -> None:
        if self._file:
            self._staged.append(self._file.finish())
            self._file = None


class _GzipFile:
    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.size_bytes = 0
        self._rows = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._deflater: Any = isal_zlib.compressobj(_EXPORT_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)

    def write(self, lines: bytes, count: int) -> None:
        self._rows += count
        self._emit(self._deflater.compress(lines))

    def finish(self) -> StagedFile:
        self._emit(self._deflater.flush())
        return replace(self.sink.finish(self._rows), md5=base64.b64encode(self._md5.digest()).decode())

    def _emit(self, data: bytes) -> None:
        if data:
            self._md5.update(data)
            self.size_bytes += self.sink.write(data)


class LineBuffer:
    """Hold a window of lines in one buffer, which the next window reuses.

    Parameters
    ----------
    window_bytes
        Expected size of a window; the buffer grows if that is too little.
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
        """Return the lines with these numbers, in this order, back to back, and forget all lines."""
        offsets = np.concatenate(self._offsets)
        parts = [None, pa.py_buffer(offsets.data), pa.py_buffer(self._text.data)]
        array: Any = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, parts)
        taken = array.take(int64_array(order))
        self._offsets, self.size_bytes = self._offsets[:1], 0
        size_bytes = int(np.frombuffer(taken.buffers()[1], np.int64)[len(order)])
        return taken.buffers()[2].slice(0, size_bytes)  # type: ignore[no-any-return]


class ImportObjectWriter:
    """Stage an object for each window of lines; threads compress it while the caller fills the next window.

    Parameters
    ----------
    folder
        Folder of the store's target in which the objects appear.
    naming
        Names of the objects.
    ending
        How names end before the compression's own ending, like ``json``.
    """

    def __init__(
        self, store: ObjectStore, folder: str, naming: FileNaming, ending: str, compression: ImportCompression
    ) -> None:
        self._store, self._folder, self._naming, self._compression = store, folder, naming, compression
        self._ending = f"{ending}{_ENDINGS[compression]}"
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
    """Count what an ``ImportObjectWriter`` would write."""

    def write(self, lines: LineBuffer, chosen: _Words, header: bytes = b"") -> int:
        """Return the bytes of a header and the chosen lines of a window."""
        return lines.take(chosen).size + len(header) * bool(len(chosen))


def compress(text: pa.Buffer, compression: ImportCompression) -> Any:
    """Return text compressed as the service's import reads it, in one frame.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataImport.Format.html
    """
    if compression == "gzip":
        return igzip_lib.compress(text, _IMPORT_GZIP_LEVEL, igzip_lib.COMP_GZIP)
    return text if compression == "none" else pa.Codec("zstd").compress(text)
