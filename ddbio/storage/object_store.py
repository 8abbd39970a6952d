"""Interface of an object store in which files appear atomically, and a file interface for its objects."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, Protocol

from ddbio.errors import NotFoundError
from ddbio.storage.staged import StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from ddbio.storage.staged import StoredObject


class Sink(Protocol):
    """Sink for the bytes of one staged file, which stays invisible; ``pyarrow.PythonFile`` accepts it."""

    closed: bool

    def write(self, data: Buffer, /) -> int:
        """Write all of the bytes; return their number."""
        ...

    def finish(self, rows: int) -> StagedFile:
        """Return the staged file, from which the store completes it, once every byte is stored durably."""
        ...

    def abort(self) -> None:
        """Discard the bytes; later writes are discarded, too."""
        ...


class SinkMaker(Protocol):
    """Object that creates files."""

    def create(self, path: str) -> Sink:
        """Return a sink for the file with this path."""
        ...


class ObjectStore(Protocol):
    """Store of objects below one target; paths are relative to it and use ``/``. Picklable."""

    @property
    def uri(self) -> str:
        """The target, for messages and manifests."""
        ...

    def above(self) -> tuple[ObjectStore, str] | None:
        """Return the parent folder, and the name of this folder in it; None if there is none."""
        ...

    @property
    def hazard(self) -> str | None:
        """Name of a valuable folder or bucket that a deletion of the target would also delete, or None."""
        ...

    def create(self, path: str) -> Sink:
        """Return a sink for a file that appears at ``path``, a name of ``FileNaming``, when it is completed."""
        ...

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a copy by S3 or a hard link, without moving bytes through this process; None if that is impossible.

        Parameters
        ----------
        source
            The store that has listed the object.
        path
            The future path of the copy, a name of ``FileNaming``.

        Raises
        ------
        NotFoundError
            If the object does not exist any more.
        """
        ...

    def complete(self, staged: StagedFile) -> None:
        """Make a staged file visible; do nothing if an earlier call did.

        Raises
        ------
        NotFoundError
            If neither the staged bytes nor the file exist.
        """
        ...

    def abort(self, job_id: str) -> None:
        """Discard all staged files of a job, including those of tasks that were killed."""
        ...

    def staged_jobs(self) -> set[str]:
        """Return the ids of all jobs with staged files."""
        ...

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the visible objects whose path starts with ``prefix``; nothing if there is no target."""
        ...

    def read(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises
        ------
        NotFoundError
            If there is no such object.
        """
        ...

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in pieces of about a megabyte; errors are those of ``read``."""
        ...

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of a listed object; raise if it was replaced since, as far as the store can detect this.

        Raises
        ------
        NotFoundError
            If there is no such object any more.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small object atomically, and replace an older one."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object atomically and return True, or return False if it exists."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        ...


def is_there(store: ObjectStore, path: str) -> bool:
    """Return whether an object is visible."""
    return any(entry.path == path for entry in store.list(path))


def read_at_most(store: ObjectStore, path: str, most_bytes: int) -> bytes:
    """Return the bytes of an object; of a larger object only a part, which is longer than ``most_bytes``."""
    data = bytearray()
    for chunk in store.read_chunks(path):
        data += chunk
        if len(data) > most_bytes:
            break
    return bytes(data)


@contextlib.contextmanager
def aborted_on_error(writer: Any) -> Iterator[None]:
    """Abort a sink, or a writer of files, if the body of the context raises."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


def stage_copy(target: ObjectStore, source: ObjectStore, entry: StoredObject, path: str, rows: int) -> StagedFile:
    """Stage a copy of an object of any store; its bytes are read and written only if there is no cheaper method.

    Raises
    ------
    NotFoundError
        If the object does not exist any more, or has another size.
    """
    if staged := target.stage_copy(source, entry, path, rows):
        return staged
    sink, size_bytes = target.create(path), 0
    with aborted_on_error(sink):
        for chunk in source.read_chunks(entry.path):
            size_bytes += sink.write(chunk)
        if size_bytes != entry.size_bytes:
            raise NotFoundError(f"{source.uri}/{entry.path} was replaced meanwhile: run the job again")
        return sink.finish(rows)


class RangeFile(io.RawIOBase):
    """Seekable file over one object, so that a footer can be read without the rest; every read is a request."""

    def __init__(self, store: ObjectStore, entry: StoredObject) -> None:
        self._store, self._entry = store, entry
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def size(self) -> int:
        """Return the object's size in bytes."""
        return self._entry.size_bytes

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read, and return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer from the current position as far as possible; return the number of bytes read."""
        data = self.read(len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes from the current position; all remaining bytes if it is None or negative."""
        remaining = max(0, self.size() - self._at)
        length = remaining if size is None or size < 0 else min(size, remaining)
        data = self._store.read_range(self._entry, self._at, length) if length else b""
        self._at += len(data)
        return data


class MemorySink:
    """Sink that keeps the bytes of one file in memory."""

    closed = False

    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    def write(self, data: Buffer, /) -> int:
        """Append all of the bytes; return their number."""
        return self.buffer.write(data)

    def finish(self, rows: int) -> StagedFile:
        """Return a file without a name."""
        return StagedFile("", self.buffer.tell(), rows, {})

    def abort(self) -> None:
        """Discard the bytes."""
        self.buffer = io.BytesIO()
