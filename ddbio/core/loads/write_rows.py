"""Turn the rows of record batches into the writes of several lanes, as a plan says; send nothing."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ddbio.core.encode import Refusal
from ddbio.core.identity import key_hashes
from ddbio.core.kernel.arrange import arrange
from ddbio.core.kernel.encode.fields import take_rows
from ddbio.core.kernel.memory import PAD
from ddbio.core.loads.packing import Frame, Writes, packing_order
from ddbio.core.loads.requests import (
    DELETE,
    PUT,
    ItemParts,
    Made,
    absent_condition,
    batch_frame,
    columns_of,
    single_frame,
)
from ddbio.core.loads.updates import UpdateParts
from ddbio.core.schema.field import RESCUE_NAME
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from ddbio.core.loads.write_plan import WritePlan

OPERATIONS = ("put", "delete", "update")
"""What the column of operations may say."""


@dataclass(frozen=True)
class Encoded:
    """Hold what a batch became: writes for each lane, and the rows that make none."""

    lanes: list[Writes]
    refusals: tuple[Refusal, ...]


class Parts(Protocol):
    """Make each row's own bytes of a request."""

    def make(self, batch: pa.RecordBatch) -> Made:
        """Return what the rows of a batch became."""
        ...


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


class LaneSplitter:
    """Lay encoded rows out by lane, as their requests will have them: rows of one key always go to one lane.

    Parameters
    ----------
    spare
        Memory to put texts into; what was ``texts`` of writes that are done may be added at any time.
    """

    def __init__(self, lanes: int, frame: Frame, spare: deque[NDArray[np.uint8]]) -> None:
        self._lanes, self._frame, self._spare = lanes, frame, spare

    def split(
        self, texts: Texts, rows: NDArray[np.int64], hashes: NDArray[np.uint64], frames: Mapping[int, Frame]
    ) -> list[Writes]:
        """Return the writes of each lane.

        Parameters
        ----------
        rows
            Those that are written.
        hashes
            The hash of each of their keys.
        frames
            The frame of each row that does not have the common one.
        """
        order = packing_order(hashes, np.isin(rows, list(frames)) if frames else None)
        # The top bits choose the lane: within one, sorting by hash still spreads the keys.
        lane_of = ((hashes[order] >> np.uint64(32)) * np.uint64(self._lanes) >> np.uint64(32)).astype(np.uint16)
        order = order[np.argsort(lane_of, kind="stable")]
        ends = np.cumsum(np.bincount(lane_of, minlength=self._lanes))
        return [self._share(texts, rows[places], hashes[places], frames) for places in np.split(order, ends[:-1])]

    def _share(
        self, texts: Texts, rows: NDArray[np.int64], hashes: NDArray[np.uint64], frames: Mapping[int, Frame]
    ) -> Writes:
        separator = self._frame.separator or b""
        n_bytes = int((texts.ends[rows] - texts.begins[rows]).sum()) + len(rows) * len(separator)
        room, starts = self._room(n_bytes + PAD), np.empty(len(rows) + 1, np.int64)
        padded = np.frombuffer(separator + bytes(PAD), np.uint8)
        arrange(texts.data, texts.begins, texts.ends, rows, padded, room, starts)
        alone = {}
        if frames:
            alone = {place: frames[row] for place, row in enumerate(rows.tolist()) if row in frames}
        return Writes(rows + texts.first_row, hashes, texts.units[rows], room, starts, self._frame, alone)

    def _room(self, n_bytes: int) -> NDArray[np.uint8]:
        # Fresh memory costs more than what is copied into it.
        while self._spare:
            room = self._spare.pop()
            if len(room) >= n_bytes:
                return room
        return np.empty(n_bytes + n_bytes // 4, np.uint8)


class Texts(NamedTuple):
    """Hold rows' own bytes of a request, where each begins and ends, its units, and the first row's number."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    units: NDArray[np.float64]
    first_row: int


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
