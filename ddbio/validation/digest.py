"""Digests of the items of a source (a table, files, bytes, Arrow data, a DataFrame) in bounded memory."""

from __future__ import annotations

import codecs
import itertools
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError, NotFoundError
from ddbio.formats.decompress import decompress, line_blocks
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.manifests import look_up, partition_columns
from ddbio.formats.registry import FORMATS
from ddbio.formats.row_files import read_batches
from ddbio.formats.text_reader import AHEAD_BYTES, PIECE_BYTES, TextAhead
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.digest_json import JsonDigest, digest_of_json
from ddbio.items.framing import framed_items, framing_of
from ddbio.items.schema.arrow import declare_types
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.providers import provider
from ddbio.scan.read import digest_of_scan, scan_batches
from ddbio.sources.data_files import find_data, is_data, is_json, named_errors
from ddbio.storage.checksums import checked
from ddbio.storage.paths import with_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from typing_extensions import Buffer

    from ddbio.formats.manifests import ManifestFacts
    from ddbio.options import ConnectionOptions
    from ddbio.scan.options import DigestOptions, InspectOptions
    from ddbio.sources.data_files import DataFiles
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject

    DigestSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | pa.Table | pa.RecordBatch | Any


def digest(source: DigestSource, options: DigestOptions) -> str:
    """Return the digest of a source's items. It does not depend on their order, files or column types.

    NULL and missing are different in a table.

    Parameters
    ----------
    source
        A ``pyarrow`` table, batch or reader, or any other data frame with an Arrow C stream, for which ``schema``
        declares
        types that the fields' metadata lacks, such as sets; a Spark DataFrame, which is digested in its partitions;
        bytes
        of DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name of a data file, of Parquet or JSON lines;
        any
        other text is the name of a table, which is scanned.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    DdbioError
        The errors of ``digest_source``.
    """
    return digest_source(source, options).hexdigest()


def digest_source(source: DigestSource, options: InspectOptions) -> Digest:
    """Return the digest and count of a source's items.

    Parameters
    ----------
    source
        Arrow data or a Spark DataFrame, for which ``options.schema`` declares DynamoDB's types; bytes of DynamoDB JSON;
        an ``s3://`` URI, a path with a slash or the name of a data file; any other text is the name of a table.

    Raises
    ------
    NotFoundError
        If there is no such table, or no readable file.
    OptionError
        If a name could be a table, but a local folder has the same name.
    DecodeError
        If the data is not DynamoDB JSON, or an Arrow array points outside its own memory.
    SchemaError
        If a column has an Arrow type that DynamoDB cannot represent exactly.
    """
    declared = None if options.schema is None else arrow_schema_of(options.schema)
    if type(source).__module__.startswith("pyspark."):
        digest: Digest = provider("digests of DataFrames").digest_frame(source, declared)
        return digest
    if isinstance(source, (pa.Table, pa.RecordBatch)) or hasattr(source, "__arrow_c_stream__"):
        return digest_of_batches(
            declare_types(batch, declared or ()) for batch in checked_batches(record_batch_reader(source))
        )
    if not isinstance(source, (str, os.PathLike)):
        return _of_json(source)
    name = os.fspath(source)
    if isinstance(source, os.PathLike) or is_data(name):
        return digest_data(find_data(name, options, options.input_format))
    # Only the decoder into columns drops or refuses values, and merges NULL and missing.
    if options.nulls == "keep" and options.on_misfit == "rescue" and not options.drop:
        return digest_of_scan(options).digest
    return digest_of_batches(scan_batches(options))


def digest_files(paths: Iterable[str], options: ConnectionOptions) -> Digest:
    """Return the digest and count of the items in files, regardless of their order or number.

    Parameters
    ----------
    paths
        URIs or local paths of files or folders.

    Raises
    ------
    NotFoundError, DecodeError, SchemaError
        As :func:`digest_source`.
    """
    total = Digest()
    for path in paths:
        total.merge(digest_data(find_data(path, options)))
    return total


def _of_json(data: Buffer) -> Digest:
    return digest_of_json(*framed_items(data))


def digest_data(files: DataFiles) -> Digest:
    """Return the digest and count of the items in data files.

    Raises
    ------
    NotFoundError, DecodeError, SchemaError
        As :func:`digest_source`.
    """
    return _digest(files.store, files.files, files.columns({}), files.noted)


def digest_paths(store: ObjectStore, paths: list[str]) -> Digest:
    """Return the digest and count of the items in some files of a store.

    Raises
    ------
    NotFoundError, DecodeError, SchemaError
        As :func:`digest_source`.
    """
    entries = _entries(store, paths)
    if gone := [path for path in paths if path not in entries]:
        raise NotFoundError(f"{store.uri}/{gone[0]}: there is no such file")
    noted = look_up(store, entries.values())
    files = [noted.with_checksums(entries[path]) for path in paths]
    return _digest(store, files, partition_columns(store, paths, {}), noted)


def _digest(
    store: ObjectStore, files: Iterable[StoredObject], columns: Mapping[str, FolderColumns], noted: ManifestFacts
) -> Digest:
    total = Digest()
    for entry in files:
        schema, folders = noted.schemas.get(entry.path), columns[entry.path]
        if is_json(entry) and schema is None and not folders:
            with named_errors(store, entry.path):
                total.merge(_of_json_file(checked(store, entry), entry))
        else:
            batches = read_batches(store, entry, schema)
            total.merge(digest_of_batches(with_columns(batch, folders) for batch in batches))
    return total


def _entries(store: ObjectStore, paths: list[str]) -> dict[str, StoredObject]:
    wanted = set(paths)
    entries = store.list(paths[0] if len(paths) == 1 else "")
    return {entry.path: entry for entry in entries if entry.path in wanted}


def _of_json_file(store: ObjectStore, entry: StoredObject) -> Digest:
    """Return the digest of a file of DynamoDB JSON, read in blocks of lines unless it is one page."""
    uri = f"{store.uri}/{entry.path}"
    if entry.size_bytes > PIECE_BYTES:
        ahead = TextAhead(store, entry, FORMATS["json"], ReadOptions(), AHEAD_BYTES)
        if ahead.is_split and ahead.has_items:
            total = Digest()
            for part in ahead.made(_of_range):
                total.merge(part)
            return total
    blocks = line_blocks(store.read_chunks(entry.path), uri)
    first = bytes(next(blocks, b""))
    text = first.removeprefix(codecs.BOM_UTF8)
    try:
        framing = framing_of(text)
    except DecodeError:
        # Another compression, a first document longer than a block, or an error.
        framing = "page"
    if framing not in {"items", "export"}:
        return _of_json(decompress(b"".join([first, *map(bytes, blocks)]), uri))
    items = JsonDigest()
    items.add_blocks(itertools.chain([text], blocks), framing)
    return items.digest


def _of_range(text: bytes, head: bytes) -> Digest:
    items = JsonDigest()
    if text:
        items.add_blocks([text], framing_of(head))
    return items.digest
