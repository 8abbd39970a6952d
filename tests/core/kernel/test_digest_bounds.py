from __future__ import annotations

import pytest
from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

COLUMNS, WIRE = "digest_target.py", "wire_target.py"


@BOTH_BUILDS
def test_no_row_makes_the_loops_leave_their_arrays(checked):
    """Generated rows touch no guard page and use no index out of range, and have the digest of their items."""
    assert_writes("200 batches, ", COLUMNS, "90000", "200", checked=checked)


@BOTH_BUILDS
def test_no_document_makes_the_walk_leave_its_arrays(checked):
    """Damaged documents touch no guard page, and are digested or refused as the reference has it."""
    assert_writes("True, ", WIRE, "80000", "150", checked=checked)


BROKEN = pytest.mark.parametrize("target", [COLUMNS, WIRE], ids=["columns", "wire"])


@BROKEN
def test_a_broken_bound_is_seen_at_the_guard_page(target):
    """With a text longer than its bytes, or no padding, the production build dies of a segmentation fault."""
    assert_dies_at_the_guard_page(target, "90000", "50", "broken")


@BROKEN
def test_a_broken_bound_is_seen_by_the_checked_build(target):
    """With a text longer than its bytes, or no padding, the checked build raises IndexError."""
    assert_fails_a_check(target, "90000", "50", "broken")
