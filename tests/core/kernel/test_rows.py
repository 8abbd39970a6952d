from __future__ import annotations

from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

TARGET = "rows_target.py"


@BOTH_BUILDS
def test_no_row_makes_the_loop_leave_its_arrays(checked):
    """Rows that end where their memory ends are joined as the plain way joins them."""
    assert_writes("", TARGET, "1", "500", checked=checked)


def test_a_broken_bound_is_seen_at_the_guard_page():
    """With an offset behind the data the production build dies of a segmentation fault: the guard page works."""
    assert_dies_at_the_guard_page(TARGET, "1", "500", "broken")


def test_a_broken_bound_is_seen_by_the_checked_build():
    """With an offset behind the data the checked build raises IndexError: its checks work."""
    assert_fails_a_check(TARGET, "1", "500", "broken")
