"""One table with its indexes, and the changes and draws of a write."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from ddbio.items.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.pricing import item_bytes, write_units
from ddbio.testing.refusal import Refusal, invalid, invalid_values
from ddbio.testing.request import to_json
from ddbio.testing.tables.capacity import Draw, Throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from ddbio.items.attribute import Item
    from ddbio.testing.tables.streams import Stream
    from ddbio.testing.tables.vectors import VectorIndex

SortValue: TypeAlias = "bytes | Decimal | tuple[bytes | Decimal, ...]"
"""The sort key of an item. It is a tuple if the index has several sort attributes."""
Key: TypeAlias = "tuple[int, bytes, SortValue] | tuple[int, bytes, SortValue, Key]"
"""The position of an item: hash and bytes of the partition key, sort value, and in an index also the table's key."""

HASH_BITS = 64
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES = 2048, 1024
KEY_TAGS = ("S", "N", "B")

_MISMATCH = "The provided key element does not match the schema"
_MICROS = 1_000_000
_MIN_VECTOR_BYTES = 1024


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    """One attribute of a key: its name, its type and its maximum size."""

    name: str
    tag: str
    max_bytes: int

    def bytes_of(self, value: AttributeValue) -> bytes:
        """Return the raw bytes of a value of this attribute."""
        text: str = value[self.tag]
        return decode_base64(text) if self.tag == "B" else text.encode(errors="replace")

    def sort_value(self, value: AttributeValue) -> bytes | Decimal:
        """Return the sort key of a value: its bytes, or the number."""
        return Decimal(value["N"]) if self.tag == "N" else self.bytes_of(value)


@dataclass(frozen=True, slots=True)
class KeySchema:
    """Partition key and sort key of a table or index.

    A global index has up to four attributes of each kind; a table and a local index have one of each at most.
    """

    partition_attributes: tuple[KeyAttribute, ...]
    sort_attributes: tuple[KeyAttribute, ...] = ()

    @property
    def partition(self) -> KeyAttribute:
        """The first attribute of the partition key."""
        return self.partition_attributes[0]

    @property
    def sort(self) -> KeyAttribute | None:
        """The first attribute of the sort key."""
        return self.sort_attributes[0] if self.sort_attributes else None

    @property
    def attributes(self) -> tuple[KeyAttribute, ...]:
        """The attributes in the order of the schema."""
        return self.partition_attributes + self.sort_attributes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key's attributes in order."""
        return tuple(attribute.name for attribute in self.attributes)

    def partition_bytes(self, item: Item) -> bytes:
        """Return the bytes of the partition key of a checked item. Lengths separate several attributes."""
        values = [attribute.bytes_of(item[attribute.name]) for attribute in self.partition_attributes]
        return values[0] if len(values) == 1 else b"".join(len(value).to_bytes(2, "big") + value for value in values)

    def key_of(self, item: Item) -> tuple[int, bytes, SortValue]:
        """Return the position of a checked item."""
        partition = self.partition_bytes(item)
        sort: SortValue = b""
        if self.sort_attributes:
            values = [attribute.sort_value(item[attribute.name]) for attribute in self.sort_attributes]
            sort = values[0] if len(values) == 1 else tuple(values)
        return (hash_of(partition), partition, sort)

    def part_of(self, item: Item) -> Item:
        """Return the key of a checked item."""
        return {name: item[name] for name in self.names}

    def check_item(self, item: Item) -> None:
        """Raise if the key of an item to write is missing, of the wrong type, empty or too long."""
        for attribute in self.attributes:
            value = item.get(attribute.name)
            if value is None:
                raise invalid_values(f"Missing the key {attribute.name} in the item")
            if attribute.tag not in value:
                raise invalid_values(
                    f"Type mismatch for key {attribute.name} expected: {attribute.tag} actual: {next(iter(value))}"
                )
            self._check_bytes(attribute, value, f"Key: {attribute.name}")

    def check_key(self, key: Item) -> None:
        """Raise if a key does not have exactly this schema's attributes with their types."""
        if set(key) != set(self.names) or any(part.tag not in key[part.name] for part in self.attributes):
            raise invalid(_MISMATCH)
        for attribute in self.attributes:
            self._check_bytes(attribute, key[attribute.name], f"Key: {attribute.name}")

    def check_indexed(self, item: Item, index: str) -> bool:
        """Return whether an index with this key contains an item. Raise on index keys that cannot be stored."""
        for attribute in self.attributes:
            value = item.get(attribute.name)
            if value is None:
                continue
            if attribute.tag not in value:
                raise invalid_values(
                    f"Type mismatch for Index Key {attribute.name} expected: {attribute.tag} "
                    f"actual: {next(iter(value))} IndexName: {index}"
                )
            self._check_bytes(attribute, value, f"IndexName: {index}, IndexKey: {attribute.name}")
        return all(name in item for name in self.names)

    def _check_bytes(self, attribute: KeyAttribute, value: AttributeValue, context: str) -> None:
        size_bytes = len(attribute.bytes_of(value))
        if not size_bytes:
            kind = "binary" if attribute.tag == "B" else "string"
            raise invalid(
                "One or more parameter values are not valid. "
                f"The AttributeValue for a key attribute cannot contain an empty {kind} value. {context}"
            )
        if attribute.tag != "N" and size_bytes > attribute.max_bytes:
            raise _too_long(attribute, is_partition=attribute in self.partition_attributes)


