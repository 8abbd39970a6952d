"""Open a full export and the contiguous incremental ones that follow it, and fold them into one table in memory."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.core.exports.fold import fold, missing_windows, plan_fold
from ddbio.core.schema.arrow import normalize_schema
from ddbio.errors import ExportIncompleteError
from ddbio.ops.exports.layout import Layout
from ddbio.ops.exports.plan import layout_of_export
from ddbio.ops.exports.read import read_source
from ddbio.ops.exports.source import open_export

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ddbio.core.exports.fold import Window
    from ddbio.ops.exports.source import ExportSource
    from ddbio.options import ExportReadOptions, ExportWindowsOptions


@dataclass(frozen=True)
class FoldSources:
    """Hold a full export, the increments that changed something, in the order of their windows, and one set of columns.

    Attributes
    ----------
    options
        Those by which everything is read: with the columns.
    windows
        How many increments follow the full export, those without changes included.
    reached
        The end of the last one.
    places
        The folders of all exports, those that are left out included.
    """

    options: ExportReadOptions
    full: ExportSource
    layout: Layout
    changed: tuple[tuple[ExportSource, Layout], ...]
    windows: int
    reached: datetime
    places: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the table's key attributes; nobody knows them where nothing changed."""
        return (self.changed[0][1].keys or ()) if self.changed else ()


def open_fold(options: ExportReadOptions, increments: Sequence[str], as_of: datetime | None = None) -> FoldSources:
    """Return the exports that together are the table's state, opened and with their columns.

    All of them are read into the columns of the full export, or into the given ones.

    Raises
    ------
    ExportIncompleteError
        If a manifest is not whole, or no export covers some time in between.
    """
    full = open_export(options.source, options)
    opened = [open_export(each, options) for each in increments]
    plan = plan_fold(full.summary, [each.summary for each in opened], as_of)
    layout = layout_of_export(full, options)
    changed = [opened[place] for place in plan.chosen if opened[place].files]
    if changed and not full.files and options.schema is None:
        first = layout_of_export(changed[0], options)
        layout = Layout(normalize_schema(first.items))
    given = dataclasses.replace(options, schema=layout.items)
    pairs = tuple((source, layout_of_export(source, given)) for source in changed)
    for (before, one), (after, other) in itertools.pairwise(pairs):
        if one.keys != other.keys:
            raise ExportIncompleteError(
                f"{after.summary.export_arn} has changes of keys {other.keys}, {before.summary.export_arn} "
                f"of {one.keys}: a table keeps its key; copy the exports again"
            )
    places = tuple(place for each in (full, *opened) for place in each.places)
    return FoldSources(given, full, layout, pairs, len(plan.chosen), plan.reached, places)


def fold_exports(options: ExportReadOptions, increments: Sequence[str]) -> pa.Table:
    """Return the table's state after a full export and the incremental ones that follow it.

    Raises
    ------
    ExportIncompleteError
        If an export is not whole, or no export covers some time in between.
    SchemaError
        If a key does not fit its column.
    """
    sources = open_fold(options, increments)
    items = read_source(sources.full, sources.layout, sources.options)
    if not sources.changed:
        return items
    changes = [read_source(source, layout, sources.options) for source, layout in sources.changed]
    return fold(items, changes, sources.keys)


def windows_to_request(options: ExportWindowsOptions, increments: Sequence[str]) -> list[Window]:
    """Return the windows to request so that increments follow a full export without a gap; read no data.

    Raises
    ------
    ExportIncompleteError
        If a manifest is not whole, or an export is not of the same whole table.
    """
    until = options.until or datetime.now(UTC)
    full = open_export(options.source, options)
    return missing_windows(full.summary, [open_export(each, options).summary for each in increments], until)
