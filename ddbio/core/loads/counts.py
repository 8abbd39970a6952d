"""Find the partition keys of which many rows are throttled, in bounded memory; decide nothing by them."""

from __future__ import annotations

from collections import Counter

MOST_KEYS = 2000
SHOWN_KEYS = 5
# What came back by chance comes back once or twice.
FEWEST_TIMES = 3


class HotKeys:
    """Count how often each key was throttled; of more than ``MOST_KEYS`` the rarer half is forgotten."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def add(self, key: str, times: int = 1) -> None:
        """Count one key, as the JSON text of its value."""
        self._times[key] += times
        if len(self._times) > MOST_KEYS:
            self._times = Counter(dict(self._times.most_common(MOST_KEYS // 2)))

    def merge(self, other: HotKeys) -> None:
        """Add what another one counted."""
        for key, times in other._times.items():
            self.add(key, times)

    def hottest(self) -> dict[str, int]:
        """Return the keys that were throttled most often, the hottest first, and how often that was."""
        return {key: times for key, times in self._times.most_common(SHOWN_KEYS) if times >= FEWEST_TIMES}
