"""Encoding of rows as the writes of several lanes, according to a plan.

Rows are columns, or raw items whose bytes are copied into the requests unchanged. A raw item that its reader cannot
validate is encoded like columns, so that the same rules apply to it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.batch_size import value_bytes
from ddbio.items.encode import EncodeOptions, Encoder, Refusal
from ddbio.items.item_key import key_hashes
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.kernel.arrays import take_rows
from ddbio.items.python_rows import item_columns
from ddbio.items.raw_items import RawItemReader, RawItems
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.load.batches import LaneSplitter, RowBytes, Writes, write_units
from ddbio.load.plan import MOST_WRITES
from ddbio.load.requests import VALUES, ItemEncoder, RowTexts, columns_of, joined_texts, request_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ddbio.load.plan import WritePlan
    from ddbio.load.requests import EncodedRows

# Rows that are encoded together fit into the processor's caches, but fill the batches of all lanes, and never take many
# megabytes.
CHUNK_ROWS = 8192
CACHED_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
LANE_ROWS = 16 * MOST_WRITES
SINGLE_LANE_ROWS = 64
_NO_ROWS = pa.schema([])


def chunks(rows: pa.RecordBatch | RawItems, plan: WritePlan) -> Iterator[pa.RecordBatch | RawItems]:
    """Yield rows in chunks to be encoded. Raw items are already read in chunks."""
    if isinstance(rows, RawItems):
        yield rows
        return
    step = chunk_rows(value_bytes(rows) // max(1, rows.num_rows), plan)
    yield from (rows.slice(start, step) for start in range(0, rows.num_rows, step))


def chunk_rows(row_bytes: int, plan: WritePlan) -> int:
    """Return the number of rows of a size that are encoded together."""
    row_bytes = max(1, row_bytes)
    filling_rows = plan.lanes * (SINGLE_LANE_ROWS if plan.sends_single_items else LANE_ROWS)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes, max(CACHED_BYTES // row_bytes, filling_rows)))


@dataclass(frozen=True)
class LaneWrites:
    """Writes of each lane that a batch was encoded as, and the rows that were refused."""

    lanes: list[Writes]
    refusals: tuple[Refusal, ...]


def check_columns(schema: pa.Schema, plan: WritePlan) -> None:
    """Check that rows with these columns can be written.

    Raises
    ------
    SchemaError
        If a key attribute of the table or the column of ``newer_by`` or ``operation_by`` is missing, or a name occurs
        twice.
    """
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        raise SchemaError(f"the rows have several columns with the name {twice[0]!r}: rename all but one")
    missing = [name for name in dict(plan.key_types) if not columns_of(schema, [name])]
    missing += [name for name in filter(None, [plan.operation_by]) if name not in schema.names]
    if RESCUE_NAME not in schema.names:
        missing += [name for name in filter(None, [plan.newer_by]) if not columns_of(schema, [name])]
    if missing:
        raise SchemaError(
            f"the rows have no column {missing[0]!r}, which table {plan.table!r} or an option needs: they have "
            f"{', '.join(schema.names)}"
        )


def legal_key_hashes(batch: pa.RecordBatch, plan: WritePlan) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the rows that have a valid key, and the hash of each."""
    keys = dict(plan.key_types)
    encoded = ItemEncoder(batch.schema, columns_of(batch.schema, keys), keys).encode(batch)
    legal = np.flatnonzero(np.diff(encoded.offsets))
    return legal, key_hashes(take_rows(batch, legal), list(keys))


