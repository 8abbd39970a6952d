"""Iceberg without a JVM: pyiceberg reads and writes the metadata of the table, and ddbio its data files.

The table needs no catalog: its newest metadata is the file ``metadata/v<number>.metadata.json`` with the highest
number, as in the layout of Hadoop tables. A commit succeeds if it creates the file with the next number.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.formats.lake_columns import BUCKET, DELETED, attribute_columns, deleted_column, lake_schema
from ddbio.items.schema.file import schema_from_json, schema_to_json
from ddbio.lake_formats.iceberg_files import STORE, StoreFileIO, iceberg_files, newest_metadata, table_location
from ddbio.lake_formats.table import PREFIX, ConflictError, ForeignFile, LakeFile, LakeState, readable
from ddbio.storage.staged import contained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table.snapshots import Snapshot

    from ddbio.lake_formats.table import Commit
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

try:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_file_to_data_file,
        parquet_path_to_id_mapping,
        pyarrow_to_schema,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.table.update import update_table_metadata
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import ListType, MapType, NestedField, StructType
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

_METADATA = re.compile(r"metadata/v(\d+)\.metadata\.json")
# Manifest lists and manifests, with pyiceberg's names or those of other writers.
_LISTS = re.compile(r"metadata/[^/]+\.avro")
_HINT = "metadata/version-hint.text"
_POSITION, _COLUMNS = f"{PREFIX}position.", f"{PREFIX}columns"
_FIELD_ID = b"PARQUET:field_id"
# The files of a base load are written before the field ids of the columns are known.
_NAMES = "schema.name-mapping.default"
# Iceberg identifies columns by field ids. Data files use our names, even if the table's schema has other names.
_RENAMED = {DELETED: deleted_column("iceberg")}
# Our own retry loop loads the new state. pyiceberg's retry would commit a decision that is based on an old state.
_NO_RETRIES = {"commit.retry.num-retries": "0"}


class IcebergLakeTable:
    """An Iceberg table in a folder.

    Parameters
    ----------
    store
        The folder of the table.
    gateway
        Unused: tables of other formats access S3 through it, but pyiceberg reads and writes through the store.
    """

    keeps_bucket = True

    def __init__(self, store: ObjectStore, gateway: object = None) -> None:
        del gateway
        self.store = store
        self._io = StoreFileIO({STORE: store})
        self._catalog = _FolderCatalog(store)

    @readable
    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version, which is the number of its metadata."""
        versions = self._catalog.versions()
        if not versions:
            return None
        number = versions[-1] if version is None else version
        if number not in versions:
            raise NotFoundError(f"the Iceberg table {self.store.uri} has no version {number}")
        return self._state(self._catalog.read(number), number)

    @readable
    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return the data files of the newest version, if another program created the table; None if ddbio did."""
        metadata = newest_metadata(self.store)
        return None if _COLUMNS in metadata.properties else iceberg_files(self.store, metadata, self._io)

    def before(self, state: LakeState) -> int | None:
        """Return the number of the preceding version; None if this is the first version, 1."""
        return state.version - 1 if state.version > 1 else None

    def position(self, state: LakeState, name: str) -> int:
        """Return the applied position of a source, from the properties of the table."""
        return int(state.properties.get(_POSITION + name, 0))

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Create an empty table, partitioned by its bucket."""
        in_files = assign_fresh_schema_ids(Schema(*_fields_of(schema)))
        table_schema = _with_names(in_files, _RENAMED)
        bucket = table_schema.find_field(BUCKET)
        spec = PartitionSpec(
            PartitionField(source_id=bucket.field_id, field_id=1000, transform=IdentityTransform(), name=BUCKET)
        )
        metadata = new_table_metadata(
            table_schema,
            spec,
            UNSORTED_SORT_ORDER,
            table_location(self.store.uri),
            {
                **properties,
                **_NO_RETRIES,
                _NAMES: in_files.name_mapping.model_dump_json(),
                _COLUMNS: schema_to_json(attribute_columns(schema), is_compact=True),
                "format-version": "2",
            },
        )
        self._catalog.write(metadata, 1)
        return self._state(metadata, 1)

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the schema of data files, with Iceberg's field ids."""
        table_schema: Schema = state.handle.schema()
        return pa.schema(
            [
                _with_ids(field, nested_field)
                for field, nested_field in zip(state.schema, table_schema.fields, strict=True)
            ]
        )

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Add columns and set properties in one version."""
        table: Table = state.handle
        new_properties = dict(properties)
        with self._committing(state):
            transaction = table.transaction()
            if fields:
                with transaction.update_schema() as update:
                    for field, nested_field in zip(fields, _fields_of(pa.schema(list(fields))), strict=True):
                        update.add_column((field.name,), nested_field.field_type)
                columns = attribute_columns(state.schema)
                new_properties[_COLUMNS] = schema_to_json(pa.schema([*columns, *fields]), is_compact=True)
            transaction.set_properties(new_properties)
            transaction.commit_transaction()
        new_state = self.load()
        assert new_state is not None  # noqa: S101 - it was committed
        return new_state

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Add and remove files in one snapshot, and store the positions in the same version."""
        table: Table = state.handle
        location, removed = table_location(self.store.uri), {file.path for file in commit.removed}
        in_files = _with_names(table.schema(), {name: own for own, name in _RENAMED.items()})
        described = _DataFiles(self._io, table.metadata.model_copy(update={"schemas": [in_files]}))
        with self._committing(state):
            transaction = table.transaction()
            with transaction.update_snapshot(snapshot_properties=dict(commit.metadata)).overwrite() as update:
                for staged in commit.added:
                    update.append_data_file(described.of(f"{location}/{staged.path}"))
                for data_file in _data_files(table):
                    if data_file.file_path.removeprefix(f"{location}/") in removed:
                        update.delete_data_file(data_file)
            if commit.positions:
                transaction.set_properties({_POSITION + name: str(number) for name, number in commit.positions.items()})
            transaction.commit_transaction()
        return self._catalog.version_of(table.metadata_location)

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Raise, because pyiceberg has no Z-order."""
        del state, names, file_bytes
        raise OptionError(f"{self.store.uri} is an Iceberg table: use sort_by, since Z-order needs Spark")

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the metadata of older versions, and manifest files that no kept snapshot uses."""
        table: Table = state.handle
        location, used_paths = table_location(self.store.uri), set[str]()
        for snapshot in self._kept_snapshots(state, since):
            used_paths.add(snapshot.manifest_list)
            used_paths.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
        entries = []
        for entry in self.store.list("metadata/"):
            version = _METADATA.fullmatch(entry.path)
            if version is not None:
                is_outdated = int(version[1]) < since
            else:
                is_outdated = bool(_LISTS.fullmatch(entry.path)) and f"{location}/{entry.path}" not in used_paths
            if is_outdated:
                entries.append(entry)
        return entries

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Expire the snapshots before that of a version, in a new version, except those with tags or branches."""
        table: Table = state.handle
        kept_ids = {snapshot.snapshot_id for snapshot in self._kept_snapshots(state, since)}
        old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id not in kept_ids]
        if not old:
            return state
        with self._committing(state):
            table.maintenance.expire_snapshots().by_ids(old).commit()
        new_state = self.load()
        assert new_state is not None  # noqa: S101 - it was committed
        return new_state

    def _kept_snapshots(self, state: LakeState, since: int) -> list[Snapshot]:
        """Return the snapshots that versions from ``since`` on use, or that have a tag or branch."""
        metadata: TableMetadata = state.handle.metadata
        before = self._catalog.read(since)
        first = None if before.current_snapshot_id is None else before.snapshot_by_id(before.current_snapshot_id)
        number = 0 if first is None else (first.sequence_number or 0)
        referenced = {ref.snapshot_id for ref in metadata.refs.values()}
        return [
            snapshot
            for snapshot in metadata.snapshots
            if (snapshot.sequence_number or 0) >= number or snapshot.snapshot_id in referenced
        ]

    @contextlib.contextmanager
    def _committing(self, state: LakeState) -> Any:
        self._catalog.require(state.version)
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            raise ConflictError(str(error)) from error

    def _state(self, metadata: TableMetadata, version: int) -> LakeState:
        location = table_location(self.store.uri)
        table = Table(("lake", "table"), metadata, f"{location}/{_metadata_path(version)}", self._io, self._catalog)
        properties = dict(metadata.properties)
        if _COLUMNS not in properties:
            raise OptionError(f"{self.store.uri} is a table that ddbio did not create: apply to a new folder")
        files = []
        for data_file in _data_files(table):
            if data_file.content != DataFileContent.DATA or not data_file.file_path.startswith(f"{location}/"):
                raise TargetError(
                    f"the Iceberg table {self.store.uri} has delete files, or files elsewhere, which the local engine "
                    "does not read: rewrite its data files, or use Spark",
                    self.store.uri,
                )
            path = data_file.file_path.removeprefix(f"{location}/")
            files.append(
                LakeFile(contained(path, self.store.uri), data_file.file_size_in_bytes, data_file.partition[0])
            )
        schema = _ordered(lake_schema(schema_from_json(properties[_COLUMNS])), table.schema(), self.store.uri)
        return LakeState(version, schema, properties, tuple(files), table)


class _DataFiles:
    """Data files with statistics from their footers, like pyiceberg; shared work for files of one schema is done once.

    Parameters
    ----------
    metadata
        The metadata of the table, with the names that columns have in files.
    """

    def __init__(self, io: Any, metadata: TableMetadata) -> None:
        self._io, self._metadata = io, metadata
        schema = metadata.schema()
        self._plan = compute_statistics_plan(schema, metadata.properties)
        self._numbers = parquet_path_to_id_mapping(schema)
        self._known: pa.Schema | None = None

    def of(self, path: str) -> DataFile:
        """Return the description of a file.

        Raises
        ------
        ValueError
            If its columns differ from those of the table.
        """
        file = self._io.new_input(path)
        with file.open() as stream:
            footer = pq.read_metadata(stream)
        schema = footer.schema.to_arrow_schema()
        if self._known is None or not schema.equals(self._known, check_metadata=True):
            # This compares the columns with those of the table.
            parquet_file_to_data_file(self._io, self._metadata, path)
            self._known = schema
        described = data_file_statistics_from_parquet_metadata(footer, self._plan, self._numbers)
        statistics = described.to_serialized_dict()
        for number in self._without_bounds(footer):
            statistics["lower_bounds"].pop(number, None)
            statistics["upper_bounds"].pop(number, None)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=described.partition(self._metadata.spec(), self._metadata.schema()),
            file_size_in_bytes=len(file),
            sort_order_id=None,
            spec_id=self._metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )

    def _without_bounds(self, footer: pq.FileMetaData) -> Iterator[int]:
        """Yield the ids of columns without bounds in some row group, since Parquet leaves out those of long texts."""
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                statistics = column.statistics
                if statistics is None or (statistics.num_values and not statistics.has_min_max):
                    yield self._numbers[column.path_in_schema]


class _FolderCatalog(NoopCatalog):
    """Catalog of a folder: a commit creates the next metadata file, which only one writer can do."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__("folder")
        self._store = store

    def versions(self) -> list[int]:
        """Return the numbers of all metadata files in ascending order."""
        matches = (_METADATA.fullmatch(entry.path) for entry in self._store.list("metadata/v"))
        return sorted(int(match[1]) for match in matches if match is not None)

    def require(self, version: int) -> None:
        """Raise if the version has expired, because the next number may then be free although it was used before."""
        if not any(True for _ in self._store.list(_metadata_path(version))):
            raise ConflictError(f"version {version} of {self._store.uri} has expired")

    def read(self, version: int) -> TableMetadata:
        """Return the metadata of a version."""
        return TableMetadataUtil.parse_obj(json.loads(self._store.read(_metadata_path(version))))

    def version_of(self, location: str) -> int:
        """Return the version of a metadata file."""
        return int(location.rpartition("/v")[2].partition(".")[0])

    def write(self, metadata: TableMetadata, version: int) -> None:
        """Create the metadata file of a version."""
        data = metadata.model_dump_json(exclude_none=True, by_alias=True).encode()
        if not self._store.put_if_absent(_metadata_path(version), data):
            raise ConflictError(f"version {version} of {self._store.uri} exists already")
        # A hint for readers that do not list; it may be out of date.
        self._store.put(_HINT, str(version).encode())

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Commit updates to the metadata that a table was read with."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        updated = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        version = self.version_of(table.metadata_location) + 1
        self.require(version - 1)
        self.write(updated, version)
        location = f"{table_location(self._store.uri)}/{_metadata_path(version)}"
        return CommitTableResponse(**{"metadata": updated, "metadata-location": location})


