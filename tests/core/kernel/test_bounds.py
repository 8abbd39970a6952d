from __future__ import annotations

from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

TARGET = "bounds_target.py"


@BOTH_BUILDS
def test_no_document_makes_the_loops_leave_their_arrays(checked):
    """Damaged documents neither touch a guard page nor use an index out of range."""
    assert_writes("2700 documents, ", TARGET, "50000", "100", checked=checked)


def test_a_broken_bound_is_seen_at_the_guard_page():
    """Without padding the production build dies of a segmentation fault: the guard page works."""
    assert_dies_at_the_guard_page(TARGET, "50000", "100", "broken")


def test_a_broken_bound_is_seen_by_the_checked_build():
    """Without padding the checked build raises IndexError: its checks work."""
    assert_fails_a_check(TARGET, "50000", "100", "broken")
