"""Name columns so that no two differ by case alone, as Spark and Delta need it; the attribute keeps its name beside.

A name gets a suffix made of itself and of nothing else: whichever other names come and go, it is always the same one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

RESERVED = "_rescue"
_SUFFIXED = re.compile(r".*__[0-9a-f]{8}", re.DOTALL | re.IGNORECASE)


def column_names(attributes: Collection[str]) -> dict[str, str]:
    """Return the column of each attribute, in their order: all columns differ by more than case.

    An attribute keeps its name if no other differs by case alone, or if it is the one in lower case. Names that look
    suffixed, and ``_rescue``, get a suffix too, so that no column can be taken for another's.
    """
    folded = {name: fold(name) for name in attributes}
    counts = Counter(folded.values())
    return {
        name: name
        if (counts[same] == 1 or name == same) and same != RESERVED and not _SUFFIXED.fullmatch(name)
        else suffixed(name)
        for name, same in folded.items()
    }


def fold(name: str) -> str:
    """Return what is the same for all names that Java or Python, in any locale, takes for equal but for case."""
    # Java compares by upper case, then by lower case: the dotless i and the dotted capital are then an i as well.
    return name.upper().casefold().replace("i\u0307", "i")


def suffixed(name: str) -> str:
    """Return the name with its own digest behind it."""
    return f"{name}__{hashlib.sha256(name.encode()).hexdigest()[:8]}"