def _too_long(attribute: KeyAttribute, *, is_partition: bool) -> Refusal:
    if is_partition:
        return invalid_values(f"Size of hashkey has exceeded the maximum size limit of {attribute.max_bytes} bytes")
    return invalid_values(
        f"Aggregated size of all range keys has exceeded the size limit of {attribute.max_bytes} bytes"
    )


def base_key(index_key: Key) -> Key:
    """Return the table's key in the key of an index entry."""
    return cast("Key", index_key[-1])


def hash_of(partition_key: bytes) -> int:
    """Return the hash that selects segment and physical partition, in ``0 … 2**64 - 1``.

    It is the same in every process.
    """
    return int.from_bytes(hashlib.blake2b(partition_key, digest_size=HASH_BITS // 8).digest(), "big")


def hash_bounds(part: int, parts: int) -> tuple[int, int]:
    """Return the half-open range of hashes of one of ``parts`` equal parts of the hash space."""
    return (part << HASH_BITS) // parts, ((part + 1) << HASH_BITS) // parts


def part_of_hash(hash_value: int, parts: int) -> int:
    """Return the number of the part of the hash space, out of ``parts`` equal parts, that contains a hash."""
    part = hash_value * parts >> HASH_BITS
    # Bounds are rounded down: a hash just below the exact quotient may already be in the next part.
    return part + (part + 1 < parts and hash_value >= hash_bounds(part + 1, parts)[0])


class Stored(NamedTuple):
    """One item: its DynamoDB JSON and its billed size."""

    json: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All items in order: their keys, their JSON joined by commas, and the offset of each.

    ``starts`` has one element more than there are items; ``sizes`` are running sums with a leading zero.
    """

    keys: list[Key]
    buffer: bytes
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def position(self, bound: tuple[object, ...]) -> int:
        """Return the index of the first key that is not below ``bound``, which may be the start of a key."""
        return bisect_left(self.keys, bound)

    def json_at(self, at: int) -> bytes:
        """Return the JSON of one item."""
        return self.buffer[self.starts[at] : self.starts[at + 1] - 1]

    def json_between(self, first: int, last: int) -> memoryview:
        """Return the JSON of the items ``first … last - 1``, joined by commas, without a copy."""
        if first == last:
            return memoryview(b"")
        return memoryview(self.buffer)[self.starts[first] : self.starts[last] - 1]

    def size_bytes(self, first: int, last: int) -> int:
        """Return the size of the items ``first … last - 1``."""
        return int(self.sizes[last] - self.sizes[first])

    def stored(self, at: int) -> Stored:
        """Return one item."""
        return Stored(self.json_at(at), self.size_bytes(at, at + 1))

    def find(self, key: Key) -> Stored | None:
        """Return the item at exactly this key."""
        at = self.position(key)
        return self.stored(at) if at < len(self.keys) and self.keys[at] == key else None

    def entries(self) -> Iterator[tuple[Key, Stored]]:
        """Yield every key with its item, in order."""
        return ((key, self.stored(at)) for at, key in enumerate(self.keys))


def snapshot_of(entries: Iterable[tuple[Key, Stored]]) -> Snapshot:
    """Return the snapshot of entries that are already in order."""
    listed = list(entries)
    lengths = np.fromiter((len(stored.json) + 1 for _, stored in listed), np.int64, len(listed))
    sizes = np.fromiter((stored.size_bytes for _, stored in listed), np.int64, len(listed))
    return Snapshot(
        keys=[key for key, _ in listed],
        buffer=b",".join(stored.json for _, stored in listed),
        starts=np.concatenate(([0], np.cumsum(lengths))),
        sizes=np.concatenate(([0], np.cumsum(sizes))),
    )


class ItemStore:
    """Items of a table or index: a snapshot and the changes since. It is not safe for concurrent use."""

    def __init__(self) -> None:
        self._snapshot = snapshot_of(())
        self._changes: dict[Key, Stored | None] = {}
        self.listeners: dict[str, Callable[[Key, Stored | None, Stored | None], None]] = {}
        """Called for each replacement with the key and the item before and after it."""
        self.count = 0
        self.size_bytes = 0

    def get(self, key: Key) -> Stored | None:
        """Return the item at a key."""
        return self._changes[key] if key in self._changes else self._snapshot.find(key)

    def replace(self, key: Key, stored: Stored | None) -> None:
        """Put an item at a key, or delete it with None."""
        old = self.get(key)
        self.count += (stored is not None) - (old is not None)
        self.size_bytes += (stored.size_bytes if stored else 0) - (old.size_bytes if old else 0)
        self._changes[key] = stored
        for listen in self.listeners.values():
            listen(key, old, stored)

    def snapshot(self) -> Snapshot:
        """Return all items in order. If anything changed since the last call, this is a pass over the store."""
        if self._changes:
            unchanged = (entry for entry in self._snapshot.entries() if entry[0] not in self._changes)
            added = ((key, stored) for key, stored in self._changes.items() if stored is not None)
            self._snapshot = snapshot_of(sorted(chain(unchanged, added), key=itemgetter(0)))
            self._changes = {}
        return self._snapshot


class Write(NamedTuple):
    """One write, or the net effect of several: its time, and the item before and after it."""

    micros: int
    old: Stored | None
    new: Stored | None


class Journal:
    """All writes to one table since recovery was turned on. No two have the same time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._writes: list[tuple[Key, Write]] = []

    def add(self, key: Key, old: Stored | None, new: Stored | None) -> None:
        """Record one write."""
        last = self._writes[-1][1].micros if self._writes else 0
        self._writes.append((key, Write(max(int(self._now() * _MICROS), last + 1), old, new)))

    def state(self, current: Snapshot, at: float) -> dict[Key, Stored]:
        """Return the items just before a time, computed from the current ones."""
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
        """Return the net change of each item written in ``[start, end)``, except items created and deleted in it."""
        net: dict[Key, Write] = {}
        for key, write in self._writes:
            if start * _MICROS <= write.micros < end * _MICROS:
                old = net[key].old if key in net else write.old
                net[key] = Write(write.micros, old, write.new)
        return {key: write for key, write in net.items() if write.old is not None or write.new is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One secondary index: its key, its projection, and its entries."""

    name: str
    arn: str
    kind: Literal["Global", "Local"]
    keys: KeySchema
    base_keys: KeySchema
    projected: frozenset[str] | None
    """The projected attributes, including keys. None is all attributes."""
    description: dict[str, Any]
    throughput: Throughput
    store: ItemStore = field(default_factory=ItemStore)

    def key_of(self, item: Item) -> Key:
        """Return the position of a checked item or complete index key."""
        return (*self.keys.key_of(item), self.base_keys.key_of(item))

    def entry(self, item: Item | None) -> tuple[Key, Stored] | None:
        """Return the entry of the index for an item, or None if the index does not contain the item."""
        if item is None or not all(name in item for name in self.keys.names):
            return None
        held = item if self.projected is None else {name: item[name] for name in item if name in self.projected}
        return self.key_of(item), Stored(to_json(held), item_bytes(held))


@dataclass(frozen=True, slots=True)
class Change:
    """One planned write: the replaced item, its draws, and the stores to change."""

    stored: Stored | None
    draws: list[Draw]
    """The first is the draw from the table itself."""
    moves: list[tuple[ItemStore, Key, Stored | None]]

    @property
    def old(self) -> Item | None:
        """The item that the write replaces."""
        return None if self.stored is None else json.loads(self.stored.json)

    def apply(self) -> None:
        """Execute the write."""
        for store, key, stored in self.moves:
            store.replace(key, stored)


@dataclass(slots=True, kw_only=True)
class Table:
    """One table. It is not safe for concurrent use."""

    name: str
    arn: str
    keys: KeySchema
    description: dict[str, Any]
    throughput: Throughput
    expiry: str | None = None
    """The attribute of the time to live."""
    recovery: tuple[float, int] | None = None
    """Start and retention in days of point-in-time recovery, or None."""
    journal: Journal | None = None
    """Writes since that start."""
    stream: Stream | None = None
    """The open stream that records writes."""
    tags: dict[str, str] = field(default_factory=dict)
    policy: str | None = None
    """The resource policy."""
    ready_at: float = 0.0
    """Time until which the table is being created, by the server's wall clock."""
    indexes: dict[str, Index] = field(default_factory=dict)
    vector_indexes: dict[str, VectorIndex] = field(default_factory=dict)
    store: ItemStore = field(default_factory=ItemStore)

    def partition_of(self, key: Key) -> int:
        """Return the physical partition of a key."""
        return part_of_hash(key[0], self.throughput.partitions)

    def check_item(self, item: Item) -> None:
        """Raise if the key of an item, or its key of an index, cannot be stored."""
        self.keys.check_item(item)
        for index in self.indexes.values():
            index.keys.check_indexed(item, index.name)
        for vector_index in self.vector_indexes.values():
            vector_index.check_indexed(item)

    def read_item(self, key: Key) -> Item | None:
        """Return the item at a key."""
        stored = self.store.get(key)
        return None if stored is None else json.loads(stored.json)

    def plan_write(self, key: Key, new: Item | None, size_bytes: int = 0) -> Change:
        """Return the change that puts ``new`` at a key, or deletes the key's item."""
        stored = self.store.get(key)
        units = write_units(max(size_bytes, stored.size_bytes if stored else 0))
        change = Change(stored, [Draw(self.arn, "Write", self.partition_of(key), units)], [])
        change.moves.append((self.store, key, None if new is None else Stored(to_json(new), size_bytes)))
        if self.indexes or self.vector_indexes:
            old = change.old
            for index in self.indexes.values():
                self._plan_entry(index, change, index.entry(old), index.entry(new))
            for vector_index in self.vector_indexes.values():
                _plan_vector(vector_index, change, key, vector_index.entry(old), vector_index.entry(new))
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
        """Put checked items without consuming capacity, and return their number. The last of equal keys wins.

        Parameters
        ----------
        settle
            Whether to sort the items immediately. Otherwise the next read does.
        """
        count = 0
        for count, (item, stored) in enumerate(entries, start=1):  # noqa: B007 - the last count is the result
            key = self.keys.key_of(item)
            if self.indexes or self.vector_indexes:
                for store, entry_key, entry in self.plan_write(key, item, stored.size_bytes).moves:
                    store.replace(entry_key, entry)
            else:
                self.store.replace(key, stored)
        if settle:
            self.store.snapshot()
        return count


def _plan_vector(index: VectorIndex, change: Change, key: Key, old: Stored | None, new: Stored | None) -> None:
    if old == new:
        return
    # AWS publishes no rule for the bytes. These are the bytes that others measured, at least 1 KiB.
    size_bytes = max(_MIN_VECTOR_BYTES, *(entry.size_bytes for entry in (old, new) if entry is not None))
    change.draws.append(Draw(index.arn, "Vector", 0, float(size_bytes)))
    change.moves.append((index.store, key, new))
