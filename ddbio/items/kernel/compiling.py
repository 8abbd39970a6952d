"""Know whether this process compiles loops: what it does meanwhile says nothing of how fast a job goes on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Compilations:
    """Count loops that are compiled, by this process or by another one that it waits for.

    The compiler's own lock keeps threads apart; any thread may ask.
    """

    def __init__(self) -> None:
        self._begun = self._ended = 0
        self._watches: list[Callable[[], None]] = []

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
        if self._begun == self._ended + 1:
            self._tell()

    def end(self) -> None:
        """Count one that has ended, well or not."""
        self._ended += 1
        if not self.is_running:
            self._tell()

    def watch(self, watch: Callable[[], None]) -> None:
        """Call a function when the first begins, and when the last has ended, in the thread that compiles."""
        self._watches.append(watch)

    def unwatch(self, watch: Callable[[], None]) -> None:
        """Call a function no more."""
        if watch in self._watches:
            self._watches.remove(watch)

    def _tell(self) -> None:
        for watch in tuple(self._watches):
            watch()

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
