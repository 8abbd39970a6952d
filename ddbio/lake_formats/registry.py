"""Open lake tables by their URIs and formats."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ddbio.aws.s3_gateway import S3Gateway
from ddbio.aws.s3_store import S3Store
from ddbio.commit.contents import TABLES, kind_of
from ddbio.commit.protocol import require_uploads
from ddbio.errors import NotFoundError
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.lake_formats.hudi import HudiLakeTable
from ddbio.storage.meta import META, PROBE

if TYPE_CHECKING:
    from ddbio.lake_formats.table import LakeTable
    from ddbio.options import ConnectionOptions
    from ddbio.storage.object_store import ObjectStore


def open_lake_table(uri: str, table_format: str, options: ConnectionOptions) -> LakeTable:
    """Return the table at a URI; it need not be there yet. A Hudi table is only read.

    Raises
    ------
    OptionError
        If the URI is neither of S3 nor a local path, or the library of the format is not installed.
    """
    store = open_store(uri, options)
    # Only who uses a format needs its library.
    if table_format == "iceberg":
        from ddbio.lake_formats.iceberg import IcebergLakeTable  # noqa: PLC0415

        return IcebergLakeTable(store)
    if table_format == "hudi":
        return HudiLakeTable(store)
    from ddbio.lake_formats.delta import DeltaLakeTable  # noqa: PLC0415

    return DeltaLakeTable(store, S3Gateway(store) if isinstance(store, S3Store) else None)


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
    return kind if kind in TABLES else None
