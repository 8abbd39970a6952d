from __future__ import annotations

from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

TARGET = "encode_target.py"


@BOTH_BUILDS
def test_no_row_makes_the_loop_leave_its_arrays(checked):
    """Generated rows touch no guard page, and are taken, sized, printed or refused as the references have it."""
    assert_writes("True, ", TARGET, "70000", "200", checked=checked)


def test_a_broken_bound_is_seen_at_the_guard_page():
    """Without padding the production build dies of a segmentation fault: the guard page works."""
    assert_dies_at_the_guard_page(TARGET, "70000", "50", "broken")


def test_a_broken_bound_is_seen_by_the_checked_build():
    """Without padding the checked build raises IndexError: its checks work."""
    assert_fails_a_check(TARGET, "70000", "50", "broken")
