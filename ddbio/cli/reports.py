"""Output of commands: as JSON, as data, or as text for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli import plans
from ddbio.cli.show import (
    Rows,
    catalog_rows,
    counted,
    counts_text,
    cpu_text,
    file_rows,
    format_bytes,
    format_duration,
    format_values,
    layout_rows,
    lines,
    merged_null_rows,
    misfit_rows,
    planned_rows,
    skipped_rows,
    time_text,
    usd_text,
    written_rows,
)
from ddbio.cli.terminal import MAX_ROWS, data_out, table_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.advice.advice import Advice
    from ddbio.advice.doctor import DoctorReport
    from ddbio.advice.provisioning import CapacityPlan
    from ddbio.advice.simulation import SimulationReport
    from ddbio.aws.table_description import TableDescription
    from ddbio.export.exports import ExportJob
    from ddbio.export.fold import ExportFoldReport
    from ddbio.export.read import ExportReadReport
    from ddbio.folders.compact import CompactReport
    from ddbio.formats.layout import LayoutReport
    from ddbio.formats.scanned_bytes import QueryCost
    from ddbio.jobs.prices import PriceBook
    from ddbio.jobs.report import DemoReport, ScanReport, WriteReport
    from ddbio.lake.history import HistoryReport
    from ddbio.lake.verify import VerifyReport
    from ddbio.load.copy import CopyReport
    from ddbio.load.import_files import ImportFilesReport
    from ddbio.scan.count import CountReport
    from ddbio.validation.comparison import ValidationReport


def print_result(result: Any, options: Any = None, *, as_json: bool = False, key: str = "") -> None:
    """Print the result of a command.

    Parameters
    ----------
    result
        Rows and text are printed as data, a list with its ``key`` as lines, and other results with :func:`text_of`.
    options
        Options of the command.
    as_json
        Whether to print one JSON object.
    """
    kind = type(result).__name__
    if as_json:
        click.echo(_json_of(result, options, key))
    elif kind == "RecordBatchStream":
        from ddbio.cli.rows import print_json

        print_json(result, sys.stdout)
    elif isinstance(result, str):
        data_out().write(result)
    elif key:
        click.echo(_list_text(key, result))
    else:
        click.echo(text_of(result, options))


def _json_of(result: Any, options: Any, key: str) -> str:
    kind = type(result).__name__
    values: dict[str, Any]
    if key:
        values = {key: [item if isinstance(item, dict) else item.to_dict() for item in result]}
    elif kind == "RecordBatchStream":
        values = {"source": options.source, "items": sum(batch.num_rows for batch in result)}
    elif kind == "Digest":
        values = {"source": options.table, "items": result.count, "digest": result.hexdigest()}
    elif kind == "ScanPlan":
        values = result.to_dict() | {"dest": options.dest}
    else:
        return str(result.to_json()).rstrip()
    return json.dumps(values, ensure_ascii=False)


def text_of(result: Any, options: Any = None) -> str:
    """Return a plan or report as text: with the formatter of its class, otherwise its non-empty values."""
    from ddbio.jobs.estimate import EstimatedPlan

    kind = type(result).__name__
    if kind in _FORMATTERS_WITH_OPTIONS:
        return _FORMATTERS_WITH_OPTIONS[kind](result, options)
    if kind in _FORMATTERS:
        return _FORMATTERS[kind](result)
    return plans.format_estimated_plan(result) if isinstance(result, EstimatedPlan) else format_values(result.to_dict())


def _list_text(key: str, results: list[Any]) -> str:
    if key not in _LINES:
        return "\n\n".join(format_values(result.to_dict()) for result in results)
    form, nothing = _LINES[key]
    return "\n".join(map(form, results)) or nothing


def _backup_line(backup: Any) -> str:
    return f"{backup.status:<11}{backup.table}  {format_bytes(backup.size_bytes)}  {backup.name}  {backup.arn}"


_LINES: dict[str, tuple[Callable[[Any], str], str]] = {
    "backups": (_backup_line, "no backup"),
    "bulk_puts": (lambda operation: f"{operation.status:<22}{operation.arn}", "no bulk operation"),
    "exports": (lambda job: f"{job.status:<12}{job.kind:<12}{job.arn}", "no export"),
    "imports": (lambda job: f"{job.status:<12}{job.source}  {job.arn}", "no import"),
    "windows": (lambda window: f"--from {window['from_time']} --to {window['to_time']}", "nothing to request yet"),
}
"""The formatters of lists, and the text for an empty list."""


def _throttled(throttles: dict[str, int]) -> str | None:
    return counts_text(throttles, "{count} × {name}")


def _capacity(consumed: float, unit: str, asked: float | None, peak_ratio: float | None) -> str:
    budget = "no budget" if asked is None else f"asked {asked:g} {unit}/s"
    peak = "" if peak_ratio is None else f", busiest 10 s at {peak_ratio:.1%} of it"
    return f"{consumed:,.1f} {unit} used, {budget}{peak}"


def _fates(report: WriteReport | CopyReport) -> str:
    return f"{report.written:,} written, {report.skipped:,} skipped, {report.rejected:,} rejected"


def format_report(report: ScanReport) -> str:
    """Return a scan's report as lines of name and value, then its files."""
    megabytes = report.wire_bytes / 1e6
    asked, peak = report.rcu_asked_per_second, report.rcu_peak_10s_ratio
    is_other = report.digest is not None and report.merged_nulls
    rows = [
        ("items", f"{_read_items(report)}, {report.rows:,} rows written, {report.rescued:,} with a rescued value"),
        ("time", time_text(report)),
        ("speed", f"{megabytes:,.1f} MB of wire JSON, {megabytes / max(report.cpu_seconds, 1e-9):.1f} MB a CPU-second"),
        ("capacity", _capacity(report.rcu_consumed, "RCU", asked, peak)),
        *planned_rows(report.planned, report.actual),
        ("throttled", _throttled(report.throttles)),
        *misfit_rows(report.misfits),
        *merged_null_rows(report.merged_nulls),
        ("digest", report.digest),
        ("", "of the table: the files have another, for NULLs were merged with missing values" if is_other else None),
        *catalog_rows(report.catalog),
        *layout_rows(report.layout),
        *file_rows(report.files),
    ]
    return lines(rows)


