"""Encoding of rows as write requests: the bytes that each row adds to its request, and the template of the requests.

Upserts and deletes share BatchWriteItem requests. Updates and conditional writes (``create``, ``newer_by``) need a
request for each row, with expressions and values. Every attribute name in an expression is a numbered alias, so that no
name is read as a reserved word or a path. A row that no request can carry is refused with the reason.

A request for one row consists of several texts: a key or an item, literals, values, an expression. Each column of such
texts has the offsets of every row's text, and one loop copies them all. So no row needs a step of Python.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import compress, count, pairwise
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.encode import EncodeOptions, Encoder, Refusal
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.kernel.arrays import take_rows, valid_of
from ddbio.items.kernel.lines import take_texts
from ddbio.items.kernel.memory import PAD
from ddbio.items.rescue import twice_reason
from ddbio.items.schema.arrow import RESCUE_NAME, is_item_bytes, is_nulls, name_of_field, set_attribute_name
from ddbio.load.batches import RequestTemplate, write_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.aws.table_description import IndexKey
    from ddbio.items.encode import EncodedItems
    from ddbio.load.plan import WritePlan

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_WriteRequest.html
PUT = b'{"PutRequest":{"Item":', b"}}"
DELETE = b'{"DeleteRequest":{"Key":', b"}}"
VALUES = b',"ExpressionAttributeValues":'
OPERATIONS = ("put", "delete", "update")
"""Valid values of the column ``operation_by``."""
_NO_VALUES = b"{}"


# The maximum number of texts whose offsets are in memory at the same time.
_BLOCK_TEXTS = 1 << 18


@dataclass(frozen=True)
class RowTexts:
    """Texts of rows as offsets into a buffer. Several rows may share a text, and a text may be empty."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of_offsets(cls, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> RowTexts:
        """Return texts that are adjacent in the buffer."""
        return cls(data, offsets[:-1], offsets[1:])

    @classmethod
    def chosen(cls, texts: Sequence[bytes], choices: NDArray[np.integer]) -> RowTexts:
        """Return one of a few texts for each row."""
        ends = np.cumsum([0, *map(len, texts)])
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends[:-1][choices], ends[1:][choices])

    @classmethod
    def where(cls, has_text: NDArray[np.bool_], text: bytes) -> RowTexts:
        """Return a text for some of the rows, and an empty text for the others."""
        return cls.chosen((b"", text), has_text.astype(np.intp))

    def within(self, has_text: NDArray[np.bool_]) -> RowTexts:
        """Return the texts of some of the rows, and empty texts for the others."""
        return RowTexts(self.data, np.where(has_text, self.begins, 0), np.where(has_text, self.ends, 0))

    def spread(self, rows: NDArray[np.int64], count: int) -> RowTexts:
        """Return the texts for the given rows of ``count`` rows. The other rows have empty texts."""
        begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        begins[rows], ends[rows] = self.begins, self.ends
        return RowTexts(self.data, begins, ends)

    def replaced(self, texts: Mapping[int, bytes]) -> RowTexts:
        """Return the texts with replacements for a few rows."""
        if not texts:
            return self
        rows = np.fromiter(texts, np.int64, len(texts))
        ends = len(self.data) + np.cumsum([0, *map(len, texts.values())])
        replaced = RowTexts(
            np.concatenate([self.data, np.frombuffer(b"".join(texts.values()), np.uint8)]),
            self.begins.copy(),
            self.ends.copy(),
        )
        replaced.begins[rows], replaced.ends[rows] = ends[:-1], ends[1:]
        return replaced

    def text(self, row: int) -> bytes:
        """Return the text of one row."""
        return self.data[self.begins[row] : self.ends[row]].tobytes()


