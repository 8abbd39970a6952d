"""Assignment of pieces of work to tasks."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ddbio.jobs.balance import balance


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 9))
@example([0, 0], 2)
@example([5, 0, 0, 0], 3)
def test_every_piece_has_one_task_and_no_task_is_empty(sizes, n):
    """Each task has its pieces in order, and exceeds its share by at most one piece."""
    tasks = balance(sizes, n)
    assert sorted(index for task in tasks for index in task) == [*range(len(sizes))]
    assert len(tasks) == min(n, len(sizes))
    for task in tasks:
        assert task
        assert task == sorted(task)
        assert sum(sizes[index] for index in task) <= sum(sizes) / len(tasks) + max(sizes)


def test_pieces_of_no_size_are_distributed_evenly():
    """Ten empty files are five for each of two tasks."""
    assert [len(task) for task in balance([0] * 10, 2)] == [5, 5]
