"""Registration of a folder of files as a table of a catalog: checks before a job, registration after it, and DDL."""

from __future__ import annotations

import dataclasses
import logging
import shlex
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.aws import glue
from ddbio.catalog.definition import (
    TableDefinition,
    TableName,
    columns_of,
    merge_schemas,
    nameable,
    parse_table_name,
    partition_values,
)
from ddbio.catalog.glue import (
    CatalogReport,
    changed_input,
    home_of,
    partition_changes,
    partition_inputs,
    table_input,
)
from ddbio.commit.contents import LOGS, kind_of, require_own_files
from ddbio.commit.protocol import list_manifests
from ddbio.commit.snapshot import PUBLISHED, live_files, published_folder
from ddbio.errors import DdbioError, NotFoundError, OptionError, SchemaError, TargetError
from ddbio.formats.file_facts import FILE_FACTS
from ddbio.formats.registry import format_of, is_row_file
from ddbio.formats.row_files import read_schema
from ddbio.formats.time_parts import PARTS
from ddbio.items.schema.file import schema_from_json
from ddbio.jobs.clients import catalog_spec
from ddbio.jobs.stores import open_store
from ddbio.storage.meta import read_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.catalog.options import CatalogSyncOptions
    from ddbio.jobs.report import Report
    from ddbio.jobs.staging import Staging
    from ddbio.options import CatalogConnectionOptions, FilesOptions
    from ddbio.storage.object_store import ObjectStore

ReportT = TypeVar("ReportT", bound="Report")

_LOG = logging.getLogger("ddbio.catalog")
_LAKE_ADVICE = (
    "'ddbio apply' and 'ddbio maintain' register a lake table of ddbio by their option catalog, 'ddbio catalog ddl' "
    "writes its DDL, and other tables are registered by the program that wrote them"
)
_THREADS = 16


def check_catalog(options: FilesOptions, staging: Staging, schema: pa.Schema, file_format: str) -> None:
    """Refuse a job whose files could not become the table that ``catalog`` names; nothing is changed.

    Raises
    ------
    OptionError
        If it names no table, or the target is not on S3.
    SchemaError
        If a column has no type in Hive, names differ only in case, or the table has a column with another type.
    TargetError
        If the table is of another folder, format or partitioning.
    """
    if options.catalog is None:
        return
    name = parse_table_name(options.catalog)
    location = _location(staging.store, options.dest)
    if file_format not in FILE_FACTS:
        raise OptionError(f"catalog: no table of Glue reads {file_format}: choose {', '.join(FILE_FACTS)}")
    partitioning = staging.partitioning(schema)
    names = [] if partitioning is None else [column.name for column in partitioning.columns]
    columns, partition_columns = columns_of(schema, names)
    definition = TableDefinition(location, file_format, columns, partition_columns)
    table_input(name, definition)
    existing = glue.read_table(catalog_spec(options), name)
    if existing is not None:
        changed_input(name, existing, definition)


def check_folder(
    path: str,
    catalog: str | None,
    options: CatalogConnectionOptions,
    file_format: str | None,
    publication: str | None = None,
) -> None:
    """Refuse to rewrite or publish the files of a folder if they could not be the table that ``catalog`` names.

    Parameters
    ----------
    file_format
        Format of the files afterwards, or None if it stays the same.
    publication
        The folder to which they are published, if any.

    Raises
    ------
    OptionError, SchemaError, TargetError
        If :func:`check_catalog` raises it.
    """
    if catalog is None:
        return
    name, store = parse_table_name(catalog), open_store(path, options)
    require_own_files(store, "a table of its files would hold other rows", _LAKE_ADVICE)
    location = _location(store if publication is None else open_store(publication, options), publication or path)
    existing, definition = glue.read_table(catalog_spec(options), name), describe_folder(store)
    definition = dataclasses.replace(definition, format=file_format or definition.format, location=location)
    table_input(name, definition)
    if existing is not None:
        changed_input(name, existing, definition)


