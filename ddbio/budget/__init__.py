"""One budget of capacity units a second for a whole job, whichever process its requests come from.

A request reserves its estimated units before it is sent, and is settled by the units that it consumed. Estimates and
retries are the caller's.
"""

from __future__ import annotations

from ddbio.budget.client import BudgetAddress, BudgetClient, TaskAttempt
from ddbio.budget.local import (
    AttemptReplacedError,
    Budget,
    BudgetClosedError,
    Grant,
    Granted,
    LocalBudget,
    Reservation,
    Usage,
)
from ddbio.budget.server import BudgetServer
from ddbio.budget.worker import FencedBudget, UnlimitedBudget

__all__ = [
    "AttemptReplacedError",
    "Budget",
    "BudgetAddress",
    "BudgetClient",
    "BudgetClosedError",
    "BudgetServer",
    "FencedBudget",
    "Grant",
    "Granted",
    "LocalBudget",
    "Reservation",
    "TaskAttempt",
    "UnlimitedBudget",
    "Usage",
]
