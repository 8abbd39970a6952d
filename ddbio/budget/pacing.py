"""Pacing of requests to a rate of capacity units, reduced when the service throttles them.

This module neither sleeps nor reads a clock nor draws random numbers: ``now`` (seconds of any monotonic clock) and the
random fraction are arguments, so that a test can simulate an entire job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

# A window of 10 s then contains at most 99 % + 0.75 % saved up + 0.5 % for one page (up to 1/20 s of budget), which
# leaves 1.75 % for bunching below 102 %. A bucket of 0.05 s would cost a single lane 3 % of its rate; 0.1 s gains
# nothing.
PACE_RATIO = 0.99
CAPACITY_SECONDS = 0.075
# A lower value would charge for the usual variation of latencies and miss 97 % in a minute. A higher value exceeds 102
# % after a stall.
BUNCHING_SECONDS = 0.18

DEFAULT_RATIO = 0.5
"""Default ratio of a provisioned table's capacity that a job uses. The other half is for the application."""

CUT_RATIO = 0.7
RECOVERY_RATIO_PER_SECOND = 0.05
CLAMP_RATIO = 0.95
# Throttles of all lanes within one second have the same cause: the rate is cut once for them.
EVENT_SECONDS = 1.0

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html
NEW_TABLE_RCU, NEW_TABLE_WCU = 12_000.0, 4_000.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
DOUBLING_SECONDS = 1_800.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
DEFAULT_QUOTA_WCU = 40_000.0


class ThrottleScope(StrEnum):
    """Limit that a throttled request exceeded. It determines which requests slow down."""

    KEY_RANGE = "key_range"
    TABLE = "table"
    ACCOUNT = "account"
    ON_DEMAND_MAX = "on_demand_max"


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ThrottlingReason.html
# In order from wide to narrow, because the widest of several reasons in a response counts.
_LIMITS = {
    "AccountLimitExceeded": ThrottleScope.ACCOUNT,
    "MaxOnDemandThroughputExceeded": ThrottleScope.ON_DEMAND_MAX,
    "ProvisionedThroughputExceeded": ThrottleScope.TABLE,
    "KeyRangeThroughputExceeded": ThrottleScope.KEY_RANGE,
}


def parse_throttle_reason(reasons: Iterable[str], code: str) -> ThrottleScope:
    """Return the widest scope among a response's throttling reasons, otherwise the scope of its error code.

    Parameters
    ----------
    reasons
        Values of ``ThrottlingReasons[].reason``; unknown ones are ignored.
    code
        The error code, which is used if no reason is known.
    """
    values = tuple(reasons)
    for limit, scope in _LIMITS.items():
        if any(reason.endswith(limit) for reason in values):
            return scope
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
    return ThrottleScope.ACCOUNT if code == "RequestLimitExceeded" else ThrottleScope.TABLE


class TokenBucket:
    """Token bucket that grants units at a steady rate, in the order of reservations.

    A request reserves a position in a queue, measured in units, and asks for the time until all units up to that
    position are paid for. The bucket starts empty, every grant is paid for in full before it is due, and an idle bucket
    saves up at most ``capacity_seconds`` of the rate. In any closed interval of length T the grants that fall due add
    up to at most ``rate * (T + capacity_seconds)``, plus the largest single grant (which is due at one instant), plus
    the units that settlements in the interval returned. Units that settlements charge delay all later positions. An
    unused reservation costs its units once and does not block others.

    Parameters
    ----------
    rate_per_second
        Units granted per second.
    capacity_seconds
        Maximum savings of an idle bucket, in seconds of the rate.
    """

    def __init__(self, rate_per_second: float, capacity_seconds: float = CAPACITY_SECONDS) -> None:
        self._rate_per_second = rate_per_second
        self._capacity_seconds = capacity_seconds
        self._reserved = 0.0
        self._paid = 0.0
        self._paid_at: float | None = None

    @property
    def rate_per_second(self) -> float:
        """Return the rate of grants."""
        return self._rate_per_second

    def reserve(self, units: float, now: float) -> float:
        """Append ``units`` to the queue and return their position."""
        self._pay(now)
        self._reserved += units
        return self._reserved

    def wait_seconds(self, position: float, now: float) -> float:
        """Return the seconds until a position is due, 0 if it is. Settlements may move it, so ask again."""
        self._pay(now)
        return max(0.0, (position - self._paid) / self._rate_per_second)

    def settle(self, delta_units: float, now: float) -> None:
        """Charge ``delta_units`` that an earlier grant cost more than reserved (or less, if negative)."""
        self._pay(now)
        self._paid -= delta_units

    def set_rate(self, rate_per_second: float, now: float) -> None:
        """Change the rate at ``now``, also for earlier reservations."""
        self._pay(now)
        self._rate_per_second = rate_per_second

    def _pay(self, now: float) -> None:
        elapsed_seconds = 0.0 if self._paid_at is None else now - self._paid_at
        saved = self._capacity_seconds * self._rate_per_second
        self._paid = min(self._paid + elapsed_seconds * self._rate_per_second, self._reserved + saved)
        self._paid_at = now


