"""Registry of the supported file formats, by their names and by the names of files."""

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
    file_format.name: file_format for file_format in (PARQUET, ORC, AVRO, JSON, DYNAMODB_JSON, CSV, ARROW, LAKE_ROWS)
}

INPUT_FORMATS = tuple(file_format.name for file_format in FORMATS.values() if file_format.endings)
"""Names of the formats that can be read."""

ENDINGS: dict[str, FileFormat] = {
    ending: file_format for file_format in FORMATS.values() for ending in file_format.endings
}

# Files of AWS and Spark with such names have no rows.
# A folder of a partition may start with an underscore, as its column may.
_NO_ROWS = re.compile(r"(?:^|/)(?:_(?![^/=]*=[^/]*/)|\.|manifest-)")


# Endings of the names of compressed text, after the ending of the format.
_COMPRESSED = re.compile(r"\.(?:gz|zst|bz2)$")

MAGIC_BYTES = 8
"""Number of bytes at the start and at the end of a file by which its format is detected."""


def format_of(file: str | StoredObject) -> FileFormat | None:
    """Return the format of a file: the stated or detected one, else by its name, or None.

    Text may be compressed as a whole, and have such a name.
    """
    if not isinstance(file, str):
        if file.format is not None:
            return FORMATS[file.format]
        file = file.path
    name = file.lower()
    file_format = ENDINGS.get(_ending(name))
    if file_format is None:
        file_format = ENDINGS.get(_ending(_COMPRESSED.sub("", name)))
        return None if file_format is None or file_format.is_splittable else file_format
    return file_format


def format_of_bytes(head: bytes, tail: bytes | None) -> str | None:
    """Return the name of the format by a file's first and last bytes; None if it is text or an unknown format.

    Parameters
    ----------
    tail
        The last bytes; None to check only the first bytes.
    """
    for file_format in FORMATS.values():
        if file_format.magic and head.startswith(file_format.magic):
            has_end = tail is None or file_format.magic_end is None or file_format.magic_end.search(tail)
            return file_format.name if has_end else None
    return None


def is_hidden(path: str) -> bool:
    """Return whether a name marks a file as no data: it, or a folder in its path, starts with ``_`` or ``.``."""
    return _NO_ROWS.search(path) is not None


def is_row_file(path: str) -> bool:
    """Return whether a file of that name has rows that can be read."""
    return not is_hidden(path) and format_of(path) is not None


def is_splittable(file: str | StoredObject) -> bool:
    """Return whether a file is read by parts; other files are read completely."""
    file_format = format_of(file)
    return file_format is not None and file_format.is_splittable


def is_text(file: str | StoredObject) -> bool:
    """Return whether a file is text, which is read a few megabytes at a time."""
    file_format = format_of(file)
    return file_format is not None and file_format.text_rows is not None


def names_columns(file: str | StoredObject) -> bool:
    """Return whether the start or the footer of a file has the column names of all its rows."""
    file_format = format_of(file)
    return file_format is None or file_format.text_rows is None or file_format.text_rows.has_header


def is_dynamodb_json_file(path: str) -> bool:
    """Return whether a file has a name of ddbio's DynamoDB JSON, which stores the types of values."""
    return DYNAMODB_JSON.wrote(path)


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2]


def file_row_bytes(rows: pa.Table, file_format: str, compression: Compression | None) -> float:
    """Return the estimated bytes per row in a large file, by writing some rows to memory; 0 if there are no rows.

    Bytes that every file has once, such as its schema, are not counted. Values that repeat far apart make real files
    smaller.
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
    with_rows, empty = sizes_bytes
    return max(1.0, with_rows - empty) / rows.num_rows
