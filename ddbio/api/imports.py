"""Write files for the service's own import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops import import_files
from ddbio.options import ImportFilesFromOptions, ImportFilesOptions, parse_options

if TYPE_CHECKING:
    from ddbio.ops.import_report import ImportFilesReport
    from ddbio.ops.sources import Rows


def write_import_files(
    source: Rows | str | os.PathLike[str], dest: str | os.PathLike[str], **options: Any
) -> ImportFilesReport:
    """Write rows as files for the service's own import: each item checked, each key once, in random order.

    Parameters
    ----------
    source
        Text or a path names a file, folder or glob; anything else is rows, as for :func:`write_table`.
    dest
        ``s3://bucket/prefix`` or a local folder; the objects appear in ``data/`` below it, all together or not at all.
    **options
        Fields of :class:`ddbio.options.ImportFilesOptions`: ``key`` or ``like``, ``duplicates``, ``compression``,
        ``target_file_bytes``, ``mode``, ``digest`` and those of the connection.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another one.
    DdbioError
        What else went wrong; nothing of the job is then visible at the target.
    """
    values = {**options, "dest": os.fspath(dest)}
    if isinstance(source, (str, os.PathLike)):
        values["source"] = os.fspath(source)
        return import_files.write_files(parse_options(ImportFilesFromOptions, values))
    return import_files.write_rows(source, parse_options(ImportFilesOptions, values))