def joined_texts(columns: Sequence[RowTexts]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the texts of all columns, row by row, and the offset of each row and of the end."""
    shifts: dict[int, int] = {}
    sources: list[NDArray[np.uint8]] = []
    size = 0
    for column in columns:
        # Columns of the same source need it only once.
        if id(column.data) not in shifts:
            shifts[id(column.data)] = size
            sources.append(column.data)
            size += len(column.data)
    begins, ends = (
        np.stack([getattr(column, attribute) + shifts[id(column.data)] for column in columns], axis=1).ravel()
        for attribute in ("begins", "ends")
    )
    joined, starts = _copied(np.concatenate(sources), begins, ends)
    return joined, np.ascontiguousarray(starts[:: len(columns)])


class UpdateExpressions:
    """Update expressions of rows: they set the columns that a row has, and remove the others.

    Parameters
    ----------
    columns
        The number of columns. The alias of each is its number.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        pieces = [f", #n{number} = :v{number}".encode() for number in range(columns)]
        pieces += [f", #n{number}".encode() for number in range(columns)]
        pieces += [b',"UpdateExpression":"SET ', b',"UpdateExpression":"REMOVE ', b" REMOVE ", b'"', b""]
        self._pieces = np.frombuffer(bytearray(b"".join(pieces)), np.uint8)
        ends = np.cumsum([0, *map(len, pieces)])
        self._begins, self._ends = ends[:-1], ends[1:]

    def of(self, present: NDArray[np.bool_]) -> RowTexts:
        """Return the expression of each row, with its name in the request.

        Parameters
        ----------
        present
            A mask of the columns, of at least one, that each row has. Rows with the same mask share a text.
        """
        patterns, choices = distinct_rows(present)
        step = max(1, _BLOCK_TEXTS // (2 * self._columns + 3))
        blocks = [self._texts_of(patterns[first : first + step]) for first in range(0, max(1, len(patterns)), step)]
        texts = np.concatenate([text for text, _ in blocks])
        counts = np.concatenate([np.diff(offsets) for _, offsets in blocks])
        ends = np.concatenate([[0], np.cumsum(counts)])
        return RowTexts(texts, ends[:-1][choices], ends[1:][choices])

    def _texts_of(self, present: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the expression of each pattern."""
        count, opening = self._columns, 2 * self._columns
        sets, removes = present.any(axis=1), ~present.all(axis=1)
        nothing = opening + 4
        chosen = np.full((len(present), 2 * count + 3), nothing)
        chosen[:, 0] = np.where(sets, opening, opening + 1)
        chosen[:, 1 : count + 1] = np.where(present, np.arange(count), nothing)
        chosen[:, count + 1] = np.where(sets & removes, opening + 2, nothing)
        chosen[:, count + 2 : -1] = np.where(present, nothing, np.arange(count, 2 * count))
        chosen[:, -1] = opening + 3
        begins, ends = self._begins[chosen], self._ends[chosen]
        # The first element of each clause has no comma before it.
        rows = np.arange(len(present))
        for has_any, is_listed, first in ((sets, present, 1), (removes, ~present, count + 2)):
            begins[rows[has_any], first + is_listed.argmax(axis=1)[has_any]] += len(b", ")
        texts, starts = _copied(self._pieces, begins.ravel(), ends.ravel())
        return texts, starts[:: chosen.shape[1]]


def distinct_rows(flags: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return the distinct rows of a table, and the number of each row among them."""
    packed = np.packbits(flags, axis=1)
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, numbers = np.unique(rows, return_index=True, return_inverse=True)
    return flags[first], numbers.astype(np.int64, copy=False)


def _copied(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return some texts back to back, with the offset of each and of the end."""
    size = int((ends - begins).sum())
    copied, starts = np.empty(size + PAD, np.uint8), np.empty(len(begins) + 1, np.int64)
    take_texts(data, begins, ends, np.arange(len(begins)), np.frombuffer(bytes(PAD), np.uint8), copied, starts)
    return copied[:size], starts


@dataclass(frozen=True)
class EncodedRows:
    """Bytes that each row of a batch adds to its request.

    Attributes
    ----------
    texts
        The bytes of all rows. Valid until the next batch is encoded.
    offsets
        The offset of the bytes of each row, and the end of the last ones. A refused row has no bytes.
    units
        The expected write units of each row.
    refusals
        The reasons for refused rows, at most one per row.
    templates
        In requests of many rows: the templates of rows that need a separate request.
    """

    texts: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    units: NDArray[np.float64]
    refusals: list[Refusal]
    templates: dict[int, RequestTemplate] = field(default_factory=dict)

    @classmethod
    def joined(
        cls,
        columns: Sequence[RowTexts],
        units: NDArray[np.float64],
        refusals: Sequence[Refusal],
        templates: dict[int, RequestTemplate] | None = None,
    ) -> EncodedRows:
        """Join the texts of each row that is not refused."""
        taken = np.ones(len(units), np.bool_)
        taken[[refusal.row for refusal in refusals]] = False
        if refusals:
            columns = [column.within(taken) for column in columns]
        return cls(*joined_texts(columns), units, list(refusals), templates or {})

    @property
    def row_texts(self) -> RowTexts:
        """Return the bytes of each row as offsets."""
        return RowTexts.of_offsets(self.texts, self.offsets)

    def rows(self) -> list[bytes]:
        """Return the bytes of each row. A refused row has no bytes."""
        data = self.texts.tobytes()
        return [data[start:end] for start, end in pairwise(self.offsets.tolist())]


RequestEncoder: TypeAlias = "ItemEncoder | UpdateEncoder | _MixedEncoder"
"""Encoder of rows as the bytes that each adds to its request."""


def batch_template(table: str, opening: bytes = b"", closing: bytes = b"") -> RequestTemplate:
    """Return the template of a BatchWriteItem request with each row between ``opening`` and ``closing``."""
    head = b'{"RequestItems":{' + compact_json(table).encode() + b":[" + opening
    tail = closing + b']},"ReturnConsumedCapacity":"INDEXES"}'
    return RequestTemplate("BatchWriteItem", head, closing + b"," + opening, tail)


def single_template(operation: str, table: str, member: str, extra: Mapping[str, object]) -> RequestTemplate:
    """Return the template of a request for one row. The row's bytes are the value of ``member``."""
    members = {"TableName": table, "ReturnConsumedCapacity": "INDEXES", **extra}
    return RequestTemplate(operation, f'{compact_json(members)[:-1]},"{member}":'.encode(), None, b"}")


def absent_condition(partition_key: str, compared: str | None = None) -> dict[str, object]:
    """Return the condition that there is no item, or that it is older by the compared attribute."""
    names = {"#n0": partition_key} if compared is None else {"#n0": partition_key, "#n1": compared}
    newer = "" if compared is None else " OR #n1 < :v0"
    return {"ConditionExpression": f"attribute_not_exists(#n0){newer}", "ExpressionAttributeNames": names}


def columns_of(schema: pa.Schema, attributes: Iterable[str]) -> list[str]:
    """Return the column names of some attributes, without attributes that have no column."""
    columns = {name_of_field(field): field.name for field in schema if field.name != RESCUE_NAME}
    return [columns[name] for name in attributes if name in columns]


class ItemEncoder:
    """Encoder of columns as items, or as keys if they are the key columns, followed by the value of a condition.

    Parameters
    ----------
    names
        The columns.
    compared
        The attribute that the condition compares. Its value may be in the rescue column.
    """

    def __init__(
        self,
        schema: pa.Schema,
        names: Sequence[str],
        keys: Mapping[str, str],
        compared: str | None = None,
        index_keys: tuple[IndexKey, ...] = (),
    ) -> None:
        self._names = list(names)
        options = EncodeOptions(index_keys=index_keys)
        self._encoder = Encoder(pa.schema([schema.field(name) for name in names]), keys=keys, options=options)
        self._compared = compared
        self._values = ValuesEncoder(schema, columns_of(schema, filter(None, [compared])))

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the bytes of each row."""
        encoded = _encoded_rows(self._encoder.encode_view(batch.select(self._names)))
        if self._compared is None:
            return encoded
        compared_values = self._values.encode(batch)
        values = _with_rescued(compared_values.row_texts, batch, self._compared)
        lacking = np.flatnonzero(values.ends - values.begins == len(_NO_VALUES))
        refusals = _refused((*encoded.refusals, *compared_values.refusals), lacking)
        return EncodedRows.joined([encoded.row_texts, *_member(values)], encoded.units, refusals)


class ValuesEncoder:
    """Encoder of columns as the ExpressionAttributeValues of a request. Their names are their numbers."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        self._names = list(names)
        fields = [schema.field(name) for name in names]
        self._schema = pa.schema([set_attribute_name(field, f":v{n}") for n, field in enumerate(fields)])
        self._encoder = Encoder(self._schema)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the values of each row as one JSON object."""
        if not self._names:
            none = RowTexts.chosen([_NO_VALUES], np.zeros(batch.num_rows, np.intp))
            return EncodedRows.joined([none], np.zeros(batch.num_rows), [])
        columns = [batch.column(name) for name in self._names]
        return _encoded_rows(self._encoder.encode_view(pa.RecordBatch.from_arrays(columns, schema=self._schema)))


def _encoded_rows(items: EncodedItems) -> EncodedRows:
    return EncodedRows(items.buffer, items.offsets, write_units(items.sizes), list(items.refusals))


def _with_rescued(values: RowTexts, batch: pa.RecordBatch, compared: str) -> RowTexts:
    """Use the compared value of the rescue column if the column of the row is null."""
    if RESCUE_NAME not in batch.schema.names or batch.column(RESCUE_NAME).null_count == batch.num_rows:
        return values
    rescued, values_by_row = batch.column(RESCUE_NAME), dict[int, bytes]()
    has_none = values.ends - values.begins == len(_NO_VALUES)
    for row in np.flatnonzero(has_none & valid_of(rescued)).tolist():
        value = _rescued_value(rescued[row].as_py() or "{}", compared)
        if value is not None:
            values_by_row[row] = compact_json({":v0": value}).encode()
    return values.replaced(values_by_row)


def _rescued_value(text: str, name: str) -> Any:
    try:
        return json.loads(text).get(name)
    except (ValueError, AttributeError):
        # The encoder of the item refuses the row.
        return None


def _member(values: RowTexts) -> tuple[RowTexts, RowTexts]:
    """Return the values of each row and the member name before them. Both are empty for rows without values."""
    has_some = values.ends - values.begins > len(_NO_VALUES)
    return RowTexts.where(has_some, VALUES), values.within(has_some)


def _refused(refusals: Iterable[Refusal], lacking: NDArray[np.int64]) -> list[Refusal]:
    """Return the first refusal of each row, and one for each other row that has no value to compare."""
    refusals_by_row: dict[int, Refusal] = {}
    for refusal in refusals:
        refusals_by_row.setdefault(refusal.row, refusal)
    for row in lacking.tolist():
        refusals_by_row.setdefault(row, Refusal(row, "", "newer_by", "the row has no value to compare by newer_by"))
    return list(refusals_by_row.values())


class UpdateEncoder:
    """Encoder of rows as updates: each sets the attributes that it has, and removes those that are null.

    Attributes in the rescue column are also set. Attributes without a column are not changed. If rows list their null
    attributes, unlisted null attributes are not changed.

    Attributes
    ----------
    template
        The template of rows that set only attributes with a column.
    """

    def __init__(
        self, schema: pa.Schema, names: Sequence[str], keys: Mapping[str, str], table: str, compared: str | None = None
    ) -> None:
        self._table, self._compared, self._partition_key = table, compared, next(iter(keys))
        key_columns = columns_of(schema, keys)
        self._keys = ItemEncoder(schema, key_columns, keys)
        self._nulls = next((field.name for field in schema if is_nulls(field)), None)
        others = {*key_columns, RESCUE_NAME, self._nulls, *(field.name for field in schema if is_item_bytes(field))}
        self._names = [name for name in names if name not in others]
        self._attributes = [name_of_field(schema.field(name)) for name in self._names]
        self._numbers = {attribute: number for number, attribute in enumerate(self._attributes)}
        self._values = ValuesEncoder(schema, self._names)
        self._rescued = Encoder(pa.schema([schema.field(RESCUE_NAME)])) if RESCUE_NAME in names else None
        self._expressions = UpdateExpressions(len(self._names))
        self._name_texts = [_name_text(number, name) for number, name in enumerate(self._attributes)]
        self.template = self._template(())

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the bytes of each row, and templates of the rows that set attributes without a column."""
        present = np.ones((batch.num_rows, len(self._names)), bool)
        for number, name in enumerate(self._names):
            present[:, number] = valid_of(batch.column(name))
        encoded = self._values.encode(batch)
        values, refusals, more = self._with_rescued(encoded, batch, present)
        keys = self._keys.encode(batch)
        lacking = np.zeros(batch.num_rows, bool)
        if self._compared is not None:
            compared_number = self._numbers.get(self._compared)
            lacking = np.ones(batch.num_rows, bool) if compared_number is None else ~present[:, compared_number]
            lacking[[row for row, names in more.items() if self._compared in names]] = False
        refusals = _refused((*keys.refusals, *refusals), np.flatnonzero(lacking))
        columns = [keys.row_texts, *_member(values)]
        if self._names or any(more.values()):
            columns.append(self._expressions_of(present, self._removed(batch, present), more))
        return EncodedRows.joined(columns, keys.units, refusals, self._own_templates(more, refusals))

    def _removed(self, batch: pa.RecordBatch, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the columns that each row removes: the null ones, or those of them that the row lists."""
        if self._nulls is None:
            return ~present
        named: Any = batch.column(self._nulls)
        numbers: Any = pc.index_in(named.flatten(), pa.array(self._attributes, pa.string()))
        is_column = numbers.is_valid()
        removed = np.zeros_like(present)
        removed[pc.list_parent_indices(named).filter(is_column), numbers.filter(is_column)] = True
        return removed & ~present

    def _expressions_of(
        self, present: NDArray[np.bool_], removed: NDArray[np.bool_], more: Mapping[int, tuple[str, ...]]
    ) -> RowTexts:
        """Return each row's update expression.

        The template has its attribute names, unless these differ between rows.
        """
        full_expressions = {
            row: self._full_expression(present[row].tolist(), removed[row].tolist(), names)
            for row, names in more.items()
            if names
        }
        if not self._names:
            return RowTexts.chosen([b""], np.zeros(len(present), np.intp)).replaced(full_expressions)
        if self._nulls is None:
            return self._expressions.of(present).replaced(full_expressions)
        patterns, choices = distinct_rows(np.concatenate([present, removed], axis=1))
        sets, removes = (masks.tolist() for masks in np.hsplit(patterns, 2))
        texts = [self._full_expression(*masks, ()) for masks in zip(sets, removes, strict=True)]
        return RowTexts.chosen(texts, choices).replaced(full_expressions)

    def _own_templates(
        self, more: Mapping[int, tuple[str, ...]], refusals: Iterable[Refusal]
    ) -> dict[int, RequestTemplate]:
        templates: dict[tuple[str, ...], RequestTemplate] = {}
        refused = {refusal.row for refusal in refusals}
        own: dict[int, RequestTemplate] = {}
        for row, names in more.items():
            if names and row not in refused:
                own[row] = templates.get(names) or templates.setdefault(names, self._template(names))
        return own

    def _with_rescued(
        self, values: EncodedRows, batch: pa.RecordBatch, present: NDArray[np.bool_]
    ) -> tuple[RowTexts, list[Refusal], dict[int, tuple[str, ...]]]:
        """Add attributes of the rescue column to the values.

        Returns the values, the refusals, and by row the names without a column. The columns that are in the rescue
        column are also set in ``present``.
        """
        texts = values.row_texts
        if self._rescued is None or batch.column(RESCUE_NAME).null_count == batch.num_rows:
            return texts, values.refusals, {}
        encoded = self._rescued.encode(batch.select([RESCUE_NAME]))
        refusals = {refusal.row: refusal for refusal in (*encoded.refusals, *values.refusals)}
        joined, more = dict[int, bytes](), dict[int, tuple[str, ...]]()
        for row in np.flatnonzero(np.diff(encoded.offsets) > len(_NO_VALUES)).tolist():
            rescued = parse_json(encoded.buffer[encoded.offsets[row] : encoded.offsets[row + 1]].tobytes())
            more[row] = tuple(name for name in rescued if name not in self._numbers)
            numbers_of_columns = {name: self._numbers[name] for name in rescued if name in self._numbers}
            twice = next((name for name, number in numbers_of_columns.items() if present[row, number]), None)
            if twice is not None:
                refusals[row] = Refusal(row, RESCUE_NAME, "duplicate", twice_reason(twice))
            present[row, list(numbers_of_columns.values())] = True
            numbers = numbers_of_columns | {name: len(self._names) + n for n, name in enumerate(more[row])}
            joined[row] = _joined(texts.text(row), {f":v{number}": rescued[name] for name, number in numbers.items()})
        return texts.replaced(joined), [refusals[row] for row in sorted(refusals)], more

    def _full_expression(self, has: Sequence[bool], removed: Sequence[bool], more: tuple[str, ...]) -> bytes:
        """Return the expression of a row that sets attributes without a column, or has separate attribute names."""
        added = range(len(has), len(has) + len(more))
        sets = ", ".join([f"#n{number} = :v{number}" for number in (*compress(count(), has), *added)])
        removes = ", ".join([f"#n{number}" for number in compress(count(), removed)])
        clauses = " ".join(filter(None, [sets and f"SET {sets}", removes and f"REMOVE {removes}"]))
        expression = f',"UpdateExpression":"{clauses}"' if clauses else ""
        if self._nulls is None or not clauses:
            return expression.encode()
        # A name that is in no expression would be an error.
        names = [*compress(self._name_texts, map(or_, has, removed)), *map(_name_text, added, more)]
        if self._compared in self._numbers or self._compared in more:
            names.append(f'"#k":{compact_json(self._partition_key)}')
        return f'{expression},"ExpressionAttributeNames":{{{",".join(names)}}}'.encode()

    def _template(self, more: tuple[str, ...]) -> RequestTemplate:
        attributes = [*self._attributes, *more]
        names = {f"#n{number}": name for number, name in enumerate(attributes)}
        extra: dict[str, object] = {"ExpressionAttributeNames": names} if names and self._nulls is None else {}
        if self._compared in attributes:
            number = attributes.index(self._compared)
            names["#k"] = self._partition_key
            extra["ConditionExpression"] = f"attribute_not_exists(#k) OR #n{number} < :v{number}"
        return single_template("UpdateItem", self._table, "Key", extra)


def _name_text(number: int, name: str) -> str:
    return f'"#n{number}":{compact_json(name)}'


def _joined(members: bytes, more: dict[str, Any]) -> bytes:
    added = compact_json(more).encode()
    return added if members == b"{}" else members[:-1] + b"," + added[1:]


def request_encoder(schema: pa.Schema, plan: WritePlan) -> tuple[RequestTemplate, RequestEncoder]:
    """Return the template for the rows of a schema, and the encoder of their bytes."""
    keys, names, table = dict(plan.key_types), schema.names, plan.table
    condition, key_columns = absent_condition(plan.key_types[0][0], plan.newer_by), columns_of(schema, keys)
    if plan.operation_by is not None:
        return batch_template(table), _MixedEncoder(schema, plan)
    if plan.mode == "update":
        updates = UpdateEncoder(schema, names, keys, table)
        return updates.template, updates
    if plan.mode == "delete":
        if plan.newer_by is None:
            return batch_template(table, *DELETE), ItemEncoder(schema, key_columns, keys)
        return single_template("DeleteItem", table, "Key", condition), ItemEncoder(
            schema, key_columns, keys, plan.newer_by
        )
    if plan.mode == "create" or plan.newer_by is not None:
        return single_template("PutItem", table, "Item", condition), ItemEncoder(
            schema, names, keys, plan.newer_by, plan.index_keys
        )
    return batch_template(table, *PUT), ItemEncoder(schema, names, keys, index_keys=plan.index_keys)


class _MixedEncoder:
    """Encoder of rows as the operation in their column. Puts and deletes share batches if they are unconditional."""

    def __init__(self, schema: pa.Schema, plan: WritePlan) -> None:
        keys = dict(plan.key_types)
        self._column = plan.operation_by or ""
        names = [name for name in schema.names if name != self._column]
        updates = UpdateEncoder(schema, names, keys, plan.table, plan.newer_by)
        self._encoders: dict[str, tuple[RequestEncoder, tuple[bytes, bytes]]] = {
            "put": (ItemEncoder(schema, names, keys, plan.newer_by, plan.index_keys), PUT),
            "delete": (ItemEncoder(schema, columns_of(schema, keys), keys, plan.newer_by), DELETE),
            "update": (updates, (b"", b"")),
        }
        self._own_templates = {"update": updates.template}
        if plan.newer_by is not None:
            condition = absent_condition(plan.key_types[0][0], plan.newer_by)
            self._own_templates |= {
                "put": single_template("PutItem", plan.table, "Item", condition),
                "delete": single_template("DeleteItem", plan.table, "Key", condition),
            }

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the bytes of each row, and templates of the rows that need a separate request."""
        operations = np.asarray(batch.column(self._column).to_pylist(), object)
        units, refusals, templates = np.ones(batch.num_rows), list[Refusal](), dict[int, RequestTemplate]()
        # Each operation has a column, which is empty in the rows of the others.
        columns: list[RowTexts] = []
        for operation, (encoder, (opening, closing)) in self._encoders.items():
            rows = np.flatnonzero(operations == operation)
            if not len(rows):
                continue
            encoded = encoder.encode(take_rows(batch, rows))
            units[rows] = encoded.units
            texts = encoded.row_texts.spread(rows, batch.num_rows)
            template = self._own_templates.get(operation)
            if template is None:
                is_sent = texts.ends > texts.begins
                columns += [RowTexts.where(is_sent, opening), texts, RowTexts.where(is_sent, closing)]
            else:
                columns.append(texts)
                templates |= dict.fromkeys(rows.tolist(), template)
                templates |= {int(rows[index]): own for index, own in encoded.templates.items()}
            refusals += [
                Refusal(int(rows[refusal.row]), refusal.attribute, refusal.rule, refusal.message)
                for refusal in encoded.refusals
            ]
        for row in np.flatnonzero(~np.isin(operations.astype(str), OPERATIONS)).tolist():
            message = f"{operations[row]!r} is not an operation: use {', '.join(OPERATIONS)}"
            refusals.append(Refusal(row, self._column, "operation", message))
        columns = columns or [RowTexts.where(np.zeros(batch.num_rows, bool), b"")]
        return EncodedRows.joined(columns, units, refusals, templates)
