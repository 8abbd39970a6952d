"""Raise a rate as fast as an on-demand table learns to bear it; send nothing."""

from __future__ import annotations

from dataclasses import dataclass

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html
NEW_TABLE_WCU = 4_000.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
DOUBLING_SECONDS = 1_800.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
DEFAULT_QUOTA_WCU = 40_000.0


@dataclass(frozen=True, slots=True)
class Ramp:
    """Hold the rate at which a job begins; it doubles every half hour, smoothly."""

    start_per_second: float

    def rate_per_second(self, now: float) -> float:
        """Return the highest rate ``now`` seconds after the first request."""
        return self.start_per_second * 2 ** min(now / DOUBLING_SECONDS, 64.0)
