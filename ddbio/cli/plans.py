"""Formatting of plans as text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddbio.cli.show import (
    Rows,
    counted,
    format_bytes,
    format_duration,
    format_estimate,
    format_values,
    limited_time,
    lines,
    quantity_text,
    skipped_rows,
    usd_text,
)

if TYPE_CHECKING:
    from ddbio.export.read import ExportReadPlan
    from ddbio.folders.compact import CompactPlan
    from ddbio.jobs.estimate import EstimatedPlan
    from ddbio.jobs.prices import Cost
    from ddbio.load.copy import CopyPlan
    from ddbio.load.plan import LoadPlan
    from ddbio.scan.count import CountPlan
    from ddbio.scan.plan import ScanPlan
    from ddbio.validation.comparison import SideOutline, ValidatePlan

# More columns are only counted when a job runs, and listed by its plan.
_MAX_COLUMNS = 20


def format_estimated_plan(plan: EstimatedPlan) -> str:
    """Return the non-empty values of a plan, then a table of its resources and cost."""
    taken = plan.estimate.to_dict()
    values = {name: value for name, value in plan.to_dict().items() if name not in taken}
    return "\n".join(filter(None, [format_values(values), format_estimate(plan.estimate)]))


def format_scan_plan(plan: ScanPlan, options: Any) -> str:
    """Return the target of a scan, if it has one, and its plan."""
    target = "" if options.dest is None else f"{'target':<9}{options.dest} (mode {options.mode})\n"
    return f"{target}{format_plan(plan)}\n\n{_columns(plan)}"


def format_plan_of_run(plan: ScanPlan) -> str:
    """Return the plan of a running scan: many columns are only counted."""
    count = len(plan.schema)
    if count > _MAX_COLUMNS:
        return f"{format_plan(plan)}\n{'columns':<9}{count}: 'ddbio plan scan' lists them"
    return f"{format_plan(plan)}\n\n{_columns(plan)}"


def _columns(plan: ScanPlan) -> str:
    from ddbio.items.schema.arrow import format_schema

    return format_schema(plan.schema)


def format_plan(plan: ScanPlan) -> str:
    """Return a scan's plan, without its columns, as lines of name and value."""
    pages = "" if plan.page_limit is None else f", pages of at most {counted(plan.page_limit, 'item')}"
    name = plan.table if plan.index is None else f"{plan.table}, index {plan.index}"
    of = " of item collections" if plan.queries else " of keys" if plan.keys else ""
    groups = counted(plan.segments, "group") + of if of else counted(plan.segments, "segment")
    by = f"by Query of {counted(plan.queries, 'item collection')}" if plan.queries else "by Scan of everything"
    looked_up = f"by BatchGetItem of {counted(plan.keys, 'key')}" if plan.keys else by
    rows = [
        ("table", f"{name} ({_billing(plan.on_demand, plan.table_rcu, 'RCU')})"),
        ("where", f"{plan.where}: {by}" if plan.where else None),
        ("keys", looked_up if plan.keys or (plan.queries and not plan.where) else None),
        (
            "size",
            f"{plan.item_count:,} items, {format_bytes(plan.size_bytes)}, according to DescribeTable or the sample",
        ),
        ("engine", f"{plan.engine} ({plan.engine_reason})"),
        ("split", f"{groups}, {counted(plan.tasks, 'task')}, {counted(plan.lanes, 'lane')}"),
        ("budget", _rate(plan.rcu_per_second, "RCU") + pages),
        ("reads", "strongly consistent" if plan.consistent else "eventually consistent"),
        ("estimate", f"{plan.estimated_units:,.0f} RCU, {limited_time(plan.estimated_seconds, plan.limited_by)}"),
        *_cost_rows(plan.cost),
        ("files", _files_text(plan)),
        *(("warning", text) for text in plan.warnings),
        ("limit", None if plan.limit is None else f"{counted(plan.limit, 'item')}, from one segment"),
    ]
    return lines(rows, 9)


