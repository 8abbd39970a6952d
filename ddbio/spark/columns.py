"""Turn Arrow columns of DynamoDB JSON into structs and back, in the workers of Spark's functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from ddbio.core.decode import RowDecoder
from ddbio.core.encode import Encoder
from ddbio.core.schema.file import schema_from_json

if TYPE_CHECKING:
    from typing import TypeAlias

    Mode: TypeAlias = Literal["FAILFAST", "PERMISSIVE"]
    Nulls: TypeAlias = Literal["merge", "keep"]

MODES = ("FAILFAST", "PERMISSIVE")
NULLS = ("merge", "keep")

# A worker of Spark has one thread.


@functools.lru_cache(maxsize=8)
def _decoder(schema_json: str, nulls: Nulls) -> RowDecoder:
    return RowDecoder(schema_from_json(schema_json), nulls=nulls)


@functools.lru_cache(maxsize=8)
def _encoder(stored: bytes, names: tuple[str, ...]) -> Encoder:
    schema = schema_of(stored)
    return Encoder(pa.schema([schema.field(name) for name in names]))


def schema_of(stored: bytes) -> pa.Schema:
    """Return a schema of the bytes that Arrow made of it."""
    return pa.ipc.read_schema(pa.py_buffer(stored))


def decode_texts(schema_json: str, mode: Mode, nulls: Nulls, texts: Any) -> Any:
    """Return a struct of the schema's columns for each text, null for null.

    Raises
    ------
    DecodeError
        A text is not one item, and the mode is ``FAILFAST``.
    """
    batch = _decoder(schema_json, nulls).decode(texts, strict=mode == "FAILFAST")
    is_null: Any = pc.is_null(texts) if texts.null_count else None
    return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema), mask=is_null)


def encode_structs(stored: bytes, mode: Mode, structs: Any) -> Any:
    """Return the text of each struct as one item, null for null.

    Raises
    ------
    EncodeError
        DynamoDB would refuse an item, and the mode is ``FAILFAST``.
    """
    names = tuple(field.name for field in structs.type)
    encoder = _encoder(stored, names)
    # What is not UTF-8 is told by its row, later.
    casts = [pc.CastOptions(kind, allow_invalid_utf8=True) for kind in encoder.schema.types]
    columns = [column.cast(options=cast) for column, cast in zip(structs.flatten(), casts, strict=True)]
    texts = encoder.encode_texts(pa.RecordBatch.from_arrays(columns, schema=encoder.schema), strict=mode == "FAILFAST")
    return pc.if_else(structs.is_valid(), texts, None) if structs.null_count else texts
