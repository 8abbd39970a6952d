"""Compare names as programs do that know no case, and tell equal ones apart by a checksum; needs no library."""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

MOST_NAME_BYTES: Final = 255
"""The longest name of a column that each catalog takes."""

REFUSED: Final = re.compile(r"[ ,;{}()=\x00-\x1f\x7f]")
"""Characters that some table format refuses in the name of a column, and control characters."""

_CHECKSUM_BYTES = 9


def fold(name: str) -> str:
    """Return a form of the name that is equal for all names equal but for case, in Java or Python and any locale."""
    # Java compares by upper case, then by lower case: the dotless i and the dotted capital are then an i as well.
    return name.upper().casefold().replace("i\u0307", "i")


def with_checksum(attribute: str) -> str:
    """Return a name that a column can have, with a checksum of the attribute's behind it."""
    plain = (REFUSED.sub("_", attribute) or "_").encode()[: MOST_NAME_BYTES - _CHECKSUM_BYTES].decode(errors="ignore")
    return f"{plain}_{crc32(attribute.encode()):08x}"
