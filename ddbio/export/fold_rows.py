"""Fold of a full export and the following changes into the state of the table at the end of the last window.

A full export has no write times: it is the state at one instant, and every change in a later window is newer. Between
windows the newest write wins, including deletes. Gaps and overlaps between windows are errors. An incremental export
has no line for an item that was created and deleted within its window: if an earlier export had read this item in
between, the item would stay forever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import ExportIncompleteError, SchemaError
from ddbio.items.changes import PUT
from ddbio.items.item_key import Fingerprints, KeyGroups, key_fingerprints
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import bool_array, int64_array
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.formats.export_manifest import ExportSummary

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport_Requesting.html
MIN_WINDOW = timedelta(minutes=15)
MAX_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True, order=True)
class Window(Result):
    """Time window that includes ``start`` but not ``end``."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def plan_windows(start: datetime, end: datetime) -> list[Window]:
    """Return the smallest number of windows that the service allows for all changes from ``start`` to before ``end``.

    Raises
    ------
    ExportIncompleteError
        If the time is shorter than the shortest window.
    """
    duration = end - start
    if duration < MIN_WINDOW:
        raise ExportIncompleteError(f"{Window(start, end)} is shorter than {MIN_WINDOW}, the shortest window: wait")
    count = -(-duration // MAX_WINDOW)
    marks = [start + duration * number / count for number in range(count)]
    return [Window(*bounds) for bounds in zip(marks, [*marks[1:], end], strict=True)]


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The increments to fold, as indexes in the order of their windows, and the end of the last one."""

    chosen: tuple[int, ...]
    reached: datetime


def plan_fold(full: ExportSummary, increments: Sequence[ExportSummary], as_of: datetime | None = None) -> FoldPlan:
    """Return the increments that follow the full export, each starting at the end of the preceding one.

    Increments that end before the full export or after ``as_of`` are left out, and those that others include.

    Raises
    ------
    ExportIncompleteError
        If a window is missing (the message names it), or an export is filtered, of another table or of another kind.
    """
    windows = [entry for entry in _windows_after(full, increments) if as_of is None or entry[0].end <= as_of]
    plan = _longest_chain(_instant(full.export_time, full), windows)
    later = [window for window, _ in windows if window.end > plan.reached]
    if later and later[0].start > plan.reached:
        gap = Window(plan.reached, later[0].start)
        raise ExportIncompleteError(f"no export covers {gap}: also export that window")
    if later:
        raise ExportIncompleteError(
            f"window {later[0]} starts before {plan.reached.isoformat()}, the end of the preceding exports: items that "
            "were created and deleted within it would stay; 'ddbio export windows' lists the windows to export instead"
        )
    if as_of is not None and plan.reached != as_of:
        # A window has only the last state of each item, so no time within it can be restored.
        raise ExportIncompleteError(
            f"the exports reach {plan.reached.isoformat()}, but {as_of.isoformat()} was requested: "
            "request the end of a window, or export the window that ends then"
        )
    return plan


def _longest_chain(start: datetime, windows: Sequence[tuple[Window, int]]) -> FoldPlan:
    """Return the chain of windows that reaches the latest time from ``start``; ``windows`` are sorted."""
    chains = {_second(start): FoldPlan((), start)}
    for window, index in windows:
        before = chains.get(_second(window.start))
        # The service may truncate times to seconds: a window may start within the second in which another ends.
        if before is not None and window.start <= before.reached:
            chains.setdefault(_second(window.end), FoldPlan((*before.chosen, index), window.end))
    return max(chains.values(), key=lambda chain: chain.reached)


def _second(instant: datetime) -> datetime:
    return instant.replace(microsecond=0)


def missing_windows(full: ExportSummary, increments: Sequence[ExportSummary], until: datetime) -> list[Window]:
    """Return the windows to request so that changes follow the full export without a gap, almost until ``until``.

    The last 15 minutes cannot be requested yet. An existing window after a shorter gap, or one that overlaps the
    preceding one, is requested again within a window that starts at the end of the preceding one.

    Raises
    ------
    ExportIncompleteError
        If an export is filtered, of another table or of another kind.
    """
    windows, missing = _windows_after(full, increments), list[Window]()
    reached = _longest_chain(_instant(full.export_time, full), windows).reached
    while True:
        goal = min((window.start for window, _ in windows if window.start - reached >= MIN_WINDOW), default=until)
        if goal - reached < MIN_WINDOW:
            return missing
        missing += plan_windows(reached, goal)
        reached = _longest_chain(goal, windows).reached


def _windows_after(full: ExportSummary, increments: Sequence[ExportSummary]) -> list[tuple[Window, int]]:
    """Return the windows that end after the full export, sorted, with the indexes of their increments."""
    if full.kind != "full" or full.filtered:
        raise ExportIncompleteError(f"{full.export_arn} is not a full export of the whole table: nothing can follow it")
    indexed = []
    for index, increment in enumerate(increments):
        if increment.kind != "incremental" or increment.filtered:
            raise ExportIncompleteError(f"{increment.export_arn} is not an incremental export of the whole table")
        if (increment.table_arn, increment.table_id) != (full.table_arn, full.table_id):
            raise ExportIncompleteError(f"{increment.export_arn} is of another table than {full.export_arn}")
        indexed.append(
            (Window(_instant(increment.from_time, increment), _instant(increment.to_time, increment)), index)
        )
    exported = _instant(full.export_time, full)
    return sorted((window, index) for window, index in indexed if window.end > max(window.start, exported))


def fold(items: pa.Table, changes: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """Return the items after the changes, in the columns of the items.

    Parameters
    ----------
    items
        The rows of the full export.
    changes
        Rows of incremental exports, decoded into the same columns, in the order of their windows.
    keys
        The table's key attributes.

    Raises
    ------
    SchemaError
        If a row has no key.
    """
    written = pa.concat_tables([table for table in changes if table.num_rows] or [_no_rows(items, keys)])
    # Among equal times, the later window wins, because the sort is stable.
    order = pc.sort_indices(written["write_time"]).to_numpy().astype(np.int64)
    fingerprints = key_fingerprints(changed_keys(written), keys)
    changed = KeyGroups(Fingerprints(fingerprints.high[order], fingerprints.low[order]))
    last = np.sort(changed.rows[changed.starts + changed.counts - 1])
    unchanged = changed.find(key_fingerprints(items, keys)) < 0
    latest = written.take(int64_array(order[last]))
    puts = latest.filter(pc.field("operation") == PUT)
    return pa.concat_tables([items.filter(bool_array(unchanged)), _items_of(puts, items.schema)])


def changed_keys(changes: Any) -> Any:
    """Return the keys of changes as rows with the columns of the key attributes and the rescue column."""
    keys = changes.column("keys")
    columns: list[Any] = keys.flatten()
    rescued = pa.nulls(changes.num_rows, pa.string())
    if any(column.null_count for column in columns):
        texts = changes.column(RESCUE_NAME).to_pylist()
        rescued = pa.array([_rescued_of(text, "keys") for text in texts], pa.string())
    return type(changes).from_arrays([*columns, rescued], schema=pa.schema([*keys.type, RESCUE_FIELD]))


def _key_index(schema: pa.Schema, key: str) -> int:
    """Return the index of the column of a key attribute, regardless of the column's name."""
    indices = [index for index, field in enumerate(schema) if name_of_field(field) == key and field.name != RESCUE_NAME]
    if not indices:
        raise SchemaError(f"key {key!r} has no column: give a schema that has it")
    return indices[0]


def _no_rows(items: pa.Table, keys: Sequence[str]) -> pa.Table:
    image = pa.struct([field for field in items.schema if field.name != RESCUE_NAME])
    own = pa.struct([items.schema.field(_key_index(items.schema, name)) for name in keys])
    members: list[tuple[str, Any]] = [
        ("write_time", pa.int64()),
        ("operation", pa.string()),
        ("keys", own),
        ("new_image", image),
        ("old_image", image),
        (RESCUE_NAME, pa.string()),
    ]
    return pa.schema(members).empty_table()


def _items_of(puts: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [pc.struct_field(puts["new_image"], [name]) for name in schema.names if name != RESCUE_NAME]
    rescued = [_rescued_of(text, "new_image") for text in puts[RESCUE_NAME].to_pylist()]
    return pa.table([*columns, pa.chunked_array([pa.array(rescued, pa.string())])], schema=schema)


def _rescued_of(text: str | None, image: str) -> str | None:
    """Return the rescued attributes of one image of a change."""
    members = None if text is None else json.loads(text).get(image)
    return compact_json(members) if members else None


def _instant(text: str | None, summary: ExportSummary) -> datetime:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        raise ExportIncompleteError(f"the time of {summary.export_arn} is missing or invalid: {text!r}") from None
