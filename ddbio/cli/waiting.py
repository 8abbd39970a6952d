"""Show on stderr that a job of the service goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ddbio.cli.show import format_duration
from ddbio.core.imports.jobs import BulkJob

if TYPE_CHECKING:
    from ddbio.ops.job.waiting import Job

LINE_SECONDS = 30.0


class JobWatch:
    """Write a line when a job's status changes, and every half minute while it does not.

    Exports, imports and backups count nothing before they end; bulk puts do, and so the time left can be told.
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
        name = job.arn.rpartition("/")[2]
        sys.stderr.write(f"{self._kind} {name}: {job.status}, waited {format_duration(waited)}{_left(job, waited)}\n")
        sys.stderr.flush()


def _left(job: Job, waited: float) -> str:
    if not isinstance(job, BulkJob) or not job.total_bytes or not job.processed_bytes:
        return ""
    done = job.processed_bytes / job.total_bytes
    return f", {done:.0%} done, about {format_duration(waited * (1 - done) / done)} left"
