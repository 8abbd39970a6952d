"""Read Parquet files back from an object store; decide nothing about what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import DecodeError, NotFoundError
from ddbio.files.object_store import RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.files.object_store import ObjectStore


def read_schema(store: ObjectStore, path: str) -> pa.Schema:
    """Return a file's Arrow schema, field metadata included.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If it is not Parquet.
    """
    return _open(store, path).schema_arrow


def read_batches(store: ObjectStore, path: str) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If it is not Parquet.
    """
    yield from _open(store, path).iter_batches()


def _open(store: ObjectStore, path: str) -> pq.ParquetFile:
    entry = next((each for each in store.list(path) if each.path == path), None)
    if entry is None:
        raise NotFoundError(f"{store.uri}/{path}: there is no such file")
    try:
        file = pa.PythonFile(RangeFile(store, entry), "r")
        return pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
    except pa.ArrowInvalid as error:
        raise DecodeError(f"{store.uri}/{path} is not a whole Parquet file: {error}", uri=path) from error
