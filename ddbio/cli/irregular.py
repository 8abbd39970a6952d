"""Commands and runs of commands that do more than call a verb."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddbio import options as of
from ddbio.cli.flags import command_of, is_quiet, parse_conf, parse_flags, read_schema_text, set_flags
from ddbio.cli.progress import CopyProgress, JobProgress
from ddbio.cli.reports import print_result
from ddbio.cli.show import counted
from ddbio.cli.terminal import data_out
from ddbio.errors import SchemaError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from ddbio.cdc.capture import CaptureReport
    from ddbio.cdc.delivery import DeliveryReport
    from ddbio.export.bulk_reports import BulkSummary
    from ddbio.export.exports import ExportJob
    from ddbio.items.digest import Digest
    from ddbio.items.schema.item_schema import ItemSchema
    from ddbio.jobs.prices import PriceBook

FOUND_EXIT = 1
"""Exit code of a command that found problems or differences."""

_STDIN = "-"
_ONLY_PUBLISH = {"expect_rows", "expect_digest", "rules", "job_id", "max_usd", "max_seconds", "prices", "compute"}
_COLUMN_OPTIONS = ("schema", "on_misfit", "drop", "timestamps", "types", "numbers", "nulls", "sample_items")


def read(*, source: str, row_format: str, **flags: Any) -> None:
    """Print the items of a table or an export."""
    from ddbio.cli.rows import print_csv, print_json

    batches = _batches(source, parse_flags(of.ScanOptions, {**flags, "table": source}))
    if row_format == "csv":
        print_csv(batches, data_out())
    else:
        print_json(batches, sys.stdout)


def _batches(source: str, options: of.ScanOptions) -> Iterator[pa.RecordBatch]:
    from ddbio.export.read import read_export_batches
    from ddbio.scan.read import scan_batches
    from ddbio.sources.data_files import is_data

    if not is_data(source):
        return scan_batches(options)
    values = {
        **of.connection_of(options),
        **{name: getattr(options, name) for name in (*_COLUMN_OPTIONS, "where", "columns")},
    }
    exported = read_export_batches(of.parse_options(of.ExportReadOptions, {**values, "source": source}))
    return exported if options.limit is None else _first(exported, options.limit)


def _first(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch[:limit]
        limit -= batch.num_rows
        if limit <= 0:
            return


def digest(options: of.DigestOptions) -> Digest:
    """Return digest and count of the items of a table or of files."""
    from ddbio.validation.digest import digest_source

    return digest_source(options.table, options)


def schema(*, source: str, out: str | None, diff: str | None, exit_code: bool, as_json: bool, **flags: Any) -> None:
    """Print an inferred schema, save it, or compare it with a saved one."""
    from ddbio.scan.infer import infer_schema

    if exit_code and diff is None:
        raise click.UsageError("--exit-code reports changes: give --diff, the file to compare with")
    before = None if diff is None else _read_schema(diff)
    inferred = infer_schema(source, parse_flags(of.InspectOptions, {**flags, "table": source}))
    if out is not None:
        _write_schema(out, inferred)
    if before is None:
        click.echo(inferred.to_json() if as_json else str(inferred))
        return
    evolution = before.diff(inferred)
    click.echo(json.dumps(evolution.to_dict(), ensure_ascii=False) if as_json else str(evolution))
    if exit_code and evolution.is_drift:
        raise SystemExit(FOUND_EXIT)


def _read_schema(path: str) -> ItemSchema:
    from ddbio.items.schema.item_schema import ItemSchema

    try:
        return ItemSchema.from_json(read_schema_text(path))
    except SchemaError as error:
        raise SchemaError(f"schema file {path!r}: {error}") from None


def _write_schema(path: str, inferred: ItemSchema) -> None:
    try:
        local_path(path).write_text(inferred.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"schema file {path!r} cannot be written: {error.strerror}") from None


def load(*, source: str, row_format: str | None, **flags: Any) -> None:
    """Load files, or stdin, which is buffered in a file."""
    if (source == _STDIN) != (row_format is not None):
        raise click.UsageError("--format is for a SOURCE of -, which is stdin, and is needed there")
    if row_format is None:
        _load(source=source, **flags)
        return
    if flags["job_id"] is not None or flags["state"] is not None:
        raise click.UsageError("a load of stdin cannot be continued: give neither --job-id nor --state")
    with tempfile.TemporaryDirectory(prefix="ddbio-stdin-") as folder:
        path = Path(folder) / f"stdin.{row_format}"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        _load(source=str(path), can_continue=False, **flags)


def _load(
    *, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], can_continue: bool = True, **flags: Any
) -> None:
    from ddbio.jobs.stores import new_job_id
    from ddbio.load.load import load_files, load_plan_of

    options = parse_flags(of.LoadOptions, flags)
    if dry_run:
        print_result(load_plan_of(options), as_json=as_json)
        return
    if not options.retry_rejects:
        # The id is known from the start, so that a killed load can be resumed.
        options = dataclasses.replace(options, job_id=options.job_id or new_job_id())
    note = f"job      {options.job_id}\n"
    watch = JobProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet(), note=note)
    try:
        report = load_files(options, master=master, conf=parse_conf(conf), watch=watch, can_continue=can_continue)
    except KeyboardInterrupt:
        reached = f"{counted(watch.written, 'row')} reached table {options.table!r}"
        if not can_continue:
            raise KeyboardInterrupt(f"{reached}; a load of stdin cannot be continued: load all rows again") from None
        same = {**flags, "master": master, "conf": conf, "json": as_json, "quiet": is_quiet(), "job_id": options.job_id}
        command = command_of("load", ["source", "table"], same)
        ways = "try the others again by" if options.retry_rejects else "continue after the finished rows by"
        raise KeyboardInterrupt(f"{reached}; {ways}: {command}") from None
    print_result(report, as_json=as_json)


def copy(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Copy a table. After an interruption report the copied items."""
    from ddbio.load import copy as copying

    options = parse_flags(of.CopyOptions, flags)
    if dry_run:
        print_result(copying.plan_copy(options), as_json=as_json)
        return
    watch = CopyProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet())
    try:
        report = copying.copy(options, watch)
    except KeyboardInterrupt:
        command = command_of("copy", ["source", "target"], {**flags, "json": as_json, "quiet": is_quiet()})
        message = f"{counted(watch.written, 'item')} reached table {options.target!r}; copy all again by: {command}"
        raise KeyboardInterrupt(message) from None
    print_result(report, as_json=as_json)


