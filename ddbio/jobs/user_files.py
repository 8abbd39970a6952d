"""Find the files in which a user's settings are kept, such as books of prices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable


def user_file(name: str) -> Path:
    """Return the path of a file in ``DDBIO_CONFIG_DIR``, by default ddbio's folder among this user's configurations.

    References
    ----------
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    own = os.environ.get("DDBIO_CONFIG_DIR")
    root = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ddbio" if own is None else Path(own)
    return root / name


def write_user_file(name: str, parts: Iterable[str]) -> Path:
    """Write a file of the user's settings, and return its path.

    Raises
    ------
    OptionError
        If it cannot be written.
    """
    path = user_file(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(parts), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}: let DDBIO_CONFIG_DIR name another") from None
    return path
