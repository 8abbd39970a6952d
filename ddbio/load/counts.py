"""Count what became of the rows of a write, and which partition keys were throttled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_KEYS = 2000
SHOWN_KEYS = 5
# A key that is throttled by chance is throttled once or twice.
FEWEST_TIMES = 3


class HotKeys:
    """Count how often each key was throttled; above ``MOST_KEYS`` keys the less frequent half is dropped."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def add(self, key: str, times: int = 1) -> None:
        """Count one key, given as the JSON text of its value."""
        self._times[key] += times
        if len(self._times) > MOST_KEYS:
            self._times = Counter(dict(self._times.most_common(MOST_KEYS // 2)))

    def merge(self, other: HotKeys) -> None:
        """Add what another one counted."""
        for key, times in other._times.items():
            self.add(key, times)

    def hottest(self) -> dict[str, int]:
        """Return the keys that were throttled most often, the hottest first, with their counts."""
        return {key: times for key, times in self._times.most_common(SHOWN_KEYS) if times >= FEWEST_TIMES}


@dataclass
class WriteCounts:
    """Count what a lane, a task or a job wrote.

    Attributes
    ----------
    rows
        Rows of the source.
    written, skipped, rejected
        Rows that the service acknowledged, rows whose condition failed, and rows that cannot be written.
    retries, unprocessed
        Requests that were sent again, and answers that left some rows unprocessed.
    write_seconds
        From the first request to the last answer.
    hot_keys
        Partition keys that were throttled.
    """

    rows: int = 0
    written: int = 0
    skipped: int = 0
    rejected: int = 0
    retries: int = 0
    unprocessed: int = 0
    write_seconds: float = 0.0
    hot_keys: HotKeys = field(default_factory=HotKeys)

    def merge(self, other: WriteCounts) -> None:
        """Add what another lane or task counted; of the times the longer one is taken."""
        for name in ("rows", "written", "skipped", "rejected", "retries", "unprocessed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.write_seconds = max(self.write_seconds, other.write_seconds)
        self.hot_keys.merge(other.hot_keys)
