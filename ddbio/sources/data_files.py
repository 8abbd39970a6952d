"""Find the data files of a name for every verb, of any format and any kind of folder, and read the text of them.

A verb that reads rows of files calls :func:`find_data`. So all verbs read the same files of the same name.
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
from ddbio.formats.manifests import Noted, look_up, partition_columns
from ddbio.formats.registry import FORMATS, INPUT_FORMATS, MAGIC_BYTES, format_of, format_of_bytes, is_row_file
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.expansion import MOST_ROW_BYTES
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

# Files of these names are no data, whatever lies beside them.
_OTHER_ENDINGS = (
    *(".crc", ".md5", ".sha1", ".sha256", ".md", ".html", ".pdf", ".png", ".jpg", ".py", ".ipynb", ".sh", ".sql"),
    *(".yaml", ".yml", ".toml"),
)
_LOG = logging.getLogger("ddbio.files")
_THREADS = 16
_SHOWN = 5


@dataclass(frozen=True)
class DataFiles:
    """Hold the data files of a name.

    Attributes
    ----------
    files
        The files in the order of their paths. Each tells its format by its name, or has it noted.
    noted
        What manifests, or the metadata of a lake table, say of the columns of files.
    skipped
        Paths of files that were passed over though they may hold rows.
    live
        What is noted of the files of a folder, by path.
    values
        The columns that the metadata of a table gives to each file; None if the names of folders say it.
    export
        The native export whose files they are, if any.
    contents
        What the folder is.
    """

    store: ObjectStore
    files: tuple[StoredObject, ...]
    contents: Contents
    noted: Noted = field(default_factory=Noted)
    skipped: tuple[str, ...] = ()
    live: Mapping[str, LiveFile] = field(default_factory=dict)
    values: Mapping[str, FolderColumns] | None = None
    export: ExportSource | None = None

    def columns(self, keys: Mapping[str, str]) -> dict[str, FolderColumns]:
        """Return the columns that the folders of each file, or the metadata of its table, give to its rows.

        The folders of logs and archives are times of changes, and no attributes.
        """
        if self.values is not None:
            return dict(self.values)
        if self.contents.kind in LOGS:
            return {each.path: () for each in self.files}
        return partition_columns(self.store, (each.path for each in self.files), keys)

    def live_file(self, entry: StoredObject) -> LiveFile:
        """Return what is noted of a file."""
        known = self.live.get(entry.path)
        return known or LiveFile(entry.path, entry.size_bytes, partition=hive_partition(entry.path))

    def schema(self, entry: StoredObject) -> pa.Schema | None:
        """Return the columns that are noted of a file."""
        return self.noted.schemas.get(entry.path)


def find_data(source: str, options: ConnectionOptions, input_format: InputFormat | None = None) -> DataFiles:
    """Return the data files of a file name, a folder or a glob.

    A file or a folder of that very name comes first; only otherwise a name is a glob. In a folder of ddbio's the files
    are the live ones, in a lake table those of its newest version, in a native export those of its manifests, and in
    the output of a Spark stream those that the stream has committed.

    Parameters
    ----------
    input_format
        The format of all files, whatever their names say.

    Raises
    ------
    NotFoundError
        If there is no such file, or one is gone.
    OptionError
        If nothing tells the format of a file, the name is of a part of a lake table, or a folder holds one in a folder
        of its own, or an export is incremental or in Ion.
    TargetError
        If a lake table has a feature that ddbio does not read.
    ExportIncompleteError
        If an export has not completed, or not all of it is there.
    """
    asked, place = _Asked(source, options, input_format), parse_location(source)[1]
    for name in filter(None, (place, literal_of(place))):
        store = open_store(name, options)
        if (file := _file_at(store, name)) is not None:
            return _one_file(asked, *file)
        if _holds_any(store):
            return _files_of_folder(asked, store)
    return _files_of_glob(asked, place) if is_glob(place) else _files_of_folder(asked, open_store(place, options))


@dataclass(frozen=True)
class _Asked:
    """Hold what :func:`find_data` was asked for."""

    source: str
    options: ConnectionOptions
    input_format: InputFormat | None


def _file_at(store: ObjectStore, name: str) -> tuple[ObjectStore, StoredObject] | None:
    """Return the folder above a location, and the file in it that the location names; None if it names none."""
    above = None if name.endswith("/") else store.above()
    if above is None:
        return None
    folder, last = above
    try:
        entry = next(iter(folder.list(last)), None)
    except AccessDeniedError:
        # Who may list a folder need not be allowed to list what is beside it.
        if is_row_file(last):
            raise
        return None
    # S3's console and Hadoop mark folders by empty objects.
    if entry is None or entry.path != last or (not entry.size_bytes and _holds_any(store)):
        return None
    return folder, entry


def _holds_any(store: ObjectStore) -> bool:
    return next(iter(store.list()), None) is not None


def _one_file(asked: _Asked, folder: ObjectStore, entry: StoredObject) -> DataFiles:
    contents = recognize(folder)
    if contents.kind in LAKE_FORMATS:
        raise _part_of_table(asked.source, contents)
    return _plain_files(asked, contents, folder, [entry], is_named=True)


def _files_of_glob(asked: _Asked, place: str) -> DataFiles:
    fixed, glob = split_glob(place)
    store = open_store(fixed or ("/" if place.startswith("/") else "."), asked.options)
    contents = recognize(store)
    if contents.kind in LAKE_FORMATS:
        raise _part_of_table(asked.source, contents)
    found, pattern = folder_files(store), matcher(glob)
    files = [each for each in found.files if pattern.fullmatch(each.path)]
    hidden = [path for path in found.hidden if pattern.fullmatch(path)]
    require_no_tables(store, found.paths, (each.path for each in files), reads=True)
    valid = _valid(contents, files, found.paths)
    return _plain_files(asked, contents, store, valid, hidden)


def _files_of_folder(asked: _Asked, store: ObjectStore) -> DataFiles:
    contents = recognize(store)
    if contents.kind in LAKE_FORMATS or contents.kind == "export":
        if contents.below:
            raise _part_of_table(asked.source, contents)
        if asked.input_format is not None:
            raise OptionError(f"{contents.place}, which says the formats of its files: leave input_format out")
        return _files_of_export(asked, contents) if contents.kind == "export" else _files_of_table(asked, contents)
    found = folder_files(store)
    files = _valid(contents, found.files, found.paths)
    require_no_tables(store, found.paths, (each.path for each in files), reads=True)
    live = {each.path: each for each in found.live.files}
    return replace(_plain_files(asked, contents, store, files, found.hidden), live=live)


def _valid(contents: Contents, files: Sequence[StoredObject], paths: Iterable[str]) -> list[StoredObject]:
    """Return the files that belong to a folder by the metadata in it, or above it."""
    below = contents.below
    if contents.kind == "spark":
        listed = (each.path for each in contents.root.list()) if below else paths
        committed = committed_files(contents.root, set(listed))
        return [each for each in files if f"{below}{each.path}" in committed]
    # Who names the folder of one publication wants that version.
    if below and not below.startswith(PUBLISHED):
        replaced = replaced_files(contents.root)
        return [each for each in files if f"{below}{each.path}" not in replaced]
    return list(files)


def _plain_files(
    asked: _Asked,
    contents: Contents,
    store: ObjectStore,
    files: Sequence[StoredObject],
    hidden: Iterable[str] = (),
    *,
    is_named: bool = False,
) -> DataFiles:
    """Return files whose formats are stated, or told by their names or bytes."""
    skipped = list(hidden)
    data = [each for each in files if each.size_bytes]
    if not is_named:
        skipped += [each.path for each in data if each.path.lower().endswith(_OTHER_ENDINGS)]
        data = [each for each in data if not each.path.lower().endswith(_OTHER_ENDINGS)]
    if asked.input_format is not None:
        data = [replace(each, format=asked.input_format) for each in data]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-magic") as pool:
        data = list(pool.map(lambda each: _with_format(store, each), data))
    if unknown := [each.path for each in data if format_of(each) is None]:
        more = f" and {len(unknown) - 1:,} other files have" if len(unknown) > 1 else " has"
        raise OptionError(
            f"{store.uri}/{unknown[0]}{more} a name and bytes that tell no format: give input_format "
            f"({', '.join(INPUT_FORMATS)}) if all files are of one format, or name those to read by a glob"
        )
    if not data:
        raise _nothing_found(asked.source, skipped)
    if skipped:
        _LOG.warning(
            "%s: %d files are left out, since their names say that they are no data: %s%s",
            *(asked.source, len(skipped), ", ".join(skipped[:_SHOWN]), ", …" if len(skipped) > _SHOWN else ""),
        )
    noted = look_up(store, data)
    return DataFiles(store, tuple(map(noted.with_checksums, data)), contents, noted, tuple(skipped))


def _with_format(store: ObjectStore, entry: StoredObject) -> StoredObject:
    if format_of(entry) is not None:
        return entry
    length = min(entry.size_bytes, MAGIC_BYTES)
    head = store.read_range(entry, 0, length)
    # Text is not read twice.
    if format_of_bytes(head, None) is None:
        return entry
    return replace(entry, format=format_of_bytes(head, store.read_range(entry, entry.size_bytes - length, length)))


def _nothing_found(source: str, skipped: Sequence[str]) -> NotFoundError:
    scheme, place = parse_location(source)
    if scheme == "file" and not is_glob(place) and not Path(place).expanduser().exists():
        return NotFoundError(f"{source} does not exist: name a file, a folder, a glob, or s3://bucket/prefix")
    passed = f"; passed over by their names are {', '.join(skipped[:_SHOWN])}" if skipped else ""
    return NotFoundError(
        f"{source} holds no file of rows: Parquet, ORC, Avro, JSON Lines, DynamoDB JSON, CSV or Arrow; empty files and "
        f"names that begin with _ or . are passed over{passed}"
    )


def _part_of_table(source: str, contents: Contents) -> OptionError:
    return OptionError(
        f"{source} is a part of {contents.root.uri}, which is {contents}: only the table's metadata says which rows "
        f"are valid, so name the table, {contents.root.uri}"
    )


def _files_of_table(asked: _Asked, contents: Contents) -> DataFiles:
    """Return the data files of the newest version of a lake table."""
    table = open_lake_table(contents.root.uri, contents.kind, asked.options)
    foreign, listed = table.foreign_files(), {each.path: each for each in table.store.list()}
    formats: dict[str, str] = {}
    values: dict[str, FolderColumns] = {}
    schemas: dict[str, pa.Schema] = {}
    if foreign is None:
        state = table.load()
        if state is None or KEYS not in state.properties:
            raise OptionError(f"{contents.place} that ddbio cannot read: write its rows to another folder with Spark")
        paths = [each.path for each in state.files]
        formats, values = dict.fromkeys(paths, LAKE_ROWS.name), dict.fromkeys(paths, ())
        schemas = dict.fromkeys(paths, LakeItems(table, state, contents.kind).item_schema)
    else:
        formats = {each.path: each.format for each in foreign}
        values = {each.path: tuple(_column_of(*pair) for pair in each.values.items()) for each in foreign}
    if gone := sorted(formats.keys() - listed.keys()):
        raise NotFoundError(f"{table.store.uri}/{gone[0]} belongs to the table, and is gone: restore it")
    files = [replace(listed[path], format=formats[path]) for path in sorted(formats)]
    return DataFiles(table.store, tuple(files), contents, Noted(schemas), values=values)


def _column_of(name: str, value: Any) -> tuple[str, str, str | None]:
    """Return a partition value as the type and the text that a column of such values is written as."""
    if value is None:
        return name, "S", None
    item = json.loads(to_dynamodb_json(pa.table({"value": pa.array([value])})))
    ((tag, text),) = item["value"].items()
    return name, tag, text if isinstance(text, str) else json.dumps(text)


def _files_of_export(asked: _Asked, contents: Contents) -> DataFiles:
    """Return the files with items of a full export, which its verified manifests name."""
    export = open_export(asked.source, asked.options)
    summary = export.summary
    if summary.kind != "full" or summary.encoding != "json":
        what = "an incremental export, whose changes are no rows" if summary.kind != "full" else "an export in Ion"
        raise OptionError(f"{export.folder} is {what}: make rows of it by 'ddbio export read', and use these")
    export.sizes()
    listed = {entry.path: entry for entry in export.store.list("data/")}
    files = sorted((listed[export.path(file)] for file in export.files if file.items), key=attrgetter("path"))
    if not files:
        raise NotFoundError(f"{export.folder} is an export without items")
    return DataFiles(export.store, tuple(files), contents, export=export)


def require_items(found: DataFiles, verb: str) -> None:
    """Refuse the files of a log of changes, or of an archive: their rows are no items.

    Raises
    ------
    OptionError
        Naming the commands that read them.
    """
    place = found.contents.root
    if not log_files(place, found.files):
        return
    if found.contents.kind == "archive":
        raise OptionError(
            f"{found.contents.place}: its rows hold more than items, and {verb} would write that, too: use 'ddbio "
            "archive restore'"
        )
    raise OptionError(
        f"{place.uri} holds a log of changes, which are no items: use 'ddbio apply' to merge them into a lake "
        f"table, and {verb} that; or 'ddbio history' to see them"
    )


def is_json(file: str | StoredObject) -> bool:
    """Return whether a file is JSON, by its format or its name."""
    return format_of(file) is FORMATS["json"]


def is_data(name: str) -> bool:
    """Return whether a name means files (a URI, a path with a slash, a glob, a data file here) rather than a table.

    Raises
    ------
    NotFoundError
        If there is no such path, and no table can have that name.
    OptionError
        If there is a folder or file of that name, so that there may be a table too.
    """
    if name.startswith("arn:"):
        return False
    scheme, place = parse_location(name)
    if scheme == "s3" or place != name:
        return True
    path = Path(name).expanduser()
    is_there, is_path = path.exists(), "/" in name or name in {".", ".."} or is_row_file(name)
    if is_there and not is_path:
        raise OptionError(
            f"{name!r} is a {'folder' if path.is_dir() else 'file'} here, and may be a table too: "
            f"say ./{name} for what is here, or the table's ARN, arn:aws:dynamodb:REGION:ACCOUNT:table/{name}"
        )
    # No table has a sign of a glob in its name.
    if is_glob(name):
        return True
    if "/" in name and not is_there:
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
    for block in line_blocks(store.read_chunks(path), f"{store.uri}/{path}", MOST_ROW_BYTES):
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
