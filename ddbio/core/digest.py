r"""Digest items independently of their order and partitioning, to prove that source and sink hold the same.

The canonical text of an item is its wire form as UTF-8 JSON with

- no white space; the names of attributes and of map members in the order of their UTF-8 bytes;
- numbers (N, and in NS) in the service's plain spelling: no exponent, no superfluous zero;
- the texts of a set in the order of their UTF-8 bytes, after they were made canonical; lists in their own order;
- binary (B, and in BS) encoded from its bytes as base64 with padding and zero filling bits;
- in strings, only ``"`` ``\`` and U+0000 to U+001F escaped: ``\"`` ``\\`` ``\b`` ``\t`` ``\n`` ``\f`` ``\r``, the rest
  as ``\u`` with four lower-case hexadecimal digits; every other character as itself.

The digest of an item is the blake2b of 16 bytes of that text, read as a big-endian integer; the digest of a table is
the sum of its items' digests modulo 2**128, beside their count. NULL differs from missing. Refuses nothing but numbers
and base64 that are none: it trusts the shape of what it is given.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from json.encoder import encode_basestring as _quoted
from typing import TYPE_CHECKING, Any

from ddbio.core.attribute import canonical_number, decode_base64, encode_base64
from ddbio.core.items import items_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ddbio.core.attribute import AttributeValue, Item

_MODULUS = 1 << 128
_SHORT_INTEGER = re.compile(r"[1-9][0-9]{0,37}")


@dataclass(slots=True)
class Digest:
    """Sum the digests of items; equal for equal multisets of items."""

    count: int = 0
    total: int = 0

    def add_items(self, items: Iterable[Item]) -> None:
        """Add each item.

        Raises
        ------
        DecodeError
            A number or a binary is not one.
        """
        count, total = 0, 0
        for item in items:
            total += int.from_bytes(blake2b(canonical_text(item).encode(), digest_size=16).digest())
            count += 1
        self.count += count
        self.total = (self.total + total) % _MODULUS

    def add_page(self, items_json: bytes) -> None:
        """Add the items of ``{"Items":[…]}``, read by the standard library alone.

        Raises
        ------
        DecodeError
            A number or a binary is not one.
        """
        self.add_items(json.loads(items_json)["Items"])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the item of each row.

        Raises
        ------
        SchemaError, DecodeError
            As ``items_of``.
        """
        self.add_items(items_of(batch))

    def merge(self, other: Digest) -> None:
        """Add everything ``other`` has added."""
        self.count += other.count
        self.total = (self.total + other.total) % _MODULUS

    def hexdigest(self) -> str:
        """Return the sum as 32 hexadecimal digits."""
        return f"{self.total:032x}"

    def as_tuple(self) -> tuple[int, int]:
        """Return count and sum: what ``Digest`` takes."""
        return self.count, self.total


def canonical_text(item: Item) -> str:
    """Return the one text that all spellings of an item share."""
    # Code points sort as their UTF-8 bytes do.
    return "{" + ",".join([f"{_quoted(name)}:{canonical_value(item[name])}" for name in sorted(item)]) + "}"


def canonical_value(value: AttributeValue) -> str:
    """Return the one text that all spellings of an attribute value share."""
    ((tag, content),) = value.items()
    return _WRITERS[tag](content)


def _number(text: str) -> str:
    return text if _SHORT_INTEGER.fullmatch(text) else canonical_number(text)


def _binary(text: str) -> str:
    return encode_base64(decode_base64(text))


def _texts(elements: Iterable[str]) -> str:
    return "[" + ",".join([_quoted(element) for element in sorted(elements)]) + "]"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "S": lambda content: f'{{"S":{_quoted(content)}}}',
    "N": lambda content: f'{{"N":"{_number(content)}"}}',
    "B": lambda content: f'{{"B":"{_binary(content)}"}}',
    "BOOL": lambda content: '{"BOOL":true}' if content else '{"BOOL":false}',
    "NULL": lambda _: '{"NULL":true}',
    "SS": lambda content: f'{{"SS":{_texts(content)}}}',
    "NS": lambda content: f'{{"NS":{_texts(map(_number, content))}}}',
    "BS": lambda content: f'{{"BS":{_texts(map(_binary, content))}}}',
    "L": lambda content: f'{{"L":[{",".join(map(canonical_value, content))}]}}',
    "M": lambda content: f'{{"M":{canonical_text(content)}}}',
}