def with_catalog(options: FilesOptions, report: ReportT) -> ReportT:
    """Return the report of a committed job after registering its files, if ``catalog`` is set.

    Raises
    ------
    DdbioError
        If registration fails: the message states that the files are committed, and how to repeat only the registration.
    """
    return registered(report, options.dest, options.catalog, options)


def registered(report: ReportT, path: str, catalog: str | None, options: CatalogConnectionOptions) -> ReportT:
    """Return the report of a job that has committed to a folder, after registering its live files if requested.

    Raises
    ------
    DdbioError
        If :func:`with_catalog` raises it.
    """
    if catalog is None:
        return report
    members: dict[str, Any] = {"catalog": _register_committed(path, catalog, options)}
    return dataclasses.replace(report, **members)


def _register_committed(path: str, catalog: str, options: CatalogConnectionOptions) -> CatalogReport:
    try:
        return _register(path, catalog, options)
    except DdbioError as error:
        command = shlex.join(["ddbio", "catalog", "sync", path, catalog])
        message = f"{error}; the files are committed, and '{command}' registers them"
        error.args = (message, *error.args[1:])
        raise


def sync(options: CatalogSyncOptions) -> CatalogReport:
    """Create or update the Glue table of a folder's live files, and register its partitions.

    Columns are only added, at the end. Repeating the call changes nothing.

    Raises
    ------
    NotFoundError
        If the folder has no files.
    SchemaError, TargetError
        If :func:`check_catalog` raises it.
    AccessDeniedError, EndpointError, ServiceError
        If Glue refuses.
    """
    return _register(options.path, options.target, options)


def _register(path: str, catalog: str, options: CatalogConnectionOptions) -> CatalogReport:
    name, store = parse_table_name(catalog), open_store(path, options)
    require_own_files(store, "a table of its files would hold other rows", _LAKE_ADVICE)
    _location(store, path)
    spec, definition = catalog_spec(options), describe_folder(store)
    action, added, columns = _make_table(spec, name, definition)
    stale = _stale_files(store, definition.location.removeprefix(store.uri.rstrip("/")).removeprefix("/"))
    if stale:
        _LOG.warning(
            "%s holds %d files that are not live, and engines that list the folder read them: run 'ddbio vacuum %s'",
            *(definition.location, stale, path),
        )
    if not definition.partition_columns:
        return CatalogReport(str(name), action, added, 0, 0, 0, stale)
    inputs = partition_inputs(definition, columns)
    changes = partition_changes(inputs, glue.read_partitions(spec, name), home_of(definition.location))
    glue.create_partitions(spec, name, changes.new)
    glue.update_partitions(spec, name, changes.changed)
    glue.delete_partitions(spec, name, changes.gone)
    return CatalogReport(
        *(str(name), action, added, len(inputs), len(changes.new), len(changes.gone), stale, len(changes.changed))
    )


def _stale_files(store: ObjectStore, folder: str) -> int:
    """Return the number of row files in a folder that are not live, without its publications."""
    live = {file.path for file in live_files(store).files}
    paths = (entry.path for entry in store.list(f"{folder}/" if folder else "") if is_row_file(entry.path))
    return sum(path not in live and (bool(folder) or not path.startswith(PUBLISHED)) for path in paths)


def _make_table(
    spec: ClientSpec, name: TableName, definition: TableDefinition
) -> tuple[str, tuple[str, ...], list[dict[str, str]]]:
    """Return the action on the table, the added columns, and all columns."""
    existing, put = glue.put_table(
        spec, name, table_input(name, definition), lambda existing: changed_input(name, existing, definition)[0]
    )
    if put is None:
        columns = [] if existing is None else existing["StorageDescriptor"].get("Columns")
        return "unchanged", (), columns or []
    columns = put["StorageDescriptor"]["Columns"]
    if existing is None:
        return "created", (), columns
    return "updated", changed_input(name, existing, definition)[1], columns


def _location(store: ObjectStore, path: str) -> str:
    if not store.uri.startswith("s3://"):
        raise OptionError(f"catalog: {path} is not on S3, where readers of a Glue table look: write the files there")
    return store.uri.rstrip("/")


