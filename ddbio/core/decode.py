"""Decode DynamoDB JSON to record batches: Scan and Query pages, export lines, bare item lines.

Refuses bytes that are not DynamoDB JSON; never rounds, never turns a value silently into null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.core.framing import checked_items, framing_of
from ddbio.core.inference import infer_schema_of_items
from ddbio.core.kernel.decoder import KernelDecoder as Decoder
from ddbio.core.page import split_page

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

__all__ = ["Decoder", "from_dynamodb_json"]


def from_dynamodb_json(data: Buffer, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return a row per item of one Scan or Query page, of export lines, or of bare item lines.

    Parameters
    ----------
    data
        UTF-8 JSON; nothing but white space gives an empty batch.
    schema
        The columns; inferred from all items if None.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    """
    body = data if isinstance(data, bytes) else bytes(data)
    framing = framing_of(body)
    if framing == "page":
        body = split_page(body).items
    if schema is None:
        schema = infer_schema_of_items(checked_items(body, framing))
    return Decoder(schema).decode(body, framing)
