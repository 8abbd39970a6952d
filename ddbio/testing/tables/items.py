"""Hold the items of a table in the order of their keys, and the history of its writes.

Items lie in hash order as DynamoDB JSON, so that a page is one slice of bytes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from ddbio.items.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.refusal import Refusal, invalid, invalid_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray


Key: TypeAlias = "tuple[int, bytes, bytes | Decimal] | tuple[int, bytes, bytes | Decimal, Key]"
"""The position of an item: hash of the partition key, its bytes, the sort value; in an index also the table's key."""

HASH_BITS = 64
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES = 2048, 1024
KEY_TAGS = ("S", "N", "B")

_MISMATCH = "The provided key element does not match the schema"
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    """Hold one attribute of a key: its name, its type and the most bytes it may have."""

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
    """Hold the partition key and the sort key, if there is one."""

    partition: KeyAttribute
    sort: KeyAttribute | None = None

    @property
    def attributes(self) -> tuple[KeyAttribute, ...]:
        """The key's attributes in order."""
        return (self.partition,) if self.sort is None else (self.partition, self.sort)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key's attributes in order."""
        return tuple(attribute.name for attribute in self.attributes)

    def key_of(self, item: Item) -> tuple[int, bytes, bytes | Decimal]:
        """Return the position of a checked item."""
        partition = self.partition.bytes_of(item[self.partition.name])
        sort = b"" if self.sort is None else self.sort.sort_value(item[self.sort.name])
        return (hash_of(partition), partition, sort)

    def part_of(self, item: Item) -> Item:
        """Return the key alone of a checked item."""
        return {name: item[name] for name in self.names}

    def check_item(self, item: Item) -> None:
        """Refuse an item to be written whose key is missing, of wrong type, empty or too long."""
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
        """Refuse a key that is not exactly this schema's attributes with their types."""
        if set(key) != set(self.names) or any(part.tag not in key[part.name] for part in self.attributes):
            raise invalid(_MISMATCH)
        for attribute in self.attributes:
            self._check_bytes(attribute, key[attribute.name], f"Key: {attribute.name}")

    def check_indexed(self, item: Item, index: str) -> bool:
        """Return whether an item belongs into an index with this key; refuse index keys that cannot be stored."""
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

    def _check_bytes(self, attribute: KeyAttribute, value: AttributeValue, place: str) -> None:
        size_bytes = len(attribute.bytes_of(value))
        if not size_bytes:
            kind = "binary" if attribute.tag == "B" else "string"
            raise invalid(
                "One or more parameter values are not valid. "
                f"The AttributeValue for a key attribute cannot contain an empty {kind} value. {place}"
            )
        if attribute.tag != "N" and size_bytes > attribute.max_bytes:
            raise _too_long(attribute, is_partition=attribute is self.partition)


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
    """Return the hash that decides segment and physical partition, in ``0 … 2**64 - 1``; the same in every process."""
    return int.from_bytes(hashlib.blake2b(partition_key, digest_size=HASH_BITS // 8).digest(), "big")


def hash_bounds(part: int, parts: int) -> tuple[int, int]:
    """Return the half-open range of hashes of one of ``parts`` equal parts of the hash space."""
    return (part << HASH_BITS) // parts, ((part + 1) << HASH_BITS) // parts


def part_of_hash(hash_value: int, parts: int) -> int:
    """Return which of ``parts`` equal parts of the hash space a hash lies in."""
    part = hash_value * parts >> HASH_BITS
    # Bounds are rounded down: a hash just below the exact quotient may already lie in the next part.
    return part + (part + 1 < parts and hash_value >= hash_bounds(part + 1, parts)[0])


class Stored(NamedTuple):
    """Hold one item: its DynamoDB JSON and its size as DynamoDB bills it."""

    json: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold all items in order: their keys, their JSON joined by commas, and where each begins.

    ``starts`` has one element more than there are items; ``sizes`` are running sums with a leading zero.
    """

    keys: list[Key]
    buffer: bytes
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def position(self, bound: tuple[object, ...]) -> int:
        """Return the index of the first key that is not below ``bound``, which may be the beginning of a key."""
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
    """Hold the items of a table or index: a snapshot and the changes since; not safe for concurrent use."""

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
        """Return all items in order; costs a pass over the store when something changed since the last call."""
        if self._changes:
            unchanged = (entry for entry in self._snapshot.entries() if entry[0] not in self._changes)
            added = ((key, stored) for key, stored in self._changes.items() if stored is not None)
            self._snapshot = snapshot_of(sorted(chain(unchanged, added), key=itemgetter(0)))
            self._changes = {}
        return self._snapshot


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

    def state(self, current: Snapshot, at: float) -> dict[Key, Stored]:
        """Return the items just before a time, computed from the present ones."""
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
        """Return the net change of each item written in ``[start, end)``; items made and deleted in it are left out."""
        net: dict[Key, Write] = {}
        for key, write in self._writes:
            if start * _MICROS <= write.micros < end * _MICROS:
                old = net[key].old if key in net else write.old
                net[key] = Write(write.micros, old, write.new)
        return {key: write for key, write in net.items() if write.old is not None or write.new is not None}