def format_count(report: CountReport) -> str:
    """Return a count's report as lines of name and value."""
    skew, is_sample = report.skew, report.counted_segments < report.total_segments
    noun = "item collection" if report.segments[0].key is not None else "segment"
    ratio = "" if skew.max_ratio is None else f", {skew.max_ratio:.2f} × the mean"
    named = ", ".join(f"{segment.key or segment.segment}: {segment.items:,}" for segment in skew.largest)
    counted_of = f"{report.counted_segments:,} of {counted(report.total_segments, noun)}"
    sampled = f"{report.counted_items:,} items in {counted_of}, chosen at random"
    interval = f"about {report.items:,}; with 95 % confidence between {report.items_low:,} and {report.items_high:,}"
    is_filtered = report.scanned_items > report.counted_items
    rows = [
        ("items", interval if is_sample else f"{report.items:,}"),
        ("sample", sampled if is_sample else None),
        ("scanned", f"{report.scanned_items:,}" if is_filtered else None),
        ("time", cpu_text(report)),
        ("capacity", _capacity(report.rcu_consumed, "RCU", report.rcu_asked_per_second, None)),
        *planned_rows(report.planned, report.actual),
        ("throttled", _throttled(report.throttles)),
        ("split", f"{counted(report.total_segments, noun)}, {counted(report.lanes, 'lane')}"),
        ("skew", f"min {skew.min_items:,}, median {skew.median_items:,g}, max {skew.max_items:,} items{ratio}"),
        ("largest", named if report.counted_segments > 1 else None),
    ]
    return lines(rows)


def _read_items(report: ScanReport) -> str:
    if report.missing_keys:
        named = f" ({', '.join(report.missing_examples)})" if report.missing_examples else ""
        return f"{report.items:,} read, {counted(report.missing_keys, 'key')} without an item{named}"
    scanned = max(report.items, report.scanned_items)
    return f"{scanned:,} read" + (f", {report.items:,} match the condition" if scanned > report.items else "")


