"""One budget of capacity units per second for a job, shared by all its processes.

A request reserves its estimated units before it is sent, and is settled by its consumed units. Callers are responsible
for estimates and retries.
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
