"""Decoding of DynamoDB JSON to record batches: Scan and Query pages, export lines, item lines and columns of texts.

Bytes that are not DynamoDB JSON are a DecodeError. No value is rounded or silently turned into null.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import DecodeError, OptionError
from ddbio.items.change_images import item_texts
from ddbio.items.change_lines import images_of
from ddbio.items.framing import NOT_ITEMS, Framing, checked_items, framed_items, framing_of
from ddbio.items.kernel.arrays import offsets_of
from ddbio.items.kernel.decode.decoder import SLICE_BYTES, KernelDecoder
from ddbio.items.kernel.decode.inference import give_back, observe_items, walk_whole
from ddbio.items.kernel.lines import Rows, join_rows
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.text import is_utf8
from ddbio.items.object_pool import ObjectPool
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.column import counts_decide
from ddbio.items.schema.declare import ColumnRules, Numbers, time_formats
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.items.schema.times import stored_schema
from ddbio.items.time_columns import TimeColumns, sampled_formats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from ddbio.items.attribute import Item
    from ddbio.items.kernel.decode.inference import Observed
    from ddbio.items.kernel.decode.tables import ColumnPaths
    from ddbio.items.rescue import OnMisfit

    Nulls = Literal["merge", "keep"]

__all__ = [
    "Decoder",
    "RowDecoder",
    "from_dynamodb_json",
    "infer_schema_of_bodies",
    "infer_schema_of_body",
    "iterate_items",
]


_MAX_POOLED, _MAX_POOLED_BYTES, _SIZE_BITS = 16, 64 << 20, 3
_MAX_SCHEMAS, _MAX_OUTLINED_BYTES = 64, 64 << 10
_NOTHING = b"{}"
_EMPTY: dict[Framing, str] = {"items": "{}", "export": '{"Item":{}}'}
# Key: the identity of the schema, which is unique as long as the schema is stored here.
_serialized: dict[int, tuple[pa.Schema, bytes]] = {}
# Key: the outline of the items.
_columns_by_outline: dict[tuple[bytes, ...] | None, pa.Schema] = {}
_paths_by_outline: dict[tuple[bytes, ...] | None, ColumnPaths] = {}
_ONE_WALK_BYTES = 32 << 20
"""The maximum size of a body whose complete tape is kept in memory. A tape is about two thirds as large as its body."""


class Decoder(KernelDecoder):
    """Decoder of DynamoDB JSON to record batches of exactly ``schema``, including time columns. Use one per thread.

    Parameters
    ----------
    schema
        A schema of items. It is normalised.
    on_misfit, nulls, drop, item_size
        As for ``KernelDecoder``.

    Raises
    ------
    SchemaError
        A column's type has no exact encoding in DynamoDB.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        on_misfit: OnMisfit = "rescue",
        nulls: Nulls = "merge",
        drop: Sequence[str] = (),
        item_size: bool = False,
    ) -> None:
        schema = normalize_schema(schema)
        self._times = TimeColumns(schema, drop)
        stored = stored_schema(schema) if self._times else schema
        super().__init__(stored, on_misfit=on_misfit, nulls=nulls, drop=drop, item_size=item_size)

    def decode(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return one row per item, in their order.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing. The message names the line, or the item of a page.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        batch = super().decode(data, framing)
        return self._with_times(batch) if self._times else batch

    def decode_batches(self, data: Buffer, framing: Framing) -> list[pa.RecordBatch]:
        """Return the rows of ``decode`` in batches of a few megabytes.

        Raises
        ------
        DecodeError, SchemaError
            As ``decode``.
        """
        batches = super().decode_batches(data, framing)
        return [self._with_times(batch) for batch in batches] if self._times else batches

    def decode_stored(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return the rows of ``decode`` with the text and numbers of times, for ``with_times``."""
        return super().decode(data, framing)

    def with_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of ``decode_stored`` or ``decode_documents`` with its times."""
        return self._with_times(batch) if self._times else batch

    def _with_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        log = MisfitLog()
        batch = self._times.convert(batch, log)
        self._add_log(log)
        return batch


_pool = ObjectPool[tuple[bytes, "Nulls", int], Decoder](_MAX_POOLED, _MAX_POOLED_BYTES)


def from_dynamodb_json(
    data: Buffer,
    schema: ItemSchema | pa.Schema | str | None = None,
    *,
    nulls: Nulls | None = None,
    timestamps: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    numbers: Numbers = "exact",
) -> pa.RecordBatch:
    """Return one row per item of one Scan or Query page, of export lines, or of item lines.

    Parameters
    ----------
    data
        UTF-8 JSON. Only white space gives an empty batch.
    schema
        The columns, or the JSON text of a schema. Inferred from all items if None.
    nulls
        ``merge`` turns NULL into null. ``keep`` also puts it into ``_rescue``, which distinguishes it from a missing
        attribute. None means ``keep`` without a schema, and ``merge`` with one.
    timestamps
        The formats of attributes that are dates and times: ``{"created_at": "iso", "ts": "epoch_s"}``.
    types
        Types of columns by attribute, instead of others: ``{"price": "decimal(38, 9)", "payload": "json"}``.
    numbers
        ``float64`` uses the nearest double unless all numbers of a column are integers. ``text`` is also exact.

    Raises
    ------
    DecodeError
        The bytes are none of these. The message names the line.
    SchemaError
        A column's type has no exact encoding in DynamoDB.
    OptionError
        ``nulls`` or ``numbers`` has another value, or a time has no such format.
    """
    if nulls not in {None, "merge", "keep"}:
        raise OptionError(f"nulls: {nulls!r} is neither 'merge' nor 'keep'")
    if numbers not in get_args(Numbers):
        raise OptionError(f"numbers: {numbers!r} is none of 'exact', 'float64' and 'text'")
    body, framing = framed_items(data)
    if framing == "changes":
        raise DecodeError(NOT_ITEMS)
    null_handling = nulls or ("keep" if schema is None else "merge")
    if timestamps or types or numbers != "exact":
        rules = ColumnRules(time_formats((timestamps or {}).items()), types or {}, numbers)
        columns = _columns_of(body, framing) if schema is None else schema
        ruled = rules.apply(arrow_schema_of(columns), sampled_formats(rules.sampled, [(body, framing)]))
        return _decode(body, framing, ruled, null_handling)
    return _decode(body, framing, schema, null_handling)


def _columns_of(body: bytes | memoryview, framing: Framing) -> pa.Schema:
    """Return the inferred columns of a body's items, cached for small bodies of the same outline."""
    observed = observe_items([(body, framing)])
    if observed is None:
        return ItemSchema.of_items(_items(bytes(body), framing)).to_arrow()
    return _columns_of_observed(observed)[0]


def _columns_of_observed(observed: Observed) -> tuple[pa.Schema, tuple[bytes, ...] | None]:
    """Return the inferred columns of items, and their outline if the columns depend only on it."""
    is_small = len(observed.nodes) + len(observed.texts) <= _MAX_OUTLINED_BYTES
    outline = observed.outline() if is_small else None
    columns = _columns_by_outline.get(outline)
    if columns is None:
        shape = observed.shape()
        columns = ItemSchema(shape).to_arrow()
        if outline is None or counts_decide(shape):
            return columns, None
        if len(_columns_by_outline) >= _MAX_SCHEMAS:
            _columns_by_outline.clear()
        _columns_by_outline[outline] = columns
    return columns, outline


def _decode_in_one_walk(
    body: bytes | memoryview, framing: Framing, nulls: Nulls
) -> tuple[pa.RecordBatch | None, pa.Schema | None]:
    """Return one row per item in the inferred columns, and these columns.

    The rows are None if the items have to be walked again, and the columns are None if the loops refuse an item.
    """
    walked = walk_whole(body, framing)
    if walked is None:
        return None, None
    observed = walked.observed()
    columns, outline = _columns_of_observed(observed)
    batch = None
    with _decoder_of(columns, nulls, len(body)) as decoder:
        column_paths = _paths_by_outline.get(outline) or decoder.column_paths(observed)
        if column_paths is not None:
            if outline is not None:
                if len(_paths_by_outline) >= _MAX_SCHEMAS:
                    _paths_by_outline.clear()
                _paths_by_outline[outline] = column_paths
            batch = decoder.decode_walked(walked, column_paths)
    give_back(walked)
    return batch, columns


@contextmanager
def _decoder_of(columns: pa.Schema, nulls: Nulls, n_bytes: int) -> Iterator[Decoder]:
    """Lend a decoder from the pool, or a new one."""
    # Arrays that grew for large bodies are slow for small bodies (cache misses), so decoders are pooled by body size.
    key = _bytes_of(columns), nulls, n_bytes.bit_length() // _SIZE_BITS
    decoder = _pool.take(key) or Decoder(columns, nulls=nulls)
    yield decoder
    decoder.forget()
    _pool.give_back(key, decoder, decoder.retained_bytes)


def _decode(body: bytes | memoryview, framing: Framing, schema: Any, nulls: Nulls) -> pa.RecordBatch:
    if schema is None and len(body) <= _ONE_WALK_BYTES:
        batch, schema = _decode_in_one_walk(body, framing, nulls)
        if batch is not None:
            return batch
    columns = arrow_schema_of(_columns_of(body, framing) if schema is None else schema)
    with _decoder_of(columns, nulls, len(body)) as decoder:
        return decoder.decode(body, framing)


def _bytes_of(schema: pa.Schema) -> bytes:
    """Return a schema serialized. Arrow compares schemas without their metadata, but their bytes differ."""
    cached, written = _serialized.get(id(schema), (None, b""))
    if cached is not schema:
        if len(_serialized) >= _MAX_SCHEMAS:
            _serialized.clear()
        written = schema.serialize().to_pybytes()
        _serialized[id(schema)] = schema, written
    return written


def infer_schema_of_body(data: Buffer) -> ItemSchema:
    """Infer the schema of all items of a page, of export or item lines, or of all images of changes.

    Raises
    ------
    DecodeError
        The bytes are none of these. The message names the line.
    """
    body, framing = framed_items(data)
    return infer_schema_of_bodies([(body, framing)])


def infer_schema_of_bodies(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> ItemSchema:
    """Infer the joint schema of all items of several bodies, or of all images of their changes.

    Raises
    ------
    DecodeError
        A body is not in its framing. The message names the line.
    """
    readable = _as_items(parts)
    observed = None if readable is None else observe_items(readable)
    if observed is not None:
        return ItemSchema(observed.shape())
    # A body may be invalid.
    return ItemSchema.of_items(item for body, framing in parts for item in _items(bytes(body), framing))


def _as_items(
    parts: Sequence[tuple[bytes | memoryview, Framing]],
) -> Sequence[tuple[bytes | memoryview, Framing]] | None:
    """Return the parts with images of changes as items, or None if only the reference can read a change."""
    readable = list[tuple[bytes | memoryview, "Framing"]]()
    for body, framing in parts:
        texts = item_texts(body) if framing == "changes" else None
        if framing != "changes":
            readable.append((body, framing))
        elif texts is None:
            return None
        else:
            readable += [(text, "items") for text in texts]
    return readable


def iterate_items(data: Buffer) -> Iterator[Item]:
    """Yield the checked items of one page, of export lines or of item lines, or the images of changes.

    Raises
    ------
    DecodeError
        The bytes are none of these. The message names the line.
    """
    body, framing = framed_items(data)
    return _items(bytes(body), framing)


def _items(body: bytes, framing: Framing) -> Iterator[Item]:
    return images_of(body) if framing == "changes" else checked_items(body, framing)


class RowDecoder:
    """Decoder of columns of DynamoDB JSON to record batches of one schema, row by row. Use one per thread.

    Parameters
    ----------
    schema
        A schema of items. It is normalised.
    nulls
        As for ``Decoder``.
    """

    def __init__(self, schema: pa.Schema, *, nulls: Literal["merge", "keep"] = "merge") -> None:
        self._decoder = Decoder(schema, nulls=nulls)
        self._joined = np.empty(SLICE_BYTES + PAD, np.uint8)

    def decode(self, texts: pa.Array[Any], *, strict: bool = True) -> pa.RecordBatch:
        """Return one row per text: ``{"Item":{…}}`` or bare ``{…}``. A null text is a row of nulls.

        Parameters
        ----------
        strict
            Whether a malformed row is an error. Otherwise it is a row of nulls.

        Raises
        ------
        DecodeError
            A row is not exactly one item. The message begins with its number, from 0.
        """
        plain = _string_array(texts)
        rows = self._rows(plain)
        batches: list[pa.RecordBatch] = []
        row, step = 0, len(plain)
        while row < len(plain):
            taken, is_refused = self._decode_together(plain, rows, row, step, batches)
            row, step = row + taken, 2 * step
            if is_refused:
                batches.append(self._decode_alone(_text(rows, row), row, strict=strict))
                # The row after a refused row may also be refused, so the step restarts small to limit the lost work.
                row, step = row + 1, max(taken, 1)
        return self._decoder.with_times(self._decoder.combine(batches))

    def _rows(self, texts: Any) -> Rows:
        offsets = offsets_of(texts).astype(np.int64)
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        return Rows(data, offsets, self._joined, np.empty(len(texts), np.int64))

    def _decode_together(
        self, texts: Any, rows: Rows, start: int, max_rows: int, batches: list[pa.RecordBatch]
    ) -> tuple[int, bool]:
        """Add the batches of rows that are one item each. Return their number and whether the next row is refused."""
        stop, n_bytes = join_rows(rows, start, max_rows, SLICE_BYTES)
        joined = rows.joined[:n_bytes].data
        if stop == start or not is_utf8(joined):
            return 0, True
        decoded, refused = self._decoder.decode_documents(joined, _framing(_text(rows, start)))
        count = sum(batch.num_rows for batch in decoded)
        next_row = start + count
        # Each row begins and ends a document. If there are as many documents as rows, each row is one document.
        if next_row == stop if refused is None else next_row < stop and refused == rows.positions[next_row]:
            batches.extend(decoded)
            return count, refused is not None
        return self._decode_together(texts, rows, start, (stop - start) // 2, batches)

    def _decode_alone(self, text: bytes, row: int, *, strict: bool) -> pa.RecordBatch:
        try:
            return self._decode_one(text)
        except DecodeError as error:
            if strict:
                raise DecodeError(f"row {row}: {error}") from None
        return self._decoder.decode_stored(_NOTHING, "items")

    def _decode_one(self, text: bytes) -> pa.RecordBatch:
        batch = self._decoder.decode_stored(text, _framing(text))
        if batch.num_rows != 1:
            raise DecodeError(f"expected one item, found {batch.num_rows}")
        return batch


def _string_array(texts: Any) -> Any:
    """Return the texts as a string array, with an empty item instead of null."""
    # Rows that are not UTF-8 are detected later.
    if pa.types.is_binary(texts.type):
        texts = texts.view(pa.string())
    elif not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = texts.cast(pa.large_string(), safe=False)
    if not texts.null_count:
        return texts
    present = texts.drop_null()
    framing = _framing(present[0].as_buffer().to_pybytes()) if len(present) else "items"
    return pc.fill_null(texts, pa.scalar(_EMPTY[framing], texts.type))


def _text(rows: Rows, row: int) -> bytes:
    return rows.data[rows.offsets[row] : rows.offsets[row + 1]].tobytes()


def _framing(text: bytes) -> Framing:
    """Return the framing of a row. If it has none, decoding raises an error with the cause."""
    try:
        return "export" if framing_of(text) == "export" else "items"
    except DecodeError:
        return "items"
