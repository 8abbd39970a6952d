"""Decode DynamoDB JSON to record batches: Scan and Query pages, export lines, bare item lines.

Refuses bytes that are not DynamoDB JSON; never rounds, never turns a value silently into null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ddbio.core.kernel.decode.decoder import KernelDecoder as Decoder
from ddbio.core.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.core.text.change_lines import images_of
from ddbio.core.text.framing import NOT_ITEMS, checked_items, framed_items
from ddbio.errors import DecodeError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from typing_extensions import Buffer

    from ddbio.core.attribute import Item

__all__ = ["Decoder", "from_dynamodb_json", "iterate_items", "observe_dynamodb_json"]


def from_dynamodb_json(
    data: Buffer, schema: ItemSchema | pa.Schema | str | None = None, *, nulls: Literal["merge", "keep"] | None = None
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
    given = ItemSchema.of_items(checked_items(body, framing)) if schema is None else schema
    decoder = Decoder(arrow_schema_of(given), nulls=nulls or ("keep" if schema is None else "merge"))
    return decoder.decode(body, framing)


def observe_dynamodb_json(data: Buffer) -> ItemSchema:
    """Return what all items of one page, of export lines or of bare item lines, or all images of changes, look like.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    """
    return ItemSchema.of_items(iterate_items(data))


def iterate_items(data: Buffer) -> Iterator[Item]:
    """Yield the items of one page, of export lines or of bare item lines, or the images of changes, checked.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    """
    body, framing = framed_items(data)
    return images_of(body) if framing == "changes" else checked_items(body, framing)
