"""Options of the catalog verbs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import CatalogConnectionOptions, ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogSyncOptions(CatalogConnectionOptions):
    """Folder of files, and its table in a catalog."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` of the files."""
    target: Annotated[str, Field(min_length=1)]
    """Table ``glue://database.table``. A missing database or table is created."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogDdlOptions(ConnectionOptions):
    """Folder of files or lake table, and the SQL dialect of its DDL."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    dialect: Literal["athena", "hive", "spark", "unity", "duckdb", "redshift", "trino", "snowflake"]
    """SQL dialect."""
    name: str | None = None
    """Table ``database.table``; Spark, Unity, Trino and Snowflake: also ``catalog.schema.table``. Default: the last
    part of the path, in ``default`` (DuckDB: ``main``)."""
    projection: bool = False
    """Athena: use partition projection instead of registered partitions."""
