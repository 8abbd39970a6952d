"""Registry of the lake formats: one object per format with all its properties; and the tables at URIs."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from ddbio.aws.s3_gateway import S3Gateway
from ddbio.aws.s3_store import S3Store
from ddbio.catalog.definition import HIVE, parse_hive_name
from ddbio.catalog.lake import ICEBERG, hudi_input, hudi_partitions, lake_input, parse_iceberg_name
from ddbio.catalog.lake_ddl import delta_ddl, hudi_ddl, iceberg_ddl
from ddbio.commit.contents import kind_of
from ddbio.commit.protocol import require_uploads
from ddbio.errors import NotFoundError
from ddbio.formats.lake_columns import BUCKET, shown_schema
from ddbio.jobs.engine import check_engine
from ddbio.jobs.providers import provider
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.lake_formats.hudi import HudiLakeTable
from ddbio.options.lake_formats import LAKE_FORMATS, LakeFormatFacts
from ddbio.storage.meta import META, PROBE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.catalog.ddl import Dialect
    from ddbio.catalog.definition import TableName
    from ddbio.lake_formats.table import LakeState, LakeTable
    from ddbio.options import ConnectionOptions
    from ddbio.options.format_names import LakeFormatName
    from ddbio.storage.object_store import ObjectStore


Partitions: TypeAlias = "dict[tuple[str, ...], dict[str, Any]]"


class LakeFormat(ABC):
    """Properties and functions of a format of lake tables.

    Attributes
    ----------
    name
        The name in options.
    own_catalog, example
        Prefix of table names in a catalog that only this format uses, and an example of a name; None without a catalog.
    spark_part
        The part of ``jobs/providers.py`` that writes tables; None if this process writes them.
    duckdb_function
        The DuckDB function that reads the folder of a table; None if there is none.
    spark_source
        The name of the format for folders in Spark SQL; None if Spark reads only tables of its catalog.
    sorts_nulls_first
        Whether the engine that sorts the rows of a bucket puts rows without the attribute first.
    """

    name: ClassVar[LakeFormatName]
    own_catalog: ClassVar[str | None] = None
    example: ClassVar[str] = "'ddbio catalog ddl'"
    spark_part: ClassVar[str | None] = None
    duckdb_function: ClassVar[str | None] = None
    spark_source: ClassVar[str | None] = None
    sorts_nulls_first: ClassVar[bool] = False

    @property
    def facts(self) -> LakeFormatFacts:
        """Return the properties of the format that options use."""
        return LAKE_FORMATS[self.name]

    def spark_writer(self) -> Any:
        """Return the Spark module that loads, merges, maintains and registers tables; None if Spark is not needed.

        Raises
        ------
        OptionError
            If Spark is needed but not installed.
        """
        if self.spark_part is None:
            return None
        check_engine("spark")
        return provider(self.spark_part)

    @abstractmethod
    def open_table(self, store: ObjectStore) -> LakeTable:
        """Return the table in a folder, which may not exist yet.

        Raises
        ------
        OptionError
            If the library of the format is not installed.
        """

    @abstractmethod
    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        """Return the definition of a table in Glue, in the format of CreateTable.

        Raises
        ------
        SchemaError
            If Hive has no type for a column.
        """

    def glue_partitions(self, definition: Mapping[str, Any], buckets: Iterable[int]) -> Partitions | None:
        """Return the partitions of a table in Glue by value; None if readers find files without them.

        Parameters
        ----------
        definition
            The definition of the table.
        buckets
            The buckets that have files.
        """
        del definition, buckets
        return None

    @abstractmethod
    def ddl(self, name: TableName, state: LakeState, location: str, dialect: Dialect) -> str:
        """Return the statements that create a table in a catalog, each ending with a semicolon.

        Raises
        ------
        OptionError
            If the dialect does not support tables of the format.
        SchemaError
            If Hive has no type for a column.
        """

    def check_own_catalog(self, catalog: str, store: ObjectStore) -> None:
        """Raise if ``own_catalog`` cannot have a table of this name for the folder."""
        raise NotImplementedError

    def publish(self, catalog: str, table: LakeTable) -> None:
        """Update the table in ``own_catalog`` to the newest state of a lake table."""
        raise NotImplementedError


class _Delta(LakeFormat):
    name = "delta"
    duckdb_function = "delta_scan"
    spark_source = "delta"

    def open_table(self, store: ObjectStore) -> LakeTable:
        # A format's library is imported only when the format is used.
        from ddbio.lake_formats.delta import DeltaLakeTable  # noqa: PLC0415

        return DeltaLakeTable(store, S3Gateway(store) if isinstance(store, S3Store) else None)

    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        return lake_input(name, shown_schema(state.schema, self.name), location)

    def ddl(self, name: TableName, state: LakeState, location: str, dialect: Dialect) -> str:
        return delta_ddl(name, state.schema, location, dialect)


class _Iceberg(LakeFormat):
    name = "iceberg"
    own_catalog = ICEBERG
    example = f"{ICEBERG}catalog/namespace.table"
    duckdb_function = "iceberg_scan"

    def open_table(self, store: ObjectStore) -> LakeTable:
        from ddbio.lake_formats.iceberg import IcebergLakeTable  # noqa: PLC0415 - as above

        return IcebergLakeTable(store)

    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        return lake_input(name, shown_schema(state.schema, self.name), location, self._metadata(state, location))

    def ddl(self, name: TableName, state: LakeState, location: str, dialect: Dialect) -> str:
        return iceberg_ddl(name, location, dialect, self._metadata(state, location))

    def check_own_catalog(self, catalog: str, store: ObjectStore) -> None:
        # Needed only for a table with a catalog.
        from ddbio.lake_formats.iceberg_catalog import require_namespace  # noqa: PLC0415

        require_namespace(parse_iceberg_name(catalog), store)

    def publish(self, catalog: str, table: LakeTable) -> None:
        from ddbio.lake_formats.iceberg_catalog import publish  # noqa: PLC0415 - as above

        publish(parse_iceberg_name(catalog), table)

    def _metadata(self, state: LakeState, location: str) -> str:
        return f"{location}/metadata/v{state.version}.metadata.json"


class _Hudi(LakeFormat):
    name = "hudi"
    own_catalog = HIVE
    example = f"{HIVE}database.table"
    spark_part = "hudi"
    # Its clustering sorts with Spark.
    sorts_nulls_first = True

    def open_table(self, store: ObjectStore) -> LakeTable:
        return HudiLakeTable(store)

    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        return hudi_input(name, state.schema, BUCKET, location, self.spark_writer().spark_schema(state.schema))

    def glue_partitions(self, definition: Mapping[str, Any], buckets: Iterable[int]) -> Partitions | None:
        return hudi_partitions(definition, map(str, buckets))

    def ddl(self, name: TableName, state: LakeState, location: str, dialect: Dialect) -> str:
        buckets = sorted({file.bucket for file in state.files})
        return hudi_ddl(name, hudi_input(name, state.schema, BUCKET, location, ""), map(str, buckets), dialect)

    def check_own_catalog(self, catalog: str, store: ObjectStore) -> None:
        self.spark_writer().require_metastore(parse_hive_name(catalog), store.uri)

    def publish(self, catalog: str, table: LakeTable) -> None:
        self.spark_writer().publish(parse_hive_name(catalog), table.store.uri)


TABLE_FORMATS: Final[dict[str, LakeFormat]] = {lake.name: lake for lake in (_Delta(), _Iceberg(), _Hudi())}
"""The lake formats by name."""


def open_lake_table(uri: str, table_format: str, options: ConnectionOptions) -> LakeTable:
    """Return the table at a URI, which may not exist yet. A Hudi table can only be read.

    Raises
    ------
    OptionError
        If the URI is neither an S3 URI nor a local path, or the library of the format is not installed.
    """
    return TABLE_FORMATS[table_format].open_table(open_store(uri, options))


def require_writable(store: ObjectStore, *, deletes: bool = False) -> None:
    """Raise if a job cannot write the files of a table, or cannot clean them up, before it does its work.

    Parameters
    ----------
    deletes
        Whether the job also deletes files of the table.

    Raises
    ------
    AccessDeniedError
        The message names the missing permission.
    """
    job_id = new_job_id()
    require_uploads(store, job_id)
    store.abort(job_id)
    if deletes:
        path = f"{META}{job_id}{PROBE}"
        store.put(path, b"")
        store.delete([path])


def lake_format(store: ObjectStore) -> str | None:
    """Return the table format of a folder; None if it is not a lake table."""
    kind = kind_of(store)
    if kind is None:
        # Without permission to list the folder, its format is unknown.
        with contextlib.suppress(NotFoundError):
            next(store.list(), None)
    return kind if kind in LAKE_FORMATS else None
