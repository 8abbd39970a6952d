"""A checksum in the JSON that ddbio keeps beside files: its last member is the CRC-32 of all bytes before."""

from __future__ import annotations

import re
import zlib

from ddbio.errors import TargetError

MEMBER = "crc32"
_END = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\Z')


def add_checksum(text: str) -> bytes:
    """Return the text of an object, which has members, with its checksum as the last one."""
    body = text.removesuffix("}").rstrip().encode()
    return body + f',\n "{MEMBER}": "{zlib.crc32(body):08x}"\n}}'.encode()


def require_checksum(text: bytes, path: str) -> None:
    """Refuse a text that is not as it was written; one without a checksum, as older releases wrote it, passes.

    Raises
    ------
    TargetError
        If the checksum is another one.
    """
    found = _END.search(text)
    if found is not None and zlib.crc32(text[: found.start()]) != int(found[1], 16):
        raise TargetError(
            f"{path} is damaged: its text has another checksum than it says; restore it, or move it away: files are "
            "then read as those of other programs"
        )
