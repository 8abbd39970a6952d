"""Format plans, reports, sizes and durations as text for people."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddbio.catalog.glue import CatalogReport
    from ddbio.export.read import ExportReadPlan, ExportReadReport
    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
    from ddbio.jobs.prices import Cost
    from ddbio.jobs.report import FileReport, ScanReport
    from ddbio.load.copy import CopyPlan
    from ddbio.load.plan import LoadPlan
    from ddbio.scan.plan import ScanPlan

_KIB = 1024.0
# Partitions may make thousands of files.
_MOST_FILES = 20
# Attributes whose merged NULLs a report names.
_MOST_NULLS = 5
# Quantities from here on are shown without decimals.
_WHOLE = 10


def format_bytes(count: float) -> str:
    """Return a size with a binary unit, three digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < _KIB or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    raise AssertionError("unreachable: the last unit returns")


def format_duration(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 100:  # noqa: PLR2004 - up to here seconds read better
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which ends in *s* unless there is one."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def time_row(report: ScanReport | ExportReadReport) -> tuple[str, str]:
    """Return how long a job took and on what, as a name and a value."""
    where = f"({report.engine}, {counted(report.tasks, 'task')})"
    return "time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s {where}"


def planned_rows(planned: Figures | None, actual: Figures | None) -> list[tuple[str, str]]:
    """Return a row of what a job was planned to take beside what it took, if both are known."""
    return [] if planned is None or actual is None else [("planned", f"{planned}; it took {actual}")]


def file_rows(files: Iterable[FileReport], noun: str = "row") -> list[tuple[str, str]]:
    """Return a name and a value for the files that were written; of many, the first, and how many more there are."""
    known = list(files)
    rows = [("file", f"{file.path}  {format_bytes(file.bytes)}  {counted(file.rows, noun)}") for file in known]
    if len(rows) <= _MOST_FILES:
        return rows
    more, size = len(rows) - _MOST_FILES, format_bytes(sum(file.bytes for file in known[_MOST_FILES:]))
    return [*rows[:_MOST_FILES], ("files", f"{counted(more, 'more file')} of {size}, which --json lists")]


def layout_rows(layout: LayoutSummary | None) -> list[tuple[str, str]]:
    """Return a row that says how many files there are, and how many of them are small, if there are any."""
    if layout is None or not layout.files:
        return []
    small = f"{layout.small_file_ratio:.0%} of them below {format_bytes(layout.small_than)}"
    return [("layout", f"{counted(layout.files, 'file')}, {format_bytes(layout.bytes)}, {small}")]


def skipped_rows(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return a row that names files which were passed over, if any were; of many, the first."""
    if not paths:
        return []
    more = f", and {counted(len(paths) - _MOST_FILES, 'more file')}" if len(paths) > _MOST_FILES else ""
    named = ", ".join(paths[:_MOST_FILES])
    return [("left out", f"{counted(len(paths), 'file')} whose names say that they are no data: {named}{more}")]


def merged_null_rows(merged_nulls: dict[str, int]) -> list[tuple[str, str]]:
    """Return a row that says how many NULLs of which attributes were merged with missing values, if any were."""
    if not merged_nulls:
        return []
    most = sorted(merged_nulls.items(), key=lambda each: -each[1])
    named = ", ".join(f"{count:,} × {path}" for path, count in most[:_MOST_NULLS])
    others = f", and {counted(len(most) - _MOST_NULLS, 'attribute')} more" if len(most) > _MOST_NULLS else ""
    return [("NULLs", f"{named}{others}: now as missing values are; --nulls keep tells them apart")]


def print_plan(plan: EstimatedPlan, *, as_json: bool) -> None:
    """Print a plan: as JSON, or its values that say something, then a table of what it takes and costs."""
    if as_json:
        click.echo(plan.to_json())
        return
    taken = plan.estimate.to_dict()
    values = {name: value for name, value in plan.to_dict().items() if name not in taken}
    click.echo("\n".join(filter(None, [format_values(values), format_estimate(plan.estimate)])))


def format_estimate(estimate: Estimate) -> str:
    """Return what a job takes as one line, and what it costs as a table, a line for each part."""
    taken = [
        f"{estimate.units:,.0f} units" if estimate.units else "",
        counted(estimate.requests, "request") if estimate.requests else "",
        format_bytes(estimate.bytes) if estimate.bytes else "",
        _time(estimate.seconds, estimate.limited_by) if estimate.seconds is not None else "",
    ]
    lines = [f"estimate  {', '.join(filter(None, taken))}"]
    cost = estimate.cost
    if cost.lines:
        lines.append(f"cost      ${_usd_text(cost.usd)}")
        lines += [
            f"  {each.what:<36}{_quantity_text(each.quantity):>16} {each.unit:<14}"
            + ("no price" if each.usd is None else f"${_usd_text(each.usd)}")
            for each in cost.lines
        ]
    return "\n".join([*lines, *(f"note      {note}" for note in cost.notes)])


def _quantity_text(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity >= _WHOLE else f"{quantity:,.4g}"


def _usd_text(usd: float) -> str:
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def format_plan(plan: ScanPlan, most_columns: int | None = None) -> str:
    """Return a scan's plan as lines of name and value, then its columns, or how many they are."""
    from ddbio.items.schema.arrow import format_schema

    budget = "unbounded" if plan.rcu_per_second is None else f"{plan.rcu_per_second:g} RCU/s"
    pages = "" if plan.page_limit is None else f", pages of at most {counted(plan.page_limit, 'item')}"
    stated = "no capacity stated" if plan.table_rcu is None else f"{plan.table_rcu:g} RCU/s"
    billing = "on-demand" if plan.on_demand else "provisioned"
    name = plan.table if plan.index is None else f"{plan.table}, index {plan.index}"
    of = " of item collections" if plan.queries else " of keys" if plan.keys else ""
    groups = counted(plan.segments, "group") + of if of else counted(plan.segments, "segment")
    by = f"by Query of {counted(plan.queries, 'item collection')}" if plan.queries else "by Scan of everything"
    looked_up = f"by BatchGetItem of {counted(plan.keys, 'key')}" if plan.keys else by
    rows = [
        ("table", f"{name} ({billing}, {stated})"),
        *([("where", f"{plan.where}: {by}")] if plan.where else []),
        *([("keys", looked_up)] if plan.keys or (plan.queries and not plan.where) else []),
        ("size", f"{plan.item_count:,} items, {format_bytes(plan.size_bytes)}, as DescribeTable or the sample says"),
        ("engine", f"{plan.engine} ({plan.engine_reason})"),
        ("split", f"{groups}, {counted(plan.tasks, 'task')}, {counted(plan.lanes, 'lane')}"),
        ("budget", budget + pages),
        ("reads", "strongly consistent" if plan.consistent else "eventually consistent"),
        ("estimate", f"{plan.estimated_units:,.0f} RCU, {_time(plan.estimated_seconds, plan.limited_by)}"),
        *_cost_rows(plan.cost),
    ]
    if plan.estimated_files is not None:
        size = format_bytes(plan.estimated_file_bytes or 0)
        rows.append(
            ("files", f"about {plan.estimated_files:,} of {size} in {counted(plan.partitions or 0, 'partition')}")
        )
    rows += [("warning", text) for text in plan.warnings]
    if plan.limit is not None:
        rows.append(("limit", f"{counted(plan.limit, 'item')}, from one segment"))
    count = len(plan.schema)
    if most_columns is not None and count > most_columns:
        rows.append(("columns", f"{count}: 'ddbio plan scan' lists them"))
        return "\n".join(f"{name:<9}{value}" for name, value in rows)
    return "\n".join(f"{name:<9}{value}" for name, value in rows) + "\n\n" + format_schema(plan.schema)


def format_copy_plan(plan: CopyPlan) -> str:
    """Return a copy's plan as lines: how the source is read, how the target is written or created, and the cost."""
    if plan.write is None:
        target = f"is created by {json.dumps(plan.creates)}"
    else:
        budget = "unbounded" if plan.write.wcu_per_second is None else f"{plan.write.wcu_per_second:g} WCU/s"
        target = f"{plan.write.table}: {plan.write.mode}, {counted(plan.write.lanes, 'lane')}, {budget}"
    time = _time(plan.estimated_seconds, plan.limited_by)
    rows = [
        ("target", target),
        ("writes", f"{plan.write_units:,.0f} WCU for new items; reads and writes: {time}"),
        *_cost_rows(plan.cost),
    ]
    scan = format_plan(replace(plan.scan, cost=None))
    return "\n".join([scan, "", *(f"{name:<10}{value}" for name, value in rows)])


def _time(seconds: float, limited_by: str) -> str:
    return format_duration(seconds) + (f", limited by {limited_by}" if limited_by else "")


def _cost_rows(cost: Cost | None) -> list[tuple[str, str]]:
    """Return the sum of a job's cost and its lines; provisioned capacity is paid by the hour, used or not."""
    if cost is None or not cost.lines:
        return []
    parts = [f"{each.what} {_quantity_text(each.quantity)} {each.unit}" for each in cost.lines if each.usd]
    paid = f"${_usd_text(cost.usd)}: {', '.join(parts)}" if parts else "nothing beside the provisioned capacity"
    return [("cost", paid), *(("note", note) for note in cost.notes if parts)]


def format_load_plan(plan: LoadPlan) -> str:
    """Return a load's plan as lines of name and value."""
    about = "" if plan.rows_exact else "about "
    size = format_bytes(plan.size_bytes)
    rows = "rows not counted" if plan.rows is None else f"{about}{counted(plan.rows, 'row')}"
    stated = "no capacity stated" if plan.table_wcu is None else f"{plan.table_wcu:g} WCU/s"
    billing = "on-demand" if plan.on_demand else "provisioned"
    shuffled = "" if plan.key_partitions is None else ", rows shuffled by key"
    budget = "unbounded" if plan.wcu_per_second is None else f"{plan.wcu_per_second:g} WCU/s"
    by = "".join(f", {name} {value}" for name, value in (("newer by", plan.newer_by), ("as says", plan.operation_by)) if value)  # fmt: skip # noqa: E501
    estimate = "unknown before the rows are read"
    if plan.estimated_units is not None and plan.estimated_seconds is not None:
        time = _time(plan.estimated_seconds, plan.limited_by)
        estimate = f"{plan.estimated_units:,.0f} WCU for new items, {time}"
    tasks = f"{counted(plan.tasks, 'task')} of {counted(plan.lanes, 'lane')}"
    lines = [
        (
            "source",
            f"{plan.source}: {counted(plan.files, 'file')} in {counted(plan.source_units, 'unit')}, {size}, {rows}",
        ),
        ("table", f"{plan.table} ({billing}, {stated})"),
        ("indexes", ", ".join(plan.indexes) or "none to which the rows belong"),
        ("mode", plan.mode + by),
        ("engine", f"{plan.engine} ({plan.engine_reason}), {tasks}{shuffled}"),
        ("budget", budget),
        ("estimate", estimate),
        *_cost_rows(plan.cost),
        *skipped_rows(plan.files_skipped),
    ]
    if plan.finished_rows:
        lines.insert(1, ("finished", f"{counted(plan.finished_rows, 'row')} by earlier runs; the plan is without them"))
    return "\n".join(f"{name:<9}{value}" for name, value in lines)


def _read_items(report: ScanReport) -> str:
    if report.missing_keys:
        named = f" ({', '.join(report.missing_examples)})" if report.missing_examples else ""
        return f"{report.items:,} read, {counted(report.missing_keys, 'key')} without an item{named}"
    scanned = max(report.items, report.scanned_items)
    return f"{scanned:,} read" + (f", {report.items:,} meet the condition" if scanned > report.items else "")


def format_report(report: ScanReport) -> str:
    """Return a scan's report as lines of name and value, then its files."""
    megabytes = report.wire_bytes / 1e6
    asked = "no budget" if report.rcu_asked_per_second is None else f"asked {report.rcu_asked_per_second:g} RCU/s"
    peak = "" if report.rcu_peak_10s_ratio is None else f", busiest 10 s at {report.rcu_peak_10s_ratio:.1%} of it"
    rows = [
        ("items", f"{_read_items(report)}, {report.rows:,} rows written, {report.rescued:,} with a rescued value"),
        time_row(report),
        ("speed", f"{megabytes:,.1f} MB of wire JSON, {megabytes / max(report.cpu_seconds, 1e-9):.1f} MB a CPU-second"),
        ("capacity", f"{report.rcu_consumed:,.1f} RCU used, {asked}{peak}"),
    ]
    rows += planned_rows(report.planned, report.actual)
    if report.throttles:
        rows.append(("throttled", ", ".join(f"{count} × {reason}" for reason, count in report.throttles.items())))
    for m in report.misfits:
        dropped = f", {m.dropped} dropped" if m.dropped else ""
        rows.append(("misfit", f"{m.count} × {m.path}: {m.kind}{dropped}, e.g. {m.example}"))
    rows += merged_null_rows(report.merged_nulls)
    if report.digest is not None:
        rows.append(("digest", report.digest))
        if report.merged_nulls:
            rows.append(("", "of the table: the files have another, for NULLs were merged with missing values"))
    rows += catalog_rows(report.catalog) + layout_rows(report.layout) + file_rows(report.files)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)


def catalog_rows(registered: CatalogReport | None) -> list[tuple[str, str]]:
    """Return a row about what was registered in the catalog, if anything was."""
    if registered is None:
        return []
    added = f", with {', '.join(registered.columns_added)} added" if registered.columns_added else ""
    counts = f"; partitions: {registered.partitions:,}, {registered.partitions_added:,} of them new"
    return [("catalog", f"{registered.table} {registered.action}{added}{counts if registered.partitions else ''}")]


def format_values(values: dict[str, Any]) -> str:
    """Return names and values as lines, those that say nothing left out."""
    shown = {name: _as_text(value) for name, value in values.items() if value not in (None, "", False, ())}
    width = max(map(len, shown), default=0) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in shown.items())


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_as_text, value))
    return f"{value:,}" if type(value) is int else str(value)


def format_export_plan(plan: ExportReadPlan) -> str:
    """Return what of an export is to be read, for people."""
    filtered = ", FILTERED: it is not the whole table" if plan.filtered else ""
    rows = [
        ("export", f"{plan.kind}, {plan.encoding}{filtered}"),
        ("items", f"{plan.items:,} in {counted(plan.files, 'file')}, {format_bytes(plan.file_bytes)} gzipped"),
        ("columns", ", ".join(plan.columns)),
        ("engine", plan.engine),
    ]
    if plan.estimated_files is not None:
        size = format_bytes(plan.estimated_file_bytes or 0)
        rows.append(
            ("files", f"about {plan.estimated_files:,} of {size} in {counted(plan.partitions or 0, 'partition')}")
        )
    rows += [("warning", text) for text in plan.warnings]
    return "\n".join([*(f"{name:<10}{value}" for name, value in rows), format_estimate(plan.estimate)])
