"""Show on stderr that a job of the service goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ddbio.cli.show import format_duration

if TYPE_CHECKING:
    from ddbio.ops.waiting import Job

LINE_SECONDS = 30.0


class JobWatch:
    """Write a line when a job's status changes, and every half minute while it does not.

    The service counts nothing before a job ends, so there is no share done to show.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._status = ""
        self._told_at = 0.0

    def look(self, job: Job, waited: float) -> None:
        """Take note of how a job is, and how long it has been waited for."""
        if job.status == self._status and waited - self._told_at < LINE_SECONDS:
            return
        self._status, self._told_at = job.status, waited
        sys.stderr.write(f"{self._kind} {job.arn.rpartition('/')[2]}: {job.status}, waited {format_duration(waited)}\n")
        sys.stderr.flush()
