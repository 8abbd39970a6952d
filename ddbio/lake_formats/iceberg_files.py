"""Reads of Iceberg tables of other programs, and file access for pyiceberg through our store."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ddbio.errors import DdbioError, NotFoundError, OptionError, TargetError
from ddbio.formats.decompress import decompress
from ddbio.lake_formats.table import ForeignFile
from ddbio.options.locations import parse_location
from ddbio.storage.object_store import RangeFile
from ddbio.storage.staged import contained

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

try:
    from pyiceberg.io import FileIO, InputFile, OutputFile
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

STORE = "ddbio.store"
"""The property that contains the store."""

IMPLEMENTATION = f"{__name__}.StoreFileIO"
"""The name of the class in pyiceberg's configuration."""


class StoreFileIO(FileIO):
    """Files of one table for pyiceberg.

    Parameters
    ----------
    properties
        The store, with the key :data:`STORE`.

    Raises
    ------
    TargetError
        If a location is not in the table's folder.
    """

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self._store: ObjectStore = properties[STORE]
        self._folder = f"{table_location(self._store.uri)}/"

    def new_input(self, location: str) -> InputFile:
        """Return a file for reading."""
        return _StoredFile(location, self._store, self._path(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file for writing."""
        return _NewFile(location, self._store, self._path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file if it exists."""
        self._store.delete([self._path(location if isinstance(location, str) else location.location)])

    def _path(self, location: str) -> str:
        path = table_location(location)
        if not path.startswith(self._folder):
            raise TargetError(
                f"the Iceberg table {self._store.uri} cannot be read: it has files elsewhere, such as {location}: "
                "read it at its original location",
                self._store.uri,
            )
        return path.removeprefix(self._folder)


class _StoredFile(InputFile):
    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path
        self._stored_entry: StoredObject | None = None

    def __len__(self) -> int:
        return self._entry().size_bytes

    def exists(self) -> bool:
        """Return whether the file exists."""
        try:
            self._entry()
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's
        """Return the file; if it has to be seekable, only the requested ranges are read."""
        if seekable:
            return RangeFile(self._store, self._entry())
        try:
            return io.BytesIO(self._store.read(self._path))
        except NotFoundError as error:
            raise FileNotFoundError(str(error)) from error

    def _entry(self) -> StoredObject:
        if self._stored_entry is None:
            self._stored_entry = next(
                (entry for entry in self._store.list(self._path) if entry.path == self._path), None
            )
        if self._stored_entry is None:
            raise FileNotFoundError(self.location)
        return self._stored_entry


class _NewFile(OutputFile):
    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        """Return the file for reading."""
        return _StoredFile(self.location, self._store, self._path)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's
        """Return a stream that creates the file when it is closed."""
        return _Bytes(self._store, self._path, overwrite)


class _Bytes:
    """Buffer of a metadata file, which is stored completely when it is closed; after an error nothing is stored."""

    def __init__(self, store: ObjectStore, path: str, overwrite: bool) -> None:  # noqa: FBT001 - as above
        self._store, self._path, self._overwrite = store, path, overwrite
        self._bytes = io.BytesIO()
        self.write, self.tell = self._bytes.write, self._bytes.tell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Store the file."""
        data = self._bytes.getvalue()
        if self._overwrite:
            self._store.put(self._path, data)
        elif not self._store.put_if_absent(self._path, data):
            raise FileExistsError(self._path)


try:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

# File names of catalogs, and of Hadoop tables.
_NUMBERED = re.compile(r"metadata/v?(\d+)(?:-[^/]+?)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest_metadata(store: ObjectStore) -> TableMetadata:
    """Return the metadata of a table with the highest number.

    Raises
    ------
    TargetError
        If there is no metadata, or several files have the highest number.
    """
    numbered = [
        (int(match[1]), match[0]) for entry in store.list("metadata/") if (match := _NUMBERED.fullmatch(entry.path))
    ]
    newest = sorted(path for number, path in numbered if number == max(numbered)[0])
    if not newest:
        raise _unreadable(store, "it has no file *.metadata.json")
    if len(newest) > 1:
        raise _unreadable(
            store, f"{' and '.join(newest)} have the same number, and only its catalog knows which of them is valid"
        )
    data = store.read(newest[0])
    try:
        return TableMetadataUtil.parse_obj(json.loads(decompress(data, newest[0])))
    except (ValueError, ValidationError) as error:
        raise _unreadable(store, f"{newest[0]} is damaged, or of a newer version: {error}") from error


def iceberg_files(store: ObjectStore, metadata: TableMetadata, io: Any) -> tuple[ForeignFile, ...]:
    """Return the data files of the current snapshot.

    Raises
    ------
    TargetError
        If the rows of the table differ from those of its files, or columns have other names there.
    """
    location = f"{table_location(store.uri)}/"
    table = Table(("lake", "table"), metadata, f"{location}metadata", io, NoopCatalog("folder"))
    if renamed := _changed_columns(metadata):
        raise _unreadable(
            store,
            f"columns were renamed, dropped or given a default ({', '.join(sorted(renamed))}), but data files have "
            "the old columns: write its rows to a new table, or use Spark",
        )
    try:
        tasks = list(table.scan().plan_files())
    except DdbioError:
        raise
    except (ValueError, OSError, NotImplementedError) as error:
        raise _unreadable(store, str(error)) from error
    if any(task.delete_files for task in tasks):
        raise _unreadable(store, "it has delete files: rewrite its data files (rewrite_data_files), or use Spark")
    return tuple(_foreign_file(store, task.file, metadata, location) for task in tasks)


def table_location(uri: str) -> str:
    """Return the location of a table in the format of its metadata."""
    scheme, path = parse_location(uri)
    return path if scheme == "s3" else str(Path(path).resolve())


def _foreign_file(store: ObjectStore, file: DataFile, metadata: TableMetadata, location: str) -> ForeignFile:
    path = table_location(file.file_path)
    if not path.startswith(location):
        raise _unreadable(store, f"it has files elsewhere, such as {file.file_path}: read it at its original location")
    schema = metadata.schema()
    sources = [
        (number, schema.find_field(partition_field.source_id))
        for number, partition_field in enumerate(metadata.specs()[file.spec_id].fields)
        if isinstance(partition_field.transform, IdentityTransform)
    ]
    values = {field.name: _value_of(field, file.partition[number]) for number, field in sources}
    return ForeignFile(contained(path.removeprefix(location), store.uri), file.file_format.name.lower(), values)


def _changed_columns(metadata: TableMetadata) -> set[str]:
    """Return the columns that were renamed, or whose default value is missing in older data files."""
    now = metadata.schema()
    names = {number: now.find_column_name(number) for number in now.field_ids}
    changed = {
        schema.find_column_name(number) or ""
        for schema in metadata.schemas
        for number in schema.field_ids
        if schema.find_column_name(number) != names.get(number)
    }
    return changed | {field.name for field in now.fields if getattr(field, "initial_default", None) is not None}


def _value_of(field: NestedField, stored: Any) -> Any:
    """Return a partition value; a time is stored as a number."""
    if stored is None or not isinstance(stored, int):
        return stored
    if isinstance(field.field_type, DateType):
        return (_EPOCH + timedelta(days=stored)).date()
    if isinstance(field.field_type, (TimestampType, TimestamptzType)):
        moment = _EPOCH + timedelta(microseconds=stored)
        return moment if isinstance(field.field_type, TimestamptzType) else moment.replace(tzinfo=None)
    return stored


def _unreadable(store: ObjectStore, why: str) -> TargetError:
    return TargetError(f"the Iceberg table {store.uri} cannot be read: {why}", store.uri)
