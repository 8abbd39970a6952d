"""Engine with a shuffle in this process, like Spark's: tasks run in sequence, and keys are partitioned."""

from __future__ import annotations

import pickle

from ddbio.budget import LocalBudget


class VirtualEngine:
    """Engine that runs tasks one after another.

    Parameters
    ----------
    pickles
        Send tasks and results through pickle, as to a worker.
    """

    name, parallelism, cluster, speculates = "spark", 2, None, False

    def __init__(self, *, pickles=False):
        self.sent = (lambda value: pickle.loads(pickle.dumps(value))) if pickles else (lambda value: value)
        self.runs = 0

    def run(self, function, tasks, budget):
        """Return the results of all tasks."""
        assert isinstance(budget, LocalBudget)
        self.runs += 1
        return [self.sent(function(self.sent(task), budget)) for task in tasks]

    def run_shuffled(self, shuffle, tasks, function, budget):
        """Return the results of the tasks that the shuffle creates."""
        parts = [part for task in tasks for part in self.sent(shuffle).split(self.sent(task))]
        gathered = [[] for _ in range(shuffle.partitions)]
        for key, data in sorted(parts, key=lambda part: part[0]):
            gathered[key[0]].append(data)
        return self.run(function, [shuffle.gather(number, streams) for number, streams in enumerate(gathered)], budget)
