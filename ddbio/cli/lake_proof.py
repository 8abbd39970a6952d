"""The commands that prove what tables of a lake hold, and show the past of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import QUIET_FLAG, flags_of, output_flags, parse_flags
from ddbio.cli.terminal import data_out, print_table
from ddbio.options import HistoryOptions, VerifyOptions, ViewOptions

if TYPE_CHECKING:
    from ddbio.lake.history import HistoryReport

DIFFERENT_EXIT = 1


@click.command()
@click.argument("table")
@click.argument("target", metavar="LAKE")
@flags_of(VerifyOptions, without=["table", "target"])
@output_flags
def verify(*, as_json: bool, **flags: Any) -> None:
    """Tell whether LAKE, a table of a lake, holds what TABLE holds; exit code 1 if it does not.

    TABLE is the name of a table, or the folder of a full export of it. By default both are compared as they are now.
    """
    from ddbio.cli.inspection import format_validation
    from ddbio.lake.verify import verify as run

    report = run(parse_flags(VerifyOptions, flags))
    if as_json:
        click.echo(report.to_json())
    else:
        shown = {"version": report.version, "as of": report.at or "now", "recent": report.recent}
        shown |= {"unsettled": report.unsettled, "tombstones": report.tombstones}
        lines = (f"{name:<11}{value}" for name, value in shown.items())
        click.echo("\n".join([format_validation(report), *lines]))
    if not report.passed:
        raise SystemExit(DIFFERENT_EXIT)


@click.command()
@click.argument("source")
@click.argument("key", required=False)
@flags_of(HistoryOptions, without=["source", "key"])
@output_flags
def history(*, as_json: bool, **flags: Any) -> None:
    """Print the states of the item KEY, or of every item, that SOURCE has, a log of changes or a lake table."""
    from ddbio.lake.history import describe_history

    report = describe_history(parse_flags(HistoryOptions, flags))
    if as_json:
        click.echo(report.to_json())
    else:
        _print_history(report)


def _print_history(report: HistoryReport) -> None:
    import json

    rows = [
        (
            each.key,
            each.valid_from or "",
            each.valid_to or "",
            each.operation,
            "" if each.item is None else json.dumps(each.item, ensure_ascii=False),
        )
        for each in report.states
    ]
    print_table(("key", "from", "to", "operation", "item"), rows)


@click.group()
def view() -> None:
    """Print the SQL of views over a log of changes, for Spark, DuckDB and Athena."""


@view.command("latest")
@click.argument("source", metavar="LOG")
@click.argument("target", metavar="LAKE")
@flags_of(ViewOptions, without=["source", "target"])
@QUIET_FLAG
def latest(**flags: Any) -> None:
    """Print the view of the newest state of all items: LAKE, and what LOG has since it was applied."""
    from ddbio.lake.views import latest_view_sql

    data_out().write(f"{latest_view_sql(parse_flags(ViewOptions, flags))};\n")


@view.command("history")
@click.argument("source", metavar="LOG")
@flags_of(ViewOptions, without=["source", "target", "lake_relation", "format"])
@QUIET_FLAG
def history_view(**flags: Any) -> None:
    """Print the view of the history of all items of LOG: each state with the times from and to which it was valid."""
    from ddbio.lake.views import history_view_sql

    data_out().write(f"{history_view_sql(parse_flags(ViewOptions, flags))};\n")
