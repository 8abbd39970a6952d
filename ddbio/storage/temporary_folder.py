"""Temporary folders for rows that are spilled to this machine, which outlive no process for long."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
