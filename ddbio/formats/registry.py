"""The file formats that ddbio knows, by name and by the names of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddbio.formats.arrow_ipc import ARROW
from ddbio.formats.avro import AVRO
from ddbio.formats.lake_rows import LAKE_ROWS
from ddbio.formats.orc import ORC
from ddbio.formats.parquet import PARQUET
from ddbio.formats.text_reader import CSV, DYNAMODB_JSON, JSON

if TYPE_CHECKING:
    from ddbio.formats.file_format import FileFormat
    from ddbio.storage.staged import StoredObject

FORMATS: dict[str, FileFormat] = {
    each.name: each for each in (PARQUET, ORC, AVRO, JSON, DYNAMODB_JSON, CSV, ARROW, LAKE_ROWS)
}

ENDINGS: dict[str, FileFormat] = {ending: each for each in FORMATS.values() for ending in each.endings}

# What the files of AWS and Spark are named that hold no rows.
# A folder of a partition may begin with an underscore, as its column may.
_NO_ROWS = re.compile(r"(?:^|/)(?:_(?![^/=]*=[^/]*/)|\.|manifest-)")


# How the names of compressed text end, behind the ending of the format.
_PACKED = re.compile(r"\.(?:gz|zst|bz2)$")

# The bytes that files of a format begin with, and those near their end if text may begin so, too.
# https://parquet.apache.org/docs/file-format/, https://orc.apache.org/specification/ORCv1/ (the last byte is a length),
# https://avro.apache.org/docs/1.12.0/specification/#object-container-files,
# https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format
_MAGIC = (
    ("parquet", b"PAR1", re.compile(rb"PAR1\Z")),
    ("orc", b"ORC", re.compile(rb"(?s)ORC.\Z")),
    ("avro", b"Obj\x01", re.compile(b"")),
    ("arrow", b"ARROW1\0\0", re.compile(b"")),
)
MAGIC_BYTES = 8
"""A format is found out by so many bytes at the beginning and at the end of a file."""


def format_of(file: str | StoredObject) -> FileFormat | None:
    """Return the format of a file as it was stated or found out, else by its name, or None.

    Text may be compressed as a whole, and be named so.
    """
    if not isinstance(file, str):
        if file.format is not None:
            return FORMATS[file.format]
        file = file.path
    name = file.lower()
    found = ENDINGS.get(_ending(name))
    if found is None:
        found = ENDINGS.get(_ending(_PACKED.sub("", name)))
        return None if found is None or found.is_splittable else found
    return found


def format_of_bytes(head: bytes, tail: bytes | None) -> str | None:
    """Return the name of the format that a file's first and last bytes tell; None if it is text, or anything else.

    Parameters
    ----------
    tail
        None takes the first bytes for enough.
    """
    for name, magic, end in _MAGIC:
        if head.startswith(magic) and (tail is None or end.search(tail)):
            return name
    return None


def is_hidden(path: str) -> bool:
    """Return whether a name says that a file is no data: it, or a folder in its path, begins with ``_`` or ``.``."""
    return _NO_ROWS.search(path) is not None


def is_row_file(path: str) -> bool:
    """Return whether a file of that name holds rows that can be read."""
    return not is_hidden(path) and format_of(path) is not None


def is_splittable(file: str | StoredObject) -> bool:
    """Return whether a file is read by parts, and others whole."""
    found = format_of(file)
    return found is not None and found.is_splittable


def is_read_in_pieces(file: str | StoredObject) -> bool:
    """Return whether a file is text, of which some megabytes are held at a time."""
    found = format_of(file)
    return found is JSON or found is CSV


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2]
