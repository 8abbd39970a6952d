"""The file formats that ddbio knows, by name and by the names of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddbio.files.arrow_ipc import ARROW
from ddbio.files.avro import AVRO
from ddbio.files.orc import ORC
from ddbio.files.parquet import PARQUET
from ddbio.files.text_reader import CSV, DYNAMODB_JSON, JSON

if TYPE_CHECKING:
    from ddbio.files.file_format import FileFormat

FORMATS: dict[str, FileFormat] = {each.name: each for each in (PARQUET, ORC, AVRO, JSON, DYNAMODB_JSON, CSV, ARROW)}

ENDINGS: dict[str, FileFormat] = {ending: each for each in FORMATS.values() for ending in each.endings}

# What the files of AWS and Spark are named that hold no rows.
# A folder of a partition may begin with an underscore, as its column may.
_NO_ROWS = re.compile(r"(?:^|/)(?:_(?![^/=]*=[^/]*/)|\.|manifest-)")


def format_of(path: str) -> FileFormat | None:
    """Return the format of a file by its name, or None; text may be compressed as a whole, and be named so."""
    name = path.lower()
    found = ENDINGS.get(_ending(name))
    if found is None:
        found = ENDINGS.get(_ending(name.removesuffix(".gz").removesuffix(".zst")))
        return None if found is None or found.is_splittable else found
    return found


def is_row_file(path: str) -> bool:
    """Return whether a file of that name holds rows that can be read."""
    return not _NO_ROWS.search(path) and format_of(path) is not None


def is_splittable(path: str) -> bool:
    """Return whether files of that name are read by parts, and others whole."""
    found = format_of(path)
    return found is not None and found.is_splittable


def is_read_in_pieces(path: str) -> bool:
    """Return whether files of that name are text, of which some megabytes are held at a time."""
    found = format_of(path)
    return found is JSON or found is CSV


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2]
