"""Look at a job of the service until it ends, ever less often; change nothing about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddbio.errors import ThrottledError
from ddbio.ops.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.options import PatienceOptions

_FIRST_PAUSE_SECONDS = 0.5
_GROWTH = 1.5
_RUNNING = frozenset({"IN_PROGRESS", "CANCELLING", "CREATING"})


class Job(Protocol):
    """State of a job what every kind has."""

    @property
    def arn(self) -> str:
        """Its name."""
        ...

    @property
    def status(self) -> str:
        """Where it is, in the service's own word."""
        ...


JobT = TypeVar("JobT", bound=Job)


def await_end(
    describe: Callable[[], JobT], options: PatienceOptions, watch: Callable[[JobT, float], None] | None = None
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
    """
    clock = Clock()
    pause = _FIRST_PAUSE_SECONDS
    while True:
        job = describe()
        waited = clock.seconds()
        if watch is not None:
            watch(job, waited)
        if job.status not in _RUNNING:
            return job
        if waited > options.wait_seconds:
            message = f"{job.arn} is still {job.status} after {waited:.0f} s; it goes on: wait again"
            raise ThrottledError(message, 0.0, waited)
        time.sleep(min(pause, options.poll_seconds))
        pause *= _GROWTH
