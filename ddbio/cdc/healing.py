"""Decisions of a heal: the items of a window that get a row, and the sequence numbers of these rows.

The row of an item directly follows its last row from before the gap, so every later change of the item supersedes it.
An item with a row from after the gap gets none: from there on, the log is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_order import event_micros, have_operation, item_words
from ddbio.cdc.log_rows import LogDecoder, LogRows, hour_folder
from ddbio.export.fold_rows import MIN_WINDOW, Window, plan_windows
from ddbio.formats.log_columns import EVENT_ID, HEALED_BY, LOG_COLUMNS, OPERATION, SEQUENCE
from ddbio.items.changes import DELETE
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import key_columns, key_rows
from ddbio.items.kernel.arrays import bits_of, int64_array, spans_of, texts_array, valid_of
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.own_names import is_own

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from numpy.typing import NDArray

MARGIN_SECONDS: Final = 60
"""The window of an export starts this number of seconds before the last captured change, as clocks differ."""
_LATE_SECONDS = 300
_KEY, _SEQUENCE = "S16", "S52"
_LAST_ROW = np.dtype(
    [("key", _KEY), ("number", _SEQUENCE), ("micros", np.int64), ("removed", np.bool_), ("image", _KEY)]
)
"""State of an item's last row from before the gap."""
# Sortable sequence numbers are prefixed with the digits of their lineage.
_LINEAGE_DIGITS, _DIGITS = 4, 48
_MERGED_ROWS = 1_000_000
_NEW_NUMBERS = 10**12
_MICROS, _HOUR_MICROS = 1_000_000, 3_600_000_000
_DELETE, _NO_NUMBER, _OPERATIONS = texts_array(DELETE)[0], texts_array("0"), texts_array("MODIFY", "INSERT", "REMOVE")


def heal_windows(since: datetime, until: datetime) -> list[Window]:
    """Return the windows to export for a gap.

    Captured changes end at ``since``, and continue at ``until`` at the latest.
    """
    end = until.replace(microsecond=0)
    end = end if end == until else end.fromtimestamp(end.timestamp() + 1, end.tzinfo)
    begin = min(since.replace(microsecond=0).timestamp() - MARGIN_SECONDS, (end - MIN_WINDOW).timestamp())
    return plan_windows(since.fromtimestamp(int(begin), since.tzinfo), end)


class ExportDecoder(LogDecoder):
    """Decoder of lines of incremental exports to rows of a log. Operations and sequence numbers are decided later."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], *, old_image: bool, event_id: bool) -> None:
        self.has_event_ids = event_id
        super().__init__(schema, keys, old_image=old_image)
        self.attributes = [field.name for field in self.schema if not is_own(field, LOG_COLUMNS)]

    def decode_lines(self, text: bytes | memoryview) -> LogRows | None:
        """Return one row per change, in order, or None if there is none."""
        decoded = self._decoder.decode(text)
        if not decoded.num_rows:
            return None
        removed: Any = pc.equal(decoded.column(1), _DELETE)
        is_new = ~valid_of(decoded.column(4))
        gone = bits_of(removed.buffers()[1], removed.offset, len(removed)).view(np.bool_)
        operations = _OPERATIONS.take(int64_array(np.where(gone, 2, is_new).astype(np.int64)))
        numbers = _NO_NUMBER.take(int64_array(np.zeros(decoded.num_rows, np.int64)))
        return self._log_rows(decoded, [operations, numbers, *([numbers] if self.has_event_ids else [])], None)


def key_digests(rows: pa.Table, keys: Sequence[str]) -> NDArray[np.bytes_]:
    """Return a 16-byte digest of each row's key. Equal keys have equal digests.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    digests = np.zeros((rows.num_rows, 2), np.uint64)
    for part in key_columns(rows, keys):
        digests[part.rows] = ColumnDigest().add_rows(part.batch).items
    return _bytes_of(digests)


def image_digests(rows: pa.Table, attributes: Sequence[str]) -> NDArray[np.bytes_]:
    """Return a 16-byte digest of each row's item. The digest of a delete is empty."""
    digests = _bytes_of(item_words(rows.select([*attributes, RESCUE_NAME])))
    digests[have_operation(rows, "REMOVE")] = b""
    return digests


