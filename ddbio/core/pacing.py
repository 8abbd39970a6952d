"""Pace requests to a rate of capacity units, and slow down when the service throttles them.

Nothing here sleeps, reads a clock or draws a random number: ``now`` (seconds of any monotonic clock) and the random
fraction are arguments, so that a test can simulate a whole job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Pacer",
    "Ramp",
    "ThrottleResponse",
    "ThrottleScope",
    "TokenBucket",
    "full_jitter_seconds",
    "parse_throttle_reason",
]

# A window of 10 s then holds 99 % + 0.75 % saved up + 0.5 % one page (which costs up to 1/20 s of budget), and has room
# for bunching below 102 %. A bucket of 0.05 s would cost a lone lane 3 % of its rate, one of 0.1 s gains nothing more.
PACE_RATIO = 0.99
CAPACITY_SECONDS = 0.075
# Less would charge for the ordinary unevenness of latencies and miss 97 % a minute; more misses 102 % after a stall.
BUNCHING_SECONDS = 0.18

CUT_RATIO = 0.7
RECOVERY_RATIO_PER_SECOND = 0.05
CLAMP_RATIO = 0.95
# The throttles of all lanes within one second have one cause: the rate is cut once for them.
EVENT_SECONDS = 1.0

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html
NEW_TABLE_WCU = 4_000.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
DOUBLING_SECONDS = 1_800.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
DEFAULT_QUOTA_WCU = 40_000.0


class ThrottleScope(StrEnum):
    """Name what was too much for the service, and so who has to slow down."""

    KEY_RANGE = "key_range"
    TABLE = "table"
    ACCOUNT = "account"
    ON_DEMAND_MAX = "on_demand_max"


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ThrottlingReason.html
# Widest first: it decides when a response gives several reasons.
_LIMITS = {
    "AccountLimitExceeded": ThrottleScope.ACCOUNT,
    "MaxOnDemandThroughputExceeded": ThrottleScope.ON_DEMAND_MAX,
    "ProvisionedThroughputExceeded": ThrottleScope.TABLE,
    "KeyRangeThroughputExceeded": ThrottleScope.KEY_RANGE,
}


def parse_throttle_reason(reasons: Iterable[str], code: str) -> ThrottleScope:
    """Return the widest scope among the response's throttling reasons, else the one its error code implies.

    Parameters
    ----------
    reasons
        Values of ``ThrottlingReasons[].reason``; unknown ones are passed over.
    code
        The error code, which decides when no reason is known.
    """
    given = tuple(reasons)
    for limit, scope in _LIMITS.items():
        if any(reason.endswith(limit) for reason in given):
            return scope
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
    return ThrottleScope.ACCOUNT if code == "RequestLimitExceeded" else ThrottleScope.TABLE


def full_jitter_seconds(attempt: int, fraction: float, base_seconds: float = 0.05, cap_seconds: float = 20.0) -> float:
    """Return how long to wait before a retry: a random share of an exponentially growing ceiling.

    Parameters
    ----------
    attempt
        Failed attempts before this retry's predecessor: 0 for the first retry.
    fraction
        The caller's random number in [0, 1).
    base_seconds
        The ceiling at attempt 0.
    cap_seconds
        The highest ceiling.

    References
    ----------
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return fraction * min(cap_seconds, math.ldexp(base_seconds, min(attempt, 64)))


class TokenBucket:
    """Grant units at a steady rate, first come first served, without ever making anybody hold them.

    A request reserves a place in line, measured in units, and asks how long until the units up to there are paid for.
    The bucket starts empty, every grant is paid in full before it is due, and idle time saves up at most
    ``capacity_seconds`` of the rate. In any closed interval of length T the grants that fall due sum up to at most
    ``rate * (T + capacity_seconds)``, plus the largest single grant (it falls due at one instant), plus the correction
    error: what the interval's settlements gave back. What they charge holds up everybody still in line. A reservation
    that is never used costs its own units once and holds up nobody.

    Parameters
    ----------
    rate_per_second
        Units granted a second.
    capacity_seconds
        What an idle bucket saves up, in seconds of the rate.
    """

    def __init__(self, rate_per_second: float, capacity_seconds: float = CAPACITY_SECONDS) -> None:
        self._rate_per_second = rate_per_second
        self._capacity_seconds = capacity_seconds
        self._reserved = 0.0
        self._paid = 0.0
        self._paid_at: float | None = None

    @property
    def rate_per_second(self) -> float:
        """Return the rate at which units are granted."""
        return self._rate_per_second

    def reserve(self, units: float, now: float) -> float:
        """Put ``units`` at the end of the line and return their place in it."""
        self._pay(now)
        self._reserved += units
        return self._reserved

    def wait_seconds(self, place: float, now: float) -> float:
        """Return the seconds until a place is due, 0 if it is; later settlements may move it, so ask again."""
        self._pay(now)
        return max(0.0, (place - self._paid) / self._rate_per_second)

    def settle(self, delta_units: float, now: float) -> None:
        """Charge the line with ``delta_units`` that an earlier grant cost more (or less, if negative)."""
        self._pay(now)
        self._paid -= delta_units

    def set_rate(self, rate_per_second: float, now: float) -> None:
        """Grant at another rate from ``now`` on, to those in line too."""
        self._pay(now)
        self._rate_per_second = rate_per_second

    def _pay(self, now: float) -> None:
        elapsed_seconds = 0.0 if self._paid_at is None else now - self._paid_at
        saved = self._capacity_seconds * self._rate_per_second
        self._paid = min(self._paid + elapsed_seconds * self._rate_per_second, self._reserved + saved)
        self._paid_at = now


