"""Lake tables in catalogs: registration after each run, so that engines read the newest version, and DDL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.aws import glue
from ddbio.catalog.ddl import ddl
from ddbio.catalog.definition import TableName, parse_table_name
from ddbio.catalog.glue import partition_changes
from ddbio.catalog.lake import changed_lake_input
from ddbio.catalog.sync import describe_folder
from ddbio.errors import OptionError
from ddbio.jobs.clients import catalog_spec
from ddbio.jobs.stores import open_store
from ddbio.lake_formats.registry import TABLE_FORMATS, lake_format, open_lake_table

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec
    from ddbio.catalog.options import CatalogDdlOptions
    from ddbio.lake.options import ApplyOptions, MaintainOptions
    from ddbio.lake_formats.registry import LakeFormat
    from ddbio.lake_formats.table import LakeState, LakeTable
    from ddbio.storage.object_store import ObjectStore

_ATTEMPTS = 3


def check_lake_catalog(options: ApplyOptions | MaintainOptions) -> None:
    """Raise if the catalog cannot have the table; this is checked before anything is merged.

    Raises
    ------
    OptionError
        If ``catalog`` is not a table name, or its catalog does not exist, or cannot have the lake table.
    EndpointError
        If an Iceberg catalog is unavailable, or refuses the request.
    """
    if options.catalog is None:
        return
    owner = _owner_of(options.catalog)
    if owner is not None:
        if owner.name != options.format:
            raise OptionError(
                f"catalog: {options.catalog} is for {owner.facts.title} tables, but this table is {options.format}: "
                f"use {TABLE_FORMATS[options.format].example}"
            )
        owner.check_own_catalog(options.catalog, open_store(options.table, options))
        return
    parse_table_name(options.catalog)
    if not options.table.startswith("s3://"):
        raise OptionError(f"catalog: {options.table} is not on S3, but Glue tables need files on S3")


def _owner_of(catalog: str) -> LakeFormat | None:
    """Return the only format that a catalog supports; None for Glue, which supports all formats."""
    owners = (
        table_format
        for table_format in TABLE_FORMATS.values()
        if table_format.own_catalog and catalog.startswith(table_format.own_catalog)
    )
    return next(owners, None)


def register_lake(options: ApplyOptions | MaintainOptions, table: LakeTable, state: LakeState) -> None:
    """Point the table of the catalog to this state of the lake table, unless it already has a newer one.

    Raises
    ------
    TargetError
        If the table of the catalog has another folder or format, or was written through the catalog.
    AccessDeniedError, EndpointError, ServiceError
        If the catalog refuses; the lake table is committed already, and the next run registers it.
    """
    if options.catalog is None:
        return
    owner = _owner_of(options.catalog)
    if owner is not None:
        owner.publish(options.catalog, table)
        return
    name, spec, location = parse_table_name(options.catalog), catalog_spec(options), table.store.uri.rstrip("/")
    table_format = TABLE_FORMATS[options.format]
    definition = table_format.glue_table(name, state, location)
    glue.put_table(spec, name, definition, lambda existing: changed_lake_input(name, existing, definition))
    _match_partitions(spec, name, table_format, definition, table.store)


def _match_partitions(
    spec: ClientSpec, name: TableName, table_format: LakeFormat, definition: dict[str, Any], store: ObjectStore
) -> None:
    """Create and delete Glue partitions to match the buckets with files, if readers use Glue partitions."""
    if table_format.glue_partitions(definition, ()) is None:
        return
    table = table_format.open_table(store)
    for _ in range(_ATTEMPTS):
        # The partitions are read first, so that a bucket that another writer adds meanwhile is not deleted.
        existing = glue.read_partitions(spec, name)
        state = table.load()
        buckets = [] if state is None else [file.bucket for file in state.files]
        partitions = table_format.glue_partitions(definition, buckets) or {}
        changes = partition_changes(partitions, existing, definition["StorageDescriptor"]["Location"])
        glue.create_partitions(spec, name, changes.new)
        glue.update_partitions(spec, name, changes.changed)
        glue.delete_partitions(spec, name, changes.gone)
        if not changes.gone:
            # A deleted bucket may have received files meanwhile, so check again.
            return


def write_ddl(options: CatalogDdlOptions) -> str:
    """Return the DDL of the table of a folder's live files, or of a lake table in the folder.

    Raises
    ------
    NotFoundError
        If the folder has no files.
    OptionError
        If the dialect cannot describe it.
    SchemaError
        If the dialect has no type for a column.
    """
    store = open_store(options.path, options)
    database, _, table = (options.name or _usual_name(options.path)).rpartition(".")
    name = TableName(database or ("main" if options.dialect == "duckdb" else "default"), table)
    if (table_format := lake_format(store)) is not None:
        return _write_lake_ddl(options, name, table_format)
    return ddl(name, describe_folder(store), options.dialect, projection=options.projection)


def _write_lake_ddl(options: CatalogDdlOptions, name: TableName, table_format: str) -> str:
    if options.projection:
        raise OptionError("projection is for Athena's tables with partitions: leave it out")
    table = open_lake_table(options.path, table_format, options)
    state = table.load()
    if state is None:
        raise OptionError(f"{options.path} is a table that ddbio did not create: its own catalog defines it")
    uri = table.store.uri.rstrip("/")
    location = uri if "://" in uri else str(Path(uri).resolve())
    return TABLE_FORMATS[table_format].ddl(name, state, location, options.dialect)


def _usual_name(path: str) -> str:
    last = path.rstrip("/").rpartition("/")[2].lower()
    return "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in last) or "items"
