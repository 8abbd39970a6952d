"""Object store in a folder of this machine. Files are staged below the target, and completed by a rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddbio.errors import AccessDeniedError, NotFoundError, TargetError
from ddbio.options.locations import local_path
from ddbio.retrying import retrying
from ddbio.storage.staged import StagedFile, StoredObject, contained, job_of, outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from typing_extensions import Buffer

_PREFIX, _LOCK = "ddbio-spill-", "lock"
# Between making and locking its folder, a process looks like a dead one.
_LOCKED_WITHIN_SECONDS = 60.0
_LOG = logging.getLogger("ddbio.export")


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a temporary folder, deleted at the end; also delete the folders of this user's killed processes."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, Path(folder, _LOCK).open("wb") as lock:
        # The system releases the lock at any end of the process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in Path(folder).parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(other):
                _LOG.info("deleting %s, left by a killed process", other)
                shutil.rmtree(other, ignore_errors=True)
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


_STAGING = "_ddbio/staging"
# Number of folders, from the target upwards, that did not exist before the first job.
_CREATED = "made"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST})
_CHUNK_BYTES = 1024 * 1024
# Age of the file of a killed writer; a living writer whose file is deleted writes it again.
_DEAD_AFTER_SECONDS = 3600.0
# Attempts at making folders again that disappear, because another job has just deleted the last file in them.
_ATTEMPTS = 10
_serial = itertools.count()
_Result = TypeVar("_Result")
_TEMPORARY = re.compile(r"\d+\.\d+")


class LocalSink:
    """Sink of one staged file; raises TargetError if the disk is full or refuses the write."""

    def __init__(self, staged_at: Path, path: str, root: Path) -> None:
        self._staged_at, self._path, self._root = staged_at, path, root
        self._size_bytes = 0
        self.closed = False
        with _target_errors(root):
            self._file = staged_at.open("wb")

    def write(self, data: Buffer, /) -> int:
        """Write all of the bytes; return their number."""
        size_bytes = memoryview(data).nbytes
        if not self.closed:
            with _target_errors(self._root):
                self._file.write(data)
            self._size_bytes += size_bytes
        return size_bytes

    def finish(self, rows: int) -> StagedFile:
        """Return the staged file once its bytes are on the disk."""
        with _target_errors(self._root):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self.closed = True
        token = {"staged_at": str(self._staged_at.relative_to(self._root))}
        return StagedFile(self._path, self._size_bytes, rows, token)

    def abort(self) -> None:
        """Remove the staged file; later writes are discarded."""
        self.closed = True
        # The bytes in the buffer may not fit on the disk, and are not needed.
        with contextlib.suppress(OSError):
            self._file.close()
        self._staged_at.unlink(missing_ok=True)


class LocalStore:
    """Store of objects as files of a folder.

    Parameters
    ----------
    target
        Path, relative or absolute, or a ``file://`` URI; need not exist.
    named
        The path of a file that the user named. It may be a link to a file elsewhere; no other path may lead out of the
        folder.

    Raises
    ------
    OptionError
        If it is a URI of another kind.
    TargetError
        By all methods, if a path leads out of the folder, by its parts or by links.
    """

    def __init__(self, target: str | os.PathLike[str], named: str | None = None) -> None:
        # Workers may run in another folder.
        self._root = local_path(os.fspath(target)).expanduser().absolute()
        self._named = named
        self._has_looked = False

    @property
    def uri(self) -> str:
        """The folder's absolute path."""
        return str(self._root)

    def above(self) -> tuple[LocalStore, str] | None:
        """Return the parent folder, and the name of this folder in it; None at the root of the file system."""
        # A path that ends in .. has no name until it is resolved.
        path = Path(os.path.abspath(self._root))  # noqa: PTH100 - the target of a link has another name
        return None if path == path.parent else (LocalStore(path.parent, path.name), path.name)

    @property
    def hazard(self) -> str | None:
        """Anything valuable outside the target that deleting the whole target would delete."""
        working_folder, home = Path.cwd(), Path.home()
        if self._root == self._root.parent:
            return "the root of the file system"
        if self._root.resolve() in {home, *home.parents}:
            return "your home folder"
        return "the working folder" if self._root.resolve() in {working_folder, *working_folder.parents} else None

    def create(self, path: str) -> LocalSink:
        """Return a sink in the staging folder of the job whose id is in the file's name."""
        # No pattern for data files matches a staged file.
        staged_at = self._staging_of(path)
        self._make_staging(staged_at.parent)
        return LocalSink(staged_at, path, self._root)

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a hard link to a file of another folder; None if it is on another file system, or not a file."""
        if not isinstance(source, LocalStore):
            return None
        staged_at = self._staging_of(path)
        self._make_staging(staged_at.parent)
        try:
            staged_at.hardlink_to(source._path_of(entry.path))  # noqa: SLF001 - its own class
        except OSError:
            return None
        return StagedFile(path, entry.size_bytes, rows, {"staged_at": str(staged_at.relative_to(self._root))})

    def complete(self, staged: StagedFile) -> None:
        """Rename the staged file to its path; do nothing if an earlier call did.

        Raises
        ------
        NotFoundError
            If neither file exists.
        """
        source, destination = self._staging_of(staged.path), self._path_of(staged.path, is_link=True)
        with _target_errors(self._root):
            try:
                _retry_if_folders_disappear(lambda: self._move(source, destination))
            except FileNotFoundError:
                if not (destination.is_file() and destination.stat().st_size == staged.size_bytes):
                    raise NotFoundError(f"staged file {source} is gone: run the job again") from None
            _sync_folder(destination.parent)

    def abort(self, job_id: str) -> None:
        """Remove the job's staging folder, and the folders made for it that are empty now."""
        staging, own = self._path_of(_STAGING), self._path_of(f"{_STAGING}/{job_id}", is_link=True)
        with _target_errors(self._root):
            if own.is_symlink():
                own.unlink()
            elif own.exists():
                shutil.rmtree(own)
            # Another job may have removed it, or started to use it.
            if [entry.name for entry in _entries(staging)] not in ([], [_CREATED]):
                return
            count = self._created()
            (staging / _CREATED).unlink(missing_ok=True)
        _remove_empty([staging, staging.parent, *self._from_target()[:count]])

    def remove(self) -> None:
        """Remove the folder of a target whose only job has ended, and the empty folders that were made for it."""
        count = self._created()
        with _target_errors(self._root), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root)
        _remove_empty(self._from_target()[1:count])

    def staged_jobs(self) -> set[str]:
        """Return the ids of the jobs that have a staging folder."""
        staging = self._path_of(_STAGING)
        with _target_errors(self._root):
            self._remove_dead_files()
            return {entry.name for entry in _entries(staging) if entry.is_dir()}

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the files whose path starts with ``prefix``, in the order of their paths, without staged files."""
        with _target_errors(self._root):
            for folder, folders, names in os.walk(self._root, onerror=_refuse):
                if Path(folder) == (self._root / _STAGING).parent:
                    folders[:] = [folder_name for folder_name in folders if folder_name != "staging"]
                folders[:] = sorted(
                    folder_name for folder_name in folders if self._may_hold(Path(folder, folder_name), prefix)
                )
                for name in sorted(names):
                    file = Path(folder, name)
                    path = file.relative_to(self._root).as_posix()
                    status = _stat(file) if path.startswith(prefix) else None
                    if status is not None:
                        yield StoredObject(path, status.st_size, str(status.st_mtime_ns), status.st_mtime)

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        file = self._path_of(path)
        with _read_errors(file):
            return file.read_bytes()

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes in pieces of a megabyte.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        absolute_path = self._path_of(path)
        with _read_errors(absolute_path):
            file = absolute_path.open("rb", buffering=0)
        with file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of a file's bytes.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        absolute_path = self._path_of(entry.path)
        with _read_errors(absolute_path), absolute_path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def line_blocks(self, entry: StoredObject, start: int, stop: int, block_bytes: int) -> Iterator[memoryview]:
        """Yield a range of a text file in blocks of about ``block_bytes`` that end at a line end.

        A block is valid until the next one is read: new memory for each block would cost as much as reading it.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        absolute_path, buffer, buffered = (
            self._path_of(entry.path),
            bytearray(min(block_bytes, max(1, stop - start))),
            0,
        )
        with _read_errors(absolute_path):
            file = absolute_path.open("rb", buffering=0)
        with file:
            file.seek(start)
            while start < stop:
                if buffered == len(buffer):
                    # A line is longer than the buffer.
                    buffer = buffer + bytes(len(buffer))
                view = memoryview(buffer)
                count = file.readinto(view[buffered : buffered + stop - start]) or 0
                if not count:
                    break
                start, buffered = start + count, buffered + count
                end = buffer.rfind(b"\n", 0, buffered) + 1 if start < stop else buffered
                if end:
                    yield view[:end]
                    buffered -= end
                    buffer[:buffered] = buffer[end : end + buffered]
        if buffered:
            # The file ends before the range does.
            yield memoryview(buffer)[:buffered]

    def put(self, path: str, data: bytes) -> None:
        """Write a small file atomically, and replace an older one."""
        self._write(path, data, lambda temporary, destination: bool(temporary.replace(destination)))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small file atomically and return True, or return False if it exists."""

        def publish(temporary: Path, destination: Path) -> bool:
            try:
                destination.hardlink_to(temporary)
            except FileExistsError:
                return False
            return True

        return self._write(path, data, publish)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and the folders that become empty; missing files are ignored."""
        for path in paths:
            file = self._path_of(path, is_link=True)
            with _target_errors(self._root):
                file.unlink(missing_ok=True)
            _remove_empty([parent for parent in file.parents if self._root in parent.parents])

    def _move(self, source: Path, destination: Path) -> None:
        missing = [folder for folder in (destination.parent, *destination.parent.parents) if not folder.exists()]
        _make_folder(destination.parent)
        for folder in missing:
            _sync_folder(folder.parent)
        source.replace(destination)

    def _path_of(self, path: str, *, is_link: bool = False) -> Path:
        """Return the absolute path of a path: all paths of this store are made here.

        Parameters
        ----------
        is_link
            Whether the last part is made, replaced or deleted itself, so that a link is not followed.

        Raises
        ------
        TargetError
            If the path is not within the folder.
        """
        contained(path, self.uri)
        if path != self._named:
            at, parts = str(self._root), path.split("/")
            for part in parts[:-1] if is_link else parts:
                at = f"{at}/{part}"
                if os.path.islink(at):  # noqa: PTH114 - in a quarter of the time
                    self._require_within(path, is_link=is_link)
                    break
        return self._root / path

    def _require_within(self, path: str, *, is_link: bool) -> None:
        absolute_path = self._root / path
        # Circular links are outside.
        real, root = (
            Path(os.path.realpath(path_to_resolve))
            for path_to_resolve in (absolute_path.parent if is_link else absolute_path, self._root)
        )
        if real != root and root not in real.parents:
            raise outside(path, self.uri)

    def _staging_of(self, path: str) -> Path:
        self._path_of(path, is_link=True)
        return self._path_of("/".join(filter(None, (_STAGING, job_of(path), f"{path}.staged"))))

    def _write(self, path: str, data: bytes, publish: Callable[[Path, Path], bool]) -> bool:
        """Write a temporary file, and return the result of publishing it at its path."""
        destination = self._path_of(path, is_link=True)
        temporary = self._path_of(f"{_STAGING}/{os.getpid()}.{next(_serial)}")

        def write() -> bool:
            self._make(temporary.parent)
            _make_folder(destination.parent)
            try:
                with temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                return publish(temporary, destination)
            finally:
                temporary.unlink(missing_ok=True)

        with _target_errors(self._root):
            is_written = _retry_if_folders_disappear(write)
            # Another job may have deleted it already.
            with contextlib.suppress(FileNotFoundError):
                _sync_folder(destination.parent)
        return is_written

    def _make_staging(self, folder: Path) -> None:
        with _target_errors(self._root):
            _retry_if_folders_disappear(lambda: self._make(folder))

    def _remove_dead_files(self) -> None:
        """Remove the temporary files of killed writers of small files."""
        if self._has_looked:
            return
        self._has_looked = True
        oldest = time.time() - _DEAD_AFTER_SECONDS
        for entry in _entries(self._path_of(_STAGING)):
            if _TEMPORARY.fullmatch(entry.name) and (status := _stat(entry)) is not None and status.st_mtime < oldest:
                entry.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        self._remove_dead_files()
        missing = sum(not folder.exists() for folder in self._from_target())
        _make_folder(folder)
        if missing:
            self._path_of(f"{_STAGING}/{_CREATED}").write_text(str(missing))

    def _created(self) -> int:
        # Another task of the job may just be writing the number: without it, no folder counts as made by the job.
        with contextlib.suppress(FileNotFoundError, ValueError):
            return max(0, int(self._path_of(f"{_STAGING}/{_CREATED}").read_text()))
        return 0

    def _may_hold(self, folder: Path, prefix: str) -> bool:
        path = folder.relative_to(self._root).as_posix() + "/"
        return path.startswith(prefix) or prefix.startswith(path)

    def _from_target(self) -> tuple[Path, ...]:
        return (self._root, *self._root.parents)


