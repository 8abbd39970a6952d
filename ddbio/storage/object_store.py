"""The interface of an object store in which files appear whole or not at all, and a file over one of its objects."""

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
    """Take the bytes of one staged file, which stays invisible; enough of a file for ``pyarrow.PythonFile``."""

    closed: bool

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
        ...

    def finish(self, rows: int) -> StagedFile:
        """Return the staged file, from which the store completes it, once every byte is stored durably."""
        ...

    def abort(self) -> None:
        """Discard the bytes; later writes are discarded too."""
        ...


class SinkMaker(Protocol):
    """Take files."""

    def create(self, path: str) -> Sink:
        """Return a sink for the file with this path."""
        ...


class ObjectStore(Protocol):
    """Store objects below one target; paths are relative to it and use ``/``. Picklable."""

    @property
    def uri(self) -> str:
        """The target, for messages and manifests."""
        ...

    def above(self) -> tuple[ObjectStore, str] | None:
        """Return the folder above, and the name of this one in it; None if there is none."""
        ...

    @property
    def hazard(self) -> str | None:
        """What else deleting the whole target would delete: the working folder, a bucket; None if nothing."""
        ...

    def create(self, path: str) -> Sink:
        """Return a sink for a file that appears at ``path``, a name of ``FileNaming``, when it is completed."""
        ...

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a copy that moves no byte through this process, made by S3 or a hard link; None if that cannot be.

        Parameters
        ----------
        source
            The store that has listed the object.
        path
            Where the copy will appear, a name of ``FileNaming``.

        Raises
        ------
        NotFoundError
            If the object is gone.
        """
        ...

    def complete(self, staged: StagedFile) -> None:
        """Make a staged file visible; do nothing if an earlier call did.

        Raises
        ------
        NotFoundError
            If the staged bytes are gone and the file is not there.
        """
        ...

    def abort(self, job_id: str) -> None:
        """Discard everything that was staged for a job, also by tasks that were killed."""
        ...

    def staged_jobs(self) -> set[str]:
        """Return the ids of all jobs that have something staged."""
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
        """Return a range of an object that ``list`` has shown; fail if it was replaced since and the store can tell.

        Raises
        ------
        NotFoundError
            If there is no such object any more.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small object whole, over an older one if there is one."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object whole and return True, or return False if one is there."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""
        ...


def is_there(store: ObjectStore, path: str) -> bool:
    """Return whether an object is visible."""
    return any(each.path == path for each in store.list(path))


def read_at_most(store: ObjectStore, path: str, most_bytes: int) -> bytes:
    """Return the bytes of an object; of a larger one only a part, which is longer than ``most_bytes``."""
    data = bytearray()
    for chunk in store.read_chunks(path):
        data += chunk
        if len(data) > most_bytes:
            break
    return bytes(data)


@contextlib.contextmanager
def aborted_on_error(writer: Any) -> Iterator[None]:
    """Abort a sink, or a writer of files, if what is done in the context fails."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


def stage_copy(target: ObjectStore, source: ObjectStore, entry: StoredObject, path: str, rows: int) -> StagedFile:
    """Stage a copy of an object of any store, by reading and writing its bytes if there is no cheaper way.

    Raises
    ------
    NotFoundError
        If the object is gone, or has another size.
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
    """A seekable file over one object, so that reading a footer costs no whole file; every read is a request."""

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
        """Fill a buffer from the current position, as far as bytes follow; return how many those were."""
        data = self.read(len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes from the current position; all that follow if it is None or negative."""
        left = max(0, self.size() - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._store.read_range(self._entry, self._at, wanted) if wanted else b""
        self._at += len(data)
        return data


class MemorySink:
    """Keep the bytes of one file in memory."""

    closed = False

    def __init__(self) -> None:
        self.held = io.BytesIO()

    def write(self, data: Buffer, /) -> int:
        """Keep all of the bytes; return how many that were."""
        return self.held.write(data)

    def finish(self, rows: int) -> StagedFile:
        """Return a file without a name."""
        return StagedFile("", self.held.tell(), rows, {})

    def abort(self) -> None:
        """Forget the bytes."""
        self.held = io.BytesIO()
