"""Data files of a name, for every verb, format and kind of folder, and their text.

Every verb that reads rows of files calls :func:`find_data`. So all verbs read the same files for the same name.
"""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.commit.contents import LOGS, committed_files, recognize, require_no_tables
from ddbio.commit.snapshot import PUBLISHED, LiveFile, folder_files, log_files, replaced_files
from ddbio.errors import AccessDeniedError, DecodeError, NotFoundError, OptionError
from ddbio.formats.decompress import decompress, line_blocks
from ddbio.formats.lake_columns import LAKE_ROWS
from ddbio.formats.manifests import ManifestFacts, look_up, partition_columns
from ddbio.formats.registry import FORMATS, INPUT_FORMATS, MAGIC_BYTES, format_of, format_of_bytes, is_row_file
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.expansion import MAX_ROW_BYTES
from ddbio.jobs.stores import open_store
from ddbio.lake_formats.items import LakeItems
from ddbio.lake_formats.registry import open_lake_table
from ddbio.lake_formats.table import KEYS
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.options.locations import parse_location
from ddbio.sources.export_source import open_export
from ddbio.storage.paths import hive_partition, is_glob, literal_of, matcher, split_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddbio.commit.contents import Contents
    from ddbio.options import ConnectionOptions
    from ddbio.options.format_names import InputFormat
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject

# Files with these endings are not data files.
_OTHER_ENDINGS = (
    *(".crc", ".md5", ".sha1", ".sha256", ".md", ".html", ".pdf", ".png", ".jpg", ".py", ".ipynb", ".sh", ".sql"),
    *(".yaml", ".yml", ".toml"),
)
_LOG = logging.getLogger("ddbio.files")
_THREADS = 16
_MAX_LISTED = 5


@dataclass(frozen=True)
class DataFiles:
    """Data files of a name.

    Attributes
    ----------
    files
        The files in the order of their paths. The format of each file is known from its name, or stored in the entry.
    noted
        Columns of files, from manifests or the metadata of a lake table.
    skipped
        Paths of files that were left out although they may have rows.
    live
        Recorded properties of the files of a folder, by path.
    values
        Partition columns of each file, from the metadata of a table; None if they come from the names of folders.
    export
        The native export that the files belong to, if any.
    contents
        The kind of the folder.
    """

    store: ObjectStore
    files: tuple[StoredObject, ...]
    contents: Contents
    noted: ManifestFacts = field(default_factory=ManifestFacts)
    skipped: tuple[str, ...] = ()
    live: Mapping[str, LiveFile] = field(default_factory=dict)
    values: Mapping[str, FolderColumns] | None = None
    export: ExportSource | None = None

    def columns(self, keys: Mapping[str, str]) -> dict[str, FolderColumns]:
        """Return the columns that the folders of each file, or the metadata of its table, add to its rows.

        The folders of logs and archives are times of changes, not attributes.
        """
        if self.values is not None:
            return dict(self.values)
        if self.contents.kind in LOGS:
            return {file.path: () for file in self.files}
        return partition_columns(self.store, (file.path for file in self.files), keys)

    def live_file(self, entry: StoredObject) -> LiveFile:
        """Return the recorded properties of a file."""
        recorded = self.live.get(entry.path)
        return recorded or LiveFile(entry.path, entry.size_bytes, partition=hive_partition(entry.path))

    def schema(self, entry: StoredObject) -> pa.Schema | None:
        """Return the recorded columns of a file."""
        return self.noted.schemas.get(entry.path)


def find_data(source: str, options: ConnectionOptions, input_format: InputFormat | None = None) -> DataFiles:
    """Return the data files of a file name, a folder or a glob.

    A file or a folder with exactly this name is used first. Otherwise the name is a glob. In a folder written by ddbio
    the files are the live ones, in a lake table those of its newest version, in a native export those of its manifests,
    and in the output of a Spark stream those that the stream has committed.

    Parameters
    ----------
    input_format
        The format of all files, regardless of their names.

    Raises
    ------
    NotFoundError
        If the file does not exist, or one is missing.
    OptionError
        If the format of a file is unknown, the name is of a part of a lake table, a subfolder is a lake table, or an
        export is incremental or in Ion.
    TargetError
        If a lake table has a feature that ddbio does not read.
    ExportIncompleteError
        If an export has not completed, or a part of it is missing.
    """
    request, location = _Request(source, options, input_format), parse_location(source)[1]
    for name in filter(None, (location, literal_of(location))):
        store = open_store(name, options)
        if (file := _file_at(store, name)) is not None:
            return _one_file(request, *file)
        if _has_files(store):
            return _files_of_folder(request, store)
    return (
        _files_of_glob(request, location)
        if is_glob(location)
        else _files_of_folder(request, open_store(location, options))
    )


