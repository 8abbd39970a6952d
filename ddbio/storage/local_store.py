"""An object store in a folder of this machine. Files are staged below the target, and completed by a rename."""

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


_STAGING = "_ddbio/staging"
# How many folders, from the target upwards, did not exist before the first job came.
_CREATED = "made"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST})
_CHUNK_BYTES = 1024 * 1024
# A file of a writer that was killed; whoever still writes one that is deleted writes it again.
_DEAD_AFTER_SECONDS = 3600.0
# How often folders are made again that vanish, since another job has just deleted the last file in them.
_TRIES = 10
_serial = itertools.count()
_Result = TypeVar("_Result")
_TEMPORARY = re.compile(r"\d+\.\d+")


class LocalSink:
    """Write one staged file; raise TargetError if the disk is full or refuses the write."""

    def __init__(self, staged_at: Path, path: str, root: Path) -> None:
        self._staged_at, self._path, self._root = staged_at, path, root
        self._size_bytes = 0
        self.closed = False
        with _target_errors(root):
            self._file = staged_at.open("wb")

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
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
        # What the buffer still holds may not fit on the disk, and is not needed.
        with contextlib.suppress(OSError):
            self._file.close()
        self._staged_at.unlink(missing_ok=True)


class LocalStore:
    """Store objects as files of a folder.

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
        """Return the folder above, and the name of this one in it; None at the root of the file system."""
        # A path that ends in .. has no name until it is resolved.
        path = Path(os.path.abspath(self._root))  # noqa: PTH100 - what a link leads to has another name
        return None if path == path.parent else (LocalStore(path.parent, path.name), path.name)

    @property
    def hazard(self) -> str | None:
        """What else deleting the whole target would delete."""
        here, home = Path.cwd(), Path.home()
        if self._root == self._root.parent:
            return "the root of the file system"
        if self._root.resolve() in {home, *home.parents}:
            return "your home folder"
        return "the working folder" if self._root.resolve() in {here, *here.parents} else None

    def create(self, path: str) -> LocalSink:
        """Return a sink in the staging folder of the job that the file's name carries."""
        # No pattern for data files matches a staged one.
        staged_at = self._staging_of(path)
        self._make_staging(staged_at.parent)
        return LocalSink(staged_at, path, self._root)

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a hard link to a file of another folder; None if it is on another file system, or no file."""
        if not isinstance(source, LocalStore):
            return None
        staged_at = self._staging_of(path)
        self._make_staging(staged_at.parent)
        try:
            staged_at.hardlink_to(source._place(entry.path))  # noqa: SLF001 - its own class
        except OSError:
            return None
        return StagedFile(path, entry.size_bytes, rows, {"staged_at": str(staged_at.relative_to(self._root))})

    def complete(self, staged: StagedFile) -> None:
        """Rename the staged file to its path; do nothing if an earlier call did.

        Raises
        ------
        NotFoundError
            If neither is there.
        """
        source, place = self._staging_of(staged.path), self._place(staged.path, is_link=True)
        with _target_errors(self._root):
            try:
                _while_folders_vanish(lambda: self._move(source, place))
            except FileNotFoundError:
                if not (place.is_file() and place.stat().st_size == staged.size_bytes):
                    raise NotFoundError(f"staged file {source} is gone: run the job again") from None
            _sync_folder(place.parent)

    def abort(self, job_id: str) -> None:
        """Remove the job's staging folder, and the folders made for it that are empty now."""
        staging, own = self._place(_STAGING), self._place(f"{_STAGING}/{job_id}", is_link=True)
        with _target_errors(self._root):
            if own.is_symlink():
                own.unlink()
            elif own.exists():
                shutil.rmtree(own)
            # Another job may have removed it, or have begun to use it.
            if [entry.name for entry in _entries(staging)] not in ([], [_CREATED]):
                return
            made = self._created()
            (staging / _CREATED).unlink(missing_ok=True)
        _remove_empty([staging, staging.parent, *self._from_target()[:made]])

    def remove(self) -> None:
        """Remove the folder of a target of one job that has ended, and the empty ones that were made for it."""
        made = self._created()
        with _target_errors(self._root), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root)
        _remove_empty(self._from_target()[1:made])

    def staged_jobs(self) -> set[str]:
        """Return the ids of the jobs that have a staging folder."""
        staging = self._place(_STAGING)
        with _target_errors(self._root):
            self._remove_dead()
            return {entry.name for entry in _entries(staging) if entry.is_dir()}

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the files whose path starts with ``prefix``, in the order of their paths; staged ones are not shown."""
        with _target_errors(self._root):
            for folder, folders, names in os.walk(self._root, onerror=_refuse):
                if Path(folder) == (self._root / _STAGING).parent:
                    folders[:] = [each for each in folders if each != "staging"]
                folders[:] = sorted(each for each in folders if self._may_hold(Path(folder, each), prefix))
                for name in sorted(names):
                    place = Path(folder, name)
                    path = place.relative_to(self._root).as_posix()
                    found = _stat(place) if path.startswith(prefix) else None
                    if found is not None:
                        yield StoredObject(path, found.st_size, str(found.st_mtime_ns), found.st_mtime)

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        place = self._place(path)
        with _read_errors(place):
            return place.read_bytes()

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes in pieces of a megabyte.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        place = self._place(path)
        with _read_errors(place):
            file = place.open("rb", buffering=0)
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
        place = self._place(entry.path)
        with _read_errors(place), place.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def line_blocks(self, entry: StoredObject, start: int, stop: int, block_bytes: int) -> Iterator[memoryview]:
        """Yield a range of a file of text in blocks of about so many bytes that end where a line ends.

        A block is good until the next is asked for: fresh memory for each would cost as much as reading it.

        Raises
        ------
        NotFoundError
            If there is no such file.
        """
        place, buffer, held = self._place(entry.path), bytearray(min(block_bytes, max(1, stop - start))), 0
        with _read_errors(place):
            file = place.open("rb", buffering=0)
        with file:
            file.seek(start)
            while start < stop:
                if held == len(buffer):
                    # A line is longer than that.
                    buffer = buffer + bytes(len(buffer))
                view = memoryview(buffer)
                count = file.readinto(view[held : held + stop - start]) or 0
                if not count:
                    break
                start, held = start + count, held + count
                end = buffer.rfind(b"\n", 0, held) + 1 if start < stop else held
                if end:
                    yield view[:end]
                    held -= end
                    buffer[:held] = buffer[end : end + held]
        if held:
            # The file ends before the range does.
            yield memoryview(buffer)[:held]

    def put(self, path: str, data: bytes) -> None:
        """Write a small file whole, over an older one if there is one."""
        self._write(path, data, lambda temporary, place: bool(temporary.replace(place)))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small file whole and return True, or return False if one is there."""

        def publish(temporary: Path, place: Path) -> bool:
            try:
                place.hardlink_to(temporary)
            except FileExistsError:
                return False
            return True

        return self._write(path, data, publish)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files and the folders this leaves empty; those that are not there are passed over."""
        for path in paths:
            place = self._place(path, is_link=True)
            with _target_errors(self._root):
                place.unlink(missing_ok=True)
            _remove_empty([parent for parent in place.parents if self._root in parent.parents])

    def _move(self, source: Path, place: Path) -> None:
        made = [each for each in (place.parent, *place.parent.parents) if not each.exists()]
        _make_folder(place.parent)
        for each in made:
            _sync_folder(each.parent)
        source.replace(place)

    def _place(self, path: str, *, is_link: bool = False) -> Path:
        """Return where a path lies: the one way in which paths of this store are made.

        Parameters
        ----------
        is_link
            Whether the last part is taken as it is, and not what it leads to: it is made, replaced or deleted.

        Raises
        ------
        TargetError
            If that is not within the folder.
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
        place = self._root / path
        # Links in a circle lead nowhere.
        real, root = (Path(os.path.realpath(each)) for each in (place.parent if is_link else place, self._root))
        if real != root and root not in real.parents:
            raise outside(path, self.uri)

    def _staging_of(self, path: str) -> Path:
        self._place(path, is_link=True)
        return self._place("/".join(filter(None, (_STAGING, job_of(path), f"{path}.staged"))))

    def _write(self, path: str, data: bytes, publish: Callable[[Path, Path], bool]) -> bool:
        """Write a temporary file, and return what publishing it at its place returns."""
        place = self._place(path, is_link=True)
        temporary = self._place(f"{_STAGING}/{os.getpid()}.{next(_serial)}")

        def write() -> bool:
            self._make(temporary.parent)
            _make_folder(place.parent)
            try:
                with temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                return publish(temporary, place)
            finally:
                temporary.unlink(missing_ok=True)

        with _target_errors(self._root):
            is_written = _while_folders_vanish(write)
            # Another job may have deleted it already.
            with contextlib.suppress(FileNotFoundError):
                _sync_folder(place.parent)
        return is_written

    def _make_staging(self, folder: Path) -> None:
        with _target_errors(self._root):
            _while_folders_vanish(lambda: self._make(folder))

    def _remove_dead(self) -> None:
        """Remove the temporary files that writers of small files have left which were killed."""
        if self._has_looked:
            return
        self._has_looked = True
        oldest = time.time() - _DEAD_AFTER_SECONDS
        for each in _entries(self._place(_STAGING)):
            if _TEMPORARY.fullmatch(each.name) and (found := _stat(each)) is not None and found.st_mtime < oldest:
                each.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        self._remove_dead()
        missing = sum(not each.exists() for each in self._from_target())
        _make_folder(folder)
        if missing:
            self._place(f"{_STAGING}/{_CREATED}").write_text(str(missing))

    def _created(self) -> int:
        # Another task of the job may just be writing it: without a number no folder is taken for made.
        with contextlib.suppress(FileNotFoundError, ValueError):
            return max(0, int(self._place(f"{_STAGING}/{_CREATED}").read_text()))
        return 0

    def _may_hold(self, folder: Path, prefix: str) -> bool:
        path = folder.relative_to(self._root).as_posix() + "/"
        return path.startswith(prefix) or prefix.startswith(path)

    def _from_target(self) -> tuple[Path, ...]:
        return (self._root, *self._root.parents)


