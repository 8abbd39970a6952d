"""Digest what a source holds: a table, files, bytes or Arrow data; keep none of it."""

from __future__ import annotations

import gzip
import importlib
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.declared import declare_types
from ddbio.core.digest import Digest
from ddbio.core.digest_columns import digest_of_batches
from ddbio.core.digest_wire import WireDigest
from ddbio.core.framing import framing_of
from ddbio.core.item_schema import arrow_schema_of
from ddbio.errors import DecodeError, NotFoundError
from ddbio.lake.reader import read_batches
from ddbio.ops.read import scan_batches
from ddbio.ops.target import open_store

if TYPE_CHECKING:
    from typing import TypeAlias

    from ddbio.lake.store import ObjectStore
    from ddbio.options import ScanOptions

    Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | pa.Table | pa.RecordBatch | Any

_GZIP_MAGIC = b"\x1f\x8b"
_JSON = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_PARQUET = ".parquet"


def digest_source(source: Source, options: ScanOptions) -> Digest:
    """Return the digest and count of a source's items.

    Parameters
    ----------
    source
        Arrow data or a Spark DataFrame, for which ``options.schema`` declares DynamoDB's types; bytes of DynamoDB JSON;
        an ``s3://`` URI or an existing path, a file or a folder; any other text is the name of a table.

    Raises
    ------
    NotFoundError
        If there is no such table, or no file that could be read.
    DecodeError
        If the data is not DynamoDB JSON.
    SchemaError
        If a column has an Arrow type that DynamoDB has no exact form for.
    """
    declared = None if options.schema is None else arrow_schema_of(options.schema)
    if type(source).__module__.startswith("pyspark."):
        spark = importlib.import_module("ddbio.spark.digest")
        digest: Digest = spark.digest_frame(source, declared)
        return digest
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        batches = source.to_batches() if isinstance(source, pa.Table) else [source]
        return digest_of_batches(declare_types(batch, declared or ()) for batch in batches)
    if not isinstance(source, (str, os.PathLike)):
        return _of_json(bytes(source))
    name = os.fspath(source)
    if name.startswith(("s3://", "s3a://")) or Path(name).exists():
        return _of_files(name, options)
    return digest_of_batches(scan_batches(options))


def _of_json(data: bytes) -> Digest:
    items = WireDigest()
    items.add(data, framing_of(data))
    return items.digest


def _of_files(name: str, options: ScanOptions) -> Digest:
    store, paths = _files(name, options)
    if not paths:
        raise NotFoundError(f"{name} holds no file of DynamoDB JSON (*.json, *.json.gz) and no Parquet file")
    whole = Digest()
    for path in paths:
        if path.endswith(_PARQUET):
            whole.merge(digest_of_batches(read_batches(store, path)))
        else:
            whole.merge(_of_json(_plain_bytes(store.read(path), f"{name}: {path}")))
    return whole


def _files(name: str, options: ScanOptions) -> tuple[ObjectStore, list[str]]:
    folder, _, last = name.rstrip("/").rpartition("/")
    if last.endswith((*_JSON, _PARQUET)):
        return open_store(folder or ".", options), [last]
    store = open_store(name, options)
    seen = [entry.path for entry in store.list() if entry.size_bytes]
    data = [path for path in seen if not _is_metadata(path)]
    # A folder holds one or the other; beside an export's lines Parquet is a copy of them.
    lines = [path for path in data if path.endswith(_JSON)]
    return store, lines or [path for path in data if path.endswith(_PARQUET)]


def _is_metadata(path: str) -> bool:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
    return any(part.startswith(("_", ".")) for part in path.split("/")) or path.rpartition("/")[2].startswith(
        "manifest-"
    )


def _plain_bytes(data: bytes, where: str) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DecodeError(f"{where} is not a whole gzip file: {error}", uri=where) from error
