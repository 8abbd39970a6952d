"""Tell the time of day, which a test may let pass; refuses to go back."""

from __future__ import annotations

import time


class Wall:
    """Hold how far a server's time of day is ahead of this machine's."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self._ahead_seconds

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self._ahead_seconds += max(0.0, seconds)