def format_count_plan(plan: CountPlan) -> str:
    """Return a count's plan as lines of name and value."""
    pages = "" if plan.page_limit is None else f", pages of at most {counted(plan.page_limit, 'item')}"
    name = plan.table if plan.index is None else f"{plan.table}, index {plan.index}"
    segments = counted(plan.segments, "segment")
    sampled = f"{plan.counted_segments:,} of {segments}, chosen at random"
    by = f"by Query of {counted(plan.queries, 'item collection')}" if plan.queries else "by Scan of everything"
    split = segments if plan.counted_segments == plan.segments else sampled
    units, seconds = plan.estimate.units, plan.estimate.seconds
    is_known = units is not None and seconds is not None
    time = f"{units:,.0f} RCU, {limited_time(seconds or 0.0, plan.estimate.limited_by)}" if is_known else ""
    rows = [
        ("table", f"{name} ({_billing(plan.on_demand, plan.table_rcu, 'RCU')})"),
        ("where", f"{plan.where}: {by}" if plan.where else None),
        ("size", f"{plan.item_count:,} items, {format_bytes(plan.size_bytes)}, according to DescribeTable"),
        ("split", f"{by.removeprefix('by ') if plan.queries else split}, {counted(plan.lanes, 'lane')}"),
        ("budget", _rate(plan.rcu_per_second, "RCU") + pages),
        ("reads", "strongly consistent" if plan.consistent else "eventually consistent"),
        ("estimate", time or "unknown: DescribeTable has no size of an item collection"),
        *_cost_rows(plan.estimate.cost),
        *(("warning", text) for text in plan.warnings),
    ]
    return lines(rows, 9)


def _billing(on_demand: bool, units: float | None, unit: str) -> str:
    stated = "no capacity stated" if units is None else f"{units:g} {unit}/s"
    return f"{'on-demand' if on_demand else 'provisioned'}, {stated}"


def _rate(units: float | None, unit: str) -> str:
    return "unbounded" if units is None else f"{units:g} {unit}/s"


def _files_text(plan: ScanPlan | ExportReadPlan) -> str | None:
    if plan.estimated_files is None:
        return None
    size, partitions = format_bytes(plan.estimated_file_bytes or 0), counted(plan.partitions or 0, "partition")
    return f"about {plan.estimated_files:,} of {size} in {partitions}"


def _cost_rows(cost: Cost | None) -> Rows:
    """Return the total cost of a job and its lines. Provisioned capacity is paid by the hour, used or not."""
    if cost is None or not cost.lines:
        return []
    parts = [f"{line.what} {quantity_text(line.quantity)} {line.unit}" for line in cost.lines if line.usd]
    paid = f"${usd_text(cost.usd)}: {', '.join(parts)}" if parts else "nothing in addition to the provisioned capacity"
    return [("cost", paid), *(("note", note) for note in cost.notes if parts)]


def format_copy_plan(plan: CopyPlan) -> str:
    """Return a copy's plan as lines: reads of the source, writes or creation of the target, and the cost."""
    if plan.write is None:
        target = f"is created by {json.dumps(plan.creates)}"
    else:
        budget = _rate(plan.write.wcu_per_second, "WCU")
        target = f"{plan.write.table}: {plan.write.mode}, {counted(plan.write.lanes, 'lane')}, {budget}"
    time = limited_time(plan.estimated_seconds, plan.limited_by)
    rows = [
        ("target", target),
        ("writes", f"{plan.write_units:,.0f} WCU for new items; reads and writes: {time}"),
        ("vectors", _vectors_text(plan.vector_write_bytes)),
        *_cost_rows(plan.cost),
    ]
    scan = replace(plan.scan, cost=None)
    return f"{format_plan(scan)}\n\n{_columns(scan)}\n\n{lines(rows)}"


def _vectors_text(bytes_by_index: dict[str, float]) -> str | None:
    """Return the bytes of writes to vector indexes, or None without such indexes."""
    parts = (f"{name} {format_bytes(size)}" for name, size in bytes_by_index.items())
    return f"{', '.join(parts)} written to vector indexes, without a price" if bytes_by_index else None


