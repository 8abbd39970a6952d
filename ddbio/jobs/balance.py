"""Distribute work over tasks."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def balance(sizes: Sequence[int], n: int) -> list[list[int]]:
    """Return the indices of the pieces of work of each task: at most ``n`` tasks of about equal size.

    The indices of a task are in ascending order. No task is empty, also where pieces have size 0: there are as many
    tasks as pieces if these are fewer. No task has more than its share and one piece.

    Parameters
    ----------
    sizes
        The size of each piece, in any unit; none is negative.
    n
        The number of tasks.
    """
    tasks: list[list[int]] = [[] for _ in range(min(n, len(sizes)))]
    # Of tasks of equal size the one with the fewest pieces is next, so that pieces of size 0 are distributed too.
    lightest = [(0, 0, number) for number in range(len(tasks))]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size, pieces, number = lightest[0]
        tasks[number].append(index)
        heapq.heapreplace(lightest, (size + sizes[index], pieces + 1, number))
    return [sorted(task) for task in tasks]
