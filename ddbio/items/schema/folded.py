"""Comparison of names without case, and checksums that make equal names distinct. The module imports no library."""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

MAX_COLUMN_NAME_BYTES: Final = 255
"""The longest column name that all catalogs accept."""

REFUSED: Final = re.compile(r"[ ,;{}()=\x00-\x1f\x7f]")
"""Characters that some table formats refuse in column names, and control characters."""

_CHECKSUM_BYTES = 9


def fold(name: str) -> str:
    """Return a key that is equal for all names that differ only by case, in Java or Python and any locale."""
    # Java compares by upper case, then by lower case. Then the dotless i and the dotted capital also equal an i.
    return name.upper().casefold().replace("i\u0307", "i")


def with_checksum(attribute: str) -> str:
    """Return a valid column name that ends with a checksum of the attribute's name."""
    plain = (
        (REFUSED.sub("_", attribute) or "_").encode()[: MAX_COLUMN_NAME_BYTES - _CHECKSUM_BYTES].decode(errors="ignore")
    )
    return f"{plain}_{crc32(attribute.encode()):08x}"
