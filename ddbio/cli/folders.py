"""The commands about folders of files: ``files``, ``compact``, ``vacuum`` and ``publish``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, flags_of, output_flags, parse_conf, parse_flags
from ddbio.cli.show import (
    catalog_rows,
    counted,
    format_bytes,
    format_estimate,
    format_values,
    layout_rows,
    planned_rows,
    print_plan,
)
from ddbio.cli.terminal import data_out
from ddbio.options import CompactOptions, FilesListOptions, PublishOptions, RollbackOptions, VacuumOptions

if TYPE_CHECKING:
    from ddbio.folders.compact import CompactReport


@click.command()
@click.argument("path")
@flags_of(FilesListOptions, without=["path"])
@click.option("--as", "form", type=click.Choice(["lines", "symlink", "manifest"]), default="lines", show_default=True, help="Lines; the same URIs as a symlink manifest of Athena, Hive and Trino; or a JSON manifest with sizes.")  # fmt: skip # noqa: E501
@click.option("--history", is_flag=True, help="Print the versions that are there, and what made each, instead.")
@JSON_FLAG
def files(*, as_json: bool, form: str, history: bool, **flags: Any) -> None:
    """Print the live files of folder PATH, one a line: those that belong to its newest, or another, version."""
    from ddbio.folders.listing import list_files, list_versions

    options = parse_flags(FilesListOptions, flags)
    if history:
        versions = list_versions(options)
        click.echo(json.dumps({"path": options.path, "versions": versions}) if as_json else _versions(versions))
        return
    found = list_files(options)
    if as_json:
        click.echo(found.to_json())
    elif form == "manifest":
        click.echo(found.to_manifest())
    else:
        # A manifest names files as they are called; lines are for people too.
        (data_out() if form == "symlink" else sys.stdout).write(found.to_symlinks())


def _versions(versions: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{each['version']:>6}  {each['created_at']}  {each['operation']:<10}{each['job_id']}  "
        f"{each['files']:,} files (+{each['added']:,} -{each['removed']:,})"
        for each in versions
    )


@click.command()
@click.argument("path")
@flags_of(CompactOptions, without=["path"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@output_flags
def compact(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Rewrite the small files of folder PATH as few large ones, in one commit.

    Rows are counted and digested before and after. Readers see the old files or the new ones.
    """
    from ddbio.folders import compact as compaction

    options = parse_flags(CompactOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    report = compaction.compact(options, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else _compact_text(report))


@click.command("compact")
@click.argument("path")
@flags_of(CompactOptions, without=["path"])
@output_flags
def plan_compact(*, as_json: bool, **flags: Any) -> None:
    """Print which files of folder PATH would be rewritten, and as how many."""
    _print_plan(parse_flags(CompactOptions, flags), as_json=as_json)


def _print_plan(options: CompactOptions, *, as_json: bool) -> None:
    from ddbio.folders import compact as compaction

    plan = compaction.plan_compact(options)
    before = f"{counted(plan.files_before, 'file')}, {format_bytes(plan.bytes_before)}"
    rewrite = f"{counted(plan.files_rewritten, 'file')}, {format_bytes(plan.bytes_rewritten)}"
    rows = [
        ("folder", f"{plan.path}, version {plan.version}: {before}"),
        ("rewrite", f"{rewrite}, to files of {format_bytes(plan.target_bytes)}"),
        ("after", f"about {counted(plan.files_after, 'file')}"),
        ("engine", plan.engine),
    ]
    text = "\n".join([*(f"{name:<10}{value}" for name, value in rows), format_estimate(plan.estimate)])
    click.echo(plan.to_json() if as_json else text)


def _compact_text(report: CompactReport) -> str:
    time = f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"
    rewrote = f"{counted(report.rows_rewritten, 'row')} of {counted(report.files_rewritten, 'file')}"
    rows = [
        ("before", f"{counted(report.files_before, 'file')}, {format_bytes(report.bytes_before)}"),
        ("after", f"{counted(report.files_after, 'file')}, {format_bytes(report.bytes_after)}"),
        ("rewrote", rewrote if report.files_rewritten else "nothing: all files stay as they are"),
        *_left_rows(report),
        *layout_rows(report.layout),
        ("digest", report.digest_after or "not taken"),
        ("time", f"{time} ({report.engine}, {counted(report.tasks, 'task')})"),
        *planned_rows(report.planned, report.actual),
        *catalog_rows(report.catalog),
    ]
    return "\n".join(f"{name:<9}{value}" for name, value in rows)


def _left_rows(report: CompactReport) -> list[tuple[str, str]]:
    """Return what was left unchanged, and the first reason."""
    left = report.files_left
    return [("left", f"{counted(len(left), 'file')}, {path}: {left[path]}") for path in list(left)[:1]]


@click.command()
@click.argument("path")
@flags_of(VacuumOptions, without=["path"])
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
@output_flags
def vacuum(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Delete old versions of folder PATH, and the files that only they name.

    What dead jobs have staged goes, too. Files that ddbio did not write stay.
    """
    from ddbio.folders import vacuum as vacuuming

    report = vacuuming.vacuum(parse_flags(VacuumOptions, flags), dry_run=dry_run)
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@click.command()
@click.argument("paths", nargs=-1, metavar="[STAGING] CURATED")
@flags_of(PublishOptions, without=["source", "dest"])
@click.option("--rollback", is_flag=True, help="Make an older version of CURATED, the only argument, the newest again.")
@click.option("--to-version", metavar="N", help="With --rollback: the version; default is the one before the newest.")
@output_flags
def publish(*, paths: tuple[str, ...], as_json: bool, rollback: bool, to_version: str | None, **flags: Any) -> None:
    """Make the live files of folder STAGING the next version of folder CURATED; --rollback takes it back.

    Readers of CURATED that go by 'ddbio files' or by its symlink manifest see the old version or the new one.
    """
    from ddbio.folders import publish as publishing

    if len(paths) != (1 if rollback else 2):
        raise click.UsageError("give CURATED with --rollback, else STAGING and CURATED")
    if to_version is not None and not rollback:
        raise click.UsageError("--to-version belongs to --rollback")
    if rollback:
        connection = {name: value for name, value in flags.items() if name not in _ONLY_PUBLISH}
        options = parse_flags(RollbackOptions, {**connection, "path": paths[0], "to_version": to_version})
        report = publishing.rollback(options)
    else:
        report = publishing.publish(parse_flags(PublishOptions, {**flags, "source": paths[0], "dest": paths[1]}))
    planned = {"planned": None, "actual": None, **dict(planned_rows(report.planned, report.actual))}
    values = {**report.to_dict(), "layout": None, **dict(layout_rows(report.layout)), **planned}
    click.echo(report.to_json() if as_json else format_values(values))


_ONLY_PUBLISH = {"expect_rows", "expect_digest", "rules", "job_id", "max_usd", "max_seconds", "prices", "compute"}


@click.command("publish")
@click.argument("source")
@click.argument("dest")
@flags_of(PublishOptions, without=["source", "dest"])
@output_flags
def plan_publish(*, as_json: bool, **flags: Any) -> None:
    """Print what making the live files of folder SOURCE the next version of folder DEST would take and cost."""
    from ddbio.folders import publish as publishing

    print_plan(publishing.plan_publish(parse_flags(PublishOptions, flags)), as_json=as_json)