def format_load_plan(plan: LoadPlan) -> str:
    """Return a load's plan as lines of name and value."""
    about = "" if plan.rows_exact else "about "
    rows = "rows not counted" if plan.rows is None else f"{about}{counted(plan.rows, 'row')}"
    files = f"{counted(plan.files, 'file')} in {counted(plan.source_units, 'unit')}"
    finished = f"{counted(plan.finished_rows, 'row')} by earlier runs; the plan is without them"
    newer_by = f", newer by {plan.newer_by}" if plan.newer_by else ""
    operation_by = f", operation in {plan.operation_by}" if plan.operation_by else ""
    tasks = f"{counted(plan.tasks, 'task')} of {counted(plan.lanes, 'lane')}"
    shuffled = "" if plan.key_partitions is None else ", rows shuffled by key"
    estimate = "unknown before the rows are read"
    if plan.estimated_units is not None and plan.estimated_seconds is not None:
        time = limited_time(plan.estimated_seconds, plan.limited_by)
        estimate = f"{plan.estimated_units:,.0f} WCU for new items, {time}"
    shown = [
        ("source", f"{plan.source}: {files}, {format_bytes(plan.size_bytes)}, {rows}"),
        ("finished", finished if plan.finished_rows else None),
        ("table", f"{plan.table} ({_billing(plan.on_demand, plan.table_wcu, 'WCU')})"),
        ("indexes", ", ".join(plan.indexes) or "none to which the rows belong"),
        ("mode", plan.mode + newer_by + operation_by),
        ("engine", f"{plan.engine} ({plan.engine_reason}), {tasks}{shuffled}"),
        ("budget", _rate(plan.wcu_per_second, "WCU")),
        ("estimate", estimate),
        ("vectors", _vectors_text(plan.vector_write_bytes)),
        *_cost_rows(plan.cost),
        *skipped_rows(plan.files_skipped),
    ]
    return lines(shown, 9)


def format_export_plan(plan: ExportReadPlan) -> str:
    """Return the plan of reading an export as text."""
    filtered = ", FILTERED: it is not the whole table" if plan.filtered else ""
    rows = [
        ("export", f"{plan.kind}, {plan.encoding}{filtered}"),
        ("items", f"{plan.items:,} in {counted(plan.files, 'file')}, {format_bytes(plan.file_bytes)} gzipped"),
        ("columns", ", ".join(plan.columns)),
        ("engine", plan.engine),
        ("files", _files_text(plan)),
        *(("warning", text) for text in plan.warnings),
    ]
    return f"{lines(rows)}\n{format_estimate(plan.estimate)}"


def format_compact_plan(plan: CompactPlan) -> str:
    """Return the plan of rewriting files of a folder."""
    before = f"{counted(plan.files_before, 'file')}, {format_bytes(plan.bytes_before)}"
    rewrite = f"{counted(plan.files_rewritten, 'file')}, {format_bytes(plan.bytes_rewritten)}"
    rows = [
        ("folder", f"{plan.path}, version {plan.version}: {before}"),
        ("rewrite", f"{rewrite}, to files of {format_bytes(plan.target_bytes)}"),
        ("after", f"about {counted(plan.files_after, 'file')}"),
        ("engine", plan.engine),
    ]
    return f"{lines(rows)}\n{format_estimate(plan.estimate)}"


def format_validate_plan(plan: ValidatePlan) -> str:
    """Return the plan of a validation as lines of name and value."""
    seconds = "" if plan.estimated_seconds is None else f", {format_duration(plan.estimated_seconds)} at the budget"
    units = f"{plan.estimated_units:,.0f} RCU{seconds}; at most {plan.most_units:,.0f} RCU to show what differs"
    rows = [
        ("source", _side_text(plan.source)),
        ("target", "none" if plan.target is None else _side_text(plan.target)),
        ("key", ", ".join(plan.key)),
        ("compares", compared_text(plan.sample, plan.nulls)),
        ("rules", f"{plan.rules:,}"),
        ("estimate", units),
    ]
    return lines(rows, 9)


def compared_text(sample: float, nulls: str) -> str:
    """Return the scope of a validation as text."""
    return f"{sample:.2%} of the keys; NULL and missing {'differ' if nulls == 'keep' else 'are the same'}"


def _side_text(side: SideOutline) -> str:
    rows = "rows not counted" if side.rows is None else counted(side.rows, "row")
    size = "" if side.bytes is None else f", {format_bytes(side.bytes)}"
    return f"{side.name} ({side.kind}), {rows}{size}"
