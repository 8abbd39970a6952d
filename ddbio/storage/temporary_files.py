"""Temporary folders, and buffers that move to a temporary file when they grow."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from ddbio.storage.object_store import Sink, SinkMaker
    from ddbio.storage.staged import StagedFile

_CHUNK_BYTES = 1024 * 1024


class SpooledSink:
    """Write one file to a local one, and bring it to the store when it is whole."""

    def __init__(self, store: SinkMaker, path: str, place: Path) -> None:
        self._store, self._path, self._place = store, path, place
        self.closed = False
        try:
            self._file = place.open("wb")
        except OSError as error:
            raise _refused(place, error) from error

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
        if not self.closed:
            try:
                self._file.write(data)
            except OSError as error:
                raise _refused(self._place, error) from error
        return memoryview(data).nbytes

    def finish(self, rows: int) -> StagedFile:
        """Bring the bytes to the store, and return the staged file."""
        try:
            self._file.close()
        except OSError as error:
            raise _refused(self._place, error) from error
        self.closed = True
        sink: Sink = self._store.create(self._path)
        try:
            with self._place.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    sink.write(data)
            staged = sink.finish(rows)
        except BaseException:
            sink.abort()
            raise
        self._place.unlink()
        return staged

    def abort(self) -> None:
        """Discard the bytes; the folder goes with its owner."""
        self.closed = True
        # What the buffer still holds may not fit on the disk, and is not needed.
        with contextlib.suppress(OSError):
            self._file.close()


class SpooledStore:
    """Make sinks that keep their bytes in a folder of this machine until they are finished.

    Parameters
    ----------
    folder
        Says where; who gives it deletes it.
    """

    def __init__(self, store: SinkMaker, folder: Callable[[], Path]) -> None:
        self._store, self._folder = store, folder
        self._numbers = itertools.count()

    def create(self, path: str) -> SpooledSink:
        """Return a sink for a file of the store."""
        return SpooledSink(self._store, path, self._folder() / f"{next(self._numbers)}.spooled")


def _refused(place: Path, error: OSError) -> TargetError:
    return TargetError(
        f"a file that is not whole yet cannot be written to {place.parent} ({error.strerror}): free space there, or "
        "name another folder by the environment variable TMPDIR",
        str(place.parent),
    )


_PREFIX, _LOCK = "ddbio-spill-", "lock"
# Between making its folder and locking it, a process looks like a dead one.
_LOCKED_WITHIN_SECONDS = 60.0
_LOG = logging.getLogger("ddbio.export")


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a temporary folder, deleted at the end, and delete those of this user's processes that were killed."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, Path(folder, _LOCK).open("wb") as lock:
        # The system drops the lock when the process ends, however it ends.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for each in Path(folder).parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(each):
                _LOG.info("deleting %s, which a killed process has left", each)
                shutil.rmtree(each, ignore_errors=True)
        yield folder


def _is_abandoned(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        status = folder.lstat()
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < _LOCKED_WITHIN_SECONDS:
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
