"""The engine of this process: what happens to tasks when one of them fails."""

import threading

import pytest

from ddbio.budget import LocalBudget
from ddbio.errors import TargetError
from ddbio.jobs.engine import LocalEngine


def test_a_failure_spares_the_tasks_that_have_not_begun():
    """The first error ends the job: tasks under way are ended by the budget, those in the queue never begin."""
    begun, lock = [], threading.Lock()

    def work(task, budget):
        with lock:
            begun.append(task)
        if task == 0:
            raise TargetError("disk full")
        while True:
            budget.acquire(1e9)

    with pytest.raises(TargetError, match="disk full"):
        LocalEngine().run(work, range(1000), LocalBudget(1.0))
    assert 0 < len(begun) < 1000