def metadata_location(uri: str, version: int) -> str:
    """Return the location of the metadata of a version of a table."""
    return f"{table_location(uri)}/{_metadata_path(version)}"


def _metadata_path(version: int) -> str:
    return f"metadata/v{version}.metadata.json"


def _data_files(table: Table) -> list[Any]:
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _fields_of(schema: pa.Schema) -> list[NestedField]:
    """Return the fields of a schema for Iceberg, with temporary ids that a new table or update replaces."""
    numbers = itertools.count(1)
    return list(pyarrow_to_schema(pa.schema([_numbered(field, numbers) for field in schema])).fields)


def _numbered(field: pa.Field[Any], numbers: Iterator[int]) -> pa.Field[Any]:
    number, kind = next(numbers), field.type
    numbered_type: Any = kind
    if pa.types.is_struct(kind):
        numbered_type = pa.struct([_numbered(member, numbers) for member in kind])
    elif pa.types.is_list(kind):
        numbered_type = pa.list_(_numbered(kind.value_field, numbers))
    elif pa.types.is_map(kind):
        numbered_type = pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    return pa.field(field.name, numbered_type, nullable=field.nullable, metadata={_FIELD_ID: str(number)})


def _with_ids(field: pa.Field[Any], nested_field: NestedField) -> pa.Field[Any]:
    metadata: dict[Any, Any] = {**(field.metadata or {}), _FIELD_ID: str(nested_field.field_id).encode()}
    return field.with_type(_type_with_ids(field.type, nested_field.field_type)).with_metadata(metadata)


