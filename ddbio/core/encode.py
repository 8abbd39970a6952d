"""Turn record batches into items as bytes of DynamoDB JSON, back to back; refuses rows that make no legal item."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.capacity import item_size_bytes
from ddbio.core.items import items_of
from ddbio.core.json_text import compact_json
from ddbio.errors import DdbioError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.core.attribute import Item

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items
_LARGEST_ITEM_BYTES = 400 * 1024


@dataclass(frozen=True)
class EncodeOptions:
    """Say how values become attributes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Say why a row makes no legal item."""

    row: int
    attribute: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class EncodedItems:
    """Hold a batch's items back to back; a refused row has an empty span."""

    buffer: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    refusals: tuple[Refusal, ...]


class Encoder:
    """Encode batches of one schema."""

    def __init__(
        self, schema: pa.Schema, *, keys: Mapping[str, str] | None = None, options: EncodeOptions | None = None
    ) -> None:
        del options
        self._schema = schema
        self._keys = dict(keys or {})

    def encode(self, batch: pa.RecordBatch) -> EncodedItems:
        """Return the items of a batch."""
        texts: list[bytes] = []
        sizes: list[int] = []
        refusals: list[Refusal] = []
        for row in range(batch.num_rows):
            refusal, text, size = self._encode(batch.slice(row, 1), row)
            if refusal is not None:
                refusals.append(refusal)
            texts.append(text)
            sizes.append(size)
        offsets = np.zeros(batch.num_rows + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        buffer = np.frombuffer(b"".join(texts), np.uint8)
        return EncodedItems(buffer, offsets, np.asarray(sizes, np.int64), tuple(refusals))

    def _encode(self, one: pa.RecordBatch, row: int) -> tuple[Refusal | None, bytes, int]:
        try:
            (item,) = items_of(one)
        except DdbioError as error:
            return Refusal(row, "", "value", str(error)), b"", 0
        for name, tag in self._keys.items():
            message = _wrong_key(item, name, tag)
            if message is not None:
                return Refusal(row, name, "key", message), b"", 0
        size = item_size_bytes(item)
        if size > _LARGEST_ITEM_BYTES:
            return Refusal(row, "", "size", f"the item has {size} bytes, more than {_LARGEST_ITEM_BYTES}"), b"", 0
        return None, compact_json(item).encode(), size


def _wrong_key(item: Item, name: str, tag: str) -> str | None:
    value = item.get(name)
    if value is None:
        return f"key attribute {name!r} is missing"
    if tag not in value:
        return f"key attribute {name!r} is {json.dumps(value)[:60]}, not of type {tag}"
    return None if value[tag] else f"key attribute {name!r} is empty"