@dataclass(frozen=True, slots=True)
class ThrottleResponse:
    """Hold the rate that remains of the asked one after throttling: cut at once, regained slowly.

    A table or account throttle cuts the rate to 70 %; it grows back by 5 % of the asked rate a second. The on-demand
    maximum also lowers the ceiling to just under the rate that met it, for good. Under unbroken throttling the rate
    settles at about 12 % of the asked one, so it never needs a floor.
    """

    ceiling_per_second: float
    growth_per_second: float
    cut_per_second: float = 0.0
    cut_at: float | None = None

    @classmethod
    def asked(cls, rate_per_second: float) -> ThrottleResponse:
        """Return the answer to no throttling at all: the asked rate."""
        return cls(rate_per_second, rate_per_second * RECOVERY_RATIO_PER_SECOND)

    def rate_per_second(self, now: float) -> float:
        """Return the rate to keep at ``now``."""
        if self.cut_at is None:
            return self.ceiling_per_second
        return min(self.ceiling_per_second, self.cut_per_second + self.growth_per_second * (now - self.cut_at))

    def after(self, scope: ThrottleScope, now: float) -> ThrottleResponse:
        """Return the response to one more throttle; a hot key range concerns its own lane and changes nothing."""
        if scope is ThrottleScope.KEY_RANGE or (self.cut_at is not None and now - self.cut_at < EVENT_SECONDS):
            return self
        rate = self.rate_per_second(now)
        ceiling = rate * CLAMP_RATIO if scope is ThrottleScope.ON_DEMAND_MAX else self.ceiling_per_second
        return replace(self, ceiling_per_second=ceiling, cut_per_second=rate * CUT_RATIO, cut_at=now)


@dataclass(frozen=True, slots=True)
class Ramp:
    """Raise a rate as fast as an on-demand table scales: it doubles every half hour, smoothly."""

    start_per_second: float

    def rate_per_second(self, now: float) -> float:
        """Return the highest rate ``now`` seconds after the first request."""
        return self.start_per_second * 2 ** min(now / DOUBLING_SECONDS, 64.0)


class Pacer:
    """Keep a job's spending within a budget, as the service sees it.

    One bucket plans when requests are sent. A stall anywhere (a busy machine, a slow network or service) makes
    planned requests reach the service in a bunch, which the plan cannot know; but their responses come back bunched
    too. So a second bucket watches the responses, and whatever they run ahead of the rate by more than
    ``BUNCHING_SECONDS`` is charged to the plan: time lost in a stall is not caught up in a burst. Pages that cost more
    than a tenth of a second of budget, and not always the same, look bunched too: they get up to a tenth less than
    asked, never more.

    Parameters
    ----------
    asked_per_second
        The budget, in units a second.
    ramp
        Bounds the rate besides, for a table that has to get used to it.

    Raises
    ------
    OptionError
        The budget is not a positive, finite number.
    """

    def __init__(self, asked_per_second: float, ramp: Ramp | None = None) -> None:
        if not 0 < asked_per_second < math.inf:
            raise OptionError(f"a budget of {asked_per_second} units/s cannot be held: give a positive number")
        self._ramp = ramp
        self._response = ThrottleResponse.asked(asked_per_second * PACE_RATIO)
        self._sending = TokenBucket(asked_per_second * PACE_RATIO)
        self._returning = TokenBucket(asked_per_second * PACE_RATIO, BUNCHING_SECONDS)

    def reserve(self, units: float, now: float) -> float:
        """Charge a request with its estimated ``units`` and return its place in line."""
        self._follow(now)
        return self._sending.reserve(units, now)

    def wait_seconds(self, place: float, now: float) -> float:
        """Return the seconds until the request at a place may be sent, 0 if it may; ask again after waiting."""
        self._follow(now)
        return self._sending.wait_seconds(place, now)

    def settle(self, charged: float, consumed: float, now: float) -> None:
        """Correct a request's charge, when its response is there, by what it really consumed."""
        self._follow(now)
        place = self._returning.reserve(charged, now)
        early = self._returning.wait_seconds(place, now) * self._returning.rate_per_second - charged
        if early > 0:
            self._returning.settle(-early, now)
            consumed += early
        self._sending.settle(consumed - charged, now)

    def throttled(self, scope: ThrottleScope, now: float) -> None:
        """Slow down as the throttle's scope demands."""
        self._response = self._response.after(scope, now)
        self._follow(now)

    def _follow(self, now: float) -> None:
        rate = self._response.rate_per_second(now)
        if self._ramp is not None:
            rate = min(rate, self._ramp.rate_per_second(now) * PACE_RATIO)
        if rate != self._sending.rate_per_second:
            self._sending.set_rate(rate, now)
            self._returning.set_rate(rate, now)
