"""Print, save and compare what a source's items look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags, read_schema_text
from ddbio.core.schema.item_schema import ItemSchema
from ddbio.errors import SchemaError
from ddbio.ops.infer import infer_schema
from ddbio.options import ScanOptions

CHANGED_EXIT = 1


@click.command()
@click.argument("source")
@flags_of(ScanOptions, without=["table", "schema", "limit", "segments", "lanes", "on_misfit", "drop", "nulls"])
@click.option("--out", metavar="FILE", help="Write the schema to this file as well; --schema takes it.")
@click.option("--diff", metavar="FILE", help="Print what changed since this file was written.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="With --diff: exit with 1 if the data changed.",
)
@JSON_FLAG
def schema(*, source: str, out: str | None, diff: str | None, exit_code: bool, as_json: bool, **flags: Any) -> None:
    """Print the columns inferred from SOURCE: a table, an export, or files of DynamoDB JSON.

    The --json form is what --schema takes.
    """
    if exit_code and diff is None:
        raise click.UsageError("--exit-code tells whether anything changed: give --diff, the file to compare with")
    before = None if diff is None else _read(diff)
    found = infer_schema(source, parse_flags(ScanOptions, {**flags, "table": source}))
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
    try:
        return ItemSchema.from_json(read_schema_text(path))
    except SchemaError as error:
        raise SchemaError(f"schema file {path!r}: {error}") from None


def _write(path: str, found: ItemSchema) -> None:
    try:
        Path(path).write_text(found.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"schema file {path!r} cannot be written: {error.strerror}") from None
