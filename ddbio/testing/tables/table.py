"""Hold one table with its indexes, and compute what a write changes and which units it draws."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ddbio.testing.refusal import item_bytes, write_units
from ddbio.testing.request import to_json
from ddbio.testing.tables.capacity import Draw, Throughput
from ddbio.testing.tables.items import ItemStore, Key, KeySchema, Stored, part_of_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.items.attribute import Item
    from ddbio.testing.tables.items import Journal
    from ddbio.testing.tables.streams import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Hold one secondary index: its own key, what it projects, and its entries."""

    name: str
    arn: str
    kind: Literal["Global", "Local"]
    keys: KeySchema
    base_keys: KeySchema
    projected: frozenset[str] | None
    """The attributes it holds, keys included; None is all of them."""
    description: dict[str, Any]
    throughput: Throughput
    store: ItemStore = field(default_factory=ItemStore)

    def key_of(self, item: Item) -> Key:
        """Return the position of a checked item or whole index key."""
        return (*self.keys.key_of(item), self.base_keys.key_of(item))

    def entry(self, item: Item | None) -> tuple[Key, Stored] | None:
        """Return the entry of the index for an item, or None if the index does not have the item."""
        if item is None or not all(name in item for name in self.keys.names):
            return None
        held = item if self.projected is None else {name: item[name] for name in item if name in self.projected}
        return self.key_of(item), Stored(to_json(held), item_bytes(held))


@dataclass(frozen=True, slots=True)
class Change:
    """Hold one planned write: what it replaces, what it draws, and the stores to change."""

    stored: Stored | None
    draws: list[Draw]
    """First what the table itself pays."""
    moves: list[tuple[ItemStore, Key, Stored | None]]

    @property
    def old(self) -> Item | None:
        """The item that the write replaces."""
        return None if self.stored is None else json.loads(self.stored.json)

    def apply(self) -> None:
        """Carry the write out."""
        for store, key, stored in self.moves:
            store.replace(key, stored)


@dataclass(slots=True, kw_only=True)
class Table:
    """Hold one table; not safe for concurrent use."""

    name: str
    arn: str
    keys: KeySchema
    description: dict[str, Any]
    throughput: Throughput
    expiry: str | None = None
    """The attribute of the time to live."""
    recovery: tuple[float, int] | None = None
    """Since when, and for how many days, a point in time could be recovered."""
    journal: Journal | None = None
    """What was written since then."""
    stream: Stream | None = None
    """What records the writes now."""
    ready_at: float = 0.0
    """Until when the table is being made, by the server's time of day."""
    indexes: dict[str, Index] = field(default_factory=dict)
    store: ItemStore = field(default_factory=ItemStore)

    def partition_of(self, key: Key) -> int:
        """Return the physical partition of a key."""
        return part_of_hash(key[0], self.throughput.partitions)

    def check_item(self, item: Item) -> None:
        """Refuse an item whose key, or key of an index, cannot be stored."""
        self.keys.check_item(item)
        for index in self.indexes.values():
            index.keys.check_indexed(item, index.name)

    def read_item(self, key: Key) -> Item | None:
        """Return the item at a key."""
        stored = self.store.get(key)
        return None if stored is None else json.loads(stored.json)

    def plan_write(self, key: Key, new: Item | None, size_bytes: int = 0) -> Change:
        """Return the change of putting ``new`` at a key, or of deleting its item."""
        stored = self.store.get(key)
        units = write_units(max(size_bytes, stored.size_bytes if stored else 0))
        change = Change(stored, [Draw(self.arn, "Write", self.partition_of(key), units)], [])
        change.moves.append((self.store, key, None if new is None else Stored(to_json(new), size_bytes)))
        if self.indexes:
            old = change.old
            for index in self.indexes.values():
                self._plan_entry(index, change, index.entry(old), index.entry(new))
        return change

    def _plan_entry(
        self, index: Index, change: Change, old: tuple[Key, Stored] | None, new: tuple[Key, Stored] | None
    ) -> None:
        if old == new:
            return
        if old and new and old[0] == new[0]:
            self._draw(index, change, new[0], max(old[1].size_bytes, new[1].size_bytes))
            change.moves.append((index.store, *new))
            return
        if old:
            self._draw(index, change, old[0], old[1].size_bytes)
            change.moves.append((index.store, old[0], None))
        if new:
            self._draw(index, change, new[0], new[1].size_bytes)
            change.moves.append((index.store, *new))

    def _draw(self, index: Index, change: Change, key: Key, size_bytes: int) -> None:
        units = write_units(size_bytes)
        if index.kind == "Local":
            change.draws.append(Draw(self.arn, "Write", self.partition_of(key), units, index.name))
        else:
            partition = part_of_hash(key[0], index.throughput.partitions)
            change.draws.append(Draw(index.arn, "Write", partition, units))

    def load(self, entries: Iterable[tuple[Item, Stored]], *, settle: bool = True) -> int:
        """Put checked items, outside any capacity, the last of equal keys winning; return their number.

        Parameters
        ----------
        settle
            Whether to sort the items at once; otherwise the next read does.
        """
        count = 0
        for count, (item, stored) in enumerate(entries, start=1):  # noqa: B007 - the last count is the result
            key = self.keys.key_of(item)
            if self.indexes:
                for store, place, entry in self.plan_write(key, item, stored.size_bytes).moves:
                    store.replace(place, entry)
            else:
                self.store.replace(key, stored)
        if settle:
            self.store.snapshot()
        return count