@dataclass(frozen=True)
class _Request:
    """Arguments of :func:`find_data`."""

    source: str
    options: ConnectionOptions
    input_format: InputFormat | None


def _file_at(store: ObjectStore, name: str) -> tuple[ObjectStore, StoredObject] | None:
    """Return the parent folder of a location and its file, or None if the location is not a file."""
    above = None if name.endswith("/") else store.above()
    if above is None:
        return None
    folder, last = above
    try:
        entry = next(iter(folder.list(last)), None)
    except AccessDeniedError:
        # A user who may list a folder is not necessarily allowed to list its parent.
        if is_row_file(last):
            raise
        return None
    # S3's console and Hadoop mark folders by empty objects.
    if entry is None or entry.path != last or (not entry.size_bytes and _has_files(store)):
        return None
    return folder, entry


def _has_files(store: ObjectStore) -> bool:
    return next(iter(store.list()), None) is not None


def _one_file(request: _Request, folder: ObjectStore, entry: StoredObject) -> DataFiles:
    contents = recognize(folder)
    if contents.kind in LAKE_FORMATS:
        raise _part_of_table(request.source, contents)
    return _plain_files(request, contents, folder, [entry], is_named=True)


def _files_of_glob(request: _Request, location: str) -> DataFiles:
    fixed, glob = split_glob(location)
    store = open_store(fixed or ("/" if location.startswith("/") else "."), request.options)
    contents = recognize(store)
    if contents.kind in LAKE_FORMATS:
        raise _part_of_table(request.source, contents)
    contents_of_folder, pattern = folder_files(store), matcher(glob)
    files = [file for file in contents_of_folder.files if pattern.fullmatch(file.path)]
    hidden = [path for path in contents_of_folder.hidden if pattern.fullmatch(path)]
    require_no_tables(store, contents_of_folder.paths, (file.path for file in files), reads=True)
    valid = _valid(contents, files, contents_of_folder.paths)
    return _plain_files(request, contents, store, valid, hidden)


def _files_of_folder(request: _Request, store: ObjectStore) -> DataFiles:
    contents = recognize(store)
    if contents.kind in LAKE_FORMATS or contents.kind == "export":
        if contents.below:
            raise _part_of_table(request.source, contents)
        if request.input_format is not None:
            raise OptionError(f"{contents.place}, which defines the formats of its files: leave input_format out")
        return _files_of_export(request, contents) if contents.kind == "export" else _files_of_table(request, contents)
    contents_of_folder = folder_files(store)
    files = _valid(contents, contents_of_folder.files, contents_of_folder.paths)
    require_no_tables(store, contents_of_folder.paths, (file.path for file in files), reads=True)
    live = {file.path: file for file in contents_of_folder.live.files}
    return replace(_plain_files(request, contents, store, files, contents_of_folder.hidden), live=live)


def _valid(contents: Contents, files: Sequence[StoredObject], paths: Iterable[str]) -> list[StoredObject]:
    """Return the files that belong to a folder according to its metadata, or that of a parent folder."""
    below = contents.below
    if contents.kind == "spark":
        listed = (entry.path for entry in contents.root.list()) if below else paths
        committed = committed_files(contents.root, set(listed))
        return [file for file in files if f"{below}{file.path}" in committed]
    # The folder of one publication stands for that version.
    if below and not below.startswith(PUBLISHED):
        replaced = replaced_files(contents.root)
        return [file for file in files if f"{below}{file.path}" not in replaced]
    return list(files)