def _while_folders_vanish(action: Callable[[], _Result]) -> _Result:
    """Return the result of an action, which makes the folders again that other jobs remove meanwhile."""
    return retrying(action, on=FileNotFoundError, attempts=_TRIES, base_seconds=0)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; one that another job removes meanwhile, as empty, is a FileNotFoundError."""
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
    """Turn errors of the operating system into TargetError, which names the target and says what to do."""
    try:
        yield
    except (NotFoundError, TargetError):
        raise
    except OSError as error:
        raise _to_target_error(error, root) from error


@contextlib.contextmanager
def _read_errors(place: Path) -> Iterator[None]:
    """Turn errors of reading into errors that name the file."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFoundError(f"no file {place}") from error
    except PermissionError as error:
        raise AccessDeniedError(f"{place} may not be read: check its permissions", resource=str(place)) from error
    except OSError as error:
        # A name that is too long, links in a circle, a broken disk.
        raise TargetError(f"{place} cannot be read ({error.strerror}): check the file", str(place)) from error


def _to_target_error(error: OSError, root: Path) -> TargetError:
    if error.errno in _FULL:
        return TargetError(
            f"disk full at {root}: free space or choose another target, then run the job again", str(root)
        )
    if error.errno in _NOT_A_FOLDER:
        return TargetError(f"{root} is a file or lies below one: name a folder as target", str(root))
    return TargetError(
        f"target {root} is not writable ({error.strerror}): check its permissions or choose another", str(root)
    )


def _entries(folder: Path) -> list[Path]:
    """Return what a folder holds; nothing if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []


def _stat(place: Path) -> os.stat_result | None:
    """Return the state of a file, or of a link that leads nowhere; None if another job has just deleted it."""
    for look in (place.stat, place.lstat):
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
