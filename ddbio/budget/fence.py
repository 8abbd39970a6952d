"""A budget for one attempt of a task, which spends only while no later attempt has begun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddbio.budget.client import BudgetClient
    from ddbio.budget.pacing import ThrottleScope
    from ddbio.budget.reservation import Budget, Grant, Reservation

__all__ = ["FencedBudget"]


@dataclass(frozen=True)
class FencedBudget:
    """Spend a budget as long as the driver holds this attempt of a task for the latest.

    Attributes
    ----------
    budget
        Where the units come from.
    fence
        The attempt, at the driver.
    """

    budget: Budget
    fence: BudgetClient

    def acquire(self, units: float) -> Grant:
        """Wait until a request may be sent; see `Budget.acquire`."""
        grant = self.budget.acquire(units)
        self.fence.hold()
        return grant

    def reserve(self, units: float) -> Reservation:
        """Reserve units without waiting; see `Budget.reserve`."""
        return _FencedReservation(self.budget.reserve(units), self.fence)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count what it brought; see `Budget.settle`."""
        self.budget.settle(grant, consumed, items=items, wire_bytes=wire_bytes)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        self.budget.throttled(scope, detail)

    def close(self) -> object:
        """Stop granting and end all waits."""
        return self.budget.close()


class _FencedReservation:
    """A position in a budget's queue, which is granted only to the latest attempt."""

    def __init__(self, reservation: Reservation, fence: BudgetClient) -> None:
        self._reservation, self._fence = reservation, fence

    def wait_seconds(self) -> float:
        wait_seconds = self._reservation.wait_seconds()
        if not wait_seconds:
            self._fence.hold()
        return wait_seconds

    def grant(self) -> Grant:
        return self._reservation.grant()
