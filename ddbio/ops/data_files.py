"""Find the files that hold items, of any format, and read the text of DynamoDB JSON."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.errors import DecodeError, NotFoundError, OptionError
from ddbio.files.decompress import decompress, line_blocks
from ddbio.files.formats import FORMATS, format_of, is_row_file
from ddbio.files.snapshot import row_files
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.files.object_store import ObjectStore
    from ddbio.options import ConnectionOptions


def is_json(path: str) -> bool:
    """Return whether a file's name says that it holds JSON."""
    return format_of(path) is FORMATS["json"]


def is_data(name: str) -> bool:
    """Return whether a name means files (an ``s3://`` URI, a path with a slash, a data file here) rather than a table.

    Raises
    ------
    NotFoundError
        If there is no such path, and no table can have that name.
    OptionError
        If there is a folder or file of that name, so that there may be a table too.
    """
    if name.startswith(("s3://", "s3a://", "file://")):
        return True
    is_there, is_path = Path(name).exists(), "/" in name or name in {".", ".."} or is_row_file(name)
    if is_there and not is_path:
        raise OptionError(
            f"{name!r} is a {'folder' if Path(name).is_dir() else 'file'} here, and may be a table too: "
            f"say ./{name} for what is here, or the table's ARN, arn:aws:dynamodb:REGION:ACCOUNT:table/{name}"
        )
    if "/" in name and not is_there and not name.startswith("arn:"):
        raise NotFoundError(f"{name}: there is no such file or folder, and no table is called so")
    return is_there


@contextmanager
def named_errors(store: ObjectStore, path: str) -> Iterator[None]:
    """Name the file in errors of decoding."""
    try:
        yield
    except DecodeError as error:
        if error.uri is not None:
            raise
        uri = f"{store.uri}/{path}"
        raise DecodeError(f"{uri}: {error}", uri=uri, line=error.line) from None


def find_data(name: str, options: ConnectionOptions) -> tuple[ObjectStore, list[str]]:
    """Return a store and the data files in it, sorted: a single file, or those of a folder except metadata.

    Raises
    ------
    NotFoundError
        If the folder holds none.
    """
    folder, _, last = name.rstrip("/").rpartition("/")
    if is_row_file(last):
        above = open_store(folder or ("/" if name.startswith("/") else "."), options)
        # Spark writes folders that are named like files.
        if any(entry.path == last for entry in above.list(last)):
            return above, [last]
    store = open_store(name, options)
    data = [entry.path for entry in row_files(store)]
    # A folder holds lines or other files; Parquet in the folder of an export is a copy of its lines.
    paths = [path for path in data if is_json(path)] or data
    if not paths:
        raise NotFoundError(
            f"{name} holds no file of rows: DynamoDB JSON (*.json, *.json.gz), Parquet or another format"
        )
    return store, paths


def read_lines(store: ObjectStore, path: str, count: int) -> bytes:
    """Return the first lines of a file, decompressed if they are gzip, and read little more than they take.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If its gzip is broken so far.
    """
    text, n_lines = [], 0
    for block in line_blocks(store.read_chunks(path), f"{store.uri}/{path}", sys.maxsize):
        text.append(bytes(block))
        n_lines += text[-1].count(b"\n")
        if n_lines >= count:
            break
    return b"".join(line + b"\n" for line in b"".join(text).split(b"\n", count)[:count])


def read_decompressed(store: ObjectStore, path: str) -> bytes:
    """Return a file's bytes, decompressed if they are gzip or zstd.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If the compressed file is cut short or broken.
    """
    return decompress(store.read(path), f"{store.uri}/{path}")
