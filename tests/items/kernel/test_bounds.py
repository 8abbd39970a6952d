"""No loop leaves its arrays, whatever its input: each target runs whole, and with a bound that is broken.

The commit tier runs the production build of the loops, with guard pages behind their arrays; the nightly tier also runs
the build with checked indices.
"""

from __future__ import annotations

import functools
import signal
from typing import NamedTuple

import pytest
from forked_targets import Ended, run


class Target(NamedTuple):
    """What a target writes at its end, its first seed, and how many inputs it makes: whole, and with a broken bound."""

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
WITH_CHECKED_INDICES = [pytest.mark.nightly, pytest.mark.timeout(1800)]  # the loops are compiled anew
BOTH_BUILDS = pytest.mark.parametrize(
    "checked",
    [
        pytest.param(False, id="at a guard page"),
        pytest.param(True, id="with checked indices", marks=WITH_CHECKED_INDICES),
    ],
)


@functools.cache
def ended(first_seed: int, *, checked: bool) -> dict[tuple[str, bool], Ended]:
    """Return how each target ended, whole and broken, with the seeds of the whole ones shifted."""
    whole = {(name, False): (name, str(first_seed + each.seed), str(each.count)) for name, each in TARGETS.items()}
    broken = {(name, True): (name, str(each.seed), str(each.broken_count), "broken") for name, each in TARGETS.items()}
    found = run(*whole.values(), *broken.values(), checked=checked)
    return {key: found[words] for key, words in (whole | broken).items()}


@pytest.fixture
def ended_of(seeds):
    """Return a function of a build to how the targets ended with the seeds of this tier."""
    return functools.partial(ended, seeds(1, 1).start)


@BOTH_BUILDS
@EACH_TARGET
def test_no_input_makes_the_loops_leave_their_arrays(target, checked, ended_of):
    """Damaged input touches no guard page and uses no index out of range, and the results are the reference's."""
    found = ended_of(checked=checked)[target, False]
    assert found.code == 0, found.errors[-2000:]
    assert found.written == f"{TARGETS[target].written}checked: {checked}\n"


@EACH_TARGET
def test_a_broken_bound_is_seen_at_the_guard_page(target, ended_of):
    """Without padding, or with an offset that is too large, the production build dies of a segmentation fault."""
    assert ended_of(checked=False)[target, True].code == -signal.SIGSEGV


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@EACH_TARGET
def test_a_broken_bound_is_seen_by_the_checked_build(target, ended_of):
    """Without padding, or with an offset that is too large, the checked build raises IndexError."""
    found = ended_of(checked=True)[target, True]
    assert found.code == 1
    assert "IndexError" in found.errors
