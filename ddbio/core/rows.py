"""Turn the rows of record batches into writes, as a mode says; refuses rows that no request could carry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.core.encode import Encoder
from ddbio.core.identity import key_hashes
from ddbio.core.packing import Frame, Writes, packing_order, write_units
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from ddbio.core.encode import Refusal
    from ddbio.core.write_plan import WritePlan

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
_PUT = b'{"PutRequest":{"Item":', b"}}"
_DELETE = b'{"DeleteRequest":{"Key":', b"}}"


@dataclass(frozen=True)
class Encoded:
    """Hold what a batch became: writes for each lane, and the rows that make none."""

    lanes: list[Writes]
    refusals: tuple[Refusal, ...]


class RowWriter:
    """Make writes of batches of one schema, as a plan says.

    Raises
    ------
    SchemaError
        If the columns lack a key attribute of the table.
    """

    def __init__(self, schema: pa.Schema, plan: WritePlan) -> None:
        self._keys = dict(plan.key_types)
        missing = [name for name in self._keys if name not in schema.names]
        if missing:
            raise SchemaError(
                f"the rows have no column {missing[0]!r}, a key attribute of table {plan.table!r}: they have "
                f"{', '.join(schema.names)}"
            )
        self._lanes = plan.lanes
        self._names = list(self._keys) if plan.mode == "delete" else schema.names
        self._encoder = Encoder(pa.schema([schema.field(name) for name in self._names]), keys=self._keys)
        self._frame = _batch_frame(plan.table, *(_DELETE if plan.mode == "delete" else _PUT))

    def writes(self, batch: pa.RecordBatch, first_row: int = 0) -> Encoded:
        """Return the writes of a batch's rows, by lane; their numbers are counted from ``first_row``."""
        encoded = self._encoder.encode(batch.select(self._names))
        rows = np.flatnonzero(encoded.offsets[1:] > encoded.offsets[:-1])
        hashes = key_hashes(batch, list(self._keys))[rows]
        order = packing_order(hashes)
        # The top bits choose the lane: within one, sorting by hash still spreads the keys.
        lane_of = (hashes[order] >> np.uint64(32)) * np.uint64(self._lanes) >> np.uint64(32)
        data, offsets = encoded.buffer.tobytes(), encoded.offsets
        units = write_units(encoded.sizes)
        lanes = []
        for lane in range(self._lanes):
            places = order[lane_of == lane]
            chosen = rows[places]
            spans = zip(offsets[chosen].tolist(), offsets[chosen + 1].tolist(), strict=True)
            parts = [data[start:end] for start, end in spans]
            lanes.append(Writes(chosen + first_row, hashes[places], units[chosen], parts, self._frame, {}))
        return Encoded(lanes, encoded.refusals)


def _batch_frame(table: str, opening: bytes, closing: bytes) -> Frame:
    head = b'{"RequestItems":{' + json.dumps(table).encode() + b":["
    tail = b']},"ReturnConsumedCapacity":"INDEXES"}'
    return Frame("BatchWriteItem", head + opening, closing + b"," + opening, closing + tail)
