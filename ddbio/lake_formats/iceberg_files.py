"""List the data files of Iceberg tables that other programs made, by their newest metadata."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.errors import DdbioError, OptionError, TargetError
from ddbio.formats.decompress import decompress
from ddbio.lake_formats.table import ForeignFile
from ddbio.options.locations import parse_location
from ddbio.storage.contained import contained

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from ddbio.storage.object_store import ObjectStore

try:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

# As catalogs name it, and Hadoop tables.
_NUMBERED = re.compile(r"metadata/v?(\d+)(?:-[^/]+?)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest_metadata(store: ObjectStore) -> TableMetadata:
    """Return the metadata of a table that has the greatest number.

    Raises
    ------
    TargetError
        If there is none, or two have that number.
    """
    found = [(int(match[1]), match[0]) for each in store.list("metadata/") if (match := _NUMBERED.fullmatch(each.path))]
    newest = sorted(path for number, path in found if number == max(found)[0])
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
        If the rows of the table are not simply those of its files, by the names that columns have there.
    """
    place = f"{table_place(store.uri)}/"
    table = Table(("lake", "table"), metadata, f"{place}metadata", io, NoopCatalog("folder"))
    if renamed := _changed_columns(metadata):
        raise _unreadable(
            store,
            f"columns were renamed, dropped or given a default ({', '.join(sorted(renamed))}), which data files do not "
            "tell: write its rows to a new table, or use Spark",
        )
    try:
        tasks = list(table.scan().plan_files())
    except DdbioError:
        raise
    except (ValueError, OSError, NotImplementedError) as error:
        raise _unreadable(store, str(error)) from error
    if any(task.delete_files for task in tasks):
        raise _unreadable(store, "it has delete files: rewrite its data files (rewrite_data_files), or use Spark")
    return tuple(_foreign_file(store, task.file, metadata, place) for task in tasks)


def table_place(uri: str) -> str:
    """Return the folder of a table as its metadata names it."""
    scheme, place = parse_location(uri)
    return place if scheme == "s3" else str(Path(place).resolve())


def _foreign_file(store: ObjectStore, file: DataFile, metadata: TableMetadata, place: str) -> ForeignFile:
    path = table_place(file.file_path)
    if not path.startswith(place):
        raise _unreadable(store, f"it has files elsewhere, such as {file.file_path}: read it where it was made")
    schema = metadata.schema()
    sources = [
        (number, schema.find_field(each.source_id))
        for number, each in enumerate(metadata.specs()[file.spec_id].fields)
        if isinstance(each.transform, IdentityTransform)
    ]
    values = {field.name: _value_of(field, file.partition[number]) for number, field in sources}
    return ForeignFile(contained(path.removeprefix(place), store.uri), file.file_format.name.lower(), values)


def _changed_columns(metadata: TableMetadata) -> set[str]:
    """Return the columns that a data file may have under another name, or that it may lack though they have a value."""
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
    """Return a partition value, which is stored as a number if it is a time."""
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
