"""The commands about folders of files: ``files``."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.options import FilesListOptions


@click.command()
@click.argument("path")
@flags_of(FilesListOptions, without=["path"])
@click.option("--as", "form", type=click.Choice(["lines", "symlink", "manifest"]), default="lines", show_default=True, help="Lines; the same URIs as a symlink manifest of Athena, Hive and Trino; or a JSON manifest with sizes.")  # fmt: skip # noqa: E501
@click.option("--history", is_flag=True, help="Print the versions that are there, and what made each, instead.")
@JSON_FLAG
def files(*, as_json: bool, form: str, history: bool, **flags: Any) -> None:
    """Print the live files of folder PATH, one a line: those that belong to its newest, or another, version."""
    from ddbio.ops.folders.listing import list_files, list_versions

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
        click.echo(found.to_symlinks(), nl=False)


def _versions(versions: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{each['version']:>6}  {each['created_at']}  {each['operation']:<10}{each['job_id']}  "
        f"{each['files']:,} files (+{each['added']:,} -{each['removed']:,})"
        for each in versions
    )
