"""Polling of a job of an AWS service until it ends, with increasing pauses."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddbio.errors import EndpointError, ThrottledError
from ddbio.jobs.report import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.options import WaitPolicyOptions

_log = logging.getLogger("ddbio.progress")
_LINE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.5
_GROWTH = 1.5
# Final states of exports, imports, bulk puts, backups and tables. Any other status, even a new one, is a running one.
_ENDED = frozenset(
    {
        "ACTIVE",
        "ARCHIVED",
        "AVAILABLE",
        "CANCELLED",
        "DELETED",
        "EXPIRED",
        "INACCESSIBLE_ENCRYPTION_CREDENTIALS",
    }
)


class Job(Protocol):
    """Common interface of jobs."""

    @property
    def arn(self) -> str:
        """Return its ARN."""
        ...

    @property
    def status(self) -> str:
        """Return its status, as the service names it."""
        ...


JobT = TypeVar("JobT", bound=Job)


def await_end(
    describe: Callable[[], JobT], options: WaitPolicyOptions, watch: Callable[[JobT, float], None] | None = None
) -> JobT:
    """Wait until a job has ended, and return its description.

    Parameters
    ----------
    watch
        Called with the job and the elapsed seconds after each description.

    Raises
    ------
    ThrottledError
        If it still runs after ``wait_seconds``. The job continues.
    EndpointError, ThrottledError
        If the endpoint has not responded for ``deadline_seconds``.
    KeyboardInterrupt
        With a message that the job continues.
    """
    clock = Clock()
    seen_at, pause, line_at = 0.0, _FIRST_PAUSE_SECONDS, _LINE_SECONDS
    name = "the requested job"
    while True:
        try:
            job = describe()
        except (EndpointError, ThrottledError):
            # A job of hours survives a network outage of minutes, and throttling by other callers.
            if clock.seconds() - seen_at > options.deadline_seconds:
                raise
        else:
            seen_at, name = clock.seconds(), job.arn
            if watch is not None:
                watch(job, seen_at)
            if job.status in _ENDED or job.status.startswith(("COMPLETED", "FAILED")):
                return job
            if seen_at >= line_at:
                _log.info("%s is %s after %.0f s", job.arn, job.status, seen_at)
                line_at = seen_at + _LINE_SECONDS
            if seen_at > options.wait_seconds:
                message = f"{job.arn} is still {job.status} after {seen_at:.0f} s; it continues: wait again"
                raise ThrottledError(message, 0.0, seen_at)
        try:
            time.sleep(min(pause, options.poll_seconds))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{name} continues") from None
        pause *= _GROWTH
