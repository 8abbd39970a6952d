"""No loop leaves its arrays for any input: each target runs unmodified, and with a violated bound.

The commit tier runs the production build of the loops, with guard pages after their arrays. The nightly tier also runs
the build with checked indices.
"""

from __future__ import annotations

import functools
import signal
from typing import NamedTuple

import pytest
from forked_targets import Ended, run


class Target(NamedTuple):
    """Output of a target, its first seed, and its number of inputs: unmodified, and with a violated bound."""

    written: str
    seed: int
    count: int
    broken_count: int


TARGETS = {
    "column_chunks_target.py": Target("True, ", 1, 300, 10),
    "decode_target.py": Target("2700 documents, ", 50_000, 100, 100),
    "inference_target.py": Target("True, ", 60_000, 150, 50),
    "encode_target.py": Target("True, ", 70_000, 200, 50),
    "digest_columns_target.py": Target("200 batches, ", 90_000, 200, 50),
    "digest_json_target.py": Target("True, ", 80_000, 150, 50),
    "raw_items_target.py": Target("True, ", 70_000, 80, 30),
    "ion_target.py": Target("True, ", 90_000, 150, 20),
    "gather_target.py": Target("", 1, 200, 200),
    "lake_keys_target.py": Target("", 1, 200, 200),
    "lines_target.py": Target("", 1, 500, 500),
    "members_target.py": Target("True, ", 1, 600, 600),
    "plain_changes_target.py": Target("True, ", 1, 100, 50),
    "typed_items_target.py": Target("True, ", 1, 600, 100),
    "utf8_target.py": Target("", 1, 500, 0),
}

EACH_TARGET = pytest.mark.parametrize("target", TARGETS)
WITH_CHECKED_INDICES = [pytest.mark.nightly, pytest.mark.timeout(1800)]  # the loops are compiled again
BOTH_BUILDS = pytest.mark.parametrize(
    "checked",
    [
        pytest.param(False, id="at a guard page"),
        pytest.param(True, id="with checked indices", marks=WITH_CHECKED_INDICES),
    ],
)


@functools.cache
def ended(first_seed: int, *, checked: bool) -> dict[tuple[str, bool], Ended]:
    """Return the ends of all targets, unmodified and broken, with shifted seeds for the unmodified ones."""
    sound = {
        (name, False): (name, str(first_seed + target.seed), str(target.count)) for name, target in TARGETS.items()
    }
    broken = {
        (name, True): (name, str(target.seed), str(target.broken_count), "broken") for name, target in TARGETS.items()
    }
    ends = run(*sound.values(), *broken.values(), checked=checked)
    return {key: ends[words] for key, words in (sound | broken).items()}


@pytest.fixture
def ended_of(seeds):
    """Return a function from a build to the ends of the targets with the seeds of this tier."""
    return functools.partial(ended, seeds(1, 1).start)


@BOTH_BUILDS
@EACH_TARGET
def test_no_input_makes_the_loops_leave_their_arrays(target, checked, ended_of):
    """Damaged input touches no guard page and uses no index out of range, and the results are the reference's."""
    end = ended_of(checked=checked)[target, False]
    assert end.code == 0, end.errors[-2000:]
    assert end.written == f"{TARGETS[target].written}checked: {checked}\n"


@EACH_TARGET
def test_a_broken_bound_is_seen_at_the_guard_page(target, ended_of):
    """Without padding, or with a too large offset, the production build dies of a segmentation fault."""
    assert ended_of(checked=False)[target, True].code == -signal.SIGSEGV


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@EACH_TARGET
def test_a_broken_bound_is_seen_by_the_checked_build(target, ended_of):
    """Without padding, or with a too large offset, the checked build raises IndexError."""
    end = ended_of(checked=True)[target, True]
    assert end.code == 1
    assert "IndexError" in end.errors
