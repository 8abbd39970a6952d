"""The engine of this process: the effect of a failed task on the others."""

import threading

import pytest

from ddbio.budget import LocalBudget
from ddbio.errors import TargetError
from ddbio.jobs.engine import LocalEngine


def test_a_failure_prevents_queued_tasks():
    """The first error ends the job: the budget ends running tasks, and queued ones never start."""
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
