"""Look at a job of the service until it ends, ever less often; change nothing about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddbio.errors import EndpointError, ThrottledError
from ddbio.ops.job.report import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.options import WaitPolicyOptions

_FIRST_PAUSE_SECONDS = 0.5
_GROWTH = 1.5
# Of exports, imports, bulk puts, backups and tables. What is none of these runs, also if it is new to this version.
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
    """Tell of a job what every kind has."""

    @property
    def arn(self) -> str:
        """Return its name."""
        ...

    @property
    def status(self) -> str:
        """Return where it is, in the service's own word."""
        ...


JobT = TypeVar("JobT", bound=Job)


def await_end(
    describe: Callable[[], JobT], options: WaitPolicyOptions, watch: Callable[[JobT, float], None] | None = None
) -> JobT:
    """Return a job as it is described once it runs no longer.

    Parameters
    ----------
    watch
        Is told the job and the seconds waited so far, after each look.

    Raises
    ------
    ThrottledError
        If it still runs after ``wait_seconds``; it goes on.
    EndpointError, ThrottledError
        If the endpoint has not answered for ``deadline_seconds``.
    KeyboardInterrupt
        With the news that the job goes on.
    """
    clock = Clock()
    seen_at, pause = 0.0, _FIRST_PAUSE_SECONDS
    name = "what the service was asked for"
    while True:
        try:
            job = describe()
        except (EndpointError, ThrottledError):
            # A job of hours outlives a network that is away for minutes, and other people's requests.
            if clock.seconds() - seen_at > options.deadline_seconds:
                raise
        else:
            seen_at, name = clock.seconds(), job.arn
            if watch is not None:
                watch(job, seen_at)
            if job.status in _ENDED or job.status.startswith(("COMPLETED", "FAILED")):
                return job
            if seen_at > options.wait_seconds:
                message = f"{job.arn} is still {job.status} after {seen_at:.0f} s; it goes on: wait again"
                raise ThrottledError(message, 0.0, seen_at)
        try:
            time.sleep(min(pause, options.poll_seconds))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{name} goes on") from None
        pause *= _GROWTH