def start_export(
    options: of.ExportStartOptions, *, waits: bool, watch: Callable[[ExportJob, float], None]
) -> ExportJob:
    """Start an export, and wait for it if requested."""
    from ddbio.export.exports import EXPORT

    job = EXPORT.start(options)
    return EXPORT.wait(of.WaitOptions(**of.connection_of(options), arn=job.arn), watch) if waits else job


def export_windows(options: of.ExportWindowsOptions, increments: Sequence[str]) -> list[dict[str, str]]:
    """Return the windows to request, as the options of their exports."""
    from ddbio.export.fold import windows_to_request

    windows = windows_to_request(options, increments)
    return [{"from_time": window.start.isoformat(), "to_time": window.end.isoformat()} for window in windows]


def bulk_summary(options: of.BulkReportOptions) -> BulkSummary:
    """Return the counts of the items that a bulk put rejected."""
    from ddbio.export.bulk_reports import read_reports

    return read_reports(options).summary


def capture(options: of.CaptureOptions) -> CaptureReport:
    """Capture changes until a signal requests the end."""
    from ddbio.cdc.capture import capture as run

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return run(options, stop)


def write_changes(options: of.ChangesWriteOptions, files: Sequence[Path]) -> DeliveryReport:
    """Write the change records of files as Firehose would deliver them."""
    from ddbio.cdc.delivery import write_changes as run

    return run((file.read_bytes() for file in files), options)