class RowEncoder:
    """Encoder of record batches of one schema as writes.

    Parameters
    ----------
    free_buffers
        See ``LaneSplitter``.

    Raises
    ------
    SchemaError
        See ``check_columns``.
    """

    def __init__(
        self, schema: pa.Schema, plan: WritePlan, free_buffers: deque[NDArray[np.uint8]] | None = None
    ) -> None:
        self._keys = dict(plan.key_types)
        check_columns(schema, plan)
        template, self._encoder = request_encoder(schema, plan)
        self._splitter = LaneSplitter(plan.lanes, template, deque() if free_buffers is None else free_buffers)

    def encode(self, batch: pa.RecordBatch, first_row: int = 0) -> LaneWrites:
        """Return the writes of each lane. Rows are numbered from ``first_row``."""
        encoded = self._encoder.encode(batch)
        rows = np.flatnonzero(np.diff(encoded.offsets))
        if len(rows) < batch.num_rows:
            batch = take_rows(batch, rows)
        hashes = key_hashes(batch, list(self._keys))
        texts = RowBytes(encoded.texts, encoded.offsets[:-1], encoded.offsets[1:], encoded.units, first_row)
        return LaneWrites(self._splitter.split(texts, rows, hashes, encoded.templates), tuple(encoded.refusals))


def takes_raw_items(plan: WritePlan) -> bool:
    """Return whether DynamoDB JSON can be written as raw items: ``update`` and ``operation_by`` need columns."""
    return not plan.nulls_matter


def raw_item_reader(plan: WritePlan) -> RawItemReader:
    """Return a reader of raw items for a write."""
    return RawItemReader(dict(plan.key_types), plan.index_keys, plan.newer_by, takes_illegal=True)


class RawItemEncoder:
    """Encoder of raw items as writes. They must come from the ``raw_item_reader`` of the same plan.

    Parameters
    ----------
    free_buffers
        See ``LaneSplitter``.
    """

    def __init__(self, plan: WritePlan, free_buffers: deque[NDArray[np.uint8]] | None = None) -> None:
        self._plan, self._keys = plan, dict(plan.key_types)
        template, _ = request_encoder(_NO_ROWS, plan)
        self._splitter = LaneSplitter(plan.lanes, template, deque() if free_buffers is None else free_buffers)
        self._compared = None
        if plan.newer_by is not None:
            names = list(self._keys)
            self._compared = names.index(plan.newer_by) if plan.newer_by in names else len(names)

    def encode(self, items: RawItems, first_row: int = 0) -> LaneWrites:
        """Return the writes of each lane. Items are numbered from ``first_row``."""
        data, hashes, units = items.data, items.hashes, write_units(items.sizes)
        begins, ends = np.ascontiguousarray(items.spans[:, 0]), np.ascontiguousarray(items.spans[:, 1])
        if self._plan.mode == "delete" or self._compared is not None:
            data, offsets = joined_texts([column.within(~items.doubtful) for column in self._columns(items)])
            begins, ends = offsets[:-1].copy(), offsets[1:].copy()
        if self._plan.mode == "delete":
            units = np.ones(len(items))
        refusals: list[Refusal] = []
        rows = np.flatnonzero(items.doubtful)
        if len(rows):
            encoded, hashes_of_rows = self._by_columns(items, rows)
            begins[rows], ends[rows] = encoded.offsets[:-1] + len(data), encoded.offsets[1:] + len(data)
            data = np.concatenate([data, encoded.texts])
            units[rows], hashes = encoded.units, hashes.copy()
            hashes[rows] = hashes_of_rows
            refusals = [
                Refusal(int(rows[refusal.row]), refusal.attribute, refusal.rule, refusal.message)
                for refusal in encoded.refusals
            ]
        encodable = np.flatnonzero(ends - begins)
        texts = RowBytes(data, begins, ends, units, first_row)
        return LaneWrites(self._splitter.split(texts, encodable, hashes[encodable], {}), tuple(refusals))

    def _columns(self, items: RawItems) -> list[RowTexts]:
        """Return the parts of a request for each item that is not doubtful."""
        everywhere = np.ones(len(items), np.bool_)
        columns = [RowTexts(items.data, items.spans[:, 0], items.spans[:, 1])]
        if self._plan.mode == "delete":
            columns = []
            for position, name in enumerate(self._keys):
                opening = f"{',' if position else '{'}{compact_json(name)}:".encode()
                columns += [RowTexts.where(everywhere, opening), _values_of(items, position)]
            columns.append(RowTexts.where(everywhere, b"}"))
        if self._compared is None:
            return columns
        opening = VALUES + b'{":v0":'
        compared = _values_of(items, self._compared)
        return [*columns, RowTexts.where(everywhere, opening), compared, RowTexts.where(everywhere, b"}")]

    def _by_columns(self, items: RawItems, rows: NDArray[np.int64]) -> tuple[EncodedRows, NDArray[np.uint64]]:
        """Encode some items by columns. Return the result and the hashes of their keys."""
        batch = item_columns([parse_json(items.text(row)) for row in rows.tolist()])
        encoder = request_encoder(batch.schema, self._plan)[1]
        encoded = encoder.encode(batch)
        encodable = np.flatnonzero(np.diff(encoded.offsets))
        hashes = np.zeros(len(rows), np.uint64)
        if len(encodable):
            hashes[encodable] = key_hashes(take_rows(batch, encodable), list(self._keys))
        return encoded, hashes


