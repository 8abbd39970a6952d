"""Retries of throttled and transiently failed pages, until a lane made no progress for too long.

``error_codes`` classifies errors. Control calls and reads of objects are retried a few times by ``ddbio.retrying``.
Writes are retried by ``load/write_retries.py`` with the same back-off.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.aws.error_codes import error_code, is_throttled, is_transient, throttling_reasons, to_ddbio_error
from ddbio.budget import BudgetClosedError
from ddbio.budget.pacing import parse_throttle_reason
from ddbio.errors import EndpointError, ThrottledError
from ddbio.retrying import full_jitter_seconds

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from botocore.exceptions import BotoCoreError, ClientError

    from ddbio.budget import Budget
    from ddbio.budget.pacing import ThrottleScope

# The budget also slows down, and a stopped job should end soon.
MAX_PAUSE_SECONDS = 5.0


def backoff_seconds(attempt: int) -> float:
    """Return the pause of a lane before its next attempt: exponential back-off with full jitter."""
    return full_jitter_seconds(attempt, random.random(), cap_seconds=MAX_PAUSE_SECONDS)


def throttled_too_long(what: str, brought: str, idle_seconds: float) -> ThrottledError:
    """Return the error of a lane that was throttled for too long.

    Parameters
    ----------
    what
        Activity and table of the lane.
    brought
        Result of a successful request.
    """
    return ThrottledError(
        f"{what} was throttled for {idle_seconds:.0f} s without {brought}: raise its capacity, lower the budget, or "
        "raise deadline_seconds",
        elapsed_seconds=idle_seconds,
    )


def report_throttle(budget: Budget, error: ClientError | BotoCoreError) -> ThrottleScope:
    """Report a throttled request to a budget, and return the scope of the throttle."""
    reasons, code = throttling_reasons(error), error_code(error)
    scope = parse_throttle_reason(reasons, code)
    budget.throttled(scope, ", ".join(reasons) or code)
    return scope


@dataclass(frozen=True)
class RetryPolicy:
    """Maximum time of a lane without progress, the event that stops it, and the clock of both."""

    deadline_seconds: float
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic

    def pause(self, attempt: int) -> None:
        """Wait before the next attempt.

        Raises
        ------
        BudgetClosedError
            If the job is stopping.
        """
        if self.stop.wait(backoff_seconds(attempt)):
            raise BudgetClosedError

    def check_read(self, error: ClientError | BotoCoreError, operation: str, table: str, idle_seconds: float) -> None:
        """Raise unless a failed Scan or Query should be retried.

        Parameters
        ----------
        idle_seconds
            Time since the lane's last page.

        Raises
        ------
        ThrottledError
            If it was throttled for longer than the deadline.
        EndpointError
            If the endpoint failed for longer than the deadline.
        DdbioError
            If a retry cannot succeed.
        """
        where = f"table {table!r}"
        if is_throttled(error):
            if idle_seconds > self.deadline_seconds:
                raise throttled_too_long(f"reading {where}", "a page", idle_seconds) from error
            return
        failure = to_ddbio_error(error, action=f"dynamodb:{operation}", resource=where)
        if not is_transient(error):
            raise failure from error
        if idle_seconds > self.deadline_seconds:
            raise EndpointError(f"{failure}; gave up after {idle_seconds:.0f} s, deadline_seconds", where) from error