def format_demo(report: DemoReport) -> str:
    """Return a demo's report as text."""
    verdict = "yes: count and digest of table and files are equal" if report.validated else "NO: they differ"
    return f"{format_report(report)}\n{lines([('validated', verdict)])}"


def format_write(report: WriteReport) -> str:
    """Return a write's report as lines of name and value."""
    asked, peak = report.wcu_asked_per_second, report.wcu_peak_10s_ratio
    before = f", after {counted(report.resumed_rows, 'row')} of earlier runs" if report.resumed_rows else ""
    earlier = report.earlier_job_id
    rows = [
        ("rows", f"{report.rows:,}: {_fates(report)}"),
        ("time", f"{cpu_text(report)}, writing {report.write_seconds:.1f} s"),
        ("capacity", _capacity(report.wcu_consumed, "WCU", asked, peak)),
        ("retries", f"{report.retries:,}"),
        *planned_rows(report.planned, report.actual),
        ("throttled", _throttled(report.throttles)),
        ("hottest", counts_text(report.hottest_keys, "{name} {count} times")),
        ("rejects", report.rejects_uri),
        ("job", None if report.job_id is None else report.job_id + before),
        ("before", None if earlier is None else f"the same load ran as job {earlier}"),
        *skipped_rows(report.files_skipped),
    ]
    return lines(rows)


def format_copy(report: CopyReport) -> str:
    """Return a copy's report as lines of name and value."""
    rows = [
        ("tables", f"{report.source} to {report.target}{', which was created' if report.created else ''}"),
        ("items", f"{report.items:,} read: {_fates(report)}"),
        ("capacity", f"{report.rcu_consumed:,.1f} RCU and {report.wcu_consumed:,.1f} WCU used"),
        ("time", cpu_text(report)),
        *planned_rows(report.planned, report.actual),
        ("throttled", _throttled(report.throttles)),
        ("verified", f"both tables have the digest {report.digest}" if report.verified else None),
    ]
    return lines(rows)


def format_export_report(report: ExportReadReport) -> str:
    """Return the report as lines of name and value, then its files."""
    speed = report.json_bytes / 1e6 / max(report.cpu_seconds, 1e-9)
    rows = [
        ("export", report.kind + (", FILTERED: it is not the whole table" if report.filtered else "")),
        ("items", f"{report.items:,} read, {report.rows:,} rows written, {report.rescued:,} with a rescued value"),
        ("source", _verified_text(report)),
        ("time", time_text(report)),
        ("speed", f"{speed:,.1f} MB of text a CPU-second"),
        *planned_rows(report.planned, report.actual),
        *misfit_rows(report.misfits),
        *written_rows(report),
    ]
    return lines(rows)


def format_fold_report(report: ExportFoldReport) -> str:
    """Return the report as lines of name and value, then its files."""
    rows = [
        ("state", f"at {report.state_at}, {counted(report.windows, 'window')} after the full export"),
        ("items", f"{report.items:,} items and {report.changes:,} changes read, {report.rows:,} rows written"),
        ("source", _verified_text(report)),
        ("time", f"{cpu_text(report)} ({report.engine})"),
        *planned_rows(report.planned, report.actual),
        *misfit_rows(report.misfits),
        *written_rows(report),
    ]
    return lines(rows)


def _verified_text(report: ExportReadReport | ExportFoldReport) -> str:
    return f"{counted(report.files_read, 'file')}, {report.json_bytes / 1e6:,.1f} MB of text, all verified"


def format_export(job: ExportJob) -> str:
    """Return an export as lines of name and value."""
    values = job.to_dict()
    if job.billed_bytes is not None:
        values["billed_bytes"] = f"{job.billed_bytes:,} ({format_bytes(job.billed_bytes)})"
    return format_values(values)


