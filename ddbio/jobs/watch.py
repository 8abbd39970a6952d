"""Follow a running job."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from ddbio.budget import LocalBudget

PlanT_contra = TypeVar("PlanT_contra", contravariant=True)


class Watch(Protocol[PlanT_contra]):
    """Follow a running job, to show its progress."""

    def running(self, plan: PlanT_contra, budget: LocalBudget) -> AbstractContextManager[None]:
        """Show the plan, then what the budget has counted while the context is open."""
        ...


class Unwatched:
    """Show nothing."""

    def running(self, plan: Any, budget: LocalBudget) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        del plan, budget
        return nullcontext()
