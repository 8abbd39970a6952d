"""Know whether this process compiles loops: what it does meanwhile says nothing of how fast a job goes on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Compilations:
    """Count loops that are compiled, by this process or by another one that it waits for.

    The compiler's own lock keeps threads apart; any thread may ask.
    """

    def __init__(self) -> None:
        self._begun = self._ended = 0

    @property
    def ended(self) -> int:
        """Return how many have ended so far."""
        return self._ended

    @property
    def is_running(self) -> bool:
        """Return whether one runs now."""
        return self._begun > self._ended

    def begin(self) -> None:
        """Count one that begins."""
        self._begun += 1

    def end(self) -> None:
        """Count one that has ended, well or not."""
        self._ended += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count one for as long as the context is open."""
        self.begin()
        try:
            yield
        finally:
            self.end()


COMPILATIONS = Compilations()
"""Those of this process."""