def _bytes_of(words: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    return np.ascontiguousarray(words).view(_KEY).ravel().copy()


def _ordered_numbers(rows: pa.Table, lineage: int) -> NDArray[np.bytes_]:
    padded: Any = pc.utf8_lpad(rows.column(SEQUENCE).cast(pa.string()), _DIGITS, "0")
    texts: Any = pc.binary_join_element_wise(f"{lineage:0{_LINEAGE_DIGITS}}", padded, "")
    data, offsets = spans_of(texts.combine_chunks())
    if (np.diff(offsets) != _LINEAGE_DIGITS + _DIGITS).any():
        return np.array(texts.to_pylist(), _SEQUENCE)
    return data[offsets[0] : offsets[-1]].view(_SEQUENCE).copy()


def _last_of_each(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the last row of each item, ordered by the digests of their keys."""
    rows = np.concatenate([np.zeros(0, _LAST_ROW), *parts])
    keys = np.ascontiguousarray(rows["key"])
    order = _order_of_distinct(keys)
    if order is not None:
        return rows[order]
    rows = rows[np.lexsort((rows["number"], keys))]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = rows["key"][1:] != rows["key"][:-1]
    return rows[is_last]


def find_digests(
    digests: NDArray[np.bytes_], sorted_digests: NDArray[np.bytes_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the position of each digest in a sorted array, and whether the array has it."""
    if not len(sorted_digests):
        return np.zeros(len(digests), np.int64), np.zeros(len(digests), np.bool_)
    heads = _heads(sorted_digests)
    is_distinct = (heads[1:] != heads[:-1]).all()
    positions = np.searchsorted(heads, _heads(digests)) if is_distinct else np.searchsorted(sorted_digests, digests)
    positions[positions == len(sorted_digests)] = 0
    return positions, sorted_digests[positions] == digests


def _heads(keys: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return the first half of each digest as a number with the same order. Numbers are compared faster than bytes."""
    return np.ascontiguousarray(keys).view(">u8")[::2].astype(np.uint64)


def _order_of_distinct(keys: NDArray[np.bytes_]) -> NDArray[np.int64] | None:
    """Return the order of digests, or None if two have the same first half, as equal digests do."""
    heads = _heads(keys)
    order = np.argsort(heads)
    ordered = heads[order]
    return None if (ordered[1:] == ordered[:-1]).any() else order


@dataclass
class ExportedKeys:
    """Items of one export: sorted digests of their keys, and the digests of their images."""

    keys: NDArray[np.bytes_]
    images: NDArray[np.bytes_]

    @classmethod
    def of(cls, parts: Sequence[tuple[NDArray[np.bytes_], NDArray[np.bytes_]]]) -> ExportedKeys:
        """Return the items of all parts of an export."""
        keys = np.concatenate([np.zeros(0, _KEY), *(part for part, _ in parts)])
        images = np.concatenate([np.zeros(0, _KEY), *(part for _, part in parts)])
        order = _order_of_distinct(keys)
        if order is None:
            order = np.argsort(keys, kind="stable")
        return cls(keys[order], images[order])


@dataclass
class Decisions:
    """Items of each export that get a row, with their sequence numbers, and whether the log had the item before.

    ``was_there`` is None for an item that is not in the log: the operation of the export is kept.
    """

    windows: NDArray[np.int64]
    keys: NDArray[np.bytes_]
    numbers: list[str]
    was_there: list[bool | None]

    def table(self) -> pa.Table:
        """Return the decisions as a table."""
        keys = _array_of(self.keys)
        columns = [pa.array(self.windows), keys, pa.array(self.numbers, pa.string())]
        return pa.table(
            [*columns, pa.array(self.was_there, pa.bool_())], names=["window", "key", "number", "was_there"]
        )

    @staticmethod
    def of(table: pa.Table) -> Decisions:
        """Return the decisions of a table."""
        columns: list[list[Any]] = [column.to_pylist() for column in table.columns]
        windows, keys, numbers, was_there = columns
        return Decisions(np.array(windows, np.int64), np.array(keys, _KEY), numbers, was_there)

    def has(self, window: int) -> bool:
        """Return whether items of an export get rows."""
        return bool((self.windows == window).any())

    def rows(self, window: int, rows: pa.Table, keys: Sequence[str], healed_by: str) -> pa.Table:
        """Return the rows of an export that are added to the log, with their numbers and operations."""
        mine = np.flatnonzero(self.windows == window)
        order = mine[np.argsort(self.keys[mine], kind="stable")]
        positions, is_chosen = find_digests(key_digests(rows, keys), self.keys[order])
        chosen = order[positions[is_chosen]] if len(order) else order
        kept = rows.filter(pa.array(is_chosen))
        was_there = [self.was_there[index] for index in chosen]
        return numbered(kept, [self.numbers[index] for index in chosen], was_there, healed_by)


def numbered(rows: pa.Table, numbers: Sequence[str], was_there: Sequence[bool | None], healed_by: str) -> pa.Table:
    """Return rows with their numbers and operations, and with the name of the export that healed them."""
    operations = [
        operation if operation == "REMOVE" or had_item is None else "MODIFY" if had_item else "INSERT"
        for operation, had_item in zip(rows.column(OPERATION).to_pylist(), was_there, strict=True)
    ]
    values: dict[str, list[Any]] = {OPERATION: operations, SEQUENCE: list(numbers)}
    if EVENT_ID in rows.column_names and is_own(rows.schema.field(EVENT_ID), LOG_COLUMNS):
        values[EVENT_ID] = [f"{healed_by} {number}" for number in numbers]
    for name, column in values.items():
        column_index = rows.schema.get_field_index(name)
        rows = rows.set_column(column_index, rows.schema.field(column_index), pa.array(column, pa.string()))
    return rows.append_column(pa.field(HEALED_BY, pa.string()), pa.array([healed_by] * rows.num_rows, pa.string()))


def by_hour(rows: pa.Table, name: str) -> dict[str, pa.Table]:
    """Return rows by the path of the file of their hour. ``name`` is the name of the files."""
    hours = event_micros(rows) // _HOUR_MICROS
    return {f"{hour_folder(hour)}{name}": rows.filter(pa.array(hours == hour)) for hour in np.unique(hours).tolist()}


def _array_of(keys: NDArray[np.bytes_]) -> Any:
    buffer = pa.py_buffer(np.ascontiguousarray(keys).view(np.uint8).data)
    return pa.Array.from_buffers(pa.binary(16), len(keys), [None, buffer])


@dataclass
class LogState:
    """State of the items of some exports in a log, gathered from its files, with the items written since a time.

    Attributes
    ----------
    keys, attributes
        The key attributes, and all columns of items.
    since
        The start of the first window, in seconds since 1970.
    until
        The end of the last window.
    exports
        The exports, in the order of their windows.
    lineage
        The number of the newest stream of the log. The new rows belong to it.
    """

    keys: Sequence[str]
    attributes: Sequence[str]
    since: float
    until: float
    exports: Sequence[ExportedKeys]
    lineage: int = 1
    _last: list[NDArray[np.void]] = field(default_factory=list)
    _after: list[NDArray[np.bytes_]] = field(default_factory=list)
    _recent: list[tuple[pa.Table, NDArray[np.bytes_]]] = field(default_factory=list)
    _rows: int = 0
    _wanted: NDArray[np.bytes_] = field(init=False)

    def __post_init__(self) -> None:
        """Gather the keys of all exports."""
        wanted = np.concatenate([np.zeros(0, _KEY), *(export.keys for export in self.exports)])
        order = _order_of_distinct(wanted)
        self._wanted = np.unique(wanted) if order is None else wanted[order]

    def add(self, rows: pa.Table, *, is_after: bool | None, lineage: int = 1) -> None:
        """Add the rows of a file.

        Parameters
        ----------
        lineage
            The number of their stream in the log. Sequence numbers can be compared within one stream only.
        is_after
            Whether the rows were captured after the gap; None if that is unknown, as for compacted files.
        """
        digests, micros = key_digests(rows, self.keys), event_micros(rows)
        behind = np.full(len(digests), bool(is_after))
        if is_after is None:
            behind = micros >= (self.until - _LATE_SECONDS) * _MICROS
        recent = micros >= (self.since - MARGIN_SECONDS) * _MICROS
        chosen = recent.copy()
        chosen[~recent] = find_digests(digests[~recent], self._wanted)[1]
        self._after.append(np.unique(digests[chosen & behind]))
        kept = chosen & ~behind
        if not kept.any():
            return
        before = rows.filter(pa.array(kept))
        part, is_recent = np.zeros(before.num_rows, _LAST_ROW), recent[kept]
        part["key"], part["number"], part["micros"] = digests[kept], _ordered_numbers(before, lineage), micros[kept]
        part["removed"] = have_operation(before, "REMOVE")
        if is_recent.any():
            latest = before.filter(pa.array(is_recent))
            part["image"][is_recent] = image_digests(
                latest, [attribute for attribute in self.attributes if attribute in rows.column_names]
            )
            self._recent.append((key_rows(latest, self.keys), digests[kept][is_recent]))
        self._last.append(part)
        self._rows += before.num_rows
        if self._rows > _MERGED_ROWS:
            self._last, self._rows = [_last_of_each(self._last)], 0

    def decide(self, first_number: int) -> tuple[Decisions, Unsettled]:
        """Return the items of the exports that get a row, and the items that must be read from the table.

        The latter were written within the windows but are in no export: they may have been deleted again, or restored
        to their earlier state.
        """
        last = _last_of_each(self._last)
        last_keys = np.ascontiguousarray(last["key"])
        after = np.unique(np.concatenate([np.zeros(0, _KEY), *self._after]))
        assigned: dict[bytes, tuple[int, bool]] = {}
        windows, keys, numbers, was_there = list[int](), list[bytes](), list[str](), list[bool | None]()
        fresh = first_number * _NEW_NUMBERS
        since = (self.since - MARGIN_SECONDS) * _MICROS
        for window, export in enumerate(self.exports):
            passed = find_digests(export.keys, after)[1]
            positions, is_known = find_digests(export.keys, last_keys)
            # Rows that the log already has, unless an earlier export changed the item. The image of a delete is empty.
            is_same = np.zeros(len(passed), np.bool_)
            at_last = last[positions[is_known]]
            is_same[is_known] = (at_last["micros"] >= since) & (at_last["image"] == export.images[is_known])
            if assigned:
                is_same &= ~np.isin(export.keys, np.array(list(assigned), _KEY))
            for at in np.flatnonzero(~passed & ~is_same).tolist():
                key, image, position = bytes(export.keys[at]), bytes(export.images[at]), int(positions[at])
                had_item: bool | None = None
                number: int | None = None
                if key in assigned:
                    number, had_item = assigned[key]
                elif is_known[at]:
                    number, had_item = self._number(last["number"][position]), not last["removed"][position]
                if number is None:
                    fresh += 1
                    number = fresh
                assigned[key] = (number + 1, image != b"")
                windows.append(window)
                keys.append(key)
                numbers.append(str(number + 1))
                was_there.append(None if had_item is None else bool(had_item))
        decided = Decisions(np.array(windows, np.int64), np.array(keys, _KEY), numbers, was_there)
        open_ = (
            (last["micros"] >= since) & ~find_digests(last_keys, after)[1] & ~find_digests(last_keys, self._wanted)[1]
        )
        return decided, self._unsettled(last[open_], fresh)

    def _number(self, ordered: bytes) -> int | None:
        """Return a sequence number of the newest lineage, or None if it is of an older one.

        Any number follows an older one.
        """
        is_newest = int(ordered[:_LINEAGE_DIGITS]) == self.lineage
        return int(ordered[_LINEAGE_DIGITS:]) if is_newest else None

    def _unsettled(self, last: NDArray[np.void], fresh: int) -> Unsettled:
        numbers = list[int]()
        for sequence in last["number"].tolist():
            number = self._number(sequence)
            fresh += number is None
            numbers.append(fresh if number is None else number)
        if not len(last):
            return Unsettled(pa.table({}), last, numbers)
        rows = pa.concat_tables([part for part, _ in self._recent], promote_options="permissive")
        digests = np.concatenate([part for _, part in self._recent])
        # Any row of an item has its key.
        order = np.argsort(digests, kind="stable")
        first: Any = order[np.searchsorted(digests[order], last["key"])]
        return Unsettled(rows.take(first), last, numbers)


@dataclass
class Unsettled:
    """Items that must be read from the table.

    Attributes
    ----------
    keys
        The key of each item: the key columns, and the rescue column if it has some key attribute.
    """

    keys: pa.Table
    _last: NDArray[np.void]
    _numbers: list[int]
    """The sequence number of the last row of each item."""

    def rows(self, current: pa.Table, digests: NDArray[np.bytes_], images: NDArray[np.bytes_]) -> pa.Table:
        """Return the rows of items whose state differs from the log.

        Parameters
        ----------
        current
            A row for each item in its state in the table. A missing item is a ``REMOVE``.
        digests, images
            The digests of their keys and images.
        """
        positions = find_digests(digests, np.ascontiguousarray(self._last["key"]))[0]
        # The image of a delete is empty.
        differs = images != self._last["image"][positions]
        changed = positions[differs]
        numbers = [str(self._numbers[position] + 1) for position in changed.tolist()]
        was_there = [not is_removed for is_removed in self._last["removed"][changed].tolist()]
        return numbered(current.filter(pa.array(differs)), numbers, was_there, "table")
