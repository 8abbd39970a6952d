"""Definition of the digest of items in plain Python. It does not depend on the order of items or on file boundaries.

``docs/digest.md`` defines it in words. Every value is hashed to two words under a key for its position: below a name,
at an index of a list, or in a set. Hashes of unordered things are summed. ``digest_columns`` and ``digest_json``
compute the same value by compiled loops, and tests compare them with this module. The digest detects accidents, not an
adversary. Items must have been checked: only numbers and base64 are validated here.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ddbio.items.attribute import decode_base64
from ddbio.items.number import canonical_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddbio.items.attribute import AttributeValue, Item

Pair: TypeAlias = tuple[int, int]
"""Two words of 64 bits: the two lanes of a hash."""

# The first hexadecimal digits of the fraction of pi. The last factors are made odd.
START: Final[Pair] = (0x243F6A8885A308D3, 0x13198A2E03707344)
BLOCK: Final[Pair] = (0xA4093822299F31D0, 0x082EFA98EC4E6C89)
FINAL: Final[Pair] = (0x452821E638D01377, 0xC0AC29B7C97C50DD)

S, N, B, BOOL, NULL, SS, NS, BS, L, M, NAME, INDEX, ELEMENT, ITEM = range(1, 15)
"""Codes of hashed values: a type, or a kind of key."""

EXPONENT_OFFSET: Final = -200
"""Less than the exponent of any number without trailing zeros."""

_CODES: dict[str, int] = {"SS": SS, "NS": NS, "BS": BS}
_MODULUS, _WORD = 1 << 128, (1 << 64) - 1
_BLOCK_BYTES = 16


@dataclass(slots=True)
class Digest:
    """Sum of the hashes of items. Equal multisets of items have equal digests."""

    count: int = 0
    total: int = 0

    def add_items(self, items: Iterable[Item]) -> None:
        """Add each item.

        Raises
        ------
        DecodeError
            A number or a binary is invalid.
        """
        count, total = 0, 0
        for item in items:
            total += item_hash(item)
            count += 1
        self.count += count
        self.total = (self.total + total) % _MODULUS

    def merge(self, other: Digest) -> None:
        """Add all items of another digest."""
        self.count += other.count
        self.total = (self.total + other.total) % _MODULUS

    @classmethod
    def merged(cls, digests: Iterable[Digest]) -> Digest:
        """Return the digest of all items of some digests."""
        merged = cls()
        for digest in digests:
            merged.merge(digest)
        return merged

    @classmethod
    def from_hex(cls, count: int, text: str) -> Digest:
        """Return the digest of ``count`` items with this ``hexdigest``."""
        return cls(count, int(text, 16))

    def hexdigest(self) -> str:
        """Return the sum as 32 hexadecimal digits."""
        return f"{self.total:032x}"

    def as_tuple(self) -> tuple[int, int]:
        """Return count and sum, the arguments of ``Digest``."""
        return self.count, self.total


def item_hash(item: Item) -> int:
    """Return the 128-bit hash of an item. It does not depend on the text encoding."""
    high, low = _hash_words(START, members_hash(item), 0, ITEM)
    return high << 64 | low


def members_hash(members: Item) -> Pair:
    """Return the sum of the hashes of named values."""
    return _sum(value_hash(name_key(name), value) for name, value in members.items())


def value_hash(key: Pair, value: AttributeValue) -> Pair:  # noqa: PLR0911 - one line a type
    """Return the hash of an attribute value under a key. It does not depend on the text encoding."""
    ((tag, content),) = value.items()
    match tag:
        case "S":
            return _bytes_hash(key, content.encode(), S)
        case "N":
            return _number_hash(key, content)
        case "B":
            return _bytes_hash(key, decode_base64(content), B)
        case "BOOL":
            return _hash_words(key, (), bool(content), BOOL)
        case "NULL":
            return _hash_words(key, (), 0, NULL)
        case "L":
            elements = _sum(value_hash(index_key(index), element) for index, element in enumerate(content))
            return _hash_words(key, elements, 0, L)
        case "M":
            return _hash_words(key, members_hash(content), 0, M)
    # All elements of a set have the same key.
    return _hash_words(key, _sum(value_hash(ELEMENT_KEY, {tag[0]: element}) for element in content), 0, _CODES[tag])


@functools.lru_cache(maxsize=1 << 12)
def name_key(name: str) -> Pair:
    """Return the key of a value under a name, in an item or in a map."""
    return _bytes_hash(START, name.encode(), NAME)


@functools.lru_cache(maxsize=1 << 12)
def index_key(index: int) -> Pair:
    """Return the key of a list's element by its index, from 0."""
    return _hash_words(START, (index, 0), 0, INDEX)


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _WORD


def _hash_words(key: Pair, words: Sequence[int], size: int, code: int) -> Pair:
    """Return the hash of an even number of words, their size in bytes, and the code of their type."""
    left, right = key
    for index in range(0, len(words), 2):
        first, second = words[index], words[index + 1]
        left, right = _fold(first ^ BLOCK[0], second ^ left), _fold(first ^ BLOCK[1], second ^ right)
    last = size << 8 | code
    return _fold(left ^ last, FINAL[0]), _fold(right ^ last, FINAL[1])


def _bytes_hash(key: Pair, data: bytes, code: int) -> Pair:
    n_blocks = -(-len(data) // _BLOCK_BYTES)
    words = struct.unpack(f"<{2 * n_blocks}Q", data.ljust(n_blocks * _BLOCK_BYTES, b"\0"))
    return _hash_words(key, words, len(data), code)


def _number_hash(key: Pair, text: str) -> Pair:
    plain = canonical_number(text)
    integer, _, fraction = plain.removeprefix("-").partition(".")
    coefficient = (integer + fraction).rstrip("0")
    if not coefficient:
        return _hash_words(key, (0, 0), 0, N)
    exponent = len(integer) - len(coefficient)
    magnitude = int(coefficient)
    size = 2 * (exponent - EXPONENT_OFFSET) + plain.startswith("-")
    return _hash_words(key, (magnitude & _WORD, magnitude >> 64), size, N)


def _sum(hashes: Iterable[Pair]) -> Pair:
    left = right = 0
    for one, other in hashes:
        left += one
        right += other
    return left & _WORD, right & _WORD


ELEMENT_KEY: Final = _hash_words(START, (), 0, ELEMENT)
"""The key of every element of a set."""