def _plain_files(
    request: _Request,
    contents: Contents,
    store: ObjectStore,
    files: Sequence[StoredObject],
    hidden: Iterable[str] = (),
    *,
    is_named: bool = False,
) -> DataFiles:
    """Return files whose formats are stated, or detected from their names or bytes."""
    skipped = list(hidden)
    data = [file for file in files if file.size_bytes]
    if not is_named:
        skipped += [file.path for file in data if file.path.lower().endswith(_OTHER_ENDINGS)]
        data = [file for file in data if not file.path.lower().endswith(_OTHER_ENDINGS)]
    if request.input_format is not None:
        data = [replace(file, format=request.input_format) for file in data]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-magic") as pool:
        data = list(pool.map(lambda file: _with_format(store, file), data))
    if unknown := [file.path for file in data if format_of(file) is None]:
        more = f" and {len(unknown) - 1:,} other files have" if len(unknown) > 1 else " has"
        raise OptionError(
            f"{store.uri}/{unknown[0]}{more} an unknown format, by name and bytes: give input_format "
            f"({', '.join(INPUT_FORMATS)}) if all files are of one format, or select the files with a glob"
        )
    if not data:
        raise _no_files_error(request.source, skipped)
    if skipped:
        _LOG.warning(
            "%s: %d files are left out, since their names are not those of data files: %s%s",
            *(
                request.source,
                len(skipped),
                ", ".join(skipped[:_MAX_LISTED]),
                ", …" if len(skipped) > _MAX_LISTED else "",
            ),
        )
    noted = look_up(store, data)
    return DataFiles(store, tuple(map(noted.with_checksums, data)), contents, noted, tuple(skipped))


def _with_format(store: ObjectStore, entry: StoredObject) -> StoredObject:
    if format_of(entry) is not None:
        return entry
    length = min(entry.size_bytes, MAGIC_BYTES)
    head = store.read_range(entry, 0, length)
    # Avoid reading text twice.
    if format_of_bytes(head, None) is None:
        return entry
    return replace(entry, format=format_of_bytes(head, store.read_range(entry, entry.size_bytes - length, length)))


def _no_files_error(source: str, skipped: Sequence[str]) -> NotFoundError:
    scheme, location = parse_location(source)
    if scheme == "file" and not is_glob(location) and not Path(location).expanduser().exists():
        return NotFoundError(f"{source} does not exist: name a file, a folder, a glob, or s3://bucket/prefix")
    passed = f"; left out because of their names are {', '.join(skipped[:_MAX_LISTED])}" if skipped else ""
    return NotFoundError(
        f"{source} holds no file of rows: Parquet, ORC, Avro, JSON Lines, DynamoDB JSON, CSV or Arrow; empty files and "
        f"names that begin with _ or . are left out{passed}"
    )


def _part_of_table(source: str, contents: Contents) -> OptionError:
    return OptionError(
        f"{source} is a part of {contents.root.uri}, which is {contents}: only the table's metadata defines which rows "
        f"are valid, so name the table, {contents.root.uri}"
    )


def _files_of_table(request: _Request, contents: Contents) -> DataFiles:
    """Return the data files of the newest version of a lake table."""
    table = open_lake_table(contents.root.uri, contents.kind, request.options)
    foreign, listed = table.foreign_files(), {entry.path: entry for entry in table.store.list()}
    formats: dict[str, str] = {}
    values: dict[str, FolderColumns] = {}
    schemas: dict[str, pa.Schema] = {}
    if foreign is None:
        state = table.load()
        if state is None or KEYS not in state.properties:
            raise OptionError(f"{contents.place} that ddbio cannot read: write its rows to another folder with Spark")
        paths = [file.path for file in state.files]
        formats, values = dict.fromkeys(paths, LAKE_ROWS.name), dict.fromkeys(paths, ())
        schemas = dict.fromkeys(paths, LakeItems(table, state, contents.kind).item_schema)
    else:
        formats = {file.path: file.format for file in foreign}
        values = {file.path: tuple(_column_of(*pair) for pair in file.values.items()) for file in foreign}
    if gone := sorted(formats.keys() - listed.keys()):
        raise NotFoundError(f"{table.store.uri}/{gone[0]} belongs to the table, and is missing: restore it")
    files = [replace(listed[path], format=formats[path]) for path in sorted(formats)]
    return DataFiles(table.store, tuple(files), contents, ManifestFacts(schemas), values=values)


