"""The commands that print plans of the service's own jobs, and of a month of captured changes."""

from __future__ import annotations

from typing import Any

import click

from ddbio.cli.flags import FROM_FILE_FLAG, flags_of, output_flags, parse_flags
from ddbio.cli.show import print_plan
from ddbio.options import (
    BackupCreateOptions,
    BulkStartOptions,
    ExportStartOptions,
    ImportFilesFromOptions,
    ImportStartOptions,
    PlanCaptureOptions,
    RestoreOptions,
)


@click.command("export")
@click.argument("table")
@click.argument("dest")
@flags_of(ExportStartOptions, without=["table", "dest"])
@FROM_FILE_FLAG
@output_flags
def plan_export(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe TABLE, and print what its export to DEST would take and cost."""
    from ddbio.export import jobs

    print_plan(jobs.plan_of(parse_flags(ExportStartOptions, flags), from_file), as_json=as_json)


@click.command("import")
@click.argument("source")
@click.argument("table")
@flags_of(ImportStartOptions, without=["source", "table"])
@output_flags
def plan_import(*, as_json: bool, **flags: Any) -> None:
    """List the objects below SOURCE, and print what their import into a new TABLE would take and cost."""
    from ddbio.export import imports as jobs

    print_plan(jobs.plan_of(parse_flags(ImportStartOptions, flags)), as_json=as_json)


@click.command("import-files")
@click.argument("source")
@click.argument("dest")
@flags_of(ImportFilesFromOptions, without=["source", "dest"])
@output_flags
def plan_import_files(*, as_json: bool, **flags: Any) -> None:
    """List the files of SOURCE, and print what writing their rows as files for an import would take and cost."""
    from ddbio.load import import_files as files

    print_plan(files.plan_of(parse_flags(ImportFilesFromOptions, flags)), as_json=as_json)


@click.command("bulk")
@click.argument("source")
@click.argument("table")
@click.argument("reports")
@flags_of(BulkStartOptions, without=["source", "table", "reports"])
@FROM_FILE_FLAG
@output_flags
def plan_bulk(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """List the objects below SOURCE, and print what putting them into TABLE would take and cost."""
    from ddbio.export import bulk

    print_plan(bulk.plan_of(parse_flags(BulkStartOptions, flags), from_file), as_json=as_json)


@click.command("backup")
@click.argument("table")
@flags_of(BackupCreateOptions, without=["table"])
@FROM_FILE_FLAG
@output_flags
def plan_backup(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe TABLE, and print what a backup of it would cost."""
    from ddbio.export import backup

    print_plan(backup.plan_of_backup(parse_flags(BackupCreateOptions, flags), from_file), as_json=as_json)


@click.command("restore")
@click.argument("source")
@click.argument("target")
@flags_of(RestoreOptions, without=["source", "target"])
@FROM_FILE_FLAG
@output_flags
def plan_restore(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe the backup or table SOURCE, and print what the new table TARGET of it would cost."""
    from ddbio.export import backup

    print_plan(backup.plan_of(parse_flags(RestoreOptions, flags), from_file), as_json=as_json)


@click.command("capture")
@flags_of(PlanCaptureOptions)
@output_flags
def plan_capture(*, as_json: bool, **flags: Any) -> None:
    """Print what capturing the changes of a table for a month would take and cost; nothing is called."""
    from ddbio.jobs.costs import plan_capture as make_plan

    print_plan(make_plan(parse_flags(PlanCaptureOptions, flags)), as_json=as_json)
