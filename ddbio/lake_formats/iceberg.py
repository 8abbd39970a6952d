"""Iceberg without a JVM: the metadata of the table is read and written by pyiceberg, its data files by us.

The table needs no catalog: its newest metadata is the file ``metadata/v<number>.metadata.json`` with the greatest
number, as in the layout of Hadoop tables. Only who creates the next number has committed.
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
from ddbio.lake_formats.iceberg_files import STORE, StoreFileIO, iceberg_files, newest_metadata, table_place
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
# Lists of manifests, and manifests: pyiceberg's names, and those of others.
_LISTS = re.compile(r"metadata/[^/]+\.avro")
_HINT = "metadata/version-hint.text"
_POSITION, _COLUMNS = f"{PREFIX}position.", f"{PREFIX}columns"
_FIELD_ID = b"PARQUET:field_id"
# Files of a base load are written before anybody knows the numbers of the columns.
_NAMES = "schema.name-mapping.default"
# Columns are told by their numbers: in data files each has our name, whatever the schema of the table calls it.
_RENAMED = {DELETED: deleted_column("iceberg")}
# Our own loop reads the state again; pyiceberg's would commit what was decided by an old one.
_NO_RETRIES = {"commit.retry.num-retries": "0"}


class IcebergLakeTable:
    """Read and change an Iceberg table in a folder.

    Parameters
    ----------
    store
        The folder of the table.
    gateway
        What tables of other formats reach a folder on S3 by: pyiceberg reads and writes through the store.
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
        wanted = versions[-1] if version is None else version
        if wanted not in versions:
            raise NotFoundError(f"the Iceberg table {self.store.uri} has no version {wanted}")
        return self._state(self._catalog.read(wanted), wanted)

    @readable
    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return the data files of the newest version, if another program made the table; None if ddbio did."""
        found = newest_metadata(self.store)
        return None if _COLUMNS in found.properties else iceberg_files(self.store, found, self._io)

    def before(self, state: LakeState) -> int | None:
        """Return the number of the version before one; None if it is the first, 1."""
        return state.version - 1 if state.version > 1 else None

    def position(self, state: LakeState, name: str) -> int:
        """Return how far a source is applied, by the properties of the table."""
        return int(state.properties.get(_POSITION + name, 0))

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Make an empty table, partitioned by its bucket."""
        in_files = assign_fresh_schema_ids(Schema(*_fields_of(schema)))
        made = _with_names(in_files, _RENAMED)
        bucket = made.find_field(BUCKET)
        spec = PartitionSpec(
            PartitionField(source_id=bucket.field_id, field_id=1000, transform=IdentityTransform(), name=BUCKET)
        )
        metadata = new_table_metadata(
            made,
            spec,
            UNSORTED_SORT_ORDER,
            table_place(self.store.uri),
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
        """Return the schema of data files, with the numbers by which Iceberg knows columns."""
        found: Schema = state.handle.schema()
        return pa.schema([_with_ids(field, known) for field, known in zip(state.schema, found.fields, strict=True)])

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Add columns and set properties in one version."""
        table: Table = state.handle
        given = dict(properties)
        with self._committing(state):
            transaction = table.transaction()
            if fields:
                with transaction.update_schema() as update:
                    for field, made in zip(fields, _fields_of(pa.schema(list(fields))), strict=True):
                        update.add_column((field.name,), made.field_type)
                columns = attribute_columns(state.schema)
                given[_COLUMNS] = schema_to_json(pa.schema([*columns, *fields]), is_compact=True)
            transaction.set_properties(given)
            transaction.commit_transaction()
        found = self.load()
        assert found is not None  # noqa: S101 - it was committed
        return found

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Add and remove files in one snapshot, and store the positions beside it."""
        table: Table = state.handle
        place, removed = table_place(self.store.uri), {each.path for each in commit.removed}
        in_files = _with_names(table.schema(), {name: own for own, name in _RENAMED.items()})
        described = _DataFiles(self._io, table.metadata.model_copy(update={"schemas": [in_files]}))
        with self._committing(state):
            transaction = table.transaction()
            with transaction.update_snapshot(snapshot_properties=dict(commit.metadata)).overwrite() as update:
                for each in commit.added:
                    update.append_data_file(described.of(f"{place}/{each.path}"))
                for data_file in _data_files(table):
                    if data_file.file_path.removeprefix(f"{place}/") in removed:
                        update.delete_data_file(data_file)
            if commit.positions:
                transaction.set_properties({_POSITION + name: str(number) for name, number in commit.positions.items()})
            transaction.commit_transaction()
        return self._catalog.version_of(table.metadata_location)

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Refuse: pyiceberg has no Z-order."""
        del state, names, file_bytes
        raise OptionError(f"{self.store.uri} is an Iceberg table: give sort_by, there is no Z-order without Spark")

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the metadata of older versions, and the lists of files that no snapshot has which stays."""
        table: Table = state.handle
        place, named = table_place(self.store.uri), set[str]()
        for each in self._kept(state, since):
            named.add(each.manifest_list)
            named.update(manifest.manifest_path for manifest in each.manifests(table.io))
        found = []
        for entry in self.store.list("metadata/"):
            version = _METADATA.fullmatch(entry.path)
            if version is not None:
                is_outdated = int(version[1]) < since
            else:
                is_outdated = bool(_LISTS.fullmatch(entry.path)) and f"{place}/{entry.path}" not in named
            if is_outdated:
                found.append(entry)
        return found

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Expire the snapshots before that of a version, in a new version; those that tags or branches name stay."""
        table: Table = state.handle
        kept = {each.snapshot_id for each in self._kept(state, since)}
        old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
        if not old:
            return state
        with self._committing(state):
            table.maintenance.expire_snapshots().by_ids(old).commit()
        found = self.load()
        assert found is not None  # noqa: S101 - it was committed
        return found

    def _kept(self, state: LakeState, since: int) -> list[Snapshot]:
        """Return the snapshots that versions from one on have, or that have a name."""
        metadata: TableMetadata = state.handle.metadata
        before = self._catalog.read(since)
        first = None if before.current_snapshot_id is None else before.snapshot_by_id(before.current_snapshot_id)
        number = 0 if first is None else (first.sequence_number or 0)
        named = {each.snapshot_id for each in metadata.refs.values()}
        return [
            each for each in metadata.snapshots if (each.sequence_number or 0) >= number or each.snapshot_id in named
        ]

    @contextlib.contextmanager
    def _committing(self, state: LakeState) -> Any:
        self._catalog.require(state.version)
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            raise ConflictError(str(error)) from error

    def _state(self, metadata: TableMetadata, version: int) -> LakeState:
        place = table_place(self.store.uri)
        table = Table(("lake", "table"), metadata, f"{place}/{_metadata_path(version)}", self._io, self._catalog)
        properties = dict(metadata.properties)
        if _COLUMNS not in properties:
            raise OptionError(f"{self.store.uri} is a table that ddbio did not create: apply to a new folder")
        files = []
        for each in _data_files(table):
            if each.content != DataFileContent.DATA or not each.file_path.startswith(f"{place}/"):
                raise TargetError(
                    f"the Iceberg table {self.store.uri} has delete files, or files elsewhere, which the local engine "
                    "does not read: rewrite its data files, or use Spark",
                    self.store.uri,
                )
            path = each.file_path.removeprefix(f"{place}/")
            files.append(LakeFile(contained(path, self.store.uri), each.file_size_in_bytes, each.partition[0]))
        schema = _ordered(lake_schema(schema_from_json(properties[_COLUMNS])), table.schema(), self.store.uri)
        return LakeState(version, schema, properties, tuple(files), table)


class _DataFiles:
    """Describe data files by their footers, as pyiceberg does; what files of one schema share is found once.

    Parameters
    ----------
    metadata
        That of the table, under the names that columns have in files.
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
            If its columns are not those of the table.
        """
        given = self._io.new_input(path)
        with given.open() as stream:
            footer = pq.read_metadata(stream)
        schema = footer.schema.to_arrow_schema()
        if self._known is None or not schema.equals(self._known, check_metadata=True):
            # It holds the columns against those of the table.
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
            file_size_in_bytes=len(given),
            sort_order_id=None,
            spec_id=self._metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )

    def _without_bounds(self, footer: pq.FileMetaData) -> Iterator[int]:
        """Yield the numbers of columns whose bounds are not known in some row group: Parquet leaves out long texts."""
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                found = column.statistics
                if found is None or (found.num_values and not found.has_min_max):
                    yield self._numbers[column.path_in_schema]


class _FolderCatalog(NoopCatalog):
    """Commit to a table by creating its next metadata, which one writer of a number can."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__("folder")
        self._store = store

    def versions(self) -> list[int]:
        """Return the numbers of all metadata, in their order."""
        found = (_METADATA.fullmatch(each.path) for each in self._store.list("metadata/v"))
        return sorted(int(match[1]) for match in found if match is not None)

    def require(self, version: int) -> None:
        """Refuse to go on from a version that has expired: the next number may be free for the same reason."""
        if not any(True for _ in self._store.list(_metadata_path(version))):
            raise ConflictError(f"version {version} of {self._store.uri} has expired")

    def read(self, version: int) -> TableMetadata:
        """Return the metadata of a number."""
        return TableMetadataUtil.parse_obj(json.loads(self._store.read(_metadata_path(version))))

    def version_of(self, location: str) -> int:
        """Return the number of a metadata file."""
        return int(location.rpartition("/v")[2].partition(".")[0])

    def write(self, metadata: TableMetadata, version: int) -> None:
        """Create the metadata of a number."""
        data = metadata.model_dump_json(exclude_none=True, by_alias=True).encode()
        if not self._store.put_if_absent(_metadata_path(version), data):
            raise ConflictError(f"version {version} of {self._store.uri} is there already")
        # A hint for readers that do not list; it may lag behind.
        self._store.put(_HINT, str(version).encode())

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Commit updates on top of the metadata that a table was read with."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        updated = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        version = self.version_of(table.metadata_location) + 1
        self.require(version - 1)
        self.write(updated, version)
        location = f"{table_place(self._store.uri)}/{_metadata_path(version)}"
        return CommitTableResponse(**{"metadata": updated, "metadata-location": location})


def metadata_location(uri: str, version: int) -> str:
    """Return where the metadata of a version of a table lies."""
    return f"{table_place(uri)}/{_metadata_path(version)}"


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
    """Return the fields of a schema for Iceberg, whose numbers are all to be assigned anew."""
    numbers = itertools.count(1)
    return list(pyarrow_to_schema(pa.schema([_numbered(field, numbers) for field in schema])).fields)


def _numbered(field: pa.Field[Any], numbers: Iterator[int]) -> pa.Field[Any]:
    number, kind = next(numbers), field.type
    made: Any = kind
    if pa.types.is_struct(kind):
        made = pa.struct([_numbered(each, numbers) for each in kind])
    elif pa.types.is_list(kind):
        made = pa.list_(_numbered(kind.value_field, numbers))
    elif pa.types.is_map(kind):
        made = pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    return pa.field(field.name, made, nullable=field.nullable, metadata={_FIELD_ID: str(number)})


def _with_ids(field: pa.Field[Any], known: NestedField) -> pa.Field[Any]:
    metadata: dict[Any, Any] = {**(field.metadata or {}), _FIELD_ID: str(known.field_id).encode()}
    return field.with_type(_type_with_ids(field.type, known.field_type)).with_metadata(metadata)


def _type_with_ids(arrow_type: Any, known: Any) -> Any:
    if isinstance(known, StructType):
        by_name = {each.name: each for each in known.fields}
        return pa.struct([_with_ids(field, by_name[field.name]) for field in arrow_type])
    if isinstance(known, ListType):
        return pa.list_(_with_ids(arrow_type.value_field, known.element_field))
    if isinstance(known, MapType):
        key = _with_ids(arrow_type.key_field, known.key_field)
        return pa.map_(key, _with_ids(arrow_type.item_field, known.value_field))
    return arrow_type


def _with_names(schema: Schema, names: Mapping[str, str]) -> Schema:
    """Return a schema some of whose columns have other names, under the same numbers."""
    fields = [field.model_copy(update={"name": names.get(field.name, field.name)}) for field in schema.fields]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _ordered(schema: pa.Schema, found: Schema, uri: str) -> pa.Schema:
    """Return the columns in the order that Iceberg has them; others than we know must not be there."""
    ours = {name: own for own, name in _RENAMED.items()}
    names = [ours.get(field.name, field.name) for field in found.fields]
    if set(names) != set(schema.names):
        other = sorted(set(names) ^ set(schema.names))
        raise OptionError(f"{uri} has columns that ddbio did not make, or lacks some: {', '.join(other)}")
    return pa.schema([schema.field(name) for name in names])
