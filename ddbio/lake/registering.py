"""Name a lake table in a catalog after each run, so that engines that ask the catalog read its newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws import glue
from ddbio.catalog.definition import HIVE, parse_hive_name, parse_table_name
from ddbio.catalog.glue import partition_changes
from ddbio.catalog.lake import (
    ICEBERG,
    changed_lake_input,
    hudi_input,
    hudi_partitions,
    lake_input,
    parse_iceberg_name,
)
from ddbio.errors import OptionError
from ddbio.formats.lake_columns import BUCKET, shown_schema
from ddbio.jobs.clients import catalog_spec
from ddbio.jobs.providers import provider
from ddbio.jobs.stores import open_store
from ddbio.lake_formats.hudi import HudiLakeTable

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec
    from ddbio.catalog.definition import TableName
    from ddbio.lake.options import ApplyOptions, MaintainOptions
    from ddbio.lake_formats.table import LakeState, LakeTable

_ATTEMPTS = 3


def check_lake_catalog(options: ApplyOptions | MaintainOptions) -> None:
    """Refuse a table that no catalog could name, before anything is merged.

    Raises
    ------
    OptionError
        If ``catalog`` names no table, or one of a catalog that is not there, or the lake table cannot be named there.
    EndpointError
        If a catalog of Iceberg does not answer, or refuses.
    """
    if options.catalog is None:
        return
    if options.catalog.startswith(ICEBERG):
        if options.format != "iceberg":
            raise OptionError(
                f"catalog: {options.catalog} is a table of Iceberg, and the lake table is {options.format}"
            )
        # Who names no table needs none of it.
        from ddbio.lake_formats.iceberg_catalog import require_namespace  # noqa: PLC0415

        require_namespace(parse_iceberg_name(options.catalog), open_store(options.table, options))
        return
    if options.catalog.startswith(HIVE):
        name = parse_hive_name(options.catalog)
        if options.format != "hudi":
            other = "iceberg://catalog/namespace.table" if options.format == "iceberg" else "'ddbio catalog ddl'"
            raise OptionError(f"catalog: {name} is for Hudi tables, and this one is {options.format}: take {other}")
        _hudi_catalog().require_metastore(name, options.table)
        return
    parse_table_name(options.catalog)
    if not options.table.startswith("s3://"):
        raise OptionError(f"catalog: {options.table} is not on S3, where readers of a Glue table look")


def register_lake(options: ApplyOptions | MaintainOptions, table: LakeTable, state: LakeState) -> None:
    """Make the table of the catalog name a state of a lake table, unless it names a newer one.

    Raises
    ------
    TargetError
        If the table of the catalog is of another folder or format, or was written through the catalog.
    AccessDeniedError, EndpointError, ServiceError
        If the catalog refuses; the lake table is committed, and the next run registers it.
    """
    if options.catalog is None:
        return
    if options.catalog.startswith(ICEBERG):
        from ddbio.lake_formats.iceberg_catalog import publish  # noqa: PLC0415 - as above

        publish(parse_iceberg_name(options.catalog), table)
        return
    if options.catalog.startswith(HIVE):
        _hudi_catalog().publish(parse_hive_name(options.catalog), table.store.uri)
        return
    name, spec, location = parse_table_name(options.catalog), catalog_spec(options), table.store.uri.rstrip("/")
    if options.format == "hudi":
        hudi = hudi_input(name, state.schema, BUCKET, location, _hudi_catalog().spark_schema(state.schema))
        _make_table(spec, name, hudi)
        _match_partitions(spec, name, hudi, HudiLakeTable(table.store))
        return
    metadata = f"{location}/metadata/v{state.version}.metadata.json" if options.format == "iceberg" else None
    _make_table(spec, name, lake_input(name, shown_schema(state.schema, options.format), location, metadata))


def _make_table(spec: ClientSpec, name: TableName, wanted: dict[str, Any]) -> None:
    glue.put_table(spec, name, wanted, lambda existing: changed_lake_input(name, existing, wanted))


def _match_partitions(spec: ClientSpec, name: TableName, hudi: dict[str, Any], table: HudiLakeTable) -> None:
    """Make the partitions of a Hudi table the buckets that have files: readers list what they find in Glue."""
    for _ in range(_ATTEMPTS):
        # In this order: what another writer adds while the files are listed is not known here, and stays.
        there = glue.read_partitions(spec, name)
        buckets = (str(each.bucket) for each in table.files())
        changes = partition_changes(hudi_partitions(hudi, buckets), there, hudi["StorageDescriptor"]["Location"])
        glue.create_partitions(spec, name, changes.new)
        glue.update_partitions(spec, name, changes.changed)
        glue.delete_partitions(spec, name, changes.gone)
        if not changes.gone:
            # A bucket that was taken out may have got files meanwhile.
            return


def _hudi_catalog() -> Any:
    return provider("hudi catalogs")