def _values_of(items: RawItems, number: int) -> RowTexts:
    return RowTexts(items.data, items.values[:, number, 0], items.values[:, number, 1])


# Files with different columns are read one after the other.
_MAX_ENCODERS = 16


class ItemsOfRows:
    """Encoder of record batches as raw items before they are spread: bytes are reordered faster than columns.

    Batches with a refused row stay columns, from which rejects are made. All batches stay columns if a request needs
    more of a row than its item.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan, self._keys = plan, dict(plan.key_types)
        takes_items = plan.mode in {"upsert", "create"}
        self._is_asked = takes_items and plan.newer_by is None and plan.operation_by is None
        self._encoder: tuple[bytes, Encoder] | None = None

    def of(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch | RawItems]:
        """Yield the rows as raw items, or unchanged."""
        if not self._is_asked:
            yield rows
            return
        for chunk in chunks(rows, self._plan):
            yield self._items_of(cast("pa.RecordBatch", chunk))

    def _items_of(self, rows: pa.RecordBatch) -> pa.RecordBatch | RawItems:
        encoded = self._encoder_of(rows.schema).encode(rows)
        if encoded.refusals:
            return rows
        spans = np.stack([encoded.offsets[:-1], encoded.offsets[1:]], axis=1)
        # Only conditions and deletes use the values of keys.
        values = np.zeros((len(spans), len(self._keys), 2), np.int64)
        hashes = key_hashes(rows, list(self._keys))
        return RawItems(encoded.buffer, spans, encoded.sizes, hashes, values, np.zeros(len(spans), np.bool_))

    def _encoder_of(self, schema: pa.Schema) -> Encoder:
        # See ``Encoders.of``.
        key = schema.serialize().to_pybytes()
        if self._encoder is None or self._encoder[0] != key:
            check_columns(schema, self._plan)
            options = EncodeOptions(index_keys=self._plan.index_keys)
            self._encoder = key, Encoder(schema, keys=self._keys, options=options)
        return self._encoder[1]


class Encoders:
    """Encoders of one write: for the most recent schemas, and for raw items.

    Parameters
    ----------
    free_buffers
        See ``LaneSplitter``.
    """

    def __init__(self, plan: WritePlan, free_buffers: deque[NDArray[np.uint8]]) -> None:
        self._plan, self._free_buffers = plan, free_buffers
        self._encoders: dict[bytes, RowEncoder | RawItemEncoder] = {}

    def of(self, rows: pa.RecordBatch | RawItems) -> RowEncoder | RawItemEncoder:
        """Return the encoder of some rows.

        Raises
        ------
        SchemaError
            See ``check_columns``.
        """
        # Schemas with different metadata are equal for Arrow, but a list may be a set in only one of them.
        key = b"" if isinstance(rows, RawItems) else rows.schema.serialize().to_pybytes()
        encoder = self._encoders.pop(key, None)
        if encoder is None:
            if isinstance(rows, RawItems):
                encoder = RawItemEncoder(self._plan, self._free_buffers)
            else:
                encoder = RowEncoder(rows.schema, self._plan, self._free_buffers)
        self._encoders[key] = encoder
        if len(self._encoders) > _MAX_ENCODERS:
            del self._encoders[next(iter(self._encoders))]
        return encoder