def format_import_files(report: ImportFilesReport) -> str:
    """Return the report as lines of name and value, then its files."""
    speed = report.json_bytes / 1e6 / max(report.cpu_seconds, 1e-9)
    rows = [
        ("items", f"{report.items:,} of {counted(report.rows, 'row')}, {report.duplicates:,} left out for their key"),
        ("import", f"{report.uri}, key {report.key}, {report.format}, {report.compression}"),
        ("text", f"{report.json_bytes / 1e6:,.1f} MB before compression, {speed:,.1f} MB a CPU-second"),
        ("time", cpu_text(report)),
        ("digest", report.digest),
        *layout_rows(report.layout),
        *file_rows(report.files, "item"),
        *skipped_rows(report.files_skipped),
    ]
    return lines(rows)


def format_compaction(report: CompactReport) -> str:
    """Return the report of a compaction."""
    rewrote = f"{counted(report.rows_rewritten, 'row')} of {counted(report.files_rewritten, 'file')}"
    left = report.files_left
    rows = [
        ("before", f"{counted(report.files_before, 'file')}, {format_bytes(report.bytes_before)}"),
        ("after", f"{counted(report.files_after, 'file')}, {format_bytes(report.bytes_after)}"),
        ("rewrote", rewrote if report.files_rewritten else "nothing: all files stay as they are"),
        *(("left", f"{counted(len(left), 'file')}, {path}: {left[path]}") for path in list(left)[:1]),
        *layout_rows(report.layout),
        ("digest", report.digest_after or "not taken"),
        ("time", time_text(report)),
        *planned_rows(report.planned, report.actual),
        *catalog_rows(report.catalog),
    ]
    return lines(rows, 9)


def _format_with_figures(report: Any) -> str:
    """Return the values of a report, with its planned figures in one line."""
    values = report.to_dict() | {"planned": None, "actual": None} | dict(planned_rows(report.planned, report.actual))
    if "layout" in values:
        values |= {"layout": None} | dict(layout_rows(report.layout))
    return format_values(values)


def format_table(table: TableDescription) -> str:
    """Return a table's description as lines of name and value."""
    rows = [
        ("table", f"{table.name} ({table.status})"),
        ("arn", table.arn),
        ("key", ", ".join(f"{name}:{tag}" for name, tag in table.key_types)),
        ("size", f"{table.item_count:,} items, {format_bytes(table.size_bytes)}, as the service last counted"),
        (
            "billing",
            "on-demand" if table.on_demand else f"provisioned, {table.rcu:g} RCU/s and {table.wcu:g} WCU/s",
        ),
        *(("index", f"{index.name} ({', '.join(index.key_names)})") for index in table.indexes),
    ]
    return lines(rows, 9)


def format_doctor(report: DoctorReport) -> str:
    """Return a line for each finding, followed by its action, and the counts."""
    shown = []
    for finding in report.findings:
        shown.append(f"{finding.level:<9}{finding.check:<27}{finding.found}")
        if finding.action is not None:
            shown.append(f"{'':<9}-> {finding.action}")
    counts = f"{counted(report.problems, 'problem')}, {counted(report.warnings, 'warning')}"
    return "\n".join([*shown, counts])


