"""No loop leaves its arrays, whatever its input: each target runs in both builds, and with a bound that is broken."""

from __future__ import annotations

import pytest
from own_process import BOTH_BUILDS, assert_dies_at_the_guard_page, assert_fails_a_check, assert_writes

# What a target writes, and from which seed how many inputs it makes: whole, and with a broken bound.
TARGETS = {
    "decode_target.py": ("2700 documents, ", "50000", "100", "100"),
    "inference_target.py": ("True, ", "60000", "150", "50"),
    "encode_target.py": ("True, ", "70000", "200", "50"),
    "digest_columns_target.py": ("200 batches, ", "90000", "200", "50"),
    "digest_json_target.py": ("True, ", "80000", "150", "50"),
    "item_spans_target.py": ("True, ", "70000", "80", "30"),
    "ion_target.py": ("True, ", "90000", "150", "20"),
    "gather_target.py": ("", "1", "200", "200"),
    "lake_keys_target.py": ("", "1", "200", "200"),
    "lines_target.py": ("", "1", "500", "500"),
    "utf8_target.py": ("", "1", "500", "0"),
}

EACH_TARGET = pytest.mark.parametrize("target", TARGETS)


@BOTH_BUILDS
@EACH_TARGET
def test_no_input_makes_the_loops_leave_their_arrays(target, checked):
    """Damaged input touches no guard page and uses no index out of range, and the results are the reference's."""
    written, seed, count, _ = TARGETS[target]
    assert_writes(written, target, seed, count, checked=checked)


@EACH_TARGET
def test_a_broken_bound_is_seen_at_the_guard_page(target):
    """Without padding, or with an offset that is too large, the production build dies of a segmentation fault."""
    _, seed, _, count = TARGETS[target]
    assert_dies_at_the_guard_page(target, seed, count, "broken")


@EACH_TARGET
def test_a_broken_bound_is_seen_by_the_checked_build(target):
    """Without padding, or with an offset that is too large, the checked build raises IndexError."""
    _, seed, _, count = TARGETS[target]
    assert_fails_a_check(target, seed, count, "broken")
