"""An engine that shuffles in this process, as Spark's does: one task after the other, each key to its partition."""

from __future__ import annotations

import pickle

from ddbio.budget import LocalBudget


class VirtualEngine:
    """Run tasks one after the other.

    Parameters
    ----------
    pickles
        Send tasks and results through pickle, as to a worker.
    """

    name, parallelism, cluster, speculates = "spark", 2, None, False

    def __init__(self, *, pickles=False):
        self.sent = (lambda each: pickle.loads(pickle.dumps(each))) if pickles else (lambda each: each)
        self.runs = 0

    def run(self, function, tasks, budget):
        """Return every task's result."""
        assert isinstance(budget, LocalBudget)
        self.runs += 1
        return [self.sent(function(self.sent(task), budget)) for task in tasks]

    def run_shuffled(self, shuffle, tasks, function, budget):
        """Return the results of the tasks that the shuffle makes."""
        parts = [part for task in tasks for part in self.sent(shuffle).split(self.sent(task))]
        gathered = [[] for _ in range(shuffle.partitions)]
        for key, data in sorted(parts, key=lambda part: part[0]):
            gathered[key[0]].append(data)
        return self.run(function, [shuffle.gather(number, each) for number, each in enumerate(gathered)], budget)
