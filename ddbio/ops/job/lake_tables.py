"""Open lake tables by their URIs and formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.aws.s3_store import S3Store
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from ddbio.lake.lake_table import LakeTable
    from ddbio.options import ConnectionOptions


def open_lake_table(uri: str, table_format: str, options: ConnectionOptions) -> LakeTable:
    """Return the table at a URI; it need not be there yet.

    Raises
    ------
    OptionError
        If the URI is neither of S3 nor a local path, or the library of the format is not installed.
    """
    store = open_store(uri, options)
    given = store.connection_settings() if isinstance(store, S3Store) else {}
    # Only who uses a format needs its library.
    if table_format == "iceberg":
        from ddbio.lake.iceberg import IcebergLakeTable  # noqa: PLC0415

        return IcebergLakeTable(store, given)
    from ddbio.lake.delta import DeltaLakeTable  # noqa: PLC0415

    return DeltaLakeTable(store, given)
