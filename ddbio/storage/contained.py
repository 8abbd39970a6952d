"""Keep paths within their folder: the one check of paths and keys, whoever names them."""

from __future__ import annotations

from ddbio.errors import TargetError

_SHOWN = 200


def contained(path: object, folder: str, *, is_key: bool = False) -> str:
    """Return a path if it names something within its folder, and does so in one way only.

    It is relative and has no empty part, no part ``.`` or ``..`` and no NUL. A backslash counts as a slash when parts
    ``..`` are looked for: some file systems and servers take it for one.

    Parameters
    ----------
    folder
        URI of the folder, for the message.
    is_key
        Whether the path is the key of an object that exists, which may have empty parts and parts ``.``.

    Raises
    ------
    TargetError
        If it does not.
    """
    if isinstance(path, str) and path and "\0" not in path:
        parts = path.split("/")
        climbs = ".." in (path.replace("\\", "/").split("/") if "\\" in path else parts)
        if not climbs and (is_key or not ("" in parts or "." in parts or path[0] == "\\")) and _is_encodable(path):
            return path
    raise outside(path, folder)


def outside(path: object, folder: str) -> TargetError:
    """Return the error of a path that leads out of its folder."""
    shown = repr(path)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return TargetError(
        f"{shown} is no path within {folder}, so it is neither read nor written: remove what names it, or place the "
        "file in that folder",
        folder,
    )


def _is_encodable(path: str) -> bool:
    """Return whether a path can be one: names of local files that are no UTF-8 hold lone surrogates."""
    if path.isascii():
        return True
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
