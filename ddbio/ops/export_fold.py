"""Fold a full export and contiguous incremental ones into the table's state, in memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ddbio.core.fold import fold, plan_fold
from ddbio.core.schema import normalize_schema
from ddbio.ops.export_plan import layout_of_export
from ddbio.ops.export_read import read_source
from ddbio.ops.export_source import open_export

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ddbio.options import ExportReadOptions


def fold_exports(options: ExportReadOptions, increments: Sequence[str]) -> pa.Table:
    """Return the table's state after a full export and the incremental ones that follow it.

    All of them are read into the columns of the full export, or into the given ones, and every one is verified.

    Raises
    ------
    ExportIncompleteError
        If an export is not whole, or no export covers some time in between.
    SchemaError
        If a key does not fit its column.
    """
    full = open_export(options.source, options)
    opened = [open_export(each, options) for each in increments]
    chosen = [opened[place] for place in plan_fold(full.summary, [each.summary for each in opened])]
    layout = layout_of_export(full, options)
    changed = [source for source in chosen if source.files]
    if not changed:
        return read_source(full, layout, options)
    if not full.files and options.schema is None:
        first = layout_of_export(changed[0], options)
        layout = dataclasses.replace(layout, items=normalize_schema(first.items))
    given = dataclasses.replace(options, schema=layout.items)
    layouts = [layout_of_export(source, given) for source in changed]
    changes = [read_source(source, each, given) for source, each in zip(changed, layouts, strict=True)]
    return fold(read_source(full, layout, options), changes, layouts[0].keys or ())
