"""Make each row's own bytes of a write request, and the frame around them; refuses rows that no request could carry.

Every attribute name is aliased by its ordinal, so that no name is ever mistaken for a word or a path.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.encode import EncodeOptions, Encoder, Refusal
from ddbio.core.loads.packing import Frame, write_units
from ddbio.core.schema.field import RESCUE_NAME, name_of_field, set_attribute_name
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.core.table_description import IndexKey

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_WriteRequest.html
PUT = b'{"PutRequest":{"Item":', b"}}"
DELETE = b'{"DeleteRequest":{"Key":', b"}}"
VALUES = b',"ExpressionAttributeValues":'


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
