"""Rows as lines of plain JSON, printed without types by the compiled loops that encode items.

Plain Python prints columns without an exact encoding in DynamoDB, and rows that are not items. Its lines are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError
from ddbio.items.batch_size import batch_bytes
from ddbio.items.encode import EncodeOptions
from ddbio.items.kernel.arrays import bool_array, int64_values, joined_texts, texts_array
from ddbio.items.kernel.encode.encoder import KernelEncoder
from ddbio.items.schema.arrow import RESCUE_NAME, is_binary, is_decimal, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.items.kernel.encode.encoder import Printed

_PIECE_BYTES = 8 << 20
_OPTIONS = EncodeOptions()
_MICROS = pa.timestamp("us")
# The years 1 to 9999, which is the range of Python's times, in microseconds since 1970.
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999


class JsonLinePrinter:
    """Printer of the rows of batches of one schema. Use one per thread.

    Attributes
    ----------
    schema
        The schema of the batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._indices = [index for index, field in enumerate(schema) if field.name != RESCUE_NAME]
        self._rescue = schema.get_field_index(RESCUE_NAME)
        fields = [_plain_field(schema.field(index), at_top=True) for index in self._indices]
        self._plain = pa.schema([field for field in fields if field is not None])
        self._has_maps = any(_has_maps(field.type) for field in self._plain)
        self._encoder = None
        # Arrow counts no rows if there are no columns.
        if len(self._plain) == len(fields) > 0 and (self._rescue < 0 or is_text(schema.field(self._rescue).type)):
            try:
                self._encoder = KernelEncoder(self._plain, {}, _OPTIONS, (b"", b"\n"), is_plain=True)
            except SchemaError:
                return

    def print_pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        """Yield rows in order, a few megabytes at a time, with their lines, or with None if Python must print them."""
        step = max(1, batch.num_rows * _PIECE_BYTES // max(batch_bytes(batch), 1))
        for start in range(0, batch.num_rows, step):
            rows = batch.slice(start, step)
            columns = None if self._encoder is None else self._plain_columns(rows)
            if self._encoder is None or columns is None:
                yield rows, None
            else:
                yield from self._print(self._encoder, rows, columns)

    def _plain_columns(self, rows: pa.RecordBatch) -> list[Any] | None:
        columns = list[Any]()
        for index in self._indices:
            column: Any = rows.column(index)
            if pa.types.is_timestamp(column.type):
                column = _iso_texts(column)
            if column is None or (self._has_maps and _has_null_items(column)):
                return None
            columns.append(column)
        return columns

    def _print(
        self, encoder: KernelEncoder, rows: pa.RecordBatch, columns: list[Any]
    ) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        printed = encoder.print_batch(pa.RecordBatch.from_arrays(columns, schema=self._plain))
        if len(printed.text) >= 1 << 31:
            yield rows, None
            return
        lines, start, pieces = self._lines(rows, printed), 0, list[tuple[pa.RecordBatch, bytes | None]]()
        for row in sorted({refusal.row for refusal in printed.refused}):
            if row > start:
                pieces.append((rows.slice(start, row - start), _bytes_of(lines[start:row])))
            pieces.append((rows.slice(row, 1), None))
            start = row + 1
        if start < rows.num_rows:
            pieces.append((rows.slice(start), _bytes_of(lines[start:])))
        # The next call of the encoder overwrites the lines.
        yield from pieces

    def _lines(self, rows: pa.RecordBatch, printed: Printed) -> Any:
        buffers = [None, pa.py_buffer(printed.offsets.astype(np.int32).data), pa.py_buffer(printed.text.data)]
        lines: Any = pa.Array.from_buffers(pa.binary(), rows.num_rows, buffers)
        rescued: Any = rows.column(self._rescue) if self._rescue >= 0 else None
        if rescued is None or rescued.null_count == len(rescued):
            return lines
        after_others, alone, empty = texts_array(f',"{RESCUE_NAME}":', f'"{RESCUE_NAME}":', "")
        name = pc.if_else(bool_array(np.diff(printed.offsets) > len("{}\n")), after_others, alone)
        texts = joined_texts(name, rescued.cast(pa.string())).fill_null(empty)
        return joined_texts(pc.binary_slice(lines, 0, -2).cast(pa.string()), texts, "}\n")


def _plain_field(field: pa.Field[Any], *, at_top: bool = False) -> pa.Field[Any] | None:
    """Return the field if items encode it in the same way regardless of its metadata, or None."""
    kind: Any = field.type
    if pa.types.is_timestamp(kind):
        is_simple = at_top and kind.unit != "ns" and kind.tz in {None, "UTC"}
        return pa.field(field.name, pa.string(), field.nullable) if is_simple else None
    if pa.types.is_map(kind):
        item = _plain_field(kind.item_field)
        return None if item is None or not is_text(kind.key_type) else _named(field, pa.map_(kind.key_field, item))
    if is_list(kind):
        value = _plain_field(kind.value_field)
        lists: Any = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return None if value is None else _named(field, lists(value))
    if pa.types.is_struct(kind):
        members = [_plain_field(kind.field(index)) for index in range(kind.num_fields)]
        return None if any(member is None for member in members) else _named(field, pa.struct(members))  # type: ignore[arg-type]
    is_scalar = is_text(kind) or is_binary(kind) or is_decimal(kind) or pa.types.is_integer(kind)
    return _named(field, kind) if is_scalar or pa.types.is_boolean(kind) else None


def _named(field: pa.Field[Any], kind: Any) -> pa.Field[Any]:
    return pa.field(field.name, kind, field.nullable)


def _has_maps(kind: Any) -> bool:
    return pa.types.is_map(kind) or any(_has_maps(kind.field(index).type) for index in range(kind.num_fields))


def _has_null_items(array: Any) -> bool:
    """Return whether a map contains a null, which rows omit but items do not."""
    kind = array.type
    if pa.types.is_map(kind):
        return bool(array.items.null_count) or _has_null_items(array.items)
    if is_list(kind):
        return _has_null_items(array.values)
    return pa.types.is_struct(kind) and any(_has_null_items(array.field(index)) for index in range(kind.num_fields))


def _iso_texts(times: Any) -> Any:
    """Return times as ``datetime.isoformat`` prints them, or None if a time is outside Python's range."""
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(_MICROS)
    counts = int64_values(micros.drop_null())
    if len(counts) and not _FIRST_MICROS <= counts.min() <= counts.max() <= _LAST_MICROS:
        return None
    texts = pc.replace_substring(micros.cast(pa.string()), " ", "T", max_replacements=1)
    texts = pc.replace_substring(texts, ".000000", "")
    return texts if times.type.tz is None else joined_texts(texts, "+00:00")


def _bytes_of(lines: Any) -> bytes:
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]])
