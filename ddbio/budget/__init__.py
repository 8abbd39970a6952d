"""One budget of capacity units a second for a whole job, whichever process its requests come from.

A request reserves its estimated units before it is sent, and is settled by the units that it consumed. Estimates and
retries are the caller's.
"""

from __future__ import annotations

from ddbio.budget.client import BudgetClient, TaskAttempt
from ddbio.budget.fence import FencedBudget
from ddbio.budget.local import LocalBudget, Usage
from ddbio.budget.messages import BudgetAddress
from ddbio.budget.reservation import AttemptReplacedError, Budget, BudgetClosedError, Grant, Granted, Reservation
from ddbio.budget.server import BudgetServer
from ddbio.budget.unlimited import UnlimitedBudget

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
