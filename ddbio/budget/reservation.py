"""What every budget offers to the code that sends requests: reservations, grants and settlements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ddbio.budget.pacing import ThrottleScope

__all__ = [
    "HOLD_SECONDS",
    "LONGEST_WAIT_SECONDS",
    "AttemptReplacedError",
    "Budget",
    "BudgetClosedError",
    "Grant",
    "Granted",
    "Reservation",
]

# Settlements move the queue while requests wait in it, and a stopped job should end soon: ask again this often.
LONGEST_WAIT_SECONDS = 0.25
# So long may the latest attempt of a task send requests before it asks again; a later one waits meanwhile.
HOLD_SECONDS = 1.0


class BudgetClosedError(Exception):
    """Report that the job is being stopped: no further request may be sent."""

    def __init__(self, message: str = "the job is being stopped: its budget grants no further requests") -> None:
        super().__init__(message)


class AttemptReplacedError(BudgetClosedError):
    """Report that a later attempt of the same task runs, or may run: this one may send no further request."""


class Grant(NamedTuple):
    """The permission to send one request; it is settled when the response is there.

    Attributes
    ----------
    units
        What the request was charged.
    at_seconds
        When it was granted, in seconds since the budget's first request.
    central
        Whether the job's budget granted it; False if a worker did, from its portion, while the driver was unreachable.
    """

    units: float
    at_seconds: float
    central: bool = True


class Reservation(Protocol):
    """A request's position in the budget's queue; an abandoned one costs its units once and delays nobody."""

    def wait_seconds(self) -> float:
        """Return how long to wait before calling this again, or 0 if the request may be sent.

        Raises
        ------
        BudgetClosedError
            The job is being stopped.
        """

    def grant(self) -> Grant:
        """Return the permission, after ``wait_seconds`` was 0."""


class Granted(Grant):
    """A reservation that waits for nothing, where there is no rate: it is its own grant; see `Reservation`."""

    __slots__ = ()

    def wait_seconds(self) -> float:
        """Return that there is no wait."""
        return 0.0

    def grant(self) -> Grant:
        """Return the permission."""
        return self


class Budget(Protocol):
    """Bounds what a job's requests consume a second; every method may be called from any thread.

    A request is acquired, sent, and settled as soon as its response says what it consumed, before the response is
    decoded. A request that consumed nothing (throttled, rejected, connection lost) is settled with 0 and acquired anew.
    """

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent.

        Raises
        ------
        BudgetClosedError
            The job is being stopped.
        """

    def reserve(self, units: float) -> Reservation:
        """Reserve ``units`` without waiting; raises as ``acquire`` does."""

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant by the units that the request consumed, and count what it brought; never waits."""

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down as its scope demands; a hot key range slows only its own lane."""

    def close(self) -> object:
        """Stop granting and end all waits; later settlements are still counted."""
