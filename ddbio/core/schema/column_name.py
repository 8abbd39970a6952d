"""Name columns so that no two differ by case alone, as Spark and Delta need it; the attribute keeps its name beside.

A name gets a suffix made of itself and of nothing else: whichever other names come and go, it is always the same one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

RESERVED = "_rescue"
_NUL = "\0"
_SUFFIXED = re.compile(r".*__[0-9a-f]{8}", re.DOTALL | re.IGNORECASE)


def column_names(attributes: Collection[str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the column of each attribute, in their order: all columns differ by more than case.

    An attribute keeps its name if no other differs by case alone, or if it is the one in lower case. Names that look
    suffixed, ``_rescue``, and those that hold a NUL, where many programs end a name, get a suffix too, so that no
    column can be taken for another's.

    Parameters
    ----------
    chosen
        What a person calls the columns of some of the attributes; the others' stay as they are without that.

    Raises
    ------
    SchemaError
        A chosen name is empty, or also another column's.
    """
    folded = {name: fold(name) for name in attributes}
    counts = Counter(folded.values())
    columns = {
        name: name
        if (counts[same] == 1 or name == same)
        and same != RESERVED
        and not _SUFFIXED.fullmatch(name)
        and _NUL not in name
        else suffixed(name)
        for name, same in folded.items()
    }
    if chosen:
        columns |= chosen
        _require_apart(columns, chosen)
    return columns


def _require_apart(columns: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    # Those nobody chose come first, so that it is a chosen one that is told.
    for name, column in sorted(columns.items(), key=lambda each: each[0] in chosen):
        if name in chosen and (fold(column) in {"", RESERVED} or _NUL in column):
            raise SchemaError(f"{name}: no column can be called {column!r}: choose another column_name")
        owner = owners.setdefault(fold(column), name)
        if owner != name:
            raise SchemaError(
                f"{name}: its column {column!r} and that of {owner!r} have one name but for case: choose another "
                "column_name"
            )


def fold(name: str) -> str:
    """Return what is the same for all names that Java or Python, in any locale, takes for equal but for case."""
    # Java compares by upper case, then by lower case: the dotless i and the dotted capital are then an i as well.
    return name.upper().casefold().replace("i\u0307", "i")


def suffixed(name: str) -> str:
    """Return the name, without NULs, with its own digest behind it."""
    return f"{name.replace(_NUL, '')}__{hashlib.sha256(name.encode()).hexdigest()[:8]}"