def _retry_if_folders_disappear(action: Callable[[], _Result]) -> _Result:
    """Return the result of an action, which makes folders again if other jobs remove them in the meantime."""
    return retrying(action, on=FileNotFoundError, attempts=_ATTEMPTS, base_seconds=0)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents; raise FileNotFoundError if another job removes one in the meantime."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        if folder.is_dir():
            return
        if folder.exists():
            raise
        raise FileNotFoundError(error.errno, error.strerror, error.filename) from error


@contextlib.contextmanager
def _target_errors(root: Path) -> Iterator[None]:
    """Convert errors of the operating system to TargetError, with the target and an advice."""
    try:
        yield
    except (NotFoundError, TargetError):
        raise
    except OSError as error:
        raise _to_target_error(error, root) from error


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors of reading to errors that name the file."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFoundError(f"no file {path}") from error
    except PermissionError as error:
        raise AccessDeniedError(f"no permission to read {path}: check its permissions", resource=str(path)) from error
    except OSError as error:
        # A name that is too long, circular links, a broken disk.
        raise TargetError(f"{path} cannot be read ({error.strerror}): check the file", str(path)) from error


def _to_target_error(error: OSError, root: Path) -> TargetError:
    if error.errno in _FULL:
        return TargetError(
            f"disk full at {root}: free space or choose another target, then run the job again", str(root)
        )
    if error.errno in _NOT_A_FOLDER:
        return TargetError(f"{root} is a file or is below one: name a folder as target", str(root))
    return TargetError(
        f"target {root} is not writable ({error.strerror}): check its permissions or choose another", str(root)
    )


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder; nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []


def _stat(path: Path) -> os.stat_result | None:
    """Return the state of a file or of a broken link; None if another job has just deleted it."""
    for look in (path.stat, path.lstat):
        with contextlib.suppress(FileNotFoundError):
            return look()
    return None


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