def format_layout(report: LayoutReport) -> str:
    """Return the storage of files: figures, then tables of sizes, partitions and columns."""
    from ddbio.formats.layout import class_text, partition_text

    rows = "rows not known" if report.rows is None else counted(report.rows, "row")
    means = {
        "row groups a file": report.row_groups_per_file,
        "rows a file": report.rows_per_file,
        "bytes a row": report.bytes_per_row,
        "compression": report.compression_ratio,
        "skew": report.skew,
    }
    formats = ", ".join(f"{name} {count:,}" for name, count in report.formats.items())
    figures = [
        ("files", f"{report.files:,} ({formats}), {rows}"),
        ("size", f"{format_bytes(report.bytes)}, half of the files below {format_bytes(report.median_file_bytes)}"),
        ("small", f"{report.small_file_ratio:.1%} of the files are below {format_bytes(report.small_than)}"),
        ("means", ", ".join(f"{name} {value:,g}" for name, value in means.items() if value is not None) or None),
    ]
    sizes = [
        (class_text(size_class), f"{size_class.files:,}", format_bytes(size_class.bytes))
        for size_class in report.histogram
    ]
    partitions = [
        (
            partition_text(partition),
            f"{partition.files:,}",
            format_bytes(partition.bytes),
            "" if partition.rows is None else f"{partition.rows:,}",
            f"{partition.small_files:,}",
        )
        for partition in report.partitions[:MAX_ROWS]
    ]
    columns = [
        (column.name, format_bytes(column.bytes), format_bytes(column.uncompressed_bytes), f"{column.bytes_per_row:,g}")
        for column in report.columns[:MAX_ROWS]
    ]
    queries = [
        (
            _query_text(query), f"{query.files:,}", format_bytes(query.bytes),
            *("no price" if usd is None else f"${usd_text(usd)}" for usd in (query.athena_usd, query.spectrum_usd)),
        )
        for query in report.queries
    ]  # fmt: skip
    shown = [lines(figures, 9), table_text(("size", "files", "bytes"), sizes)]
    shown.append(table_text(("a query of", "files", "scans", "Athena", "Redshift Spectrum"), queries))
    shown += [f"note     {note}" for note in report.notes]
    if partitions:
        names = ("partition", "files", "bytes", "rows", "small files")
        shown.append(table_text(names, partitions, len(report.partitions)))
    if columns:
        shown.append(table_text(("column", "stored", "uncompressed", "bytes a row"), columns, len(report.columns)))
    return "\n".join(shown)


def _query_text(query: QueryCost) -> str:
    columns = "all columns" if query.columns is None else ", ".join(query.columns)
    return " in ".join(filter(None, [columns, ", ".join(f"{name}={value}" for name, value in query.partition.items())]))


def format_validation(report: ValidationReport) -> str:
    """Return the result of a validation as lines of name and value."""
    two = report.target is not None
    in_both = f"{report.source_rows:,} in the source, {report.target_rows:,} in the target"
    differ = f"{report.missing:,} missing, {report.extra:,} extra, {report.different:,} different"
    again = f"{report.source_repeated:,} in the source, {report.target_repeated:,} in the target"
    is_repeated = report.source_repeated or report.target_repeated
    rows = [
        ("result", "passed" if report.passed else "FAILED"),
        ("key", ", ".join(report.key)),
        ("rows", in_both if two else f"{report.source_rows:,}"),
        ("differ", differ if two else None),
        ("repeated", f"repeated keys: {again}" if is_repeated else None),
        *_example_rows(report),
        *(("column", f"{column.name}: source {column.source}, target {column.target}") for column in report.columns),
        *(("misfit", f"{misfit.count} × {misfit.path}: {misfit.kind}") for misfit in report.misfits),
        *_rule_rows(report),
        ("compared", plans.compared_text(report.sample, report.nulls)),
        ("time", f"{cpu_text(report)}, {report.rcu_consumed:,.1f} RCU"),
    ]
    return lines(rows, 11)


def _example_rows(report: ValidationReport) -> Rows:
    rows = Rows()
    for example in report.examples:
        rows += [("example", f"{example.kind} {_json(example.key)}")]
        rows += [("", f"source {_json(example.source)}"), ("", f"target {_json(example.target)}")]
    return rows


def _rule_rows(report: ValidationReport) -> Rows:
    rows = Rows()
    for rule in report.rules:
        column = "" if rule.column is None else f"{rule.column} "
        result = "holds" if rule.passed else f"{rule.failures:,} failures"
        rows += [("rule", f"{column}{rule.rule}: {result}"), *(("", _json(example)) for example in rule.examples)]
    return rows


