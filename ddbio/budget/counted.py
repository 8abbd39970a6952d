"""Count what is spent of a budget that somebody else holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddbio.budget.pacing import ThrottleScope
    from ddbio.budget.reservation import Budget, Grant, Reservation


@dataclass
class CountedBudget:
    """Spend a budget and count it.

    Attributes
    ----------
    units
        What requests consumed.
    throttles
        Throttled requests by scope.
    """

    budget: Budget
    units: float = 0.0
    throttles: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def acquire(self, units: float) -> Grant:
        """Wait until a request may be sent; see `Budget.acquire`."""
        return self.budget.acquire(units)

    def reserve(self, units: float) -> Reservation:
        """Reserve units without waiting; see `Budget.reserve`."""
        return self.budget.reserve(units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count what it brought; see `Budget.settle`."""
        with self._lock:
            self.units += consumed
        self.budget.settle(grant, consumed, items=items, wire_bytes=wire_bytes)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        with self._lock:
            self.throttles[scope.value] += 1
        self.budget.throttled(scope, detail)

    def close(self) -> object:
        """Stop granting and end all waits."""
        return self.budget.close()
