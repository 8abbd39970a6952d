"""Assignment of work to tasks."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def balance(sizes: Sequence[int], n: int) -> list[list[int]]:
    """Return the indices of each task's pieces of work, for at most ``n`` tasks of similar size.

    The indices of a task are in ascending order. No task is empty, even if pieces have size 0: if there are fewer
    pieces than tasks, each piece is a task. A task exceeds its fair share by at most one piece.

    Parameters
    ----------
    sizes
        The size of each piece in any unit, at least 0.
    n
        The number of tasks.
    """
    tasks: list[list[int]] = [[] for _ in range(min(n, len(sizes)))]
    # Among tasks of equal size choose the one with the fewest pieces, so that pieces of size 0 are distributed too.
    lightest = [(0, 0, number) for number in range(len(tasks))]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size, pieces, number = lightest[0]
        tasks[number].append(index)
        heapq.heapreplace(lightest, (size + sizes[index], pieces + 1, number))
    return [sorted(task) for task in tasks]
