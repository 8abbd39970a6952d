"""Keep what is dear to make from one call to the next; refuses to keep more than so many, or so many bytes."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Idle(Generic[_Key, _Value]):
    """Keep objects that no call uses, the last used longest: each is taken by one thread at a time."""

    def __init__(self, most: int, most_bytes: int) -> None:
        # Every step of taking or giving back is safe among threads.
        self._kept: deque[tuple[_Key, _Value, int]] = deque(maxlen=most)
        self._most_bytes = most_bytes

    def take(self, key: _Key) -> _Value | None:
        """Return what was given back under the key, which is then the caller's alone, or None."""
        for _ in range(len(self._kept)):
            try:
                kept = self._kept.pop()
            except IndexError:
                # Other threads took them.
                return None
            if kept[0] == key:
                return kept[1]
            self._kept.appendleft(kept)
        return None

    def give_back(self, key: _Key, value: _Value, n_bytes: int) -> None:
        """Keep a value for the next call, and let go those that were used longest ago if they are too many bytes."""
        self._kept.append((key, value, n_bytes))
        while sum(each for _, _, each in tuple(self._kept)) > self._most_bytes:
            try:
                self._kept.popleft()
            except IndexError:
                return
