"""Capture changes of tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import prices
from ddbio.ops.capture import audit
from ddbio.ops.capture import capture as capturing
from ddbio.options import CaptureOptions, CaptureStatusOptions, CaptureVerifyOptions, PlanCaptureOptions, parse_options

if TYPE_CHECKING:
    import threading
    from typing import Unpack

    from ddbio.api.keywords import CaptureKeywords, CaptureStatusKeywords, CaptureVerifyKeywords, PlanCaptureKeywords
    from ddbio.core.service_estimates import CapturePlan
    from ddbio.ops.capture.audit import CaptureStatus, CaptureVerifyReport
    from ddbio.ops.capture.capture import CaptureReport


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
