"""Reuse of objects that are costly to make, limited by their number and size."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class ObjectPool(Generic[_Key, _Value]):
    """Idle objects by key. One thread at a time uses an object. The least recently used are dropped first."""

    def __init__(self, max_objects: int, max_bytes: int) -> None:
        # Every step of ``take`` and ``give_back`` is thread-safe.
        self._idle: deque[tuple[_Key, _Value, int]] = deque(maxlen=max_objects)
        self._max_bytes = max_bytes

    def take(self, key: _Key) -> _Value | None:
        """Remove and return an object that was given back under the key, or return None."""
        for _ in range(len(self._idle)):
            try:
                idle = self._idle.pop()
            except IndexError:
                # Other threads took the rest.
                return None
            if idle[0] == key:
                return idle[1]
            self._idle.appendleft(idle)
        return None

    def give_back(self, key: _Key, value: _Value, n_bytes: int) -> None:
        """Keep an object for the next call. Drop the least recently used objects while the total size is too large."""
        self._idle.append((key, value, n_bytes))
        while sum(n_bytes for _, _, n_bytes in tuple(self._idle)) > self._max_bytes:
            try:
                self._idle.popleft()
            except IndexError:
                return
