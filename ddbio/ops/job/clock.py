"""Measure a verb's wall and CPU time from its start; know nothing of other processes."""

from __future__ import annotations

import time


class Clock:
    """Measure wall time and this process's CPU time since the clock was made."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Return wall seconds so far."""
        return time.monotonic() - self._began

    def cpu_seconds(self) -> float:
        """Return user + system seconds of this process so far."""
        return time.process_time() - self._cpu_began
