"""Options of the verbs about catalogs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import CatalogConnectionOptions, ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogSyncOptions(CatalogConnectionOptions):
    """Choose a folder of files, and the table of a catalog that is to be theirs."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` of the files."""
    target: Annotated[str, Field(min_length=1)]
    """The table, ``glue://database.table``; database and table are created if they do not exist."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogDdlOptions(ConnectionOptions):
    """Choose a folder of files or a lake table, and the language in which their table is described."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` of the files, or a local folder."""
    dialect: Literal["athena", "hive", "spark", "unity", "duckdb"]
    """Whose DDL it is."""
    name: str | None = None
    """Name of the table, ``database.table``, of Spark and Unity also ``catalog.schema.table``; default is ``default``
    (of DuckDB ``main``) and the last part of the path."""
    projection: bool = False
    """For Athena: compute the partitions from ranges and lists of their values, instead of registering them."""
