"""Compile all loops in several processes, for this processor or for every processor of its kind."""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from ddbio.advice.warm import WARM_UPS
from ddbio.advice.warm import warm as warm_here
from ddbio.errors import OptionError
from ddbio.items.kernel.cache import cache_folder, portable_environment, use_cache_folder
from ddbio.jobs.report import WarmReport

_LOG = logging.getLogger("ddbio.kernel")

MOST_PROCESSES = 4
"""More processes would only compile again what several loops call: the longest loop takes a third of the time."""


def warm(to: str | os.PathLike[str] | None = None) -> WarmReport:
    """Compile all loops ahead of their first use, or load those that are stored already.

    Parameters
    ----------
    to
        A folder, or an archive ``….zip``, for loops that every processor of this kind runs, to be shipped; by default
        they are compiled for this one, and stored where the next process of this user looks.

    Raises
    ------
    OptionError
        If the folder or the archive cannot be made.
    """
    began = time.monotonic()
    folder = warm_all(None if to is None else os.fspath(to))
    return WarmReport(round(time.monotonic() - began, 3), None if folder is None else str(folder))


def warm_all(to: str | None = None) -> Path | None:
    """Compile all loops that are not compiled yet; return the folder that holds them, or None if there is none.

    Parameters
    ----------
    to
        A folder, or an archive ``….zip``, for loops to ship, which every processor of this kind runs; by default loops
        are compiled for this processor, and stored where the next process of this user looks.

    Raises
    ------
    OptionError
        If the folder or the archive cannot be made.
    """
    if to is not None and to.endswith(".zip"):
        with tempfile.TemporaryDirectory() as made:
            warm_all(made)
            return packed(Path(made), Path(to).resolve())
    folder = cache_folder() if to is None else _created(to)
    if folder is None:
        warm_here()
        return None
    before = dict(os.environ)
    if to is not None:
        # The processes read the environment when they start.
        os.environ.update(portable_environment(), DDBIO_KERNEL_DIR="")
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(folder,)) as pool:
            parts = [pool.submit(warm_here, part) for part in range(len(WARM_UPS))]
            for count, part in enumerate(as_completed(parts), 1):
                part.result()
                _LOG.info("compiled %d of %d parts", count, len(parts))
    finally:
        os.environ.clear()
        os.environ.update(before)
    if to is not None:
        for lock in folder.glob("*.lock"):
            lock.unlink(missing_ok=True)
    return folder


def packed(folder: Path, archive: Path) -> Path:
    """Pack the loops of a folder into an archive, and return its path.

    Raises
    ------
    OptionError
        If the archive cannot be written.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for each in sorted(folder.glob("*.nbc")):
                file.write(each, each.name)
    except OSError as error:
        raise OptionError(f"no archive of loops can be written at {archive}: {error.strerror}") from None
    return archive


def _begin(folder: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_cache_folder(folder)
    # Who compiles all loops need not be warned by each process that this takes time.
    _LOG.setLevel(logging.ERROR)


def _end_with_parent() -> None:
    """End this process if its parent was killed, which the pool does not notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _created(to: str) -> Path:
    folder = Path(to).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"no folder for loops can be made at {to}: {error.strerror}") from None
    return folder
