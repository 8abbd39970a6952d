"""Decode DynamoDB JSON to record batches: Scan and Query pages, export lines, bare item lines, columns of texts.

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
from ddbio.items.schema.declare import ColumnRules, Numbers, time_forms
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.items.schema.times import stored_schema
from ddbio.items.time_columns import TimeColumns, sampled_forms

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
_MAX_SCHEMAS, _MOST_OUTLINED = 64, 64 << 10
_NOTHING = b"{}"
_EMPTY: dict[Framing, str] = {"items": "{}", "export": '{"Item":{}}'}
# By the identity of schemas, which stays theirs as long as they are held here.
_serialized: dict[int, tuple[pa.Schema, bytes]] = {}
# By the outline of the items.
_known_columns: dict[tuple[bytes, ...] | None, pa.Schema] = {}
_known_paths: dict[tuple[bytes, ...] | None, ColumnPaths] = {}
_ONE_WALK_BYTES = 32 << 20
"""The most bytes whose tape is held as a whole, some two thirds as large."""


class Decoder(KernelDecoder):
    """Decode DynamoDB JSON to record batches of exactly ``schema``, time columns among them; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    on_misfit, nulls, drop, item_size
        As for ``KernelDecoder``.

    Raises
    ------
    SchemaError
        The schema names types that DynamoDB has no exact form for.
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
        """Return a row per item, in their order.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing; the message has the line, and the item's place in a page.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        batch = super().decode(data, framing)
        return self._with_times(batch) if self._times else batch

    def decode_batches(self, data: Buffer, framing: Framing) -> list[pa.RecordBatch]:
        """Return what ``decode`` returns in pieces of a few megabytes.

        Raises
        ------
        DecodeError, SchemaError
            As ``decode``.
        """
        batches = super().decode_batches(data, framing)
        return [self._with_times(batch) for batch in batches] if self._times else batches

    def decode_stored(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return what ``decode`` returns without its times: the text and numbers that ``with_times`` takes."""
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
    """Return a row per item of one Scan or Query page, of export lines, or of bare item lines.

    Parameters
    ----------
    data
        UTF-8 JSON; nothing but white space gives an empty batch.
    schema
        The columns, or the JSON text of a schema; inferred from all items if None.
    nulls
        ``merge`` turns NULL into null; ``keep`` also puts it into ``_rescue``, which tells it from a missing attribute.
        None means ``keep`` without a schema, and ``merge`` with one.
    timestamps
        Attributes that are dates and times, and how they are written: ``{"created_at": "iso", "ts": "epoch_s"}``.
    types
        Types of columns by attribute, in the place of others: ``{"price": "decimal(38, 9)", "payload": "json"}``.
    numbers
        ``float64`` takes the nearest double unless all numbers of a column are whole; ``text`` is exact too.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    OptionError
        ``nulls`` or ``numbers`` is none of these, or a time has no such form.
    """
    if nulls not in {None, "merge", "keep"}:
        raise OptionError(f"nulls: {nulls!r} is neither 'merge' nor 'keep'")
    if numbers not in get_args(Numbers):
        raise OptionError(f"numbers: {numbers!r} is none of 'exact', 'float64' and 'text'")
    body, framing = framed_items(data)
    if framing == "changes":
        raise DecodeError(NOT_ITEMS)
    kept = nulls or ("keep" if schema is None else "merge")
    if timestamps or types or numbers != "exact":
        rules = ColumnRules(time_forms((timestamps or {}).items()), types or {}, numbers)
        given = _columns_of(body, framing) if schema is None else schema
        ruled = rules.apply(arrow_schema_of(given), sampled_forms(rules.sampled, [(body, framing)]))
        return _decode(body, framing, ruled, kept)
    return _decode(body, framing, schema, kept)


def _columns_of(body: bytes | memoryview, framing: Framing) -> pa.Schema:
    """Return the columns that a body's items show, cached for small bodies of the same outline."""
    observed = observe_items([(body, framing)])
    if observed is None:
        return ItemSchema.of_items(_items(bytes(body), framing)).to_arrow()
    return _columns_of_observed(observed)[0]


def _columns_of_observed(observed: Observed) -> tuple[pa.Schema, tuple[bytes, ...] | None]:
    """Return the columns that items show, and their outline if it decides these."""
    is_small = len(observed.nodes) + len(observed.texts) <= _MOST_OUTLINED
    outline = observed.outline() if is_small else None
    columns = _known_columns.get(outline)
    if columns is None:
        shape = observed.shape()
        columns = ItemSchema(shape).to_arrow()
        if outline is None or counts_decide(shape):
            return columns, None
        if len(_known_columns) >= _MAX_SCHEMAS:
            _known_columns.clear()
        _known_columns[outline] = columns
    return columns, outline


def _decode_in_one_walk(
    body: bytes | memoryview, framing: Framing, nulls: Nulls
) -> tuple[pa.RecordBatch | None, pa.Schema | None]:
    """Return a row per item in the columns that the items show, and these columns.

    There are no rows if the items have to be walked again, and no columns if the walk refuses an item.
    """
    walked = walk_whole(body, framing)
    if walked is None:
        return None, None
    observed = walked.observed()
    columns, outline = _columns_of_observed(observed)
    batch = None
    with _decoder_of(columns, nulls, len(body)) as decoder:
        found = _known_paths.get(outline) or decoder.column_paths(observed)
        if found is not None:
            if outline is not None:
                if len(_known_paths) >= _MAX_SCHEMAS:
                    _known_paths.clear()
                _known_paths[outline] = found
            batch = decoder.decode_walked(walked, found)
    give_back(walked)
    return batch, columns


