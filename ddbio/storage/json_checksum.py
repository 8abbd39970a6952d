"""A checksum in the JSON that ddbio keeps beside files: its last member is the CRC-32 of all bytes before."""

from __future__ import annotations

import re
import zlib

MEMBER = "crc32"
_END = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\Z')


def add_checksum(text: str) -> bytes:
    """Return the text of an object, which has members, with its checksum as the last one."""
    body = text.removesuffix("}").rstrip().encode()
    return body + f',\n "{MEMBER}": "{zlib.crc32(body):08x}"\n}}'.encode()


def is_whole(text: bytes) -> bool:
    """Return whether a text is as it was written; one without a checksum, as older releases wrote it, is."""
    found = _END.search(text)
    return found is None or zlib.crc32(text[: found.start()]) == int(found[1], 16)
