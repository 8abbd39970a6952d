"""Infer a schema from a table, from files of DynamoDB JSON, or from bytes; keep none of the data."""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.budget import LocalBudget
from ddbio.core.decode import observe_dynamodb_json
from ddbio.core.item_schema import ItemSchema
from ddbio.core.plan import budget_of
from ddbio.errors import DecodeError, NotFoundError
from ddbio.lake.reader import read_schema
from ddbio.ops.survey import describe_scan, observe_table
from ddbio.ops.target import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from ddbio.lake.store import ObjectStore
    from ddbio.options import ScanOptions

    Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview

_GZIP_MAGIC = b"\x1f\x8b"
_LINES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_FILES_SAMPLED = 4


def infer_schema(source: Source, options: ScanOptions) -> ItemSchema:
    """Return what the items of a source, or a sample of them, look like.

    Parameters
    ----------
    source
        Bytes are data; an ``s3://`` URI or an existing path is a file, a folder or a native export; any other text is
        the name of a table.

    Raises
    ------
    NotFoundError
        If there is no such table, or no file that could be read.
    DecodeError
        If the data is not DynamoDB JSON.
    """
    if not isinstance(source, (str, os.PathLike)):
        return observe_dynamodb_json(source)
    name = os.fspath(source)
    if name.startswith(("s3://", "s3a://")) or Path(name).exists():
        return _of_files(name, options)
    facts = describe_scan(options)
    return observe_table(facts, options, LocalBudget(budget_of(facts, options)))


def _of_files(name: str, options: ScanOptions) -> ItemSchema:
    store, paths = _files(name, options)
    if not paths:
        raise NotFoundError(f"{name} holds no file of DynamoDB JSON (*.json, *.json.gz) and no Parquet file")
    if paths[0].endswith(".parquet"):
        return ItemSchema.from_arrow(read_schema(store, paths[0]))
    share = -(-options.sample_items // min(len(paths), _FILES_SAMPLED))
    lines: list[bytes] = []
    for path in _spread(paths, _FILES_SAMPLED):
        lines += itertools.islice(_lines(store.read(path), f"{name}: {path}"), share)
    return observe_dynamodb_json(b"\n".join(lines))


def _files(name: str, options: ScanOptions) -> tuple[ObjectStore, list[str]]:
    """Return a store and the data files in it: of a single file, of a folder, or of an export by its manifest."""
    folder, _, last = name.rstrip("/").rpartition("/")
    if last.endswith((*_LINES, ".parquet")):
        return open_store(folder or ".", options), [last]
    store = open_store(name, options)
    seen = sorted(entry.path for entry in store.list() if entry.size_bytes)
    lines = [path for path in seen if path.endswith(_LINES) and not _is_manifest(path)]
    return store, lines or [path for path in seen if path.endswith(".parquet") and not path.startswith("_")]


def _is_manifest(path: str) -> bool:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
    return path.rpartition("/")[2].startswith(("manifest-", "_"))


def _spread(paths: list[str], count: int) -> list[str]:
    step = max(1, len(paths) // count)
    return paths[::step][:count]


def _lines(data: bytes, where: str) -> Iterator[bytes]:
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise DecodeError(f"{where} is not a whole gzip file: {error}", uri=where) from error
    return (line for line in data.split(b"\n") if line.strip())
