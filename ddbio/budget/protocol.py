"""Say what a loop that sends requests may ask of a budget; refuses to know which kind of budget answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ddbio.core.pacing import ThrottleScope

__all__ = ["LONGEST_NAP_SECONDS", "Budget", "BudgetClosedError", "Grant", "Reservation"]

# Settlements move the line while requests wait in it, and a stopped job should end soon: ask again this often.
LONGEST_NAP_SECONDS = 0.25


class BudgetClosedError(Exception):
    """Report that the job is being stopped: no further request may be sent."""

    def __init__(self, message: str = "the job is being stopped: its budget grants no further requests") -> None:
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Grant:
    """Hold the permission to send one request, until its response settles it.

    Attributes
    ----------
    units
        What the request was charged with.
    at_seconds
        When it was granted, in seconds of the budget's run.
    central
        Whether the job's one budget granted it, not a worker's own share while that was out of reach.
    """

    units: float
    at_seconds: float
    central: bool = True


class Reservation(Protocol):
    """Hold a request's place in line; one that is not waited for costs its units once and holds up nobody."""

    def wait_seconds(self) -> float:
        """Return how long to wait before asking again, 0 if the request may be sent; ask again at least that often.

        Raises
        ------
        BudgetClosedError
            The job is being stopped.
        """

    def grant(self) -> Grant:
        """Return the permission, once there is nothing to wait for."""


class Budget(Protocol):
    """Bound what a job's requests consume a second; every method may be called from any thread.

    Each request is acquired, sent, and settled as soon as its response tells what it consumed, before the response is
    decoded. A request that consumed nothing (throttled, refused, connection lost) is settled with 0 and acquired anew.
    """

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent.

        Raises
        ------
        BudgetClosedError
            The job is being stopped.
        """

    def reserve(self, units: float) -> Reservation:
        """Take a place in line for a request of estimated ``units``, and wait elsewhere; raises as ``acquire`` does."""

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant by the units the response says it consumed, and count what it brought. Never waits."""

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down as its scope demands; a hot key range is left to its own lane."""

    def close(self) -> object:
        """Stop granting and wake everybody who waits; what is still settled is counted."""