def maintain(
    *,
    as_json: bool,
    dry_run: bool,
    policy: str | None,
    table: str | None,
    master: str | None,
    conf: tuple[str, ...],
    **flags: Any,
) -> None:
    """Maintain a table, or the tables of a policy."""
    from ddbio.lake.maintain import maintain as run
    from ddbio.lake.maintain import plan_maintain
    from ddbio.lake.policy import read_policy

    step = plan_maintain if dry_run else functools.partial(run, master=master, conf=parse_conf(conf))
    if policy is None:
        print_result(step(parse_flags(of.MaintainOptions, set_flags({"table": table, **flags}))), as_json=as_json)
        return
    if table is not None:
        raise click.UsageError("a policy contains its tables: give TABLE or --policy")
    names = [field.name for field in dataclasses.fields(of.ConnectionOptions)]
    connection = parse_flags(of.ConnectionOptions, {name: flags.pop(name) for name in names if name in flags})
    if more := set_flags(flags):
        raise click.UsageError(f"a policy has the options of its tables: leave {', '.join(more)} out")
    print_result(
        [step(policy_options) for policy_options in read_policy(policy, connection)], as_json=as_json, key="tables"
    )


def latest_view(options: of.ViewOptions) -> str:
    """Return the SQL of the view of the newest states."""
    from ddbio.lake.views import latest_view_sql

    return f"{latest_view_sql(options)};\n"


def history_view(options: of.ViewOptions) -> str:
    """Return the SQL of the view of all states."""
    from ddbio.lake.views import history_view_sql

    return f"{history_view_sql(options)};\n"


def files(*, as_json: bool, list_format: str, history: bool, **flags: Any) -> None:
    """Print the live files of a folder, or its versions."""
    from ddbio.folders.listing import list_files, list_versions

    options = parse_flags(of.FilesListOptions, flags)
    if history:
        versions = list_versions(options)
        click.echo(json.dumps({"path": options.path, "versions": versions}) if as_json else _versions(versions))
        return
    listing = list_files(options)
    if as_json:
        click.echo(listing.to_json())
    elif list_format == "manifest":
        click.echo(listing.to_manifest())
    else:
        # A manifest contains the stored names; lines are also for people.
        (data_out() if list_format == "symlink" else sys.stdout).write(listing.to_symlinks())


def _versions(versions: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{version['version']:>6}  {version['created_at']}  {version['operation']:<10}{version['job_id']}  "
        f"{version['files']:,} files (+{version['added']:,} -{version['removed']:,})"
        for version in versions
    )


def publish(*, paths: tuple[str, ...], as_json: bool, rollback: bool, to_version: str | None, **flags: Any) -> None:
    """Publish a folder, or roll back to an earlier version."""
    from ddbio.folders import publish as publishing

    if len(paths) != (1 if rollback else 2):
        raise click.UsageError("give CURATED with --rollback, else STAGING and CURATED")
    if to_version is not None and not rollback:
        raise click.UsageError("--to-version belongs to --rollback")
    if rollback:
        values = {name: value for name, value in flags.items() if name not in _ONLY_PUBLISH}
        values |= {"path": paths[0], "to_version": to_version}
        report = publishing.rollback(parse_flags(of.RollbackOptions, values))
    else:
        report = publishing.publish(parse_flags(of.PublishOptions, {**flags, "source": paths[0], "dest": paths[1]}))
    print_result(report, as_json=as_json)


def doctor(*, as_json: bool, strict: bool, **flags: Any) -> None:
    """Print the findings and actions. Fail if there is a problem, or with --strict a warning."""
    from ddbio.advice.doctor import doctor as run

    report = run(parse_flags(of.DoctorOptions, flags))
    print_result(report, as_json=as_json)
    if report.problems or (strict and report.warnings):
        raise SystemExit(FOUND_EXIT)


def show_prices(options: of.PriceOptions) -> PriceBook:
    """Return the prices of a region."""
    from ddbio.jobs.costs import book_of

    return book_of(options.region, options.prices)
