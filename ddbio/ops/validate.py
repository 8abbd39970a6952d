"""Read files back and digest their rows, to hold them against what the table held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.core.digest import Digest
from ddbio.core.digest_columns import digest_of_batches
from ddbio.lake.reader import read_batches
from ddbio.ops.job.target import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.options import ConnectionOptions


def digest_files(paths: Sequence[str], options: ConnectionOptions) -> Digest:
    """Return the digest and count of the items that Parquet files hold, whatever their order or number.

    Parameters
    ----------
    paths
        URIs or local paths of whole files.
    """
    whole = Digest()
    for path in paths:
        whole.merge(_digest_file(path, options))
    return whole


def _digest_file(path: str, options: ConnectionOptions) -> Digest:
    folder, _, name = path.rpartition("/")
    return digest_of_batches(read_batches(open_store(folder, options), name))
