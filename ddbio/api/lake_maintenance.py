"""Make tables of a lake follow DynamoDB tables, and repair what their logs have lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.lake import bootstrap as bootstrapping
from ddbio.ops.lake import reconcile as reconciling
from ddbio.options import BootstrapOptions, ReconcileOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import BootstrapKeywords, ReconcileKeywords
    from ddbio.ops.lake.bootstrap import BootstrapReport
    from ddbio.ops.lake.reconcile import ReconcilePlan, ReconcileReport


@takes(BootstrapOptions)
def bootstrap(table: str, target: str | os.PathLike[str], **options: Unpack[BootstrapKeywords]) -> BootstrapReport:
    """Make a table of a lake hold what a DynamoDB table holds, or bring it up to date: log, base, and changes over it.

    Parameters
    ----------
    table
        Name or ARN of the table, which has a stream.
    target
        Folder of the lake table: ``s3://bucket/prefix`` or a local one.
    **options
        ``log`` is the folder of the log of changes; see :class:`ddbio.BootstrapKeywords` for all.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream, or no catalog could name the lake table.
    TargetError
        If another process writes the log or the lake table, or changes are lost again and again, or the table of the
        catalog is another one.
    EndpointError
        If the catalog does not answer.
    """
    return bootstrapping.bootstrap(parse_options(BootstrapOptions, _given(table, None, target, options)))


@takes(ReconcileOptions)
def reconcile(
    table: str,
    dest: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    **options: Unpack[ReconcileKeywords],
) -> ReconcileReport:
    """Compare each closed window of a log of changes with an incremental export; count and repair what it lost.

    Parameters
    ----------
    table
        Name or ARN of the table.
    dest
        Folder of the log of :func:`capture`.
    target
        Folder of a lake table that the log is applied to afterwards.
    **options
        ``export_to`` is where the service exports to; see :class:`ddbio.ReconcileKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    OptionError
        If exports have to be asked for and ``export_to`` is missing, or the service has none so far back.
    ExportIncompleteError
        If the given exports do not cover a window, or one is damaged.
    TargetError
        If another process reconciles this log.
    """
    return reconciling.reconcile(parse_options(ReconcileOptions, _given(table, dest, target, options)))


@takes(ReconcileOptions)
def plan_reconcile(table: str, dest: str | os.PathLike[str], **options: Unpack[ReconcileKeywords]) -> ReconcilePlan:
    """Return which windows :func:`reconcile` would look at, and what their exports cost; nothing is asked for.

    Parameters
    ----------
    table, dest, **options
        As for :func:`reconcile`.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    LimitError
        If the plan is above a limit.
    """
    return reconciling.plan_reconcile(parse_options(ReconcileOptions, _given(table, dest, None, options)))


def _given(
    table: str, dest: str | os.PathLike[str] | None, target: str | os.PathLike[str] | None, options: object
) -> dict[str, object]:
    places = {name: os.fspath(place) for name, place in (("dest", dest), ("target", target)) if place is not None}
    return {**options, "table": table, **places}  # type: ignore[dict-item]
