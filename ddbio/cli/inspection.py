"""The commands that look at what is there: ``doctor``, ``layout`` and ``validate``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import (
    CONF_FLAG,
    FROM_FILE_FLAG,
    MASTER_FLAG,
    flags_of,
    output_flags,
    parse_conf,
    parse_flags,
)
from ddbio.cli.show import counted, format_bytes, format_duration
from ddbio.cli.terminal import MOST_ROWS, print_table
from ddbio.options import DoctorOptions, LayoutOptions, ValidateOptions

if TYPE_CHECKING:
    from ddbio.advice.doctor import DoctorReport
    from ddbio.formats.layout import LayoutReport
    from ddbio.validation.comparison import SideOutline, ValidatePlan, ValidationReport

DIFFERENT_EXIT = FOUND_EXIT = 1


@click.command()
@click.argument("location", required=False)
@flags_of(DoctorOptions, without=["location"])
@click.option("--strict", is_flag=True, help="Exit with 1 also if there are only warnings.")
@output_flags
def doctor(*, as_json: bool, strict: bool, **flags: Any) -> None:
    """Check this machine, credentials and endpoints, a --table and the bucket of LOCATION, and say what to do.

    Nothing is changed. The exit code is 0 if there is no problem, and 1 if there is one.
    """
    from ddbio.advice.doctor import doctor as run

    report = run(parse_flags(DoctorOptions, flags))
    click.echo(report.to_json() if as_json else format_doctor(report))
    if report.problems or (strict and report.warnings):
        raise SystemExit(FOUND_EXIT)


def format_doctor(report: DoctorReport) -> str:
    """Return what was found, a line each, with what to do below it, and the counts."""
    lines = []
    for each in report.findings:
        lines.append(f"{each.level:<9}{each.check:<27}{each.found}")
        if each.action is not None:
            lines.append(f"{'':<9}-> {each.action}")
    counts = f"{counted(report.problems, 'problem')}, {counted(report.warnings, 'warning')}"
    return "\n".join([*lines, counts])


@click.command()
@click.argument("path")
@flags_of(LayoutOptions, without=["path"])
@output_flags
def layout(*, as_json: bool, **flags: Any) -> None:
    """Report how a dataset at PATH lies in files: sizes, small files, partitions, columns.

    Only the footers of Parquet and ORC are read, and no row.
    """
    from ddbio.folders import layout as layouts

    report = layouts.layout(parse_flags(LayoutOptions, flags))
    if as_json:
        click.echo(report.to_json())
    else:
        _print_layout(report)


def _print_layout(report: LayoutReport) -> None:

    from ddbio.formats.layout import class_text, partition_text

    rows = "rows not known" if report.rows is None else counted(report.rows, "row")
    means = {
        "row groups a file": report.row_groups_per_file,
        "rows a file": report.rows_per_file,
        "bytes a row": report.bytes_per_row,
        "compression": report.compression_ratio,
        "skew": report.skew,
    }
    lines = [
        ("files", f"{report.files:,} ({', '.join(f'{name} {n:,}' for name, n in report.formats.items())}), {rows}"),
        ("size", f"{format_bytes(report.bytes)}, half of the files below {format_bytes(report.median_file_bytes)}"),
        ("small", f"{report.small_file_ratio:.1%} of the files are below {format_bytes(report.small_than)}"),
        ("means", ", ".join(f"{name} {value:,g}" for name, value in means.items() if value is not None)),
    ]
    click.echo("\n".join(f"{name:<9}{value}" for name, value in lines if value))
    print_table(
        ("size", "files", "bytes"),
        [(class_text(each), f"{each.files:,}", format_bytes(each.bytes)) for each in report.histogram],
    )  # fmt: skip
    if report.partitions:
        found = [
            (
                partition_text(each), f"{each.files:,}", format_bytes(each.bytes),
                "" if each.rows is None else f"{each.rows:,}", f"{each.small_files:,}",
            )
            for each in report.partitions[:MOST_ROWS]
        ]  # fmt: skip
        print_table(("partition", "files", "bytes", "rows", "small files"), found, len(report.partitions))
    if report.columns:
        largest = [
            (each.name, format_bytes(each.bytes), format_bytes(each.uncompressed_bytes), f"{each.bytes_per_row:,g}")
            for each in report.columns[:MOST_ROWS]
        ]
        print_table(("column", "stored", "uncompressed", "bytes a row"), largest, len(report.columns))


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@flags_of(ValidateOptions, without=["source", "target"])
@click.option("--dry-run", is_flag=True, help="Stop after the plan; read nothing but what it takes.")
@MASTER_FLAG
@CONF_FLAG
@output_flags
def validate(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Tell whether TARGET holds the same items as SOURCE, which keys differ, and which quality rules hold.

    Each is a table, an export, or files. The exit code is 0 if they are equal and all rules hold, and 1 if not.
    """
    from ddbio.validation.validate import validate as run_validation

    options = parse_flags(ValidateOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    report = run_validation(options, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_validation(report))
    if not report.passed:
        raise SystemExit(DIFFERENT_EXIT)


@click.command("validate")
@click.argument("source")
@click.argument("target", required=False)
@flags_of(ValidateOptions, without=["source", "target"])
@FROM_FILE_FLAG
@output_flags
def plan_validate(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Print what validating SOURCE against TARGET would read and cost."""
    _print_plan(parse_flags(ValidateOptions, flags), from_file, as_json=as_json)


def _print_plan(options: ValidateOptions, from_file: str | None = None, *, as_json: bool) -> None:
    from ddbio.validation.validate import plan_validate as make_plan

    plan = make_plan(options, from_file=from_file)
    click.echo(plan.to_json() if as_json else format_validate_plan(plan))


def format_validate_plan(plan: ValidatePlan) -> str:
    """Return the plan of a validation as lines of name and value."""
    seconds = "" if plan.estimated_seconds is None else f", {format_duration(plan.estimated_seconds)} at the budget"
    lines = [
        ("source", _side_text(plan.source)),
        ("target", "none" if plan.target is None else _side_text(plan.target)),
        ("key", ", ".join(plan.key)),
        ("compares", f"{plan.sample:.2%} of the keys; NULL and missing {_nulls_text(plan.nulls)}"),
        ("rules", f"{plan.rules:,}"),
        (
            "estimate",
            f"{plan.estimated_units:,.0f} RCU{seconds}; at most {plan.most_units:,.0f} RCU to show what differs",
        ),
    ]
    return "\n".join(f"{name:<9}{value}" for name, value in lines)


def _side_text(side: SideOutline) -> str:
    rows = "rows not counted" if side.rows is None else counted(side.rows, "row")
    size = "" if side.bytes is None else f", {format_bytes(side.bytes)}"
    return f"{side.name} ({side.kind}), {rows}{size}"


def _nulls_text(nulls: str) -> str:
    return "differ" if nulls == "keep" else "are the same"


def format_validation(report: ValidationReport) -> str:
    """Return what a validation found as lines of name and value."""
    lines = [("result", "passed" if report.passed else "FAILED"), ("key", ", ".join(report.key))]
    if report.target is None:
        lines.append(("rows", f"{report.source_rows:,}"))
    else:
        lines += [
            ("rows", f"{report.source_rows:,} in the source, {report.target_rows:,} in the target"),
            ("differ", f"{report.missing:,} missing, {report.extra:,} extra, {report.different:,} different"),
        ]
    if report.source_repeated or report.target_repeated:
        in_source, in_target = f"{report.source_repeated:,} in the source", f"{report.target_repeated:,} in the target"
        lines.append(("repeated", f"keys that come again: {in_source}, {in_target}"))
    lines += [
        (
            "example",
            f"{each.kind} {_json(each.key)}\n{'':<11}source {_json(each.source)}\n{'':<11}target {_json(each.target)}",
        )
        for each in report.examples
    ]
    lines += [("column", f"{each.name}: source {each.source}, target {each.target}") for each in report.columns]
    lines += [("misfit", f"{each.count} × {each.path}: {each.kind}") for each in report.misfits]
    for rule in report.rules:
        column = "" if rule.column is None else f"{rule.column} "
        result = "holds" if rule.passed else f"{rule.failures:,} failures"
        lines.append(("rule", f"{column}{rule.rule}: {result}"))
        lines += [("", _json(each)) for each in rule.examples]
    lines += [
        ("compared", f"{report.sample:.2%} of the keys; NULL and missing {_nulls_text(report.nulls)}"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s, {report.rcu_consumed:,.1f} RCU"),
    ]
    return "\n".join(f"{name:<11}{value}" for name, value in lines)


def _json(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
