"""The commands that read tables and exports: ``scan``, ``read``, ``schema`` and ``digest``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import (
    CONF_FLAG,
    FROM_FILE_FLAG,
    MASTER_FLAG,
    QUIET_FLAG,
    flags_of,
    is_quiet,
    output_flags,
    parse_conf,
    parse_flags,
    read_schema_text,
)
from ddbio.cli.progress import ScanProgress
from ddbio.cli.show import format_plan, format_report
from ddbio.cli.terminal import data_out
from ddbio.errors import SchemaError
from ddbio.options import (
    DigestOptions,
    ExportReadOptions,
    InspectOptions,
    PlanScanOptions,
    ScanOptions,
    ScanToFilesOptions,
    connection_of,
    parse_options,
)
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ddbio.items.schema.item_schema import ItemSchema

CHANGED_EXIT = 1
_COLUMN_OPTIONS = ("schema", "on_misfit", "drop", "timestamps", "types", "numbers", "nulls", "sample_items")


@click.command()
@click.argument("table")
@click.argument("dest")
@flags_of(ScanToFilesOptions, without=["table", "dest"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@output_flags
def scan(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Scan TABLE into files at DEST: s3://bucket/prefix or a local folder."""
    from ddbio.scan.to_files import scan_to_files

    options = parse_flags(ScanToFilesOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    watch = None if is_quiet() else ScanProgress(show_plan=not as_json)
    report = scan_to_files(options, master=master, conf=parse_conf(conf), watch=watch)
    click.echo(report.to_json() if as_json else format_report(report))


@click.command("scan")
@click.argument("table")
@click.argument("dest", required=False)
@flags_of(PlanScanOptions, without=["table", "dest"])
@FROM_FILE_FLAG
@output_flags
def plan_scan(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe and sample TABLE, and print how it would be scanned."""
    _print_plan(parse_flags(PlanScanOptions, flags), as_json=as_json, from_file=from_file)


def _print_plan(options: PlanScanOptions | ScanToFilesOptions, *, as_json: bool, from_file: str | None = None) -> None:
    from ddbio.scan.describe import plan

    made = plan(options, from_file)
    if as_json:
        click.echo(json.dumps(made.to_dict() | {"dest": options.dest}, ensure_ascii=False))
    else:
        target = "" if options.dest is None else f"{'target':<9}{options.dest} (mode {options.mode})\n"
        click.echo(target + format_plan(made))


@click.command()
@click.argument("source")
@flags_of(ScanOptions, without=["table"])
@click.option("--format", "form", type=click.Choice(["json", "csv"]), default="json", show_default=True, help="Print lines of JSON, or CSV whose maps and lists are JSON.")  # fmt: skip # noqa: E501
@QUIET_FLAG
def read(*, source: str, form: str, **flags: Any) -> None:
    """Print the items of SOURCE, a table or an export, on stdout, one a line.

    Numbers are exact. What is missing or NULL is left out; sets are lists; binary is base64; values that do not fit
    their column are in _rescue, as DynamoDB JSON.
    """
    from ddbio.cli.rows import print_csv, print_json

    batches = _batches(source, parse_flags(ScanOptions, {**flags, "table": source}))
    if form == "csv":
        print_csv(batches, data_out())
    else:
        print_json(batches, sys.stdout)


def _batches(source: str, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    from ddbio.export.read import read_export_batches
    from ddbio.scan.read import scan_batches
    from ddbio.sources.data_files import is_data

    if not is_data(source):
        return scan_batches(options)
    chosen = {name: getattr(options, name) for name in _COLUMN_OPTIONS}
    found = read_export_batches(
        parse_options(ExportReadOptions, {**connection_of(options), **chosen, "source": source})
    )
    return found if options.limit is None else _first(found, options.limit)


def _first(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch[:limit]
        limit -= batch.num_rows
        if limit <= 0:
            return


@click.command()
@click.argument("source")
@flags_of(DigestOptions, without=["table", "on_misfit", "drop", "sample_items"])
@output_flags
def digest(*, source: str, as_json: bool, **flags: Any) -> None:
    """Print the digest of SOURCE: a table, an export, or files of Parquet or JSON Lines.

    It is the same for the same items, whatever their order, files or column types.
    """
    from ddbio.validation.digest import digest_source

    found = digest_source(source, parse_flags(DigestOptions, {**flags, "table": source}))
    click.echo(
        json.dumps({"source": source, "items": found.count, "digest": found.hexdigest()})
        if as_json
        else found.hexdigest()
    )


@click.command()
@click.argument("source")
@flags_of(InspectOptions, without=["table", "schema", "limit", "segments", "lanes", "on_misfit", "drop", "nulls"])
@click.option("--out", metavar="FILE", help="Write the schema to this file as well; --schema takes it.")
@click.option("--diff", metavar="FILE", help="Print what changed since this file was written.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="With --diff: exit with 1 if the data changed.",
)
@output_flags
def schema(*, source: str, out: str | None, diff: str | None, exit_code: bool, as_json: bool, **flags: Any) -> None:
    """Print the columns inferred from SOURCE: a table, an export, or files of DynamoDB JSON.

    The --json form is what --schema takes.
    """
    from ddbio.scan.infer import infer_schema

    if exit_code and diff is None:
        raise click.UsageError("--exit-code tells whether anything changed: give --diff, the file to compare with")
    before = None if diff is None else _read(diff)
    found = infer_schema(source, parse_flags(InspectOptions, {**flags, "table": source}))
    if out is not None:
        _write(out, found)
    if before is None:
        click.echo(found.to_json() if as_json else str(found))
        return
    evolution = before.diff(found)
    click.echo(json.dumps(evolution.to_dict(), ensure_ascii=False) if as_json else str(evolution))
    if exit_code and evolution.is_drift:
        raise SystemExit(CHANGED_EXIT)


def _read(path: str) -> ItemSchema:
    from ddbio.items.schema.item_schema import ItemSchema

    try:
        return ItemSchema.from_json(read_schema_text(path))
    except SchemaError as error:
        raise SchemaError(f"schema file {path!r}: {error}") from None


def _write(path: str, found: ItemSchema) -> None:
    try:
        local_path(path).write_text(found.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"schema file {path!r} cannot be written: {error.strerror}") from None
