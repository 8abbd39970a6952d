"""Archive expired items, and put them back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.capture import archive as archiving
from ddbio.options import ArchiveOptions, ArchiveRestoreOptions, ExpiredReadOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from ddbio.api.keywords import ArchiveKeywords, ArchiveRestoreKeywords, ExpiredReadKeywords
    from ddbio.core.items.batch_stream import RecordBatchStream
    from ddbio.ops.capture.archive import ArchiveReport, ArchiveRestoreReport


@takes(ArchiveOptions)
def archive(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ArchiveKeywords]
) -> ArchiveReport:
    """Archive the items that the time to live has deleted, by the log of a table's changes; each once.

    Parameters
    ----------
    source
        Folder of the log of :func:`capture`, with old images; or the table, if ``log`` is given.
    dest
        ``s3://bucket/prefix`` or a local folder. Files lie by the month of expiry, as ``year=…/month=…/``.
    **options
        ``ttl`` names the attribute, ``infer`` recognises deletes of other Regions; see
        :class:`ddbio.ArchiveKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such log or table.
    OptionError
        If the log has no old images, or the attribute is not known.
    TargetError
        If another process archives under this job id.
    """
    given = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return archiving.archive(parse_options(ArchiveOptions, given))


@takes(ArchiveRestoreOptions)
def restore_archived(
    source: str | os.PathLike[str], table: str, **options: Unpack[ArchiveRestoreKeywords]
) -> ArchiveRestoreReport:
    """Put archived items back into a table, each as it was when it last expired.

    Parameters
    ----------
    source
        Folder of the archive.
    table
        Name or ARN.
    **options
        ``from_key`` and ``to_key`` choose a range; see :class:`ddbio.ArchiveRestoreKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no archive, or no such table.
    """
    given = {**options, "source": os.fspath(source), "table": table}
    return archiving.restore_archived(parse_options(ArchiveRestoreOptions, given))


@takes(ExpiredReadOptions)
def read_expired(source: str | os.PathLike[str], **options: Unpack[ExpiredReadKeywords]) -> pa.Table:
    """Return the items of a table or an export that are expired and not deleted yet.

    Parameters
    ----------
    source
        Name or ARN of the table, or the folder of an export.
    **options
        ``ttl`` names the attribute; see :class:`ddbio.ExpiredReadKeywords` for all.

    Raises
    ------
    OptionError
        If nothing says by which attribute items expire, or it is no number.
    """
    return read_expired_batches(source, **options).read_all()


@takes(ExpiredReadOptions)
def read_expired_batches(source: str | os.PathLike[str], **options: Unpack[ExpiredReadKeywords]) -> RecordBatchStream:
    """Return the same as a stream of batches.

    Parameters
    ----------
    source, **options
        As for :func:`read_expired`.

    Raises
    ------
    OptionError
        As for :func:`read_expired`.
    """
    return archiving.read_expired_batches(parse_options(ExpiredReadOptions, {**options, "source": os.fspath(source)}))
