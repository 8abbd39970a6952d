"""Remember the writes to a table, so that its state at a time and what a window changed can be told.

Refuses to forget before recovery is turned off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.tables.schema import Key
    from ddbio.testing.tables.shelf import Frozen, Stored

_MICROS = 1_000_000


class Write(NamedTuple):
    """Hold one write, or the net effect of several: when it happened, and the item before and after it."""

    micros: int
    old: Stored | None
    new: Stored | None


class Journal:
    """Hold every write to one table since it was made; no two have the same time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._writes: list[tuple[Key, Write]] = []

    def add(self, key: Key, old: Stored | None, new: Stored | None) -> None:
        """Remember one write."""
        last = self._writes[-1][1].micros if self._writes else 0
        self._writes.append((key, Write(max(int(self._now() * _MICROS), last + 1), old, new)))

    def state(self, current: Frozen, at: float) -> dict[Key, Stored]:
        """Return the items that were there just before a time, from what is there now."""
        items = dict(current.entries())
        for key, write in reversed(self._writes):
            if write.micros < at * _MICROS:
                break
            if write.old is None:
                items.pop(key, None)
            else:
                items[key] = write.old
        return items

    def changes(self, start: float, end: float) -> dict[Key, Write]:
        """Return what became of each item written in ``[start, end)``; not of those that came and went in it."""
        net: dict[Key, Write] = {}
        for key, write in self._writes:
            if start * _MICROS <= write.micros < end * _MICROS:
                old = net[key].old if key in net else write.old
                net[key] = Write(write.micros, old, write.new)
        return {key: write for key, write in net.items() if write.old is not None or write.new is not None}
