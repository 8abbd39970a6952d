"""Repeat pages that AWS throttled or failed for a moment, until a lane has made no progress for too long.

``error_codes`` tells which errors may pass. Control calls and reads of objects are repeated a few times, by
``ddbio.retrying``. Writes are repeated by ``load/write_retries.py``, with the same back-off.
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

# The budget as a whole slows down too, and a stopped job should end soon.
LONGEST_PAUSE_SECONDS = 5.0


def backoff_seconds(attempt: int) -> float:
    """Return how long a lane pauses before its next attempt: exponential back-off with full jitter."""
    return full_jitter_seconds(attempt, random.random(), cap_seconds=LONGEST_PAUSE_SECONDS)


def throttled_too_long(what: str, brought: str, idle_seconds: float) -> ThrottledError:
    """Return the error of a lane that was throttled for too long.

    Parameters
    ----------
    what
        What the lane does, on which table.
    brought
        What a request that got through would have brought.
    """
    return ThrottledError(
        f"{what} was throttled for {idle_seconds:.0f} s without {brought}: raise its capacity, lower the budget, or "
        "raise deadline_seconds",
        elapsed_seconds=idle_seconds,
    )


def report_throttle(budget: Budget, error: ClientError | BotoCoreError) -> ThrottleScope:
    """Let a budget know of a throttled request, and return the scope of the throttle."""
    reasons, code = throttling_reasons(error), error_code(error)
    scope = parse_throttle_reason(reasons, code)
    budget.throttled(scope, ", ".join(reasons) or code)
    return scope


@dataclass(frozen=True)
class RetryPolicy:
    """How long a lane goes on without progress, the event that stops it, and the clock that both go by."""

    deadline_seconds: float
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic

    def pause(self, attempt: int) -> None:
        """Wait before the next attempt.

        Raises
        ------
        BudgetClosedError
            If the job is being stopped.
        """
        if self.stop.wait(backoff_seconds(attempt)):
            raise BudgetClosedError

    def check_read(self, error: ClientError | BotoCoreError, operation: str, table: str, idle_seconds: float) -> None:
        """Raise unless a failed Scan or Query should be repeated.

        Parameters
        ----------
        idle_seconds
            How long the lane has had no page.

        Raises
        ------
        ThrottledError
            If it was throttled for longer than the deadline.
        EndpointError
            If the endpoint failed for longer than the deadline.
        DdbioError
            If repeating cannot succeed.
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
