"""The file formats that ddbio knows, by name and by the names of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddbio.formats.arrow_ipc import ARROW
from ddbio.formats.avro import AVRO
from ddbio.formats.csv_rows import CSV
from ddbio.formats.file_format import WriterOptions
from ddbio.formats.json_rows import DYNAMODB_JSON, JSON
from ddbio.formats.lake_columns import LAKE_ROWS
from ddbio.formats.orc import ORC
from ddbio.formats.parquet import PARQUET
from ddbio.storage.object_store import MemorySink

if TYPE_CHECKING:
    import pyarrow as pa

    from ddbio.formats.file_format import FileFormat
    from ddbio.options import Compression
    from ddbio.storage.staged import StoredObject

FORMATS: dict[str, FileFormat] = {
    each.name: each for each in (PARQUET, ORC, AVRO, JSON, DYNAMODB_JSON, CSV, ARROW, LAKE_ROWS)
}

INPUT_FORMATS = tuple(each.name for each in FORMATS.values() if each.endings)
"""The names of the formats that files are read in."""

ENDINGS: dict[str, FileFormat] = {ending: each for each in FORMATS.values() for ending in each.endings}

# What the files of AWS and Spark are named that hold no rows.
# A folder of a partition may begin with an underscore, as its column may.
_NO_ROWS = re.compile(r"(?:^|/)(?:_(?![^/=]*=[^/]*/)|\.|manifest-)")


# How the names of compressed text end, behind the ending of the format.
_PACKED = re.compile(r"\.(?:gz|zst|bz2)$")

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
    for each in FORMATS.values():
        if each.magic and head.startswith(each.magic):
            is_told = tail is None or each.magic_end is None or each.magic_end.search(tail)
            return each.name if is_told else None
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


def is_text(file: str | StoredObject) -> bool:
    """Return whether a file is text, of which some megabytes are held at a time."""
    found = format_of(file)
    return found is not None and found.text_rows is not None


def names_columns(file: str | StoredObject) -> bool:
    """Return whether the beginning or the footer of a file names the columns of all its rows."""
    found = format_of(file)
    return found is None or found.text_rows is None or found.text_rows.has_header


def holds_dynamodb_json(path: str) -> bool:
    """Return whether a file is named as ddbio names those of DynamoDB JSON, which tell the types of their values."""
    return DYNAMODB_JSON.wrote(path)


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2]


def file_row_bytes(rows: pa.Table, file_format: str, compression: Compression | None) -> float:
    """Return about how many bytes a row takes in a file of many, by writing some to memory; 0 if there are no rows.

    What every file has once, such as its schema, is not counted. Values that repeat far off make real files smaller.
    """
    chosen = FORMATS[file_format]
    if not rows.num_rows or chosen.open_writer is None:
        return 0.0
    options = WriterOptions(chosen.codec(compression), 256 * 1024 * 1024, rows)
    sizes_bytes = []
    for table in (rows, rows.slice(0, 0)):
        sink = MemorySink()
        writer = chosen.open_writer(sink, rows.schema, options)
        if table.num_rows:
            writer.write_group(table)
        sizes_bytes.append(writer.finish().size_bytes)
    whole, empty = sizes_bytes
    return max(1.0, whole - empty) / rows.num_rows
