"""Encoding of record batches to DynamoDB JSON, the inverse of decoding: items with offsets, lines, or a text column.

Rows are checked by DynamoDB's rules before anything is sent. A row that DynamoDB would refuse is reported with its
attribute, the rule and a message. No value is rounded or silently dropped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import EncodeError, SchemaError
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.kernel.arrays import plain_array
from ddbio.items.kernel.encode.encoder import KernelEncoder
from ddbio.items.object_pool import ObjectPool
from ddbio.items.schema.declare import time_formats
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.items.time_columns import stored_batch, stored_columns, with_formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from ddbio.aws.table_description import IndexKey
    from ddbio.items.schema.item_schema import ItemSchema

__all__ = ["EncodeOptions", "EncodedItems", "Encoder", "Refusal", "to_dynamodb_json"]

_MAX_POOLED, _MAX_POOLED_BYTES = 16, 64 << 20

TimeFormat = Literal["iso", "s", "ms", "us", "ns"]


@dataclass(frozen=True)
class EncodeOptions:
    """Conversion of columns to attributes where Arrow and DynamoDB differ."""

    nulls: Literal["missing", "null"] = "missing"
    """Whether a null attribute or struct member is omitted or NULL. In lists and maps null is always NULL."""
    timestamps: TimeFormat = "iso"
    """ISO 8601 text, in UTC if the column has a time zone, or the number of this unit since 1970."""
    dates: Literal["iso", "d", "s", "ms"] = "iso"
    """ISO 8601 text, or the number of this unit since 1970."""
    times: TimeFormat = "iso"
    """ISO 8601 text, or the number of this unit since midnight."""
    durations: TimeFormat = "iso"
    """ISO 8601 text, ``PT1.5S``, or the number of this unit."""
    sets: tuple[str, ...] = field(default=())
    """List columns to write as SS, NS or BS; those with ``ddb:type`` in their metadata need not be named."""
    index_keys: tuple[IndexKey, ...] = field(default=())
    """Keys of the table's indexes. DynamoDB refuses an item with an attribute that is not a valid index key."""


@dataclass(frozen=True)
class Refusal:
    """Reason why DynamoDB would refuse a row."""

    row: int
    attribute: str
    """``name``, ``map.name``, ``list[]``; empty if the item as a whole is refused."""
    rule: str
    message: str
    item_bytes: int = 0
    """The size of an item that is too large; 0 for other rules, and for a row of gigabytes."""


@dataclass(frozen=True)
class EncodedItems:
    """Items of a batch as DynamoDB JSON, back to back."""

    buffer: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    """One more than rows: item ``i`` is ``buffer[offsets[i]:offsets[i + 1]]``, empty if its row was refused."""
    sizes: npt.NDArray[np.int64]
    """The size of each item in bytes, as DynamoDB counts it; 0 if its row was refused."""
    refusals: tuple[Refusal, ...]
    """In the order of rows, at most one per row."""


class Encoder:
    """Encoder of record batches of one schema. Use one per thread.

    Parameters
    ----------
    keys
        The table's key attributes and their types, the partition key first. With None, keys are not checked.

    Raises
    ------
    SchemaError
        A column's type has no encoding in DynamoDB, or is not that of its key.
    """

    def __init__(
        self, schema: pa.Schema, *, keys: Mapping[str, str] | None = None, options: EncodeOptions | None = None
    ) -> None:
        self.schema = schema
        self._stored = stored_columns(schema)
        self._keys = dict(keys or {})
        self._options = options or EncodeOptions()
        self._printers = {(b"", b""): KernelEncoder(self._stored, self._keys, self._options)}

    @property
    def retained_bytes(self) -> int:
        """Return the size of the memory reserved for the next batch in bytes."""
        return sum(printer.retained_bytes for printer in self._printers.values())

    def encode(self, batch: pa.RecordBatch) -> EncodedItems:
        """Return the item of each row, its size, and the rows that DynamoDB would refuse.

        Raises
        ------
        SchemaError
            The batch is not of the encoder's schema.
        """
        encoded = self.encode_view(batch)
        return replace(encoded, buffer=encoded.buffer.copy())

    def encode_view(
        self, batch: pa.RecordBatch, *, prefix: bytes = b"", suffix: bytes = b"", first_row: int = 0
    ) -> EncodedItems:
        """Return the items in memory that the next batch overwrites, each between ``prefix`` and ``suffix``.

        Refused rows are numbered from ``first_row``.
        """
        printed = self._printer(prefix, suffix).print_batch(self._stored_batch(batch), first_row)
        refusals = tuple(Refusal(*refusal) for refusal in printed.refused)
        return EncodedItems(printed.text, printed.offsets, printed.sizes, refusals)

    def encode_texts(self, batch: pa.RecordBatch, *, strict: bool = True) -> pa.Array[Any]:
        """Return a column with the item of each row as text.

        Parameters
        ----------
        strict
            Whether a row that DynamoDB would refuse is an error. Otherwise it is null.

        Raises
        ------
        SchemaError
            The batch is not of the encoder's schema.
        EncodeError
            DynamoDB would refuse a row. The first one is named.
        """
        items = self.encode(batch)
        if strict:
            require_all(items.refusals)
        buffers = [None, pa.py_buffer(items.offsets.data), pa.py_buffer(items.buffer.data)]
        texts: Any = pa.Array.from_buffers(pa.large_string(), batch.num_rows, buffers).cast(pa.string())
        if items.refusals:
            is_accepted = np.ones(batch.num_rows, np.bool_)
            is_accepted[[refusal.row for refusal in items.refusals]] = False
            texts = pc.if_else(pa.array(is_accepted), texts, None)
        return texts  # type: ignore[no-any-return]

    def encode_lines(
        self, batch: pa.RecordBatch, *, prefix: bytes = b"", suffix: bytes = b"", first_row: int = 0
    ) -> bytes:
        r"""Return one line per row: ``prefix``, item and ``suffix``. ``{"Item":`` and ``}`` make lines of an export.

        Parameters
        ----------
        first_row
            The number of the batch's first row, for messages.

        Raises
        ------
        SchemaError
            The batch is not of the encoder's schema.
        EncodeError
            DynamoDB would refuse a row. The first one is named.
        """
        printed = self._printer(prefix, suffix + b"\n").print_batch(self._stored_batch(batch), first_row)
        require_all(Refusal(*refusal) for refusal in printed.refused)
        return printed.text.tobytes()

    def _stored_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Arrow compares schemas without their metadata. The encoder's schema defines the formats.
        if self._stored is self.schema or not batch.schema.equals(self.schema):
            return batch
        return stored_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def _printer(self, prefix: bytes, suffix: bytes) -> KernelEncoder:
        printer = self._printers.get((prefix, suffix))
        if printer is None:
            printer = KernelEncoder(self._stored, self._keys, self._options, (prefix, suffix))
            self._printers[prefix, suffix] = printer
        return printer