def _type_with_ids(arrow_type: Any, nested_type: Any) -> Any:
    if isinstance(nested_type, StructType):
        by_name = {member.name: member for member in nested_type.fields}
        return pa.struct([_with_ids(field, by_name[field.name]) for field in arrow_type])
    if isinstance(nested_type, ListType):
        return pa.list_(_with_ids(arrow_type.value_field, nested_type.element_field))
    if isinstance(nested_type, MapType):
        key = _with_ids(arrow_type.key_field, nested_type.key_field)
        return pa.map_(key, _with_ids(arrow_type.item_field, nested_type.value_field))
    return arrow_type


def _with_names(schema: Schema, names: Mapping[str, str]) -> Schema:
    """Return a schema in which some columns have other names, with the same ids."""
    fields = [field.model_copy(update={"name": names.get(field.name, field.name)}) for field in schema.fields]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _ordered(schema: pa.Schema, table_schema: Schema, uri: str) -> pa.Schema:
    """Return the columns in Iceberg's order; raise if the table has other columns."""
    original_names = {name: own for own, name in _RENAMED.items()}
    names = [original_names.get(field.name, field.name) for field in table_schema.fields]
    if set(names) != set(schema.names):
        other = sorted(set(names) ^ set(schema.names))
        raise OptionError(f"{uri} has columns that ddbio did not create, or lacks some: {', '.join(other)}")
    return pa.schema([schema.field(name) for name in names])