def _json(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def format_verification(report: VerifyReport) -> str:
    """Return the comparison of a lake table with its source table."""
    rows = [
        ("version", str(report.version)),
        ("as of", report.at or "now"),
        ("recent", str(report.recent)),
        ("unsettled", str(report.unsettled)),
        ("tombstones", str(report.tombstones)),
    ]
    return f"{format_validation(report)}\n{lines(rows, 11)}"


def format_history(report: HistoryReport) -> str:
    """Return the states of items as a table."""
    rows = [
        (
            state.key,
            state.valid_from or "",
            state.valid_to or "",
            state.operation,
            "" if state.item is None else _json(state.item),
        )
        for state in report.states
    ]
    return table_text(("key", "from", "to", "operation", "item"), rows)


def format_advice(advice: Advice) -> str:
    """Return the advice and its reasons, then tables of the methods, of the best one, and of the break-even points."""
    from ddbio.advice.advice import break_even_cells, time_text, usd_text

    asked = advice.workload
    size = f"{format_bytes(asked.size_bytes)}, items of {format_bytes(asked.item_bytes)}"
    most = format_bytes(advice.largest_scan_bytes)
    rows = [
        ("advice", advice.recommended or "none"),
        *(("", reason) for reason in advice.why),
        ("table", f"{asked.table}: {size}, {asked.changes_per_second:,g} changes a second"),
        ("asked", f"a copy that is updated every {time_text(asked.freshness_seconds)}"),
        ("scan", f"ends within it up to {most}, at {asked.rcu_per_second:,.0f} RCU/s"),
        *(("note", note) for note in advice.notes),
    ]
    methods = [
        (
            method.name,
            f"{method.usd:,.2f}" + ("+" if method.unpriced else ""),
            usd_text(method.usd_once),
            time_text(method.seconds),
            f"{method.read_units:,.0f}",
            "" if method.load is None else f"{method.load:.0%}",
            "" if method.possible else "not possible",
        )
        for method in advice.roads
    ]
    names = ("method", "USD a month", "once", "a run takes", "RCU a month", "of the capacity", "")
    shown = [lines(rows, 8), table_text(names, methods)]
    for best in [method for method in advice.roads if method.name == advice.recommended][:1]:
        costs = [
            (line.what, f"{line.quantity:,.4g} {line.unit}", usd_text(line.usd))
            for line in (*best.lines, *best.lines_once)
        ]
        shown.append(table_text((best.name, "quantity", "USD"), costs))
    shown += [table_text(("break even", "at", "below", "above"), list(map(break_even_cells, advice.break_evens))), ""]
    shown += ["\n".join([f"{method.name} cannot", *(f"  {text}" for text in method.cannot)]) for method in advice.roads]
    return "\n".join(shown)


def format_capacity(plan: CapacityPlan) -> str:
    """Return the recommended capacity of a table, then tables of its needs and of the other choices."""
    from ddbio.advice.provisioning import need_names, need_rows

    breaks = ", ".join(f"{what} {share:.1%}" for what, share in plan.mode_break_even.items())
    class_gb = plan.class_break_even_gb
    rows = [
        ("capacity", f"{plan.mode}, class {plan.table_class}: {plan.usd:,.2f} USD a month"),
        ("now", f"{plan.mode_now}, class {plan.table_class_now}: {plan.usd_now:,.2f} USD a month"),
        *(("", reason) for reason in plan.why),
        ("seen", f"{plan.days:g} days in steps of {plan.period_seconds:g} s"),
        ("mode", f"provisioned is cheaper from this share consumed: {breaks}"),
        *(("note", note) for note in plan.notes),
        ("class", None if class_gb is None else f"Standard-IA is cheaper from {class_gb:,.1f} GB"),
    ]
    for offer in plan.reserved:
        what = f"{offer.units:,} {offer.what} for {offer.years} y, {offer.usd_upfront:,.2f} USD upfront"
        saved = f"saves {offer.usd_saved:,.2f} USD a month; breaks even at {offer.break_even:.0%} of the hours"
        rows.append(("reserve", f"{what}, {saved}"))
    choices = [(choice.mode, choice.table_class, f"{choice.usd:,.2f}") for choice in plan.choices]
    tables = [table_text(need_names(), need_rows(plan)), table_text(("mode", "class", "USD a month"), choices)]
    return "\n".join([lines(rows), *tables])


_LIMITS = {"key_range": "partitions", "table": "the table", "account": "the account"}
"""Limits that throttle a simulated job."""


def format_simulation(report: SimulationReport, options: Any) -> str:
    """Return a simulation's report as lines of name and value."""
    # A load has no segments.
    if report.segments:
        size, what, rate = f"table of {format_bytes(options.table_bytes)}", "RCU", options.rcu_per_second
    else:
        size, what, rate = f"items of {format_bytes(options.source_bytes)}", "WCU", options.wcu_per_second
    shares = "a fixed share for each task" if options.static_shares else "one budget for all tasks, by leases"
    peak = "" if report.peak_ratio is None else f", busiest 10 s at {report.peak_ratio:.1%} of it"
    split = [counted(report.segments, "segment")] if report.segments else []
    split += [counted(report.tasks, "task"), counted(report.lanes, "lane")]
    ideal = format_duration(report.ideal_seconds)
    half, most = format_duration(report.progress[4]), format_duration(report.progress[8])
    limits = ", ".join(f"{times:,} by {_LIMITS[limit]}" for limit, times in report.throttled_by.items())
    throttled = f"throttled {limits}" if limits else "none throttled"
    lost = f"{counted(report.lost_tasks, 'task')}, {report.repeated_units:,.0f} {what} repeated"
    rows = [
        ("scenario", getattr(options, "scenario", None)),
        ("data", f"{size}, {counted(report.partitions, 'partition')}"),
        ("split", f"{', '.join(split)}; the largest task has {report.largest_task_ratio:.2f} × the mean"),
        ("budget", f"{rate:,.0f} {what}/s, {shares}{peak}"),
        ("consumes", f"{report.units:,.0f} {what} in {report.requests:,} requests, {throttled}"),
        ("time", f"{format_duration(report.seconds)}, {report.ratio:.3f} × the ideal {ideal}"),
        ("progress", f"half after {half}, 90 % after {most}"),
        ("idle", f"{report.idle_ratio:.1%} of the budget"),
        ("split", f"{counted(report.splits, 'partition')} under load" if report.splits else None),
        ("lost", lost if report.lost_tasks else None),
    ]
    return lines(rows)


def format_prices(book: PriceBook) -> str:
    """Return the prices of a region, one per line."""
    shown = [f"{book.region}, USD"]
    for name, price in book.prices.items():
        per = "" if price.per == 1 else f"{price.per:,.0f} "
        until = f", up to {price.tiers[0][0]:,.0f} a month" if price.tiers else ""
        line = f"{price.usd:>12,.7g} a {per}{price.unit}{until}  ({price.date}, {price.usage_type})"
        shown.append(f"  {name:<30}{line}")
    return "\n".join(shown)


_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "Advice": format_advice,
    "CapacityPlan": format_capacity,
    "CaptureReport": _format_with_figures,
    "CompactPlan": plans.format_compact_plan,
    "CompactReport": format_compaction,
    "CopyPlan": plans.format_copy_plan,
    "CopyReport": format_copy,
    "CountPlan": plans.format_count_plan,
    "CountReport": format_count,
    "CreatedTable": lambda made: f"table {made.table} is ACTIVE",
    "DemoReport": format_demo,
    "Digest": lambda result: str(result.hexdigest()),
    "DoctorReport": format_doctor,
    "ExportFoldReport": format_fold_report,
    "ExportJob": format_export,
    "ExportReadPlan": plans.format_export_plan,
    "ExportReadReport": format_export_report,
    "HistoryReport": format_history,
    "ImportFilesReport": format_import_files,
    "LayoutReport": format_layout,
    "LoadPlan": plans.format_load_plan,
    "PriceBook": format_prices,
    "PublishReport": _format_with_figures,
    "ScanReport": format_report,
    "TableDescription": format_table,
    "ValidatePlan": plans.format_validate_plan,
    "ValidationReport": format_validation,
    "VerifyReport": format_verification,
    "WriteReport": format_write,
}
"""The formatters of results, by the names of their classes, which are loaded only when needed."""

_FORMATTERS_WITH_OPTIONS: dict[str, Callable[[Any, Any], str]] = {
    "ScanPlan": plans.format_scan_plan,
    "SimulationReport": format_simulation,
}
"""Formatters that also use the options."""
