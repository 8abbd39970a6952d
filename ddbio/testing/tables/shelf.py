"""Hold items in hash order as wire JSON, so that a page is one slice of bytes; refuses to know what an item means."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from ddbio.testing.tables.schema import Key


class Stored(NamedTuple):
    """Hold one item: its wire JSON and its size as DynamoDB bills it."""

    wire: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Frozen:
    """Hold a shelf at rest: keys in order, the items' JSON joined by commas, and where each begins.

    ``starts`` has one place more than there are items; ``sizes`` are running sums with a leading zero.
    """

    keys: list[Key]
    buffer: bytes
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def position(self, bound: tuple[object, ...]) -> int:
        """Return the place of the first key that is not below ``bound``, which may be the beginning of a key."""
        return bisect_left(self.keys, bound)

    def wire(self, at: int) -> bytes:
        """Return the JSON of one item."""
        return self.buffer[self.starts[at] : self.starts[at + 1] - 1]

    def wires(self, first: int, last: int) -> memoryview:
        """Return the JSON of the items ``first … last - 1``, joined by commas, without a copy."""
        if first == last:
            return memoryview(b"")
        return memoryview(self.buffer)[self.starts[first] : self.starts[last] - 1]

    def size_bytes(self, first: int, last: int) -> int:
        """Return the size of the items ``first … last - 1``."""
        return int(self.sizes[last] - self.sizes[first])

    def stored(self, at: int) -> Stored:
        """Return one item."""
        return Stored(self.wire(at), self.size_bytes(at, at + 1))

    def find(self, key: Key) -> Stored | None:
        """Return the item at exactly this key."""
        at = self.position(key)
        return self.stored(at) if at < len(self.keys) and self.keys[at] == key else None

    def entries(self) -> Iterator[tuple[Key, Stored]]:
        """Yield every key with its item, in order."""
        return ((key, self.stored(at)) for at, key in enumerate(self.keys))


def freeze(entries: Iterable[tuple[Key, Stored]]) -> Frozen:
    """Return entries, which are already in order, at rest."""
    listed = list(entries)
    lengths = np.fromiter((len(stored.wire) + 1 for _, stored in listed), np.int64, len(listed))
    sizes = np.fromiter((stored.size_bytes for _, stored in listed), np.int64, len(listed))
    return Frozen(
        keys=[key for key, _ in listed],
        buffer=b",".join(stored.wire for _, stored in listed),
        starts=np.concatenate(([0], np.cumsum(lengths))),
        sizes=np.concatenate(([0], np.cumsum(sizes))),
    )


class Shelf:
    """Hold the items of a table or index: a frozen body and what changed since; not safe for concurrent use."""

    def __init__(self) -> None:
        self._frozen = freeze(())
        self._changes: dict[Key, Stored | None] = {}
        self.told: Callable[[Key, Stored | None, Stored | None], None] | None = None
        """Is told each replacement: the key, and what is there before and after it."""
        self.count = 0
        self.size_bytes = 0

    def get(self, key: Key) -> Stored | None:
        """Return the item at a key."""
        return self._changes[key] if key in self._changes else self._frozen.find(key)

    def replace(self, key: Key, stored: Stored | None) -> None:
        """Put an item at a key, or with None take it away."""
        old = self.get(key)
        self.count += (stored is not None) - (old is not None)
        self.size_bytes += (stored.size_bytes if stored else 0) - (old.size_bytes if old else 0)
        self._changes[key] = stored
        if self.told is not None:
            self.told(key, old, stored)

    def frozen(self) -> Frozen:
        """Return all items in order; costs a pass over the shelf when something changed since the last call."""
        if self._changes:
            kept = (entry for entry in self._frozen.entries() if entry[0] not in self._changes)
            added = ((key, stored) for key, stored in self._changes.items() if stored is not None)
            self._frozen = freeze(sorted(chain(kept, added), key=itemgetter(0)))
            self._changes = {}
        return self._frozen
