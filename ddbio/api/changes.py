"""Read, write and replay changes as Firehose delivers them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.capture import delivered, delivery
from ddbio.ops.capture import replay as replaying
from ddbio.options import ChangesReadOptions, ChangesWriteOptions, ReplayOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    import pyarrow as pa

    from ddbio.api.keywords import ChangesReadKeywords, ChangesWriteKeywords, ReplayKeywords
    from ddbio.core.items.batch_stream import RecordBatchStream
    from ddbio.ops.capture.delivery import DeliveryReport
    from ddbio.ops.capture.replay import ReplayPlan, ReplayReport


@takes(ChangesReadOptions)
def read_changes(
    source: str | os.PathLike[str], *, table: str | None = None, **options: Unpack[ChangesReadKeywords]
) -> pa.Table:
    """Return the changes that Firehose has delivered under a prefix, as rows of the log of ``capture``.

    Parameters
    ----------
    source
        ``s3://bucket/prefix`` or a local folder: change records behind each other, plain, gzip, ZIP or Snappy; lines of
        ``ddbio.lambda_handlers.firehose_transform``; Parquet and ORC of either.
    table
        Table whose changes are taken, by the name in their records; those of others are left out.
    **options
        ``keys`` names the key of lines; ``reject_to`` keeps what is no change; see
        :class:`ddbio.ChangesReadKeywords` for all.

    Raises
    ------
    NotFoundError
        If there are no objects.
    OptionError
        If there are changes of several tables, and ``table`` is not given.
    DecodeError
        If something is no change, and ``reject_to`` is not given.
    """
    return read_changes_batches(source, table=table, **options).read_all()


@takes(ChangesReadOptions)
def read_changes_batches(
    source: str | os.PathLike[str], *, table: str | None = None, **options: Unpack[ChangesReadKeywords]
) -> RecordBatchStream:
    """Return the same as a stream of batches, one for each object.

    Parameters
    ----------
    source, table, **options
        As for :func:`read_changes`.

    Raises
    ------
    NotFoundError, OptionError, DecodeError
        As for :func:`read_changes`.
    """
    given = {**options, "table": table, "source": os.fspath(source)}
    return delivered.read_changes_batches(parse_options(ChangesReadOptions, given))


@takes(ChangesWriteOptions)
def write_changes(
    changes: Iterable[bytes],
    dest: str | os.PathLike[str],
    *,
    table: str | None = None,
    **options: Unpack[ChangesWriteKeywords],
) -> DeliveryReport:
    """Write change records below a prefix as Firehose would deliver them; what is no change goes to the error prefix.

    Parameters
    ----------
    changes
        Texts of change records, with any number in each: answers of GetRecords too.
    dest
        ``s3://bucket/prefix`` or a local folder.
    table
        Table whose changes are written, by the name in their records; default is all, each with the name of its own.
    **options
        ``prefix`` and ``error_prefix`` as Firehose takes them; see :class:`ddbio.ChangesWriteKeywords` for all.

    Raises
    ------
    OptionError
        If a prefix has an expression that is not known.
    """
    given = {**options, "table": table, "dest": os.fspath(dest)}
    return delivery.write_changes(changes, parse_options(ChangesWriteOptions, given))


@takes(ReplayOptions)
def replay(
    source: str | os.PathLike[str], dest: str | os.PathLike[str] | None = None, **options: Unpack[ReplayKeywords]
) -> ReplayReport:
    """Put changes through again that Firehose has delivered, or put under its error prefix; each object once.

    Parameters
    ----------
    source
        ``s3://bucket/prefix`` or a local folder.
    dest
        Folder of the log that they go to; or give ``table``.
    **options
        ``table`` applies the changes to a table; see :class:`ddbio.ReplayKeywords` for all.

    Raises
    ------
    NotFoundError
        If there are no objects, or no such table.
    DecodeError
        If something is no change, and ``reject_to`` is not given.
    TargetError
        If another process runs this replay.
    """
    return replaying.replay(_replay_options(source, dest, options))


@takes(ReplayOptions)
def plan_replay(
    source: str | os.PathLike[str], dest: str | os.PathLike[str] | None = None, **options: Unpack[ReplayKeywords]
) -> ReplayPlan:
    """Return what :func:`replay` would read; nothing is written.

    Parameters
    ----------
    source, dest, **options
        As for :func:`replay`.

    Raises
    ------
    NotFoundError
        If there are no objects.
    """
    return replaying.plan_replay(_replay_options(source, dest, options))


def _replay_options(
    source: str | os.PathLike[str], dest: str | os.PathLike[str] | None, options: ReplayKeywords
) -> ReplayOptions:
    target = {} if dest is None else {"dest": os.fspath(dest)}
    return parse_options(ReplayOptions, {**options, **target, "source": os.fspath(source)})
