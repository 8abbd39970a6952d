"""Say what a capture has cost, and end it by time or by cost."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.budget.job_limits import STOP_RATIO
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import GB, Figures, compute_parts, is_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.cdc.loop import CaptureLoop
    from ddbio.cdc.options import CaptureOptions
    from ddbio.jobs.estimate import Part, Prices

# Assumed: a file is put, and its batch is recorded.
_WRITES_A_FILE = 2
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Spending:
    """Price what captures have read and written; sampling the table for its columns is not counted."""

    options: CaptureOptions
    loops: Sequence[CaptureLoop]
    prices: Prices

    @staticmethod
    def of(options: CaptureOptions, loops: Sequence[CaptureLoop]) -> Spending:
        """Return what captures spend by the prices that their options choose."""
        return Spending(options, loops, prices_of(options.region, options.prices))

    def figures(self, seconds: float) -> Figures:
        """Return what was taken so far."""
        options, loops = self.options, self.loops
        size = sum(each.read_bytes for each in loops)
        parts: list[Part] = [
            ("reads of the stream", "stream_reads", sum(each.reads for each in loops))
            if options.source == "streams"
            else ("Kinesis out", "kinesis_out", size / GB),
            *compute_parts(options.compute, seconds),
        ]
        if is_s3(options.dest):
            parts.append(("S3 writes", "s3_writes", _WRITES_A_FILE * sum(each.log.files for each in loops)))
        return Figures(0.0, seconds, size, self.prices.cost(parts).usd)

    def exceeded(self, seconds: float) -> bool:
        """Return whether more than a tenth above the limit is spent."""
        if self.options.max_usd is None:
            return False
        return (self.figures(seconds).usd or 0.0) > STOP_RATIO * self.options.max_usd


class BoundedStop(threading.Event):
    """Be set when another event is, after so many seconds, or when something is exceeded: looked at now and then.

    Parameters
    ----------
    exceeded
        Takes the seconds since this was made.
    """

    def __init__(self, stop: threading.Event, seconds: float | None, exceeded: Callable[[float], bool]) -> None:
        super().__init__()
        self._stop, self._seconds, self._exceeded = stop, math.inf if seconds is None else seconds, exceeded
        self._began_at = self._looked_at = time.monotonic()

    def is_set(self) -> bool:
        """Return whether it is time to stop."""
        if super().is_set() or self._stop.is_set():
            return True
        now = time.monotonic()
        is_over = now - self._began_at >= self._seconds
        if not is_over and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            is_over = self._exceeded(now - self._began_at)
        if is_over:
            self.set()
        return is_over

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for as long, or until it is set."""
        left = self._seconds - (time.monotonic() - self._began_at)
        self._stop.wait(max(0.0, min(_LOOK_SECONDS if timeout is None else timeout, left)))
        return self.is_set()
