"""Encode rows as the writes of several lanes, as a plan says.

Rows come as columns, or as raw items, whose bytes go into the requests unchanged. A raw item that its reader cannot
vouch for is decoded and encoded like columns, so that it is refused by the same rules in the same words.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.core.decode import Decoder
from ddbio.core.encode import Refusal
from ddbio.core.identity import key_hashes
from ddbio.core.kernel.encode.fields import take_rows
from ddbio.core.loads.batches import LaneSplitter, Texts, Writes, write_units
from ddbio.core.loads.requests import VALUES, Made, columns_of, parts_of
from ddbio.core.raw_items import RawItemReader
from ddbio.core.schema.arrow import RESCUE_NAME, name_of_field, normalize_schema, tag_of_field, tagged_field
from ddbio.core.schema.item_schema import ItemSchema
from ddbio.core.text.json_text import compact_json, parse_json
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ddbio.core.loads.plan import WritePlan
    from ddbio.core.raw_items import RawItems

_NO_ROWS = pa.schema([])


@dataclass(frozen=True)
class Encoded:
    """Hold what a batch became: writes for each lane, and the rows that make none."""

    lanes: list[Writes]
    refusals: tuple[Refusal, ...]


def check_columns(schema: pa.Schema, plan: WritePlan) -> None:
    """Refuse columns of which no row could be written.

    Raises
    ------
    SchemaError
        If they lack a key attribute of the table, or the one to compare or to decide by, or one is there twice.
    """
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        raise SchemaError(f"the rows have {twice[0]!r} as the name of several columns: rename all but one")
    missing = [name for name in dict(plan.key_types) if not columns_of(schema, [name])]
    missing += [name for name in filter(None, [plan.operation_by]) if name not in schema.names]
    if RESCUE_NAME not in schema.names:
        missing += [name for name in filter(None, [plan.newer_by]) if not columns_of(schema, [name])]
    if missing:
        raise SchemaError(
            f"the rows have no column {missing[0]!r}, which table {plan.table!r} or an option asks for: they have "
            f"{', '.join(schema.names)}"
        )


class RowWriter:
    """Make writes of batches of one schema, as a plan says.

    Parameters
    ----------
    spare
        As of ``LaneSplitter``.

    Raises
    ------
    SchemaError
        If the columns lack a key attribute of the table, or the one to compare or to decide by, or one is there twice.
    """

    def __init__(self, schema: pa.Schema, plan: WritePlan, spare: deque[NDArray[np.uint8]] | None = None) -> None:
        self._keys = dict(plan.key_types)
        check_columns(schema, plan)
        frame, self._maker = parts_of(schema, plan)
        self._splitter = LaneSplitter(plan.lanes, frame, deque() if spare is None else spare)

    def writes(self, batch: pa.RecordBatch, first_row: int = 0) -> Encoded:
        """Return the writes of a batch's rows, by lane; their numbers are counted from ``first_row``."""
        made = self._maker.make(batch)
        rows = np.flatnonzero(np.diff(made.offsets))
        if len(rows) < batch.num_rows:
            batch = take_rows(batch, rows)
        hashes = key_hashes(batch, list(self._keys))
        texts = Texts(made.texts, made.offsets[:-1], made.offsets[1:], made.units, first_row)
        return Encoded(self._splitter.split(texts, rows, hashes, made.frames), tuple(made.refusals))


def writes_text(plan: WritePlan) -> bool:
    """Return whether items can be written as the text they are: updates, and what a column decides, need columns."""
    return not plan.nulls_matter


def reader_of(plan: WritePlan) -> RawItemReader:
    """Return what reads items for such a write."""
    return RawItemReader(dict(plan.key_types), plan.index_keys, plan.newer_by)


class ItemWriter:
    """Make writes of items that ``reader_of`` has read for the same plan.

    Parameters
    ----------
    spare
        As of ``LaneSplitter``.
    """

    def __init__(self, plan: WritePlan, spare: deque[NDArray[np.uint8]] | None = None) -> None:
        self._plan, self._keys = plan, dict(plan.key_types)
        frame, _ = parts_of(_NO_ROWS, plan)
        self._splitter = LaneSplitter(plan.lanes, frame, deque() if spare is None else spare)
        self._compared = None
        if plan.newer_by is not None:
            names = list(self._keys)
            self._compared = names.index(plan.newer_by) if plan.newer_by in names else len(names)

    def writes(self, items: RawItems, first_row: int = 0) -> Encoded:
        """Return the writes of some items, by lane; their numbers are counted from ``first_row``."""
        data, hashes, units = items.data, items.hashes, write_units(items.sizes)
        begins, ends = np.ascontiguousarray(items.spans[:, 0]), np.ascontiguousarray(items.spans[:, 1])
        if self._plan.mode == "delete" or self._compared is not None:
            made = Made.of_parts([self._part(items, row) for row in range(len(items))], units, [], {})
            data, begins, ends = made.texts, made.offsets[:-1].copy(), made.offsets[1:].copy()
        if self._plan.mode == "delete":
            units = np.ones(len(items))
        refusals: list[Refusal] = []
        rows = np.flatnonzero(items.doubtful)
        if len(rows):
            made, found = self._by_columns(items, rows)
            begins[rows], ends[rows] = made.offsets[:-1] + len(data), made.offsets[1:] + len(data)
            data = np.concatenate([data, made.texts])
            units[rows], hashes = made.units, hashes.copy()
            hashes[rows] = found
            refusals = [Refusal(int(rows[each.row]), each.attribute, each.rule, each.message) for each in made.refusals]
        taken = np.flatnonzero(ends - begins)
        texts = Texts(data, begins, ends, units, first_row)
        return Encoded(self._splitter.split(texts, taken, hashes[taken], {}), tuple(refusals))

    def _part(self, items: RawItems, row: int) -> bytes:
        if items.doubtful[row]:
            return b""
        part = items.text(row)
        if self._plan.mode == "delete":
            names = [compact_json(name).encode() for name in self._keys]
            members = (name + b":" + items.value(row, key) for key, name in enumerate(names))
            part = b"{" + b",".join(members) + b"}"
        if self._compared is None:
            return part
        return b"".join((part, VALUES, b'{":v0":', items.value(row, self._compared), b"}"))

    def _by_columns(self, items: RawItems, rows: NDArray[np.int64]) -> tuple[Made, NDArray[np.uint64]]:
        """Return what some items become that are decoded and encoded, and the hashes of their keys."""
        found = [parse_json(items.text(row)) for row in rows.tolist()]
        lines = "\n".join(map(compact_json, found)).encode()
        schema = self._schema_of(ItemSchema.of_items(found).to_arrow())
        try:
            maker = parts_of(schema, self._plan)[1]
        except SchemaError:
            # A name that no column may have is refused in its row alone.
            schema = normalize_schema(pa.schema([]))
            maker = parts_of(schema, self._plan)[1]
        batch = Decoder(schema, nulls="keep").decode(lines, "items")
        made = maker.make(batch)
        taken = np.flatnonzero(np.diff(made.offsets))
        hashes = np.zeros(len(rows), np.uint64)
        if len(taken):
            hashes[taken] = key_hashes(take_rows(batch, taken), list(self._keys))
        return made, hashes

    def _schema_of(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema in which a key of another type than the table's is JSON, so that it spoils its rows alone."""
        for place, field in enumerate(schema):
            name = name_of_field(field)
            if name in self._keys and tag_of_field(field) not in {self._keys[name], "JSON"}:
                schema = schema.set(place, tagged_field(field.name, pa.string(), "JSON", attribute=name))
        return schema
