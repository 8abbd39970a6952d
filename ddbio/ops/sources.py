"""Open rows to be written, in memory or in files, as record batches; change nothing about them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.errors import NotFoundError, OptionError
from ddbio.lake.rows import is_rows, read_rows
from ddbio.ops.target import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.core.write_plan import WritePlan
    from ddbio.lake.store import ObjectStore
    from ddbio.options import ConnectionOptions

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any"
"""What can be written: Arrow rows, record batches, or any data frame that offers an Arrow stream."""

_WILD = ("*", "?", "[")


def batches_of(data: Rows) -> Iterator[pa.RecordBatch]:
    """Yield rows of memory.

    Raises
    ------
    OptionError
        If it is nothing that holds rows.
    """
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        stream: Any = data
        yield from pa.RecordBatchReader.from_stream(stream)
    elif hasattr(data, "iloc"):
        yield from pa.Table.from_pandas(data, preserve_index=False).to_batches()
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        for batch in data:
            yield from batches_of(batch)
    else:
        raise OptionError(f"a {type(data).__name__} holds no rows: give an Arrow table, batches, or a data frame")


def file_batches(source: str, options: ConnectionOptions, plan: WritePlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, a folder or a glob, files in the order of their names.

    Raises
    ------
    NotFoundError
        If no such file holds rows.
    DecodeError
        If one is not of the format that its name tells.
    """
    store, paths = _find(source, options)
    if not paths:
        raise NotFoundError(f"{source} holds no file of rows (parquet, orc, json, jsonl, csv, arrow)")
    texts = [name for name, tag in plan.key_types if tag == "S"]
    for path in paths:
        yield from read_rows(path, store.read(path), texts)


def _find(source: str, options: ConnectionOptions) -> tuple[ObjectStore, list[str]]:
    folder, _, last = source.rpartition("/")
    if any(sign in source for sign in _WILD):
        fixed = source[: min(source.find(sign) for sign in _WILD if sign in source)].rpartition("/")[0]
        store = open_store(fixed or ("/" if source.startswith("/") else "."), options)
        pattern = source.removeprefix(fixed).lstrip("/")
        names = (entry.path for entry in store.list() if entry.size_bytes)
        return store, sorted(name for name in names if fnmatch.fnmatchcase(name, pattern) and is_rows(name))
    if is_rows(last) and not os.path.isdir(source):  # noqa: PTH112 - a URI is no path
        return open_store(folder or ("/" if source.startswith("/") else "."), options), [last]
    store = open_store(source, options)
    return store, sorted(entry.path for entry in store.list() if entry.size_bytes and is_rows(entry.path))
