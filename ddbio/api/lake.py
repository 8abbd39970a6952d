"""Keep tables of a lake equal to DynamoDB tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.lake import apply as applying
from ddbio.ops.lake import maintain as maintaining
from ddbio.options import ApplyOptions, MaintainOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import ApplyKeywords, MaintainKeywords
    from ddbio.ops.lake.apply import ApplyPlan, ApplyReport
    from ddbio.ops.lake.maintain import MaintainReport


@takes(ApplyOptions)
def apply(log: str | os.PathLike[str], table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]) -> ApplyReport:
    """Merge what is new of a log of changes into a table of a lake: a newer state of an item wins.

    Parameters
    ----------
    log
        Folder of the log of :func:`capture`.
    table
        Folder of the table: ``s3://bucket/prefix`` or a local one. It is made if there is none.
    **options
        ``format`` is the table's; see :class:`ddbio.ApplyKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such log, or no change was captured yet.
    OptionError
        If the table is not one that changes are applied to, or has another key.
    TargetError
        If other writers are faster again and again, or the log lacks batches that were applied.
    """
    given = {**options, "source": os.fspath(log), "table": os.fspath(table)}
    return applying.apply_log(parse_options(ApplyOptions, given))


@takes(ApplyOptions)
def plan_apply(
    log: str | os.PathLike[str], table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]
) -> ApplyPlan:
    """Return what :func:`apply` would do, and do none of it.

    Parameters
    ----------
    log, table, **options
        As for :func:`apply`.

    Raises
    ------
    NotFoundError
        If there is no such log, or no such table yet.
    """
    given = {**options, "source": os.fspath(log), "table": os.fspath(table)}
    return applying.plan_apply(parse_options(ApplyOptions, given))


@takes(MaintainOptions)
def maintain(table: str | os.PathLike[str], **options: Unpack[MaintainKeywords]) -> MaintainReport:
    """Rewrite the small files of a table of a lake as few, and let old tombstones go.

    Parameters
    ----------
    table
        Folder of the table.
    **options
        ``tombstones_older_than`` names an age; see :class:`ddbio.MaintainKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not make the table.
    TargetError
        If other writers are faster again and again.
    """
    return maintaining.maintain(parse_options(MaintainOptions, {**options, "table": os.fspath(table)}))
