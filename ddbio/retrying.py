"""Retries of actions after transient errors: exponential back-off with full jitter."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


def full_jitter_seconds(attempt: int, fraction: float, base_seconds: float = 0.05, cap_seconds: float = 20.0) -> float:
    """Return the pause before a retry: a random part of an exponentially growing maximum.

    Parameters
    ----------
    attempt
        The number of retries so far: 0 for the first retry.
    fraction
        The caller's random number in [0, 1).
    base_seconds
        The maximum at attempt 0.
    cap_seconds
        The largest maximum.

    References
    ----------
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return fraction * min(cap_seconds, math.ldexp(base_seconds, min(attempt, 64)))


def retrying(
    action: Callable[[], _Result],
    *,
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool],
    attempts: int,
    base_seconds: float,
    cap_seconds: float = 20.0,
) -> _Result:
    """Return the result of an action, which is repeated after transient errors.

    Parameters
    ----------
    on
        The errors after which it is repeated: their classes, or a function that decides.
    attempts
        Maximum number of attempts; the last attempt raises any error.
    base_seconds, cap_seconds
        As in :func:`full_jitter_seconds`; without a base there are no pauses.
    """
    for attempt in range(attempts - 1):
        try:
            return action()
        except Exception as error:
            may_pass = isinstance(error, on) if isinstance(on, (type, tuple)) else on(error)
            if not may_pass:
                raise
        if base_seconds:
            time.sleep(full_jitter_seconds(attempt, random.random(), base_seconds, cap_seconds))
    return action()
