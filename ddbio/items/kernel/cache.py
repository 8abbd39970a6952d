"""Cache compiled loops in files, so that the next process loads them in milliseconds.

The name of a file holds a digest of the loop's code, of the parts and constants that it uses, of the types of its
arguments, of the versions of the compiler and of the processor; never a path or a time. So the files of one
installation serve every other, and an edit compiles only the loops that it reaches. This is the one module of the
core that touches files. A cache that cannot be read or written is no error: the loop is compiled.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
import os
import pickle
import platform
import stat
import sys
import tempfile
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.extending import _Intrinsic

from ddbio.items.kernel.compiling import COMPILATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.resources.abc import Traversable
    from typing import IO

if sys.platform != "win32":
    import fcntl

_LOG = logging.getLogger("ddbio.kernel")

_DIGEST_BYTES = 16
_VERSIONS = (
    numba.__version__,
    llvmlite.__version__,
    np.__version__.rsplit(".", 1)[0],
    sys.implementation.cache_tag,
    sys.byteorder,
)
_PORTABLE_CPU = "x86-64-v3" if platform.machine().lower() in {"x86_64", "amd64"} else "generic"
_PORTABLE_NEEDS = {"generic": ()}.get(_PORTABLE_CPU, ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"))

if sys.byteorder != "little":
    raise ImportError(
        f"ddbio reads and writes words as little-endian processors do; this one is {sys.byteorder}-endian"
    )


def portable_environment() -> dict[str, str]:
    """Return what a process needs in its environment to compile for every processor of this kind."""
    return {"NUMBA_CPU_NAME": _PORTABLE_CPU, "NUMBA_CPU_FEATURES": ""}


# --- what a loop was compiled from -------------------------------------------------------------------------------


def _is_code(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return value.__module__.partition(".")[0] not in {"numba", "llvmlite", "numpy"}
    return isinstance(value, (Dispatcher, _Intrinsic))


def _describe_value(value: Any) -> str:
    if isinstance(value, CodeType):
        # Neither lines, names of files nor docstrings are compiled.
        constants = value.co_consts
        constants = constants[1:] if constants and isinstance(constants[0], str) else constants
        names = (value.co_name, value.co_names, value.co_varnames, value.co_freevars, value.co_argcount)
        return f"{value.co_code.hex()} {names} {_describe_value(constants)}"
    if isinstance(value, frozenset):
        return f"frozenset{sorted(map(_describe_value, value))}"
    if isinstance(value, tuple):
        return f"({','.join(map(_describe_value, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, (type, FunctionType, ModuleType)):
        return f"{getattr(value, '__module__', '')}.{value.__name__}{getattr(value, '_fields', '')}"
    return f"{type(value).__name__} {value!r}"


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _describe(value: Any) -> tuple[str, list[Any]]:
    """Return the text of a function as it is compiled, and the functions that it calls."""
    if isinstance(value, Dispatcher):
        options = {name: getattr(option, "__name__", option) for name, option in value.targetoptions.items()}
        return str(sorted(options.items())), [value.py_func]
    if isinstance(value, _Intrinsic):
        return "intrinsic", [value._defn]  # noqa: SLF001 - nothing else leads to the function that generates it
    scope = value.__globals__
    used = [(name, scope[name]) for name in _names_of(value.__code__) if name in scope]
    used += [("", cell.cell_contents) for cell in value.__closure__ or ()]
    constants = [(name, _describe_value(each)) for name, each in used if not _is_code(each)]
    # Loading a loop imports the modules of its parts.
    described = f"{value.__module__} {_describe_value(value.__code__)} {constants}"
    return described, [each for _, each in used if _is_code(each)]


def source_digest(loop: Any) -> str:
    """Return a digest of all that a loop is compiled from, the same in every process and wherever it is installed."""
    described: dict[Any, str] = {}
    waiting = [loop]
    while waiting:
        value = waiting.pop()
        if value not in described:
            described[value], reached = _describe(value)
            waiting.extend(reached)
    return _digest("\n".join(described.values()).encode()).hex()


def _describe_type(value: Any) -> str:
    if isinstance(value, types.NamedTuple):
        # Numba's name of such a type lacks the names of its fields, by which loops find them.
        fields = zip(value.fields, map(_describe_type, value.types), strict=True)
        return f"{value.instance_class.__module__}.{value.instance_class.__qualname__}({list(fields)})"
    return repr(value)


# --- where files are ---------------------------------------------------------------------------------------------


def _candidates() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):
        yield Path(home) if home else Path.home() / ".cache"
    yield Path(tempfile.gettempdir()) / f"ddbio-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def is_private(folder: Path) -> bool:
    """Return whether nobody but this user and root can put anything into a folder, or another in its place.

    What lies there is run as machine code. The path must be resolved: each of its parts is looked at as it is.
    """
    if not hasattr(os, "getuid"):
        return True
    user = os.getuid()
    for each in (folder, *folder.parents):
        found = each.lstat()
        # In a folder with the sticky bit, as the temporary one is, nobody replaces what others own. A user's own group
        # has the user's number.
        is_shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != user)
        is_sticky = each != folder and found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {user, 0} or (is_shared and not is_sticky):
            return False
    return True


def _make(candidate: Path) -> Path | None:
    """Return a folder for loops below a candidate that is private and can be written, or None."""
    with suppress(OSError):
        candidate.parent.mkdir(parents=True, exist_ok=True)
        for folder in (candidate, candidate / "ddbio", candidate / "ddbio" / "kernel"):
            folder.mkdir(mode=0o700, exist_ok=True)
        made = folder.resolve(strict=True)
        if is_private(made):
            with tempfile.TemporaryFile(dir=made):
                return made
    return None


class _Folders:
    """Choose once which folder loops are cached in, and which shipped folders are read too."""

    def __init__(self) -> None:
        self._chosen: tuple[Path | None] | None = None
        self._shipped: list[Traversable] | None = None

    def cache(self) -> Path | None:
        if self._chosen is None:
            self._chosen = (next(filter(None, map(_make, _candidates())), None),)
        return self._chosen[0]

    def use_cache_folder(self, folder: Path) -> None:
        self._chosen = (folder,)

    def shipped(self) -> list[Traversable]:
        if self._shipped is None:
            self._shipped = list(self._find_shipped())
        return self._shipped

    @staticmethod
    def _find_shipped() -> Iterator[Traversable]:
        has = binding.get_host_cpu_features()
        if not all(has.get(feature) for feature in _PORTABLE_NEEDS):
            return
        named = os.environ.get("DDBIO_KERNEL_DIR")
        if named:
            folder = Path(named).resolve()
            if folder.is_dir() and is_private(folder):
                yield folder
            else:
                _LOG.warning("DDBIO_KERNEL_DIR %s is not used: it must be a folder that only you and root write", named)
        package = importlib.resources.files("ddbio") / "_kernel"
        if package.is_dir():
            yield package


_FOLDERS = _Folders()


def cache_folder() -> Path | None:
    """Return where loops are cached: in the user's cache folder or the temporary one, or None."""
    return _FOLDERS.cache()


