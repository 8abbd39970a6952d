"""Loader of the library of compiled loops.

The library is the extension module ``_loops`` in the folder of this file. It cannot be loaded from a zip archive: there
it is first extracted to a private folder. ``DDBIO_KERNEL`` is the path of another library, or ``jit``, which lets numba
compile the loops in this process.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ddbio.errors import KernelError
from ddbio.private_folder import private_folder

FILE_NAME = "_loops.abi3.so"
"""The library uses the stable ABI of Python 3.11: later versions load the same file."""

CONSTANTS = ("capacity.py", "digest.py", "number.py", "rescue.py", "schema/arrow.py", "schema/shape.py")
"""Modules outside of the kernel with constants that the loops use."""

BUILD_COMMAND = "python -m ddbio.items.kernel.compiler"

_LOG = logging.getLogger("ddbio.kernel")
_MODULE, _JIT = f"{__package__}._loops", "jit"
_DIGEST_LETTERS = 32
_ONLY_IN_CLONES = "hatch_build.py"


def load_library() -> Any:
    """Load the library and return its module, or None if numba is to compile the loops.

    Raises
    ------
    KernelError
        There is no library for this processor and numba is not installed, or the processor is big-endian.
    """
    if sys.byteorder != "little":
        raise KernelError("ddbio supports little-endian processors only, and this one is big-endian")
    selected = os.environ.get("DDBIO_KERNEL", "")
    has_numba = find_spec("numba") is not None
    if selected == _JIT and has_numba:
        return None
    default_path = Path(__file__).with_name(FILE_NAME)
    try:
        path = Path(selected) if selected else default_path if default_path.is_file() else _extract_from_archive()
        if path is None:
            problem = "there is no library of compiled loops for this platform"
        elif selected == _JIT:
            problem = "DDBIO_KERNEL=jit needs numba, which is not installed"
        elif path == default_path and _is_stale(path):
            problem = "the library of compiled loops is older than their source"
        else:
            return _load(path)
    except (ImportError, OSError) as error:
        problem = f"the library of compiled loops cannot be loaded: {error}"
    if selected or not has_numba:
        raise KernelError(f"{problem}; to build one: pip install 'ddbio[jit]', then {BUILD_COMMAND}")
    message = "%s; numba compiles the loops in this process, which takes up to half a minute; to build one: %s"
    _LOG.warning(message, problem, BUILD_COMMAND)
    return None


def _load(path: Path) -> Any:
    if "t" in getattr(sys, "abiflags", ""):
        raise ImportError("it needs the global interpreter lock, which this Python does not have")
    loader = ExtensionFileLoader(_MODULE, str(path))
    spec = spec_from_file_location(_MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not an extension module")
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _extract_from_archive() -> Path | None:
    """Extract the library from the archive of this module, and return its path; None if there is no library."""
    try:
        # Only loaders of archives find a file that does not exist in the file system. They need the unchanged path:
        # Spark's paths begin with "./".
        content = __spec__.loader.get_data(__file__.removesuffix(Path(__file__).name) + FILE_NAME)  # type: ignore[union-attr]
    except OSError:
        return None
    return _write_private_copy(content)


def _write_private_copy(content: bytes) -> Path:
    """Write the library to a private folder, unless it has the same bytes already, and return its path."""
    digest = hashlib.sha256(content).hexdigest()
    folder = private_folder("kernel")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="ddbio-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"_loops-{digest[:_DIGEST_LETTERS]}.so"
    try:
        if hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return path
    except FileNotFoundError:
        pass
    handle, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _is_stale(path: Path) -> bool:
    """Return whether a source is newer than the library. Only clones are checked: installed sources do not change."""
    if not Path(path.parents[3], _ONLY_IN_CLONES).is_file():
        return False
    built = path.stat().st_mtime_ns
    try:
        return any(source.stat().st_mtime_ns > built for source in sources())
    except FileNotFoundError:
        return True


def sources() -> list[Path]:
    """Return the sources of the library: the files of the kernel, and modules whose constants it uses."""
    kernel = Path(__file__).parent
    constants = (kernel.parent / name for name in CONSTANTS)
    files = [*kernel.rglob("*.py"), *kernel.rglob("*.c"), *constants]
    # Editors create links that begin with a dot.
    return sorted(file for file in files if not file.name.startswith("."))


LIBRARY: Any = load_library()
"""The module of the compiled library; None if numba compiles the loops."""

CHECKED = os.environ.get("DDBIO_KERNEL_CHECKED") == "1" if LIBRARY is None else LIBRARY.LEVEL == "checked"
"""Whether loads and stores check the bounds of arrays, as in the test build."""
