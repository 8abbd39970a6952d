"""Hold one capacity budget for a whole job, whichever process its requests come from.

Refuses to estimate what a request costs and to retry it: that is the caller's business.
"""

from __future__ import annotations

from ddbio.budget.client import BudgetClient
from ddbio.budget.local import LocalBudget
from ddbio.budget.protocol import Budget, BudgetClosedError, Grant, Reservation
from ddbio.budget.server import BudgetServer
from ddbio.budget.usage import Usage
from ddbio.budget.wire import BudgetAddress

__all__ = [
    "Budget",
    "BudgetAddress",
    "BudgetClient",
    "BudgetClosedError",
    "BudgetServer",
    "Grant",
    "LocalBudget",
    "Reservation",
    "Usage",
]