def _column_of(name: str, value: Any) -> tuple[str, str, str | None]:
    """Return a partition value as a column name, a DynamoDB type and a text."""
    if value is None:
        return name, "S", None
    item = json.loads(to_dynamodb_json(pa.table({"value": pa.array([value])})))
    ((tag, text),) = item["value"].items()
    return name, tag, text if isinstance(text, str) else json.dumps(text)


def _files_of_export(request: _Request, contents: Contents) -> DataFiles:
    """Return the data files with items of a full export, from its verified manifests."""
    export = open_export(request.source, request.options)
    summary = export.summary
    if summary.kind != "full" or summary.encoding != "json":
        what = "an incremental export, whose changes are not rows" if summary.kind != "full" else "an export in Ion"
        raise OptionError(f"{export.folder} is {what}: convert it to rows with 'ddbio export read', and use these")
    export.sizes()
    listed = {entry.path: entry for entry in export.store.list("data/")}
    files = sorted((listed[export.path(file)] for file in export.files if file.items), key=attrgetter("path"))
    if not files:
        raise NotFoundError(f"{export.folder} is an export without items")
    return DataFiles(export.store, tuple(files), contents, export=export)


def require_items(files: DataFiles, verb: str) -> None:
    """Raise if the files are a log of changes or an archive: their rows are not items.

    Raises
    ------
    OptionError
        With the commands that read them.
    """
    folder = files.contents.root
    if not log_files(folder, files.files):
        return
    if files.contents.kind == "archive":
        raise OptionError(
            f"{files.contents.place}: its rows have more columns than items, and {verb} would write these, too: use "
            "'ddbio archive restore'"
        )
    raise OptionError(
        f"{folder.uri} is a log of changes, which are not items: use 'ddbio apply' to merge them into a lake "
        f"table, and {verb} that; or 'ddbio history' to see them"
    )


def is_json(file: str | StoredObject) -> bool:
    """Return whether a file is JSON, from its format or its name."""
    return format_of(file) is FORMATS["json"]


def is_data(name: str) -> bool:
    """Return whether a name is of files (a URI, a path with a slash, a glob, an existing data file), not of a table.

    Raises
    ------
    NotFoundError
        If the path does not exist, and the name cannot be of a table.
    OptionError
        If a folder or file with this name exists, but it can also be the name of a table.
    """
    if name.startswith("arn:"):
        return False
    scheme, location = parse_location(name)
    if scheme == "s3" or location != name:
        return True
    path = Path(name).expanduser()
    is_there, is_path = path.exists(), "/" in name or name in {".", ".."} or is_row_file(name)
    if is_there and not is_path:
        raise OptionError(
            f"{name!r} is a {'folder' if path.is_dir() else 'file'} here, but can also be the name of a table: "
            f"use ./{name} for the former, or the table's ARN, arn:aws:dynamodb:REGION:ACCOUNT:table/{name}"
        )
    # Names of tables have no glob characters.
    if is_glob(name):
        return True
    if "/" in name and not is_there:
        raise NotFoundError(f"{name}: no such file or folder, and no table can have this name")
    return is_there


@contextmanager
def named_errors(store: ObjectStore, path: str) -> Iterator[None]:
    """Add the name of the file to decoding errors."""
    try:
        yield
    except DecodeError as error:
        if error.uri is not None:
            raise
        uri = f"{store.uri}/{path}"
        raise DecodeError(f"{uri}: {error}", uri=uri, line=error.line) from None


def read_lines(store: ObjectStore, path: str, count: int) -> bytes:
    """Return the first lines of a file, decompressed if they are gzip. Little more than these lines is read.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    DecodeError
        If the gzip data of these lines is damaged.
    """
    text, n_lines = [], 0
    for block in line_blocks(store.read_chunks(path), f"{store.uri}/{path}", MAX_ROW_BYTES):
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
        If the file does not exist.
    DecodeError
        If the compressed file is truncated or damaged.
    """
    return decompress(store.read(path), f"{store.uri}/{path}")