@dataclass(frozen=True, slots=True)
class ThrottleResponse:
    """Rate after throttling: cut immediately, recovered slowly.

    Throttling of a table or an account cuts the rate to 70 %; it grows back by 5 % of the requested rate per second.
    Throttling at the on-demand maximum also lowers the upper limit, permanently, to just below the rate that reached
    it. Under continuous throttling the rate settles at about 12 % of the requested one, so it needs no lower limit.
    """

    ceiling_per_second: float
    growth_per_second: float
    cut_per_second: float = 0.0
    cut_at: float | None = None

    @classmethod
    def asked(cls, rate_per_second: float) -> ThrottleResponse:
        """Return the response before any throttling: the requested rate."""
        return cls(rate_per_second, rate_per_second * RECOVERY_RATIO_PER_SECOND)

    def rate_per_second(self, now: float) -> float:
        """Return the allowed rate at ``now``."""
        if self.cut_at is None:
            return self.ceiling_per_second
        return min(self.ceiling_per_second, self.cut_per_second + self.growth_per_second * (now - self.cut_at))

    def after(self, scope: ThrottleScope, now: float) -> ThrottleResponse:
        """Return the response to another throttled request. A hot key range slows only its lane, not this rate."""
        if scope is ThrottleScope.KEY_RANGE or (self.cut_at is not None and now - self.cut_at < EVENT_SECONDS):
            return self
        rate = self.rate_per_second(now)
        ceiling = rate * CLAMP_RATIO if scope is ThrottleScope.ON_DEMAND_MAX else self.ceiling_per_second
        return replace(self, ceiling_per_second=ceiling, cut_per_second=rate * CUT_RATIO, cut_at=now)


@dataclass(frozen=True, slots=True)
class Ramp:
    """Rate that increases as fast as an on-demand table scales: it doubles every 30 min, smoothly."""

    start_per_second: float

    def rate_per_second(self, now: float) -> float:
        """Return the maximum rate ``now`` seconds after the first request."""
        return self.start_per_second * 2 ** min(now / DOUBLING_SECONDS, 64.0)

    def seconds(self, units: float, most_per_second: float) -> float:
        """Return the seconds for a number of units at the maximum rate, which grows to ``most_per_second``."""
        start, time_constant = self.start_per_second, DOUBLING_SECONDS / math.log(2)
        until_most = max(0.0, most_per_second - start) * time_constant
        if units <= until_most:
            return time_constant * math.log1p(units / (start * time_constant))
        most = max(start, most_per_second)
        return time_constant * math.log(most / start) + (units - until_most) / most


class Pacer:
    """Pacer that keeps a job's consumption within its budget, as the service measures it.

    One bucket schedules the requests. After a stall (a busy machine, a slow network or service) scheduled requests
    reach the service in a bunch, which that bucket cannot detect; but their responses are bunched too. So a second
    bucket observes the responses. If they run ahead of the rate by more than ``BUNCHING_SECONDS``, the excess is
    charged to the first bucket: a burst does not compensate for time lost in a stall. Pages of varying cost above a
    tenth of a second of budget also appear bunched: they get up to 10 % less than the budget, never more.

    Parameters
    ----------
    asked_per_second
        The budget, in units per second.
    ramp
        Additional limit of the rate, for a table that needs time to scale.

    Raises
    ------
    OptionError
        If the budget is not a positive, finite number.
    """

    def __init__(self, asked_per_second: float, ramp: Ramp | None = None) -> None:
        if not 0 < asked_per_second < math.inf:
            raise OptionError(f"a budget of {asked_per_second} units/s cannot be held: give a positive number")
        self._ramp = ramp
        self._response = ThrottleResponse.asked(asked_per_second * PACE_RATIO)
        self._sending = TokenBucket(asked_per_second * PACE_RATIO)
        self._returning = TokenBucket(asked_per_second * PACE_RATIO, BUNCHING_SECONDS)

    def reserve(self, units: float, now: float) -> float:
        """Reserve the estimated ``units`` of a request and return its position."""
        self._follow(now)
        return self._sending.reserve(units, now)

    def wait_seconds(self, position: float, now: float) -> float:
        """Return the seconds until the request at a position may be sent, 0 if it may. Ask again after waiting."""
        self._follow(now)
        return self._sending.wait_seconds(position, now)

    def settle(self, charged: float, consumed: float, now: float) -> None:
        """Replace the reserved units of a request, after its response, by its consumed units."""
        self._follow(now)
        position = self._returning.reserve(charged, now)
        early = self._returning.wait_seconds(position, now) * self._returning.rate_per_second - charged
        if early > 0:
            self._returning.settle(-early, now)
            consumed += early
        self._sending.settle(consumed - charged, now)

    def throttled(self, scope: ThrottleScope, now: float) -> None:
        """Reduce the rate according to the throttle's scope."""
        self._response = self._response.after(scope, now)
        self._follow(now)

    def _follow(self, now: float) -> None:
        rate = self._response.rate_per_second(now)
        if self._ramp is not None:
            rate = min(rate, self._ramp.rate_per_second(now) * PACE_RATIO)
        if rate != self._sending.rate_per_second:
            self._sending.set_rate(rate, now)
            self._returning.set_rate(rate, now)