_pool = ObjectPool[bytes, Encoder](_MAX_POOLED, _MAX_POOLED_BYTES)


def to_dynamodb_json(
    data: Any,
    schema: ItemSchema | pa.Schema | str | None = None,
    *,
    timestamps: Mapping[str, str] | None = None,
) -> bytes:
    """Return rows as DynamoDB JSON, one item per line, without white space.

    Parameters
    ----------
    data
        A record batch, a table, a reader of batches, or any other data frame that exports itself as Arrow.
    schema
        DynamoDB's types of the columns, by name, if a file format has lost them.
    timestamps
        The formats of columns of dates and times: ``{"created_at": "iso_ms", "ttl": "epoch_s"}``.

    Raises
    ------
    SchemaError
        A column's type has no encoding in DynamoDB, or differs from the schema.
    EncodeError
        DynamoDB would refuse a row. The first one is named.
    DecodeError
        An array points outside its memory.
    OptionError
        A time has no such format.
    """
    reader = record_batch_reader(data)
    target_schema = reader.schema if schema is None else with_types(reader.schema, arrow_schema_of(schema))
    if timestamps:
        target_schema = with_formats(target_schema, time_formats(timestamps.items()))
    # Arrow compares schemas without their metadata, but their bytes differ.
    key = target_schema.serialize().to_pybytes()
    encoder = _pool.take(key) or Encoder(target_schema)
    batches = (cast_batch(batch, target_schema) for batch in checked_batches(reader))
    first = list(itertools.islice(batches, 2))
    text = _lines_of(encoder, itertools.chain(first, batches))
    _pool.give_back(key, encoder, encoder.retained_bytes)
    return text


def _lines_of(encoder: Encoder, batches: Iterable[pa.RecordBatch]) -> bytes:
    lines, row = list[bytes](), 0
    for batch in batches:
        lines.append(encoder.encode_lines(batch, first_row=row))
        row += batch.num_rows
    return b"".join(lines)


def require_all(refusals: Iterable[Refusal]) -> None:
    """Raise an EncodeError for the first refused row, if there is one."""
    for refusal in refusals:
        raise EncodeError(refusal.message, refusal.row, refusal.attribute, refusal.rule)


def with_types(schema: pa.Schema, target_schema: pa.Schema) -> pa.Schema:
    """Return a schema in which the target schema's fields replace those of the same names."""
    return pa.schema(
        [target_schema.field(field.name) if field.name in target_schema.names else field for field in schema]
    )


def cast_batch(batch: pa.RecordBatch, target_schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema. A value that would change is a SchemaError."""
    columns = []
    for column, target in zip(batch.columns, target_schema, strict=True):
        if column.type == target.type:
            # pyarrow 25 casts some arrays to their own type wrongly, for example slices of run-end encoded arrays.
            columns.append(column)
            continue
        try:
            columns.append(plain_array(column).cast(target.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"{target.name}: the column is {column.type}, the schema's {target.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=target_schema)
