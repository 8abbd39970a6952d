from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio import retrying as module
from ddbio.retrying import full_jitter_seconds, retrying


@given(st.integers(min_value=0, max_value=10_000), st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_jitter_stays_below_its_ceiling(attempt: int, fraction: float) -> None:
    """A wait is a share of base x 2^attempt, never above the cap and never an overflow."""
    assert 0.0 <= full_jitter_seconds(attempt, fraction) <= min(20.0, 0.05 * 2 ** min(attempt, 10))


def test_jitter_doubles_until_the_cap() -> None:
    """The ceiling starts at 50 ms, doubles, and ends at 20 s."""
    assert [full_jitter_seconds(n, 0.5) for n in (0, 1, 2, 30)] == pytest.approx([0.025, 0.05, 0.1, 10.0])


@pytest.mark.parametrize("on", [KeyError, (KeyError, OSError), lambda error: isinstance(error, KeyError)])
def test_an_action_is_repeated_after_errors_that_may_pass(monkeypatch: pytest.MonkeyPatch, on) -> None:
    """Pauses grow until the action succeeds."""
    errors: list[Exception] = [KeyError(), KeyError(), KeyError()]
    pauses: list[float] = []
    monkeypatch.setattr(module.random, "random", lambda: 0.5)
    monkeypatch.setattr(module.time, "sleep", pauses.append)

    def action() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert retrying(action, on=on, attempts=4, base_seconds=0.1, cap_seconds=0.3) == "done"
    assert pauses == pytest.approx([0.05, 0.1, 0.15])


@pytest.mark.parametrize(
    ("attempts", "error", "expected"), [(3, KeyError("x"), 3), (1, KeyError("x"), 1), (3, OSError("x"), 1)]
)
def test_the_last_error_and_every_other_error_is_raised(attempts: int, error: Exception, expected: int) -> None:
    """The action is tried this number of times, and no more."""
    tried = []

    def action() -> None:
        tried.append(1)
        raise error

    with pytest.raises(type(error)):
        retrying(action, on=KeyError, attempts=attempts, base_seconds=0)
    assert len(tried) == expected