@contextmanager
def _decoder_of(columns: pa.Schema, nulls: Nulls, n_bytes: int) -> Iterator[Decoder]:
    """Lend a decoder of the pool, or a new one."""
    # Arrays that grew for large bodies lie too far apart for small ones: each serves bodies of about its size.
    key = _bytes_of(columns), nulls, n_bytes.bit_length() // _SIZE_BITS
    decoder = _pool.take(key) or Decoder(columns, nulls=nulls)
    yield decoder
    decoder.forget()
    _pool.give_back(key, decoder, decoder.retained_bytes)


def _decode(body: bytes | memoryview, framing: Framing, given: Any, nulls: Nulls) -> pa.RecordBatch:
    if given is None and len(body) <= _ONE_WALK_BYTES:
        batch, given = _decode_in_one_walk(body, framing, nulls)
        if batch is not None:
            return batch
    columns = arrow_schema_of(_columns_of(body, framing) if given is None else given)
    with _decoder_of(columns, nulls, len(body)) as decoder:
        return decoder.decode(body, framing)


def _bytes_of(schema: pa.Schema) -> bytes:
    """Return a schema serialized: Arrow takes schemas that differ in their metadata for equal, their bytes differ."""
    known, written = _serialized.get(id(schema), (None, b""))
    if known is not schema:
        if len(_serialized) >= _MAX_SCHEMAS:
            _serialized.clear()
        written = schema.serialize().to_pybytes()
        _serialized[id(schema)] = schema, written
    return written


def infer_schema_of_body(data: Buffer) -> ItemSchema:
    """Return the schema that all items of a page, of export or item lines, or all images of changes, show.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    """
    body, framing = framed_items(data)
    return infer_schema_of_bodies([(body, framing)])


def infer_schema_of_bodies(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> ItemSchema:
    """Return the schema that all items of several bodies, or all images of their changes, show together.

    Raises
    ------
    DecodeError
        A body is not in the framing given with it; the message has the line.
    """
    readable = _as_items(parts)
    observed = None if readable is None else observe_items(readable)
    if observed is not None:
        return ItemSchema(observed.shape())
    # A body may be broken.
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


class RowDecoder:
    """Decode columns of DynamoDB JSON to record batches of one schema, row by row; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    nulls
        As for ``Decoder``.
    """

    def __init__(self, schema: pa.Schema, *, nulls: Literal["merge", "keep"] = "merge") -> None:
        self._decoder = Decoder(schema, nulls=nulls)
        self._joined = np.empty(SLICE_BYTES + PAD, np.uint8)

    def decode(self, texts: pa.Array[Any], *, strict: bool = True) -> pa.RecordBatch:
        """Return a row per text: ``{"Item":{…}}`` or bare ``{…}``; a null text is a row of nulls.

        Parameters
        ----------
        strict
            Whether a malformed row is an error; otherwise it is a row of nulls.

        Raises
        ------
        DecodeError
            A row is not exactly one item; the message begins with its number, from 0.
        """
        plain = _plain(texts)
        rows = self._rows(plain)
        batches: list[pa.RecordBatch] = []
        row, step = 0, len(plain)
        while row < len(plain):
            taken, is_refused = self._decode_together(plain, rows, row, step, batches)
            row, step = row + taken, 2 * step
            if is_refused:
                batches.append(self._decode_alone(_text(rows, row), row, strict=strict))
                # After a refused row the next may be refused too: the work lost stays small beside the rows decoded.
                row, step = row + 1, max(taken, 1)
        return self._decoder.with_times(self._decoder.combine(batches))

    def _rows(self, texts: Any) -> Rows:
        offsets = offsets_of(texts).astype(np.int64)
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        return Rows(data, offsets, self._joined, np.empty(len(texts), np.int64))

    def _decode_together(
        self, texts: Any, rows: Rows, start: int, most: int, batches: list[pa.RecordBatch]
    ) -> tuple[int, bool]:
        """Add the batches of rows that are one item each; return their number and whether the next row is refused."""
        stop, n_bytes = join_rows(rows, start, most, SLICE_BYTES)
        joined = rows.joined[:n_bytes].data
        if stop == start or not is_utf8(joined):
            return 0, True
        found, refused = self._decoder.decode_documents(joined, _framing(_text(rows, start)))
        count = sum(batch.num_rows for batch in found)
        next_row = start + count
        # Each row begins and ends a document: if there are as many documents as rows, each row is one.
        if next_row == stop if refused is None else next_row < stop and refused == rows.places[next_row]:
            batches.extend(found)
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


def _plain(texts: Any) -> Any:
    """Return the texts as a string array, with an empty item in the place of null."""
    # Rows that are not UTF-8 are found later.
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
    """Return the framing of a row; if it has none, decoding will say what is wrong."""
    try:
        return "export" if framing_of(text) == "export" else "items"
    except DecodeError:
        return "items"
