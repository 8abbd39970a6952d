"""The walk over items as text stays within its arrays, and finds what the plain reference finds."""

from __future__ import annotations

from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

TARGET = "spans_target.py"


@BOTH_BUILDS
def test_no_document_makes_the_walk_leave_its_arrays(checked):
    """Damaged documents touch no guard page, and hold the items of the reference, or are refused as by it."""
    assert_writes("True, ", TARGET, "70000", "80", checked=checked)


def test_a_broken_bound_is_seen_at_the_guard_page():
    """Without padding the production build dies of a segmentation fault."""
    assert_dies_at_the_guard_page(TARGET, "70000", "30", "broken")


def test_a_broken_bound_is_seen_by_the_checked_build():
    """Without padding the checked build raises IndexError."""
    assert_fails_a_check(TARGET, "70000", "30", "broken")
