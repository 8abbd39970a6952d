"""Capture changes of tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import prices
from ddbio.ops.capture import audit, heal
from ddbio.ops.capture import capture as capturing
from ddbio.options import (
    CaptureHealOptions,
    CaptureOptions,
    CaptureStatusOptions,
    CaptureVerifyOptions,
    PlanCaptureOptions,
    parse_options,
)

if TYPE_CHECKING:
    import threading
    from typing import Unpack

    from ddbio.api.keywords import (
        CaptureHealKeywords,
        CaptureKeywords,
        CaptureStatusKeywords,
        CaptureVerifyKeywords,
        PlanCaptureKeywords,
    )
    from ddbio.core.service_estimates import CapturePlan
    from ddbio.ops.capture.audit import CaptureStatus, CaptureVerifyReport
    from ddbio.ops.capture.capture import CaptureReport
    from ddbio.ops.capture.heal import CaptureHealPlan, CaptureHealReport


@takes(CaptureOptions)
def capture(
    table: str, dest: str | os.PathLike[str], *, stop: threading.Event | None = None, **options: Unpack[CaptureKeywords]
) -> CaptureReport:
    """Write every change of a table once into a log of Parquet files; go on where the last run stopped.

    Parameters
    ----------
    table
        Name or ARN; it has a stream.
    dest
        ``s3://bucket/prefix`` or a local folder. Files lie by the hour of the change, in UTC, as
        ``year=…/month=…/day=…/hour=…/``.
    stop
        Set it, from another thread, to end the capture when its batch is written.
    **options
        ``available_now`` ends it when all changes that are there are captured; see :class:`ddbio.CaptureKeywords` for
        all.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream.
    GapError
        If changes were gone before they were read.
    TargetError
        If another process captures under this job id.
    """
    given = {**options, "table": table, "dest": os.fspath(dest)}
    return capturing.capture(parse_options(CaptureOptions, given), stop)


@takes(CaptureStatusOptions)
def capture_status(dest: str | os.PathLike[str], **options: Unpack[CaptureStatusKeywords]) -> list[CaptureStatus]:
    """Return how each capture stands that writes a log: positions, batches, whether it runs.

    Parameters
    ----------
    dest
        Folder of the log.
    **options
        ``job_id`` chooses one; see :class:`ddbio.CaptureStatusKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    return audit.capture_status(parse_options(CaptureStatusOptions, {**options, "dest": os.fspath(dest)}))


@takes(CaptureVerifyOptions)
def verify_capture(dest: str | os.PathLike[str], **options: Unpack[CaptureVerifyKeywords]) -> CaptureVerifyReport:
    """Compare the files of a log with the records of its batches, and count changes that are lost.

    Parameters
    ----------
    dest
        Folder of the log.
    **options
        ``since`` and ``until`` bound the rows that are read; see :class:`ddbio.CaptureVerifyKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no capture.
    """
    return audit.verify_capture(parse_options(CaptureVerifyOptions, {**options, "dest": os.fspath(dest)}))


@takes(PlanCaptureOptions)
def plan_capture(**options: Unpack[PlanCaptureKeywords]) -> CapturePlan:
    """Return what capturing the changes of a table for a month takes and costs; nothing is called.

    Parameters
    ----------
    **options
        ``records_per_second`` and ``item_bytes`` describe the changes; see :class:`ddbio.PlanCaptureKeywords`.

    Raises
    ------
    OptionError
        If an option is wrong.
    LimitError
        If the plan is above ``max_usd``.
    """
    return prices.plan_capture(parse_options(PlanCaptureOptions, options))


@takes(CaptureHealOptions)
def heal_capture(table: str, dest: str | os.PathLike[str], **options: Unpack[CaptureHealKeywords]) -> CaptureHealReport:
    """Fill the gaps of a log from incremental exports: items of which changes were lost get rows in the log.

    A gap that is healed is left alone; a run that was cut off is gone on with.

    Parameters
    ----------
    table
        Name or ARN.
    dest
        Folder of the log.
    **options
        ``export_to`` is where the service puts the exports, or ``from_export`` names those that are there; see
        :class:`ddbio.CaptureHealKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    OptionError
        If the table's point-in-time recovery does not reach back to a gap.
    ExportIncompleteError
        If the given exports do not cover a gap, or one is damaged.
    """
    given = {**options, "table": table, "dest": os.fspath(dest)}
    return heal.heal_capture(parse_options(CaptureHealOptions, given))


@takes(CaptureHealOptions)
def plan_heal_capture(
    table: str, dest: str | os.PathLike[str], **options: Unpack[CaptureHealKeywords]
) -> CaptureHealPlan:
    """Return the gaps of a log, and what it takes and costs to fill them; nothing is exported or written.

    Raises
    ------
    NotFoundError, OptionError
        As :func:`heal_capture`.
    """
    given = {**options, "table": table, "dest": os.fspath(dest)}
    return heal.plan_of(parse_options(CaptureHealOptions, given))