@dataclass(frozen=True)
class _ManifestContents:
    """Contents of the manifests of a folder.

    Attributes
    ----------
    paths
        The files whose columns are in the manifests.
    parts
        The columns of the folders in their order, each with its part of a time.
    """

    schemas: Sequence[pa.Schema]
    paths: frozenset[str]
    parts: Mapping[str, str | None]


def describe_folder(store: ObjectStore) -> TableDefinition:
    """Return the live files of a folder as a table.

    Raises
    ------
    NotFoundError
        If there are none.
    TargetError
        If they have several formats, or are not all in folders of the same partition columns.
    SchemaError
        If a column has no type in Hive, or two types.
    """
    files, recorded = live_files(store).files, _read_manifests(store)
    if not files:
        raise NotFoundError(f"{store.uri} holds no files of rows: nothing can be registered")
    formats = {known_format.name for file in files if (known_format := format_of(file.path)) is not None}
    if len(formats) == 1 and not formats <= FILE_FACTS.keys():
        raise TargetError(f"{store.uri} holds files of {formats.pop()}, which no table reads", store.uri)
    if len(formats) != 1:
        raise TargetError(f"{store.uri} holds files of the formats {', '.join(sorted(formats))}: a table has one", store.uri)  # fmt: skip # noqa: E501
    named = {tuple(file.partition) for file in files}
    # A job without rows leaves one file, which is in no partition.
    names = list(recorded.parts) if named == {()} else list(next(iter(named - {()})))
    if len(named - {()}) > 1 or (() in named and len(named) > 1 and any(file.rows for file in files if not file.partition)):  # fmt: skip # noqa: E501
        raise TargetError(f"{store.uri} holds files in folders of several partitionings: a table has one", store.uri)
    schema = merge_schemas([*recorded.schemas, *_schemas(store, [file.path for file in files if file.path not in recorded.paths])])  # fmt: skip # noqa: E501
    (file_format,), publication = formats, published_folder(file.path for file in files)
    # Folders of a log are hours and months of changes, regardless of the attributes of items.
    is_log = kind_of(store) in LOGS and PARTS.keys() >= {*names}
    if is_log and (unnameable := [name for name in schema.names if name not in nameable(schema).names]):
        _LOG.warning("%s: the catalog cannot name the columns %s, and omits them", store.uri, ", ".join(unnameable))
        schema = nameable(schema)
    parts = {name: name for name in names} if is_log else recorded.parts
    columns, partition_columns = columns_of(schema, names, parts, are_attributes=is_log)
    folders = {tuple(file.partition[name] for name in names): file.path.rpartition("/")[0].removeprefix(publication) for file in files if file.partition}  # fmt: skip # noqa: E501
    values = partition_values([file.partition for file in files if file.partition], names)
    return TableDefinition(
        location=f"{store.uri.rstrip('/')}/{publication}".rstrip("/"),
        format=file_format,
        columns=columns,
        partition_columns=partition_columns,
        partitions=tuple(values),
        folders=tuple(folders[partition] for partition in values),
    )


def _read_manifests(store: ObjectStore) -> _ManifestContents:
    entries = sorted(list_manifests(store), key=lambda entry: (entry.modified_at, entry.path))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-manifests") as pool:
        states = [state for state in pool.map(lambda entry: _state(store, entry.path), entries) if state is not None]
    with_schema = [state for state in states if state.get("schema")]
    partitions = [state["partition_by"] for state in states if state.get("partition_by")]
    return _ManifestContents(
        [schema_from_json(state["schema"]) for state in with_schema],
        frozenset(file["path"] for state in with_schema for file in state.get("files") or ()),
        {str(column["name"]): column.get("part") for column in partitions[-1]} if partitions else {},
    )


def _schemas(store: ObjectStore, paths: Sequence[str]) -> list[pa.Schema]:
    """Return the columns of files that no manifest describes, such as those of logs."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-columns") as pool:
        return list(pool.map(lambda path: read_schema(store, path), paths))


def _state(store: ObjectStore, path: str) -> dict[str, Any] | None:
    # It may not exist any more, or a release with another format of schemas may have written it.
    with suppress(NotFoundError, SchemaError):
        return read_state(store, path)
    return None