def use_cache_folder(folder: Path) -> None:
    """Cache the loops that this process compiles in a folder that exists, whoever else may write to it."""
    _FOLDERS.use_cache_folder(folder)


class NotCompiledError(Exception):
    """Say that a loop would have to be compiled, within ``without_compiling``."""


_Result = TypeVar("_Result")
_may_compile = ContextVar("may_compile", default=True)


def without_compiling(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a function, and raise NotCompiledError where it needs a loop that is neither compiled nor cached."""
    before = _may_compile.set(False)
    try:
        return function(*arguments)
    finally:
        _may_compile.reset(before)


class LoopCache(NullCache):  # type: ignore[misc]
    """Cache one loop, as numba asks before and after it compiles."""

    def __init__(self, function: Any, dispatcher: Any) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._dispatcher = dispatcher
        self._content: str | None = None
        self._claim: IO[bytes] | None = None

    @property
    def cache_path(self) -> str:
        """The folder; empty if there is none."""
        return str(cache_folder() or "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for types of arguments, or None.

        Raises
        ------
        NotCompiledError
            Nothing was, and the caller wants nothing to be compiled.
        """
        triple, *processor = target_context.codegen().magic_tuple()
        folder = cache_folder()
        own = None if folder is None else folder / self._file(sig, triple, *processor)
        portable = self._file(sig, triple, *portable_environment().values())
        found = None if own is None else _read_whole(own)
        for shipped in _FOLDERS.shipped():
            found = found or _read_whole(shipped / portable)
        if found is None and not _may_compile.get():
            raise NotCompiledError(self._name)
        if found is None and own is not None:
            # Another process may compile it just now: what it leaves is there when it lets go.
            with COMPILATIONS.running():
                self._claim = _claim(own.with_suffix(".lock"))
            found = _read_whole(own)
        if found is None:
            # What numba knows how to compile: it takes longer to register than all loops to load.
            target_context.refresh()
            return None
        self.release()
        rtsys.initialize(target_context)
        return CompileResult._rebuild(target_context, *pickle.loads(found))  # noqa: S301, SLF001 - from private folders

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache what was compiled for types of arguments, if there is a folder."""
        for environment in data._find_referenced_environments():  # noqa: SLF001 - numba's own cache asks so too
            # Parts have no machine code by which numba would have found where theirs belongs.
            data.library.codegen.set_env(environment.env_name, environment)
        folder = cache_folder()
        if folder is not None and not data.library.has_dynamic_globals:
            data_bytes = serialize.dumps(data._reduce())  # noqa: SLF001 - numba's own cache asks so too
            with suppress(OSError):
                _write_whole(folder / self._file(sig, *data.codegen.magic_tuple()), _digest(data_bytes) + data_bytes)
        self.release()

    def release(self) -> None:
        """Let other processes compile it, if this one was to."""
        if self._claim is not None and sys.platform != "win32":
            # Closing is not enough where a fork of this process has the file open too.
            fcntl.flock(self._claim, fcntl.LOCK_UN)
            self._claim.close()
            self._claim = None

    def _file(self, sig: Any, *target: str) -> str:
        if self._content is None:
            self._content = source_digest(self._dispatcher)
        key = repr((_VERSIONS, target, self._content, [_describe_type(each) for each in sig]))
        return f"{self._name}-{_digest(key.encode()).hex()}.nbc"


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _claim(path: Path) -> IO[bytes] | None:
    """Wait until no other process has claimed a file, and claim it; return what holds the claim until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):
            file = path.open("wb")
            fcntl.flock(file, fcntl.LOCK_EX)
            return file
    return None


def _read_whole(place: Traversable) -> bytes | None:
    """Return what was written whole, or None where nothing is, or what is there was damaged."""
    with suppress(OSError):
        data = place.read_bytes()
        if data[:_DIGEST_BYTES] == _digest(data[_DIGEST_BYTES:]):
            return data[_DIGEST_BYTES:]
    return None


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, whoever else writes it at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
