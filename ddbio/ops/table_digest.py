"""Scan a table for its count and digest; keep none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.ops.scans.read import digest_of_scan
from ddbio.options import ScanOptions, connection_of

if TYPE_CHECKING:
    from ddbio.core.digest import Digest
    from ddbio.options import ConnectionOptions


def digest_of_table(table: str, options: ConnectionOptions) -> Digest:
    """Return count and digest of a table's items, read as the options' connection says.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ThrottledError
        As of any scan.
    """
    # NULL is told from missing, and what was written last is seen.
    return digest_of_scan(ScanOptions(**connection_of(options), table=table, nulls="keep", consistent=True))
