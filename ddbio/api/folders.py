"""Folders of files: what belongs to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.folders import listing
from ddbio.options import FilesListOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import FilesListKeywords
    from ddbio.ops.folders.listing import FileList


@takes(FilesListOptions)
def list_files(path: str | os.PathLike[str], **options: Unpack[FilesListKeywords]) -> FileList:
    """Return the live files of a folder that ddbio writes: give their ``paths`` to a reader of files.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder.
    **options
        ``at_version`` chooses an older version; see :class:`ddbio.FilesListKeywords` for all.

    Raises
    ------
    NotFoundError
        If the folder has no such version.
    """
    return listing.list_files(parse_options(FilesListOptions, {**options, "path": os.fspath(path)}))
