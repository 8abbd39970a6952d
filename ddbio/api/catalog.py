"""Make folders of files tables of a catalog, or write the DDL for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import catalog as catalogs
from ddbio.options import CatalogDdlOptions, CatalogSyncOptions, parse_options

if TYPE_CHECKING:
    from typing import Literal, Unpack

    from ddbio.api.keywords import CatalogDdlKeywords, CatalogSyncKeywords
    from ddbio.core.catalog.glue import CatalogReport


@takes(CatalogSyncOptions)
def sync_catalog(path: str | os.PathLike[str], target: str, **options: Unpack[CatalogSyncKeywords]) -> CatalogReport:
    """Make or update the Glue table of a folder's live files, and register its partitions.

    Columns are only added, at the end. Doing it again changes nothing.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` of the files.
    target
        ``glue://database.table``; both are created if they do not exist.
    **options
        Those of the connection, and ``glue_endpoint_url``.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    values = {**options, "path": os.fspath(path), "target": target}
    return catalogs.sync(parse_options(CatalogSyncOptions, values))


@takes(CatalogDdlOptions)
def catalog_ddl(
    path: str | os.PathLike[str],
    dialect: Literal["athena", "hive", "spark", "unity", "duckdb"],
    **options: Unpack[CatalogDdlKeywords],
) -> str:
    """Return the DDL of the table of a folder's live files, or of the lake table that lies there.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` of the files, or a local folder.
    dialect
        Whose DDL it is.
    **options
        ``name`` is ``database.table``, or ``catalog.schema.table``; ``projection`` has Athena compute the partitions;
        the rest is of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    values = {**options, "path": os.fspath(path), "dialect": dialect}
    return catalogs.write_ddl(parse_options(CatalogDdlOptions, values))
