"""Check and order the keys of a table or index; refuses keys that DynamoDB refuses."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, cast

from ddbio.core.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.refusal import Refusal, invalid, invalid_values

Key: TypeAlias = "tuple[int, bytes, bytes | Decimal] | tuple[int, bytes, bytes | Decimal, Key]"
"""Where an item lies: hash of the partition key, its bytes, the sort value; in an index also the table's key."""

HASH_BITS = 64
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES = 2048, 1024
KEY_TAGS = ("S", "N", "B")

_MISMATCH = "The provided key element does not match the schema"


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
        """Return what orders values of this attribute: bytes, or the number itself."""
        return Decimal(value["N"]) if self.tag == "N" else self.bytes_of(value)


@dataclass(frozen=True, slots=True)
class KeySchema:
    """Hold the partition key and, where there is one, the sort key."""

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
        """Return the place of a checked item."""
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
