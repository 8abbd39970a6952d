"""Search for a folder that only this user and root can write to, for files that are executed."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def private_folder(name: str) -> Path | None:
    """Create a folder below the user's cache folder or the temporary folder, and return its path.

    Returns
    -------
    Path or None
        None if neither folder is private and writable.
    """
    return next(filter(None, (_created(parent, name) for parent in _parents())), None)


def is_private(folder: Path) -> bool:
    """Return whether only this user and root can change a folder or replace it.

    The path must be resolved.
    """
    if not hasattr(os, "getuid"):
        return True
    user = os.getuid()
    for path in (folder, *folder.parents):
        status = path.lstat()
        # In a folder with the sticky bit, such as /tmp, only the owner of a file can replace it. The private group of a
        # user has the same number as the user.
        is_shared = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != user)
        is_sticky = path != folder and status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {user, 0} or (is_shared and not is_sticky):
            return False
    return True


def _parents() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):
        yield Path(home) if home else Path.home() / ".cache"
    with suppress(OSError):
        yield Path(tempfile.gettempdir()) / f"ddbio-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _created(parent: Path, name: str) -> Path | None:
    with suppress(OSError):
        parent.parent.mkdir(parents=True, exist_ok=True)
        for folder in (parent, parent / "ddbio", parent / "ddbio" / name):
            folder.mkdir(mode=0o700, exist_ok=True)
        resolved = folder.resolve(strict=True)
        if is_private(resolved):
            with tempfile.TemporaryFile(dir=resolved):
                return resolved
    return None
