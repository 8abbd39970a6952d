"""Decode DynamoDB JSON to record batches: Scan and Query pages, export lines, bare item lines.

Refuses bytes that are not DynamoDB JSON; never rounds, never turns a value silently into null.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.core.idle import Idle
from ddbio.core.kernel.decode.decoder import KernelDecoder as Decoder
from ddbio.core.kernel.decode.observer import Observed, observe_items
from ddbio.core.schema.column import counts_decide
from ddbio.core.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.core.text.change_lines import images_of
from ddbio.core.text.framing import NOT_ITEMS, checked_items, framed_items
from ddbio.errors import DecodeError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from ddbio.core.attribute import Item
    from ddbio.core.text.framing import Framing

    Nulls = Literal["merge", "keep"]

__all__ = ["Decoder", "from_dynamodb_json", "iterate_items", "observe_dynamodb_json"]


_DECODERS_KEPT, _BYTES_KEPT = 16, 64 << 20
_SCHEMAS_KEPT, _MOST_OUTLINED = 64, 64 << 10
# By the identity of schemas, which is theirs alone as long as they are kept here.
_written: dict[int, tuple[pa.Schema, bytes]] = {}
_idle = Idle[tuple[bytes, "Nulls"], Decoder](_DECODERS_KEPT, _BYTES_KEPT)


def from_dynamodb_json(
    data: Buffer, schema: ItemSchema | pa.Schema | str | None = None, *, nulls: Nulls | None = None
) -> pa.RecordBatch:
    """Return a row per item of one Scan or Query page, of export lines, or of bare item lines.

    Parameters
    ----------
    data
        UTF-8 JSON; nothing but white space gives an empty batch.
    schema
        The columns, or the JSON text of a schema; inferred from all items if None.
    nulls
        ``merge`` turns NULL into null; ``keep`` puts it into ``_rescue`` too, so that it is told from a missing value.
        None keeps it where no schema is given, and merges it under a schema.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    OptionError
        ``nulls`` is neither.
    """
    if nulls not in {None, "merge", "keep"}:
        raise OptionError(f"nulls: {nulls!r} is neither 'merge' nor 'keep'")
    body, framing = framed_items(data)
    if framing == "changes":
        raise DecodeError(NOT_ITEMS)
    given = _columns_of(body, framing) if schema is None else schema
    return _decode(body, framing, given, nulls or ("keep" if schema is None else "merge"))


def _columns_of(body: bytes | memoryview, framing: Framing) -> pa.Schema:
    """Return the columns that a body's items show; of small bodies alike they are made once."""
    observed = observe_items([(body, framing)])
    if observed is None:
        return ItemSchema.of_items(_items(bytes(body), framing)).to_arrow()
    is_small = len(observed.nodes) + len(observed.texts) <= _MOST_OUTLINED
    return (_known_columns(observed.outline()) if is_small else None) or ItemSchema(observed.shape()).to_arrow()


@functools.lru_cache(maxsize=_SCHEMAS_KEPT)
def _known_columns(outline: Observed) -> pa.Schema | None:
    """Return the columns of all items of an outline, or None where it takes counts to tell them."""
    shape = outline.shape()
    return None if counts_decide(shape) else ItemSchema(shape).to_arrow()


def _decode(body: bytes | memoryview, framing: Framing, given: Any, nulls: Nulls) -> pa.RecordBatch:
    columns = given if isinstance(given, pa.Schema) else arrow_schema_of(given)
    key = _bytes_of(columns), nulls
    decoder = _idle.take(key) or Decoder(arrow_schema_of(columns), nulls=nulls)
    batch = decoder.decode(body, framing)
    decoder.forget()
    _idle.give_back(key, decoder, decoder.kept_bytes)
    return batch


def _bytes_of(schema: pa.Schema) -> bytes:
    """Return what tells a schema from others: to Arrow those of different metadata are equal, their bytes are not."""
    known, written = _written.get(id(schema), (None, b""))
    if known is not schema:
        if len(_written) >= _SCHEMAS_KEPT:
            _written.clear()
        written = schema.serialize().to_pybytes()
        _written[id(schema)] = schema, written
    return written


def observe_dynamodb_json(data: Buffer) -> ItemSchema:
    """Return what all items of one page, of export lines or of bare item lines, or all images of changes, look like.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    """
    return observe_parts([framed_items(data)])


def observe_parts(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> ItemSchema:
    """Return what all items of several bodies, or all images of their changes, look like together.

    Raises
    ------
    DecodeError
        One is not framed as it is told; the message has the line.
    """
    observed = observe_items(parts)
    if observed is not None:
        return ItemSchema(observed.shape())
    # Changes, and what may be broken.
    return ItemSchema.of_items(item for body, framing in parts for item in _items(bytes(body), framing))


def iterate_items(data: Buffer) -> Iterator[Item]:
    """Yield the items of one page, of export lines or of bare item lines, or the images of changes, checked.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    """
    body, framing = framed_items(data)
    return _items(bytes(body), framing)


def _items(body: bytes, framing: Framing) -> Iterator[Item]:
    return images_of(body) if framing == "changes" else checked_items(body, framing)
