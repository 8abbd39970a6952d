"""Parse the command line and answer every failure with one line and an exit code."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli import export_jobs, import_jobs
from ddbio.cli.backup import backup
from ddbio.cli.bulk import bulk
from ddbio.cli.copy import copy, table
from ddbio.cli.demo import demo
from ddbio.cli.export import export
from ddbio.cli.export_fold import fold, windows
from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, flags_of, parse_conf, parse_flags
from ddbio.cli.import_table import import_table
from ddbio.cli.load import load, plan_load
from ddbio.cli.progress import ProgressWatch
from ddbio.cli.schema import schema
from ddbio.cli.show import format_plan, format_report, plan_to_dict
from ddbio.core.kernel.store import kept_folder
from ddbio.core.warm import warm as compile_all
from ddbio.errors import DdbioError
from ddbio.ops.scans.scan import plan_of, scan_to_files
from ddbio.options import ScanToFilesOptions
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE_EXIT, FAILURE_EXIT, INTERRUPTED_EXIT = 2, 1, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="ddbio")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", help="Log to stderr from this level on.")  # fmt: skip # noqa: E501
def cli(log_level: str) -> None:
    """Move data between Amazon DynamoDB and S3, fast and exactly."""
    logging.basicConfig(level=log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_no_interrupt)


@cli.command()
@click.argument("table")
@click.argument("dest")
@flags_of(ScanToFilesOptions, without=["table", "dest"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@JSON_FLAG
def scan(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Scan TABLE into Parquet files at DEST: s3://bucket/prefix or a local folder."""
    options = parse_flags(ScanToFilesOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    watch = ProgressWatch(show_plan=not as_json)
    report = scan_to_files(options, master=master, conf=parse_conf(conf), watch=watch)
    click.echo(report.to_json() if as_json else format_report(report))


@cli.group()
def plan() -> None:
    """Print what a verb would do and cost, and do none of it."""


@plan.command("scan")
@click.argument("table")
@click.argument("dest", required=False, default="unplanned")
@flags_of(ScanToFilesOptions, without=["table", "dest"])
@JSON_FLAG
def plan_scan(*, as_json: bool, **flags: Any) -> None:
    """Describe and sample TABLE, and print how it would be scanned."""
    _print_plan(parse_flags(ScanToFilesOptions, flags), as_json=as_json)


@cli.command()
@JSON_FLAG
def warm(*, as_json: bool) -> None:
    """Compile all loops ahead of their first use, or load them from where they are kept."""
    began = time.monotonic()
    compile_all()
    seconds = round(time.monotonic() - began, 3)
    folder = None if kept_folder() is None else str(kept_folder())
    done = {"seconds": seconds, "folder": folder}
    click.echo(json.dumps(done) if as_json else f"the kernel is ready after {seconds:.1f} s; kept in {folder}")


plan.add_command(plan_load)
cli.add_command(backup)
cli.add_command(bulk)
cli.add_command(copy)
cli.add_command(demo)
cli.add_command(load)
cli.add_command(export)
for verb in (export_jobs.start, export_jobs.wait, export_jobs.list_exports, export_jobs.show):
    export.add_command(verb)
for verb in (import_jobs.start, import_jobs.wait, import_jobs.list_imports, import_jobs.show):
    import_table.add_command(verb)
export.add_command(fold)
export.add_command(windows)
cli.add_command(import_table)
cli.add_command(schema)
cli.add_command(table)


def run(argv: Sequence[str]) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    as_json = "--json" in argv
    try:
        cli.main(args=list(argv), prog_name="ddbio", standalone_mode=False)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except (click.Abort, KeyboardInterrupt) as ended:
        told = str(ended.__cause__ or ended) or "no file of this job is visible"
        _fail("Interrupted", f"interrupted; {told}", INTERRUPTED_EXIT, as_json=as_json)
    except click.UsageError as error:
        if error.ctx is not None and error.message == error.ctx.get_help():
            # A group without a verb: newer versions of click raise its help.
            click.echo(error.message, err=True)
            raise SystemExit(USAGE_EXIT) from None
        _fail("OptionError", error.format_message(), USAGE_EXIT, as_json=as_json)
    except DdbioError as error:
        logging.getLogger("ddbio").debug("failed", exc_info=error)
        _fail(type(error).__name__, str(error), FAILURE_EXIT, as_json=as_json)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return False for Ctrl-C, of which py4j logs a traceback: it is told once, when all is cleared away."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def _print_plan(options: ScanToFilesOptions, *, as_json: bool) -> None:
    made = plan_of(options)
    click.echo(json.dumps(plan_to_dict(made), ensure_ascii=False) if as_json else format_plan(made))


def _fail(kind: str, message: str, code: int, *, as_json: bool) -> None:
    line = " ".join(message.split())
    sys.stderr.write(f"ddbio: {line}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"type": kind, "message": line}}, ensure_ascii=False) + "\n")
    raise SystemExit(code)
