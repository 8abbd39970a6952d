"""Encode rows as write requests: the bytes that each row adds to its request, and what all requests have in common.

Upserts and deletes share BatchWriteItem requests. Updates and conditional writes (``create``, ``newer_by``) need a
request for each row, with expressions and values. Every attribute name in an expression is an alias with a number, so
that no name is taken for a reserved word or a path. A row that no request could carry is refused with the reason.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ddbio.core.encode import EncodeOptions, Encoder, Refusal
from ddbio.core.kernel.encode.fields import take_rows
from ddbio.core.loads.batches import Frame, write_units
from ddbio.core.rescue import twice_reason
from ddbio.core.schema.arrow import RESCUE_NAME, is_item_bytes, name_of_field, set_attribute_name
from ddbio.core.text.json_text import compact_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.core.loads.plan import WritePlan
    from ddbio.core.table_description import IndexKey

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_WriteRequest.html
PUT = b'{"PutRequest":{"Item":', b"}}"
DELETE = b'{"DeleteRequest":{"Key":', b"}}"
VALUES = b',"ExpressionAttributeValues":'
OPERATIONS = ("put", "delete", "update")
"""What the column of operations may say."""


@dataclass(frozen=True)
class Made:
    """Hold what the rows of a batch became.

    Attributes
    ----------
    texts
        The rows' own bytes, one after the other; good until the next batch is made.
    offsets
        Where each row's begin, and the last one's end; a row that was refused has none.
    units
        Write units that each row is expected to cost.
    refusals
        Why rows were refused, at most one a row.
    frames
        The frame of each row that does not have the common one.
    """

    texts: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    units: NDArray[np.float64]
    refusals: list[Refusal]
    frames: dict[int, Frame] = field(default_factory=dict)

    @classmethod
    def of_parts(
        cls, parts: list[bytes], units: NDArray[np.float64], refusals: list[Refusal], frames: dict[int, Frame]
    ) -> Made:
        """Return what rows became whose bytes were put together one by one."""
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
        return cls(np.frombuffer(bytearray().join(parts), np.uint8), offsets, units, refusals, frames)

    def parts(self) -> list[bytes]:
        """Return each row's bytes; none where it was refused."""
        data = self.texts.tobytes()
        return [data[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]


class Parts(Protocol):
    """Make each row's own bytes of a request."""

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return what the rows of a batch became."""
        ...


def batch_frame(table: str, opening: bytes = b"", closing: bytes = b"") -> Frame:
    """Return the frame of a BatchWriteItem request whose writes stand between ``opening`` and ``closing``."""
    head = b'{"RequestItems":{' + compact_json(table).encode() + b":[" + opening
    tail = closing + b']},"ReturnConsumedCapacity":"INDEXES"}'
    return Frame("BatchWriteItem", head, closing + b"," + opening, tail)


def single_frame(operation: str, table: str, member: str, extra: Mapping[str, object]) -> Frame:
    """Return the frame of a request for one row, whose bytes are the value of the last member."""
    members = {"TableName": table, "ReturnConsumedCapacity": "INDEXES", **extra}
    return Frame(operation, f'{compact_json(members)[:-1]},"{member}":'.encode(), None, b"}")


def absent_condition(partition_key: str, compared: str | None = None) -> dict[str, object]:
    """Return the condition that there is no item, or none that is as new by the compared attribute."""
    names = {"#n0": partition_key} if compared is None else {"#n0": partition_key, "#n1": compared}
    newer = "" if compared is None else " OR #n1 < :v0"
    return {"ConditionExpression": f"attribute_not_exists(#n0){newer}", "ExpressionAttributeNames": names}


def columns_of(schema: pa.Schema, attributes: Iterable[str]) -> list[str]:
    """Return the names of the columns that hold some attributes; those that none holds are left out."""
    columns = {name_of_field(field): field.name for field in schema if field.name != RESCUE_NAME}
    return [columns[name] for name in attributes if name in columns]


class ItemParts:
    """Make whole items, or keys where only key columns are named, and the value of a condition after them.

    Parameters
    ----------
    names
        Columns.
    compared
        Attribute of the condition, which may be in the rescue column.
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
        self._values = Values(schema, columns_of(schema, filter(None, [compared])))

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return the bytes of each row."""
        encoded = self._encoder.lend(batch.select(self._names))
        made = Made(encoded.buffer, encoded.offsets, write_units(encoded.sizes), list(encoded.refusals))
        if self._compared is None:
            return made
        return with_values(made, _with_rescued(self._values.make(batch), batch, self._compared), needed=True)


class Values:
    """Encode columns under their ordinals, so that a row's object is a request's ExpressionAttributeValues."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        self._names = list(names)
        fields = [schema.field(name) for name in names]
        self._schema = pa.schema([set_attribute_name(field, f":v{n}") for n, field in enumerate(fields)])
        self._encoder = Encoder(self._schema)

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return each row's values as one object, with the rows that DynamoDB would refuse."""
        if not self._names:
            return Made.of_parts([b"{}"] * batch.num_rows, np.zeros(batch.num_rows), [], {})
        columns = [batch.column(name) for name in self._names]
        encoded = self._encoder.lend(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return Made(encoded.buffer, encoded.offsets, write_units(encoded.sizes), list(encoded.refusals))


def _with_rescued(values: Made, batch: pa.RecordBatch, compared: str) -> Made:
    """Take the value to compare from the rescue column where no column could hold it."""
    if RESCUE_NAME not in batch.schema.names or batch.column(RESCUE_NAME).null_count == batch.num_rows:
        return values
    parts, rescued = values.parts(), list[Any](batch.column(RESCUE_NAME).to_pylist())
    for row, part in enumerate(parts):
        value = _member(rescued[row] or "{}", compared) if part == b"{}" else None
        if value is not None:
            parts[row] = compact_json({":v0": value}).encode()
    return Made.of_parts(parts, values.units, values.refusals, values.frames)


def _member(text: str, name: str) -> Any:
    try:
        return json.loads(text).get(name)
    except (ValueError, AttributeError):
        # The item is refused for it.
        return None


def with_values(made: Made, values: Made, *, needed: bool) -> Made:
    """Put each row's values behind its bytes; where they are needed, refuse rows without."""
    refused = {refusal.row for refusal in made.refusals}
    refusals = made.refusals + [refusal for refusal in values.refusals if refusal.row not in refused]
    refused |= {refusal.row for refusal in values.refusals}
    parts, texts = made.parts(), values.parts()
    for row, value in enumerate(texts):
        if row in refused:
            parts[row] = b""
        elif value != b"{}":
            parts[row] += VALUES + value
    whole = Made.of_parts(parts, made.units, refusals, made.frames)
    lacking = [row for row, value in enumerate(texts) if value == b"{}"] if needed else []
    return without_value(whole, lacking) if lacking else whole


def without_value(made: Made, lacking: Sequence[int]) -> Made:
    """Refuse the rows that have no value to compare."""
    parts, known = made.parts(), {refusal.row for refusal in made.refusals}
    refusals = [
        Refusal(row, "", "newer_by", "the row has no value to compare by newer_by")
        for row in lacking
        if row not in known
    ]
    for row in lacking:
        parts[row] = b""
    return Made.of_parts(parts, made.units, made.refusals + refusals, made.frames)


class UpdateParts:
    """Make updates that set a row's attributes, and remove those that it has not; others are not touched.

    What a row holds in its rescue column is set as well.

    Attributes
    ----------
    frame
        What goes around the bytes of a row that sets no attribute beside the columns'.
    """

    def __init__(
        self, schema: pa.Schema, names: Sequence[str], keys: Mapping[str, str], table: str, compared: str | None = None
    ) -> None:
        self._table, self._compared, self._partition_key = table, compared, next(iter(keys))
        key_columns = columns_of(schema, keys)
        self._keys = ItemParts(schema, key_columns, keys)
        others = {*key_columns, RESCUE_NAME, *(field.name for field in schema if is_item_bytes(field))}
        self._names = [name for name in names if name not in others]
        self._attributes = [name_of_field(schema.field(name)) for name in self._names]
        self._places = {attribute: place for place, attribute in enumerate(self._attributes)}
        self._values = Values(schema, self._names)
        self._rescued = Encoder(pa.schema([schema.field(RESCUE_NAME)])) if RESCUE_NAME in names else None
        self._sets = [f"#n{place} = :v{place}" for place in range(len(self._names))]
        self._removes = [f"#n{place}" for place in range(len(self._names))]
        self.frame = self._frame(())

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return the bytes of each row, and the frame of those that set more attributes than there are columns."""
        present = np.ones((batch.num_rows, len(self._names)), bool)
        for place, name in enumerate(self._names):
            present[:, place] = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        values, more = self._with_rescued(self._values.make(batch), batch, present)
        made = with_values(self._keys.make(batch), values, needed=False)
        if self._compared is not None:
            known = self._places.get(self._compared)
            has_value = np.zeros(batch.num_rows, bool) if known is None else present[:, known]
            lacking = [row for row in np.flatnonzero(~has_value).tolist() if self._compared not in more.get(row, ())]
            made = without_value(made, lacking) if lacking else made
        return self._with_expressions(made, present, more)

    def _with_expressions(self, made: Made, present: NDArray[np.bool_], more: dict[int, tuple[str, ...]]) -> Made:
        """Put what each row sets and removes behind its bytes: the names of all are in the frame."""
        if not self._names and not any(more.values()):
            return made
        packed = np.packbits(present, axis=1)
        width, patterns = packed.shape[1], packed.tobytes()
        # Rows may have as many patterns as there are rows: none is kept for the next batch.
        expressions: dict[bytes, bytes] = {}
        frames: dict[tuple[str, ...], Frame] = {}
        framed: dict[int, Frame] = {}
        parts = made.parts()
        for row, part in enumerate(parts):
            if not part:
                continue
            if names := more.get(row):
                expression = self._expression(present[row], len(names))
                framed[row] = frames.get(names) or frames.setdefault(names, self._frame(names))
            else:
                pattern = patterns[row * width : (row + 1) * width]
                expression = expressions.get(pattern) or self._expression(present[row])
                expressions[pattern] = expression
            parts[row] = part + expression
        return Made.of_parts(parts, made.units, made.refusals, framed)

    def _with_rescued(
        self, values: Made, batch: pa.RecordBatch, present: NDArray[np.bool_]
    ) -> tuple[Made, dict[int, tuple[str, ...]]]:
        """Add what rows hold in the rescue column to their values; return the attributes beside the columns', too."""
        if self._rescued is None or batch.column(RESCUE_NAME).null_count == batch.num_rows:
            return values, {}
        encoded = self._rescued.encode(batch.select([RESCUE_NAME]))
        refusals = {refusal.row: refusal for refusal in (*encoded.refusals, *values.refusals)}
        parts, more = values.parts(), {}
        for row in np.flatnonzero(np.diff(encoded.offsets) > len(b"{}")).tolist():
            rescued = parse_json(encoded.buffer[encoded.offsets[row] : encoded.offsets[row + 1]].tobytes())
            more[row] = tuple(name for name in rescued if name not in self._places)
            known = {name: self._places[name] for name in rescued if name in self._places}
            twice = next((name for name, place in known.items() if present[row, place]), None)
            if twice is not None:
                refusals[row] = Refusal(row, RESCUE_NAME, "duplicate", twice_reason(twice))
            present[row, list(known.values())] = True
            places = known | {name: len(self._names) + n for n, name in enumerate(more[row])}
            parts[row] = _joined(parts[row], {f":v{place}": rescued[name] for name, place in places.items()})
        for row in refusals:
            parts[row] = b""
        ordered = [refusals[row] for row in sorted(refusals)]
        return Made.of_parts(parts, values.units, ordered, values.frames), more

    def _expression(self, has: NDArray[np.bool_], more: int = 0) -> bytes:
        given = has.tolist()
        sets = [*compress(self._sets, given), *(f"#n{n} = :v{n}" for n in range(len(given), len(given) + more))]
        removes = list(compress(self._removes, (~has).tolist()))
        clauses = ["SET " + ", ".join(sets)] * bool(sets) + ["REMOVE " + ", ".join(removes)] * bool(removes)
        return f',"UpdateExpression":"{" ".join(clauses)}"'.encode() if clauses else b""

    def _frame(self, more: tuple[str, ...]) -> Frame:
        attributes = [*self._attributes, *more]
        names = {f"#n{place}": name for place, name in enumerate(attributes)}
        extra: dict[str, object] = {"ExpressionAttributeNames": names} if names else {}
        if self._compared in attributes:
            place = attributes.index(self._compared)
            names["#k"] = self._partition_key
            extra["ConditionExpression"] = f"attribute_not_exists(#k) OR #n{place} < :v{place}"
        return single_frame("UpdateItem", self._table, "Key", extra)


def _joined(members: bytes, more: dict[str, Any]) -> bytes:
    added = compact_json(more).encode()
    return added if members == b"{}" else members[:-1] + b"," + added[1:]


def parts_of(schema: pa.Schema, plan: WritePlan) -> tuple[Frame, Parts]:
    """Return the common frame of the rows of a schema, and what makes their parts."""
    keys, names, table = dict(plan.key_types), schema.names, plan.table
    condition, key_columns = absent_condition(plan.key_types[0][0], plan.newer_by), columns_of(schema, keys)
    if plan.operation_by is not None:
        return batch_frame(table), _MixedParts(schema, plan)
    if plan.mode == "update":
        updates = UpdateParts(schema, names, keys, table)
        return updates.frame, updates
    if plan.mode == "delete":
        if plan.newer_by is None:
            return batch_frame(table, *DELETE), ItemParts(schema, key_columns, keys)
        return single_frame("DeleteItem", table, "Key", condition), ItemParts(schema, key_columns, keys, plan.newer_by)
    if plan.mode == "create" or plan.newer_by is not None:
        return single_frame("PutItem", table, "Item", condition), ItemParts(
            schema, names, keys, plan.newer_by, plan.index_keys
        )
    return batch_frame(table, *PUT), ItemParts(schema, names, keys, index_keys=plan.index_keys)


class _MixedParts:
    """Make what a column says of each row; puts and deletes share batches unless they depend on a condition."""

    def __init__(self, schema: pa.Schema, plan: WritePlan) -> None:
        keys = dict(plan.key_types)
        self._column = plan.operation_by or ""
        names = [name for name in schema.names if name != self._column]
        updates = UpdateParts(schema, names, keys, plan.table, plan.newer_by)
        self._makers: dict[str, tuple[Parts, tuple[bytes, bytes]]] = {
            "put": (ItemParts(schema, names, keys, plan.newer_by, plan.index_keys), PUT),
            "delete": (ItemParts(schema, columns_of(schema, keys), keys, plan.newer_by), DELETE),
            "update": (updates, (b"", b"")),
        }
        self._alone = {"update": updates.frame}
        if plan.newer_by is not None:
            condition = absent_condition(plan.key_types[0][0], plan.newer_by)
            self._alone |= {
                "put": single_frame("PutItem", plan.table, "Item", condition),
                "delete": single_frame("DeleteItem", plan.table, "Key", condition),
            }

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return the bytes of each row, and the frame of those that go alone."""
        asked = np.asarray(batch.column(self._column).to_pylist(), object)
        parts, frames = [b""] * batch.num_rows, dict[int, Frame]()
        units, refusals = np.ones(batch.num_rows), list[Refusal]()
        for operation, (maker, (opening, closing)) in self._makers.items():
            rows = np.flatnonzero(asked == operation)
            if not len(rows):
                continue
            made = maker.make(take_rows(batch, rows))
            units[rows] = made.units
            for place, (row, part) in enumerate(zip(rows.tolist(), made.parts(), strict=True)):
                frame = made.frames.get(place) or self._alone.get(operation)
                if frame is not None:
                    parts[row], frames[row] = part, frame
                else:
                    parts[row] = part and opening + part + closing
            refusals += [
                Refusal(int(rows[each.row]), each.attribute, each.rule, each.message) for each in made.refusals
            ]
        for row in np.flatnonzero(~np.isin(asked.astype(str), OPERATIONS)).tolist():
            message = f"{asked[row]!r} is no operation: write {', '.join(OPERATIONS)}"
            refusals.append(Refusal(row, self._column, "operation", message))
        return Made.of_parts(parts, units, refusals, frames)
