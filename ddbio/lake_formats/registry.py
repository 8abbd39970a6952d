"""The registry of lake formats: each is one object with all that is known of it; and the tables at URIs."""

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
    """What ddbio knows of a format of lake tables.

    Attributes
    ----------
    name
        The name in options.
    own_catalog, example
        Begin of the names of tables in catalogs of this format alone, and such a name; without it there are none.
    spark_part
        The part of ``jobs/providers.py`` that writes tables; None if this process writes them itself.
    duckdb_function
        The function of DuckDB that reads the folder of a table; None if there is none.
    spark_source
        The name by which Spark reads the folder of a table in SQL; None if it reads tables of its catalog alone.
    sorts_nulls_first
        Whether what sorts the rows of a bucket puts those without the attribute first.
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
        """Return what options know of the format."""
        return LAKE_FORMATS[self.name]

    def spark_writer(self) -> Any:
        """Return the module for Spark that loads, merges, maintains and registers tables; None if Spark is not needed.

        Raises
        ------
        OptionError
            If Spark is needed and not installed.
        """
        if self.spark_part is None:
            return None
        check_engine("spark")
        return provider(self.spark_part)

    @abstractmethod
    def open_table(self, store: ObjectStore) -> LakeTable:
        """Return the table in a folder; it need not be there yet.

        Raises
        ------
        OptionError
            If the library of the format is not installed.
        """

    @abstractmethod
    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        """Return the definition of a table in Glue, as CreateTable takes it.

        Raises
        ------
        SchemaError
            If Hive has no type for a column.
        """

    def glue_partitions(self, definition: Mapping[str, Any], buckets: Iterable[int]) -> Partitions | None:
        """Return the partitions of a table in Glue by their values; None if readers find files without them.

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
        """Return the statements that name a table in a catalog, each ended by a semicolon.

        Raises
        ------
        OptionError
            If the dialect cannot name a table of the format.
        SchemaError
            If Hive has no type for a column.
        """

    def check_own_catalog(self, catalog: str, store: ObjectStore) -> None:
        """Refuse a name that ``own_catalog``, if the format has one, could not give to the table in a folder."""
        raise NotImplementedError

    def publish(self, catalog: str, table: LakeTable) -> None:
        """Make ``own_catalog``, if the format has one, name the newest state of a table."""
        raise NotImplementedError


class _Delta(LakeFormat):
    name = "delta"
    duckdb_function = "delta_scan"
    spark_source = "delta"

    def open_table(self, store: ObjectStore) -> LakeTable:
        # Only who uses a format needs its library.
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
        # Who names no table needs none of it.
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
    # Its clustering sorts by Spark.
    sorts_nulls_first = True

    def open_table(self, store: ObjectStore) -> LakeTable:
        return HudiLakeTable(store)

    def glue_table(self, name: TableName, state: LakeState, location: str) -> dict[str, Any]:
        return hudi_input(name, state.schema, BUCKET, location, self.spark_writer().spark_schema(state.schema))

    def glue_partitions(self, definition: Mapping[str, Any], buckets: Iterable[int]) -> Partitions | None:
        return hudi_partitions(definition, map(str, buckets))

    def ddl(self, name: TableName, state: LakeState, location: str, dialect: Dialect) -> str:
        buckets = sorted({each.bucket for each in state.files})
        return hudi_ddl(name, hudi_input(name, state.schema, BUCKET, location, ""), map(str, buckets), dialect)

    def check_own_catalog(self, catalog: str, store: ObjectStore) -> None:
        self.spark_writer().require_metastore(parse_hive_name(catalog), store.uri)

    def publish(self, catalog: str, table: LakeTable) -> None:
        self.spark_writer().publish(parse_hive_name(catalog), table.store.uri)


TABLE_FORMATS: Final[dict[str, LakeFormat]] = {each.name: each for each in (_Delta(), _Iceberg(), _Hudi())}
"""The lake formats by their names."""


def open_lake_table(uri: str, table_format: str, options: ConnectionOptions) -> LakeTable:
    """Return the table at a URI; it need not be there yet. A Hudi table is only read.

    Raises
    ------
    OptionError
        If the URI is neither of S3 nor a local path, or the library of the format is not installed.
    """
    return TABLE_FORMATS[table_format].open_table(open_store(uri, options))


def require_writable(store: ObjectStore, *, deletes: bool = False) -> None:
    """Refuse a table whose files a job could not write, or not clean up, before it does its work.

    Parameters
    ----------
    deletes
        Whether files of the table may be deleted as well.

    Raises
    ------
    AccessDeniedError
        Naming the permission that is missing.
    """
    job_id = new_job_id()
    require_uploads(store, job_id)
    store.abort(job_id)
    if deletes:
        path = f"{META}{job_id}{PROBE}"
        store.put(path, b"")
        store.delete([path])


def lake_format(store: ObjectStore) -> str | None:
    """Return the table format of a folder; None if it is no lake table."""
    kind = kind_of(store)
    if kind is None:
        # Of a folder that may not be looked at nobody knows what it is.
        with contextlib.suppress(NotFoundError):
            next(store.list(), None)
    return kind if kind in LAKE_FORMATS else None
