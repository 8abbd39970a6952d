"""Options of looking at a capture: how it stands, whether its log is whole, and how its gaps are healed."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, WaitPolicyOptions
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureStatusOptions(ConnectionOptions):
    """Choose a log."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""
    offline: bool = False
    """Look at the log alone; otherwise the stream says how late the capture is, and what it has lost."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureVerifyOptions(ConnectionOptions):
    """Choose a log, and what of it is verified."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""

    images: bool = True
    """Read the rows, too: whether numbers repeat, and, with old images, before which changes one is missing."""
    since: AwareDatetime | None = None
    """Read rows from this time on, with its zone: the rows of the time that is read are held in memory."""
    until: AwareDatetime | None = None
    """Read rows before this time."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureHealOptions(WaitPolicyOptions, LimitOptions):
    """Choose a log whose gaps are healed, and the exports that heal them."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for the incremental exports that the service is asked for."""
    from_export: Names | None = None
    """Folders of incremental exports that are there already, which together cover a gap; no other is asked for."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""
    rcu_per_second: Annotated[float, Field(ge=1)] = 100.0
    """Read units per second for the items that only the table itself can tell."""
