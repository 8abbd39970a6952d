"""Keep objects that are costly to make from one call to the next, up to a number of them and of bytes."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class ObjectPool(Generic[_Key, _Value]):
    """Hold idle objects by key, for one thread at a time each; the least recently used are dropped first."""

    def __init__(self, most: int, most_bytes: int) -> None:
        # Every step of taking or giving back is safe among threads.
        self._idle: deque[tuple[_Key, _Value, int]] = deque(maxlen=most)
        self._most_bytes = most_bytes

    def take(self, key: _Key) -> _Value | None:
        """Remove and return an object that was given back under the key, or return None."""
        for _ in range(len(self._idle)):
            try:
                idle = self._idle.pop()
            except IndexError:
                # Other threads took them.
                return None
            if idle[0] == key:
                return idle[1]
            self._idle.appendleft(idle)
        return None

    def give_back(self, key: _Key, value: _Value, n_bytes: int) -> None:
        """Keep an object for the next call; drop the least recently used while all together have too many bytes."""
        self._idle.append((key, value, n_bytes))
        while sum(each for _, _, each in tuple(self._idle)) > self._most_bytes:
            try:
                self._idle.popleft()
            except IndexError:
                return
