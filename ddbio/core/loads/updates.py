"""Make updates of rows: what a row has is set, what it lacks is removed; refuses an attribute that is given twice."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.core.encode import Encoder, Refusal
from ddbio.core.loads.requests import ItemParts, Made, Values, columns_of, single_frame, with_values, without_value
from ddbio.core.rescue import twice_reason
from ddbio.core.schema.field import RESCUE_NAME, is_item_bytes, name_of_field
from ddbio.core.text.json_text import compact_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from ddbio.core.loads.packing import Frame


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
