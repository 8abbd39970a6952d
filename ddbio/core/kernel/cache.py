"""Choose where compiled loops are kept, and how they are built; refuses to fail where nothing can be kept.

``DDBIO_KERNEL_CHECKED=1`` builds every load and store with array indexing and bounds checks, in a folder of its own:
numba's cache does not tell the two builds apart. This module is the one place of the core that looks at files.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.core import event as compiler_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKED = os.environ.get("DDBIO_KERNEL_CHECKED") == "1"
"""Whether the loops are built with bounds checks: for tests, several times slower."""

PLAIN_SOURCES = {
    *(f"decode/{name}.py" for name in ("assemble", "backlog", "decoder", "misfits")),
    *(f"encode/{name}.py" for name in ("encoder", "fields", "json_values", "load", "plan", "times", "unfit")),
}
"""Modules without loops, on which no loop depends: they may change without compiling anew."""

_LOG = logging.getLogger("ddbio.kernel")


def _fingerprint() -> str:
    # Numba watches only the file of the outermost function; the folder's name watches all that is compiled.
    digest = hashlib.blake2b(f"{numba.__version__} {np.__version__} {sys.version}".encode(), digest_size=8)
    with suppress(OSError):
        home = Path(__file__).parent
        for source in sorted(home.rglob("*.py")):
            if source.name != "__init__.py" and source.relative_to(home).as_posix() not in PLAIN_SOURCES:
                digest.update(source.read_bytes())
    return digest.hexdigest()


def _candidates() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):
        yield Path(home) if home else Path.home() / ".cache"
    # A folder of the user's own: what lies here is loaded as machine code.
    yield Path(tempfile.gettempdir()) / f"ddbio-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def choose_folder() -> Path | None:
    """Return the first writable of the user's cache folder and the temporary one, or None."""
    name = f"kernel-{_fingerprint()}" + ("-checked" if CHECKED else "")
    for candidate in _candidates():
        folder = candidate / "ddbio" / name
        if _writable(folder):
            return folder
    return None


FOLDER = choose_folder()
"""Where compiled loops are kept; None if nowhere."""


@contextmanager
def _numba_cache_in(folder: Path) -> Iterator[None]:
    # The folder is read when a function is decorated; other users of numba in this process keep theirs.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def inner(function: Callable[..., Any]) -> Any:
    """Compile a part of a loop; it is kept within the loops that call it."""
    return numba.njit(nogil=True, error_model="numpy", boundscheck=CHECKED, forceinline=False)(function)


LOOPS: list[Any] = []
"""All loops that Python calls, of the modules imported so far."""


def loop(function: Callable[..., Any]) -> Any:
    """Compile a loop that Python calls, and keep it for the next process where a folder can be written."""
    compiled = _kept(function)
    LOOPS.append(compiled)
    return compiled


def _kept(function: Callable[..., Any]) -> Any:
    if FOLDER is not None:
        try:
            with _numba_cache_in(FOLDER):
                return numba.njit(nogil=True, error_model="numpy", boundscheck=CHECKED, cache=True)(function)
        except RuntimeError:
            # Code in a zip file has no cache.
            pass
    return inner(function)


class _Announcer(compiler_event.Listener):  # type: ignore[misc]
    """Log once a process that loops are compiled: those that no earlier process has left to load."""

    def __init__(self) -> None:
        self._told = False

    def on_start(self, event: Any) -> None:
        """Tell of one of our loops; what others compile is theirs to tell."""
        if not self._told and any(event.data["dispatcher"] is each for each in LOOPS):
            self._told = True
            kept = "in every process: no folder to keep them is writable" if FOLDER is None else f"kept in {FOLDER}"
            _LOG.warning("compiling loops, which can take half a minute; %s", kept)

    def on_end(self, event: Any) -> None:
        """Tell nothing: whatever waited goes on."""


compiler_event.register("numba:compile", _Announcer())


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of a loop into each loop that calls it, where a call would cost more than the part."""
    return numba.njit(nogil=True, error_model="numpy", boundscheck=CHECKED, forceinline=True)(function)
